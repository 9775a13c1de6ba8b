"""`dse check`: a shape on a chip: what refuses it, what it wastes, which shapes near it do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.physics import gemms
from dse.physics.alignment import columns_of
from dse.physics.deployed import Deployed
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate
from dse.questions.check.degrees import degrees, of_shape
from dse.record import record
from dse.rules.bands import bands
from dse.rules.case import Case, stack_of
from dse.rules.families import Family, family_of
from dse.rules.kinds import SEVERITIES, Finding
from dse.rules.registry import findings, judge
from dse.rules.waste import (
    Filling,
    Judged,
    Steps,
    added_share,
    judge_products,
    misaligned_share,
    unmeasured_alignment,
    wastes,
)
from dse.schema.backend import Backend
from dse.schema.blocks import WEIGHT_PARTS
from dse.schema.chip import Chip
from dse.schema.dtypes import CODE, DTYPES
from dse.schema.model import Model
from dse.space.batches import axes_of, batch_of
from dse.space.candidates import CandidateBatch

NOT_ADDED = (
    "costs of tiles and waves are in no prediction and must not be added to one: the laws of "
    "kernels were fitted to products of many shapes, whose mean waste they hold; they compare "
    "shapes"
)


@record
class Load:
    """What is served: tokens of a prompt and of an answer, and requests in flight."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int


@record
class Subject:
    """What is checked. `machines` is None where the chip lacks a figure (`refusal` says which), and
    then no step has a time."""

    model: Model
    chip: Chip
    family: Family
    filling: Filling
    filling_source: str
    batch: CandidateBatch
    machines: Machines | None
    refusal: str | None
    load: Load
    backend: Backend
    domain: float

    @property
    def case(self) -> Case:
        """What rules see of the shape: with its memory, where the chip has every figure."""
        if self.machines is None:
            return Case(self.batch, (self.chip.family,), stack_of(self.backend.id))
        load = self.load
        workload = Workload.of(load.prompt_tokens, load.output_tokens, "continuous", self.backend)
        return evaluate(self.batch, workload, self.machines).case

    def steps(self, batch: CandidateBatch) -> Steps | None:
        """A prefill and a decode step of n shapes on the chip, and their products judged."""
        if self.machines is None:
            return None
        deployed = Deployed(batch, self.machines)
        load = self.load
        chunks = np.ceil(load.prompt_tokens / self.backend.chunk_tokens)
        requests = np.ceil(load.concurrency / batch.data_parallel)
        context = load.prompt_tokens + load.output_tokens / 2.0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            first = gemms.prefill(deployed, load.prompt_tokens / chunks, load.prompt_tokens)
            then = gemms.decode(deployed, requests, context)
            return Steps(
                batch,
                self.filling,
                first,
                then,
                judge_products(first, self.filling, tiled=True),
                judge_products(then, self.filling, tiled=False),
            )


def subject_of(
    catalog: Catalog,
    model: Model,
    chip_id: str,
    deployment: Mapping[str, float],
    load: Load,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
) -> Subject:
    """Gathers a model, a chip and degrees. Raises InputError for an unknown chip."""
    chip = catalog.chip(chip_id)
    family = family_of(chip.family)
    unit = columns_of(chip) if family.grain.is_unit else None
    units = None if chip.compute_units is None or unit is not None else float(chip.compute_units)
    axes = axes_of({**deployment, "concurrency": load.concurrency})
    kv = kv_dtype or model.kv_dtype or "bf16"
    batch = batch_of([model], np.zeros(1, dtype=np.intp), [weight_dtype], [kv], axes)
    refusal = catalog.refusal(chip_id, float(batch.chips_per_instance[0]))
    system = catalog.systems[chip.system]
    figure = chip.figure("compute_units")
    return Subject(
        model=model,
        chip=chip,
        family=family,
        filling=Filling(
            family,
            units,
            None if unit is None else unit[0],
            "measured" if chip.id in family.grain.measured else "assumed",
        ),
        filling_source=unit[1] if unit else figure.source if figure and units else "",
        batch=batch,
        machines=None if refusal else compile_machines(catalog, [chip_id]),
        refusal=refusal,
        load=load,
        backend=catalog.backends[chip.backend],
        domain=float(system.levels[0].size or batch.chips_per_instance[0]),
    )


