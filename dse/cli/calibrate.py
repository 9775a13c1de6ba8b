"""dse calibrate: measure this machine and write an efficiency file of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dse.cli.options import Whole, json_option
from dse.cli.printing import deliver

if TYPE_CHECKING:
    import pandas as pd

    from dse.measure.session import Effort


@click.command("calibrate")
@click.option(
    "--device",
    "kind",
    metavar="KIND",
    type=click.Choice(["cuda", "cpu"]),
    help="cuda (an AMD GPU too, under ROCm) or cpu; the GPU where there is one.",
)
@click.option("--chip", help="Which chip of the catalog it is; else by the name of the device.")
@click.option("--new-chip", metavar="NAME", help="A chip that the catalog does not have.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The efficiency file; ID_efficiency.yaml if left out. Points go beside it, as CSV.",
)
@click.option("--quick/--full", default=True, help="Under a minute, or about six.")
@click.option(
    "--devices",
    type=Whole(1, 64),
    help="Devices to measure collectives between: all GPUs, one CPU. Of a CPU: processes.",
)
@click.option("--seed", type=Whole(0, 2**63 - 1), default=0, help="Which shapes, and their order.")
def command(
    kind: str | None,
    chip: str | None,
    new_chip: str | None,
    out: Path | None,
    quick: bool,
    devices: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Measure matrix products, memory, attention and collectives of this machine through PyTorch,
    fit the kernel laws to them and write a file that takes the place of the shipped laws.

    \b
    dse calibrate                          the GPU, or else the CPU, in a minute
    dse calibrate --chip h100_sxm --full   six minutes, for a chip of the catalog
    dse calibrate --new-chip my_cpu        writes my_cpu.yaml too, a chip file

    The file is used with --efficiency-file FILE.
    """
    import datetime

    from dse.errors import InputError
    from dse.files import write_text
    from dse.measure.calibration import calibrate, target
    from dse.measure.session import FULL, QUICK, Session
    from dse.measure.torch_bench import POOL_BYTES, TorchBench, pick_device

    if chip is not None and new_chip is not None:
        raise InputError("--chip and --new-chip", accepted="one of the two")
    device_kind = pick_device(kind)
    bench = TorchBench(device_kind, seed, POOL_BYTES[device_kind])
    device = bench.device
    if device.kind == "cuda" and devices is not None and devices > device.count:
        message = f"read {devices}: there are {device.count}"
        raise InputError(message, field="--devices", accepted=f"1 to {device.count}")
    to = target(device, chip, new_chip)
    effort = QUICK if quick else FULL
    path = out or Path(f"{to.id}_efficiency.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"read {str(path)!r}", field="--out", accepted="a name that ends in .yaml")
    session = Session(bench, effort, seed, _section)
    rows = _collectives(device_kind, devices or device.count, effort)
    today = datetime.date.today().isoformat()
    texts, answer = calibrate(session, device.dtypes, to, path, today, rows)
    for name, text in texts.items():
        write_text(path.parent, name, text)
    deliver(answer, out=None, as_json=as_json)
    if not as_json:
        written = answer.document
        click.echo(
            f"Use them: dse estimate --model llama-3.2-1b --chip {written['chip_file'] or to.id} "
            f"\\\n  --efficiency-file {written['efficiency_file']}"
        )


command.params.append(json_option)


def _section(words: str, share: float) -> None:
    click.echo(f"{share:4.0%} {words}", err=True)


def _collectives(kind: str, count: int, effort: Effort) -> pd.DataFrame | None:
    """What the collectives took; None, with a word on standard error, where they do not run."""
    if count < 2:
        return None
    from dse.measure.torch_bench import LARGEST, measure_collectives

    _section(f"collectives between {count} devices", 0.0)
    largest = LARGEST[kind] / (8 if effort.name == "quick" else 1)
    try:
        return measure_collectives(kind, count, largest, effort.collectives_s)
    except (RuntimeError, OSError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[-1:] or ["no reason given"]
        click.echo(f"collectives were not measured: {reason[0]}", err=True)
        return None
