"""Reads the keys of one configuration file and keeps account of what it did not say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from dse.errors import InputError
from dse.schema.model import LARGEST_LAYERS, LARGEST_SIZE


class Default(Enum):
    """Defaults that are no value: a key the file must have, and `as many as query heads`."""

    REQUIRED = "required"
    HEADS = "num_attention_heads"


REQUIRED, HEADS = Default.REQUIRED, Default.HEADS


class ConfigReader:
    """One configuration of one family; every refusal is an InputError that names the key."""

    def __init__(
        self,
        config: Mapping[str, object],
        family: str,
        defaults: Mapping[str, object],
        aliases: Mapping[str, str],
        source: str,
    ) -> None:
        self.family, self.source = family, source
        self.assumed: list[str] = []
        self.known = {*defaults, *aliases}
        self._defaults = defaults
        self._config = dict(config)
        for alias, key in aliases.items():
            if alias in config and self._config.setdefault(key, config[alias]) != config[alias]:
                raise self.refuse(alias, f"{config[alias]!r}, but {key} is {config[key]!r}")
        self.layers = self.integer("num_hidden_layers", most=LARGEST_LAYERS)

    def refuse(self, key: str, message: str, accepted: str | None = None) -> InputError:
        return InputError(message, file=self.source, field=key, accepted=accepted)

    def assume(self, sentence: str) -> None:
        if sentence not in self.assumed:
            self.assumed.append(sentence)

    def value(self, key: str) -> object:
        """What the file says (null included), else the family's default, which is noted."""
        if key in self._config:
            return self._config[key]
        default = self._defaults[key]
        if default is REQUIRED:
            raise self.refuse(key, f"missing, and {self.family} has no default worth guessing")
        if default is HEADS:
            self.assume(f"{key} absent: as many as num_attention_heads, the family's default")
        elif default is not None:
            word = str(default).lower() if isinstance(default, bool) else default
            self.assume(f"{key} absent: {word}, the family's default")
        return None if default is HEADS else default

    def integer(self, key: str, least: int = 1, most: float = LARGEST_SIZE) -> int:
        value = self.optional_integer(key, least, most)
        if value is None:
            raise self.refuse(key, "null", f"a whole number of at least {least}")
        return value

    def optional_integer(self, key: str, least: int = 1, most: float = LARGEST_SIZE) -> int | None:
        """A whole number, or None where the file says null or the default is None."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            text = repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
            raise self.refuse(key, f"{text} is no size", f"a whole number, {least} to {most:.0f}")
        return value

    def boolean(self, key: str) -> bool:
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.refuse(key, f"{value!r}", "true or false")
        return value

    def whole_list(self, key: str) -> list[int]:
        """A list of layer numbers; absent or null is an empty one."""
        value = self.value(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.refuse(key, f"{value!r}", "a list of layer numbers")
        return value

    def collapse(self, key: str) -> None:
        """Takes a list of equal values, one a layer, as that one value."""
        value = self._config.get(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            self._config[key] = value[0]

    @property
    def hidden(self) -> int:
        return self.integer("hidden_size")

    def flags(self, key: str) -> list[bool] | None:
        """One 0 or 1 (or false or true) a layer; None where the key is absent or null."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < self.layers:
            raise self.refuse(key, f"{value!r}", f"a list of {self.layers} flags")
        if any(type(item) not in (int, bool) or item not in (0, 1) for item in value):
            raise self.refuse(key, f"{value!r}", "0 or 1 a layer")
        return [bool(item) for item in value[: self.layers]]

    def names(self, key: str, accepted: tuple[str, ...]) -> list[str] | None:
        """One of the accepted names a layer; None where the key is absent or null."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != self.layers:
            raise self.refuse(key, "no list of num_hidden_layers names", f"{self.layers}")
        for name in value:
            if name not in accepted:
                raise self.refuse(key, f"{name!r} is not covered", ", ".join(accepted))
        return value
