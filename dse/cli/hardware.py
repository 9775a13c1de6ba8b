"""dse hardware: the chips."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import json_option, print_json, print_table


@click.group("hardware")
def command() -> None:
    """Chips, their systems and their prices; every figure with its source."""


@command.command("list")
@json_option
def list_chips(as_json: bool) -> None:
    """Every chip id with its main figures."""
    from dse.specs.catalog import load_catalog

    catalog = load_catalog()
    rental = catalog.prices.select("rental_3yr")
    rows = []
    for chip in catalog.chips.values():
        system = catalog.systems[chip.system]
        rows.append(
            {
                "id": chip.id,
                "memory_bytes": chip.capacity_bytes,
                "memory_bytes_per_s": chip.memories[0].bytes_per_s,
                "peak_bf16_flops_per_s": chip.peak_flops_per_s.get("bf16"),
                "peak_fp8_flops_per_s": chip.peak_flops_per_s.get("fp8"),
                "scale_up_chips": system.levels[0].size,
                "scale_up_bytes_per_s": system.levels[0].bytes_per_s_per_direction,
                "usd_per_hour_rental_3yr": rental[chip.id].usd_per_chip_hour
                if chip.id in rental
                else None,
                "efficiency": chip.efficiency.split(":")[0],
            }
        )
    if as_json:
        print_json(rows)
        return

    def tera(value: float | None) -> str:
        return "-" if value is None else f"{value / 1e12:,.0f}"

    print_table(
        (
            "id",
            "GB",
            "TB/s",
            "bf16 TF/s",
            "fp8 TF/s",
            "domain",
            "GB/s link",
            "$/h 3yr",
            "efficiency",
        ),
        [
            (
                row["id"],
                f"{row['memory_bytes'] / 1e9:.0f}",
                f"{row['memory_bytes_per_s'] / 1e12:.2f}",
                tera(row["peak_bf16_flops_per_s"]),
                tera(row["peak_fp8_flops_per_s"]),
                str(row["scale_up_chips"]),
                f"{row['scale_up_bytes_per_s'] / 1e9:.0f}",
                "-"
                if row["usd_per_hour_rental_3yr"] is None
                else f"{row['usd_per_hour_rental_3yr']:.2f}",
                row["efficiency"],
            )
            for row in rows
        ],
        right=(1, 2, 3, 4, 5, 6, 7),
    )


@command.command("show")
@click.argument("chip")
@json_option
def show_chip(chip: str, as_json: bool) -> None:
    """Every figure of a chip with its source, date and kind."""
    from dse.specs.catalog import load_catalog

    catalog = load_catalog()
    spec = catalog.chip(chip)
    system = catalog.systems[spec.system]
    figures = [*spec.figures, *system.figures]
    prices = [
        {"basis": basis, "usd_per_chip_hour": price.usd_per_chip_hour, "rule": price.rule,
         "date": price.newest_date}
        for basis in catalog.prices.bases()
        for name, price in catalog.prices.select(basis).items()
        if name == spec.id
    ]  # fmt: skip
    if as_json:
        print_json(
            {
                "id": spec.id,
                "name": spec.name,
                "system": system.id,
                "efficiency": spec.efficiency,
                "figures": [
                    {"name": f.name, "value": f.value, "unit": f.unit, "text": f.text,
                     "source": f.source, "date": f.date, "kind": f.kind}
                    for f in figures
                ],
                "prices": prices,
                "assumed": [*spec.assumed, *system.assumed],
                "missing": list(spec.missing),
            }
        )  # fmt: skip
        return
    click.echo(f"{spec.id}: {spec.vendor} {spec.name}, in system {system.id} ({system.name})")
    print_table(
        ("figure", "value", "kind", "date", "source"),
        [(f.name, f.text, f.kind, str(f.date), f.source) for f in figures],
        right=(1,),
    )
    print_table(
        ("price basis", "$/chip-hour", "date", "rule"),
        [(p["basis"], f"{p['usd_per_chip_hour']:.2f}", str(p["date"]), p["rule"]) for p in prices],
        right=(1,),
    )
    for sentence in (*spec.assumed, *system.assumed):
        click.echo(f"assumed: {sentence}")
    if spec.missing:
        click.echo(f"no figure for: {', '.join(spec.missing)}")


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def check_chip(file: Path) -> None:
    """Read a chip file of yours and explain every mistake with its line and field."""
    from dse.specs.catalog import load_catalog
    from dse.specs.chip import load_chip

    chip = load_chip(file)
    load_catalog(extra_chip_files=[file])
    click.echo(f"{file}: {chip.id} is well-formed")
    if chip.missing:
        click.echo(f"no figure for: {', '.join(chip.missing)}")
