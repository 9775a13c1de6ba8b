"""What a question is asked of: a study folder, a space, or a model on chips."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.errors import InputError, InputErrors
from dse.problem.describe import Limit
from dse.problem.objective import pose
from dse.questions.whatif.demand import demanded, in_servers
from dse.questions.whatif.inputs import Subject
from dse.questions.whatif.require import space_file_of
from dse.schema.load import Demand, read_demand
from dse.schema.metrics import METRICS, parse_constraint
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.study import Space, Study, load_study
from dse.study.folder import STUDY, read_study

COST = "usd_per_million_total_tokens"
# The deployments of a model that are looked at where nothing is said of them.
DENSE = {
    "tensor_parallel": [1, 2, 4, 8],
    "concurrency": {"from": 1, "to": 1024, "powers_of": 2},
}
SPARSE = {
    "tensor_parallel": [1, 2, 4, 8],
    "data_parallel": [1, 2, 4, 8, 16, 32, 64],
    "expert_parallel": {"ratio_of": "tensor_parallel * data_parallel", "values": ["1/72", 1]},
    "concurrency": {"from": 1, "to": 8192, "powers_of": 2},
}
MOST_CHIPS = 72
# Axes and sections of a space, as flags.
FLAGS = {
    "tensor_parallel": "tp", "pipeline_parallel": "pp", "data_parallel": "dp",
    "expert_parallel": "ep", "constraints": "limit", "objectives": "objective",
}  # fmt: skip
LIMITS = ("ttft_s <= 2 s", "tpot_s <= 50 ms")


@dataclass(frozen=True, slots=True)
class Asked:
    """A subject, what it is called, the seed and engine that find its front, and what its reader
    must know of it. `objective` is the metric that the winner is best in."""

    subject: Subject
    title: str
    seed: int
    engine: str
    objective: str
    notes: tuple[str, ...]


def of_study(
    space: Space, catalog: Catalog, limits: Sequence[str] = (), objective: str | None = None
) -> Asked:
    """A finished study folder, a shipped space, the path of a space file or what such a file says,
    with further limits. What a study was made with stands beneath the catalog.

    Raises InputError for what is neither, for a study whose space file has changed since, or one
    that was evaluated by a function of the user.
    """
    if isinstance(space, Mapping):
        return _asked(load_study(space, catalog), catalog, limits, objective)
    text = str(space)
    if not (Path(text) / STUDY).is_file():
        if Path(text).is_dir():
            accepted = "a folder that `dse run` wrote"
            raise InputError(f"{text} is no finished study", field="STUDY", accepted=accepted)
        return _asked(load_study(text, catalog), catalog, limits, objective)
    document, _ = read_study(Path(text))
    if "--evaluator" in document.get("command", ""):
        raise InputError(
            f"{text} was evaluated by a function of your own", field="STUDY",
            accepted="a study of the built-in model",
        )  # fmt: skip
    notes = []
    if catalog.source.has_prices:
        notes.append(f"prices and costs as this command gives them, not those of {text}")
    elif document.get("data_digest") != catalog.source.made_with(document).digest():
        notes.append(
            f"the hardware data have changed since {text}: before and after are both today's"
        )
    catalog = catalog.over(document)
    study = load_study(space_file_of(document, text), catalog, document.get("quality_law"))
    if study.fingerprint != document["fingerprint"]:
        raise InputError(
            f"{study.path} has changed since {text} was made from it",
            field="STUDY",
            accepted="that space file as it was, or a new `dse run` of this one",
        )
    seed, engine = document["seed"], document["engine"]
    return _asked(study, catalog, limits, objective, seed, engine, notes)


def of_model(
    flags: Mapping[str, Any], catalog: Catalog, limits: Sequence[str], objective: str | None
) -> Asked:
    """A model on one chip or several: what the flags fix is fixed, the other deployments are
    looked at. Raises InputError."""
    for needed, listed in (("model", "models"), ("chips", "chips")):
        if not flags[needed]:
            flag = needed.rstrip("s")
            raise InputError(
                f"--{flag} is missing",
                accepted="a STUDY, or --model and --chip: ids that "
                f"`dse catalog {listed} list` prints",
            )
    model = resolve_model(str(flags["model"]))
    ids: list[str] = []
    for text in flags["chips"]:
        catalog, chip = catalog.with_chip(text)
        ids.append(chip)
    if len(set(ids)) < len(ids):
        raise InputError(f"read {', '.join(ids)}", field="--chip", accepted="each chip once")
    for chip in ids:
        catalog.require(chip)
    path = Path(flags["model"])
    written = {
        "name": "whatif",
        "title": f"{model.name} on {', '.join(ids)}",
        "workload": _workload(flags),
        "price_basis": flags["price_basis"],
        "model": str(path.resolve()) if path.exists() else str(flags["model"]),
        "deployment": {"chip": ids, "replicas": 1, **_deployment(model, flags)},
        "objectives": _objectives(objective),
        "constraints": [*(limits or LIMITS), *_largest(model, flags)],
    }
    try:
        study = load_study(written, catalog)
    except InputError as error:
        raise _as_flags(error) from None
    if study.left_out:
        raise InputError(
            next(iter(study.why_left_out.values())), field="--chip",
            accepted="another --chip or --price-basis",
        )  # fmt: skip
    found = _asked(study, catalog, (), objective)
    if found.subject.problem.space.size == 1:
        return found
    return replace(found, notes=("what the flags leave open of the deployment is looked for",))


def whole_servers(asked: Asked) -> Asked:
    """The same with chips that are had in whole servers. Raises InputError without a demand of
    tokens, which alone says how many deployments there are."""
    problem = asked.subject.problem
    if problem.demand is None or problem.demand.average_tokens_per_s is None:
        raise InputError(
            "whole servers of no demand", field="--whole-servers",
            accepted="--demand TOKENS/TIME, too",
        )  # fmt: skip
    catalog = asked.subject.catalog
    subject = replace(asked.subject, problem=in_servers(problem, catalog))
    return replace(asked, subject=subject)


def under(asked: Asked, average: Any, peak_over_average: Any) -> Asked:
    """The same under a demand, of which each figure that is given takes the place of the space's.
    Raises InputError, its field `average` or `peak_over_average`."""
    problem = asked.subject.problem
    now = problem.demand or Demand(None, 1.0)
    ratio = now.peak_over_average if peak_over_average is None else peak_over_average
    demand = read_demand(average, ratio)
    if average is None:
        demand = replace(demand, average_tokens_per_s=now.average_tokens_per_s)
    subject = replace(asked.subject, problem=replace(problem, demand=demand))
    return replace(asked, subject=subject)


def _as_flags(error: InputError) -> InputError:
    """A mistake of the space that was made of flags, as one of the flags."""
    first = error.errors[0] if isinstance(error, InputErrors) else error
    section, _, name = (first.field or "").partition(".")
    name = re.split(r"[.\[]", name or section)[0]
    return InputError(
        first.message, field=f"--{FLAGS.get(name, name).replace('_', '-')}", accepted=first.accepted
    )


def _workload(flags: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prompt_tokens": flags["prompt_tokens"],
        "output_tokens": flags["output_tokens"],
        "serving": "continuous",
        "backend": flags["backend"] or "current",
    }
    if flags["prefix_hit_rate"] is not None:
        found["prefix_hit_rate"] = flags["prefix_hit_rate"]
    if flags["requests_per_second"] is not None:
        found |= {"serving": "poisson", "requests_per_second": flags["requests_per_second"]}
    return found


def _sparse(model: Model) -> bool:
    return any(block.kind == "moe" for block in model.blocks)


def _deployment(model: Model, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Axes: those of the flags as one value, the others as they are looked at."""
    axes: dict[str, Any] = dict(SPARSE if _sparse(model) else DENSE)
    own = model.weight_dtypes["experts" if _sparse(model) else "mlp"]
    axes["weight_dtype"] = flags["weight_dtype"] or ("fp8" if own == "fp8_block" else own)
    axes["kv_dtype"] = flags["kv_dtype"] or model.kv_dtype or "bf16"
    names = {
        "tp": "tensor_parallel", "pp": "pipeline_parallel", "dp": "data_parallel",
        "ep": "expert_parallel", "replicas": "replicas", "concurrency": "concurrency",
    }  # fmt: skip
    axes |= {axis: flags[flag] for flag, axis in names.items() if flags[flag] is not None}
    if flags["requests_per_second"] is not None:
        axes["concurrency"] = 1
    return axes


