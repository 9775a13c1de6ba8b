"""The ledger of one step: operators in a fixed order, their seconds added one by one.

The law of every device operator (a p-norm of compute and memory time plus a fixed cost):

    seconds = ((flops * s_per_flop)^p + (bytes * s_per_byte)^p)^(1/p) + fixed_s

p = 1 adds the two times, a large p takes the larger. The floor of the step keeps what cannot be
avoided and drops every loss: the larger of all flops at the dense peak and of the weights and cache
that must be touched at the full bandwidth; activations could stay on the chip.

The network may hide behind arithmetic: a step as two micro-batches that take turns. While one
micro-batch exchanges tokens with its experts, the other computes. Each has half of the tokens,
reads the weights of its own and pays for its own kernels and messages. In a layer attention (with
shared experts) A, dispatch D, experts E and combine C follow each other, so that the turns of two
are A beside C of the other, A beside D, E beside D and E beside C, and a layer of both takes

    max(A, C) + max(A, D) + max(E, D) + max(E, C)

where one alone takes A + D + E + C (DeepSeek-V3 report, section 3.4). Kernels that send and receive
may take a share t of the multiprocessors: what computes beside N seconds of them is later by t N,
so that of a turn with device time A, min(A, (1 - t) N) is hidden.

Serving software does so (two-batch or dual-batch overlap) where attention ranks send tokens to
whole experts outside their scale-up domain, and from a number of tokens on
(`dse.schema.backend.Overlap`). A share X given by the user takes its place: of network time N and
other device time D, X min(N, D) is hidden without what the halves cost. A step of one request has
nothing to take turns with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.blocks.operators import Role
from dse.physics.collectives import Cost, Sent
from dse.physics.deployed import Deployed, Law
from dse.physics.tiers import TierTraffic
from dse.record import record
from dse.space.candidates import Floats

MICRO_BATCHES = 2.0


class Hidden(NamedTuple):
    """`share` of what could be that is hidden, (n,): of the shorter of network and device time, or,
    with the micro-batches of a step, (n,), of `taking_turns`; 0.0 and None where no candidate hides
    any, or is split. `taken`, (n,), is the share of a chip's arithmetic that messages take."""

    share: Floats | float
    batches: Floats | None
    taken: Floats | float = 0.0


NONE = Hidden(0.0, None)
TURNS = (Role.EXPERTS, Role.DISPATCH, Role.COMBINE)


def taking_turns(
    device: Floats, experts: Floats, dispatch: Floats, combine: Floats, taken: Floats | float
) -> Floats:
    """(n,) seconds hidden, of those of both micro-batches: `device` with that of the experts."""
    hidden = np.zeros(len(device))
    for own in (device - experts, experts):
        for sent in (dispatch, combine):
            hidden = hidden + np.minimum(own, (1.0 - taken) * sent)
    return hidden / MICRO_BATCHES


def sent_outside(deployed: Deployed) -> NDArray[np.bool_]:
    """(n,) whether attention ranks send tokens to whole experts outside their scale-up domain."""
    routed = (deployed.data_parallel > 1.0) & (deployed.expert_parallel >= deployed.group)
    return routed & (deployed.group > deployed.domain) & deployed.batch.sparse


PARTS = ("compute_s", "memory_s", "network_s", "fixed_s", "flops", "bytes", "peak_s")


@record
class Entry:
    """One operator over all its layers; arrays (n,), seconds. `flops` and `bytes` are what its law
    counts, `peak_s` these flops at the dense peak of their dtype; all 0 for a collective. `name` is
    printed and nothing more."""

    role: Role
    name: str
    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    network_s: Floats
    fixed_s: Floats
    flops: Floats
    bytes: Floats
    peak_s: Floats


@record
class Elsewhere:
    """Work of a step on the chips of other ranks, for each chip of this one: (n,)."""

    peak_s: Floats
    bytes: Floats
    touched_bytes: Floats


