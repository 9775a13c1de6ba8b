"""The answer of `dse check`: its sentences and tables."""

from __future__ import annotations

from typing import Any

from dse.answer.answer import Answer, Block, Cell, Column, Figure, Notes, Table
from dse.answer.bars import share_bars
from dse.answer.numbers import count, show_as
from dse.questions.check.answer import Load
from dse.questions.check.words import SEEN, answer, degree_lines, rule_lines

ROUNDED = "Of the refused shape, a rank has its share of heads and widths rounded up."
NOTHING_NEAR = (
    "All of this software accepts no shape near it. The search changes up to three sizes, each by "
    "at most half."
)
ADDED = "time that the shape wastes, as a share of the step"
PHASES = {"prefill": "tokens", "decode": "requests"}


def check_answer(document: dict[str, Any], load: Load, command: str = "") -> Answer:
    """The answer whose document is `document` (`dse.questions.check.answer.check`, with the nearest
    shapes), made for `load`."""
    first = answer(document)
    near = nearest_table(document)
    blocks: list[Block] = [Notes(title, found) for title, found in rule_lines(document)]
    blocks.append(Notes("Degrees that it admits", degree_lines(document)))
    if near.rows:
        blocks.append(near)
    elif not document["ok"]:
        blocks.append(Notes("Nearest shapes", [NOTHING_NEAR]))
    known = [phase for phase in PHASES if document[phase] is not None]
    blocks += [_products(document, phase) for phase in known]
    blocks += [gemm_table(document, phase) for phase in known]
    return Answer(
        question="check",
        title=f"{document['model']} on {document['chip']}: what refuses the shape, what it wastes",
        asked=f"{document['model']} on {document['chip']}: {load.prompt_tokens:,} prompt and "
        f"{load.output_tokens:,} output tokens, {load.concurrency:,} requests in flight",
        headline=first,
        blocks=blocks,
        rests=document["assumed"],
        command=command,
        document={"answer": first, **document},
        data=(degree_table(document),),
    )


def degree_table(document: dict[str, Any]) -> Table:
    """check.csv: the degrees that each serving software admits."""
    rows: list[dict[str, Cell]] = [
        {"software": stack, **{axis: " ".join(map(str, found)) for axis, found in admitted.items()}}
        for stack, admitted in document["degrees"]["by_stack"].items()
    ]
    keys = dict.fromkeys(key for row in rows for key in row) or {"software": None}
    return Table("degrees", "Degrees by software", [Column(key, key) for key in keys], rows)


def _products(document: dict[str, Any], phase: str) -> Figure:
    """What each product takes of a step."""
    rows = [row for row in document["gemms"] if row["phase"] == phase]
    title = f"What the products take of a {phase} step"
    return share_bars(phase, title, "the step", {row["name"]: row["share"] for row in rows})


def gemm_table(document: dict[str, Any], phase: str) -> Table:
    """The products of one phase; shares are of its step. Columns of what was not judged are left
    out."""
    step, fills, prefill = document[phase], document["fills"], phase == "prefill"
    tiles, filled = fills == "tiles", fills == "matrix_unit" or (fills is not None and prefill)
    columns = (
        (Column("name", "product", first=True), True),
        (Column("rows", "M", right=True), True),
        (Column("n", "N", "count"), True),
        (Column("k", "K", "count"), True),
        (Column("aligned_bytes", "bytes", "count"), tiles),
        (Column("alignment_efficiency", "aligned", "share"), tiles),
        (Column("tile_efficiency", "tiles" if tiles else "unit", "share"), filled),
        (Column("wave_efficiency", "waves", "share"), prefill and tiles),
        (Column("row_efficiency", "rows", "share"), fills == "matrix_unit"),
        (Column("share", "share", "share", first=True), True),
        (Column("misaligned_share", "misaligned", "share"), fills is not None),
        (Column("added_share", "added", "share", explain=ADDED, first=True), fills is not None),
    )
    title = f"Products of a {phase} step of {step['rows']:,.0f} {PHASES[phase]} on one chip"
    return Table(
        f"{phase} products",
        f"{title}, {show_as('time', step['seconds'])}; shares of the step",
        [column for column, shown in columns if shown],
        [_product(row) for row in document["gemms"] if row["phase"] == phase],
    )


def _product(row: dict[str, Any]) -> dict[str, Cell]:
    groups = f" x {row['groups']:,.0f}" if row["groups"] > 1 else ""
    rows = row["m"] if row["m"] < 100.0 else round(row["m"])
    return {
        **row,
        "name": row["name"].replace("projections", "proj.").replace("projection", "proj."),
        "rows": f"{count(rows)}{groups}",
        **{
            name: row[name] if row[name] >= SEEN else 0.0
            for name in ("added_share", "misaligned_share")
        },
    }


def nearest_table(document: dict[str, Any]) -> Table:
    """Shapes near it that all software on the chip accepts, each against the one asked for."""

    def change(near: dict[str, Any]) -> str:
        ends = near["change"].items()
        return "; ".join(f"{name} {before:,} -> {after:,}" for name, (before, after) in ends)

    def loss(near: dict[str, Any]) -> str | None:
        return None if near["loss_nats"] is None else f"{near['loss_nats']:+.4f}"

    return Table.of(
        "nearest",
        "Nearest shapes that all of this software accepts, against this one (steps with costs)",
        document["nearest"],
        (
            Column("change", "change", of=change),
            Column("parameters_share", "parameters", "change"),
            Column("loss_nats", "loss, nats", right=True, of=loss),
            Column("prefill_step_share", "prefill", "change"),
            Column("decode_step_share", "decode", "change"),
            Column("prefill_added_share", "added, prefill", "share"),
        ),
        () if document["ok"] else (ROUNDED,),
    )
