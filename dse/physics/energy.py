"""Joules of a request, from the steps that serve it.

On every attention rank a prompt takes its chunks, and each of a request's decode steps serves all
requests of the rank, so that of the dynamic energy E of one chip in a step a request is charged

    prefill: TP x E x prompt tokens / prompt tokens in the step
    decode:  TP x E x (output tokens - 1) / tokens that a request gains / requests in the step

with all pipeline stages in E, since a step is the path through all of them. Idle power is drawn all
the time that chips are held, idle replicas and waits included. Prompts that ride beside decodes, or
beside each other, read the weights once: what a prompt's own step would read again is left out.

Joules and watts of a step follow from what its ledger counts:

    joules of a chip = C x (seconds of arithmetic at the dense peak)     arithmetic, on the chip
                     + (m + s) x (bytes of device memory)                memory, on the chip
                     + l x (bytes over the links) + i x (seconds held)   links, idle

and n x (bytes over the network), which adapters, switches and optics draw outside the chip. m, s,
l, n are joules per byte and i is the idle power in watts (`hardware/energy.yaml`, the chip's file).

C, watts at the dense peak above idle, is what the rated power leaves: at the measured rate of large
matrix products, a share `a` of the peak, a chip draws its rated power P, since that is what slows
its clock there:

    C = (P - i - (m + s) x (bytes per second of such a product)) / a

It is the same in every format, since a narrower one does twice the operations at half the energy
each: H200 was measured at 661.7 W in 8-bit and 662.8 W in 16-bit arithmetic (serialalice.pt, June
2026). Of C, `arithmetic` is what the published energy of a 16-bit multiply-add explains, at most;
the rest moves operands between buffers, registers and multipliers.

Cap. A kernel law was measured on a chip that slows itself at its rated power. There, what this
model draws beyond the rated power is its own error and is cut off. Under a lower cap the clock
falls to a share f of its own: arithmetic takes 1 / f of the time, and f^2 of the energy, since
voltage falls with frequency (dynamic power ~ f V^2 ~ f^3; Chandrakasan et al. 1992, IEEE JSSC
27(4); assumed: V ~ f down to the lowest clock). With t of the T seconds of a step that wait for
arithmetic, E its joules, M the joules of all else, and W the watts that the cap leaves above idle,
f solves

    E f^3 + (M - W (T - t)) f - W t = 0        E f^2 + M = W (T - t + t / f)

which has one positive root. t is the slope of the step's time in the time of its arithmetic, so
that the slowed step takes at least as long as this line says, and fits the cap. What the lowest
clock does not save is waited out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.schema.chip import Chip
from dse.schema.constants import EnergyConstants
from dse.space.candidates import Codes, Floats, Rows

if TYPE_CHECKING:
    from dse.physics.ledger import Ledger
    from dse.physics.phases import Case
    from dse.physics.step import Step

Table = NDArray[np.float64]
# Side of the matrix product at which a chip is taken to draw its rated power: each of its three
# matrices crosses the memory once, 3 / side bytes a 16-bit operation.
PRODUCT_SIDE = 8192.0


def _none() -> Table:
    return np.zeros(0)


@record
class Power:
    """(chips,) each, or (n,) of candidates. `rated_w`: the power at which the kernel laws were
    measured; `cap_w`: what the chip may draw now; of C above, `arithmetic_w` is arithmetic and
    `operand_w` moves operands. NaN where unknown."""

    rated_w: Table = field(default_factory=_none)
    cap_w: Table = field(default_factory=_none)
    idle_w: Table = field(default_factory=_none)
    arithmetic_w: Table = field(default_factory=_none)
    operand_w: Table = field(default_factory=_none)
    memory_j_per_byte: Table = field(default_factory=_none)
    on_chip_j_per_byte: Table = field(default_factory=_none)
    link_j_per_byte: Table = field(default_factory=_none)
    network_j_per_byte: Table = field(default_factory=_none)
    lowest_clock: float = 0.0
    capped: bool = False

    def of(self, chip: Codes) -> Power:
        """Of the chip of each candidate."""
        tables = {name: value for name, value in vars(self).items() if name not in _OF_ALL}
        return replace(self, **{name: table.take(chip) for name, table in tables.items()})


_OF_ALL = ("lowest_clock", "capped")


def compile_power(
    rows: Sequence[Chip],
    constants: EnergyConstants,
    matmul_fraction: Table,
    power_cap_w: float | None = None,
) -> Power:
    """Of chips whose large 16-bit products reach `matmul_fraction`, (chips,), of the dense peak."""
    tdp = np.array([np.nan if row.tdp_w is None else row.tdp_w for row in rows])
    matmul = np.array(
        [tdp[k] if row.matmul_w is None else row.matmul_w for k, row in enumerate(rows)]
    )
    idle = np.array([constants.idle_w(row) for row in rows])
    peak = np.array([row.peak_flops_per_s["bf16"] for row in rows])
    figures = [constants.memory(row.memories[0].kind) for row in rows]
    memory = np.array([np.nan if figure is None else figure.value for figure in figures])
    # The buffer that bytes from a memory off the chip cross; one on the chip is that buffer.
    on_chip = np.where([row.memory_is_sram for row in rows], 0.0, constants.value("on_chip"))
    product_w = (memory + on_chip) * matmul_fraction * peak * 3.0 / PRODUCT_SIDE
    compute = np.maximum(matmul - idle - product_w, 0.0) / matmul_fraction
    arithmetic = np.minimum(constants.value("arithmetic") * peak, compute)
    rated = np.fmax(tdp, matmul)
    cap = tdp if power_cap_w is None else np.fmin(tdp, power_cap_w)
    return Power(
        rated_w=rated,
        cap_w=cap,
        idle_w=idle,
        arithmetic_w=arithmetic,
        operand_w=compute - arithmetic,
        memory_j_per_byte=memory,
        on_chip_j_per_byte=on_chip,
        link_j_per_byte=np.full(len(rows), constants.value("links")),
        network_j_per_byte=np.full(len(rows), constants.value("network")),
        lowest_clock=constants.value("lowest_clock"),
        capped=bool((cap < rated).any()),
    )


class Levels(NamedTuple):
    """Joules above idle, (n,) each: multiplying and adding; operands and data inside the chip; its
    device memory; its links; the network, drawn outside the chip."""

    arithmetic: Floats
    on_chip: Floats
    memory: Floats
    links: Floats
    network: Floats

    @property
    def of_chip(self) -> Floats:
        return self.arithmetic + self.on_chip + self.memory + self.links

    @property
    def movement(self) -> Floats:
        return self.on_chip + self.memory + self.links + self.network

    def cut(self, share: Floats) -> Levels:
        """The chip's own times `share`: what the network draws is no part of its power."""
        names = Levels._fields[:-1]
        return self._replace(**{name: getattr(self, name) * share for name in names})


