"""Where time, memory, money and energy of one point go: the tables of `dse estimate --detail`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse.answer.answer import Block, Cell, Column, Notes, Table
from dse.answer.bars import memory_parts
from dse.answer.numbers import plain, power, ratio, share, show
from dse.problem.words import SHORT
from dse.questions.estimate.breakdown import breakdown
from dse.questions.estimate.energy import BY_BATCH, energy_breakdown
from dse.questions.estimate.point import Estimate

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


def batch_table(rows: Sequence[Mapping[str, Any]]) -> Block:
    """Tokens per joule against the number of requests in flight."""
    if not rows:
        return Notes("Energy by batch", ["Memory does not admit one request."])
    first, best = rows[0], max(rows, key=lambda row: row["tokens_per_joule"] or 0.0)
    notes = []
    if first["tokens_per_joule"]:
        gain = best["tokens_per_joule"] / first["tokens_per_joule"]
        notes.append(
            f"A joule makes most tokens at {best['concurrency']:,} in flight: {ratio(gain, 2)} "
            f"those of {first['concurrency']}, because all of them share one reading of the "
            f"weights. Beyond {rows[-1]['concurrency']:,} in flight, requests wait for memory."
        )
    return Table(
        "energy by batch",
        "Energy by requests in flight",
        (
            Column("concurrency", "in flight", "count"),
            *(Column(name, SHORT[name], name) for name in BY_BATCH),
            Column("bottleneck", "bound by"),
        ),
        rows,
        notes=notes,
    )
