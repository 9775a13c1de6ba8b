"""The sections `training:` and `lifetime:` of a space file."""

from __future__ import annotations

from dataclasses import replace

from dse.errors import InputError
from dse.schema.catalog import Catalog
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs
from dse.schema.owning import lacks_for_owning
from dse.schema.reader import Mistakes, Place, Quantity, Refused, Schema, Share, field
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


_TOKENS = Quantity("tokens", "1 to 1e24 tokens, such as 10T", 1.0, 1e24)


class LifetimeTerms(Schema):
    """`tokens` served in all, prompt and output; `input_share` of them are prompt tokens (None: as
    in the workload). Or, `tokens` None, `tokens_per_year` in the first of `years`, 1 + `growth`
    times as many in each further one."""

    tokens: float | None = field(_TOKENS, default=None, meaning="served in all, prompt and output")
    tokens_per_year: float | None = field(_TOKENS, default=None, meaning="served in the first year")
    years: float = field(Share(1e-3, 100.0), default=1.0, left_out=None, meaning="of service")
    growth: float = field(
        Share(-1.0, 100.0), default=0.0, left_out=None, meaning="of tokens_per_year, a year"
    )
    input_share: float | None = field(
        Share(0.0, 1.0), default=None, meaning="prompt tokens; as in the workload"
    )

    def check(self) -> LifetimeTerms:
        """Refuses a forecast that is given twice or in part."""
        given = [name for name, value in vars(self).items() if value is not None]
        if ("tokens" in given) == ("tokens_per_year" in given):
            message = "both given" if "tokens" in given else "neither given"
            accepted = "one of tokens: 10T and tokens_per_year: 5T with years: 3"
            raise Refused(message, accepted, "tokens")
        for name in ("years", "growth"):
            if name in given and "tokens" in given:
                accepted = "tokens_per_year in place of tokens"
                raise Refused("tokens are of the whole life", accepted, name)
        if not {"years", "tokens"} & {*given}:
            raise Refused("missing", "years of service, such as 3", "years")
        return replace(self, years=self.years or 1.0, growth=self.growth or 0.0)
