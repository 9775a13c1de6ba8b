"""Where time and memory of one point go, from the ledgers that its metrics were summed from."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.answer.answer import Figure
from dse.answer.bars import share_bars
from dse.answer.numbers import bytes_, time
from dse.physics.intervals import interval
from dse.physics.ledger import Entry, Ledger
from dse.problem.evaluate import MEMORY_PARTS, Metrics
from dse.record import record
from dse.schema.calibration import KINDS

MOST = 8  # operators of a decode step that stand alone in its picture
BOUNDS = ("compute", "memory", "network", "fixed")


def _bound(entry: Entry, i: int) -> str:
    parts = (entry.compute_s[i], entry.memory_s[i], entry.network_s[i], entry.fixed_s[i])
    return BOUNDS[max(range(len(parts)), key=lambda k: abs(parts[k]))]


@record
class _Work:
    """One operator of one candidate; blocks that run the same operator are added."""

    seconds: float = 0.0
    bound: str = "fixed"
    flops: float = 0.0
    bytes: float = 0.0
    peak_s: float = 0.0

    @property
    def peak_flops_per_s(self) -> float | None:
        """Dense peak of the arithmetic that it runs on; None without arithmetic."""
        return self.flops / self.peak_s if self.peak_s else None


def _by_operator(ledger: Ledger, i: int) -> dict[str, _Work]:
    assert ledger.entries is not None, "the evaluation kept no entries"
    table: dict[str, _Work] = {}
    for entry in ledger.entries:
        seconds = float(entry.seconds[i])
        before = table.get(entry.name, _Work(bound=_bound(entry, i)))
        table[entry.name] = _Work(
            before.seconds + seconds,
            before.bound if before.seconds > seconds else _bound(entry, i),
            before.flops + float(entry.flops[i]),
            before.bytes + float(entry.bytes[i]),
            before.peak_s + float(entry.peak_s[i]),
        )
    return table


def where_figures(metrics: Metrics) -> tuple[Figure, Figure]:
    """Where a decode step of candidate 0 goes, the longest operators first, and the memory of a
    chip. `metrics` kept their entries."""
    where = breakdown(metrics, 0)
    step, held = where["decode_step_s"], where["capacity_bytes"]
    rows = sorted(where["breakdown"], key=lambda row: -row["decode_s"])
    shares = {row["operator"]: row["decode_s"] / step for row in rows[:MOST] if row["decode_s"]}
    if rest := sum(row["decode_s"] for row in rows[MOST:]):
        shares["others"] = rest / step
    parts = {row["part"].replace("_", " "): row["bytes"] / held for row in where["memory"]}
    parts = {part.replace("kv", "KV"): share for part, share in parts.items() if share}
    takes = f"Where a decode step of {time(step)} goes"
    if "breakdown_of" in where:
        takes += f" ({where['breakdown_of']})"
    holds = f"What a chip's memory of {bytes_(held)} holds"
    return (
        share_bars("decode-step", takes, "the step", shares),
        share_bars("memory-bar", holds, "the memory", parts),
    )


def breakdown(metrics: Metrics, i: int) -> dict[str, Any]:
    """Operators of one prompt's prefill chunk and of one decode step, in the order they run, with
    the flops and bytes of one chip in each; the bytes that the busiest chip holds by part; the
    chip's bandwidth; what each cause would take by itself in either phase (`parts_s`: they overlap,
    so their sum exceeds the phase). Of a mix, all this under the workload that takes most
    chip-seconds."""
    members, (metrics, i) = metrics.at(i)[0].members, metrics.heaviest(i)
    under = [member.name for member in members if member.metrics is metrics]
    performance = metrics.performance
    prefill = _by_operator(performance.detail.prefill_ledger, i)
    decode = _by_operator(performance.detail.decode_ledger, i)
    prefill = {name: prefill.get(name, _Work()) for name in decode}  # drafts: decode alone
    kind = KINDS[metrics.provenance[i]]
    operators = [
        {
            "operator": name,
            "prefill_s": prefill[name].seconds,
            "decode_s": decode[name].seconds,
            "prefill_bound": prefill[name].bound,
            "bound": decode[name].bound,
            "efficiency": kind,
            **{
                f"{phase}_{key}": getattr(table[name], key)
                for phase, table in (("prefill", prefill), ("decode", decode))
                for key in ("flops", "bytes", "peak_flops_per_s")
            },
        }
        for name in decode
        if prefill[name].seconds or decode[name].seconds
    ]
    deployed = performance.detail.decode_ledger.deployed
    device = float(performance.detail.decode_ledger.seconds[i])
    step = float(performance.decode_step_s[i])
    if step > device:
        operators.append(
            {
                "operator": "host and gap between steps",
                "prefill_s": 0.0,
                "decode_s": step - device,
                "prefill_bound": "fixed",
                "bound": "fixed",
                "efficiency": "fitted",
            }
        )
    values = metrics.values
    kinds = metrics.provenance[i : i + 1]
    low, high = interval("decode_step_s", np.array([step]), kinds, metrics.spread)
    return {
        **({"breakdown_of": under[0]} if under else {}),
        "breakdown": operators,
        "parts_s": {
            phase: {
                cause: float(getattr(ledger, f"{cause}_s")[i]) + extra * (cause == "fixed")
                for cause in BOUNDS
            }
            for phase, ledger, extra in (
                ("prefill", performance.detail.prefill_ledger, 0.0),
                ("decode", performance.detail.decode_ledger, step - device),
            )
        },
        "memory": [
            {"part": part, "bytes": float(values[f"memory_{part}_bytes_per_chip"][i])}
            for part in MEMORY_PARTS
        ],
        "capacity_bytes": float(values["memory_capacity_bytes_per_chip"][i]),
        "hbm_bytes_per_s": float(1.0 / deployed.floor_s_per_byte[i]),
        "floor_s": float(values["latency_floor_s"][i]),
        "decode_step_s": step,
        "decode_step_interval": [float(low[0]), float(high[0])],
        "prefill_s": float(values["prefill_s"][i]),
    }
