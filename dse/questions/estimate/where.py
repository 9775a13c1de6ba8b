"""Where time, memory, money and energy of one point go: the tables of `dse estimate --detail`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Block, Figure, Notes, Table
from dse.answer.frames import memory_parts, of_rows, share_bars
from dse.answer.numbers import bytes_, plain, power, share, show, time
from dse.physics.intervals import interval
from dse.physics.ledger import Ledger
from dse.problem.evaluate import MEMORY_PARTS, Metrics
from dse.problem.instances import BOUNDS
from dse.schema.backend import KINDS

MOST = 8  # operators of a decode step that stand alone in its picture
# Of an operator that does not run.
NO_WORK: Mapping[str, Any] = {
    **{"s": 0.0, "bound": "fixed", "flops": 0.0, "bytes": 0.0, "peak_s": 0.0},
    "peak_flops_per_s": None,
}
# Level -> what it is, in the order of a table: from the multiplier outwards.
LEVELS = {
    "arithmetic": "multiplying and adding, at most",
    "on_chip": "operands and data inside the chip",
    "memory": "device memory",
    "links": "scale-up links",
    "network": "scale-out network, outside the chip",
    "idle": "drawn with nothing to do",
}
MOVEMENT = ("on_chip", "memory", "links", "network")


def operator_table(where: Mapping[str, Any]) -> Table:
    """Seconds of each operator, and its share of either phase; their sums in the last row."""
    rows = with_total(where["breakdown"], ("prefill_s", "decode_s"), operator="total", bound="")
    notes = []
    if "breakdown_of" in where:
        notes.append(f"Under {where['breakdown_of']}, which takes most of the deployment's time.")
    step, floor = where["decode_step_s"], where["floor_s"]
    notes.append(
        f"A decode step takes {show('tpot_s', step)}, {plain(step / floor)} times its floor on "
        f"these chips ({show('tpot_s', floor)})."
    )
    return of_rows(
        "operators",
        "Where the time goes, operator by operator",
        rows,
        "operator operator_prefill_s=prefill_s operator_prefill_share=prefill_s_share "
        "operator_decode_s=decode_s operator_decode_share=decode_s_share bound",
        *notes,
    )


def with_total(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], **last: str
) -> list[dict[str, Any]]:
    """The rows and the sums of their `keys`, in the `last` row; each with its `KEY_share` of a sum,
    None of nothing."""
    sums = {key: sum(row[key] for row in rows) for key in keys}
    return [
        {**row, **{f"{key}_share": row[key] / all_ if all_ else None for key, all_ in sums.items()}}
        for row in (*rows, {**last, **sums})
    ]


def memory_table(where: Mapping[str, Any]) -> Table:
    """Bytes of each part of a chip's memory, and their share of its capacity, the last row."""
    parts = {row["part"].replace("_", " "): row["bytes"] for row in where["memory"]}
    caption = "Where the memory of a chip goes"
    note = "runtime: what the serving software keeps."
    return memory_parts(parts, where["capacity_bytes"], caption, note)


def energy_table(found: Mapping[str, Any] | None) -> Block:
    """Joules per output token by level and phase; what moves data, and watts, in its notes. Of what
    `energy_breakdown` gives."""
    if found is None:
        return Notes("Energy", ["Energy: the chip has no power figure."])
    rows = [
        row | {"level": row["level"].replace("_", " ")}
        for row in found["joules_per_output_token"]
        if row["joules"]
    ]
    watts, clock = found["watts_per_chip"], found["clock"]
    notes = [
        f"{share(found['data_movement_share'])} of it moves data. A chip draws "
        f"{power(watts['prefill'])} in prefill and {power(watts['decode'])} in a decode step; "
        f"{power(watts['idle'])} idle, at most {power(watts['cap'])}."
    ]
    if clock["decode"] is not None:
        notes.append(
            f"The cap leaves {share(clock['prefill'])} of the clock in prefill and "
            f"{share(clock['decode'])} in a decode step."
        )
    if found["beyond_the_power"] > 0.005:
        notes.append(
            f"The model finds {share(found['beyond_the_power'])} more power than that in a step. "
            "This is its own error, and it is cut off."
        )
    return of_rows(
        "energy",
        "Where the energy of an output token goes",
        with_total(rows, ("prefill", "decode", "joules"), level="total", meaning=""),
        "energy_level=level prefill_j=prefill decode_j=decode joules energy_share=joules_share "
        "energy_meaning=meaning",
        *notes,
    )


