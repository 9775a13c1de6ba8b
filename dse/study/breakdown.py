"""Where time and memory of one point go, from the ledgers that its metrics were summed from."""

from __future__ import annotations

from typing import Any

from dse.evaluate import Metrics
from dse.perf.ledger import Entry, Ledger
from dse.perf.machines import KINDS
from dse.study.describe import MEMORY_PARTS

BOUNDS = ("compute", "memory", "network", "fixed")


def _bound(entry: Entry, i: int) -> str:
    parts = (entry.compute_s[i], entry.memory_s[i], entry.network_s[i], entry.fixed_s[i])
    return BOUNDS[max(range(len(parts)), key=parts.__getitem__)]


def _by_operator(ledger: Ledger, i: int) -> dict[str, tuple[float, str]]:
    """Operator -> (seconds, bound); blocks that run the same operator are added."""
    assert ledger.entries is not None, "the evaluation kept no entries"
    table: dict[str, tuple[float, str]] = {}
    for entry in ledger.entries:
        seconds = float(entry.seconds[i])
        before = table.get(entry.name, (0.0, _bound(entry, i)))
        bound = before[1] if before[0] > seconds else _bound(entry, i)
        table[entry.name] = (before[0] + seconds, bound)
    return table


def breakdown(metrics: Metrics, i: int) -> dict[str, Any]:
    """Operators of one prompt's prefill chunk and of one decode step, in the order they run, and
    the bytes of the busiest chip by part."""
    performance = metrics.performance
    prefill = _by_operator(performance.prefill_ledger, i)
    decode = _by_operator(performance.decode_ledger, i)
    kind = KINDS[metrics.provenance[i]]
    operators = [
        {
            "operator": name,
            "prefill_s": prefill[name][0],
            "decode_s": decode[name][0],
            "prefill_bound": prefill[name][1],
            "bound": decode[name][1],
            "efficiency": kind,
        }
        for name in decode
        if prefill[name][0] or decode[name][0]
    ]
    device = float(performance.decode_ledger.seconds[i])
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
    return {
        "breakdown": operators,
        "memory": [
            {"part": part, "bytes": float(values[f"memory_{part}_bytes_per_chip"][i])}
            for part in MEMORY_PARTS
        ],
        "capacity_bytes": float(values["memory_capacity_bytes_per_chip"][i]),
        "floor_s": float(values["latency_floor_s"][i]),
        "decode_step_s": step,
        "prefill_s": float(values["prefill_s"][i]),
    }
