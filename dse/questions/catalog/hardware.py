"""`dse catalog chips` and `dse catalog racks`: what the catalog says of each, and chip files of the
user's own."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from dse.answer.answer import Answer, Table
from dse.answer.frames import document, frame, of_rows
from dse.answer.numbers import number
from dse.answer.sentences import Sources, labelled
from dse.catalog import Catalog, load_catalog
from dse.economics.prices import price_tables
from dse.economics.tco import price_by_parts
from dse.errors import InputError
from dse.files import write_text
from dse.options import Opt
from dse.questions.catalog.prices import paid_by
from dse.schema.catalog import is_chip_file
from dse.schema.chip import Chip
from dse.schema.constants import tier_words, tiers_of
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import lacks_for_owning
from dse.schema.derive import as_yaml, derive
from dse.schema.dtypes import DTYPES
from dse.schema.figure import Figure
from dse.schema.loader import did_you_mean
from dse.schema.own_chip import template
from dse.schema.system import load_rack, resolve_rack, shipped_racks

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


def list_chips(
    *,
    vendor: Annotated[str | None, Opt("Chips of one vendor only.")] = None,
    family: Annotated[str | None, Opt("Chips of one family only, such as hopper or tpu.")] = None,
    sort: Annotated[str | None, Opt(f"By one of {', '.join(SORTS)}.", metavar="COLUMN")] = None,
    catalog: Catalog | None = None,
) -> Answer:
    """Every chip id with its main figures.

    In the document, `missing` are the figures that a chip lacks, `refused` why no estimate can do
    without. Raises InputError for a vendor, a family or a column that does not exist."""
    rows = _rows(catalog or load_catalog())
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
        key, words = SORTS[sort], sort in _WORDS
        known = [row for row in rows if row[key] is not None]
        known.sort(key=lambda row: row[key].lower() if words else -row[key])
        rows = known + [row for row in rows if row[key] is None]
    figures = of_rows(
        "chips",
        "Main figures",
        rows,
        "id vendor family year memory_bytes memory_bytes_per_s peak_bf16_flops_per_s "
        "peak_fp8_flops_per_s scale_up_chips scale_up_bytes_per_s usd_per_hour_rental_3yr "
        "efficiency",
        "bf16, fp8: dense peaks in TFLOP/s. A dash: not published.",
        shown=("id", *list(SORTS.values())[4:]),
    )
    refused = sum(row["refused"] is not None for row in rows)
    return Answer(
        question="chips",
        title="Chips",
        headline=f"{len(rows)} chips: {refused} lack a figure that every estimate needs, and are "
        "refused by name.",
        blocks=[figures],
        document=rows,
        data=[figures],
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


def show_chip(
    chip: Annotated[str, Opt(positional=True)], *, catalog: Catalog | None = None
) -> Answer:
    """Every figure of a chip with its source, date and kind. CHIP is an id, or the path of a chip
    file; every mistake of a file is named with its line and field.

    Prices, too, and what it rests on. Raises InputError for a chip that does not exist."""
    catalog, name = (catalog or load_catalog()).with_chip(chip)
    spec = catalog.chip(name)
    found = _document(catalog, spec)
    system, laws = catalog.systems[spec.system], catalog.efficiencies[spec.efficiency]
    facts = []
    if spec.hypothetical:
        facts.append(f"Hypothetical: nobody makes it. {'; '.join(spec.changes)}")
    if found["not_owned"]:
        facts.append(f"no {OWNED}: {found['not_owned']}")
    if tiers := tiers_of(spec, catalog.tiers):
        facts.append(f"memory tiers: {'; '.join(map(tier_words, tiers.values()))}")
    if found["measured_here"]:
        facts.append(f"kernel efficiencies: {laws.title}, measured here {laws.date} ({laws.file})")
    paid = of_rows(
        "prices",
        "Prices by the hour",
        found["prices"],
        "basis usd_per_chip_hour usd_per_chip_hour.low=lowest usd_per_chip_hour.high=highest "
        "date price_rule=rule",
    )
    bought = of_rows(
        "purchases",
        "Prices of a chip that is bought",
        found["purchases"],
        "purchase=kind usd_per_chip provider date",
    )
    blocks = [figure_table(found["figures"], found["not_chosen"]), paid, bought]
    blocks += price_tables(found["owned"]) if found["owned"] else []
    return Answer(
        question="chip",
        title=f"{spec.id}: {spec.vendor} {spec.name}",
        headline=f"{spec.id}: {spec.vendor} {spec.name}, in system {system.id} ({system.name})",
        sentences=[*facts, *format_words(spec), *_lacking(found)],
        blocks=[block for block in blocks if block.rows],
        rests=labelled(assumed=found["assumed"], note=found["notes"]),
        document=found,
    )


def _document(catalog: Catalog, spec: Chip) -> dict[str, Any]:
    system = catalog.systems[spec.system]
    lack = lacks_for_owning(catalog, spec.id)
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
        "prices": paid_by(catalog, [spec.id]),
        "purchases": [
            {key: getattr(row, key) for key in keys}
            for row in catalog.purchases
            if row.chip == spec.id
        ],
        "owned": None if lack else price_by_parts(catalog, spec.id, OWNED),
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
    none = [f"no figure for: {', '.join(found['missing'])}"] if found["missing"] else []
    return [*none, *([f"no estimate: {found['refused']}"] if found["refused"] else [])]


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
    sentences = [*changes]
    if not any(one.startswith("price") for one in changes):
        priced = own.document.data.get("prices")
        sentences.append(f"Prices are those of {chip}, assumed." if priced else "It has no price.")
    return Answer(
        question="chip",
        title=own.chip.id,
        headline=f"{out}: {own.chip.id}",
        sentences=sentences,
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
    rows, sources = [], Sources()
    for figure in figures:
        rows.append(figure)
        rows += [{**other, "name": "  elsewhere"} for other in figure["alternatives"]]
    rows += [{**figure, "name": f"{figure['name']}, not used"} for figure in not_chosen]
    rows = [{**row, "date": str(row["date"]), "source": sources(row["source"])} for row in rows]
    keys = "figure_name=name written=text kind date source"
    return of_rows("figures", "Figures", rows, keys, *sources)


# Racks, and what ends the domain of each.


def list_racks() -> Answer:
    """Every rack with its domain and where it ends."""
    from dse.problem.describe import rack_row  # noqa: PLC0415 - which a list of chips does not need

    rows = [rack_row(load_rack(path)) for path in shipped_racks().values()]
    table = of_rows(
        "racks",
        "Domains",
        rows,
        "id chip scale_up_chips=domain racks_per_domain cable largest_domain=largest "
        "rack_bound=bound",
        "The largest domain is in whole trays; the bound is the one that the next tray breaks "
        "most. A dash: its links are a printed board.",
    )
    return Answer(
        question="racks",
        title="Racks",
        headline=f"{len(rows)} racks: dse catalog racks show ID says what ends the domain of one.",
        blocks=[table],
        document=rows,
    )


def show_rack(rack: Annotated[str, Opt(positional=True)]) -> Answer:
    """What bounds the domain of a rack, and every figure with its source. RACK is an id, or the
    path of a rack file.

    Raises InputError for a rack that does not exist, and for a file that cannot be read."""
    from dse.physics.racks import largest_domain  # noqa: PLC0415 - as above
    from dse.problem.describe import bound_columns, end_words, rack_row  # noqa: PLC0415

    spec = load_rack(resolve_rack(rack))
    facts, figures = rack_row(spec), [figure_row(figure) for figure in spec.figures]
    label = ", hypothetical" * spec.hypothetical
    bounds = frame(
        "bounds",
        f"What bounds the domain of {spec.domain:,} chips",
        bound_columns(spec),
        f"used: by {spec.domain:,} chips, over the limit; next tray: by "
        f"{facts['largest'] + spec.tray_chips:,}, where that breaks the bound; alone: the largest "
        "domain if no other bound existed; one stage: if one stage of switches joined any number.",
        shown=("rack_bound", "rack_use", "next_breaks", "bound_chips", "one_stage_chips"),
    )
    joined, one_stage = spec.stage_chips, largest_domain(replace(spec, stage_chips=math.inf))
    sentences = []
    if one_stage[0] > facts["largest"]:
        sentences.append(
            f"One stage of switches joins {joined:g} chips, a second doubles the cables and "
            f"triples the switches. If one stage joined any number: {one_stage[0]:,} "
            f"({one_stage[1]})."
        )
    sentences.append(f"{len(spec.assumed)} of {len(figures)} figures are assumed.")
    return Answer(
        question="rack",
        title=f"{spec.id}: {spec.name}",
        asked=f"{spec.id}: {spec.name}{label}; {spec.chip}, {facts['cable'] or 'no'} cables.",
        headline=f"The domain: {end_words(facts)}.",
        sentences=sentences,
        blocks=[bounds, figure_table(figures)],
        rests=labelled(assumed=spec.assumed, note=spec.notes),
        document=document(
            {
                **facts,
                "largest_one_stage": one_stage[0],
                "notes": list(spec.notes),
                "assumed": list(spec.assumed),
                "figures": figures,
            },
            [bounds],
        ),
    )
