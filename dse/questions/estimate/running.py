"""What a point says of how its requests run: overlap, the cap that holds them back, drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from dse.physics.disaggregated import Disaggregated
from dse.physics.ledger import Ledger
from dse.physics.workload import POISSON, Workload
from dse.problem.evaluate import Metrics
from dse.problem.mix import Mix
from dse.space.candidates import CandidateBatch
from dse.units import format as written


def running_words(
    batch: CandidateBatch,
    mix: Mix,
    metrics: Metrics,
    again: Callable[[CandidateBatch, Mix], Metrics],
) -> list[str]:
    """Sentences of the first candidate; `again` evaluates another batch or workload."""
    loads = [share.workload for share in mix]
    served = [one.metrics for one in metrics.members] if metrics.members else [metrics]
    found: list[str] = []
    for load, one in zip(loads, served, strict=True):
        served_by = one.performance.detail
        found += _overlap(load, served_by.decode_ledger, served_by.prefill_ledger)
        found += _cap(batch, load, one)
        found += _launch(load)
    found += _drafts(batch, mix, metrics, again)
    return list(dict.fromkeys(found))


def pool_words(batch: CandidateBatch, load: Workload, found: Disaggregated) -> list[str]:
    """The same of two pools, of which `batch` decodes."""
    words = [*_overlap(load, found.decode_ledger, found.prefill_ledger), *_launch(load)]
    ranks = float((batch.replicas * batch.data_parallel)[0])
    room = float(found.decode_memory.admitted[0] / batch.data_parallel[0])
    # Where all slots are taken, a mean that is just below them runs.
    if found.running_requests[0] / ranks > 0.99 * cap_of(batch, load):
        words += _cap_words(batch, load, room)
    return words + list(_published(batch, [load]))


def _overlap(load: Workload, decode: Ledger, prefill: Ledger) -> Iterator[str]:
    usual = load.backend.overlap
    if usual is None or load.network_overlap is not None:
        return
    phases = (("decode", decode), ("prefill", prefill))
    split = [name for name, ledger in phases if np.any(ledger.hidden_share)]
    if split:
        yield (
            f"{' and '.join(split)} in two micro-batches, each computing while the other exchanges "
            f"tokens, as {load.backend.id} does where experts lie outside the domain "
            f"({usual.kind}); --network-overlap 0 is without"
        )


def _launch(load: Workload) -> Iterator[str]:
    if load.slower != 1.0:
        yield (
            f"a stock launch takes {load.slower:.2f} times a tuned one on the device (fitted); "
            "--tuning tuned is without"
        )


def cap_of(batch: CandidateBatch, load: Workload) -> float:
    own = batch.max_running_requests
    return load.cap if own is None or np.isnan(own[0]) else float(own[0])


def _cap(batch: CandidateBatch, load: Workload, metrics: Metrics) -> Iterator[str]:
    if load.serving == "static":
        return
    served, ranks = metrics.performance, float(batch.data_parallel[0])
    most = cap_of(batch, load) * ranks
    waiting = load.serving in (POISSON, "offline")
    waiting = waiting or float(batch.concurrency[0] / batch.replicas[0]) > most
    if waiting and served.running_per_instance[0] >= most:
        yield from _cap_words(batch, load, float(served.memory.admitted[0]) / ranks)


def _cap_words(batch: CandidateBatch, load: Workload, room: float) -> Iterator[str]:
    cap = cap_of(batch, load)
    given = load.max_running_requests is not None or batch.max_running_requests is not None
    if room > cap:
        yield (
            f"the cap of {cap:,.0f} running requests an attention rank "
            f"({'as given' if given else f'of {load.backend.id}'}) binds: memory has room for "
            f"{room:,.0f}; --max-running-requests sets it"
        )


def _drafted(batch: CandidateBatch) -> float:
    return 0.0 if batch.draft_tokens is None else float(batch.draft_tokens[0])


def _published(batch: CandidateBatch, loads: Sequence[Workload]) -> Iterator[str]:
    given = [load.speculation.acceptance for load in loads if load.speculation is not None]
    if _drafted(batch) and all(acceptance is None for acceptance in given):
        assert batch.draft_gain is not None
        yield (
            f"a step gives {batch.draft_gain[0]:.3g} tokens with {_drafted(batch):g} drafted, "
            "as published of the model (search_spaces/drafts.csv)"
        )


def _drafts(
    batch: CandidateBatch,
    mix: Mix,
    metrics: Metrics,
    again: Callable[[CandidateBatch, Mix], Metrics],
) -> Iterator[str]:
    loads = [share.workload for share in mix]
    if not _drafted(batch) and all(load.speculation is None for load in loads):
        return
    yield from _published(batch, loads)
    plain = tuple(
        replace(share, workload=replace(share.workload, speculation=None)) for share in mix
    )
    none = replace(batch, draft_tokens=None, draft_gain=None)
    with_s, without_s = (float(one.values["tpot_s"][0]) for one in (metrics, again(none, plain)))
    if not np.isfinite(with_s) or not np.isfinite(without_s):
        return
    times = f"{written(with_s, 's')} a token with them, {written(without_s, 's')} without"
    if with_s < without_s:
        yield f"drafts on: they pay at this batch, {times}"
    else:
        yield f"drafts off would be faster at this batch: {times}"
