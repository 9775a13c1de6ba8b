"""evaluate(batch, workload, machines): every metric and every rule of n candidates at once.

The one path from a candidate to numbers: the search, `dse estimate` and its --detail all call it.
`evaluate(batch)[i]` equals `evaluate(batch[i:i+1])` bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from dse.economics.cost import cost
from dse.economics.energy import COUNTED, energy_metrics
from dse.physics.attention_metrics import ATTENTION_METRICS, attention_metrics
from dse.physics.intervals import Spread
from dse.physics.machines import Machines
from dse.physics.parameters import (
    Parameters,
    index_bytes_per_token,
    kv_elements_per_token,
    parameters,
)
from dse.physics.provenance import worst_block_law
from dse.physics.serving import Performance, predict
from dse.physics.workload import Workload
from dse.problem.format_loss import FormatLoss, format_loss
from dse.quality.law import Law
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS, Quality, quality, tokens_at_compute
from dse.rules.case import Case, Searched, stack_of
from dse.rules.registry import judge
from dse.schema.backend import TUNED
from dse.schema.calibration import KINDS
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.space.candidates import Block, CandidateBatch, Floats

# Metrics of a shape that are worked out for those who name them.
SHAPE_METRICS = (
    "attention_share",
    "width_per_layer",
    "equivalent_over_total",
    "tokens_per_active_parameter",
)
ASKED = ("training_flops", *SHAPE_METRICS, *ATTENTION_METRICS)
MEMORY_PARTS = ("weights", "kv_cache", "activations", "communication", "runtime")
_BYTES_PER_ELEMENT = np.array([BITS[dtype] / 8 for dtype in DTYPES])


class Values(Mapping[str, Floats]):
    """Metrics by name. Those that are None are worked out by `later`, all of them, when one is
    first asked for: a search that does not name them does not pay for them. Those of `asked`,
    likewise, are there by name alone and are not among the metrics that all candidates show."""

    __slots__ = ("_asked", "_known", "_later", "_of_asked")

    def __init__(
        self,
        known: dict[str, Floats | None],
        later: Callable[[], Mapping[str, Floats]],
        asked: Callable[[], Mapping[str, Floats]],
    ) -> None:
        self._known, self._later = known, later
        self._asked: Mapping[str, Floats] | None = None
        self._of_asked = asked

    def __getitem__(self, name: str) -> Floats:
        if name in ASKED:
            if self._asked is None:
                self._asked = self._of_asked()
            return self._asked[name]
        value = self._known[name]
        if value is None:
            found = self._later()
            self._known.update(found)
            value = found[name]
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in ASKED

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@dataclass(frozen=True, slots=True)
class Metrics:
    """`values[metric]` in SI units; `violations[rule]` > 0 where a rule of `dse.rules` is broken,
    scaled as used / limit - 1 (or 1); all (n,). NaN: does not apply. `members` are the workloads of
    a mix (`dse.problem.mix`), empty where there is one. `parts` are the candidates by the software
    that serves them (`dse.problem.joined`), empty where one serves all; ledgers, memory, `case` and
    `members` are then those of the parts, which `at` finds."""

    values: Mapping[str, Floats]
    violations: Mapping[str, Floats]
    quality: Quality
    formats: FormatLoss
    performance: Performance
    parameters: Parameters
    provenance: NDArray[np.intp]  # index into machines.KINDS: the worst law that was used
    case: Case  # what `violations` were judged on; of a mix, that of its first workload
    members: tuple[Member, ...] = ()
    parts: tuple[Part, ...] = ()
    tuning: str = TUNED  # how the software was launched

    def at(self, i: int) -> tuple[Metrics, int]:
        """The metrics under one software that hold candidate `i`, and its row in them."""
        for part in self.parts:
            row = int(np.searchsorted(part.rows, i))
            if row < len(part.rows) and part.rows[row] == i:
                return part.metrics, row
        return self, i

    @property
    def spread(self) -> Spread:
        """Of the 80% intervals (`dse.physics.intervals`)."""
        return self.performance.decode_ledger.deployed.machines.spread_of(self.tuning)

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


@dataclass(frozen=True, slots=True)
class Part:
    """The candidates at `rows` (k,), ascending, and their metrics."""

    rows: NDArray[np.intp]
    metrics: Metrics


@dataclass(frozen=True, slots=True)
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
) -> Metrics:
    """All metrics of n candidates. With `training_flops`, every shape whose training tokens are
    not given is trained for that compute; `keep` retains per-operator ledgers; `law` names the one
    of `dse.quality.laws` that predicts the loss, or is one that was moved (`dse.problem.own_law`);
    of its text `unique_tokens` are not read twice. `searched` is what a search chooses, which the
    rules of a search bind."""
    count, tokens, shape_quality, formats = of_model(batch, training_flops, law, unique_tokens)
    performance = predict(batch, workload, machines, keep=keep)
    price = machines.usd_per_chip_hour[batch.chip]
    prices = cost(
        performance.prefill_chip_s,
        performance.decode_chip_s,
        np.broadcast_to(workload.prompt_tokens, len(batch)),
        np.broadcast_to(workload.output_tokens, len(batch)),
        price,
    )
    memory, chips = performance.memory, batch.chips
    cache = memory.kv_per_request if workload.serving == "static" else memory.kv_reserved
    kv_cache = cache * np.ceil(performance.running_per_instance / batch.data_parallel)
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
        "usd_per_million_output_tokens": prices.usd_per_million_output_tokens,
        "usd_per_million_input_tokens": prices.usd_per_million_input_tokens,
        "usd_per_million_total_tokens": prices.usd_per_million_total_tokens,
        "usd_per_million_output_tokens_all_in": prices.usd_per_million_output_tokens_all_in,
        **dict.fromkeys(COUNTED),
        "memory_bytes_per_chip": memory.base + kv_cache,
        "memory_weights_bytes_per_chip": memory.weights,
        "memory_kv_cache_bytes_per_chip": kv_cache,
        "memory_activations_bytes_per_chip": memory.activations,
        "memory_communication_bytes_per_chip": memory.communication,
        "memory_runtime_bytes_per_chip": memory.runtime,
        "memory_capacity_bytes_per_chip": memory.capacity,
        "latency_floor_s": performance.latency_floor_s,
        "distance_to_floor": performance.decode_step_s / performance.latency_floor_s,
        "mfu": performance.mfu,
        "mbu": performance.mbu,
        "predicted_loss": formats.loss + formats.added,
        "dense_equivalent_parameters": shape_quality.dense_equivalent_parameters,
        "total_parameters": count.total,
        "active_parameters": count.active,
        "training_tokens": tokens,
        "kv_bytes_per_token": kv_elements_per_token(batch) * _BYTES_PER_ELEMENT[batch.kv_dtype]
        + index_bytes_per_token(batch),
        "chips": chips,
        "chip_usd_per_hour": price,
    }
    if memory.tier is not None:
        values |= _in_tier(batch, workload, performance)
    output = np.broadcast_to(workload.output_tokens, len(batch))
    stack = stack_of(workload.backend.id)
    case = Case(
        batch,
        machines.families,
        stack,
        machines,
        performance,
        workload.serving,
        count=count,
        tokens=tokens,
        unique_tokens=unique_tokens,
        searched=searched,
        backend=workload.backend.id,
    )
    return Metrics(
        values=Values(
            values,
            lambda: energy_metrics(performance.energy, output),
            lambda: _of_shape(batch, count, tokens, shape_quality),
        ),
        violations=judge(case),
        case=case,
        quality=shape_quality,
        formats=formats,
        performance=performance,
        parameters=count,
        provenance=worst_kind(batch, machines),
        tuning=workload.tuning,
    )


def of_model(
    batch: CandidateBatch, training_flops: float | None, law: str | Law, unique_tokens: float
) -> tuple[Parameters, Floats, Quality, FormatLoss]:
    """What follows from the models and their formats alone: parameters, training tokens (n,),
    quality, and what the formats cost of it."""
    count, tokens = parameters(batch), batch.training_tokens
    if training_flops is not None:
        affordable = tokens_at_compute(np.full(len(batch), training_flops), count.active)
        tokens = np.where(np.isnan(tokens), affordable, tokens)
    found = shape_quality_of(batch, count, tokens, law, unique_tokens)
    formats = format_loss(
        batch.trained_whole,
        batch.trained_in,
        _deployed_format(batch),
        _cache_format(batch),
        found.predicted_loss,
        tokens,
        found.quantised_parameters,
    )
    return count, tokens, found, formats


def _of_shape(
    batch: CandidateBatch, count: Parameters, tokens: Floats, found: Quality
) -> Mapping[str, Floats]:
    """What ASKED names, (n,) each."""
    return {
        "training_flops": 6.0 * count.active * tokens,
        "attention_share": count.attention / count.active_non_embedding,
        "width_per_layer": batch.hidden_size / batch.layers,
        "equivalent_over_total": found.dense_equivalent_parameters / count.total,
        "tokens_per_active_parameter": tokens / count.active,
        **attention_metrics(batch),
    }


def _arrivals(batch: CandidateBatch, performance: Performance) -> dict[str, Floats]:
    """Mean and tail of the time to first token, and the load; NaN but for Poisson arrivals."""
    found, none = performance.arrivals, np.full(len(batch), np.nan)
    if found is None:
        return dict.fromkeys(("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "utilisation"), none)
    return {
        "ttft_mean_s": found.ttft_mean_s,
        "ttft_p90_s": found.ttft_p90_s,
        "ttft_p99_s": found.ttft_p99_s,
        "utilisation": found.utilisation,
    }


def _in_tier(
    batch: CandidateBatch, workload: Workload, performance: Performance
) -> dict[str, Floats]:
    """What the busiest chip holds in its memory tier, and how long a decode step waits for it."""
    tier = performance.memory.tier
    assert tier is not None
    cache = tier.kv_per_request if workload.serving == "static" else tier.kv_reserved
    requests = np.ceil(performance.running_per_instance / batch.data_parallel)
    return {
        "tier_bytes_per_chip": tier.weights + cache * requests,
        "tier_capacity_bytes_per_chip": tier.capacity,
        "tier_wait_s": performance.decode_ledger.tier_s + np.zeros(len(batch)),
    }


def experts_of(batch: CandidateBatch) -> Block | None:
    """The layers of which a token meets some experts alone."""
    return next((block for block in batch.blocks if "experts" in block.sizes), None)


def shape_quality_of(
    batch: CandidateBatch,
    count: Parameters,
    tokens: Floats,
    law: str | Law = DEFAULT,
    unique_tokens: float = UNIQUE_TOKENS,
) -> Quality:
    """The quality of n trained models under a law, before anything is quantised."""
    zeros = np.zeros(len(batch))
    moe = experts_of(batch)
    if moe is None:
        experts = top_k = shared = width = zeros
    else:
        experts = np.where(moe.count > 0.0, moe["experts"], 0.0)
        top_k, width = moe["experts_per_token"], np.maximum(moe["expert_intermediate_size"], 1.0)
        shared = moe["shared_intermediate_size"] / width
    return quality(
        batch.hidden_size,
        batch.layers,
        count.active_non_embedding,
        experts=experts,
        experts_per_token=top_k,
        shared_width_ratio=shared,
        expert_intermediate_size=width,
        training_tokens=tokens,
        total_parameters=count.total,
        embedding_parameters=count.embedding + count.head,
        unique_tokens=unique_tokens,
        law=law,
    )


def _deployed_format(batch: CandidateBatch) -> NDArray[np.intp]:
    """(n,) codes of the weights that hold most of the model: experts where it has some."""
    moe, dense = experts_of(batch), batch.weight_dtype["mlp"]
    return dense if moe is None else np.where(moe.count > 0.0, batch.weight_dtype["experts"], dense)


def _cache_format(batch: CandidateBatch) -> NDArray[np.intp]:
    """(n,) codes of the keys and values; of a model that keeps none, that of 16 bits."""
    return np.where(kv_elements_per_token(batch) > 0.0, batch.kv_dtype, CODE["bf16"])


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
