"""What a rule is, what it finds, the registry that holds every rule of legality, and families of
chips with what the rules of matrix products need to know of each.

A rule is a row of rules.csv (what holds where it is kept, its source, the kind of evidence, who has
it) and a function of its name:

    @rule("name")
    def NAME(case: Case) -> Found:
        yield Part(broken, words)

Nothing else names it: the search, every question and the export ask `dse.rules.registry`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from dse.physics import alignment
from dse.physics.alignment import Grain
from dse.record import record
from dse.space.candidates import Floats

if TYPE_CHECKING:
    from dse.rules.case import Case


Flags = NDArray[np.bool_]
# error: the candidate is refused; waste: it costs time; note: outside what published models do, or
# said to matter without a figure.
Severity = Literal["error", "waste", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "waste", "note")
# Whom an error binds. Everyone: arithmetic, memory, the load. Hardware: whoever is on that rack or
# memory tier. A format or a backend: the stacks that are named beside it, and no other.
Binds = Literal["everyone", "hardware", "format", "backend"]
# Of a search, rules that bind it alone: of shapes that it makes, and of the load it chooses.
Phase = Literal["serving", "training", "shapes", "load"]
SEARCH: frozenset[Phase] = frozenset({"shapes", "load"})

VLLM, SGLANG, TRTLLM, MEGATRON = "vLLM", "SGLang", "TensorRT-LLM", "Megatron-LM"
SERVERS = (VLLM, SGLANG, TRTLLM)
STACKS = (*SERVERS, MEGATRON)


@dataclass(frozen=True, slots=True)
class Part:
    """One size that a rule looks at. `amount` (n,): whether the rule is broken, or used / limit - 1
    of a quantity, above 0 where it is broken. `words` of candidate i; a quantity has none, its
    amount says it."""

    amount: Flags | Floats
    words: Callable[[int], str] | None = None

    def say(self, i: int) -> str:
        return by_how_much(float(self.amount[i])) if self.words is None else self.words(i)


Found = Iterator[Part]
Find = Callable[["Case"], Iterable[Part]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `says` in one sentence what holds where it is kept; `known` is the kind of its
    evidence (spec, measured, derived, claimed, assumed). `stacks` are known to look for it and to
    refuse what breaks it (of memory and load, none in particular), and `cites` is what each has of
    its own beside the `source`. One that is `loaded` asks how requests run, and others nothing but
    the deployment; `find` is set for errors
    alone: what is wasted is found from the products of a step (`dse.rules.waste`)."""

    name: str
    severity: Severity
    says: str
    source: str
    known: str
    stacks: tuple[str, ...] = ()
    cites: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    binds: Binds = "everyone"
    phases: tuple[Phase, ...] = ("serving",)
    find: Find | None = field(default=None, compare=False)
    loaded: bool = False

    def cited(self, stacks: Iterable[str]) -> str:
        """The sources that concern `stacks`."""
        return "; ".join(
            [self.source, *(self.cites[name] for name in stacks if name in self.cites)]
        )

    def parts(self, case: Case) -> Iterable[Part]:
        return () if self.find is None else self.find(case)

    @property
    def by_stack(self) -> bool:
        """Whether it binds only the stacks that have it."""
        return self.binds in ("format", "backend")


# Every error, in the order of definition, which is that of a study's constraints.
REGISTRY: list[Rule] = []


with Path(__file__).with_name("rules.csv").open(encoding="utf-8", newline="") as _file:
    _WRITTEN = {row["name"]: row for row in csv.DictReader(_file)}


def rule_of(name: str, find: Find | None = None) -> Rule:
    """The rule of a row of rules.csv: what it says and its source, the stacks that have it, and in
    the column of a stack what that cites beside the source."""
    row = _WRITTEN[name]
    return Rule(
        name=name,
        severity=cast("Severity", row["severity"]),
        says=row["says"],
        source=row["source"],
        known=row["known"],
        stacks=tuple(row["stacks"].split()),
        cites={stack: row[stack] for stack in STACKS if row.get(stack)},
        binds=cast("Binds", row["binds"]),
        phases=cast("tuple[Phase, ...]", tuple(row["phases"].split())),
        find=find,
        loaded=bool(row["loaded"]),
    )


def enter(rule: Rule) -> Rule:
    """Enters a rule into the registry."""
    REGISTRY.append(rule)
    return rule


