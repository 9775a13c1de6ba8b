"""Training software as an input: `hardware/training/*.yaml`.

Kernel efficiency belongs to the chip; what of its communication a framework hides, how much slower
its kernels are than those measured in serving, and what the host adds belongs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_origin, get_type_hints

from dse.data import hardware_dir
from dse.errors import InputError
from dse.record import record
from dse.schema.calibration import Calibration
from dse.schema.loader import did_you_mean, load_yaml
from dse.schema.reader import Date, Field, Number, Table, Text, Word, read

FOLDER = "training"
CALIBRATION = "efficiency/training/calibration.yaml"  # clocks by chip and held-out spread
CLOCK = "clock."  # + chip: a factor of it


# Lowest and highest value of a constant, and what it is.
Share = Annotated[float, 0, 1, "share of"]
Factor = Annotated[float, 0.1, 10, "seconds of"]
Extra = Annotated[float, 0, 10, "seconds of"]
Further = Annotated[float, 0.1, 10, "further factor on"]


@record
class TrainingStack:
    """One training framework of one age. `kinds[name]` is `fitted` or `assumed`, `sources[name]`
    where a constant comes from or why it is assumed. `clocks`: by chip, arithmetic of sustained
    training over that of its kernel laws, 1 where absent."""

    id: str
    title: str
    date: str
    tensor_overlap: Annotated[Share, "tensor-parallel communication that arithmetic can hide"]
    context_overlap: Annotated[Share, "context-parallel communication that attention can hide"]
    expert_overlap: Annotated[Share, "dispatch and combine that arithmetic can hide"]
    data_overlap: Annotated[Share, "gradient and weight collectives that arithmetic can hide"]
    pipeline_overlap: Annotated[Share, "hops between stages that arithmetic can hide"]
    gemm_bf16: Annotated[Factor, "16-bit matrix products over those of the chip's laws"]
    gemm_fp8: Annotated[Factor, "the same in 8-bit formats"]
    gemm_fp4: Annotated[Factor, "the same in 4-bit formats"]
    weight_gradient: Annotated[Further, "the products that give weight gradients"]
    attention: Annotated[Factor, "attention forward over that of the chip's law"]
    states: Annotated[float, 0.1, 100, "seconds of state-space and linear-attention scans over it"]
    attention_backward: Annotated[Further, "attention backward, which has 2.5 x the operations"]
    experts: Annotated[Factor, "grouped expert products over those of the chip's law"]
    elementwise: Annotated[Extra, "element-wise kernels over their bytes at the memory rate"]
    moe_elementwise: Annotated[
        float, 0, 10, "further factor on element-wise kernels around routed experts"
    ]
    dispatch: Annotated[Extra, "all-to-alls over those of the fabric's law"]
    slots_sent: Annotated[
        float, 0, 1, "0: a token goes once to each rank of its experts; 1: to each"
    ]
    collectives: Annotated[Extra, "all other collectives over those of the fabric's law"]
    expert_bias_bytes: Annotated[
        float, 0, 1000, "further bytes of an output of a routed expert with a bias, both passes"
    ]
    fp8_gather_bytes: Annotated[
        float, 1, 2, "bytes of a linear weight when gathered, in FP8 with one scale a tensor"
    ]
    routing_skew: Annotated[float, 0, 3, "coefficient of variation of how often experts are chosen"]
    straggler: Annotated[float, 0, 1, "waiting for the slowest chip, as a share of the step"]
    host_s_per_step: Annotated[float, 0, 60, "seconds of host work between steps"]
    host_s_per_micro_batch: Annotated[float, 0, 1, "seconds of host work between micro-batches"]
    # What exceeds the device's time shows.
    host_s_per_layer: Annotated[float, 0, 0.1, "seconds to launch forward and backward of a layer"]
    runtime_bytes: Annotated[float, 0, 1e11, "bytes that driver, libraries and allocator keep"]
    clocks: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    kinds: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sources: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))


# Constants by name: (lowest, highest, what it is).
CONSTANTS: dict[str, tuple[float, float, str]] = {
    name: (*hint.__metadata__[:2], " ".join(hint.__metadata__[2:]))
    for name, hint in get_type_hints(TrainingStack, include_extras=True).items()
    if get_origin(hint) is Annotated
}


def _constant(lowest: float, highest: float) -> Table[Any]:
    return Table(
        Field("value", Number(lowest, highest, says=f"{lowest:g} to {highest:g}")),
        Field("kind", Word(("fitted", "assumed"))),
        Field("source", Text(1), meaning="where it comes from, or why it is assumed"),
    )


STACK = Table(
    Field("id", Text()),
    Field("title", Text()),
    Field("date", Date()),
    Field(
        "constants",
        Table(
            *(
                Field(name, _constant(lowest, highest), meaning=meaning)
                for name, (lowest, highest, meaning) in CONSTANTS.items()
            )
        ),
    ),
)


def load_training_stack(path: Path) -> TrainingStack:
    """Raises InputError with the line and field of every mistake."""
    found = read(STACK, load_yaml(path))
    constants = found.pop("constants")
    return TrainingStack(
        **found,
        **{name: one["value"] for name, one in constants.items()},
        clocks=fitted_clocks(),
        kinds=MappingProxyType({name: one["kind"] for name, one in constants.items()}),
        sources=MappingProxyType({name: one["source"] for name, one in constants.items()}),
    )


@cache
def fitted_clocks() -> Mapping[str, float]:
    """The fitted clocks by chip of the shipped calibration; none without it."""
    path = hardware_dir() / CALIBRATION
    factors = Calibration.load(path).factors if path.exists() else {}
    marked = {name.partition(CLOCK): value for name, value in factors.items() if CLOCK in name}
    return MappingProxyType({chip: value for (_, _, chip), value in marked.items()})


@cache
def training_stacks(folder: Path | None = None) -> dict[str, TrainingStack]:
    """Every stack of a folder (the shipped one by default) by id."""
    where = hardware_dir() / FOLDER if folder is None else folder
    stacks: dict[str, TrainingStack] = {}
    for path in sorted(where.glob("*.yaml")):
        stack = load_training_stack(path)
        if stack.id in stacks:
            message = f"{stack.id!r} is the id of another stack too"
            raise InputError(message, file=str(path), field="id", accepted="an id of its own")
        stacks[stack.id] = stack
    return stacks


def training_stack(name: str) -> TrainingStack:
    """By id. Raises InputError with near spellings."""
    stacks = training_stacks()
    if name in stacks:
        return stacks[name]
    raise InputError(
        f"unknown training stack {name!r}{did_you_mean(name, stacks)}",
        field="stack",
        accepted=", ".join(stacks),
    )
