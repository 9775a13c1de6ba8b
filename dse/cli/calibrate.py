"""dse calibrate: measure this machine and write an efficiency file of it.

Examples:

    dse calibrate                          the GPU, or else the CPU, in a minute
    dse calibrate --chip h100_sxm --full   six minutes, for a chip of the catalog
    dse calibrate --new-chip my_cpu        writes my_cpu.yaml too, a chip file
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import click

from dse.answer.answer import Answer
from dse.cli.printing import deliver
from dse.cli.signature import verb
from dse.options import Opt

DEVICE = Opt("cuda (an AMD GPU too, under ROCm) or cpu; the GPU where there is one.")
CHIP = Opt("Which chip of the catalog it is; else by the name of the device.")


def calibrated(
    *,
    device: Annotated[Literal["cuda", "cpu"] | None, DEVICE] = None,
    chip: Annotated[str | None, CHIP] = None,
    new_chip: Annotated[str | None, Opt("A chip that the catalog does not have.")] = None,
    full: Annotated[bool, Opt("About six minutes, in place of one.")] = False,
    seed: Annotated[int, Opt("Which shapes, and their order.", least=0, most=2**63 - 1)] = 0,
    out: Path | None = None,
) -> Answer:
    """Measure matrix products, memory and attention of this machine through PyTorch,
    fit the kernel laws to them and write a file that takes the place of the shipped laws. The file
    is used with --efficiency-file FILE."""
    import datetime

    from dse.errors import InputError
    from dse.files import write_text
    from dse.measure.calibration import calibrate, target
    from dse.measure.session import FULL, QUICK, Session
    from dse.measure.torch_bench import POOL_BYTES, TorchBench, pick_device

    if chip is not None and new_chip is not None:
        raise InputError("--chip and --new-chip", accepted="one of the two")
    kind = pick_device(device)
    bench = TorchBench(kind, seed, POOL_BYTES[kind])
    to = target(bench.device, chip, new_chip)
    effort = FULL if full else QUICK
    path = out or Path(f"{to.id}_efficiency.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"read {str(path)!r}", field="--out", accepted="a name that ends in .yaml")
    session = Session(bench, effort, seed, _section)
    today = datetime.date.today().isoformat()
    texts, answer = calibrate(session, bench.device.dtypes, to, path, today)
    for name, text in texts.items():
        write_text(path.parent, name, text)
    return answer


def _section(words: str, share: float) -> None:
    click.echo(f"{share:4.0%} {words}", err=True)


def _delivered(answer: Answer, *, out: Any, **how: Any) -> None:
    deliver(answer, out=None, **how)


command = verb(
    calibrated,
    name="calibrate",
    examples=__doc__,
    out=click.Option(
        ["--out"],
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The efficiency file; ID_efficiency.yaml if left out. Points go beside it, as CSV.",
    ),
    delivered=_delivered,
)
