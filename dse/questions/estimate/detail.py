"""Where time, memory, money and energy of one point go: the tables of `dse estimate --detail`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dse.answer.answer import Block, Cell, Column, Figure, Notes, Table
from dse.answer.bars import memory_parts, share_bars
from dse.answer.numbers import bytes_, plain, power, share, show, time
from dse.physics.intervals import interval
from dse.physics.ledger import Entry, Ledger
from dse.problem.evaluate import MEMORY_PARTS, Metrics
from dse.questions.estimate.energy import energy_breakdown
from dse.questions.estimate.point import Estimate
from dse.record import record
from dse.schema.calibration import KINDS

OPERATORS = (
    "prefill: one prompt, or a chunk of it; bound by: what a decode step waits for; efficiency: "
    "how the kernel's is known."
)


def detail_blocks(
    found: Estimate, document: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Block]]:
    """What the document gets, and its blocks; `found` must have kept its entries."""
    where = breakdown(found.metrics, 0)
    energy = energy_breakdown(found.metrics, 0)
    blocks: list[Block] = [
        operator_table(where),
        memory_table(where),
        Notes("Money", [_money(document)]),
    ]
    if energy is None:
        blocks.append(Notes("Energy", ["Energy: the chip has no power figure."]))
    else:
        blocks.append(energy_table(energy))
    return {**where, "energy": energy}, blocks


def operator_table(where: Mapping[str, Any]) -> Table:
    rows, step, floor = where["breakdown"], where["decode_step_s"], where["floor_s"]
    keys = ("prefill_s", "decode_s")
    whole = {key: sum(row[key] for row in rows) for key in keys}

    def part(key: str) -> Callable[[Any], Cell]:
        return lambda row: row[key] / whole[key] if whole[key] and "bound" in row else None

    notes = [OPERATORS]
    if "breakdown_of" in where:
        notes.append(
            f"Operators and memory are those under {where['breakdown_of']}, which takes most of "
            "the deployment's time."
        )
    notes.append(
        f"A decode step takes {show('tpot_s', step)}; its floor on these chips is "
        f"{show('tpot_s', floor)} ({plain(step / floor)} times the floor)."
    )
    return Table.of(
        "operators",
        "Where the time goes, operator by operator",
        [*rows, {"operator": "total", **whole}],
        (
            Column("operator", "operator"),
            Column("prefill_s", "prefill", "prefill_s"),
            Column("prefill_share", "share", "share", of=part("prefill_s")),
            Column("decode_s", "decode step", "decode_step_s"),
            Column("decode_share", "share", "share", of=part("decode_s")),
            Column("bound", "bound by"),
            Column("efficiency", "efficiency"),
        ),
        notes,
    )


def memory_table(where: Mapping[str, Any]) -> Table:
    parts = {row["part"].replace("_", " "): row["bytes"] for row in where["memory"]}
    return memory_parts(
        parts,
        where["capacity_bytes"],
        "Where the memory goes",
        "memory per chip",
        ("runtime: what the serving software keeps.",),
    )


def _money(document: Mapping[str, Any]) -> str:
    usd = {
        name: show("usd", document[f"usd_per_million_{name}_tokens"])
        for name in ("input", "output", "total")
    }
    return (
        f"Dollars per million tokens ({document['price_basis']}): input {usd['input']}, output "
        f"{usd['output']}, total {usd['total']}; with all cost put on the output "
        f"{show('usd', document['usd_per_million_output_tokens_all_in'])}."
    )


def energy_table(found: Mapping[str, Any]) -> Table:
    """Joules per output token by level; watts, and the share that moves data, in its notes."""
    rows = found["joules_per_output_token"]
    total = {key: sum(row[key] for row in rows) for key in ("prefill", "decode", "joules")}
    whole = total["joules"]
    return Table.of(
        "energy",
        "Where the energy goes",
        [*(row for row in rows if row["joules"]), {"level": "total", **total, "meaning": ""}],
        (
            Column(
                "level", "energy per output token", of=lambda row: row["level"].replace("_", " ")
            ),
            Column("prefill", "prefill", "energy"),
            Column("decode", "decode", "energy"),
            Column("joules", "both", "energy"),
            Column("share", "share", "share", of=lambda row: row["joules"] / whole),
            Column("meaning", "what it is"),
        ),
        _energy_notes(found, whole),
    )


def _energy_notes(found: Mapping[str, Any], joules: float) -> list[str]:
    watts, clock = found["watts_per_chip"], found["clock"]
    notes = [
        f"{share(found['data_movement_share'])} of it moves data "
        f"({share(found['data_movement_share_above_idle'])} of what is above idle). A chip draws "
        f"{power(watts['prefill'])} in prefill, {power(watts['decode'])} in a decode step, "
        f"{power(watts['mean'])} in the mean; {power(watts['idle'])} idle, at most "
        f"{power(watts['cap'])}."
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
    return [*notes, f"{show('tokens_per_joule', 1.0 / joules)} output tokens per joule."]


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
