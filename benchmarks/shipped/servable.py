"""Every design of a front through what `dse check` and `dse export` ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.problem.describe import pools_of
from dse.problem.mix import loads_of
from dse.questions.check.subject import subject_of
from dse.questions.estimate.again import estimate_item
from dse.questions.export import STACKS, export_command
from dse.rules.case import stack_of
from dse.rules.registry import judge, row, row_words
from dse.schema.dtypes import DTYPES
from dse.schema.model import Model, model_of
from dse.space.batches import axes_of, batch_of
from dse.study.result import Study

Row = dict[str, Any]
DEGREES, COPIES = ("tensor", "pipeline", "data", "expert"), "redundant_experts"


def servable(study: Study) -> Row:
    """A row of the table: `refused` counts designs, by `check` and by `export`; `examples` has one
    in words of each, `by` how many designs each server takes.

    A study or a design that names a server is exported for that one. Without one, whoever serves
    models on the chip is meant: one that takes the design suffices, as in the rules of the search.
    """
    document, items = study.document, study.front.items
    backend = loads_of(document)[0]["backend"]
    checked: dict[int, str] = {}
    for point, words in _checked(study):
        checked[point] = f"{checked[point]}; {words}" if point in checked else words
    taken: Counter[str] = Counter()
    exported: dict[int, str] = {}
    for item in items:
        takes, words = _exported(study, item, item["deployment"].get("backend", backend))
        taken.update(takes)
        if not takes:
            exported[item["point"]] = words
    examples = [
        f"{who}: point {point}: {words}"
        for who, found in (("check", checked), ("export", exported))
        for point, words in list(found.items())[:1]
    ]
    return {
        "space": document["space"],
        "backend": backend,
        "points": len(items),
        "check": len(checked),
        "export": len(exported),
        "by": {name: taken[name] for name in STACKS},
        "examples": examples,
    }


def nothing(space: str, words: str) -> Row:
    """The row of a space in which nothing is feasible: no design, none refused."""
    none = {"points": 0, "check": 0, "export": 0}
    return {"space": space, "backend": "", **none, "by": {}, "examples": [words]}


def _checked(study: Study) -> Iterator[tuple[int, str]]:
    """(point, words) of the designs that `dse check` refuses: all instances of one chip and
    software, or workers of pools of their own, at once, under each workload."""
    items = [
        {**item, "deployment": deployment}
        for item in study.front.items
        for deployment in pools_of(item["deployment"]) or (item["deployment"],)
    ]
    for one in dict.fromkeys(map(_software, items)):
        mine = [item for item in items if _software(item) == one]
        for load in loads_of(study.document):
            yield from _checked_on(study, *one, mine, load)


def _software(item: Mapping[str, Any]) -> tuple[str, str | None]:
    """(chip, its own software where the design names it)."""
    return item["deployment"]["chip"], item["deployment"].get("backend")


def _checked_on(
    study: Study,
    chip: str,
    backend: str | None,
    items: Sequence[Mapping[str, Any]],
    load: Mapping[str, Any],
) -> Iterator[tuple[int, str]]:
    catalog = study.catalog()
    models = [model_of(item["model"], "front.json") for item in items]
    prompt, output = (int(np.ceil(load[f"{name}_tokens"])) for name in ("prompt", "output"))
    first = subject_of(catalog, models[0], chip, {}, prompt, output, 1)
    named: str = backend or load["backend"]
    if stack_of(named) is not None:
        served = replace(first.workload, backend=catalog.backends[named])
        first = replace(first, workload=served)
    case = replace(first, batch=_batch(models, items)).case
    for name, amounts in judge(case).items():
        for i in map(int, np.flatnonzero(amounts > 0.0)):
            yield items[i]["point"], row_words(row(case, name, i, float(amounts[i])))


def _batch(models: Sequence[Model], items: Sequence[Mapping[str, Any]]) -> Any:
    """The designs as `dse check` is given them: shapes, degrees, copies, formats and requests."""
    wanted = (*(f"{name}_parallel" for name in DEGREES), "replicas", "concurrency", COPIES)
    asked = [item["deployment"] for item in items]
    if any(COPIES in one for one in asked):
        asked = [{COPIES: 0.0, **one} for one in asked]
    axes = [axes_of({axis: one[axis] for axis in wanted if axis in one}) for one in asked]
    dtypes = [one["weight_dtype"] if one["weight_dtype"] in DTYPES else None for one in asked]
    return batch_of(
        models,
        np.zeros(len(items), dtype=np.intp),
        dtypes,
        [one["kv_dtype"] for one in asked],
        {axis: np.concatenate([one[axis] for one in axes]) for axis in axes[0]},
    )


def _exported(study: Study, item: Mapping[str, Any], backend: str) -> tuple[list[str], str]:
    """(servers whose files were written, what the others said)."""
    catalog = study.catalog()
    answer = estimate_item(study.document, dict(item), "front.json", catalog)
    named = stack_of(backend)
    takes, said = [], []
    for name, stack in STACKS.items():
        if named in (None, stack.title):
            try:
                export_command(answer, name, catalog)
                takes.append(name)
            except InputError as error:
                said.append(str(error))
    return takes, "; ".join(said)
