"""The matrix products of one step, with their sizes on one chip: what the shape rules judge.

A step is run as everywhere else, and each product is noted as it enters the ledger. A product of
`rows` (tokens) by `inner` with a weight of `inner` by `out` columns is M = rows, N = out,
K = inner. Routed experts run as one grouped product; it is noted as an up- and a down-projection,
its time split by their arithmetic.
"""

from __future__ import annotations

import numpy as np

from dse.blocks.operators import ACTIVATION_BYTES, Experts, Product, Role
from dse.physics.alignment import stored
from dse.physics.deployed import Deployed, Law
from dse.physics.ledger import Entry, busy_s
from dse.physics.step import Step, Work, computed_rows
from dse.record import record
from dse.space.candidates import Floats


@record
class Gemm:
    """`count` products of one kind; arrays (n,). `part` is the weight part whose format it has.
    `groups`: products that run as one (experts of a rank), 1 else. `compute_s` without the padding
    of rows that the model counts, `memory_s` and `fixed_s` are those of all `count` at full speed;
    `p` is the exponent of their sum (`dse.physics.ledger`). Of the `seconds` as predicted,
    `cliff_s` are lost since misaligned widths reach the share `reached` of that speed, and
    `padding_s` to columns beyond the matrix; of what is computed the share `filled` is within it
    (`dse.physics.alignment`). Both widths are multiples of `bytes`; `computed_out` columns are
    computed. `row_s`: a row of each product that runs (of experts those that a token reaches) at
    the dense peak, all `count` of them."""

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
    reached: Floats
    cliff_s: Floats
    padding_s: Floats
    filled: Floats
    bytes: Floats
    computed_out: Floats
    row_s: Floats

    def seconds_at(self, compute: Floats | float, all_: Floats | float = 1.0) -> Floats:
        """(n,) seconds where arithmetic reaches a share `compute`, and the whole kernel a share
        `all_`, of what the law of its kernels says."""
        busy, memory = self.compute_s / compute, self.memory_s
        larger = np.maximum(np.maximum(busy, memory), 1e-300)
        total = ((busy / larger) ** self.p + (memory / larger) ** self.p) ** (1.0 / self.p)
        return total * larger / all_ + self.fixed_s


@record
class _Kernel:
    """What the ledger noted of one kernel, which products share: its seconds, at full speed those
    of compute and of memory, with padding, and the shares of these that no padding of columns
    takes."""

    law: Law
    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    fixed_s: Floats
    filled: Floats
    light: Floats

    @property
    def busy_s(self) -> Floats:
        return busy_s(self.law, self.compute_s, self.memory_s)

    @property
    def padding_s(self) -> Floats:
        plain = busy_s(self.law, self.compute_s * self.filled, self.memory_s * self.light)
        return self.busy_s - plain


