"""One candidate in words and numbers: what `dse estimate --json` prints and front.json holds. A
hypothetical scale-up domain: what it rests on, what bounds it, and where its rack ends it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.numbers import large as amount
from dse.answer.numbers import number, significant
from dse.answer.sentences import listed
from dse.blocks import WEIGHT_PARTS
from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.intervals import (
    CLASS,
    ENERGY_METRICS,
    EQUIVALENT_FACTOR,
    LABEL,
    POWER_METRICS,
    THROUGHPUT_METRICS,
    Spread,
    interval,
)
from dse.physics.machines import Machines
from dse.physics.racks import BOUNDS, largest_domain, rack_use
from dse.physics.serving import BOTTLENECKS
from dse.problem.evaluate import MEMORY_PARTS, Metrics
from dse.problem.mix import load_row, whole
from dse.problem.models import ASKED, FormatLoss
from dse.problem.training import OF_LIFE, OF_TRAINING, study_intervals
from dse.quality.law import Quality, overtraining
from dse.quality.laws import DEFAULT, LAWS
from dse.quality.own_runs import LEVERAGE, P90
from dse.quality.quantisation import FIT
from dse.rules.case import Case
from dse.rules.registry import MEANINGS, row
from dse.schema.backend import KINDS
from dse.schema.constants import TIERS
from dse.schema.dtypes import DTYPES
from dse.schema.metrics import Limit
from dse.schema.system import Rack, System, refusal, shipped_racks
from dse.space.batches import CAP_AXIS, DOMAIN_AXIS, DRAFT_AXIS, EXPERT_AXES, OFFLOAD_AXES
from dse.space.candidates import CandidateBatch

# Metrics that are given of each workload of a mix.
BY_WORKLOAD = (
    "ttft_s", "ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "utilisation", "tpot_s", "e2e_s",
    "prefill_s", "decode_step_s", "latency_floor_s", "output_tokens_per_s", "running_requests",
    "usd_per_million_input_tokens", "usd_per_million_output_tokens", "usd_per_million_total_tokens",
    "usd_per_million_output_tokens_all_in", "joules_per_output_token", "tokens_per_joule",
    "watts_per_chip", "energy_data_movement_share", "memory_bytes_per_chip", "mfu", "mbu",
)  # fmt: skip
WHOLE = (
    "running_requests", "chips", "total_parameters", "active_parameters",
    "memory_bytes_per_chip", "memory_capacity_bytes_per_chip",
)  # fmt: skip


def limits_of(study: Mapping[str, Any]) -> tuple[Limit, ...]:
    """The user's constraints as study.json holds them."""
    return tuple(
        Limit(
            row["metric"],
            "<=" if row["sign"] > 0 else ">=",
            row["limit"],
            row["text"],
            row.get("workload", ""),
        )
        for row in study["constraints"]
    )


