"""Disaggregated prefill and decode: two pools, each estimated alone, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.physics.disaggregated import Disaggregated, link_known, predict_disaggregated
from dse.physics.intervals import CLASS, ENERGY_METRICS, LABEL, POWER_METRICS, interval
from dse.physics.ledger import Ledger
from dse.physics.serving import BOTTLENECKS
from dse.physics.workload import Workload
from dse.problem.describe import describe_deployment, number, violations
from dse.problem.mix import load_row, one_load, whole
from dse.problem.pools import RULES, pool_dollars, pool_joules
from dse.questions.estimate.point import Estimate
from dse.questions.estimate.running import pool_words
from dse.schema.calibration import KINDS
from dse.space.candidates import Floats

# The rate of separate pools is found by steps: what it exceeds a limit by.
SMALL = 1e-3
TIMES = (
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "queue_s",
    "prefill_s",
    "transfer_s",
    "decode_step_s",
    "output_tokens_per_s",
    "running_requests",
    "latency_floor_s",
    "mfu",
    "mbu",
)


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
    values = {name: number(getattr(found, name)[0]) for name in TIMES}
    values["running_requests"] = round(float(found.running_requests[0]))
    values |= _money(prefill, decode, found, load)
    rate = float(found.output_tokens_per_s[0])
    chips = float(prefill.batch.chips[0] + decode.batch.chips[0])
    values["output_tokens_per_s_per_chip"] = rate / chips
    values["output_tokens_per_s_per_user"] = 1.0 / float(found.tpot_s[0])
    values["chips"] = round(chips)
    broken = [
        {**row, "constraint": f"{pool} {row['constraint']}"}
        for pool, one in (("prefill", prefill), ("decode", decode))
        for row in violations(one.metrics, 0)
    ]
    broken += _shared(prefill, decode, found) + _limits(decode, values)
    worst = np.maximum(prefill.metrics.provenance, decode.metrics.provenance)
    kind = KINDS[int(worst[0])]
    first = _pool(prefill, "prefill", found.prefill_ledger, found.prefill_s, np.ones(1))
    first["utilisation"] = number(found.utilisation[0])
    rows = np.ceil(found.decode_workers.running / decode.batch.data_parallel)
    second = _pool(decode, "decode", found.decode_ledger, found.decode_step_s, rows)
    second["deployment"]["concurrency"] = whole(found.in_flight[0])
    larger = first if prefill.batch.chips[0] > decode.batch.chips[0] else second
    intervals = {}
    for metric in CLASS:
        value = values.get(metric)
        if value is not None:
            low, high = interval(metric, np.array([value]), worst, decode.metrics.spread)
            intervals[metric] = [float(low[0]), float(high[0])]
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


def _shared(prefill: Estimate, decode: Estimate, found: Disaggregated) -> list[dict[str, Any]]:
    """What the two pools together break of `dse.problem.pools.RULES`."""
    amounts = {
        "pools_share_cache_format": float(prefill.batch.kv_dtype[0] != decode.batch.kv_dtype[0]),
        "pools_carry_cache": float(found.sending[0]) - 1.0,
    }
    return [
        {"constraint": name, "amount": amount, "meaning": RULES[name], "found": ""}
        for name, amount in amounts.items()
        if amount > SMALL
    ]


def _limits(decode: Estimate, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The limits of a study that both pools together break."""
    rows = []
    for limit in decode.limits:
        value = values.get(limit.metric, number(decode.metrics.values[limit.metric][0]))
        amount = 1.0 if value is None else limit.sign * (value - limit.limit) / abs(limit.limit)
        if amount > SMALL:
            rows.append(
                {
                    "constraint": limit.text,
                    "amount": amount,
                    "meaning": "limit",
                    "metric": limit.metric,
                    "value": value,
                }
            )
    return rows


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


def _money(
    prefill: Estimate, decode: Estimate, found: Disaggregated, load: Workload
) -> dict[str, float | None]:
    """Dollars and joules of both pools (`dse.problem.pools`)."""
    first, second = (one.machines.usd_per_chip_hour[one.batch.chip] for one in (prefill, decode))
    values = pool_dollars(found, first, second, load) | pool_joules(
        found, found.prefill_workers, found.decode_workers, found.inside
    )
    return {name: number(value[0]) for name, value in values.items()}
