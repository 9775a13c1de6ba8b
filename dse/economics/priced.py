"""What the prices of an answer rest on, in sentences and, where chips are owned, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.answer.answer import Column, Table
from dse.answer.sentences import Sources
from dse.catalog import Catalog
from dse.economics.tco import usd_per_chip_hour
from dse.schema.catalog import Source
from dse.schema.costs import BASIS as OWNED
from dse.schema.owning import lacks_for_owning
from dse.schema.prices import OWN

# Titles of columns.
SHORT: dict[str, str] = {"server with chip": "server", "cost of capital": "capital"}
UNSOLD = (
    "announced",
    "announced_ramping",
    "announced_deprioritised",
    "internal",
    "restricted",
    "limited",
    "hypothetical",
)


def unsold(catalog: Catalog, chips: Iterable[str]) -> dict[str, str]:
    """Those of `chips` that are not on general sale, with what their files say."""
    sale = {chip: catalog.chips[chip].availability for chip in chips}
    return {chip: word.replace("_", ", ") for chip, word in sale.items() if word in UNSOLD}


def unsold_sentences(unsold: Mapping[str, str], chips: Iterable[str]) -> list[str]:
    """A warning for each of `chips` that is not on general sale."""
    return [
        f"{chip} is not on general sale ({unsold[chip]}): the next may have to do."
        for chip in chips
        if chip in unsold
    ]


def unsold_rests(unsold: Mapping[str, str]) -> list[str]:
    """The same of all chips that were compared, as what an answer rests on."""
    chips = ", ".join(f"{chip} ({word})" for chip, word in unsold.items())
    return [f"not on general sale: {chips}"] if unsold else []


def as_of_words(source: Source) -> list[str]:
    """The day of the shipped prices, where it is not today."""
    day = source.as_of
    return [] if day is None else [f"prices as they were known in {day} (--as-of)"]


def price_assumptions(catalog: Catalog, chip: str, basis: str) -> list[str]:
    """What the price of a chip rests on beyond shipped rows of today, a sentence each. `catalog`
    has the prices of the basis (`dse.economics.tco.with_basis`)."""
    prices, sentences, own = catalog.prices.select(basis), [], catalog.source
    if chip in prices and catalog.chips[chip].hypothetical:
        sentences.append(f"{chip}: price on basis {basis}: {'; '.join(prices[chip].notes)}")
    if chip not in prices:
        sentences.append(f"{chip} has no price on basis {basis}: costs are null")
        if basis == OWNED and (lack := lacks_for_owning(catalog, chip)):
            sentences.append(lack)
    elif any(row.note.startswith(OWN) for row in prices[chip].rows):
        sentences.append(f"{chip}: price on basis {basis}: {'; '.join(prices[chip].notes)}")
    elif basis == OWNED:
        found = usd_per_chip_hour(catalog, chip, OWNED)
        inputs = (*found.facts, *found.inputs)
        for kind, said in (("assumed", "that are assumed"), ("given", "that were given")):
            if names := ", ".join(one.name for one in inputs if one.kind == kind):
                sentences.append(f"costs of owning {said}: {names}")
    sentences += as_of_words(own)
    mine = [row for row in catalog.prices.rows if row.note.startswith(OWN)]
    if own.prices and not any(row.basis == basis for row in mine):
        files = ", ".join(Path(file).name for file in own.prices)
        sentences.append(f"no row of {files} is on basis {basis}: none of your prices counts")
    if own.costs is not None and basis != OWNED:
        sentences.append(f"costs of {Path(own.costs).name} count for chips that are owned alone")
    return sentences


def prices_rest_on(catalog: Catalog, chips: Iterable[str], basis: str) -> list[str]:
    """The same of several chips, each sentence once."""
    return list(
        dict.fromkeys(text for chip in chips for text in price_assumptions(catalog, chip, basis))
    )


def price_documents(catalog: Catalog, chips: Iterable[str], basis: str) -> list[dict[str, Any]]:
    """The price of each owned chip by its parts (`Breakdown.as_json`); none on another basis, or of
    a chip without a price."""
    if basis != OWNED:
        return []
    priced = catalog.prices.select(basis)
    return [usd_per_chip_hour(catalog, chip, basis).as_json() for chip in chips if chip in priced]


def price_parts(
    prices: Sequence[Mapping[str, Any]], caption: str = "An owned chip-hour by its parts"
) -> Table:
    """A row for each chip with a column for each part of its price. `prices` are documents of
    `Breakdown.as_json`, of one basis; `inputs_words` says what they rest on."""
    names = [str(part["name"]) for part in prices[0]["parts"]]
    return Table(
        "parts",
        caption,
        (
            Column("chip", "chip"),
            *(Column(name, SHORT.get(name, name), "dollars") for name in names),
            Column("total", "total", "dollars"),
        ),
        [
            {"chip": price["chip"], "total": price["usd_per_chip_hour"]}
            | {part["name"]: part["usd_per_chip_hour"] for part in price["parts"]}
            for price in prices
        ],
        ("Costs of hardware/costs.yaml, or yours in their place.",),
    )


def inputs_words(prices: Sequence[Mapping[str, Any]], but: str = "") -> list[str]:
    """What owned hours rest on: every cost but one, then price and power of each chip."""
    lines = [
        (one["of"], f"{price['chip']} " if one["of"] == "chip" else "", one)
        for price in prices
        for one in price["inputs"]
        if one["name"] != but
    ]
    return list(
        dict.fromkeys(
            f"owning: {whose}{one['name'].replace('_', ' ')} {one['text']} "
            f"({', '.join(filter(None, (one['kind'], one['date'])))}; {one['source']})"
            for _, whose, one in sorted(lines, key=lambda line: line[0])
        )
    )


def rests_on(priced: Sequence[Mapping[str, Any]]) -> list[str]:
    """What prices rest on: the figures of each chip, the costs that are the same for all, sources
    by number."""
    sources = Sources()

    def words(one: Mapping[str, Any]) -> str:
        known = ", ".join(filter(None, (one["kind"], one["date"])))
        return f"{one['name']} {one['text']} ({known}) {sources(one['source'])}"

    of_chips = [
        f"{each['chip']}: {', '.join(words(one) for one in each['inputs'] if one['of'] == 'chip')}"
        for each in priced
    ]
    costs = dict.fromkeys(
        words(one) for each in priced for one in each["inputs"] if one["of"] == "cost"
    )
    of_all = [f"Costs: {', '.join(costs)}"] if costs else []
    return [*of_chips, *of_all, *sources]


def price_tables(price: Mapping[str, Any]) -> list[Table]:
    """One price (`Breakdown.as_json`) by its parts, each with its share and where it comes from;
    and every input with its kind and date, sources by number."""
    total, sources = price["usd_per_chip_hour"], Sources()
    of, chip = f"{price['basis']} {price['chip']}", price["chip"]
    parts = [*price["parts"], {"name": "total", "usd_per_chip_hour": total, "rule": None}]
    return [
        Table.of(
            f"parts {of}",
            f"{chip}, {price['basis']}, dollars an hour that it is held",
            parts,
            (
                Column("part", "part", of=lambda one: one["name"]),
                Column("usd_per_chip_hour", "$/chip-hour", "dollars"),
                Column("share", "share", "share", of=lambda one: one["usd_per_chip_hour"] / total),
                Column("rule", "from"),
            ),
        ),
        Table.of(
            f"inputs {of}",
            f"What the price of {chip} rests on",
            price["inputs"],
            (
                Column("name", "input"),
                Column("text", "value", right=True),
                Column("kind", "kind"),
                Column("date", "date"),
                Column("number", "source", of=lambda one: sources(one["source"])),
            ),
            sources,
        ),
    ]
