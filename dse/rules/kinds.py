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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from dse.data import rows_beside
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


_WRITTEN = {row["name"]: row for row in rows_beside(__file__, "rules.csv")}


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
    """A row of families.csv. `grain`: the chips that it is for, and what their kernels come in. Of
    GPUs, `tiles` (rows, columns) that libraries use on `units`. `stride_bytes`: strides to avoid.
    """

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


def _family(row: Mapping[str, str]) -> Family:
    tiles = [tile.split("x") for tile in row["tiles"].split()]
    return Family(
        name=row["name"],
        title=row["title"],
        grain=alignment.GRAINS.get(row["name"], alignment.UNKNOWN),
        source=row["source"],
        stacks=tuple(row["stacks"].split()),
        tiles=tuple((float(rows), float(columns)) for rows, columns in tiles),
        units=row["units"],
        stride_bytes=float(row["stride_bytes"]) if row["stride_bytes"] else None,
        stride_chips=tuple(row["stride_chips"].split()),
        stride_rule=rule_of(row["stride_rule"]) if row["stride_rule"] else None,
        notes=tuple(row["notes"].split(" | ")) if row["notes"] else (),
    )


*FAMILIES, UNKNOWN = map(_family, rows_beside(__file__, "families.csv"))


def family_of(name: str) -> Family:
    """The rules of a family by the name in its chips' files, `UNKNOWN` where it has none."""
    return next((family for family in FAMILIES if name in family.grain.chips), UNKNOWN)
