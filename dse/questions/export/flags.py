"""Tables of the flags of another tool, and the one engine that reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

Flags = Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag (or key of an options file) of another tool, and what of ours it says.

    `of` names an attribute (`backend.memory_fraction`) or, of a mapping, a key; or it is a function
    of what is exported. The flag is left out where that is None or `unless`; True is a switch.
    """

    name: str
    of: str | Callable[[Any], Any]
    unless: Any = None

    def value(self, subject: Any) -> Any:
        """What the flag says of `subject`; None where it is left out."""
        if callable(self.of):
            found = self.of(subject)
        elif isinstance(subject, Mapping):
            found = subject.get(self.of)
        else:
            found = attrgetter(self.of)(subject)
        return None if found == self.unless else found


def switch(name: str, where: Callable[[Any], Any]) -> Flag:
    """A flag without a value, given where `where` holds."""
    return Flag(name, lambda subject: bool(where(subject)) or None)


def stated(table: Iterable[Flag], subject: Any) -> list[tuple[str, Any]]:
    """(name, value) of the flags that are not left out."""
    return [(flag.name, value) for flag in table if (value := flag.value(subject)) is not None]


def flags_of(table: Iterable[Flag], subject: Any) -> list[tuple[str, str | None]]:
    """The same as parts of a command line; None: a switch."""
    return [(name, _text(value)) for name, value in stated(table, subject)]


def _text(value: Any) -> str | None:
    if value is True:
        return None
    return value if isinstance(value, str) else f"{value:g}" if value % 1 else f"{value:.0f}"


def nested(found: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An options file: a name with dots is a key inside others."""
    options: dict[str, Any] = {}
    for name, value in found:
        *above, key = name.split(".")
        place = options
        for one in above:
            place = place.setdefault(one, {})
        place[key] = value
    return options
