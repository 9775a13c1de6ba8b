"""What prices rest on: providers, dates and owning costs behind each, how far a price may lie from
the one that is used, and the parts of an owned chip-hour.

Spread: three rows or more of a chip on the basis: the spread of these, log-normal about their
median. Fewer: the pooled spread of the chips of that basis that have three, or where no two chips
have, an interval that is assumed. A move of all prices together changes no order and is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from dse.answer.answer import Column, Table
from dse.answer.frames import of_rows
from dse.answer.numbers import significant
from dse.answer.sentences import Sources, listed
from dse.catalog import Catalog
from dse.economics.tco import owned, price_by_parts
from dse.schema.catalog import Source
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs, capital_rows, lacks_for_owning, own_cost, owning
from dse.schema.loader import csv_rows
from dse.schema.plausible import USD_PER_HOUR, probably
from dse.schema.prices import OWN, PRICE_TIERS, PriceTable, dates_of, first_day, last_day
from dse.units import today

STALE_DAYS = 90
FAR_CAPITAL = 30.0  # times below or above what was published of the chip, and it is a mistake
# What owning costs a provider, and a hyperscaler, where it is published.
OWNERS = ("owned_tco_neocloud", "owned_tco_hyperscaler")
ONE, STALE, BELOW, FUTURE = "one source", "old", "below owning", "in the future"
UNLIKELY = "unlikely"
NAMED = 2  # chips that have a sentence
ENOUGH = 3  # rows of a chip
CHIPS = 2  # chips with as many, to pool
ASSUMED = 0.15  # share either way, 80% interval
Json = Mapping[str, Any]


@lru_cache(maxsize=8)
def _newest(folder: Path) -> str:
    header, *rows = csv_rows(folder / "prices.csv")
    column = header.index("date")
    return max(first_day(row[column]) for row in rows if row)


def catalog_day(catalog: Catalog) -> str:
    """The day as of which prices are meant: that of --as-of, else of the newest shipped price."""
    as_of = catalog.source.as_of
    return last_day(as_of) if as_of is not None else _newest(catalog.source.folder)


def evidence(catalog: Catalog, chip: str, basis: str, costs: Costs | None = None) -> dict[str, Any]:
    """The row of a chip that has a price on the basis, at the catalog's costs or others: how many
    quotes and providers, their dates and ends (of what is owned, dollars a chip), the age of the
    newest in days, and the lower of what owning the chip costs by its parts and by a provider's
    figures. `warnings` are of ONE, STALE, BELOW, FUTURE and UNLIKELY. The provider of a quote of
    the user's own is empty."""
    costs = costs or catalog.costs
    own = owning(catalog, chip, costs) if not lacks_for_owning(catalog, chip, costs) else None
    known = [] if own is None else [owned(chip, own, costs)["usd_per_chip_hour"]]
    if basis == OWNED:
        assert own is not None
        paid, least, published = known[0], None, capital_rows(catalog, chip)
        rows = [(row.provider or row.source, row.date, row.usd_per_chip) for row in published]
        known_usd = [usd for *_, usd in rows]
        given = any(own_cost(catalog, costs, chip, name) for name in ("price", "server_price"))
        if given or not rows:
            rows = [("", own.price.date, own.price.value)]
        far = any(
            not min(known_usd) / FAR_CAPITAL <= usd <= max(known_usd) * FAR_CAPITAL
            for *_, usd in (rows if known_usd else ())
        )
    else:
        price = catalog.prices.select(basis)[chip]
        if OWNERS[0] in catalog.prices.bases() and chip in (by := catalog.prices.select(OWNERS[0])):
            known.append(by[chip].usd_per_chip_hour)
        paid, least = price.usd_per_chip_hour, min(known, default=None)
        rows = [
            ("" if r.note.startswith(OWN) else r.provider or r.source, r.date, r.usd_per_chip_hour)
            for r in price.rows
        ]
        far = not USD_PER_HOUR[0] <= paid <= USD_PER_HOUR[1]
    day, providers = catalog_day(catalog), {provider for provider, *_ in rows}
    dates, usd = [when for _, when, _ in rows if first_day(when)], [usd for *_, usd in rows]
    newest = max(dates, key=first_day, default="")
    since, until = first_day(newest) or day, day
    age = (date.fromisoformat(until) - date.fromisoformat(since)).days
    now = day if catalog.source.as_of is not None else max(day, today())
    wrong = {
        ONE: len(providers) == 1 and providers != {""},
        STALE: age > STALE_DAYS,
        BELOW: least is not None and basis not in OWNERS and paid < least,
        FUTURE: first_day(newest) > now,
        UNLIKELY: far,
    }
    return {
        "chip": chip,
        "basis": basis,
        "tier": PRICE_TIERS[basis].how if basis in PRICE_TIERS else basis,
        "usd_per_chip_hour": paid,
        "quotes": len(rows),
        "providers": len(providers),
        "dates": dates_of(dates) if dates else "",
        "newest": newest,
        "low_usd": min(usd),
        "high_usd": max(usd),
        "age_days": age,
        "owning_usd_per_chip_hour": least,
        "warnings": [what for what, is_so in wrong.items() if is_so],
    }


