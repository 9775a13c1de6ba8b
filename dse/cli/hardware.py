"""dse hardware: the chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli import collectives
from dse.cli.hardware_derive import derive_chip
from dse.cli.hardware_prices import list_prices
from dse.cli.options import efficiency_option, json_option, price_options, read_catalog
from dse.cli.printing import print_json, print_table, say
from dse.cli.racks import rack

if TYPE_CHECKING:
    from dse.schema.chip import Figure


@click.group("hardware")
def command() -> None:
    """Chips, their systems and their prices; every figure with its source."""


_chip_file_option = click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
# What `list` shows, by the names that --sort takes.
COLUMNS = {
    "id": "id", "vendor": "vendor", "family": "family", "year": "year", "memory": "memory_bytes",
    "bandwidth": "memory_bytes_per_s", "bf16": "peak_bf16_flops_per_s",
    "fp8": "peak_fp8_flops_per_s", "domain": "scale_up_chips", "link": "scale_up_bytes_per_s",
    "price": "usd_per_hour_rental_3yr", "efficiency": "efficiency",
}  # fmt: skip
_WORDS = ("id", "vendor", "family", "efficiency")  # sorted from a to z, numbers from large to small


@command.command("list")
@click.option("--vendor", help="Chips of one vendor only.")
@click.option("--family", help="Chips of one family only, such as hopper or tpu.")
@click.option("--sort", metavar="COLUMN", help=f"By one of {', '.join(COLUMNS)}.")
@click.option("--missing", is_flag=True, help="Which figures each chip lacks, instead.")
@_chip_file_option
@efficiency_option
@json_option
def list_chips(
    vendor: str | None,
    family: str | None,
    sort: str | None,
    missing: bool,
    chip_files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Every chip id with its main figures."""
    from dse.errors import InputError
    from dse.problem.describe import number
    from dse.schema.loader import did_you_mean

    catalog = read_catalog(chip_files)
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
    for name, wanted in (("vendor", vendor), ("family", family)):
        if wanted is not None:
            known = sorted({row[name] for row in rows})
            rows = [row for row in rows if wanted.lower() in row[name].lower().split("/")]
            if not rows:
                hint = did_you_mean(wanted.lower(), [one.lower() for one in known])
                message = f"no chip of the {name} {wanted!r}{hint}"
                raise InputError(message, field=f"--{name}", accepted=", ".join(known))
    if sort is not None:
        if sort not in COLUMNS:
            message = f"no column {sort!r}{did_you_mean(sort, COLUMNS)}"
            raise InputError(message, field="--sort", accepted=", ".join(COLUMNS))
        rows = _sorted(rows, COLUMNS[sort], sort in _WORDS)
    if as_json:
        print_json(rows)
    elif missing:
        _print_missing(rows)
    else:
        _print_list(rows)


def _sorted(rows: list[dict[str, Any]], key: str, words: bool) -> list[dict[str, Any]]:
    """Words from a to z, numbers from large to small, what is not known last."""
    known = [row for row in rows if row[key] is not None]
    known.sort(key=lambda row: row[key].lower() if words else -row[key])
    return known + [row for row in rows if row[key] is None]


def _print_missing(rows: list[dict[str, Any]]) -> None:
    lacking = [row for row in rows if row["missing"]]
    print_table(
        ("id", "estimates", "no figure for"),
        [
            (row["id"], "refused" if row["refused"] else "yes", ", ".join(row["missing"]))
            for row in lacking
        ],
    )
    refused = sum(row["refused"] is not None for row in rows)
    say(
        f"{len(rows)} chips: {refused} lack a figure that every estimate needs, and are refused by "
        "name. A chip without the bandwidth of a link is refused where an instance needs the link.",
        "  ",
    )