@record
class Work:
    """What a chip does in a step, (n,): seconds of arithmetic at the dense peak, at a slower clock
    those of equal energy; bytes through its memory, over its links, over the network."""

    peak_s: Floats
    bytes: Floats
    link_bytes: Floats
    network_bytes: Floats

    @classmethod
    def of(cls, ledger: Ledger) -> Work:
        peak_s, clock = ledger.peak_s, ledger.clock
        if clock is not None:
            peak_s = peak_s * clock * clock
        return cls(peak_s, ledger.bytes, ledger.link_bytes, ledger.scale_out_bytes)

    def joules(self, draw: Power) -> Floats:
        """(n,) of the chip above idle."""
        moved = (
            draw.link_j_per_byte * self.link_bytes
            + (draw.memory_j_per_byte + draw.on_chip_j_per_byte) * self.bytes
        )
        return (draw.arithmetic_w + draw.operand_w) * self.peak_s + moved

    def levels(self, draw: Power, count: Floats, network_count: Floats) -> Levels:
        """Joules above idle of `count` such steps, (n,), in the network of `network_count`."""
        peak_s, bytes_ = self.peak_s * count, self.bytes * count
        return Levels(
            arithmetic=draw.arithmetic_w * peak_s,
            on_chip=draw.operand_w * peak_s + draw.on_chip_j_per_byte * bytes_,
            memory=draw.memory_j_per_byte * bytes_,
            links=draw.link_j_per_byte * (self.link_bytes * count),
            network=draw.network_j_per_byte * (self.network_bytes * network_count),
        )