class NotedStep(Step):
    """A step that keeps its products in `gemms`, those of routed experts last, and its ledger's
    entries."""

    def __init__(self, deployed: Deployed, work: Work) -> None:
        self.gemms: list[Gemm] = []
        self._of_experts: list[Gemm] = []
        super().__init__(deployed, work, keep=True)
        self.gemms += self._of_experts

    def gemm(self, one: Product) -> None:
        super().gemm(one)
        useful = one.rows / np.maximum(computed_rows(one.rows), 1e-30)
        per_element = self.deployed.weight_bytes.get(one.part, ACTIVATION_BYTES)
        out, inner = self._stored(one.part, one.out), self._stored(one.part, one.inner)
        kernel = self._kernel(
            self.gemm_law(one.part), inner * out, inner + out, per_element, one.rows
        )
        self.gemms.append(self._noted(one, self.always, self.always, kernel, 1.0, useful))

    def experts(self, one: Experts) -> None:
        super().experts(one)
        name, block = self._last.name, one.block
        experts, matrices = np.maximum(block["experts"], 1.0), np.maximum(block["matrices"], 2.0)
        rows = one.tokens * block["experts_per_token"] / experts
        groups = np.ceil(experts / self.deployed.expert_parallel)
        up = (matrices - 1.0) / matrices
        width, latent = self._stored("experts", one.width), self._stored("experts", one.latent)
        kernel = self._kernel(
            self.deployed.law("experts", "experts"),
            block["matrices"] * width * latent,
            width + latent,
            one.distinct * self.deployed.weight_bytes["experts"],
            2.0 * one.busiest,
        )
        for way, out, inner, share in (
            ("up", (matrices - 1.0) * one.width, one.latent, up),
            ("down", one.latent, one.width, 1.0 - up),
        ):
            label = f"{name} {way}-projection"
            product = Product(Role.EXPERTS, label, block.count, "experts", rows, out, inner)
            self._of_experts.append(self._noted(product, groups, one.distinct, kernel, share, 1.0))

    @property
    def _last(self) -> Entry:
        assert self.ledger.entries is not None
        return self.ledger.entries[-1]

    def _stored(self, part: str, size: Floats) -> Floats:
        return stored(size, self.deployed.alignment.code(part))

    def _kernel(
        self,
        law: Law,
        weight: Floats,
        sides: Floats,
        per_element: Floats | float,
        rows: Floats,
    ) -> _Kernel:
        """The kernel that ran last, of so many elements and columns, and rows that it moves."""
        last, fit, filled, light = self._last, self.fit, self.always, self.always
        compute_s, memory_s = last.compute_s, last.memory_s
        if fit is not None:
            if fit.reached is not None:
                compute_s, memory_s = compute_s * fit.reached, memory_s * fit.reached
            filled = np.where(fit.weight > 0.0, weight / np.maximum(fit.weight, 1.0), 1.0)
            read = fit.read * per_element + rows * fit.sides * ACTIVATION_BYTES
            plain = weight * per_element + rows * sides * ACTIVATION_BYTES
            light = np.where(read > 0.0, plain / np.maximum(read, 1e-30), 1.0)
        return _Kernel(law, last.seconds, compute_s, memory_s, last.fixed_s, filled, light)

    def _noted(
        self,
        one: Product,
        groups: Floats,
        run: Floats,
        kernel: _Kernel,
        share: Floats | float,
        useful: Floats | float,
    ) -> Gemm:
        """A product that takes a `share` of a kernel, of whose computed rows `useful` are no
        padding; `run` of its `groups` have any."""
        alignment = self.deployed.alignment
        fit, reached, filled = alignment.fit(one), self.always, self.always
        if fit is not None:
            reached = self.always if fit.reached is None else fit.reached
            held = self._stored(one.part, one.out) * self._stored(one.part, one.inner)
            filled = np.where(fit.weight > 0.0, held / np.maximum(fit.weight, 1.0), 1.0)
        busy, fixed = kernel.busy_s * share, kernel.fixed_s * share
        slowed = busy / reached
        peak_s = kernel.law.s_per_flop * kernel.law.floor_of_compute
        return Gemm(
            *one,
            groups,
            kernel.law.p,
            kernel.compute_s * useful * share,
            kernel.memory_s * share,
            fixed,
            kernel.seconds * share if self.fit is None else slowed + fixed,
            reached,
            slowed - busy,
            kernel.padding_s * share,
            filled,
            alignment.bytes(one),
            alignment.computed(one),
            one.times * run * 2.0 * one.out * one.inner * peak_s,
        )


def prefill(deployed: Deployed, tokens: Floats | float, prompt: Floats | float) -> NotedStep:
    """The step that prefills `tokens` of prompts that are `prompt` tokens long."""
    ones = np.ones(deployed.n)
    none = 0.0 * ones
    return NotedStep(deployed, Work(none, none, tokens * ones, prompt_tokens=prompt * ones))


def decode(deployed: Deployed, requests: Floats | float, context: Floats | float) -> NotedStep:
    """A decode step of `requests` on every attention rank, `context` tokens in each one's cache."""
    ones = np.ones(deployed.n)
    work = Work(requests * ones, context * ones, prefill_rows=0.0 * ones, prompt_tokens=ones)
    return NotedStep(deployed, work)