def _print_list(rows: list[dict[str, Any]]) -> None:
    print_table(
        ("id", "GB", "TB/s", "bf16", "fp8", "domain", "GB/s", "$/h", "efficiency"),
        [
            (
                row["id"],
                _in(row["memory_bytes"], 1e9),
                _in(row["memory_bytes_per_s"], 1e12, ",.2f"),
                _in(row["peak_bf16_flops_per_s"], 1e12),
                _in(row["peak_fp8_flops_per_s"], 1e12),
                _in(row["scale_up_chips"], 1),
                _in(row["scale_up_bytes_per_s"], 1e9),
                _in(row["usd_per_hour_rental_3yr"], 1, ".2f"),
                row["efficiency"],
            )
            for row in rows
        ],
        right=(1, 2, 3, 4, 5, 6, 7),
    )
    say(
        "GB, TB/s: device memory. bf16, fp8: dense peak, TFLOP/s. domain: chips joined by the "
        "scale-up link, GB/s: its bandwidth per chip and direction. $/h: three-year rental. "
        "efficiency: whose measured kernels are used; class_...: none were measured. "
        "A dash: not published, see --missing.",
        "  ",
    )


def _in(value: float | None, unit: float, form: str = ",.0f") -> str:
    """A figure in multiples of `unit`, or a dash; small ones keep two digits."""
    if value is None:
        return "-"
    scaled = value / unit
    return f"{scaled:.2g}" if 0 < scaled < 1 and form == ",.0f" else f"{scaled:{form}}"


@command.command("show")
@click.argument("chip")
@_chip_file_option
@efficiency_option
@price_options
@json_option
def show_chip(chip: str, chip_files: tuple[str, ...], as_json: bool) -> None:
    """Every figure of a chip with its source, date and kind. CHIP is an id, or the path of a chip
    file."""
    from dse.cli.costs import print_price
    from dse.economics.tco import usd_per_chip_hour
    from dse.schema.costs import BASIS as OWNED
    from dse.schema.owning import lacks_for_owning
    from dse.schema.tiers import tier_words, tiers_of

    catalog, name = read_catalog(chip_files).with_chip(chip)
    spec = catalog.chip(name)
    lack = lacks_for_owning(catalog, name)
    owned = None if lack else usd_per_chip_hour(catalog, name, OWNED).as_json()
    tiers = tiers_of(spec, catalog.tiers)
    system = catalog.systems[spec.system]
    prices = [
        {"basis": basis, "usd_per_chip_hour": price.usd_per_chip_hour, "rule": price.rule,
         "date": price.newest_date, "lowest": min(row.usd_per_chip_hour for row in price.rows),
         "highest": max(row.usd_per_chip_hour for row in price.rows)}
        for basis in catalog.prices.bases()
        for id_, price in catalog.prices.select(basis).items()
        if id_ == spec.id
    ]  # fmt: skip
    purchases = [
        {"kind": row.kind, "usd_per_chip": row.usd_per_chip, "provider": row.provider,
         "date": row.date, "source": row.source, "note": row.note}
        for row in catalog.purchases
        if row.chip == spec.id
    ]  # fmt: skip
    document = {
        "id": spec.id,
        "name": spec.name,
        "vendor": spec.vendor,
        "family": spec.family,
        "year": spec.year,
        "availability": spec.availability,
        "derived_from": spec.derived_from or None,
        "changes": list(spec.changes),
        "memories": [memory.kind for memory in spec.memories],
        "capacity_kind": spec.capacity_kind,
        "tiers": [asdict(tier) for tier in tiers.values()],
        "system": system.id,
        "efficiency": spec.efficiency,
        "measured_here": dict(catalog.efficiencies[spec.efficiency].provenance) or None,
        "figures": [figure_row(f) for f in (*spec.figures, *system.figures)],
        "not_chosen": [figure_row(f) for f in spec.not_chosen],
        "prices": prices,
        "purchases": purchases,
        "owned": owned,
        "not_owned": lack,
        "assumed": [*spec.assumed, *system.assumed],
        "missing": [*spec.missing, *system.missing],
        "refused": catalog.refusal(spec.id),
        "notes": list(spec.notes),
    }
    if as_json:
        print_json(document)
        return
    say(f"{spec.id}: {spec.vendor} {spec.name}, in system {system.id} ({system.name})", "  ")
    if spec.hypothetical:
        say(f"Hypothetical: nobody makes it. {'; '.join(spec.changes)}", "  ")
    print_figures([*spec.figures, *system.figures], spec.not_chosen)
    _print_prices(prices, purchases)
    if owned:
        print_price(owned)
    else:
        say(f"no {OWNED}: {lack}", "  ")
    if tiers:
        say(f"memory tiers: {'; '.join(map(tier_words, tiers.values()))}", "  ")
    if document["measured_here"]:
        laws = catalog.efficiencies[spec.efficiency]
        say(f"kernel efficiencies: {laws.title}, measured here {laws.date} ({laws.file})", "  ")
    for sentence in document["notes"]:
        say(f"note: {sentence}", "  ")
    for sentence in document["assumed"]:
        say(f"assumed: {sentence}", "  ")
    if document["missing"]:
        say(f"no figure for: {', '.join(document['missing'])}", "  ")
    if document["refused"]:
        say(f"no estimate: {document['refused']}", "  ")


