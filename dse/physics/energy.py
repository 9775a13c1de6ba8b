"""Joules of a request, from the steps that serve it.

On every attention rank a prompt takes its chunks, and each of a request's decode steps serves all
requests of the rank, so that of the dynamic energy E of one chip in a step a request is charged

    prefill: TP x E x prompt tokens / prompt tokens in the step
    decode:  TP x E x (output tokens - 1) / tokens that a request gains / requests in the step

with all pipeline stages in E, since a step is the path through all of them. Idle power is drawn all
the time that chips are held, idle replicas and waits included. Prompts that ride beside decodes, or
beside each other, read the weights once: what a prompt's own step would read again is left out.
"""

from __future__ import annotations

import numpy as np

from dse.physics.phases import Case
from dse.physics.power import Levels, Power, Work
from dse.physics.step import Step
from dse.record import record
from dse.space.candidates import Floats, Rows


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
        return self.prefill.plus(self.decode)

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
