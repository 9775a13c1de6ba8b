"""`dse.scale`: how large one instance should be, and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from dse import units
from dse.answer.answer import Answer, Opening
from dse.catalog import Catalog, load_catalog
from dse.economics.tco import with_basis
from dse.errors import InputError
from dse.physics.workload import Workload
from dse.problem.instances import Subject, subject_of
from dse.problem.loads import served
from dse.questions.estimate.ask import published_drafts
from dse.questions.scale.answer import Asked, Scaled, document, scaled
from dse.questions.scale.figures import figures
from dse.questions.scale.tables import beside, size_data, tables
from dse.questions.scale.words import WORDS, asked_words, how_sure, lead
from dse.schema.backend import find_backend
from dse.schema.deployed import ServedOrPooled, full, prefill_of
from dse.schema.dtypes import known_dtypes
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.space.batches import EXPERT_AXES


def scale(
    model: str | Path | Mapping[str, Any] | Model | None,
    chip: str | None,
    *,
    against: str | None = None,
    chips_up_to: int = 512,
    demand: int | None = None,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    tpot_limit: str = "50ms",
    ttft_limit: str = "2s",
    routing_skew: float | None = None,
    requests_per_chip: int = 32,
    jitters: str = "0,1us,3us,10us,30us,100us,300us",
    distribution: str = "exponential",
    price_basis: str = "rental_3yr",
    pipeline: bool = False,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **deployed: Unpack[ServedOrPooled],
) -> Answer:
    """How large one instance should be on a chip, and on the chip `against` it.

        dse.scale("llama-3-70b", "h100_sxm", chips_up_to=64).to_html("scale.html")

    `model` is a catalog id, the path of a config.json, or what such a file says. The other
    arguments are the options of `dse scale`. Raises InputError for what cannot be read,
    NothingFeasible where the model fits no size.
    """
    flags = full(deployed, ServedOrPooled)
    for value, needed, listed in ((model, "model", "models"), (chip, "chip", "chips")):
        if not value:
            raise InputError(
                f"--{needed} is missing", accepted=f"an id that `dse catalog {listed} list` prints"
            )
    assert model is not None
    known_dtypes(flags)
    found = load_model(model)
    prefill = prefill_of(flags, bool(found.experts))
    asked = Asked(
        chips_up_to=chips_up_to,
        demand=demand or chips_up_to,
        tpot_limit_s=_limit(tpot_limit, "tpot_limit"),
        ttft_limit_s=_limit(ttft_limit, "ttft_limit"),
        jitters_s=_jitters(jitters),
        distribution=distribution,
        requests_per_chip=requests_per_chip,
        prefill=prefill,
    )
    catalog, chips = (catalog or load_catalog()).with_chips(filter(None, (chip, against)))
    if len(set(chips)) < len(chips):
        raise InputError(f"read {chips[1]!r} twice", field="--against", accepted="another chip")
    first = ""
    if "chip" in prefill:
        catalog, first = catalog.with_chip(prefill["chip"], "--prefill-chip")
    catalog = with_basis(catalog, price_basis)
    _refuse(found, {**flags, "routing_skew": routing_skew})

    def subject(name: str) -> Subject:
        return subject_of(
            catalog,
            found,
            name,
            Workload.of(
                prompt_tokens,
                output_tokens,
                "continuous",
                find_backend(catalog.backends, flags["backend"] or catalog.chip(name).backend),
                prefix_hit_rate=flags["prefix_hit_rate"] or 0.0,
                **served(flags),
            ),
            weight_dtype=flags["weight_dtype"],
            kv_dtype=flags["kv_dtype"],
            price_basis=price_basis,
            routing_skew=routing_skew,
            draft_tokens=flags["draft_tokens"] or None,
            redundant_experts=() if (copies := flags["redundant_experts"]) is None else (copies,),
        )

    def before(name: str) -> Subject | None:
        return subject(first or name) if flags["disaggregated"] else None

    answers = [scaled(subject(name), asked, progress, before(name)) for name in chips]
    made = _answer(answers, with_stages=pipeline)
    return replace(made, names=catalog.names)


def _refuse(model: Model, flags: Mapping[str, Any]) -> None:
    """Raises InputError for what the model cannot be served with."""
    for name in EXPERT_AXES:
        if flags[name] is not None and not model.experts:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{model.name} has no experts", field=flag, accepted="no such flag")
    if flags["draft_tokens"] and flags["acceptance"] is None:
        published_drafts(model, flags["draft_tokens"])


def _answer(answers: Sequence[Scaled], *, with_stages: bool) -> Answer:
    """One answer for the chips of `answers`. `with_stages` prints the table of pipeline stages,
    which the page always has."""
    sentences = lead(answers)
    found = document(answers, sentences)
    asked, drawn = f"{found['model']}, {asked_words(found)}", figures(answers)
    shown = [one for answer in answers for one in tables(answer, with_stages=with_stages)]
    return Answer(
        question="scale",
        title=f"Scale up or scale out: {found['model']}",
        asked=asked,
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*drawn[1:], *shown),
        rests=tuple(dict.fromkeys(text for answer in answers for text in answer.assumed)),
        document=found,
        data=(size_data(answers),),
        words=WORDS,
        opening=Opening(asked, sentences[0], drawn[0], beside(answers), how_sure(answers)),
    )


def _limit(written: str, name: str) -> float:
    field = f"--{name.replace('_', '-')}"
    seconds = units.parse(written, "s", field=field)
    if seconds == 0.0:
        raise InputError(f"read {written!r}", field=field, accepted="a time above 0")
    return seconds


def _jitters(text: str) -> tuple[float, ...]:
    """Times with commas between; a bare 0 is 0. None may exceed a second."""
    found = [
        0.0 if word.strip() == "0" else units.parse(word.strip(), "s", field="--jitter")
        for word in text.split(",")
    ]
    if max(found) > 1.0 or len(found) > 50:
        raise InputError(
            f"read {text!r}", field="--jitter", accepted="at most 50 times of at most 1 s"
        )
    return tuple(found)