def describe_metrics(
    metrics: Metrics,
    i: int,
    limits: tuple[Limit, ...] = (),
    asked: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Every metric of candidate `i`, with its feasibility, intervals and provenance; of those that
    not all candidates show, the ones that are limited or `asked`."""
    values = {name: number(array[i]) for name, array in metrics.values.items()}
    for name in (*asked, *(limit.metric for limit in limits)):
        if name not in values:
            values[name] = number(metrics.values[name][i])
    parts = {part: values.pop(f"memory_{part}_bytes_per_chip") for part in MEMORY_PARTS}
    broken = violations(metrics, i, limits)
    heaviest, row = metrics.heaviest(i)
    of_law = describe_quality(metrics, i, values)
    return {
        **{name: round(v) if name in WHOLE and v is not None else v for name, v in values.items()},
        "memory_bytes_per_chip_parts": parts,
        "bottleneck": BOTTLENECKS[heaviest.performance.detail.bottleneck[row]],
        "feasible": not broken,
        "violations": broken,
        "intervals": _intervals(metrics, i, values),
        "interval_kind": LABEL,
        "provenance": _provenance(values, KINDS[metrics.provenance[i]], of_law["extrapolates"]),
        **of_law,
    }


def violations(metrics: Metrics, i: int, limits: tuple[Limit, ...] = ()) -> list[dict[str, Any]]:
    """The rules and limits that candidate `i` breaks, and by how much (used / limit - 1). Of a
    rule, also what of the candidate breaks it (`found`); of a limit, its metric and the value that
    breaks it, both null where there is no value."""
    rules = [
        row(*_broken_case(metrics, name, i), float(amount[i]))
        for name, amount in metrics.violations.items()
        if amount[i] > 0.0
    ]
    return rules + [
        {
            "constraint": limit.text,
            "amount": None if value is None else number(limit.amount(metrics)[i]),
            "meaning": "limit",
            "metric": limit.metric,
            "value": value,
        }
        for limit in limits
        if limit.amount(metrics)[i] > 0.0
        for value in (number(limit.used(metrics)[i]),)
    ]


def _broken_case(metrics: Metrics, name: str, i: int) -> tuple[Case, str, int]:
    """The case that holds candidate `i`, the rule and its row there; of a mix, that of a workload
    which breaks the rule as much as the whole does."""
    found, at = metrics.at(i)
    for member in found.members:
        own = member.metrics
        if name in own.violations and own.violations[name][at] == found.violations[name][at]:
            return own.case, name, at
    return found.case, name, at


def describe_workloads(metrics: Metrics, i: int) -> list[dict[str, Any]]:
    """Candidate `i` under each workload of a mix as if that were alone; empty where there is one.
    `chip_seconds_share` is the part of the deployment's time that the workload takes."""
    metrics, i = metrics.at(i)
    total = sum(float(member.chip_s[i]) for member in metrics.members)
    return [
        {
            **load_row(member),
            "chip_seconds_share": number(float(member.chip_s[i]) / total),
            **{name: number(member.metrics.values[name][i]) for name in BY_WORKLOAD},
            "bottleneck": BOTTLENECKS[member.metrics.performance.detail.bottleneck[i]],
        }
        for member in metrics.members
    ]


def _within_power(metrics: Metrics, i: int, ends: list[float]) -> list[float]:
    """The ends of an interval of watts, from the idle power to the power that the chip may draw."""
    metrics, i = metrics.heaviest(i)
    deployed = metrics.performance.detail.decode_ledger.deployed
    power, chip = deployed.machines.power, deployed.batch.chip[i]
    least, most = float(power.idle_w[chip]), float(power.cap_w[chip])
    return [min(max(end, least), most) for end in ends]


def _intervals(metrics: Metrics, i: int, values: Mapping[str, Any]) -> dict[str, list[float]]:
    """80% intervals by metric, [low, high]. Requests that arrive no faster than they are served
    set the rate, and with it the cost: no measured row says how far these may be off."""
    known = values
    if _demanded(values):
        known = {name: value for name, value in values.items() if name not in THROUGHPUT_METRICS}
    result = class_intervals(known, metrics.provenance[i : i + 1], metrics.spread)
    if "watts_per_chip" in result:
        result["watts_per_chip"] = _within_power(metrics, i, result["watts_per_chip"])
    result |= quality_intervals(metrics.quality, i, values, metrics.formats)
    if any(values.get(name) is not None for name in OF_TRAINING):
        result |= study_intervals(values, result)
    return result


def class_intervals(
    values: Mapping[str, Any], provenance: NDArray[np.intp], spread: Spread
) -> dict[str, list[float]]:
    """The 80% interval, [low, high], of every metric that has one by how its kernels are known,
    (1,)."""
    found = {}
    for metric in CLASS:
        if (value := values.get(metric)) is not None:
            low, high = interval(metric, np.array([value]), provenance, spread)
            found[metric] = [float(low[0]), float(high[0])]
    return found


def _demanded(values: Mapping[str, Any]) -> bool:
    """Whether arrivals below capacity set the rate."""
    return values["utilisation"] is not None and values["utilisation"] < 1.0


def _provenance(
    values: Mapping[str, Any], kind: str, extrapolates: Sequence[str]
) -> dict[str, str]:
    """How each metric is known: by kernel efficiencies of that kind, by a fitted law, by count.
    The dense equivalent is that of the loss before the weights are quantised."""
    known = dict.fromkeys(CLASS, kind)
    if _demanded(values):
        known |= dict.fromkeys(THROUGHPUT_METRICS, "derived")
    known |= dict.fromkeys((*ENERGY_METRICS, *POWER_METRICS), "assumed")
    known |= dict.fromkeys((name for name in (*OF_TRAINING, *OF_LIFE) if name in values), "assumed")
    known["latency_floor_s"] = "derived"
    for counted in ("total_parameters", "active_parameters", "kv_bytes_per_token"):
        known[counted] = "derived"
    known |= {asked: "derived" for asked in ASKED if asked in values}
    if values["predicted_loss"] is not None:
        own = [name for name in extrapolates if name not in FIT]
        known["predicted_loss"] = "extrapolated" if extrapolates else "fitted"
        known["dense_equivalent_parameters"] = "extrapolated" if own else "fitted"
    return known


def describe_deployment(batch: CandidateBatch, i: int, machines: Machines) -> dict[str, Any]:
    """The deployment of candidate `i` under the names of the command line."""
    degrees = {
        name: whole(getattr(batch, name)[i])
        for name in (
            "chips", "tensor_parallel", "pipeline_parallel", "data_parallel",
            "expert_parallel", "replicas", "concurrency",
        )
    }  # fmt: skip
    for name in EXPERT_AXES:
        given = getattr(batch, name)
        if given is not None:
            degrees[name] = given[i].item()
    if batch.offload_tier is not None:
        for name in OFFLOAD_AXES[:2]:
            given = getattr(batch, name)
            degrees[name] = 0.0 if given is None else given[i].item()
        degrees["offload_tier"] = TIERS[batch.offload_tier[i]]
    for name in (DRAFT_AXIS, CAP_AXIS):
        given = getattr(batch, name)
        if given is not None and not np.isnan(given[i]):
            degrees[name] = whole(given[i])
    if batch.domain is not None:
        degrees[DOMAIN_AXIS] = whole(batch.domain[i])
    dtypes = {part: DTYPES[batch.weight_dtype[part][i]] for part in WEIGHT_PARTS}
    main = dtypes["experts"] if batch.sparse[i] else dtypes["mlp"]
    return {
        "chip": machines.ids[batch.chip[i]],
        **degrees,
        **({} if batch.backend is None else {"backend": machines.backends[batch.backend[i]].id}),
        "weight_dtype": main,
        "weight_dtypes": dtypes,
        "kv_dtype": DTYPES[batch.kv_dtype[i]],
    }


def describe_pools(prefill: dict[str, Any], decode: dict[str, Any], held: float) -> dict[str, Any]:
    """The deployment of separate pools: that of the decode pool, whose `concurrency` is over both,
    with `chips` of both, the requests `held` that a decode worker decodes at once, and the
    `prefill` pool in it."""
    first = {name: value for name, value in prefill.items() if name not in OF_DECODE}
    of_both = {
        "chips": prefill["chips"] + decode["chips"],
        "decode_chips": decode["chips"],
        HELD: whole(held),
    }
    return {**decode, **of_both, "prefill": first}


HELD = "decode_concurrency"  # requests of a decode worker
OF_DECODE = ("concurrency", DRAFT_AXIS, CAP_AXIS)


def pools_of(deployment: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """(prefill, decode), the deployments of separate pools, both with the requests in flight over
    both; None where one pool does both phases."""
    if not deployment.get("prefill"):
        return None
    both = ("prefill", "chips", HELD)
    own = {name: value for name, value in deployment.items() if name not in both}
    own["chips"] = own.pop("decode_chips")
    return {**deployment["prefill"], "concurrency": deployment["concurrency"]}, own


def check_domain(catalog: Catalog, chip: str) -> None:
    """Raises InputError for a chip whose scale-up domain cannot be varied."""
    reason = refusal(chip, catalog.systems[catalog.chip(chip).system])
    if reason is not None:
        accepted = "a chip behind switches, such as h200_sxm or gb200_nvl72"
        raise InputError(reason, field="--set scale_up_domain", accepted=accepted)


def domain_assumptions(
    system: System, domain: float, rack: Rack | None, group: float = 1.0
) -> list[str]:
    """What a domain of `domain` chips rests on, a sentence each; `group` chips share a layer."""
    inner = system.levels[0]
    size = "any number" if inner.size is None else f"{inner.size}"
    sentences = [
        f"a scale-up domain of {domain:g} chips is hypothetical: {system.id} has {size}, and the "
        f"latency and bandwidth of its {inner.name} are taken to stay"
    ]
    if group > domain and group % domain > 0.0:
        sentences.append(
            f"{domain:g} does not divide the {group:g} chips that share a layer: the last domain "
            "is counted as full"
        )
    if rack is None:
        return [*sentences, "no rack was named: that such a domain can be built is not checked"]
    label = "hypothetical rack" if rack.hypothetical else "rack"
    count = len(rack.assumed)
    return [
        *sentences,
        f"the domain stands in the {label} {rack.id}, {count} of whose {len(rack.figures)} figures "
        f"are assumed (dse catalog racks show {rack.id})",
    ]


def study_rack(machines: Machines) -> dict[str, Any]:
    """What a study says of its rack: `named` finds it again; `chips` says of every chip where its
    domain ends and what stops it there; `sentences` say the same."""
    rack = machines.racks[0]
    rows = [rack_row(one) for one in machines.racks]
    chips = [
        {
            "chip": chip,
            "largest": row["largest"],
            "bound": row["bound"],
            "meaning": MEANINGS.get(row["bound"] or ""),
        }
        for chip, row in zip(machines.ids, rows, strict=True)
    ]
    return {
        "id": rack.id,
        "name": rack.name,
        "named": rack.id if Path(rack.file) == shipped_racks().get(rack.id) else rack.file,
        "hypothetical": rack.hypothetical,
        "chips": chips,
        "sentences": [
            f"The scale-up domain is hypothetical and stands in the "
            f"{'hypothetical ' if rack.hypothetical else ''}rack {rack.id}: {rack.name}.",
            *(f"On {row['chip']} {end_words(row)}." for row in chips),
        ],
    }


def end_words(row: Mapping[str, Any]) -> str:
    """`it ends at 104 chips, stopped by rack_cable_reach`, of what `rack_row` gives."""
    if row["bound"] is None:
        return f"nothing stops it up to {row['largest']:,} chips"
    return f"it ends at {row['largest']:,} chips, stopped by {row['bound']}"


def rack_row(rack: Rack) -> dict[str, Any]:
    """What a rack is, and where its domain ends."""
    largest, bound = largest_domain(rack)
    return {
        "id": rack.id,
        "name": rack.name,
        "hypothetical": rack.hypothetical,
        "chip": rack.chip,
        "domain": rack.domain,
        "racks_per_domain": rack.racks,
        "chips_per_tray": rack.tray_chips,
        "cable": rack.cables.kind if rack.cables else None,
        "largest": largest,
        "bound": bound,
    }


def bound_columns(rack: Rack) -> dict[str, list[Any]]:
    """What bounds the domain of a rack, a row for each of BOUNDS, by keys of the vocabulary.

    `rack_use` is used / limit of the product's domain, `next_breaks` that of the largest domain
    and one tray (NaN where that breaks nothing). `bound_chips` is the largest domain if no other
    bound existed, `one_stage_chips` if also one stage of switches joined any number (NaN: no
    end up to `dse.physics.racks.MOST_CHIPS`).
    """
    after = largest_domain(rack)[0] + rack.tray_chips
    use = rack_use(rack, np.array([float(rack.domain), float(after)]))

    def alone(within: Rack) -> list[float]:
        ends = (largest_domain(within, (name,)) for name in BOUNDS)
        return [math.nan if broken is None else largest for largest, broken in ends]

    return {
        "rack_bound": list(BOUNDS),
        "bound_meaning": [MEANINGS[name] for name in BOUNDS],
        "rack_use": [float(use[name][0]) for name in BOUNDS],
        "next_breaks": [float(u) if u > 1.0 else math.nan for u in (use[n][1] for n in BOUNDS)],
        "bound_chips": alone(rack),
        "one_stage_chips": alone(replace(rack, stage_chips=math.inf)),
    }


# What is said of a predicted loss: its law, where that was fitted, how far from compute-optimal.

LEAST_NATS = 5e-5  # of the loss, below which nothing is said of it
# Numbers of `describe_quality`.
OVERTRAINING = ("compute_optimal_tokens", "overtraining_ratio", "loss_given_up")


def describe_quality(metrics: Metrics, i: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of candidate `i`, whose metrics are `values`: the law, the nats that quantising adds (and,
    where one of the batch was trained in a narrow format or keeps a narrow cache, those that this
    adds), how far it is over-trained, and in what it lies outside the law's data. Numbers are null
    and lists empty where no loss is predicted."""
    asked = {
        "training_format_loss": (metrics.formats.training, metrics.formats.narrow.any()),
        "cache_format_loss": (metrics.formats.cached, metrics.formats.cached.any()),
    }
    more = {name: nats for name, (nats, present) in asked.items() if present}
    if values["predicted_loss"] is None:
        return {
            "quality_law": metrics.quality.law,
            "quantisation_loss": None,
            **dict.fromkeys(more),
            **dict.fromkeys(OVERTRAINING),
            "extrapolates": [],
            "at_bounds": [],
        }
    quality, formats = metrics.quality, metrics.formats
    added = float(formats.deployed[i])
    outside = [name for name, flags in quality.extrapolates.items() if flags[i]]
    if added > 0.0:
        sizes = (quality.quantised_parameters[i : i + 1], np.array([values["training_tokens"]]))
        outside += [
            name
            for (name, known), size in zip(FIT.items(), sizes, strict=True)
            if known.excludes(size)[0]
        ]
    return {
        "quality_law": quality.law,
        "quantisation_loss": added,
        **{name: float(nats[i]) for name, nats in more.items()},
        **describe_overtraining(quality, i, values["training_tokens"]),
        "extrapolates": sorted(outside),
        "at_bounds": sorted(name for name, flags in quality.at_bound.items() if flags[i]),
    }


def describe_overtraining(quality: Quality, i: int, tokens: float) -> dict[str, float | int | None]:
    """Compute-optimal tokens at the training compute of candidate `i`, its own over these, and the
    nats that this gives up."""
    found = overtraining(quality.terms.row(i), np.array([tokens]))
    amounts = (found.compute_optimal_tokens, found.ratio, found.loss_given_up)
    return {name: number(amount[0]) for name, amount in zip(OVERTRAINING, amounts, strict=True)}


def fit_ranges(law: str, *, quantised: bool = False) -> dict[str, list[float]]:
    """{quantity: [low, high]} of what a law was fitted on, and of what the penalty was that weights
    `quantised` after training pay."""
    ranges = {**LAWS[law].fit, **(FIT if quantised else {})}
    return {name: [known.low, known.high] for name, known in ranges.items()}


def quality_intervals(
    quality: Quality, i: int, values: Mapping[str, Any], formats: FormatLoss
) -> dict[str, list[float]]:
    """80% intervals of loss and dense equivalent: the latter is off by `EQUIVALENT_FACTOR`, and the
    former what the law's dense form makes of that or, with runs of one's own, what these leave, and
    independent of it what number formats may add. Empty where there is no dense equivalent."""
    equivalent, tokens = values["dense_equivalent_parameters"], values["training_tokens"]
    if equivalent is None or values["predicted_loss"] is None:
        return {}
    loss, doubt = values["predicted_loss"], quality.doubt
    if doubt is not None:
        # By the posterior of one's own runs: a dense equivalent is as far off as the exponent of
        # the leverage makes it, and besides as that of a dense model is.
        ends = P90 * float(doubt.sd[i])
        by_leverage = P90 * float(doubt.posterior.sd[LEVERAGE] * doubt.leverage[i])
        factor = math.exp(math.hypot(math.log(EQUIVALENT_FACTOR["dense"]), by_leverage))
        return {
            "predicted_loss": _with_formats(loss, loss - ends, loss + ends, formats, i),
            "dense_equivalent_parameters": [equivalent / factor, equivalent * factor],
        }
    dense = LAWS[quality.law].dense
    sparse = quality.efficiency_leverage[i] > 1.0
    factor = EQUIVALENT_FACTOR["sparse" if sparse else "dense"]
    ends = np.array([equivalent * factor, equivalent / factor])
    losses = dense(ends, np.array([tokens, tokens])).loss
    losses += loss - dense(np.array([equivalent]), np.array([tokens])).loss
    return {
        "predicted_loss": _with_formats(loss, float(losses[0]), float(losses[1]), formats, i),
        "dense_equivalent_parameters": [float(ends[1]), float(ends[0])],
    }


def _with_formats(loss: float, low: float, high: float, formats: FormatLoss, i: int) -> list[float]:
    """The ends of an interval of the loss, with what number formats may add, independent of it."""
    least, most = formats.interval(i)
    if most > 0.0:
        added = float(formats.added[i])
        low = loss - math.hypot(loss - low, added - least)
        high = loss + math.hypot(high - loss, most - added)
    return [low, high]


# Of a loss, what the number formats of training and serving add.
ADDED = {
    "training_format_loss": "training in a narrow format",
    "quantisation_loss": "quantising the weights after training",
    "cache_format_loss": "a cache in 4 bits",
}


def quality_words(answer: Mapping[str, Any]) -> list[str]:
    """Sentences on the predicted loss of an answer of `dse estimate --json`; none without one."""
    if answer.get("predicted_loss") is None:
        return []
    name = answer.get("quality_law", DEFAULT)
    where = "inside what it was fitted on"
    if answer["extrapolates"]:
        known = fit_ranges(name, quantised=True)
        outside = [_outside(quantity, *known[quantity]) for quantity in answer["extrapolates"]]
        where = f"it extrapolates in {listed(outside)}"
    if answer["at_bounds"]:
        where += f"; {listed(answer['at_bounds'])} held at the end of the range".replace("_", " ")
    words = [f"Loss by the quality law {name} (docs/quality.md): {where}."]
    added = [
        f"{answer[key]:.4f} nats from {what}"
        for key, what in ADDED.items()
        if (answer.get(key) or 0.0) >= LEAST_NATS
    ]
    words += [f"Of it number formats add {listed(added)}."] if added else []
    if answer.get("overtraining_ratio") is not None:
        words.append(overtraining_words(answer))
    return words


def _outside(quantity: str, low: float, high: float) -> str:
    """`training tokens (fitted on 820M to 318B)`."""
    ends = (f"{end:.0e}".replace("e+", "e") if end >= 1e15 else amount(end) for end in (low, high))
    return f"{quantity.replace('_', ' ')} (fitted on {' to '.join(ends)})"


def overtraining_words(answer: Mapping[str, Any]) -> str:
    """`Trained on 15T tokens, 11 times the compute-optimal 1.3T of its training compute: 0.01
    nats given up for a smaller model.`"""
    ratio, tokens = answer["overtraining_ratio"], answer["training_tokens"]
    best = answer["compute_optimal_tokens"]
    side = "a smaller" if ratio >= 1.0 else "a larger"
    return (
        f"Trained on {amount(tokens)} tokens, {significant(ratio, 2)} times the compute-optimal "
        f"{amount(best)} of its training compute: {answer['loss_given_up']:.4f} nats given up for "
        f"{side} model."
    )
