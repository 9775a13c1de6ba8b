"""The sections `training:` and `lifetime:` of a space file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dse.errors import InputError
from dse.schema.catalog import Catalog
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs
from dse.schema.lifetime import LifetimeTerms
from dse.schema.loader import Document, KeyPath
from dse.schema.metrics import METRICS
from dse.schema.owning import lacks_for_owning
from dse.schema.reader import Mistakes, Place
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


def check_training_metrics(document: Document, mistakes: Mistakes) -> None:
    """A metric of training or life without its section is a mistake."""
    objectives, limits = (document.data.get(key) for key in ("objectives", "constraints"))
    named: list[tuple[KeyPath, str]] = []
    if isinstance(objectives, Mapping):
        named += [(("objectives", str(name)), str(name)) for name in objectives]
    if isinstance(limits, list | tuple):
        named += [
            (("constraints", k), text.split()[0])
            for k, text in enumerate(map(str, limits))
            if text.strip()
        ]
    for path, name in named:
        for prefix, section in SECTIONS.items():
            missing = name in METRICS and name.startswith(prefix) and name not in ALWAYS
            if missing and section not in document.data:
                mistakes.add(path, f"{name} without {section}:", f"the section {section}:")
