"""The matrix products of one step, with their sizes on one chip: what the shape rules judge.

A step is run as everywhere else, and each product is noted as it enters the ledger. A product of
`rows` (tokens) by `inner` with a weight of `inner` by `out` columns is M = rows, N = out,
K = inner. Routed experts run as one grouped product; it is noted as an up- and a down-projection,
its time split by their arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.blocks.operators import Experts, Product, Role
from dse.physics.deployed import Deployed
from dse.physics.ledger import Entry
from dse.physics.step import Step, computed_rows
from dse.space.candidates import Floats


@dataclass(frozen=True, slots=True)
class Gemm:
    """`count` products of one kind; arrays (n,). `part` is the weight part whose format it has.
    `groups`: products that run as one (experts of a rank), 1 else. `compute_s` without the padding
    of rows that the model counts, `memory_s`, `fixed_s` and `seconds` (as predicted) are those of
    all `count`; `p` is the exponent of their sum (`dse.physics.ledger`)."""

    role: Role
    name: str
    count: Floats
    part: str
    rows: Floats
    out: Floats
    inner: Floats
    groups: Floats
    p: Floats
    compute_s: Floats
    memory_s: Floats
    fixed_s: Floats
    seconds: Floats

    def seconds_at(self, compute: Floats | float, all_: Floats | float = 1.0) -> Floats:
        """(n,) seconds where arithmetic reaches a share `compute`, and the whole kernel a share
        `all_`, of what the law of its kernels says."""
        busy, memory = self.compute_s / compute, self.memory_s
        larger = np.maximum(np.maximum(busy, memory), 1e-300)
        total = ((busy / larger) ** self.p + (memory / larger) ** self.p) ** (1.0 / self.p)
        return total * larger / all_ + self.fixed_s


class NotedStep(Step):
    """A step that keeps its products in `gemms`, those of routed experts last, and its ledger's
    entries."""

    def __init__(self, deployed: Deployed, **work: Any) -> None:
        self.gemms: list[Gemm] = []
        self._of_experts: list[Gemm] = []
        super().__init__(deployed, keep=True, **work)
        self.gemms += self._of_experts

    @property
    def _last(self) -> Entry:
        assert self.ledger.entries is not None
        return self.ledger.entries[-1]

    def gemm(self, one: Product) -> None:
        super().gemm(one)
        useful = one.rows / np.maximum(computed_rows(one.rows), 1e-30)
        p = self.gemm_law(one.part).p
        self.gemms.append(Gemm(*one, self.always, p, *_seconds(self._last, 1.0, useful)))

    def experts(self, one: Experts) -> None:
        super().experts(one)
        entry, block, p = self._last, one.block, self.deployed.law("experts", "experts").p
        experts, matrices = np.maximum(block["experts"], 1.0), np.maximum(block["matrices"], 2.0)
        rows = one.tokens * block["experts_per_token"] / experts
        groups = np.ceil(experts / self.deployed.expert_parallel)
        up = (matrices - 1.0) / matrices
        for way, out, inner, share in (
            ("up", (matrices - 1.0) * one.width, one.latent, up),
            ("down", one.latent, one.width, 1.0 - up),
        ):
            label = f"{entry.name} {way}-projection"
            product = Product(Role.EXPERTS, label, block.count, "experts", rows, out, inner)
            self._of_experts.append(Gemm(*product, groups, p, *_seconds(entry, share)))


def _seconds(
    entry: Entry, share: Floats | float, useful: Floats | float = 1.0
) -> tuple[Floats, Floats, Floats, Floats]:
    """A share of the seconds of compute without padding, of memory, fixed ones and all."""
    compute_s, memory_s = entry.compute_s * useful * share, entry.memory_s * share
    return compute_s, memory_s, entry.fixed_s * share, entry.seconds * share


def prefill(deployed: Deployed, tokens: Floats | float, prompt: Floats | float) -> NotedStep:
    """The step that prefills `tokens` of prompts that are `prompt` tokens long."""
    ones = np.ones(deployed.n)
    return NotedStep(
        deployed,
        decode_rows=0.0 * ones,
        context=0.0 * ones,
        prefill_rows=tokens * ones,
        prompt_tokens=prompt * ones,
    )


def decode(deployed: Deployed, requests: Floats | float, context: Floats | float) -> NotedStep:
    """A decode step of `requests` on every attention rank, `context` tokens in each one's cache."""
    ones = np.ones(deployed.n)
    return NotedStep(
        deployed,
        decode_rows=requests * ones,
        context=context * ones,
        prefill_rows=0.0 * ones,
        prompt_tokens=ones,
    )
