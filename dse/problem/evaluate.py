"""evaluate(batch, workload, machines): every metric and every rule of n candidates at once.

The one path from a candidate to numbers: the search, `dse estimate` and its --detail all call it.
`evaluate(batch)[i]` equals `evaluate(batch[i:i+1])` bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from dse.economics.tokens import COUNTED, cost, energy_metrics
from dse.physics.intervals import FIRST_TOKEN, Spread, first_token_class
from dse.physics.machines import Machines, worst_block_law
from dse.physics.parameters import Parameters
from dse.physics.serving import Arrivals, Performance, predict
from dse.physics.workload import Workload
from dse.problem.models import ASKED, OF_MODEL, FormatLoss, Models
from dse.quality.law import Law, Quality
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS
from dse.record import record
from dse.rules.case import Case, Searched, stack_of
from dse.rules.registry import judge
from dse.schema.backend import KINDS, TUNED
from dse.space.alike import Shared
from dse.space.candidates import CandidateBatch, Floats

MEMORY_PARTS = ("weights", "kv_cache", "activations", "communication", "runtime")
IN_MEMORY = ("memory_bytes_per_chip", *(f"memory_{part}_bytes_per_chip" for part in MEMORY_PARTS))
OF_STEPS = ("latency_floor_s", "distance_to_floor", "mfu", "mbu")
IN_TIER = ("tier_bytes_per_chip", "tier_capacity_bytes_per_chip", "tier_wait_s")


class Values(Mapping[str, Floats]):
    """Metrics by name, (n,) each, of which those that are None in `known` are worked out when they
    are first asked for: a search that does not name them does not pay for them. `find(name)` gives
    the metric and whatever else is found with it; KeyError where there is none. Those of ASKED are
    there by name alone and are not among the metrics that all candidates show."""

    __slots__ = ("_find", "_known", "_shown")

    def __init__(
        self, known: dict[str, Floats | None], find: Callable[[str], Mapping[str, Floats]]
    ) -> None:
        self._known, self._shown, self._find = known, tuple(known), find

    def __getitem__(self, name: str) -> Floats:
        value = self._known.get(name)
        if value is None:
            self._known.update(self._find(name))
            value = self._known[name]
            assert value is not None
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._shown or name in ASKED

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)


@record
class Metrics:
    """`values[metric]` in SI units; `violations[rule]` > 0 where a rule of `dse.rules` is broken,
    scaled as used / limit - 1 (or 1); all (n,). NaN: does not apply. `members` are the workloads of
    a mix (`dse.problem.mix`), empty where there is one. `parts` are the candidates by the software
    that serves them (`dse.problem.mix`), empty where one serves all; ledgers, memory, `case` and
    `members` are then those of the parts, which `at` finds."""

    values: Mapping[str, Floats]
    violations: Mapping[str, Floats]
    models: Models
    performance: Performance
    provenance: NDArray[np.intp]  # index into machines.KINDS: the worst law that was used
    case: Case  # what `violations` were judged on; of a mix, that of its first workload
    members: tuple[Member, ...] = ()
    parts: tuple[Part, ...] = ()
    tuning: str = TUNED  # how the software was launched
    first_token: str = FIRST_TOKEN  # its class of `dse.physics.intervals`

    def at(self, i: int) -> tuple[Metrics, int]:
        """The metrics under one software that hold candidate `i`, and its row in them."""
        for part in self.parts:
            row = int(np.searchsorted(part.rows, i))
            if row < len(part.rows) and part.rows[row] == i:
                return part.metrics, row
        return self, i

    @property
    def quality(self) -> Quality:
        return self.models.quality

    @property
    def formats(self) -> FormatLoss:
        return self.models.formats

    @property
    def parameters(self) -> Parameters:
        return self.models.parameters

    @property
    def spread(self) -> Spread:
        """Of the 80% intervals (`dse.physics.intervals`)."""
        assert self.case.machines is not None
        return self.case.machines.spread_of(self.tuning, self.first_token)

    def heaviest(self, i: int) -> tuple[Metrics, int]:
        """The metrics of the workload on which candidate `i` spends most chip-seconds, and its row
        in them."""
        found, row = self.at(i)
        if not found.members:
            return found, row
        return max(found.members, key=lambda member: member.chip_s[row]).metrics, row

    @property
    def feasible(self) -> NDArray[np.bool_]:
        broken = np.zeros(len(self.provenance), dtype=bool)
        for amount in self.violations.values():
            broken = broken | (amount > 0.0)
        return ~broken


@record
class Part:
    """The candidates at `rows` (k,), ascending, and their metrics."""

    rows: NDArray[np.intp]
    metrics: Metrics


@record
class Member:
    """One workload of a mix, its share of the requests, and its metrics as if it were alone."""

    name: str
    weight: float
    workload: Workload
    metrics: Metrics

    @property
    def chip_s(self) -> Floats:
        """(n,) chip-seconds that a request of the mix spends on this workload."""
        performance = self.metrics.performance
        return self.weight * (performance.prefill_chip_s + performance.decode_chip_s)


class Terms(TypedDict, total=False):
    """What `evaluate` takes besides."""

    training_flops: float | None
    keep: bool
    law: str | Law
    unique_tokens: float
    searched: Searched
    shared: Shared | None


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def evaluate(
    batch: CandidateBatch,
    workload: Workload,
    machines: Machines,
    *,
    training_flops: float | None = None,
    keep: bool = False,
    law: str | Law = DEFAULT,
    unique_tokens: float = UNIQUE_TOKENS,
    searched: Searched = "nothing",
    shared: Shared | None = None,
) -> Metrics:
    """All metrics of n candidates. With `training_flops`, every shape whose training tokens are
    not given is trained for that compute; `keep` retains per-operator ledgers; `law` names the one
    of `dse.quality.laws` that predicts the loss, or is one that was moved (`dse.problem.models`);
    of its text `unique_tokens` are not read twice. `searched` is what a search chooses, which the
    rules of a search bind. What candidates have in common by `shared` is worked out once."""
    models = Models(batch, training_flops, law, unique_tokens)
    performance = predict(batch, workload, machines, keep=keep, shared=shared)
    price = machines.usd_per_chip_hour[batch.chip]
    memory, chips = performance.memory, batch.chips
    values: dict[str, Floats | None] = {
        "ttft_s": performance.ttft_s,
        **_arrivals(batch, performance),
        "tpot_s": performance.tpot_s,
        "prefill_s": performance.prefill_s,
        "decode_step_s": performance.decode_step_s,
        "e2e_s": performance.e2e_s,
        "output_tokens_per_s": performance.output_tokens_per_s,
        "output_tokens_per_s_per_chip": performance.output_tokens_per_s / chips,
        "output_tokens_per_s_per_user": 1.0 / performance.tpot_s,
        "running_requests": performance.running_requests,
        **cost(
            performance.prefill_chip_s,
            performance.decode_chip_s,
            workload.prompt_tokens,
            workload.output_tokens,
            price,
        ),
        **dict.fromkeys(COUNTED),
        **dict.fromkeys(IN_MEMORY),
        "memory_capacity_bytes_per_chip": memory.capacity,
        **dict.fromkeys(OF_STEPS),
        **dict.fromkeys(OF_MODEL),
        "chips": chips,
        "chip_usd_per_hour": price,
    }
    if memory.tier is not None:
        values |= dict.fromkeys(IN_TIER)
    stack = stack_of(workload.backend.id)
    case = Case(
        batch,
        machines.families,
        stack,
        machines,
        performance,
        workload.serving,
        models=models,
        unique_tokens=unique_tokens,
        searched=searched,
        backend=workload.backend.id,
    )
    if shared is None:
        few, known = models, worst_kind(batch, machines)
    else:
        few, alike = models.of(shared.models.few), shared.deployments
        known = worst_kind(alike.few, machines)[alike.kinds]
    later: dict[tuple[str, ...], Callable[[], Mapping[str, Floats]]] = {
        COUNTED: lambda: energy_metrics(performance.energy, workload.output_tokens),
        IN_MEMORY: lambda: _in_memory(batch, workload, performance),
        OF_STEPS: lambda: _of_steps(performance),
        OF_MODEL: lambda: _of_all(few.values(), shared),
        ASKED: lambda: _of_all(few.asked(), shared),
        IN_TIER: lambda: _in_tier(batch, workload, performance),
    }
    groups = {name: group for names, group in later.items() for name in names}
    return Metrics(
        values=Values(values, lambda name: groups[name]()),
        violations=judge(case, shared),
        case=case,
        models=models,
        performance=performance,
        provenance=known,
        tuning=workload.tuning,
        first_token=first_token_class(workload.serving, workload.backend.scheduler),
    )


def _of_all(few: Mapping[str, Floats], shared: Shared | None) -> Mapping[str, Floats]:
    """What was found for each model, (k,), for each candidate, (n,)."""
    if shared is None:
        return few
    return {name: shared.models.gathered(value) for name, value in few.items()}


def _in_memory(
    batch: CandidateBatch, workload: Workload, performance: Performance
) -> dict[str, Floats]:
    """What IN_MEMORY names: bytes on the busiest chip, in all and by part."""
    memory = performance.memory
    cache = memory.kv_per_request if workload.serving == "static" else memory.kv_reserved
    kv_cache = cache * np.ceil(performance.running_per_instance / batch.data_parallel)
    fixed = (memory.activations, memory.communication, memory.runtime)
    parts = (memory.weights, kv_cache, *fixed)
    return dict(zip(IN_MEMORY, (memory.base + kv_cache, *parts), strict=True))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _of_steps(performance: Performance) -> dict[str, Floats]:
    """What OF_STEPS names, of the parts of either step."""
    found = performance.detail
    distance = performance.decode_step_s / found.latency_floor_s
    of_steps = (found.latency_floor_s, distance, found.mfu, found.mbu)
    return dict(zip(OF_STEPS, of_steps, strict=True))


def _arrivals(batch: CandidateBatch, performance: Performance) -> dict[str, Floats]:
    """Mean and tail of the time to first token, and the load; NaN but for Poisson arrivals."""
    found, none = performance.arrivals, np.full(len(batch), np.nan)
    return {
        one.name: none if found is None else getattr(found, one.name) for one in fields(Arrivals)
    }


def _in_tier(
    batch: CandidateBatch, workload: Workload, performance: Performance
) -> dict[str, Floats]:
    """What the busiest chip holds in its memory tier, and how long a decode step waits for it."""
    tier = performance.memory.tier
    assert tier is not None
    cache = tier.kv_per_request if workload.serving == "static" else tier.kv_reserved
    requests = np.ceil(performance.running_per_instance / batch.data_parallel)
    waits = performance.detail.decode_ledger.tier_s + np.zeros(len(batch))
    return dict(zip(IN_TIER, (tier.weights + cache * requests, tier.capacity, waits), strict=True))


def worst_kind(batch: CandidateBatch, machines: Machines) -> NDArray[np.intp]:
    """(n,) index into machines.KINDS of the worst law that a candidate uses."""
    worst = np.zeros(len(batch), dtype=np.intp)
    for part in ("attention", "mlp", "experts"):
        worst = np.maximum(worst, machines.law_kind[batch.chip, batch.weight_dtype[part]])
    if batch.offload_tier is not None:  # no measured row has weights or cache in a tier
        for share in (batch.weights_offloaded, batch.kv_offloaded):
            used = np.zeros(len(batch)) if share is None else share
            worst = np.maximum(worst, (used > 0.0) * KINDS.index("assumed"))
    # Nor has any a hypothetical domain, jitter that is stated, or a power cap.
    beyond = (machines.power.cap_w < machines.power.rated_w)[batch.chip]
    for level in (machines.fabric, *machines.fabric.networks):
        beyond = beyond | (level.jitter_s > 0.0)[batch.chip]
    if batch.domain is not None:
        beyond = beyond | (batch.domain != machines.fabric.domain[batch.chip])
    worst = np.maximum(worst, beyond * KINDS.index("derived"))
    return np.maximum(worst, worst_block_law(batch, machines))
