"""The two phases of serving on one instance: seconds of a prefill and of a decode step, and what a
prompt adds to the steps that carry it.

Speculative decoding: tokens drafted cheaply, verified in one step of the model.

With k drafted tokens, each accepted with probability a if all before it were, a step yields

    (1 - a^(k + 1)) / (1 - a)        k + 1 at a = 1

tokens (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", eq. 1).
The step verifies k + 1 tokens of every request: as many rows in every projection and expert, one
read of the cache. A draft costs k times a pass of a multi-token-prediction module (MTP, DeepSeek-AI
2024: one layer of the model, a projection of two hidden states to one, the model's own embedding
and output head).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS, MIXERS
from dse.blocks.operators import ACTIVATION_BYTES, Product, Role
from dse.physics.deployed import Deployed, launched_early
from dse.physics.energy import clock, waited_s
from dse.physics.ledger import MICRO_BATCHES, NONE, Hidden, sent_outside
from dse.physics.machines import Machines
from dse.physics.memory import Memory, memory
from dse.physics.queueing import Rank, together_share
from dse.physics.step import Seconds, Step, Work
from dse.physics.workload import Speculation, Workload
from dse.record import record
from dse.space.alike import Alike
from dse.space.candidates import Block, CandidateBatch, Floats

MOST_DRAFTED = 64


def tokens_per_step(drafted: int, acceptance: float) -> float:
    """Expected tokens that a request gains in a step with so many drafted."""
    if acceptance == 1.0:
        return drafted + 1.0
    return (1.0 - acceptance ** (drafted + 1.0)) / (1.0 - acceptance)


class Drafts(NamedTuple):
    """Tokens drafted a step, and tokens that a request gains in one, (n,)."""

    tokens: Floats
    gained: Floats

    @property
    def verified(self) -> Floats:
        """(n,) tokens of a request in one step."""
        return self.tokens + 1.0

    @property
    def on(self) -> NDArray[np.bool_]:
        return self.tokens > 0.0


def drafts_of(batch: CandidateBatch, speculation: Speculation | None) -> Drafts | None:
    """What each candidate drafts; None where none does. A model with 0 modules drafts nothing where
    one would be needed."""
    asked = speculation or Speculation()
    if asked.draft_tokens is not None:
        tokens = np.full(len(batch), float(asked.draft_tokens))
    elif batch.draft_tokens is not None:
        tokens = batch.draft_tokens
    else:
        return None
    modules = batch.prediction_layers
    if modules is not None:
        tokens = np.where(modules > 0.0, tokens, 0.0)
    if asked.acceptance is None:
        assert batch.draft_gain is not None
        gained = np.where(tokens > 0.0, batch.draft_gain, 1.0)
    else:
        table = [tokens_per_step(k, asked.acceptance) for k in range(MOST_DRAFTED + 1)]
        gained = np.array(table).take(tokens.astype(np.intp))
    return Drafts(tokens, gained)


def module(batch: CandidateBatch) -> CandidateBatch:
    """The models cut to one layer, the mean of their own: one that mixes tokens and one
    feed-forward, the kinds in proportion."""
    mixers = batch.layers
    others = batch.total(lambda block: block.count * (block.kind not in MIXERS))

    def share(block: Block) -> Floats:
        return block.count / np.maximum(mixers if block.kind in MIXERS else others, 1.0)

    return replace(
        batch,
        blocks=tuple(replace(block, count=share(block)) for block in batch.blocks),
        pipeline_parallel=np.ones(len(batch)),
        offload_tier=None,  # a module stays on the device
    )


def module_bytes(deployed: Deployed) -> Floats:
    """(n,) bytes of one MTP module on a chip: a layer and the projection."""
    one = Deployed(module(deployed.batch), deployed.machines)
    total = 2.0 * one.batch.hidden_size**2 / one.tensor_parallel * ACTIVATION_BYTES
    for block in one.batch.blocks:
        for part, elements in KINDS[block.kind].weight_elements(one, block).items():
            per_element = one.weight_bytes.get(part, ACTIVATION_BYTES)
            total = total + block.count * elements * per_element
    return total


def module_cache_bytes(deployed: Deployed, tokens: Floats) -> Floats:
    """(n,) bytes of the cache of one MTP module on a chip, of a request of `tokens`."""
    one = Deployed(module(deployed.batch), deployed.machines)
    return one.batch.total(
        lambda block: block.count * KINDS[block.kind].kv_bytes_per_request(one, block, tokens)
    )


def draft_s(drafts: Drafts, deployed: Deployed, rows: Floats, context: Floats) -> Floats:
    """(n,) device seconds of all drafts of a step for `rows` requests on each rank."""
    one = Deployed(module(deployed.batch), deployed.machines, deployed.launched)
    zeros = np.zeros(one.n)
    step = Step(one, Work(rows, context, prefill_rows=zeros, prompt_tokens=np.ones(one.n)))
    hidden = one.batch.hidden_size
    columns = hidden / one.tensor_parallel
    width, one = 2.0 * hidden, step.always
    step.gemm(Product(Role.PROJECTION, "projection", one, "attention", rows, columns, width))
    return drafts.tokens * step.seconds


@record
class Case:
    """A batch of candidates under one workload. `prompt` and `output` are the tokens of a request,
    (n,), or (1,) of all.
    `few` are the distinct deployments, of which each candidate has the one at `alike.kinds`."""

    deployed: Deployed
    workload: Workload
    prompt: Floats
    output: Floats
    memory: Memory
    drafts: Drafts | None
    keep: bool
    few: Case | None = None
    alike: Alike | None = None

    def once(self, of: Callable[[Case], Floats]) -> Floats:
        """(n,) what does not depend on the load, worked out once for each deployment."""
        if self.few is None or self.alike is None:
            return of(self)
        return self.alike.gathered(of(self.few))

    @cached_property
    def fresh(self) -> Floats:
        """(n,) tokens of a prompt that are not cached already."""
        return np.maximum(self.prompt * (1.0 - self.workload.prefix_hit_rate), 1.0)

    @cached_property
    def seen(self) -> Floats:
        """(n,) length of a prompt whose tokens see, in the mean, as many others as these do."""
        return self.prompt * (1.0 + self.workload.prefix_hit_rate)

    @cached_property
    def host_first_s(self) -> Floats:
        """(n,) or (1,) seconds of the host before a first token: of a request, and of each token of
        its prompt, cached ones too."""
        backend = self.workload.backend
        return backend.first_token_s + backend.prompt_token_s * self.prompt

    @cached_property
    def context(self) -> Floats:
        return self.prompt + self.output / 2.0

    @cached_property
    def context_spread(self) -> Floats | None:
        """(n,) coefficient of variation of the context among decoding requests, which are anywhere
        in their output; None where no candidate has ranks that wait for each other."""
        if not (self.deployed.data_parallel > 1.0).any():
            return None
        return self.output / np.sqrt(12.0) / self.context

    @cached_property
    def tokens_per_step(self) -> Floats | float:
        """(n,) or 1: tokens that a request gains in a decode step."""
        return 1.0 if self.drafts is None else self.drafts.gained

    @property
    def cap(self) -> Floats | float:
        """(n,) or one number: most requests of an attention rank."""
        own = self.deployed.batch.max_running_requests
        return self.workload.cap if own is None else np.where(np.isnan(own), self.workload.cap, own)

    @cached_property
    def steps(self) -> Floats:
        """(n,) decode steps of a request."""
        return np.maximum(self.output / self.tokens_per_step, 1.0)

    @cached_property
    def imbalance(self) -> Floats:
        """(n,) layers of the fullest pipeline stage over the mean."""
        return layer_imbalance(self.deployed.batch)

    def overlap(
        self, requests: Floats, tokens: Floats, *, prefill: NDArray[np.bool_] | bool
    ) -> Hidden:
        """What the workload gives, or is usual for the backend, of a step with so many `requests`
        and `tokens`, (n,), on an attention rank; `prefill` where some are of prompts, which are
        divided anywhere."""
        given, usual = self.workload.network_overlap, self.workload.backend.overlap
        two = np.where(prefill, tokens, requests) >= MICRO_BATCHES
        if given is not None:
            return Hidden(np.where(two, given, 0.0), None) if given else NONE
        if usual is None:
            return NONE
        least = np.where(prefill, usual.prefill_tokens, usual.decode_tokens)
        split = two & (tokens >= least) & sent_outside(self.deployed)
        if not split.any():
            return NONE
        taken = np.where(prefill, usual.prefill_taken, usual.decode_taken)
        return Hidden(split.astype(np.float64), np.where(split, MICRO_BATCHES, 1.0), taken)

    def step_s(
        self,
        device_s: Floats,
        requests: Floats | float = 0.0,
        launches: Floats | float = 0.0,
    ) -> Floats:
        """A step is the larger of device and host time, plus the gap between two steps and the
        host's work on each decoding request; if overlapped, that runs beside the device. That of a
        stock launch is slower by what its backend says. A step with prompts is replayed from no
        CUDA graph: the host launches its operators one by one, `launches` of them, with the hand
        that works on requests."""
        backend = self.workload.backend
        device_s = device_s * self.workload.slower
        host, each = backend.host_s_per_step, backend.host_s_per_request * requests
        beside = np.where(backend.overlapped, each, 0.0)
        after = backend.gap_s_per_step + (each - beside)
        return np.maximum(device_s, host + beside + backend.launch_s * launches) + after


def layer_imbalance(batch: CandidateBatch) -> Floats:
    """(n,) layers of the fullest pipeline stage over the mean."""
    layers, stages = batch.layers, batch.pipeline_parallel
    return np.ceil(layers / stages) * stages / layers


def case_of(
    batch: CandidateBatch,
    workload: Workload,
    machines: Machines,
    *,
    keep: bool = False,
    alike: Alike | None = None,
) -> Case:
    """Gathers and sizes `batch` on its machines, those that are `alike` once; MTP modules take
    their share of the memory where they draft."""
    launched = launched_early(batch, machines, workload.backend)
    prompt, output = np.atleast_1d(workload.prompt_tokens), np.atleast_1d(workload.output_tokens)
    drafts = drafts_of(batch, workload.speculation)
    if alike is not None:
        few = case_of(alike.few, workload, machines)
        deployed = Deployed(batch, machines, launched, few.deployed, alike.kinds)
        sized = few.memory.take(alike.kinds)
        return Case(deployed, workload, prompt, output, sized, drafts, keep, few, alike)
    deployed = Deployed(batch, machines, launched)
    sized = memory(deployed, prompt, output, workload.backend)
    if drafts is not None:
        modules, on = batch.prediction_layers, drafts.on
        each = on if modules is None else on * modules
        cache = module_cache_bytes(deployed, prompt + output)
        sized = sized.with_module(each * module_bytes(deployed), on * cache, batch.data_parallel)
    return Case(deployed, workload, prompt, output, sized, drafts, keep)


def run_step(case: Case, work: Work, *, parts: bool) -> Step:
    """A step at the clock that the power cap leaves its chips (`dse.physics.energy`)."""
    deployed, keep = case.deployed, case.keep and parts
    if not (parts or deployed.power_capped):
        return Seconds(deployed, work)
    full = Step(deployed, work, keep=keep)
    if not deployed.power_capped:
        return full
    draw = deployed.machines.power.of(deployed.batch.chip)
    slowed = Step(deployed.at_clock(clock(draw, full.ledger)), work, keep=keep)
    ledger, waited = slowed.ledger, waited_s(draw, slowed.ledger)
    assert ledger.clock is not None
    ledger.power_s = ledger.compute_s * (1.0 - ledger.clock) + (waited - ledger.seconds)
    ledger.seconds = waited
    return slowed


def prefill_step(
    case: Case, tokens: Floats, ranks: Floats | float = 1.0, *, parts: bool = True
) -> tuple[Floats, Step]:
    """Seconds to prefill `tokens` on a share `ranks` of the attention ranks at the same time, chunk
    after chunk, stages overlapped; without `parts`, the step has seconds alone."""
    chunks = np.ceil(tokens / case.workload.backend.chunk_tokens)
    zeros = np.zeros(case.deployed.n)
    rows = tokens / chunks
    work = Work(
        decode_rows=zeros,
        context=zeros,
        prefill_rows=rows,
        prompt_tokens=case.seen,
        fresh_tokens=case.fresh,
        prefill_ranks=ranks,
        overlap=case.overlap(zeros, rows, prefill=True),
    )
    step = run_step(case, work, parts=parts)
    one = case.step_s(step.seconds * case.imbalance, 0.0, step.ledger.launches * case.imbalance)
    return one * (1.0 + (chunks - 1.0) / case.deployed.pipeline_parallel), step


def decode_step(case: Case, rows: Floats, *, parts: bool = True) -> tuple[Floats, Step]:
    """The same of a decode step of `rows` requests on every attention rank, drafts included."""
    n = case.deployed.n
    zeros, ones, spread = np.zeros(n), np.ones(n), case.context_spread

    def step(verified: Floats | float) -> Step:
        work = Work(
            decode_rows=rows,
            context=case.context,
            prefill_rows=zeros,
            prompt_tokens=ones,
            context_spread=spread,
            verified=verified,
            overlap=case.overlap(rows, rows * verified, prefill=False),
        )
        return run_step(case, work, parts=parts)

    drafts = case.drafts
    if drafts is None:
        plain = step(1.0)
        return case.step_s(plain.seconds * case.imbalance, rows), plain
    verify = step(drafts.verified)
    verify.ledger.drafts(draft_s(drafts, case.deployed, rows, case.context))
    return case.step_s(verify.seconds * case.imbalance, rows), verify


def rank_of(
    case: Case, requests: Floats, rows: Floats, prefill_s: Floats, others: Floats
) -> tuple[Rank, Step]:
    """An attention rank of which `rows` requests decode in each step of a micro-batch; `others` are
    the other requests of the instance over its attention ranks."""
    deployed, backend = case.deployed, case.workload.backend
    decode_step_s, plain = decode_step(case, rows, parts=False)
    alone_s, spread = plain.seconds - plain.ledger.drafts_s, case.context_spread
    carried = np.minimum(case.fresh * np.maximum(rows / case.steps, 1.0), backend.chunk_tokens)
    busy = np.minimum(rows * case.fresh / (carried * case.steps), 1.0)
    together = together_share(busy, deployed.data_parallel)
    work = Work(
        decode_rows=rows,
        context=case.context,
        prefill_rows=carried,
        prompt_tokens=case.seen,
        fresh_tokens=case.fresh,
        prefill_ranks=together,
        context_spread=spread,
        verified=plain.verified,
        overlap=case.overlap(rows, rows * plain.verified + carried, prefill=carried > 0.0),
    )
    mixed = run_step(case, work, parts=False)
    launches = mixed.ledger.launches * case.imbalance
    carrying_s = case.step_s(mixed.seconds * case.imbalance, rows, launches)
    added = np.maximum(carrying_s - case.step_s(alone_s * case.imbalance, rows), 0.0)
    added = added * case.fresh / carried
    rank = Rank(
        requests=requests,
        step_s=decode_step_s,
        added_s=added,
        own_s=prefill_s,
        stages=deployed.pipeline_parallel,
        prompt=case.fresh,
        output=case.steps,
        chunk_tokens=backend.chunk_tokens,
        scheduler=backend.scheduler,
        together=together,
        others=others,
        ranks=deployed.data_parallel,
        poll_steps=backend.poll_steps,
    )
    return rank, plain
