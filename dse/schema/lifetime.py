"""The forecast of a model's life in a space file (`lifetime:`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from dse import units
from dse.errors import InputError
from dse.schema.metrics import parse_limit


@dataclass(frozen=True, slots=True)
class LifetimeTerms:
    """`tokens` served in all, prompt and output; `input_share` of them are prompt tokens (None: as
    in the workload). Or, `tokens` None, `tokens_per_year` in the first of `years`, 1 + `growth`
    times as many in each further one."""

    tokens: float | None
    tokens_per_year: float | None = None
    years: float = 1.0
    growth: float = 0.0
    input_share: float | None = None


class LifetimeFile(BaseModel):
    """The terms as a space file writes them."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    tokens: Any = None
    tokens_per_year: Any = None
    years: Any = None
    growth: Any = None
    input_share: Any = None

    def terms(self) -> LifetimeTerms:
        """Raises InputError, its field one of this class."""
        if (self.tokens is None) == (self.tokens_per_year is None):
            said = "neither" if self.tokens is None else "both"
            accepted = "one of tokens: 10T and tokens_per_year: 5T with years: 3"
            raise InputError(f"{said} given", field="tokens", accepted=accepted)
        share = self._share("input_share", 0.0, 1.0)
        if self.tokens is not None:
            for name in ("years", "growth"):
                if getattr(self, name) is not None:
                    accepted = "tokens_per_year in place of tokens"
                    raise InputError("tokens are of the whole life", field=name, accepted=accepted)
            return LifetimeTerms(self._tokens("tokens"), input_share=share)
        if self.years is None:
            raise InputError("missing", field="years", accepted="years of service, such as 3")
        years = self._share("years", 1e-3, 100.0)
        growth = self._share("growth", -1.0, 100.0)
        return LifetimeTerms(
            None, self._tokens("tokens_per_year"), years or 1.0, growth or 0.0, share
        )

    def _tokens(self, name: str) -> float:
        value = units.parse(getattr(self, name), "tokens", field=name)
        if not 1.0 <= value <= 1e24:
            accepted = "1 to 1e24 tokens, such as 10T"
            raise InputError(f"read {getattr(self, name)!r}", field=name, accepted=accepted)
        return value

    def _share(self, name: str, least: float, most: float) -> float | None:
        written = getattr(self, name)
        if written is None:
            return None
        sign = -1.0 if str(written).startswith("-") else 1.0
        try:
            value = sign * parse_limit(str(written).removeprefix("-"), "fraction")
        except InputError:
            value = float("nan")
        if not least <= value <= most:
            accepted = f"a number, {least:g} to {most:g}"
            raise InputError(f"read {written!r}", field=name, accepted=accepted)
        return value