def clock(draw: Power, ledger: Ledger) -> Floats:
    """(n,) share of the clock that the cap leaves, from a ledger at the full clock; 1 where the
    step fits, or where its power is not known."""
    work = Work.of(ledger)
    seconds, waiting = ledger.seconds, ledger.compute_slope_s
    whole = work.joules(draw)
    # What the model draws beyond the rated power is not there to be saved.
    real = np.minimum((draw.rated_w - draw.idle_w) * seconds / np.maximum(whole, 1e-300), 1.0)
    arithmetic = np.maximum((draw.arithmetic_w + draw.operand_w) * work.peak_s * real, 1e-300)
    other = whole * real - arithmetic
    left_w = draw.cap_w - draw.idle_w
    slope = (other - left_w * (seconds - waiting)) / arithmetic
    found = np.clip(positive_root(slope, left_w * waiting / arithmetic), draw.lowest_clock, 1.0)
    return np.where(whole * real > left_w * seconds, found, 1.0)


def waited_s(draw: Power, ledger: Ledger) -> Floats:
    """(n,) seconds of a step at the clock that its cap leaves, and of waiting for what the cap
    leaves beyond the lowest clock."""
    allowed_j = (draw.rated_w - draw.idle_w) * ledger.seconds
    joules = np.minimum(Work.of(ledger).joules(draw), allowed_j)
    needed = joules / (draw.cap_w - draw.idle_w)
    return np.where(needed > ledger.seconds, needed, ledger.seconds)


def positive_root(p: Floats, q: Floats) -> Floats:
    """(n,) the positive root of x^3 + p x = q for q >= 0: Cardano's where there is one real root,
    Viete's where there are three; 0 where q is 0 and p is not negative."""
    half, third = q / 2.0, p / 3.0
    discriminant = half * half + third * third * third
    root = np.sqrt(np.maximum(discriminant, 0.0))
    big = np.cbrt(half + root)
    # The other cube root as a quotient: its difference would cancel for large p.
    one = big - third / np.where(big > 0.0, big, 1.0)
    length = np.sqrt(np.maximum(-third, 0.0))
    cosine = half / np.maximum(length * length * length, 1e-300)
    three = 2.0 * length * np.cos(np.arccos(np.clip(cosine, -1.0, 1.0)) / 3.0)
    return np.maximum(np.where(discriminant >= 0.0, one, three), 0.0)


@record
class Phase:
    """One chip in a step, (n,): joules above idle as counted, the share of them that its power
    leaves, and seconds."""

    joules: Floats
    share: Floats
    seconds: Floats

    @property
    def watts(self) -> Floats:
        """Above idle."""
        return self.joules * self.share / self.seconds


@record
class Energy:
    """Joules of a request over all chips, (n,); NaN where the chip's power is not known.

    `prefill` and `decode` above idle, cut to what the chip may draw; `idle`. `watts` of a chip in
    the mean while serving, the network's left out.
    """

    prefill: Levels
    decode: Levels
    idle: Floats
    idle_w: Floats
    watts: Floats
    prefill_step: Phase
    decode_step: Phase

    @property
    def of_phases(self) -> Levels:
        return Levels(*map(np.add, self.prefill, self.decode))

    @property
    def joules(self) -> Floats:
        both = self.of_phases
        return both.of_chip + both.network + self.idle

    @property
    def prefill_w(self) -> Floats:
        """(n,) watts of a chip in a step of prompts."""
        return self.idle_w + self.prefill_step.watts

    @property
    def decode_w(self) -> Floats:
        """(n,) watts of a chip in a decode step."""
        return self.idle_w + self.decode_step.watts

    @property
    def beyond(self) -> Floats:
        """(n,) by what share a step drew more than the chip's power before it was cut."""
        return 1.0 / np.minimum(self.prefill_step.share, self.decode_step.share) - 1.0


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def request_energy(
    case: Case, prefill: Step, decode: Step, decode_step_s: Floats, chip_s: Floats, *, alone: bool
) -> Energy:
    """Of requests that each hold `chip_s`, (n,), chip-seconds in all; `alone` where prompts have
    steps without decodes and share them by what the batch gives (static serving)."""
    ranks = case.deployed.tensor_parallel
    draw = case.deployed.machines.power.of(case.deployed.batch.chip)
    prompt = ranks * case.fresh / prefill.prompt_rows
    answer = ranks * np.maximum(case.output - 1.0, 0.0) / case.tokens_per_step / decode.requests
    saved = 0.0 if alone else _read_once(case, prefill, decode)
    prefill_step_s = prefill.ledger.seconds * case.imbalance
    first, prefill_phase = _phase(draw, prefill, prefill_step_s, prompt, saved)
    second, decode_phase = _phase(draw, decode, decode_step_s, answer)
    left = (draw.cap_w - draw.idle_w) * chip_s
    own = first.of_chip + second.of_chip
    share = np.minimum(left / np.maximum(own, 1e-300), 1.0)
    if (share < 1.0).any():
        first, second = first.cut(share), second.cut(share)
    return Energy(
        prefill=first,
        decode=second,
        idle=draw.idle_w * chip_s,
        idle_w=draw.idle_w,
        watts=draw.idle_w + own * share / chip_s,
        prefill_step=prefill_phase,
        decode_step=decode_phase,
    )


