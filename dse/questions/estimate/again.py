"""A point again: one of a study from what the study wrote of it, the same on every other chip, two
pools put together, and why a front lacks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.tco import with_basis
from dse.errors import InputError, NothingFeasible
from dse.physics.disaggregated import Disaggregated, link_known, predict_disaggregated
from dse.physics.intervals import ENERGY_METRICS, LABEL, POWER_METRICS
from dse.physics.ledger import Ledger
from dse.physics.serving import BOTTLENECKS
from dse.problem.describe import (
    HELD,
    class_intervals,
    describe_deployment,
    limits_of,
    number,
    pools_of,
    violations,
)
from dse.problem.mix import held, load_row, loads_of, mix_of, one_load, whole
from dse.problem.objective import KNOWN, PhysicsProblem
from dse.problem.pools import OF_MET, RULES, pool_dollars, pool_joules
from dse.problem.shapes import model_at
from dse.problem.training import trained_again
from dse.problem.words import SHAPE_KEY, deployment_words, short_shape, violation_words
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS
from dse.questions.estimate.point import Estimate, estimate, pool_words
from dse.rules.registry import MEANINGS
from dse.schema.backend import KINDS
from dse.schema.costs import costs_of
from dse.schema.dtypes import DTYPES
from dse.schema.loss_runs import runs_again
from dse.schema.metrics import Limit
from dse.schema.model import config_of, model_of
from dse.schema.system import load_rack, resolve_rack
from dse.schema.traffic import Demand
from dse.space.candidates import Floats
from dse.study.folder import FRONT, item_of, read_study

if TYPE_CHECKING:
    from dse.search.run import Result

# The rate of separate pools is found by steps: what it exceeds a limit by.
SMALL = 1e-3
TIMES = (*OF_MET, "queue_s", "transfer_s", "latency_floor_s", "mfu", "mbu")


def estimate_again(
    folder: Path, point: str, catalog: Catalog, *, keep: bool = False, law: str | None = None
) -> Estimate:
    """Evaluates point `point` (a number of front.csv or a chosen name) with today's model, under
    the study's quality law or another one, with what the study was made with beneath the catalog.

    Raises InputError for a folder that is no study and for a point that does not exist.
    """
    study, items = read_study(folder)
    item = item_of(items, point, folder)
    return estimate_item(study, item, f"{folder / FRONT}", catalog, keep=keep, law=law)


def estimate_item(
    study: dict,
    item: dict,
    source: str,
    catalog: Catalog,
    *,
    keep: bool = False,
    law: str | None = None,
) -> Estimate:
    """The same for an item of front.json; of separate pools, the decode pool with its `prefill`."""
    catalog = catalog.over(study)
    costs = costs_of(study["costs"]) if study.get("costs") else None
    for basis in {study["price_basis"], (study.get("training") or study)["price_basis"]}:
        catalog = with_basis(catalog, basis, costs)
    rack = study.get("rack")
    model = model_of(item["model"], source)
    limits = limits_of(study)
    runs = study.get("loss_runs")

    def one(deployment: Mapping[str, Any], limits: tuple[Limit, ...]) -> Estimate:
        dtype = deployment["weight_dtype"]
        return estimate(
            catalog,
            model,
            deployment["chip"],
            mix_of(loads_of(study), catalog.backends),
            deployment,
            weight_dtype=None if dtype not in DTYPES else dtype,
            kv_dtype=deployment["kv_dtype"],
            price_basis=study["price_basis"],
            limits=limits,
            keep=keep,
            rack=rack and load_rack(resolve_rack(rack["named"])),
            law=law or study.get("quality_law", DEFAULT),
            runs=runs and runs_again(runs),
            unique_tokens=study.get("unique_tokens", UNIQUE_TOKENS),
            trained=trained_again(study, catalog),
            demand=Demand(**demand) if (demand := study.get("demand")) else None,
        )

    pools = pools_of(item["deployment"])
    if pools is None:
        answer = one(item["deployment"], limits)
    else:  # limits are on both together
        held = item["deployment"].get(HELD)
        answer = replace(one(pools[1], ()), prefill=one(pools[0], ()), held=held, limits=limits)
    return replace(answer, assumed=(*answer.assumed, f"from {source}, point {item['point']}"))


# Two pools, each estimated alone, put together.


def pools(prefill: Estimate, decode: Estimate) -> dict[str, Any]:
    """The document of `dse estimate --serving disaggregated --json`: the metrics of both pools
    together under the names of one, and each pool's deployment and memory. The concurrency is that
    of `decode`; its workload is the one served. `bottleneck` is that of the larger pool. Raises
    InputError where a chip has no bandwidth of the link that the cache crosses."""
    load = decode.mix[0].workload
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(
            prefill.batch,
            decode.batch,
            load,
            prefill.machines,
            decode.machines,
            None if decode.held is None else np.array([decode.held]),
        )
    link = _link(prefill, decode, found)
    prices = [one.machines.usd_per_chip_hour[one.batch.chip] for one in (prefill, decode)]
    chips = prefill.batch.chips + decode.batch.chips
    metrics: dict[str, Floats] = {
        **{name: getattr(found, name) for name in TIMES},
        **pool_dollars(found, prices[0], prices[1], load),
        **pool_joules(found, found.prefill_workers, found.decode_workers, found.inside),
        "output_tokens_per_s_per_chip": found.output_tokens_per_s / chips,
        "output_tokens_per_s_per_user": 1.0 / found.tpot_s,
        "chips": chips,
    }
    values = {name: number(value[0]) for name, value in metrics.items()}
    values |= {name: round(float(metrics[name][0])) for name in ("running_requests", "chips")}
    broken = [
        {**row, "constraint": f"{pool} {row['constraint']}"}
        for pool, one in (("prefill", prefill), ("decode", decode))
        for row in violations(one.metrics, 0)
    ]
    shared = {
        "pools_share_cache_format": float(prefill.batch.kv_dtype[0] != decode.batch.kv_dtype[0]),
        "pools_carry_cache": float(found.sending[0]) - 1.0,
    }
    broken += [
        {"constraint": name, "amount": amount, "meaning": RULES[name], "found": ""}
        for name, amount in shared.items()
        if amount > SMALL
    ]
    for limit in decode.limits:  # of a study, on both pools together
        value = values.get(limit.metric, number(decode.metrics.values[limit.metric][0]))
        amount = 1.0 if value is None else limit.sign * (value - limit.limit) / abs(limit.limit)
        row = {"constraint": limit.text, "amount": amount, "meaning": "limit"}
        if amount > SMALL:
            broken.append(row | {"metric": limit.metric, "value": value})
    worst = np.maximum(prefill.metrics.provenance, decode.metrics.provenance)
    kind = KINDS[int(worst[0])]
    first = _pool(prefill, "prefill", found.prefill_ledger, found.prefill_s, np.ones(1))
    first["utilisation"] = number(found.utilisation[0])
    rows = np.ceil(found.decode_workers.running / decode.batch.data_parallel)
    second = _pool(decode, "decode", found.decode_ledger, found.decode_step_s, rows)
    second["deployment"]["concurrency"] = whole(found.in_flight[0])
    larger = first if prefill.batch.chips[0] > decode.batch.chips[0] else second
    intervals = class_intervals(values, worst, decode.metrics.spread)
    # As of one pool: no measured row has energy.
    energy = dict.fromkeys(
        (name for name in (*ENERGY_METRICS, *POWER_METRICS) if name in intervals), "assumed"
    )
    return {
        **values,
        "prefill_pool": first,
        "decode_pool": second,
        "bottleneck": larger["bottleneck"],
        "feasible": not broken,
        "violations": broken,
        "intervals": intervals,
        "interval_kind": LABEL,
        "provenance": dict.fromkeys(intervals, kind) | energy | {"latency_floor_s": "derived"},
        "assumed": list(
            dict.fromkeys(
                [
                    *pool_words(decode.batch, load, found),
                    link,
                    *prefill.assumed,
                    *decode.assumed,
                ]
            )
        ),
        "model": decode.model.name,
        "workload": (one_load([load_row(share) for share in decode.mix]) or {})
        | {"serving": "disaggregated"},
        "price_basis": decode.price_basis,
        "price_evidence": [
            *decode.priced,
            *(row for row in prefill.priced if row not in decode.priced),
        ],
        **decode.conditions,
    }


def _pool(
    one: Estimate, phase: str, ledger: Ledger, step_s: Floats, requests: Floats
) -> dict[str, Any]:
    """One pool, whose step of `phase` takes `step_s`, with `requests` on each attention rank."""
    memory = one.metrics.performance.memory
    fixed_s = ledger.fixed_s + step_s - ledger.seconds
    parts = [ledger.compute_s, ledger.memory_s, ledger.network_s, fixed_s]
    names = [name for name in BOTTLENECKS if name.startswith(phase)]
    return {
        "deployment": describe_deployment(one.batch, 0, one.machines),
        "bottleneck": names[int(np.argmax([part[0] for part in parts]))],
        "memory_bytes_per_chip": number((memory.base + requests * memory.kv_reserved)[0]),
        "memory_base_bytes_per_chip": number(memory.base[0]),
        "memory_capacity_bytes_per_chip": number(memory.capacity[0]),
    }


def _link(prefill: Estimate, decode: Estimate, found: Disaggregated) -> str:
    """What is assumed of the link that the cache crosses. Raises InputError where its bandwidth is
    not known."""
    before, after = found.prefill_workers, found.decode_workers
    name = "links" if found.inside[0] else "scale-out network"
    chips = prefill.batch.chips + decode.batch.chips
    ids = [one.machines.ids[one.batch.chip[0]] for one in (prefill, decode)]
    for chip, one in zip(ids, (before, after), strict=True):
        if not link_known(one, one, chips, found.inside)[0]:
            raise InputError(
                f"{chip} has no bandwidth_per_direction of {name}, which the cache crosses "
                "between the pools",
                accepted="a chip file of yours with that figure (dse catalog chips new)",
            )
    if ids[0] == ids[1]:
        return f"the cache crosses the {name} of {ids[0]}, not overlapped with the prefill"
    return (
        f"the cache crosses the {name} of {ids[0]} and {ids[1]} at the speed of the slower: that "
        "the two can be joined is assumed; not overlapped with the prefill"
    )


def nothing_feasible(problem: PhysicsProblem, result: Result) -> NothingFeasible:
    """What each constraint removed, and the nearest miss in words, for a search without a front."""
    assert result.miss is not None
    index = problem.space.unrank(np.array([result.miss]))
    metrics, batch = problem.metrics(index), problem.batch(index)
    deployment = describe_deployment(batch, 0, problem.machines)
    if problem.model is not None:
        shape = problem.model.name
    else:
        shape = f"{short_shape(config_of(model_at(batch, 0, '', None)))} ({SHAPE_KEY})"
    lines = [
        f"none of {result.evaluations:,} points is feasible. Removed (by it alone):",
        *(
            f"  {tally.violated:>9,} ({tally.only:,})  {tally.constraint}"
            + (f": {MEANINGS[tally.constraint]}" if tally.constraint in MEANINGS else "")
            for tally in sorted(result.tallies, key=lambda tally: -tally.violated)
            if tally.violated
        ),
        f"The nearest miss: {shape}",
        f"on {deployment_words(deployment, held([load_row(share) for share in problem.mix]))}:",
        *(f"  {violation_words(row)}" for row in violations(metrics, 0, problem.limits)),
        *(
            f"  breaks {KNOWN}: {o.metric} has none, see `dse estimate` of this model and chip"
            for o in problem.objectives
            if np.isnan(metrics.values[o.metric][0])
        ),
    ]
    return NothingFeasible("\n".join(lines))