def evidence_rows(
    catalog: Catalog, priced: Iterable[tuple[str, str]], costs: Costs | None = None
) -> list[dict[str, Any]]:
    """Rows of `evidence` of each (chip, basis) that has a price."""
    return [
        evidence(catalog, chip, basis, costs)
        for chip, basis in dict.fromkeys(priced)
        if (
            lacks_for_owning(catalog, chip, costs) is None
            if basis == OWNED
            else chip in catalog.prices.select(basis)
        )
    ]


def evidence_words(rows: Sequence[Json]) -> list[str]:
    """What is to be checked before the prices of `evidence_rows` are signed: a sentence for each
    chip, those with most to check first, and how many more there are."""
    doubtful = sorted(
        (row for row in rows if row["warnings"]), key=lambda row: -len(row["warnings"])
    )
    said = []
    for row in doubtful[:NAMED]:
        price = f"${significant(row['usd_per_chip_hour'])} an hour"
        if row["basis"] == OWNED:
            price = f"${significant(row['low_usd'])} for one"
        below = row["owning_usd_per_chip_hour"]
        near = ""
        if row["basis"] != OWNED:
            near = probably(row["usd_per_chip_hour"], *USD_PER_HOUR, lambda usd: f"${usd:.15g}")
        says = {
            ONE: "one source",
            STALE: f"{row['age_days']:,} days old",
            BELOW: f"below owning at ${significant(below)}" if below else "",
            FUTURE: f"dated in the future ({row['newest']})",
            UNLIKELY: f"far from any known price{near}",
        }
        why = ", ".join(says[what] for what in row["warnings"])
        start = "Check also" if said else "Before you sign, check"
        said.append(f"{start} {price} of {row['chip']} ({row['basis']}): {why}.")
    if more := list(dict.fromkeys(row["chip"] for row in doubtful[NAMED:])):
        rest = listed(more) if len(more) < NAMED + 2 else f"{len(more)} more chips"
        said.append(f"Check the price of {rest} as well (dse catalog prices show).")
    return said


def price_spreads(
    prices: PriceTable, basis: str, chips: Sequence[str], given: float | None = None
) -> list[dict[str, Any]]:
    """A row for each chip: its price with the ends of the 80% interval, the published rows, the
    standard deviation `sd` of the logarithm, and its `kind`: published, pooled, assumed, or given
    as a share either way."""
    import numpy as np  # noqa: PLC0415 - which a list of prices does not need

    from dse.quality.own_runs import P90  # noqa: PLC0415

    table = prices.select(basis)
    logs = {
        chip: np.log([row.usd_per_chip_hour for row in price.rows])
        for chip, price in table.items()
        if len(price.rows) >= ENOUGH
    }
    own = {chip: float(np.std(values, ddof=1)) for chip, values in logs.items()}
    assumed = math.log1p(ASSUMED if given is None else given) / P90
    others, kind = assumed, "assumed" if given is None else "given"
    if given is None and len(own) >= CHIPS:
        freedom = {chip: len(values) - 1 for chip, values in logs.items()}
        squares = sum(freedom[chip] * own[chip] ** 2 for chip in own)
        others, kind = math.sqrt(squares / sum(freedom.values())), "pooled"
    rows = []
    for chip in chips:
        published = given is None and chip in own
        sd, usd = own[chip] if published else others, table[chip].usd_per_chip_hour
        rows.append(
            {
                "chip": chip,
                "usd_per_chip_hour": usd,
                "usd_per_chip_hour.low": usd / math.exp(P90 * sd),
                "usd_per_chip_hour.high": usd * math.exp(P90 * sd),
                "published_rows": len(table[chip].rows),
                "kind": "published" if published else kind,
                "sd": sd,
            }
        )
    return rows


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


