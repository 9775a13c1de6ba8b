"""`dse.check`: a model on a chip: what refuses the shape, what it wastes, which shapes near it are
better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from dse.answer.answer import Answer
from dse.answer.frames import columns_of, document, frame
from dse.answer.numbers import tenths
from dse.answer.sentences import listed, spans
from dse.blocks import WEIGHT_PARTS
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.options import CHIP, Opt, Tokens
from dse.problem.mix import loads_of
from dse.problem.words import DEGREES, split_words
from dse.questions.check.nearest import nearest
from dse.questions.check.subject import AXES, Subject, degrees, subject_of
from dse.rules.bands import bands
from dse.rules.case import stack_of
from dse.rules.kinds import SEVERITIES, Finding, message
from dse.rules.registry import findings, judge
from dse.rules.waste import Steps, added_share, misaligned_share, unmeasured_alignment, wastes
from dse.schema.backend import find_backend
from dse.schema.dtypes import CODE, DTYPES, known_dtypes
from dse.schema.model import Model, model_of, trained_on
from dse.schema.model_catalog import load_model
from dse.study.folder import FRONT, item_of, read_study

SEEN = 5e-4  # shares below it are none
PHASES = ("prefill", "decode")
CONFIG = Opt(
    "config.json or its folder, catalog id (dse catalog models list), or the folder of a study.",
    flag="model",
    positional=True,
)
POINT = Opt("Number in front.csv, or start, cheapest, fastest, best, knee.", positional=True)
TILES = (
    "Do not add the shares of tiles and waves to a prediction: its kernel laws hold them already."
)
WHY_NOT_ADDED = (
    "the laws of kernels were fitted to products of many shapes and hold their mean waste of tiles "
    "and waves, so that no prediction charges it again"
)
NOTHING_NEAR = (
    "No shape near it is accepted by all of this software. The search changes up to three sizes, "
    "each by at most half."
)
ROUNDED = "each rank of the refused shape is timed with its share of sizes rounded up"


def check(
    model: Annotated[str | Path | Mapping[str, Any] | Model | None, CONFIG] = None,
    chip: Annotated[str | None, CHIP] = None,
    point: Annotated[str | int | None, POINT] = None,
    *,
    tp: Annotated[int, Opt("Tensor parallelism.", least=1, most=100_000)] = 1,
    pp: Annotated[int, Opt("Pipeline stages.", least=1, most=100_000)] = 1,
    dp: Annotated[int, Opt("Attention data parallelism.", least=1, most=100_000)] = 1,
    ep: Annotated[int, Opt("Expert parallelism.", least=1, most=100_000)] = 1,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    prompt_tokens: Tokens = 2048,
    output_tokens: Tokens = 512,
    concurrency: Tokens = 32,
    training_tokens: str | None = None,
    catalog: Catalog | None = None,
) -> Answer:
    """What software refuses of a shape, what the shape wastes, and which shapes near it do better.

    Of a model on a chip, or of a point of a study as it is deployed there. A shape that all
    software refuses is an answer too: "ok": false, exit code 0.

        dse.check("qwen2.5-7b", "h100_sxm", tp=8).headline
        dse.check(study, point="knee")

    `model` is a catalog id, the path of a config.json, or what such a file says; with a `point`
    what `dse.run` returned, or a folder of it. Of a study, the first workload and, of separate
    pools, the decode workers are checked. Raises InputError for what cannot be read.
    """
    catalog = catalog or load_catalog()
    dtypes: dict[str, Any] = {"weight_dtype": weight_dtype, "kv_dtype": kv_dtype}
    asked = {"--chip": chip, **{f"--{key.replace('_', '-')}": v for key, v in dtypes.items()}}
    known_dtypes(dtypes)
    lengths = (prompt_tokens, output_tokens, concurrency)
    if point is not None:
        given = [flag for flag, value in asked.items() if value]
        if given or (tp, pp, dp, ep) != (1, 1, 1, 1) or lengths != (2048, 512, 32):
            flag = given[0] if given else "the deployment or the load"
            raise InputError(f"{flag} beside STUDY POINT", accepted="neither: the point says both")
        subject = _of_study(Path(str(getattr(model, "folder", model))), point, catalog)
    else:
        if not model:
            accepted = "a catalog id (dse catalog models list), or the path of a config.json"
            raise InputError("MODEL is missing", accepted=accepted)
        if not chip:
            accepted = "an id that `dse catalog chips list` prints"
            raise InputError("--chip is missing", accepted=accepted)
        catalog, chip = catalog.with_chip(chip)
        found = load_model(model)
        if ep > 1 and not found.experts:
            message_ = f"{found.name} has no experts"
            raise InputError(message_, field="--ep", accepted="no such flag")
        found = trained_on(found, training_tokens) if training_tokens else found
        axes: dict[str, float] = dict(zip(AXES, (tp, pp, dp, ep), strict=True))
        subject = subject_of(catalog, found, chip, axes, *lengths, **dtypes)
    return checked(subject, catalog)


def _of_study(folder: Path, point: str | int, catalog: Catalog) -> Subject:
    study, items = read_study(folder)
    item, load = item_of(items, point, folder), loads_of(study)[0]
    catalog, deployment = catalog.over(study), item["deployment"]
    copies = deployment.get("replicas", 1)
    named = deployment.get("backend") or load["backend"]
    dtype = deployment["weight_dtype"]
    return subject_of(
        catalog,
        model_of(item["model"], f"{folder / FRONT}"),
        deployment["chip"],
        {axis: deployment[axis] for axis in AXES},
        math.ceil(load["prompt_tokens"]),
        math.ceil(load["output_tokens"]),
        max(math.ceil(deployment["concurrency"] / copies), 1),
        weight_dtype=dtype if dtype in DTYPES else None,
        kv_dtype=deployment["kv_dtype"],
        backend=find_backend(catalog.backends, named) if stack_of(named) else None,
    )


def checked(subject: Subject, catalog: Catalog) -> Answer:
    """The answer of `dse.check` for a subject."""
    batch, steps, case = subject.batch, subject.steps(subject.batch), subject.case
    model, chip, load = subject.model.name, subject.chip.id, subject.workload
    family = subject.filling.family
    bound = {name for name, amount in judge(case).items() if amount[0] > 0.0}
    broken = [
        one
        for one in findings(case)
        if one.broken[0] and (one.rule.name in bound or set(family.stacks) & set(one.rule.stacks))
    ]
    noted = [one for one in (*bands(batch), *(wastes(steps) if steps else ())) if one.broken[0]]
    if subject.chip.family not in family.stride_chips:  # those that the rule's source names
        noted = [one for one in noted if one.rule is not family.stride_rule]
    found = sorted([*broken, *noted], key=_order)
    by = [[stack for stack in one.rule.stacks if stack in family.stacks] for one in found]
    refused = {stack for one in broken for stack in one.rule.stacks}
    admitted, by_stack = degrees(batch, family.stacks, subject.domain)
    fills = None
    if steps is not None and family.judged:
        fills = "tiles" if family.tiles else "matrix_unit"
    times, products = (_steps(steps), _products(steps)) if steps else ({}, {})
    near = nearest(subject)
    frames = [
        frame(
            "rules",
            "What it breaks",
            {
                "rule": [one.rule.name for one in found],
                "severity": [one.rule.severity for one in found],
                "found": [one.words(0) for one in found],
                "says": [one.rule.says for one in found],
                "refuses": [one.rule.name in bound for one in found],
                "refused_by": [", ".join(names) or None for names in by],
                "prefill_share": [_share(one.prefill) for one in found],
                "decode_share": [_share(one.decode) for one in found],
                "in_predictions": [one.predicted for one in found],
                "known": [one.rule.known for one in found],
                "source": [one.rule.cited(names) for one, names in zip(found, by, strict=True)],
            },
            *([TILES] if any(not one.predicted for one in noted) else ()),
            shown=("severity", "rule", "found", "prefill_share", "decode_share"),
        ),
        frame(
            "software",
            f"Degrees that it accepts, each alone (tensor parallelism up to {admitted['up_to']})",
            {
                "software": family.stacks,
                "accepts": [stack not in refused for stack in family.stacks],
                **{
                    axis: [spans(by_stack[name][stack]) for stack in family.stacks]
                    for axis, name in zip(AXES, ("tp", "pp", "", "ep"), strict=True)
                    if name
                },
            },
        ),
        frame(
            "nearest",
            "Nearest shapes that all of this software accepts, against this one",
            near,
            shown=[key for key in NEAREST if key in near],
        ),
        frame("steps", "A prefill and a decode step", times, on_console=False),
        frame(
            "products",
            "Products of a prefill and of a decode step on one chip",
            products,
            shown=[key for key in SHOWN[fills] if key in products],
            on_console=False,
        ),
    ]
    headline = _headline(subject, bound, broken, refused, times, fills)
    facts = {
        "answer": headline,
        "model": model,
        "chip": chip,
        "deployment": {
            **{axis: int(getattr(batch, axis)[0]) for axis in AXES},
            "weight_dtypes": {part: DTYPES[batch.weight_dtype[part][0]] for part in WEIGHT_PARTS},
        },
        "ok": not bound,
        "fills": fills,
        "degrees": admitted,
        "assumed": [*_assumed(subject, steps), *([ROUNDED] if bound else [])],
    }
    return Answer(
        question="check",
        title=f"{model} on {chip}: what refuses the shape, what it wastes",
        asked=f"{model} on {chip}: {load.prompt_tokens[0]:,.0f} prompt and "
        f"{load.output_tokens[0]:,.0f} output tokens, {batch.concurrency[0]:,.0f} requests in "
        "flight",
        headline=headline,
        sentences=[NOTHING_NEAR] if bound and not near else [],
        blocks=[one for one in frames if one.rows],
        rests=facts["assumed"],
        document=document(facts, frames),
        data=(frames[1],),
        names=catalog.names,
    )


def _headline(
    subject: Subject,
    bound: set[str],
    broken: Sequence[Finding],
    refused: set[str],
    times: Mapping[str, Any],
    fills: str | None,
) -> str:
    """One sentence: whether the shape fits, and what it costs."""
    batch, stacks = subject.batch, subject.filling.family.stacks
    refusing = [name for name in stacks if name in refused]
    accepting = [name for name in stacks if name not in refused]
    degrees = {axis: int(getattr(batch, axis)[0]) for axis in DEGREES}
    used = split_words(degrees) or ["one chip"]
    formats = dict.fromkeys(DTYPES[batch.weight_dtype[part][0]] for part in WEIGHT_PARTS)
    where = f"{subject.model.name} on {subject.chip.id} ({', '.join(used)}, "
    where += f"{' and '.join(formats)})"
    if bound:
        first = min((one for one in broken if one.rule.name in bound), key=_order).rule
        words = dict.fromkeys(one.words(0) for one in broken if one.rule is first)
        by = f"; refused by {listed(refusing)}" if refusing else ""
        rest = f"; no rule here of {listed(accepting)} does" if accepting and refusing else ""
        why = message(first.name, first.says, "; ".join(words))
        return f"{where} cannot run: it {why}{by}{rest}."
    fits = "fits"
    if refusing:
        fits += f" ({listed(refusing)} {'refuse' if len(refusing) > 1 else 'refuses'} it)"
    if not times:
        return f"{where} {fits} as far as degrees go; what it wastes is not known."
    if fills is None:
        return f"{where} {fits}; no rules of matrix products are known for this chip."
    costs = []
    if max(lost := times["misaligned_share"]) >= SEEN:
        prefill, decode = map(tenths, lost)
        costs.append(
            f"misaligned sizes take {prefill} of the predicted prefill step and {decode} of the "
            "decode step"
        )
    if max(added := times["added_share"]) >= SEEN:
        prefill, decode = map(tenths, added)
        costs.append(
            f"its shape adds up to {prefill} to a prefill step and {decode} to a decode step"
        )
    return f"{where} {fits} and {'; '.join(costs) or 'wastes nothing that these rules see'}."


def _share(of: Any) -> float | None:
    return None if of is None else float(of[0])


def _order(finding: Finding) -> tuple[int, int, float]:
    """What most software refuses comes first, then what costs most."""
    costs = (finding.prefill, finding.decode)
    cost = sum(float(share[0]) for share in costs if share is not None)
    return SEVERITIES.index(finding.rule.severity), -len(finding.rule.stacks), -cost


def _steps(steps: Steps) -> dict[str, Any]:
    """What either step takes, and what the shape wastes of it."""
    return {
        "phase": PHASES,
        "step_rows": [float(step.rows[0]) for step, _ in steps.phases],
        "seconds": [float(seconds[0]) for seconds in steps.seconds],
        "gemm_share": [
            sum(float(one.gemm.seconds[0]) for one in products) / float(step.seconds[0])
            for step, products in steps.phases
        ],
        "added_share": [float(share[0]) for share in added_share(steps)],
        "misaligned_share": [float(share[0]) for share in misaligned_share(steps)],
    }


SUMMED = ("times", "step_share", "added_share", "misaligned_share")
_SIZES = ("phase", "product", "m", "groups", "n", "k", "step_share")
_LOST = (*_SIZES, "misaligned_share", "added_share")
# The columns that are shown, by what the chip's products fill.
SHOWN = {
    None: _SIZES,
    "tiles": (*_LOST, "alignment_efficiency", "tile_efficiency", "wave_efficiency"),
    "matrix_unit": (*_LOST, "tile_efficiency", "row_efficiency"),
}
NEAREST = (
    "shape_changes",
    "parameters_share",
    "loss_nats",
    "prefill_step_share",
    "decode_step_share",
)


def _products(steps: Steps) -> dict[str, list[Any]]:
    """The products of the prefill and of the decode step; those of one name and one shape are one
    row."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    phases = zip(PHASES, steps.phases, strict=True)
    for phase, step, one in ((phase, step, one) for phase, (step, all_) in phases for one in all_):
        gemm, step_s = one.gemm, float(step.seconds[0])
        if not (gemm.count[0] > 0.0 and gemm.out[0] > 0.0 and gemm.inner[0] > 0.0):
            continue
        code = steps.batch.weight_dtype.get(gemm.part)
        row = {
            "phase": phase,
            "product": gemm.name,
            "times": float(gemm.count[0]),
            "groups": float(gemm.groups[0]),
            "m": float(gemm.rows[0]),
            "n": float(gemm.out[0]),
            "k": float(gemm.inner[0]),
            "weight_dtype": DTYPES[CODE["bf16"] if code is None else code[0]],
            "aligned_bytes": float(gemm.bytes[0]),
            "alignment_efficiency": float(gemm.reached[0]),
            "tile_efficiency": float(one.tile[0]),
            "wave_efficiency": float(one.wave[0]),
            "row_efficiency": float(one.busy[0]),
            "step_share": float(gemm.seconds[0]) / step_s,
            "added_share": float(one.added_s[0]) / step_s,
            "misaligned_share": float(gemm.cliff_s[0] + gemm.padding_s[0]) / step_s,
        }
        key = tuple(row[name] for name in ("phase", "product", "m", "n", "k"))
        row |= {name: row[name] + rows[key][name] for name in SUMMED if key in rows}
        rows[key] = row
    return columns_of(list(rows.values()))