def rule(name: str) -> Callable[[Find], Rule]:
    """Makes a function the `find` of the rule of a name, and enters it into the registry."""
    return lambda find: enter(rule_of(name, find))


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule applied to n shapes: `broken` (n,), and what to say of shape i. `prefill` and `decode`
    are the time that it costs as a share of that step, (n,), None where no figure exists;
    `predicted`: the predictions of every command hold this cost already."""

    rule: Rule
    broken: Flags
    words: Callable[[int], str]
    prefill: Floats | None = None
    decode: Floats | None = None
    predicted: bool = False


def uneven(size: Floats, over: Floats | float) -> Flags:
    """(n,) whether whole numbers below 2^53 leave a rest. As `size % over > 0`, which takes five
    times as long: a quotient that is not whole is 1 / over or more away from one that is."""
    share = size / over
    return share > np.floor(share)


def whole(value: float) -> str:
    return f"{value:,.0f}"


def said(text: str, *sizes: Floats) -> Callable[[int], str]:
    """Words of candidate i: `text` with its sizes, (n,) each, in place of the braces."""
    return lambda i: text.format(*(whole(size[i]) for size in sizes))


def by_how_much(amount: float) -> str:
    """What is said of a quantity, from used / limit - 1; empty where that is not finite."""
    return f"{amount:.1%} too much" if np.isfinite(amount) else ""


def message(name: str, says: str, found: str) -> str:
    """The one sentence about a broken rule, whoever refuses."""
    return f"breaks {name}: {says}" + (f" ({found})" if found else "")


@record
class Family:
    """`grain`: the chips that it is for, and what their kernels come in. Of GPUs, `tiles` (rows,
    columns) that libraries use on `units`. `stride_bytes`: strides to avoid."""

    name: str
    title: str
    grain: Grain
    source: str
    stacks: tuple[str, ...] = STACKS
    tiles: tuple[tuple[float, float], ...] = ()
    units: str = "compute units"
    stride_bytes: float | None = None
    stride_chips: tuple[str, ...] = ()
    stride_rule: Rule | None = None
    notes: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether anything is known of its matrix products."""
        return bool(self.tiles) or self.grain.is_unit


UNKNOWN = Family(
    "unknown",
    "a family without published shape rules",
    alignment.UNKNOWN,
    "none",
    stacks=(VLLM,),
    notes=(
        "degrees are judged by the rules of vLLM; whether it runs on this chip was not checked",
        "no shape rules of matrix products are published for this chip: none are applied",
    ),
)
_UNCHECKED = "whether vLLM's {} backend takes a degree was not checked: its rules are those of GPUs"
# NVIDIA GPUs: tensor cores on streaming multiprocessors.
_NVIDIA = Family(
    "nvidia",
    "NVIDIA GPU",
    alignment.NVIDIA,
    "NVIDIA, Matrix Multiplication Background User's Guide; github:stas00/ml-engineering "
    "training/performance/README.md, 2026-08-22",
    # The most efficient output tiles of the guide, usual on all generations since (assumed).
    tiles=((256.0, 128.0), (128.0, 256.0), (128.0, 128.0)),
    units="SMs",
)
# AMD Instinct: matrix cores on compute units, grouped into dies (XCDs).
_AMD = Family(
    "amd",
    "AMD Instinct",
    alignment.AMD,
    "ROCm documentation, AMD Instinct MI300X workload optimization, 2026",
    stacks=(VLLM, SGLANG, MEGATRON),
    # Macro-tiles as on other GPUs, and one larger (assumed).
    tiles=((256.0, 256.0), (256.0, 128.0), (128.0, 256.0), (128.0, 128.0)),
    units="compute units",
    stride_bytes=512.0,
    stride_chips=("cdna3",),
    stride_rule=rule_of("stride_hotspot"),
    notes=(
        "8 dies (XCDs): the vendor says to group tiles in multiples of 8, which libraries do; no "
        "figure is published and none is charged",
    ),
)
# Google TPUs: systolic matrix units of 128 x 128, from v6e on 256 x 256.
_TPU = Family(
    "tpu",
    "Google TPU",
    alignment.TPU,
    "github:jax-ml/scaling-book tpus.md, 2025; Cloud TPU performance guide",
    stacks=(VLLM,),
    notes=(
        "vector registers are 8 x 128: rows (tokens) in eights; a chip with several matrix units "
        "wants weights wider than one of them",
        _UNCHECKED.format("TPU"),
    ),
)
# AWS Trainium and Inferentia: systolic arrays of 128 x 128.
_TRAINIUM = Family(
    "trainium",
    "AWS Trainium",
    alignment.TRAINIUM,
    "AWS Neuron documentation, NeuronCore architecture, 2026",
    stacks=(VLLM,),
    notes=(
        "MX formats come in groups of 32 (8 partitions x 4)",
        _UNCHECKED.format("Neuron"),
    ),
)
# Intel Gaudi: a few matrix engines of 256 x 256.
_GAUDI = Family(
    "gaudi",
    "Intel Gaudi",
    alignment.GAUDI,
    "github:stas00/ml-engineering compute/accelerator/README.md, 2026-08-22",
    stacks=(VLLM,),
    notes=(
        "several engines can join into one of another form (not modelled): the loss is an upper "
        "bound",
        _UNCHECKED.format("Gaudi"),
    ),
)
FAMILIES = (_NVIDIA, _AMD, _TPU, _TRAINIUM, _GAUDI)


def family_of(name: str) -> Family:
    """The rules of a family by the name in its chips' files, `UNKNOWN` where it has none."""
    return next((family for family in FAMILIES if name in family.grain.chips), UNKNOWN)