def figure_row(figure: Figure) -> dict[str, Any]:
    from dse.problem.describe import number

    return {
        "name": figure.name,
        "value": number(figure.value),
        "unit": figure.unit,
        "text": figure.text,
        "source": figure.source,
        "date": figure.date,
        "kind": figure.kind,
        "quote": figure.quote,
        "note": figure.note,
        "alternatives": [figure_row(other) for other in figure.alternatives],
    }


def print_figures(figures: Sequence[Figure], not_chosen: Sequence[Figure]) -> None:
    """Every figure, what other sources say below it, and the sources by number."""
    lines = []
    for figure in figures:
        lines.append((figure.name, figure))
        lines += [("  elsewhere", other) for other in figure.alternatives]
    lines += [(f"{figure.name}, not used", figure) for figure in not_chosen]
    sources = list(dict.fromkeys(figure.source for _, figure in lines))
    print_table(
        ("figure", "value", "kind", "date", "source"),
        [
            (name, f.text, f.kind, str(f.date), f"[{sources.index(f.source) + 1}]")
            for name, f in lines
        ],
        right=(1,),
    )
    for k, source in enumerate(sources, 1):
        say(f"[{k}] {source}", "    ")


def _print_prices(prices: list[dict[str, Any]], purchases: list[dict[str, Any]]) -> None:
    if prices:
        print_table(
            ("price basis", "$/chip-hour", "from", "to", "date", "rule"),
            [
                (
                    p["basis"],
                    *(f"{p[name]:.2f}" for name in ("usd_per_chip_hour", "lowest", "highest")),
                    str(p["date"]),
                    p["rule"],
                )
                for p in prices
            ],
            right=(1, 2, 3),
        )
    else:
        click.echo("No price per hour.")
    if purchases:
        print_table(
            ("bought", "$/chip", "provider", "date"),
            [(p["kind"], f"{p['usd_per_chip']:,.0f}", p["provider"], p["date"]) for p in purchases],
            right=(1,),
        )


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@efficiency_option
def check_chip(file: Path) -> None:
    """Read a chip file of yours and explain every mistake with its line and field."""
    from dse.schema.own_chip import read_own_chip

    catalog = read_catalog()
    name = read_own_chip(file, efficiency=catalog.source.efficiency).chip.id
    catalog = catalog.with_files([file])
    chip = catalog.chips[name]
    click.echo(f"{file}: {name} is well-formed")
    if chip.changes:
        say(f"hypothetical: {chip.derived_from} with {'; '.join(chip.changes)}", "  ")
    if chip.missing:
        say(f"no figure for: {', '.join(chip.missing)}", "  ")
    reason = catalog.refusal(name)
    if reason:
        say(f"no estimate: {reason}", "  ")


@command.command("new")
@click.argument("chip")
def new_chip(chip: str) -> None:
    """Write a commented chip file to fill in: dse hardware new my_chip > my_chip.yaml"""
    from dse.errors import InputError
    from dse.schema.own_chip import template

    catalog = read_catalog()
    if chip in catalog.chips:
        raise InputError(
            f"{chip!r} is the id of {catalog.chips[chip].file} too", accepted="an id of its own"
        )
    classes = {c.efficiency.split(":")[0] for c in catalog.chips.values()}
    click.echo(template(chip, sorted(c for c in classes if c.startswith("class_"))), nl=False)


for _command in (derive_chip, rack, collectives.command, list_prices):
    command.add_command(_command)