def _assumed(subject: Subject, steps: Steps | None) -> list[str]:
    """What the answer rests on."""
    sentences = [WHY_NOT_ADDED]
    filling, family = subject.filling, subject.filling.family
    if steps is None:
        sentences = [f"{subject.refusal}: no step has a time, and no product is judged"]
    elif filling.matrix_unit is not None:
        side = f"{filling.matrix_unit:g} x {filling.matrix_unit:g}"
        sentences.append(f"matrix unit of {side} ({subject.filling_source})")
    elif family.tiles and filling.units is None:
        sentences.append(f"{subject.chip.id}: no figure for {family.units}: waves are not judged")
    elif family.tiles:
        tiles = ", ".join(f"{tall:g} x {wide:g}" for tall, wide in family.tiles)
        units = f"{filling.units:g} {family.units} ({subject.filling_source})"
        sentences.append(f"{units}; tiles of {tiles}")
    if steps is not None and family.grain.cliff:
        chips = "other chips, formats and decode steps are"
        if filling.alignment_known == "measured":
            chips = "other formats, and decode steps, are"
        sentences.append(
            f"misaligned widths were measured on H100, large products in bf16; {chips} taken to "
            "lose as much (assumed)"
        )
        if between := dict.fromkeys(unmeasured_alignment(steps, 0)):
            sentences.append(
                "aligned to 16 or 32 bytes, where no speed was measured and none is charged but "
                "for the padding: " + ", ".join(between)
            )
    sentences += family.notes
    return [*sentences, *(f"{subject.model.name}: {text}" for text in subject.model.assumed)]
