"""Several workloads that one deployment serves, each by its share of the requests.

The deployment's time is shared: while a workload has its turn, all its `concurrency` requests in
flight are of that workload, and requests of two workloads never meet in one step. A request of the
mix takes, with w_i the share of workload i among the requests,

    chip-seconds = sum_i w_i chip-seconds_i        tokens = sum_i w_i tokens_i

so that cost, energy and output rate are those of the mix. What a limit must hold for each of them
(latencies, memory, running requests, the rules of `dse.rules`) is that of the worst
workload.

Where requests arrive at random, every workload is a stream of its own rate r_i, and w_i = r_i / R
with R the sum. Their loads add: u = sum_i u_i, with u_i that of stream i alone. Each is evaluated
at the rate r_i u / u_i, by which it would be that load alone; its turns then take the share u_i / u
of the time, and the sums above come out at R requests a second for u below 1.

study.json and the command line hold a workload as {prompt_tokens, output_tokens, serving, backend},
of several also {name, weight}, and what else was given of `dse.schema.workloads.DETAILS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dse.economics.tokens import cost
from dse.physics.machines import Machines
from dse.physics.serving import Detail, Performance
from dse.physics.workload import POISSON, Speculation, Workload
from dse.problem.evaluate import MEMORY_PARTS, Member, Metrics, Part, Terms, Values, evaluate
from dse.problem.models import Models
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS
from dse.record import record
from dse.schema.backend import TUNED, Backend, find_backend
from dse.schema.metrics import METRICS
from dse.space.candidates import CandidateBatch, Floats


@record
class Share:
    """One workload of a mix. `weight` is its share of the requests; a mix sums to 1. Of Poisson
    arrivals, all workloads have them, and the weight is the share of their rate."""

    name: str
    weight: float
    workload: Workload


Mix = tuple[Share, ...]


def alone(workload: Workload) -> Mix:
    """The mix of one workload."""
    return (Share("", 1.0, workload),)


def evaluate_mix(
    batch: CandidateBatch, mix: Mix, machines: Machines, **terms: Unpack[Terms]
) -> Metrics:
    """`dse.problem.evaluate.evaluate` of a mix; of one workload, the very same. With several,
    `members` of the result holds each workload's own metrics, and `performance` is that of the
    first. Candidates with a backend of their own are served by that."""
    if batch.backend is not None:
        return _by_backend(batch, mix, machines, terms)
    served, load = [share.workload for share in mix], None
    if len(mix) > 1 and all(workload.serving == POISSON for workload in served):
        served, load = _at_the_whole_load(batch, served, machines)
    each = [evaluate(batch, workload, machines, **terms) for workload in served]
    if len(mix) == 1:
        return each[0]
    members = tuple(
        Member(share.name, share.weight, share.workload, metrics)
        for share, metrics in zip(mix, each, strict=True)
    )
    violations = {
        rule: _fold(np.maximum, [metrics.violations[rule] for metrics in each])
        for rule in each[0].violations
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        values = _values(batch, members, machines)
    if load is not None:
        values["utilisation"] = np.maximum(values["utilisation"], load)
        violations["arrivals_within_capacity"] = values["utilisation"] - 1.0
    # What is asked of the shape alone is the same in every workload.
    found = Values({**values}, lambda name: {name: each[0].values[name]})
    return replace(each[0], values=found, violations=violations, members=members)


def served_by(mix: Mix, backend: Backend) -> Mix:
    """The mix on another serving software."""
    return tuple(replace(share, workload=replace(share.workload, backend=backend)) for share in mix)


def _by_backend(batch: CandidateBatch, mix: Mix, machines: Machines, terms: Terms) -> Metrics:
    """Candidates that different software serves, each part under its own, joined again row by row:
    row i is, bit for bit, that of its part alone."""
    assert batch.backend is not None
    parts: list[Part] = []
    for code in np.unique(batch.backend):
        rows = np.flatnonzero(batch.backend == code)
        alone = replace(batch[rows], backend=None)
        own = served_by(mix, machines.backends[code])
        # What is shared is of the whole batch.
        parts.append(Part(rows, evaluate_mix(alone, own, machines, **{**terms, "shared": None})))
    first = parts[0].metrics
    if len(parts) == 1:
        return first

    def joined(column: Callable[[Metrics], NDArray[Any]]) -> NDArray[Any]:
        """(n,) a column of each part at its rows."""
        found = np.empty(len(batch), dtype=column(first).dtype)
        for part in parts:
            found[part.rows] = column(part.metrics)
        return found

    def detail() -> Detail:
        bound = joined(lambda one: one.performance.detail.bottleneck)
        return replace(first.performance.detail, bottleneck=bound)

    return replace(
        first,
        values=Values(
            dict.fromkeys(first.values), lambda name: {name: joined(lambda one: one.values[name])}
        ),
        violations={
            rule: joined(lambda one, rule=rule: one.violations[rule]) for rule in first.violations
        },
        models=Models(
            batch,
            terms.get("training_flops"),
            terms.get("law", DEFAULT),
            terms.get("unique_tokens", UNIQUE_TOKENS),
        ),
        performance=replace(first.performance, look=cache(detail)),
        provenance=joined(lambda one: one.provenance),
        members=(),
        parts=tuple(parts),
    )


def _at_the_whole_load(
    batch: CandidateBatch, streams: list[Workload], machines: Machines
) -> tuple[list[Workload], Floats]:
    """Each stream at the rate, (n,), by which it alone would be the load of all, and that load."""
    loads = [evaluate(batch, one, machines).values["utilisation"] for one in streams]
    whole = _fold(np.add, loads)
    served = []
    for one, load in zip(streams, loads, strict=True):
        # A stream that waits without end already is left at its own rate.
        more = np.divide(whole, load, out=np.ones_like(whole), where=np.isfinite(whole))
        served.append(replace(one, requests_per_s=one.requests_per_s * more))
    return served, whole


def _fold(combine: Callable[[Floats, Floats], Floats], arrays: list[Floats]) -> Floats:
    """(n,) arrays combined in the order of the workloads."""
    found = arrays[0]
    for array in arrays[1:]:
        found = combine(found, array)
    return found


def _values(
    batch: CandidateBatch, members: tuple[Member, ...], machines: Machines
) -> dict[str, Floats]:
    def total(of: Callable[[Performance], Floats]) -> Floats:
        """(n,) of a request of the mix."""
        return _fold(np.add, [member.weight * of(member.metrics.performance) for member in members])

    def mean(metric: str, of: Callable[[Performance], Floats]) -> Floats:
        """(n,) mean of a metric by weighted chip-seconds."""
        terms = [
            member.weight * of(member.metrics.performance) * member.metrics.values[metric]
            for member in members
        ]
        return _fold(np.add, terms) / total(of)

    def chip_s(one: Performance) -> Floats:
        """(n,) chip-seconds of a request."""
        return one.prefill_chip_s + one.decode_chip_s

    each = {
        name: [member.metrics.values[name] for member in members]
        for name in members[0].metrics.values
    }
    # The worst of those to which a metric applies: an offline workload has no first token.
    values = {}
    for name, arrays in each.items():
        known = METRICS.get(name)
        most = known is None or known.direction != "maximize"
        values[name] = _fold(np.fmax if most else np.fmin, arrays)
    fullest = np.argmax(each["memory_bytes_per_chip"], axis=0)
    for part in MEMORY_PARTS:
        name = f"memory_{part}_bytes_per_chip"
        values[name] = np.take_along_axis(np.stack(each[name]), fullest[None], axis=0)[0]
    prompt = sum(member.weight * member.workload.prompt_tokens for member in members)
    output = sum(member.weight * member.workload.output_tokens for member in members)
    rate = output / total(lambda one: 1.0 / one.requests_per_s)
    joules = total(lambda one: one.energy.joules)
    held = total(chip_s)
    return values | {
        **cost(
            total(lambda one: one.prefill_chip_s),
            total(lambda one: one.decode_chip_s),
            np.broadcast_to(prompt, len(batch)),
            np.broadcast_to(output, len(batch)),
            machines.usd_per_chip_hour[batch.chip],
        ),
        "output_tokens_per_s": rate,
        "output_tokens_per_s_per_chip": rate / batch.chips,
        "joules_per_output_token": joules / output,
        "tokens_per_joule": output / joules,
        "watts_per_chip": total(lambda one: one.energy.watts * chip_s(one)) / held,
        "energy_data_movement_share": total(lambda one: one.energy.of_phases.movement) / joules,
        "mfu": mean("mfu", lambda one: one.prefill_chip_s),
        "mbu": mean("mbu", lambda one: one.decode_chip_s),
    }


def loads_of(study: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The workloads of study.json: `workload` where there is one, else `workloads`."""
    return [study["workload"]] if study["workload"] else study["workloads"]


