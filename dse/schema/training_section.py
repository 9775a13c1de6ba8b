"""The sections `training:` and `lifetime:` of a space file."""

from __future__ import annotations

from dataclasses import replace

from dse.errors import InputError
from dse.record import record
from dse.schema.catalog import Catalog
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs
from dse.schema.owning import lacks_for_owning
from dse.schema.reader import Field, Mistakes, Place, Quantity, Share, Table
from dse.schema.training_run import TrainingTerms

# Metrics whose names begin so need the section.
SECTIONS = {"training_": "training", "lifetime_": "lifetime"}
# These need none.
ALWAYS = ("training_tokens", "training_flops")


def check_training(
    terms: TrainingTerms | None,
    life: LifetimeTerms | None,
    basis: object,
    catalog: Catalog,
    costs: Costs | None,
    mistakes: Mistakes,
) -> TrainingTerms | None:
    """The terms, with the price basis of the study where the section names none. What is wrong goes
    to `mistakes`."""
    if life is not None and terms is None:
        accepted = "training: {chip: h100_sxm, chips: 1024}, too"
        mistakes.add(("lifetime",), "a life without training", accepted)
    if terms is None:
        return None
    priced = replace(terms, price_basis=terms.price_basis or str(basis))
    Place(mistakes, ("training",)).call(lambda: _check_chip(priced, catalog, costs))
    return priced


def _check_chip(terms: TrainingTerms, catalog: Catalog, costs: Costs | None) -> None:
    """Raises InputError where the chip does not exist, lacks a figure or has no price."""
    catalog.chip(terms.chip)
    refused = catalog.refusal(terms.chip, terms.chips / terms.sites)
    if refused is not None:
        raise InputError(refused, field="chip", accepted="a chip with that figure")
    if terms.price_basis == OWNED:
        lacking = lacks_for_owning(catalog, terms.chip, costs)
    else:
        priced = terms.chip in catalog.prices.select(str(terms.price_basis))
        lacking = None if priced else f"{terms.chip} has no price on basis {terms.price_basis}"
    if lacking is not None:
        raise InputError(lacking, field="chip", accepted="a chip with a price, or price_basis")


# The forecast of a model's life in a space file (`lifetime:`).


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