def _by_operator(ledger: Ledger, i: int) -> dict[str, dict[str, Any]]:
    """What candidate `i` does in each operator; blocks that run the same operator are added.
    `bound` is the largest part of the longest; `peak_s` its arithmetic at the dense peak."""
    assert ledger.entries is not None, "the evaluation kept no entries"
    table: dict[str, dict[str, Any]] = {}
    for entry in ledger.entries:
        seconds = float(entry.seconds[i])
        row = table.get(entry.name, dict(NO_WORK))
        if entry.name not in table or row["s"] <= seconds:
            row["bound"] = max(BOUNDS, key=lambda cause: abs(getattr(entry, f"{cause}_s")[i]))
        row["s"] += seconds
        for key in ("flops", "bytes", "peak_s"):
            row[key] += float(getattr(entry, key)[i])
        table[entry.name] = row
    for row in table.values():
        row["peak_flops_per_s"] = row["flops"] / row["peak_s"] if row["peak_s"] else None
    return table


def where_figures(where: Mapping[str, Any]) -> tuple[Figure, Figure]:
    """Where a decode step goes, the longest operators first, and the memory of a chip."""
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
    """Of candidate `i` of metrics that kept their entries: operators of one prompt's prefill chunk
    and of one decode step, in the order they run, with the flops and bytes of one chip in each; the
    bytes that the busiest chip holds by part; the chip's bandwidth; what each cause would take by
    itself in either phase (`parts_s`: they overlap, so their sum exceeds the phase). Of a mix, all
    this under the workload that takes most chip-seconds."""
    members, (metrics, i) = metrics.at(i)[0].members, metrics.heaviest(i)
    under = [member.name for member in members if member.metrics is metrics]
    performance = metrics.performance
    prefill = _by_operator(performance.detail.prefill_ledger, i)
    decode = _by_operator(performance.detail.decode_ledger, i)
    prefill = {name: prefill.get(name, NO_WORK) for name in decode}  # drafts: decode alone
    kind = KINDS[metrics.provenance[i]]
    operators = [
        {
            "operator": name,
            "prefill_s": first["s"],
            "decode_s": decode[name]["s"],
            "prefill_bound": first["bound"],
            "bound": decode[name]["bound"],
            "efficiency": kind,
            **{
                f"{phase}_{key}": work[key]
                for phase, work in (("prefill", first), ("decode", decode[name]))
                for key in ("flops", "bytes", "peak_flops_per_s")
            },
        }
        for name, first in prefill.items()
        if first["s"] or decode[name]["s"]
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


def energy_breakdown(metrics: Metrics, i: int) -> dict[str, Any] | None:
    """Joules per output token of candidate `i` by level and phase, the idle power by the time that
    chips are held for either; watts of a chip; the share that moves data, of all and of what is
    above idle; the share of its clock that a power cap leaves, null without a cap. None where the
    chip has no power figure. Of a mix, the workload that takes most chip-seconds."""
    metrics, i = metrics.heaviest(i)
    performance = metrics.performance
    energy = performance.energy
    if np.isnan(energy.joules[i]):
        return None
    ledger = performance.detail.decode_ledger
    output = metrics.values["joules_per_output_token"][i] / energy.joules[i]
    held = performance.prefill_chip_s[i] + performance.decode_chip_s[i]
    idle = {
        "prefill": energy.idle[i] * performance.prefill_chip_s[i] / held,
        "decode": energy.idle[i] * performance.decode_chip_s[i] / held,
    }
    rows = []
    for level, meaning in LEVELS.items():
        phases = {
            phase: float(idle[phase] if level == "idle" else getattr(of, level)[i]) * float(output)
            for phase, of in (("prefill", energy.prefill), ("decode", energy.decode))
        }
        joules = phases["prefill"] + phases["decode"]
        rows.append({"level": level, "meaning": meaning, **phases, "joules": joules})
    whole = sum(row["joules"] for row in rows)
    moved = sum(row["joules"] for row in rows if row["level"] in MOVEMENT)
    power, chip = ledger.deployed.machines.power, ledger.deployed.batch.chip[i]
    return {
        "joules_per_output_token": rows,
        "data_movement_share": moved / whole,
        "data_movement_share_above_idle": moved / (whole - rows[-1]["joules"]),
        "watts_per_chip": {
            "prefill": float(energy.prefill_w[i]),
            "decode": float(energy.decode_w[i]),
            "mean": float(energy.watts[i]),
            "idle": float(power.idle_w[chip]),
            "cap": float(power.cap_w[chip]),
        },
        "clock": {
            phase: None if of.clock is None else float(of.clock[i])
            for phase, of in (("prefill", performance.detail.prefill_ledger), ("decode", ledger))
        },
        "beyond_the_power": float(energy.beyond[i]),
    }