@record
class PhaseEnergy(Rows):
    """A request in a pool that serves one phase alone, (n,): joules above idle of its chips, as
    counted, `moved_j` of which move data; those of the network; watts of a chip, idle and above."""

    own_j: Floats
    moved_j: Floats
    network_j: Floats
    idle_w: Floats
    above_w: Floats

    def held(self, chip_s: Floats) -> tuple[Floats, Floats]:
        """(n,) joules of chips that are held `chip_s` chip-seconds a request, waits included, and
        those of them that move data; what the chips may draw cuts both."""
        share = np.minimum(self.above_w * chip_s / np.maximum(self.own_j, 1e-300), 1.0)
        joules = self.own_j * share + self.network_j + self.idle_w * chip_s
        return joules, self.moved_j * share + self.network_j


def phase_energy(case: Case, step: Step, step_s: Floats) -> PhaseEnergy:
    """Of prefill workers, where `step` carries prompts, or of decode workers. Prompts that share a
    step are each charged with all its weights."""
    draw = case.deployed.machines.power.of(case.deployed.batch.chip)
    tokens = case.fresh / np.maximum(step.prompt_rows, 1e-300)
    steps = np.maximum(case.output - 1.0, 0.0) / case.tokens_per_step
    steps = steps / np.maximum(step.requests, 1e-300)
    count = case.deployed.tensor_parallel * np.where(step.prompt_rows > 0.0, tokens, steps)
    dynamic, _ = _phase(draw, step, step_s, count)
    return PhaseEnergy(
        own_j=dynamic.of_chip,
        moved_j=dynamic.on_chip + dynamic.memory + dynamic.links,
        network_j=dynamic.network,
        idle_w=draw.idle_w,
        above_w=draw.cap_w - draw.idle_w,
    )


def _phase(
    draw: Power, step: Step, seconds: Floats, count: Floats, saved: Floats | float = 0.0
) -> tuple[Levels, Phase]:
    """Joules of `count` such steps, work for them on chips of other ranks included and of the bytes
    of memory `saved` left out; and one chip in one of them."""
    work = Work.of(step.ledger)
    own = work.joules(draw)
    share = np.minimum((draw.cap_w - draw.idle_w) * seconds / np.maximum(own, 1e-300), 1.0)
    elsewhere = step.ledger.elsewhere
    whole = Work(
        work.peak_s + elsewhere.peak_s,
        work.bytes + elsewhere.bytes - saved,
        work.link_bytes,
        work.network_bytes,
    )
    return whole.levels(draw, count * share, count), Phase(own, share, seconds)


def _read_once(case: Case, prefill: Step, decode: Step) -> Floats:
    """(n,) bytes of weights that the ledger of a prompt's step has, and another step reads too."""
    ledger, backend = prefill.ledger, case.workload.backend
    weights = ledger.touched_bytes + ledger.elsewhere.touched_bytes
    if backend.scheduler == "mixed":
        ranks = 1.0 if prefill.idle_ranks is None else prefill.idle_ranks + 1.0
        return np.minimum(weights, decode.ledger.touched_bytes * ranks)
    together = np.clip(
        decode.requests / case.steps, 1.0, np.maximum(backend.chunk_tokens / case.fresh, 1.0)
    )
    return weights * (1.0 - 1.0 / together)