def refusals(subject: Subject, batch: CandidateBatch) -> Iterator[Finding]:
    """The rules that software which runs on the chip holds n shapes to."""
    known = set(subject.family.stacks)
    return (finding for finding in of_shape(batch) if known & set(finding.rule.stacks))


def check(subject: Subject) -> dict[str, Any]:
    """The document of `dse check --json`, without the nearest shapes. `ok`: the shape
    breaks no rule that binds, as `dse estimate` would say of it. `stacks` are those whose own rules
    take the shape, Megatron-LM, which trains models, among them."""
    batch, steps, case = subject.batch, subject.steps(subject.batch), subject.case
    bound = {name for name, amount in judge(case).items() if amount[0] > 0.0}
    known = set(subject.family.stacks)
    broken = [
        one
        for one in findings(case)
        if one.broken[0] and (one.rule.name in bound or known & set(one.rule.stacks))
    ]
    found = [*broken, *(one for one in bands(batch) if one.broken[0])]
    if steps is not None:
        found += [one for one in wastes(steps) if one.broken[0] and _applies(one, subject)]
    found.sort(key=_order)
    refused = {stack for one in broken for stack in one.rule.stacks}
    stacks = {stack: stack not in refused for stack in subject.family.stacks}
    return {
        "model": subject.model.name,
        "chip": subject.chip.id,
        "deployment": _deployment(batch),
        "ok": not bound,
        "stacks": stacks,
        "prefill": _step(steps, "prefill"),
        "decode": _step(steps, "decode"),
        "degrees": degrees(batch, subject.family.stacks, subject.domain),
        "fills": _fills(subject, steps),
        "rules": [_rule(one, subject.family.stacks, one.rule.name in bound) for one in found],
        "gemms": [] if steps is None else gemm_rows(steps),
        "nearest": [],
        "assumed": _assumed(subject, steps),
    }


def _fills(subject: Subject, steps: Steps | None) -> str | None:
    """What products are judged by; None where nothing is known of the chip, or it has no times."""
    if steps is None or not subject.family.judged:
        return None
    return "tiles" if subject.family.tiles else "matrix_unit"


def _applies(finding: Finding, subject: Subject) -> bool:
    """A rule of strides is for the generations that its source names."""
    family = subject.family
    return finding.rule is not family.stride_rule or subject.chip.family in family.stride_chips


def _order(finding: Finding) -> tuple[int, int, float]:
    """What most software refuses comes first, then what costs most."""
    shares = (finding.prefill, finding.decode)
    cost = sum(float(share[0]) for share in shares if share is not None)
    return SEVERITIES.index(finding.rule.severity), -len(finding.rule.stacks), -cost


def _deployment(batch: CandidateBatch) -> dict[str, Any]:
    return {
        **{
            axis: int(getattr(batch, axis)[0])
            for axis in (
                "tensor_parallel",
                "pipeline_parallel",
                "data_parallel",
                "expert_parallel",
            )
        },
        "weight_dtypes": {part: DTYPES[batch.weight_dtype[part][0]] for part in WEIGHT_PARTS},
    }


def _step(steps: Steps | None, phase: str) -> dict[str, Any] | None:
    if steps is None:
        return None
    judged = steps.prefill_gemms if phase == "prefill" else steps.decode_gemms
    seconds = steps.prefill_s if phase == "prefill" else steps.decode_s
    step = steps.prefill if phase == "prefill" else steps.decode
    shares = added_share(steps)
    return {
        "rows": float(step.rows[0]),
        "seconds": float(seconds[0]),
        "gemm_share": sum(float(one.gemm.seconds[0]) for one in judged) / float(step.seconds[0]),
        "added_share": float(shares[phase == "decode"][0]),
        "misaligned_share": float(misaligned_share(steps)[phase == "decode"][0]),
    }