def _largest(model: Model, flags: Mapping[str, Any]) -> list[str]:
    free = _sparse(model) and flags["dp"] is None
    return [f"chips <= {MOST_CHIPS}"] if free else []


def _objectives(objective: str | None) -> dict[str, str]:
    names = dict.fromkeys([objective or COST, COST, "tpot_s"])
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise InputError(
            f"unknown metric {unknown[0]!r}", field="--objective", accepted=", ".join(METRICS)
        )
    return {name: METRICS[name].direction for name in names}


def _asked(
    study: Study,
    catalog: Catalog,
    limits: Sequence[str],
    objective: str | None,
    seed: int = 0,
    engine: str = "auto",
    notes: Sequence[str] = (),
) -> Asked:
    catalog = catalog.with_files(study.chip_files)
    problem = demanded(pose(study, catalog), catalog, study.demand)
    if limits:
        more = tuple(_limit(text) for text in limits)
        problem = replace(problem, limits=(*problem.limits, *more))
    chosen = objective or _first(problem.objectives)
    if chosen not in [one.metric for one in problem.objectives]:
        raise InputError(
            f"{chosen} is no objective of {study.name}", field="--objective",
            accepted=", ".join(one.metric for one in problem.objectives),
        )  # fmt: skip
    return Asked(
        Subject(problem, catalog), study.title or study.name, seed, engine, chosen, tuple(notes)
    )


def _first(objectives: Sequence[Any]) -> str:
    """The first objective in dollars, else the first."""
    names = [one.metric for one in objectives]
    return next((name for name in names if name.startswith("usd_")), names[0])


def _limit(text: str) -> Limit:
    try:
        one = parse_constraint(text)
    except InputError as error:
        raise InputError(error.message, field="--limit", accepted=error.accepted) from None
    return Limit(one.metric, 1.0 if one.operator.startswith("<") else -1.0, one.limit, one.text)