def one_load(loads: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What stands under `workload`: null where there are several."""
    if len(loads) > 1:
        return None
    return {key: value for key, value in loads[0].items() if key not in ("name", "weight")}


def held(loads: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the requests in flight are held at `concurrency`: not where they arrive at random."""
    return all(load["serving"] != POISSON for load in loads)


def mix_of(loads: Sequence[Mapping[str, Any]], backends: Mapping[str, Backend]) -> Mix:
    """Raises InputError for a backend that does not exist."""
    return tuple(
        Share(
            load.get("name", ""),
            load.get("weight", 1.0),
            Workload.of(
                load["prompt_tokens"],
                load["output_tokens"],
                load["serving"],
                find_backend(backends, load["backend"]),
                requests_per_second=load.get("requests_per_second", 0.0),
                prefix_hit_rate=load.get("prefix_hit_rate", 0.0),
                **served(load, load.get("draft_tokens")),
            ),
        )
        for load in loads
    )


def served(load: Mapping[str, Any], draft_tokens: int | None = None) -> dict[str, Any]:
    """What `dse.schema.workloads.SERVED` says of a workload, as `Workload.of` takes it; how many
    tokens are drafted is an axis of the deployment."""
    speculation = Speculation(draft_tokens, load.get("acceptance"))
    return {
        "speculation": None if speculation == Speculation() else speculation,
        "network_overlap": load.get("network_overlap"),
        "max_running_requests": load.get("max_running_requests"),
        "tuning": load.get("tuning") or TUNED,
    }


def load_row(share: Share | Member) -> dict[str, Any]:
    """The inverse of `mix_of`, for one workload."""
    load = share.workload
    drafts, most = load.speculation or Speculation(), load.max_running_requests
    details = {
        "requests_per_second": float(load.requests_per_s[0]) or None,
        "draft_tokens": drafts.draft_tokens,
        "acceptance": drafts.acceptance,
        "prefix_hit_rate": load.prefix_hit_rate or None,
        "network_overlap": load.network_overlap,
        "max_running_requests": None if most is None else whole(most),
        "tuning": None if load.tuning == TUNED else load.tuning,
    }
    return {
        "name": share.name,
        "weight": share.weight,
        "prompt_tokens": whole(load.prompt_tokens[0]),
        "output_tokens": whole(load.output_tokens[0]),
        "serving": load.serving,
        "backend": load.backend.id,
        **{name: value for name, value in details.items() if value is not None},
    }


def whole(value: float) -> float | int:
    """A whole number without its point."""
    return int(value) if float(value).is_integer() else float(value)
