"""`dse.check`: what software and hardware make of a model on a chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.answer.answer import Answer, Block, Cell, Column, Figure, Notes, Table
from dse.answer.bars import share_bars
from dse.answer.numbers import count, show_as, tenths
from dse.answer.sentences import listed
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.problem.words import SHORT_DEGREES
from dse.questions.check.answer import Load, subject_of
from dse.questions.check.answer import check as check_subject
from dse.questions.check.nearest import nearest
from dse.rules.kinds import message
from dse.schema.dtypes import known_dtypes
from dse.schema.model import Model, trained_on
from dse.schema.model_catalog import load_model


def check(
    model: str | Path | Mapping[str, Any] | Model,
    chip: str | None,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    concurrency: int = 32,
    training_tokens: str | None = None,
    catalog: Catalog | None = None,
) -> Answer:
    """What software refuses, alignment and waste, legal degrees and the nearest better shapes.

        dse.check("qwen2.5-7b", "h100_sxm", tp=8).headline

    `model` is a catalog id, the path of a config.json, or what such a file says. The other
    arguments are the options of `dse check`. Raises InputError for what cannot be read.
    """
    if not chip:
        raise InputError("--chip is missing", accepted="an id that `dse catalog chips list` prints")
    dtypes: dict[str, Any] = {"weight_dtype": weight_dtype, "kv_dtype": kv_dtype}
    known_dtypes(dtypes)
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    found = load_model(model)
    if ep > 1 and not found.experts:
        raise InputError(f"{found.name} has no experts", field="--ep", accepted="no such flag")
    if training_tokens:
        found = trained_on(found, training_tokens)
    degrees = {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "data_parallel": dp,
        "expert_parallel": ep,
    }
    load = Load(prompt_tokens, output_tokens, concurrency)
    subject = subject_of(catalog, found, chip, degrees, load, **dtypes)
    document = check_subject(subject)
    document["nearest"] = nearest(subject, catalog.backends[subject.chip.backend])
    return replace(check_answer(document, load), names=catalog.names)


ROUNDED = "Of the refused shape, a rank has its share of heads and widths rounded up."
NOTHING_NEAR = (
    "All of this software accepts no shape near it. The search changes up to three sizes, each by "
    "at most half."
)
ADDED = "time that the shape wastes, as a share of the step"
PHASES = {"prefill": "tokens", "decode": "requests"}


def check_answer(document: dict[str, Any], load: Load) -> Answer:
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


SHOWN, REASONS = 3, 3  # refused degrees, and reasons of each
SEEN = 5e-4  # shares below it are none
TITLES = {"error": "Refused", "waste": "Costs time", "note": "Worth knowing"}


def answer(document: dict[str, Any]) -> str:
    """One sentence: whether the shape fits, and what it costs."""
    stacks = document["stacks"]
    taken = [name for name, takes in stacks.items() if takes]
    refusing = [name for name, takes in stacks.items() if not takes]
    where = f"{document['model']} on {document['chip']} ({_degrees(document['deployment'])})"
    if not document["ok"]:
        first = _by_rule([row for row in document["rules"] if row["binds"]])[0]
        by = f"; refused by {listed(refusing)}" if refusing else ""
        rest = f"; no rule here of {listed(taken)} does" if taken and refusing else ""
        words = message(first["rule"], first["says"], first["found"])
        return f"{where} does not fit: it {words}{by}{rest}."
    fits = "fits"
    if refusing:
        fits += f" ({listed(refusing)} {'refuse' if len(refusing) > 1 else 'refuses'} it)"
    if document["prefill"] is None:
        return f"{where} {fits} as far as degrees go; what it wastes is not known."
    if document["fills"] is None:
        return f"{where} {fits}; no rules of matrix products are known for this chip."
    added, lost = (
        [tenths(document[phase][name]) for phase in ("prefill", "decode")]
        if max(document[phase][name] for phase in ("prefill", "decode")) >= SEEN
        else None
        for name in ("added_share", "misaligned_share")
    )
    if added is None and lost is None:
        return f"{where} {fits} and wastes nothing that these rules see."
    words = []
    if lost is not None:
        words.append(
            f"misaligned sizes take {lost[0]} of the predicted prefill step and {lost[1]} of the "
            "decode step"
        )
    if added is not None:
        words.append(
            f"its shape adds up to {added[0]} to a prefill step and {added[1]} to a decode step"
        )
    return f"{where} {fits} and {'; '.join(words)}."


def _degrees(deployment: dict[str, Any]) -> str:
    used = [
        f"{name} {deployment[axis]}"
        for axis, name in SHORT_DEGREES.items()
        if deployment.get(axis, 1) > 1
    ]
    formats = dict.fromkeys(deployment["weight_dtypes"].values())
    return ", ".join([*(used or ["one chip"]), " and ".join(formats)])


def degree_lines(document: dict[str, Any]) -> list[str]:
    """Legal degrees: once where all software agrees, else by stack."""
    degrees = document["degrees"]
    by_stack = degrees["by_stack"]
    lines = [_by(by_stack, "tp", f"Tensor parallelism, up to {degrees['up_to']}")]
    if degrees["tp_with_ep"] is not None:
        lines.append(
            f"With each expert whole on one rank (EP = TP): {spans(degrees['tp_with_ep'])}"
        )
        lines.append(_by(by_stack, "ep", "Expert parallelism"))
    lines.append(_by(by_stack, "pp", "Pipeline stages"))
    refused = degrees["refused"]
    for row in refused[:SHOWN]:
        more = len(row["because"]) - REASONS
        because = [*row["because"][:REASONS], *([f"and {more} more"] if more > 0 else [])]
        lines.append(f"Not TP {row['tp']}: {'; '.join(because)}")
    if len(refused) > SHOWN:
        lines.append(f"And {len(refused) - SHOWN} higher degrees of tensor parallelism")
    return lines


def _by(by_stack: dict[str, Any], degree: str, title: str) -> str:
    groups: dict[str, list[str]] = {}
    for stack, found in by_stack.items():
        groups.setdefault(spans(found[degree]), []).append(stack)
    if len(groups) == 1:
        return f"{title}: {next(iter(groups))}"
    return f"{title}: " + "; ".join(f"{values} ({listed(who)})" for values, who in groups.items())


def spans(values: Sequence[int]) -> str:
    """1, 2, 4 to 9: whole numbers, four or more in a row as a span."""
    if not values:
        return "none"
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    words = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 3 else [str(value) for value in run]
    return ", ".join(words)


def rule_lines(document: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """(title, sentences) of each severity that has a finding."""
    groups = []
    for severity, title in TITLES.items():
        rows = [row for row in document["rules"] if row["severity"] == severity]
        if severity == "error":  # one sentence a rule, whatever sizes break it
            rows = _by_rule(rows)
        if rows:
            groups.append((title, [_sentence(row) for row in rows]))
    return groups


def _by_rule(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row["rule"], {})[row["found"]] = None
    first = {row["rule"]: row for row in reversed(rows)}
    return [first[name] | {"found": "; ".join(words)} for name, words in found.items()]


def _sentence(row: dict[str, Any]) -> str:
    name = row["rule"].replace("_", " ")
    if row["severity"] == "error":
        broken = f"It {message(row['rule'], row['says'], row['found'])}"
        by = f" Refused by {listed(row['refused_by'])}." if row["refused_by"] else ""
        return f"{broken}.{by} Source: {row['source']}."
    if row["severity"] == "note":
        return f"{name}: {row['found']}. Usual ({row['known']}): {row['says']}."
    costs = [
        f"{tenths(row[f'{phase}_share'])} of the {phase} step"
        for phase in ("prefill", "decode")
        if (row[f"{phase}_share"] or 0.0) >= SEEN
    ]
    cost = " and ".join(costs) or "no time that shows"
    kind = f"{row['known']}; in every prediction" if row["in_predictions"] else row["known"]
    return f"{name}: {cost} ({kind}): {row['found']}"