def _rule(finding: Finding, stacks: tuple[str, ...], binds: bool) -> dict[str, Any]:
    rule = finding.rule
    refused_by = [stack for stack in rule.stacks if stack in stacks]
    shares = (finding.prefill, finding.decode)
    return {
        "rule": rule.name,
        "severity": rule.severity,
        "found": finding.words(0),
        "says": rule.says,
        "binds": binds,
        "refused_by": refused_by,
        "prefill_share": None if shares[0] is None else float(shares[0][0]),
        "decode_share": None if shares[1] is None else float(shares[1][0]),
        "in_predictions": finding.predicted,
        "known": rule.known,
        "source": rule.cited(refused_by),
    }


def gemm_rows(steps: Steps) -> list[dict[str, Any]]:
    """A row for each product of the prefill and of the decode step; those of one name and one shape
    are one row."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for phase, step, judged in (
        ("prefill", steps.prefill, steps.prefill_gemms),
        ("decode", steps.decode, steps.decode_gemms),
    ):
        for one in judged:
            gemm = one.gemm
            if not (gemm.count[0] > 0.0 and gemm.out[0] > 0.0 and gemm.inner[0] > 0.0):
                continue
            row = _gemm(one, phase, float(step.seconds[0]), steps.batch)
            key = tuple(row[name] for name in ("phase", "name", "m", "n", "k"))
            if key in rows:
                for name in ("count", "share", "added_share", "misaligned_share"):
                    row[name] += rows[key][name]
            rows[key] = row
    return list(rows.values())


def _gemm(one: Judged, phase: str, step_s: float, batch: CandidateBatch) -> dict[str, Any]:
    gemm = one.gemm
    code = batch.weight_dtype.get(gemm.part)
    return {
        "phase": phase,
        "name": gemm.name,
        "count": float(gemm.count[0]),
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
        "share": float(gemm.seconds[0]) / step_s,
        "added_share": float(one.added_s[0]) / step_s,
        "misaligned_share": float(gemm.cliff_s[0] + gemm.padding_s[0]) / step_s,
    }


def _assumed(subject: Subject, steps: Steps | None) -> list[str]:
    """What the answer rests on."""
    sentences = [NOT_ADDED]
    family, filling = subject.family, subject.filling
    if steps is None:
        sentences = [f"{subject.refusal}: no step has a time, and no product is judged"]
    elif filling.matrix_unit is not None:
        side = f"{filling.matrix_unit:g} x {filling.matrix_unit:g}"
        sentences.append(f"matrix unit of {side} ({subject.filling_source})")
    elif family.tiles and filling.units is None:
        sentences.append(f"{subject.chip.id}: no figure for {family.units}: waves are not judged")
    elif family.tiles:
        sentences.append(
            f"{filling.units:g} {family.units} ({subject.filling_source}); tiles of "
            + ", ".join(f"{tall:g} x {wide:g}" for tall, wide in family.tiles)
        )
    if steps is not None and family.grain.cliff:
        chips = "other chips, formats and decode steps are"
        if filling.alignment_known == "measured":
            chips = "other formats, and decode steps, are"
        sentences.append(
            f"misaligned widths were measured on H100, large products in bf16; {chips} taken to "
            "lose as much (assumed)"
        )
        between = list(dict.fromkeys(unmeasured_alignment(steps, 0)))
        if between:
            sentences.append(
                "aligned to 16 or 32 bytes, where no speed was measured and none is charged but "
                "for the padding: " + ", ".join(between)
            )
    sentences += family.notes
    sentences += [f"{subject.model.name}: {text}" for text in subject.model.assumed]
    return sentences
