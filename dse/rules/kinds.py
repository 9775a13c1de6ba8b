"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dse.space.candidates import Floats

Flags = NDArray[np.bool_]
# error: software refuses the shape; waste: it costs time; note: outside what published models do,
# or said to matter without a figure.
Severity = Literal["error", "waste", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "waste", "note")

VLLM, SGLANG, TRTLLM, MEGATRON = "vLLM", "SGLang", "TensorRT-LLM", "Megatron-LM"
STACKS = (VLLM, SGLANG, TRTLLM, MEGATRON)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `says` in one sentence; `known` is the kind of its evidence (spec, measured,
    derived, claimed, assumed); `stacks` refuse what breaks it (errors only), and `cites` is what
    each has of its own beside the `source`."""

    name: str
    severity: Severity
    says: str
    source: str
    known: str
    stacks: tuple[str, ...] = ()
    cites: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    def cited(self, stacks: Iterable[str]) -> str:
        """The sources that concern `stacks`."""
        return "; ".join(
            [self.source, *(self.cites[name] for name in stacks if name in self.cites)]
        )


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
