"""The forecast of a model's life in a space file (`lifetime:`)."""

from __future__ import annotations

from dse.errors import InputError
from dse.record import record
from dse.schema.reader import Field, Quantity, Share, Table


@record
class LifetimeTerms:
    """`tokens` served in all, prompt and output; `input_share` of them are prompt tokens (None: as
    in the workload). Or, `tokens` None, `tokens_per_year` in the first of `years`, 1 + `growth`
    times as many in each further one."""

    tokens: float | None
    tokens_per_year: float | None = None
    years: float = 1.0
    growth: float = 0.0
    input_share: float | None = None


def _terms(
    tokens: float | None,
    tokens_per_year: float | None,
    years: float | None,
    growth: float | None,
    input_share: float | None,
) -> LifetimeTerms:
    """Raises InputError for a forecast that is given twice or in part."""
    if (tokens is None) == (tokens_per_year is None):
        said = "neither" if tokens is None else "both"
        accepted = "one of tokens: 10T and tokens_per_year: 5T with years: 3"
        raise InputError(f"{said} given", field="tokens", accepted=accepted)
    if tokens is not None:
        for name, value in (("years", years), ("growth", growth)):
            if value is not None:
                accepted = "tokens_per_year in place of tokens"
                raise InputError("tokens are of the whole life", field=name, accepted=accepted)
        return LifetimeTerms(tokens, input_share=input_share)
    if years is None:
        raise InputError("missing", field="years", accepted="years of service, such as 3")
    return LifetimeTerms(None, tokens_per_year, years, growth or 0.0, input_share)


_TOKENS = Quantity("tokens", "1 to 1e24 tokens, such as 10T", 1.0, 1e24)
LIFETIME = Table(
    Field("tokens", _TOKENS, None, meaning="served in all, prompt and output"),
    Field("tokens_per_year", _TOKENS, None, meaning="served in the first year"),
    Field("years", Share(1e-3, 100.0), None, meaning="of service"),
    Field("growth", Share(-1.0, 100.0), None, meaning="of tokens_per_year, a year"),
    Field("input_share", Share(0.0, 1.0), None, meaning="prompt tokens; as in the workload"),
    make=_terms,
)
