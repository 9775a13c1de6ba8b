"""`dse catalog chips`: what the catalog says of each chip, and chip files of the user's own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.answer.answer import Answer, Cell, Column, Table
from dse.answer.numbers import number
from dse.answer.sentences import Sources
from dse.catalog import Catalog
from dse.economics.prices import price_tables
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError
from dse.files import write_text
from dse.schema.catalog import is_chip_file
from dse.schema.chip import Chip
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import as_yaml, derive
from dse.schema.dtypes import DTYPES
from dse.schema.loader import did_you_mean
from dse.schema.own_chip import read_own_chip, template
from dse.schema.owning import lacks_for_owning
from dse.schema.plausible import FAR
from dse.schema.tiers import tier_words, tiers_of

if TYPE_CHECKING:
    from dse.schema.chip import Figure

# What a list can be sorted by, and the key of its rows.
SORTS = {
    "id": "id",
    "vendor": "vendor",
    "family": "family",
    "year": "year",
    "memory": "memory_bytes",
    "bandwidth": "memory_bytes_per_s",
    "bf16": "peak_bf16_flops_per_s",
    "fp8": "peak_fp8_flops_per_s",
    "domain": "scale_up_chips",
    "link": "scale_up_bytes_per_s",
    "price": "usd_per_hour_rental_3yr",
    "efficiency": "efficiency",
}
_WORDS = ("id", "vendor", "family", "efficiency")  # sorted from a to z, numbers from large to small
# Columns of the list: key, title, and what one of its unit is.
_SHOWN = (
    ("memory_bytes", "GB", 1e9),
    ("memory_bytes_per_s", "TB/s", 1e12),
    ("peak_bf16_flops_per_s", "bf16", 1e12),
    ("peak_fp8_flops_per_s", "fp8", 1e12),
    ("scale_up_chips", "domain", 1.0),
    ("scale_up_bytes_per_s", "GB/s", 1e9),
)


def list_chips(
    catalog: Catalog,
    *,
    vendor: str | None = None,
    family: str | None = None,
    sort: str | None = None,
    missing: bool = False,
) -> Answer:
    """Every chip with its main figures, or (`missing`) with those that it lacks.

    Raises InputError for a vendor, a family or a column that does not exist."""
    rows = _rows(catalog)
    for name, wanted in (("vendor", vendor), ("family", family)):
        if wanted is not None:
            known = sorted({row[name] for row in rows})
            rows = [row for row in rows if wanted.lower() in row[name].lower().split("/")]
            if not rows:
                hint = did_you_mean(wanted.lower(), [one.lower() for one in known])
                message = f"no chip of the {name} {wanted!r}{hint}"
                raise InputError(message, field=f"--{name}", accepted=", ".join(known))
    if sort is not None:
        if sort not in SORTS:
            message = f"no column {sort!r}{did_you_mean(sort, SORTS)}"
            raise InputError(message, field="--sort", accepted=", ".join(SORTS))
        rows = _sorted(rows, SORTS[sort], sort in _WORDS)
    refused = sum(row["refused"] is not None for row in rows)
    return Answer(
        question="chips",
        title="Chips",
        headline=f"{len(rows)} chips: {refused} lack a figure that every estimate needs, and are "
        "refused by name.",
        blocks=[_missing_table(rows) if missing else _chip_table(rows)],
        document=rows,
    )


def _rows(catalog: Catalog) -> list[dict[str, Any]]:
    rental = catalog.prices.select("rental_3yr")
    rows = []
    for chip in catalog.chips.values():
        near = catalog.systems[chip.system].levels[0]
        price = rental[chip.id].usd_per_chip_hour if chip.id in rental else None
        rows.append(
            {
                "id": chip.id,
                "vendor": chip.vendor,
                "family": chip.family,
                "year": chip.year,
                "memory_bytes": number(chip.capacity_bytes),
                "memory_bytes_per_s": number(chip.memories[0].bytes_per_s),
                "peak_bf16_flops_per_s": chip.peak_flops_per_s.get("bf16"),
                "peak_fp8_flops_per_s": chip.peak_flops_per_s.get("fp8"),
                "scale_up_chips": near.size,
                "scale_up_bytes_per_s": number(near.bytes_per_s_per_direction),
                "usd_per_hour_rental_3yr": price,
                "efficiency": chip.efficiency.split(":")[0],
                "missing": [*chip.missing, *catalog.systems[chip.system].missing],
                "refused": catalog.refusal(chip.id),
            }
        )
    return rows


def _sorted(rows: list[dict[str, Any]], key: str, words: bool) -> list[dict[str, Any]]:
    """Words from a to z, numbers from large to small, what is not known last."""
    known = [row for row in rows if row[key] is not None]
    known.sort(key=lambda row: row[key].lower() if words else -row[key])
    return known + [row for row in rows if row[key] is None]


def _chip_table(rows: Sequence[dict[str, Any]]) -> Table:
    def scaled(key: str, unit: float) -> Callable[[Any], Cell]:
        return lambda row: None if row[key] is None else row[key] / unit

    return Table.of(
        "chips",
        "Main figures",
        rows,
        (
            Column("id", "id"),
            *(Column(key, title, "count", of=scaled(key, unit)) for key, title, unit in _SHOWN),
            Column("usd_per_hour_rental_3yr", "an hour", "dollars"),
            Column("efficiency", "efficiency"),
        ),
        (
            "GB, TB/s: device memory. bf16, fp8: dense peak, TFLOP/s. domain: chips joined by the "
            "scale-up link, GB/s: its bandwidth per chip and direction. An hour: three-year "
            "rental. efficiency: whose measured kernels are used; class_...: none were measured. "
            "A dash: not published, see --missing.",
        ),
    )


def _missing_table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table.of(
        "missing",
        "Figures that are not known",
        [row for row in rows if row["missing"]],
        (
            Column("id", "id"),
            Column("estimates", "estimates", of=lambda row: "refused" if row["refused"] else "yes"),
            Column("missing", "no figure for", of=lambda row: ", ".join(row["missing"])),
        ),
        ("A chip without the bandwidth of a link is refused where an instance needs the link.",),
    )


def show_chip(catalog: Catalog, chip: str) -> Answer:
    """Every figure of a chip, an id or the path of a chip file, with its source, date and kind;
    prices, and what it rests on. Raises InputError for a chip that does not exist."""
    catalog, name = catalog.with_chip(chip)
    found = _document(catalog, name)
    spec = catalog.chip(name)
    system = catalog.systems[spec.system]
    facts = []
    if spec.hypothetical:
        facts.append(f"Hypothetical: nobody makes it. {'; '.join(spec.changes)}")
    if found["not_owned"]:
        facts.append(f"no {OWNED}: {found['not_owned']}")
    if tiers := tiers_of(spec, catalog.tiers):
        facts.append(f"memory tiers: {'; '.join(map(tier_words, tiers.values()))}")
    if found["measured_here"]:
        laws = catalog.efficiencies[spec.efficiency]
        facts.append(f"kernel efficiencies: {laws.title}, measured here {laws.date} ({laws.file})")
    facts += format_words(spec)
    facts += [f"note: {text}" for text in found["notes"]]
    blocks = [figure_table(found["figures"], found["not_chosen"]), *_price_tables(found)]
    return Answer(
        question="chip",
        title=f"{spec.id}: {spec.vendor} {spec.name}",
        headline=f"{spec.id}: {spec.vendor} {spec.name}, in system {system.id} ({system.name})",
        sentences=[*facts, *_lacking(found)],
        blocks=blocks,
        rests=[f"assumed: {text}" for text in found["assumed"]],
        document=found,
    )


def _document(catalog: Catalog, name: str) -> dict[str, Any]:
    spec = catalog.chip(name)
    system = catalog.systems[spec.system]
    lack = lacks_for_owning(catalog, name)
    prices = [
        {
            "basis": basis,
            "usd_per_chip_hour": price.usd_per_chip_hour,
            "rule": price.rule,
            "date": price.newest_date,
            "lowest": min(row.usd_per_chip_hour for row in price.rows),
            "highest": max(row.usd_per_chip_hour for row in price.rows),
        }
        for basis in catalog.prices.bases()
        for id_, price in catalog.prices.select(basis).items()
        if id_ == spec.id
    ]
    keys = ("kind", "usd_per_chip", "provider", "date", "source", "note")
    said = ("id", "name", "vendor", "family", "year", "availability")
    return {
        **{key: getattr(spec, key) for key in said},
        "derived_from": spec.derived_from or None,
        "changes": list(spec.changes),
        "memories": [memory.kind for memory in spec.memories],
        "memory_bytes": number(spec.capacity_bytes),
        "memory_bytes_per_s": number(spec.memories[0].bytes_per_s),
        "capacity_kind": spec.capacity_kind,
        "tiers": [asdict(tier) for tier in tiers_of(spec, catalog.tiers).values()],
        "system": system.id,
        "efficiency": spec.efficiency,
        "measured_here": dict(catalog.efficiencies[spec.efficiency].provenance) or None,
        "figures": [figure_row(f) for f in (*spec.figures, *system.figures)],
        "not_chosen": [figure_row(f) for f in spec.not_chosen],
        "prices": prices,
        "purchases": [
            {key: getattr(row, key) for key in keys}
            for row in catalog.purchases
            if row.chip == spec.id
        ],
        "owned": None if lack else usd_per_chip_hour(catalog, name, OWNED).as_json(),
        "not_owned": lack,
        "assumed": [*spec.assumed, *system.assumed],
        "missing": [*spec.missing, *system.missing],
        "refused": catalog.refusal(spec.id),
        "notes": list(spec.notes),
    }


def format_words(chip: Chip) -> list[str]:
    """Which formats of weights a chip multiplies in, and what becomes of the others."""
    native = [name for name in DTYPES if chip.computes(name)]
    if not native:
        return []
    others = ", ".join(name for name in DTYPES if name not in native)
    unrated = ", ".join(one.format for one in chip.without_peak)
    return [
        f"multiplies in {', '.join(native)}; weights in {others} are unpacked to 16 bits"
        + (f" (no dense peak was published of {unrated})" if unrated else "")
    ]


def _lacking(found: dict[str, Any]) -> list[str]:
    lines = []
    if found["missing"]:
        lines.append(f"no figure for: {', '.join(found['missing'])}")
    if found["refused"]:
        lines.append(f"no estimate: {found['refused']}")
    return lines


def _price_tables(found: dict[str, Any]) -> list[Table]:
    """Prices by the hour, of a chip that is bought, and of one that is owned."""
    hour = "chip_usd_per_hour"
    rented = (
        Column("basis", "price basis"),
        Column("usd_per_chip_hour", "a chip-hour", hour),
        Column("lowest", "from", hour),
        Column("highest", "to", hour),
        Column("date", "date"),
        Column("rule", "rule"),
    )
    bought = (
        Column("kind", "bought"),
        Column("usd_per_chip", "a chip", "dollars"),
        Column("provider", "provider"),
        Column("date", "date"),
    )
    none = () if found["prices"] else ("No price per hour.",)
    tables = [Table("prices", "Prices by the hour", rented, found["prices"], none)]
    if rows := found["purchases"]:
        tables.append(Table("purchases", "Prices of a chip that is bought", bought, rows))
    return tables + (price_tables(found["owned"]) if found["owned"] else [])


def check_chip(catalog: Catalog, file: Path) -> Answer:
    """Whether a chip file is well-formed. Raises InputErrors with every mistake, each with its line
    and field."""
    name = read_own_chip(file, efficiency=catalog.source.efficiency).chip.id
    catalog = catalog.with_files([file])
    chip = catalog.chips[name]
    found = {
        "id": name,
        "changes": list(chip.changes),
        "missing": list(chip.missing),
        "refused": catalog.refusal(name),
        "doubts": [
            text for text in (*chip.assumed, *catalog.systems[chip.system].assumed) if FAR in text
        ],
    }
    changes = []
    if chip.changes:
        changes = [f"hypothetical: {chip.derived_from} with {'; '.join(chip.changes)}"]
    return Answer(
        question="chip",
        title=str(file),
        headline=f"{file}: {name} is well-formed",
        sentences=[*changes, *_lacking(found), *found["doubts"]],
        document=found,
    )


def new_chip(catalog: Catalog, chip: str) -> str:
    """A commented chip file to fill in. Raises InputError for an id that is taken."""
    if chip in catalog.chips:
        raise InputError(
            f"{chip!r} is the id of {catalog.chips[chip].file} too", accepted="an id of its own"
        )
    classes = {one.efficiency.split(":")[0] for one in catalog.chips.values()}
    return template(chip, sorted(one for one in classes if one.startswith("class_")))


def derive_chip(
    catalog: Catalog,
    parent: str,
    settings: Sequence[str],
    name: str | None = None,
    out: Path | None = None,
) -> Answer | str:
    """The file of a hypothetical chip: `parent` with some figures changed. With `out` it is written
    there, and the answer says what changed.

    Raises InputError for a setting that cannot be, StorageError where `out` cannot be written."""
    catalog, chip = catalog.with_chip(parent)
    own = derive(catalog, chip, settings, name)
    parts = ["dse", "catalog", "chips", "derive", "--from", parent]
    for setting in settings:
        parts += ["--set", setting]
    text = as_yaml(own, shlex.join(parts))
    if out is None:
        return text
    if not is_chip_file(out.name):
        raise InputError(f"read {str(out)!r}", field="--out", accepted="a name that ends in .yaml")
    write_text(out.parent, out.name, text)
    changes = list(own.chip.changes)
    rests = []
    if not any(one.startswith("price") for one in changes):
        rests = [
            f"Prices are those of {chip}, assumed."
            if own.document.data.get("prices")
            else "It has no price."
        ]
    return Answer(
        question="chip",
        title=own.chip.id,
        headline=f"{out}: {own.chip.id}",
        sentences=[*changes, *rests],
        document={"id": own.chip.id, "file": str(out), "changes": changes},
    )


# Figures with their sources, as chips and racks show them.

_KEYS = ("name", "value", "unit", "text", "source", "date", "kind", "quote", "note")


def figure_row(figure: Figure) -> dict[str, Any]:
    """A figure in a document."""
    row = {key: getattr(figure, key) for key in _KEYS}
    others = [figure_row(other) for other in figure.alternatives]
    return row | {"value": number(figure.value), "alternatives": others}


def figure_table(
    figures: Sequence[Mapping[str, Any]], not_chosen: Sequence[Mapping[str, Any]] = ()
) -> Table:
    """Rows of `figure_row`: every figure, what other sources say below it, and the sources by
    number."""
    lines, sources = [], Sources()
    for figure in figures:
        lines.append((figure["name"], figure))
        lines += [("  elsewhere", other) for other in figure["alternatives"]]
    lines += [(f"{figure['name']}, not used", figure) for figure in not_chosen]
    return Table.of(
        "figures",
        "Figures",
        [{**figure, "figure": name} for name, figure in lines],
        (
            Column("figure", "figure"),
            Column("text", "value", right=True),
            Column("kind", "kind"),
            Column("date", "date", of=lambda one: str(one["date"])),
            Column("source", "source", of=lambda one: sources(one["source"])),
        ),
        sources,
    )
