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

from dataclasses import dataclass

import numpy as np

from dse.candidates import Floats
from dse.perf.phases import Case
from dse.perf.power import Draw, Levels, levels
from dse.perf.step import Step


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of a request over all chips, (n,); NaN where the chip's power is not known.

    `prefill` and `decode` above idle, cut to what the chip may draw; `idle`. `prefill_w` and
    `decode_w`: watts of a chip in either step, `watts` in the mean while serving, the network's
    left out. `beyond`: by what share a step drew more than the chip's power before it was cut.
    """

    prefill: Levels
    decode: Levels
    idle: Floats
    prefill_w: Floats
    decode_w: Floats
    watts: Floats
    beyond: Floats

    @property
    def of_phases(self) -> Levels:
        return self.prefill.plus(self.decode)

    @property
    def joules(self) -> Floats:
        both = self.of_phases
        return both.of_chip + both.network + self.idle


def request_energy(
    case: Case, prefill: Step, decode: Step, decode_step_s: Floats, chip_s: Floats, *, alone: bool
) -> Energy:
    """Of requests that each hold `chip_s`, (n,), chip-seconds in all; `alone` where prompts have
    steps without decodes and share them by what the batch gives (static serving)."""
    deployed, ranks = case.deployed, case.deployed.tensor_parallel
    draw = Draw(deployed.machines.power, deployed.batch.chip)
    prompt = ranks * case.fresh / prefill.prefill_rows
    answer = ranks * np.maximum(case.output - 1.0, 0.0) / case.tokens_per_step / decode.decode_rows
    saved = 0.0 if alone else _read_once(case, prefill, decode)
    first_s = prefill.ledger.seconds * case.imbalance
    first, first_w, first_share = _phase(draw, prefill, first_s, saved)
    second, second_w, second_share = _phase(draw, decode, decode_step_s, 0.0)
    first, second = first.times(prompt), second.times(answer)
    left = (draw.cap_w - draw.idle_w) * chip_s
    own = first.of_chip + second.of_chip
    share = np.minimum(left / np.maximum(own, 1e-300), 1.0)
    first, second = _cut(first, share), _cut(second, share)
    return Energy(
        prefill=first,
        decode=second,
        idle=draw.idle_w * chip_s,
        prefill_w=first_w,
        decode_w=second_w,
        watts=draw.idle_w + own * share / chip_s,
        beyond=1.0 / np.minimum(first_share, second_share) - 1.0,
    )


@dataclass(frozen=True, slots=True)
class PoolEnergy:
    """Joules of a request in a pool that serves one phase alone, (n,), and the mean watts of one of
    its chips."""

    dynamic: Levels
    idle: Floats
    watts: Floats

    @property
    def joules(self) -> Floats:
        return self.dynamic.of_chip + self.dynamic.network + self.idle


def pool_energy(case: Case, step: Step, step_s: Floats, chip_s: Floats) -> PoolEnergy:
    """Of prefill workers, where `step` carries prompts, or of decode workers. Prompts that share a
    step are each charged with all its weights."""
    draw = Draw(case.deployed.machines.power, case.deployed.batch.chip)
    tokens = case.fresh / np.maximum(step.prefill_rows, 1e-300)
    steps = np.maximum(case.output - 1.0, 0.0) / case.tokens_per_step
    steps = steps / np.maximum(step.decode_rows, 1e-300)
    count = case.deployed.tensor_parallel * np.where(step.prefill_rows > 0.0, tokens, steps)
    of_step, _, _ = _phase(draw, step, step_s, 0.0)
    dynamic = of_step.times(count)
    left = (draw.cap_w - draw.idle_w) * chip_s
    own = dynamic.of_chip
    share = np.minimum(left / np.maximum(own, 1e-300), 1.0)
    return PoolEnergy(
        _cut(dynamic, share), draw.idle_w * chip_s, draw.idle_w + own * share / chip_s
    )


def _phase(
    draw: Draw, step: Step, seconds: Floats, saved: Floats | float
) -> tuple[Levels, Floats, Floats]:
    """Joules of a step, watts of a chip in it, and the share of its joules that the chip's power
    leaves."""
    own = levels(draw, step.ledger).of_chip
    share = np.minimum((draw.cap_w - draw.idle_w) * seconds / np.maximum(own, 1e-300), 1.0)
    whole = levels(draw, step.ledger, saved_bytes=saved, whole=True)
    return _cut(whole, share), draw.idle_w + own * share / seconds, share


def _cut(of: Levels, share: Floats) -> Levels:
    """The chip's own levels times `share`; what the network draws is no part of its power."""
    return Levels(
        of.arithmetic * share, of.on_chip * share, of.memory * share, of.links * share, of.network
    )


def _read_once(case: Case, prefill: Step, decode: Step) -> Floats:
    """(n,) bytes of weights that the ledger of a prompt's step has, and another step reads too."""
    ledger, backend = prefill.ledger, case.workload.backend
    weights = ledger.touched_bytes + ledger.elsewhere.touched_bytes
    if backend.scheduler == "mixed":
        ranks = 1.0 if prefill.idle_ranks is None else prefill.idle_ranks + 1.0
        return np.minimum(weights, decode.ledger.touched_bytes * ranks)
    together = np.clip(
        decode.decode_rows / case.steps, 1.0, np.maximum(backend.chunk_tokens / case.fresh, 1.0)
    )
    return weights * (1.0 - 1.0 / together)
