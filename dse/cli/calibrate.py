"""dse calibrate: measure the device at hand and write an efficiency file of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import Whole, json_option
from dse.cli.printing import print_json, print_table, say

if TYPE_CHECKING:
    import pandas as pd

    from dse.measure.session import Effort
    from dse.measure.work import Device

FORMATS = ("bf16", "fp16", "fp32", "fp8")


@click.command("calibrate")
@click.option(
    "--device", "kind", metavar="KIND", type=click.Choice(["cuda", "cpu"]),
    help="cuda (an AMD GPU too, under ROCm) or cpu; the GPU where there is one.",
)  # fmt: skip
@click.option("--chip", help="Which chip of the catalog it is; else by the name of the device.")
@click.option("--new-chip", metavar="NAME", help="A chip that the catalog does not have.")
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="The efficiency file; ID_efficiency.yaml if left out. Points go beside it, as CSV.",
)  # fmt: skip
@click.option("--quick/--full", default=True, help="Under a minute, or about six.")
@click.option(
    "--dtype", "dtypes", metavar="FORMAT", multiple=True, type=click.Choice(FORMATS),
    help="Formats of GEMMs beside bf16: fp16, fp32, fp8. All that the device has, if left out.",
)  # fmt: skip
@click.option(
    "--devices", type=Whole(1, 64),
    help="Devices to measure collectives between: all GPUs, one CPU. Of a CPU: processes.",
)  # fmt: skip
@click.option("--seed", type=Whole(0, 2**63 - 1), default=0, help="Which shapes, and their order.")
@json_option
def command(
    kind: str | None, chip: str | None, new_chip: str | None, out: Path | None, quick: bool,
    dtypes: tuple[str, ...], devices: int | None, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Measure matrix products, memory, attention and collectives of this machine through PyTorch,
    fit the kernel laws to them and write a file that takes the place of the shipped laws.

    \b
    dse calibrate                          the GPU, or else the CPU, in a minute
    dse calibrate --chip h100_sxm --full   six minutes, for a chip of the catalog
    dse calibrate --new-chip my_cpu        writes my_cpu.yaml too, a chip file

    The file is used with --efficiency-file FILE.
    """
    import datetime
    import time

    from dse.errors import InputError
    from dse.files import write_text
    from dse.measure.calibration import calibrate, target
    from dse.measure.session import FULL, QUICK, Session
    from dse.measure.torch_bench import POOL_BYTES, TorchBench, pick_device

    if chip is not None and new_chip is not None:
        raise InputError("--chip and --new-chip", accepted="one of the two")
    started = time.monotonic()
    device_kind = pick_device(kind)
    bench = TorchBench(device_kind, seed, POOL_BYTES[device_kind])
    wanted = _formats(dtypes, bench.device)
    count = _count(devices, bench.device)
    to = target(bench.device, chip, new_chip)
    effort = QUICK if quick else FULL
    path = out or Path(f"{to.id}_efficiency.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"read {str(path)!r}", field="--out", accepted="a name that ends in .yaml")
    with _Bar() as bar:
        rows = _collectives(device_kind, count, effort, bar)
        session = Session(bench, effort, seed, bar.update)
        answer = calibrate(session, wanted, to, path, datetime.date.today().isoformat(), rows)
    for name, text in answer.texts.items():
        write_text(path.parent, name, text)
    document = answer.document | {"seconds": round(time.monotonic() - started, 1)}
    if as_json:
        print_json(document)
    else:
        _print(document)


def _formats(asked: tuple[str, ...], device: Device) -> list[str]:
    from dse.errors import InputError

    for dtype in asked:
        if dtype not in device.dtypes:
            raise InputError(
                f"{device.name} has no {dtype} arithmetic that PyTorch reaches",
                field="--dtype", accepted=", ".join(device.dtypes),
            )  # fmt: skip
    return list(dict.fromkeys(("bf16", *(asked or device.dtypes))))


def _count(asked: int | None, device: Device) -> int:
    from dse.errors import InputError

    if device.kind == "cuda" and asked is not None and asked > device.count:
        raise InputError(
            f"read {asked}: there are {device.count}",
            field="--devices", accepted=f"1 to {device.count}",
        )  # fmt: skip
    return asked or device.count


def _collectives(kind: str, count: int, effort: Effort, bar: _Bar) -> pd.DataFrame | None:
    """What the collectives took; None, with a word on standard error, where they do not run."""
    if count < 2:
        return None
    from dse.measure import links

    bar.update(f"collectives between {count} devices", 0.0)
    largest = links.LARGEST[kind] / (8 if effort.name == "quick" else 1)
    try:
        return links.measure(kind, count, largest, effort.collectives_s)
    except (RuntimeError, OSError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[-1:] or ["no reason given"]
        click.echo(f"collectives were not measured: {reason[0]}", err=True)
        return None


class _Bar:
    """A bar on standard error that is gone at the end; on what is no terminal, a line a section."""

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.plain = not console.is_terminal
        self.words = ""
        self.progress.start()
        self.task = self.progress.add_task("starting", total=1.0)
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, words: str, share: float) -> None:
        self.progress.update(self.task, description=words, completed=share)
        if self.plain and words != self.words:
            click.echo(f"{share:4.0%} {words}", err=True)
        self.words = words


def _print(document: dict[str, Any]) -> None:
    from dse import units

    run = document["provenance"]
    say(
        f"{document['id']}: {run['device']}, {run['software']}, {run['driver']}; "
        f"{document['points']} points in {document['seconds']:.0f} s ({run['grid']})",
        "  ",
    )
    rows = [
        (f"GEMM {one['dtype']}", units.format(one["flops_per_s"], "flop/s"),
         f"{one['flops_per_s'] / one['divided_by']:.2f}", one["divided_by_kind"])
        for one in document["gemm"]
    ] + [
        (one["kernel"], units.format(one["bytes_per_s"], "bytes/s"),
         f"{one['bytes_per_s'] / one['divided_by']:.2f}", one["divided_by_kind"])
        for one in document["memory"]
    ]  # fmt: skip
    print_table(("reached", "best", "share", "of the peak that is"), rows, right=(1, 2))
    print_table(
        ("law", "points", "compute", "memory", "fixed", "p", "off by", "held out", "noise"),
        [
            (f"{one['operator']} {one['dtype']}", str(one["points"]),
             *(f"{one['law'][name]:.3g}" for name in ("compute", "memory")),
             f"{one['law']['fixed']:.3g} us", f"{one['law']['p']:.2f}", f"{one['error']:.1%}",
             "-" if one["held_out_error"] is None else f"{one['held_out_error']:.1%}",
             f"{one['spread']:.1%}")
            for one in document["fits"]
        ],
        right=tuple(range(1, 9)),
    )  # fmt: skip
    say(
        "off by: median miss of the law on the points it was fitted to; held out: on shapes that "
        "the fit was made without; noise: middle half of the samples of a point over their median. "
        "fp16 and fp32 are reported; the file holds what dse has laws for.",
        "  ",
    )
    if document["collectives"]:
        print_table(
            ("collective", "devices", "latency", "of the link", "ramp", "off by"),
            [
                (one["operation"], str(one["devices"]), f"{one['latency']} us",
                 str(one["fraction"]), str(one["ramp"]), f"{one['error']:.1%}")
                for one in document["collectives"]
            ],
            right=(1, 2, 3, 4, 5),
        )  # fmt: skip
    _print_penalties(document["penalties"])
    rest = sorted(
        {row["operator"] for row in document["not_measured"] if row["dtype"] in (None, "bf16")}
    )
    if rest:
        say(f"Not measured, from other laws (derived or assumed): {', '.join(rest)}.", "  ")
    for row in document["skipped"]:
        say(f"{row['works']} of {row['operator']} {row['dtype']} not run: {row['reason']}", "  ")
    for line in document["warnings"]:
        say(f"Warning: {line}", "  ")
    click.echo(f"Laws: {document['efficiency_file']}\nPoints: {document['points_file']}")
    chip = document["chip_file"] or document["id"]
    if document["chip_file"]:
        click.echo(f"Chip: {chip}")
    click.echo(
        f"Use them: dse estimate --model llama-3.2-1b --chip {chip} \\\n"
        f"  --efficiency-file {document['efficiency_file']}"
    )


def _print_penalties(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    rows = sorted(rows, key=lambda row: (row["operator"], row["axis"], row["size"]))
    print_table(
        ("misaligned", "size", "between", "divides by", "time", "from", "to", "noise"),
        [
            (f"{row['operator']} {row['axis']}", f"{row['size']:,}",
             f"{row['below']:,} and {row['above']:,}", str(row["alignment"]),
             f"{row['ratio']:.2f}{' !' if row['cliff'] else ''}", f"{row['lowest']:.2f}",
             f"{row['highest']:.2f}", f"{row['noise']:.0%}")
            for row in rows
        ],
        right=(1, 4, 5, 6, 7),
    )  # fmt: skip
    say(
        "time: over the straight line between the two neighbours; median, lowest and highest of "
        "the shapes compared; noise: of the samples. !: longer by 15% and by more than the noise.",
        "  ",
    )