def busy_s(law: Law, compute_s: Floats, memory_s: Floats) -> Floats:
    """(n,) seconds of a kernel but for its fixed cost: the p-norm of its two times."""
    if law.is_sum:
        return compute_s + memory_s
    larger = np.maximum(compute_s, memory_s)
    busy = np.minimum(compute_s, memory_s)
    busy /= np.maximum(larger, 1e-30)
    np.power(busy, law.p, out=busy)
    busy += 1.0
    np.power(busy, law.inverse_p, out=busy)
    busy *= larger
    if law.sums is not None:
        np.add(compute_s, memory_s, out=busy, where=law.sums)
    return busy


class Ledger:
    """Sums a step. `keep` retains every entry for `dse estimate --detail`; without `parts` only the
    seconds are summed. Sums are made in place: this is where a search spends its time.

    For its energy (`dse.physics.energy`): `peak_s`, seconds of its arithmetic at the dense peak,
    with padding; `bytes` through the device memory; `link_bytes` and `scale_out_bytes` that a chip
    sends inside and outside its domain; `elsewhere`. Where a power cap may slow the clock: `clock`
    (n,), None for the full one, and `compute_slope_s`, how many seconds of the step are for its
    arithmetic, to first order. What is added is one micro-batch of those of `overlap`; the floor
    reads weights once for all.
    """

    def __init__(
        self,
        deployed: Deployed,
        *,
        keep: bool = False,
        parts: bool = True,
        overlap: Hidden = NONE,
    ) -> None:
        self.deployed = deployed
        self.parts = parts
        self.hidden = overlap
        self.hidden_share, self.batches, self.taken = overlap
        self.hides = not isinstance(self.hidden_share, float)
        self.seconds, self._launches = np.zeros(deployed.n), np.zeros(deployed.n)
        self._added: list[tuple[Floats, Ledger, Callable[[Floats], Floats]]] = []
        n = deployed.n if parts or self.hides else 1
        self.compute_s = np.zeros(n)
        self.memory_s = np.zeros(n)
        self.network_s = np.zeros(n)
        self.fixed_s = np.zeros(n)
        self.floor_compute_s = np.zeros(n)
        self.touched_bytes = np.zeros(n)
        self.peak_s = np.zeros(n)
        self.bytes = np.zeros(n)
        self._elsewhere: list[tuple[Floats, ...]] = []  # summed when asked for
        self.clock = deployed.clock
        self.compute_slope_s = np.zeros(n if deployed.power_capped else 1)
        self.power_s: Floats | None = None  # by which a power cap lengthens the step
        self.drafts_s: Floats | float = 0.0
        self._sent: list[tuple[Floats, Sent]] = []  # summed when asked for
        # Of experts, dispatch and combine, where micro-batches take turns.
        turns = () if self.batches is None else TURNS
        self._turns = {role: np.zeros(deployed.n) for role in turns}
        self.tier = None if deployed.offload is None else TierTraffic(deployed.offload)
        self.tier_s: Floats | float = 0.0
        self.entries: list[Entry] | None = [] if keep else None

    def operator(
        self,
        role: Role,
        name: str,
        count: Floats,
        law: Law,
        flops: Floats,
        bytes_: Floats,
        touched: Floats | float,
        present: Floats | NDArray[np.bool_] | None = None,
        useful: Floats | None = None,
        held: str = "weights",
        elsewhere: Floats | None = None,
        mean: Floats | None = None,
        reached: Floats | None = None,
    ) -> None:
        """`count` layers of one operator: flops and bytes (n,) per layer and chip, `touched` of
        them weights or cache; `present` is 0 where the step does not run it, so that its fixed
        cost goes too; `useful` is the share of the flops that is not padding or imbalance; `held`
        says what is touched: weights, experts or cache; `elsewhere`: on how many other chips for
        each one of this rank the same work runs; `mean`: what the mean chip does of the flops,
        which are those of the busiest; `reached`: the share of its speed that a kernel of
        misaligned sizes reaches, fixed cost apart (None: all of it)."""
        once = count if present is None else count * present
        times = self._all(once)
        self._launches += times
        compute, memory = flops * law.s_per_flop, bytes_ * law.s_per_byte
        busy = busy_s(law, compute, memory)
        if reached is not None:
            busy /= reached
        if self.deployed.power_capped and self.parts:
            arithmetic = compute if reached is None else compute / reached
            slope = busy / (1.0 + (memory / np.maximum(compute, 1e-300)) ** law.p)
            self.compute_slope_s += np.where(law.p == 1.0, arithmetic, slope) * times
        busy += law.fixed_s
        busy *= times
        self.seconds += busy
        if role in self._turns:
            self._turns[role] += busy
        if self.tier is not None:
            self.tier.add(held, times * touched)
        if held == "cache":  # each micro-batch has its own, where weights are the same
            once = times
        if not self.parts:
            return
        compute *= times
        moved = bytes_ * times
        np.multiply(moved, law.s_per_byte, out=memory)
        fixed = law.fixed_s * times
        peak = compute * law.floor_of_compute
        worked = peak if mean is None else peak * mean
        self.peak_s += worked
        self.bytes += moved
        if elsewhere is not None:
            self._elsewhere.append((elsewhere, worked, moved, once * touched))
        self.floor_compute_s += peak if useful is None else peak * useful
        self.touched_bytes += once * touched
        if reached is not None:
            compute /= reached
            memory /= reached
        self.compute_s += compute
        self.memory_s += memory
        self.fixed_s += fixed
        if self.entries is not None:
            self._keep(
                role,
                name,
                busy,
                compute_s=compute,
                memory_s=memory,
                fixed_s=fixed,
                flops=flops * times,
                bytes=moved,
                peak_s=peak,
            )

    def stream(self, role: Role, name: str, count: Floats, law: Law, bytes_: Floats) -> None:
        """`count` element-wise kernels that each move `bytes_` (n,) through memory."""
        count = self._all(count)
        self._launches += count
        memory = bytes_ * law.s_per_byte
        memory *= count
        fixed = self.deployed.stream_fixed_s * count
        seconds = np.add(memory, fixed, out=None if self.parts else fixed)
        self.seconds += seconds
        if not self.parts:
            return
        moved = bytes_ * count
        self.bytes += moved
        self.memory_s += memory
        self.fixed_s += fixed
        if self.entries is not None:
            self._keep(role, name, seconds, memory_s=memory, fixed_s=fixed, bytes=moved)

    def add(
        self, count: Floats, one: Ledger, gathered: Callable[[Floats], Floats] = lambda each: each
    ) -> None:
        """`count` times the seconds of another ledger, (k,), as `gathered` for each of n."""
        self._added.append((count, one, gathered))
        self.seconds += count * gathered(one.seconds)
        if self.hides:
            self.network_s += count * gathered(one.network_s)
        for role, total in self._turns.items():
            total += count * gathered(one._turns[role])
        if self.tier is not None and one.tier is not None:
            self.tier.ahead += count * gathered(one.tier.ahead)
            self.tier.on_demand += count * gathered(one.tier.on_demand)

    @property
    def launches(self) -> Floats:
        """(n,) kernels and messages, all layers of them."""
        total = self._launches
        for count, one, gathered in self._added:
            total = total + count * gathered(one.launches)
        return total

    def drafts(self, seconds: Floats) -> None:
        """Time of drafting, which reads weights and cache as a decode step does, at the power of
        the step that it precedes."""
        longer = 1.0 + seconds / self.seconds
        self.peak_s = self.peak_s * longer
        self.bytes = self.bytes * longer
        self.drafts_s = seconds
        self.seconds = self.seconds + seconds
        self.memory_s = self.memory_s + seconds
        self._keep(Role.DRAFT, "drafts", seconds, memory_s=seconds)

    def network(self, role: Role, name: str, count: Floats, cost: Cost) -> None:
        """`count` collectives of one cost."""
        count = self._all(count)
        self._launches += count
        seconds = cost.latency_s + cost.transfer_s
        seconds *= count
        self.seconds += seconds
        if role in self._turns:
            self._turns[role] += seconds
        if self.parts or self.hides:
            self.network_s += seconds
        if self.parts:
            self._sent.append((count, cost.sent))
            self._keep(role, name, seconds, network_s=seconds)

    def _all(self, count: Floats) -> Floats:
        """(n,) `count` of one micro-batch over all of a step."""
        return count if self.batches is None else count * self.batches

    def overlap(self) -> None:
        """Hides network time behind device time (`dse.physics.ledger`); called once, after the
        last operator. What is hidden leaves the network's part."""
        if not self.hides:
            return
        rest = np.maximum(self.seconds - self.network_s, 0.0)
        if self._turns:
            experts, dispatch, combine = (self._turns[role] for role in TURNS)
            turns = taking_turns(rest, experts, dispatch, combine, self.taken)
            hidden = self.hidden_share * turns
        else:
            hidden = self.hidden_share * np.minimum(self.network_s, rest)
        self.seconds = self.seconds - hidden
        self.network_s = self.network_s - hidden
        self._keep(Role.WAIT, "network behind compute", -hidden, network_s=-hidden)

    def wait_for_tier(self) -> None:
        """Adds what the step waits for weights and cache in a memory tier, once all else is in."""
        if self.tier is None:
            return
        waits = self.tier.wait_s(self.seconds)
        self.seconds = self.seconds + waits
        if self.parts:
            self.tier_s = waits
            self.memory_s = self.memory_s + waits
            self._keep(
                Role.WAIT,
                "wait for the memory tier",
                waits,
                memory_s=waits,
                bytes=self.tier.bytes,
            )

    def _keep(self, role: Role, name: str, seconds: Floats, **parts: Floats) -> None:
        if self.entries is not None:
            zeros = np.zeros(self.deployed.n)
            self.entries.append(Entry(role, name, seconds, *(parts.get(k, zeros) for k in PARTS)))

    @property
    def elsewhere(self) -> Elsewhere:
        """What the chips of other ranks do for this one's, drafts left out."""
        total = [np.zeros(self.deployed.n) for _ in range(3)]
        for chips, *work in self._elsewhere:
            for sum_, one in zip(total, work, strict=True):
                sum_ += chips * one
        return Elsewhere(*total)

    @property
    def link_bytes(self) -> Floats:
        """(n,) bytes that a chip sends inside its scale-up domain; 0 without `parts`. Those that it
        forwards for others, and those of drafts, are not counted."""
        total = np.zeros(self.deployed.n)
        for count, sent in self._sent:
            total = total + count * sent.inside_bytes()
        return total

    @property
    def scale_out_bytes(self) -> Floats:
        """(n,) bytes that a chip sends over all networks between domains; 0 without `parts`."""
        total = np.zeros(self.deployed.n)
        for count, sent in self._sent:
            total = total + count * sent.outside_bytes()
        return total

    @property
    def floor_memory_s(self) -> Floats:
        """(n,) seconds to read the weights and cache of this step once at the full bandwidth, but
        for those in a memory tier."""
        if self.tier is None:
            return self.touched_bytes * self.deployed.floor_s_per_byte
        here = np.maximum(self.touched_bytes - self.tier.bytes, 0.0)
        return here * self.deployed.floor_s_per_byte

    @property
    def floor_s(self) -> Floats:
        """(n,) seconds below which no software can bring this step on these chips."""
        floor = np.maximum(self.floor_compute_s, self.floor_memory_s)
        return floor if self.tier is None else np.maximum(floor, self.tier.floor_s)