def unsold_rests(unsold: Mapping[str, str]) -> list[str]:
    """Chips that were compared and are not on general sale, as what an answer rests on."""
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
        inputs = price_by_parts(catalog, chip, OWNED)["inputs"]
        for kind, said in (("assumed", "that are assumed"), ("given", "that were given")):
            if names := ", ".join(one["name"] for one in inputs if one["kind"] == kind):
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
    """`price_by_parts` of each owned chip; none on another basis, or of a chip without a price."""
    if basis != OWNED:
        return []
    priced = catalog.prices.select(basis)
    return [price_by_parts(catalog, chip, basis) for chip in chips if chip in priced]


def price_parts(prices: Sequence[Json], caption: str = "An owned chip-hour by its parts") -> Table:
    """A row for each chip with a column for each part of its price. `prices` are `price_by_parts`,
    of one basis; `rests_on` says what they rest on."""
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


def rests_on(priced: Sequence[Json], but: str = "") -> list[str]:
    """What prices by their parts rest on, every cost but one: the figures of each chip, the costs
    that are the same for all, sources by number."""
    sources = Sources()
    words: dict[str, list[str]] = {}
    for price in priced:
        for one in price["inputs"]:
            if one["name"] != but:
                known = ", ".join(filter(None, (one["kind"], one["date"])))
                whose = price["chip"] if one["of"] == "chip" else "Costs"
                name = one["name"].replace("_", " ")
                text = f"{name} {one['text']} ({known}) {sources(one['source'])}"
                words.setdefault(whose, []).append(text)
    words |= {"Costs": words.pop("Costs")} if "Costs" in words else {}
    lines = [f"{whose}: {', '.join(dict.fromkeys(texts))}" for whose, texts in words.items()]
    return [*lines, *sources]


def price_tables(price: Json) -> list[Table]:
    """One `price_by_parts`, each part with its share and where it comes from; and every input with
    its kind and date, sources by number."""
    total, sources = price["usd_per_chip_hour"], Sources()
    of, chip = f"{price['basis']} {price['chip']}", price["chip"]
    parts = [*price["parts"], {"name": "total", "usd_per_chip_hour": total, "rule": None}]
    inputs = [{**one, "source": sources(one["source"])} for one in price["inputs"]]
    return [
        of_rows(
            f"parts {of}",
            f"{chip}, {price['basis']}, dollars an hour that it is held",
            [{**one, "share": one["usd_per_chip_hour"] / total} for one in parts],
            "part=name usd_per_chip_hour share price_rule=rule",
        ),
        of_rows(
            f"inputs {of}",
            f"What the price of {chip} rests on",
            inputs,
            "what=name words=text kind date source",
            *sources,
        ),
    ]


def price_pairs(before: Sequence[Json], after: Sequence[Json]) -> list[dict[str, Any]]:
    """Prices on one basis at two times: a row for each chip that one of the two has, with the price
    of both (`a`, `b`), their ratio, and the dates, sources and rules of both. Rows are those of
    `price.rows` in study.json: one for each chip."""
    first, second = ({row["chip"]: row for row in rows} for rows in (before, after))
    pairs = []
    for chip in dict.fromkeys([*first, *second]):
        one, other = first.get(chip, {}), second.get(chip, {})
        a, b = one.get("usd_per_chip_hour"), other.get("usd_per_chip_hour")
        pair = {"chip": chip, "a": a, "b": b, "ratio": b / a if a and b else None}
        for key in ("date", "rule", "source"):
            pair |= {f"{key}_a": one.get(key) or None, f"{key}_b": other.get(key) or None}
        pairs.append(pair)
    return pairs


def moved(pairs: Sequence[Json]) -> list[Json]:
    """The rows of `price_pairs` whose price is another, or that only one side has."""
    return [row for row in pairs if row["a"] != row["b"]]
