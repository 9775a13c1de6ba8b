"""Disaggregated prefill and decode: two pools, each estimated alone, put together."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.economics.cost import cost
from dse.economics.energy import joules_per_output_token
from dse.perf.disaggregated import Disaggregated, predict_disaggregated
from dse.perf.intervals import CLASS, interval
from dse.study.describe import describe_deployment, number
from dse.study.estimate import Estimate
from dse.study.loads import load_row, one_load

TIMES = (
    "ttft_s", "tpot_s", "queue_s", "prefill_s", "transfer_s", "decode_step_s",
    "output_tokens_per_s", "running_requests", "latency_floor_s",
)  # fmt: skip


def pools(prefill: Estimate, decode: Estimate) -> dict[str, Any]:
    """The document of `dse estimate --serving disaggregated --json`: the metrics of both pools
    together under the names of one, and each pool's deployment and memory. The concurrency is that
    of `decode`; its workload is the one served."""
    load = decode.mix[0].workload
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(
            prefill.batch, decode.batch, load, prefill.machines, decode.machines
        )
    values = {name: number(getattr(found, name)[0]) for name in TIMES}
    values |= _money(prefill, decode, found, load.prompt_tokens, load.output_tokens)
    rate = float(found.output_tokens_per_s[0])
    chips = float(prefill.batch.chips[0] + decode.batch.chips[0])
    values["output_tokens_per_s_per_chip"] = rate / chips
    values["output_tokens_per_s_per_user"] = 1.0 / float(found.tpot_s[0])
    violations = [
        {"constraint": f"{pool} {row['constraint']}", **{k: row[k] for k in ("amount", "meaning")}}
        for pool, one in (("prefill", prefill), ("decode", decode))
        for row in one.as_json()["violations"]
    ]
    worst = np.maximum(prefill.metrics.provenance, decode.metrics.provenance)
    intervals = {}
    for metric in CLASS:
        value = values.get(metric)
        if value is not None:
            low, high = interval(metric, np.array([value]), worst, decode.metrics.spread)
            intervals[metric] = [float(low[0]), float(high[0])]
    return {
        **values,
        "prefill_pool": _pool(prefill) | {"utilisation": number(found.utilisation[0])},
        "decode_pool": _pool(decode),
        "feasible": not violations,
        "violations": violations,
        "intervals": intervals,
        "assumed": list(dict.fromkeys([*prefill.assumed, *decode.assumed])),
        "model": decode.model.name,
        "workload": (one_load([load_row(share) for share in decode.mix]) or {})
        | {"serving": "disaggregated"},
        "price_basis": decode.price_basis,
    }


def _pool(one: Estimate) -> dict[str, Any]:
    memory = one.metrics.performance.memory
    return {
        "deployment": describe_deployment(one.batch, 0, one.machines),
        "memory_base_bytes_per_chip": number(memory.base[0]),
        "memory_capacity_bytes_per_chip": number(memory.capacity[0]),
    }


def _money(
    prefill: Estimate, decode: Estimate, found: Disaggregated, prompt: Any, output: Any
) -> dict[str, float | None]:
    """Each pool at the price of its own chips: prefill on the input, decode on the output."""
    usd, joules = [], []
    none = np.zeros(1)
    for one, seconds in ((prefill, found.prefill_chip_s), (decode, found.decode_chip_s)):
        chip, machines = one.batch.chip, one.machines
        parts = (seconds, none) if one is prefill else (none, seconds)
        usd.append(cost(*parts, prompt, output, machines.usd_per_chip_hour[chip]))
        joules.append(
            joules_per_output_token(
                one.batch.chips, machines.tdp_w[chip], found.output_tokens_per_s
            )
        )
    names = (
        "usd_per_million_input_tokens", "usd_per_million_output_tokens",
        "usd_per_million_total_tokens", "usd_per_million_output_tokens_all_in",
    )  # fmt: skip
    values = {name: number(sum(getattr(one, name)[0] for one in usd)) for name in names}
    return values | {"joules_per_output_token": number(joules[0][0] + joules[1][0])}
