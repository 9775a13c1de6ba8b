"""What a question is asked of: a study folder or a space, under limits and a demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.errors import InputError
from dse.problem.objective import pose
from dse.questions.whatif.demand import demanded, in_servers
from dse.questions.whatif.inputs import Subject
from dse.questions.whatif.require import space_file_of
from dse.schema.load import Demand, read_demand
from dse.schema.metrics import Limit, parse_constraint
from dse.schema.study import Space, Study, load_study
from dse.study.folder import STUDY, read_study


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
        found = load_study(space, catalog)
        notes = [found.description] if found.description else []
        return _asked(found, catalog, limits, objective, notes=notes)
    text = str(space)
    if not (Path(text) / STUDY).is_file():
        if Path(text).is_dir():
            accepted = "a folder that `dse run` wrote"
            raise InputError(f"{text} is no finished study", field="STUDY", accepted=accepted)
        return _asked(load_study(text, catalog), catalog, limits, objective)
    document, _ = read_study(Path(text))
    if "--evaluator" in document.get("command", ""):
        raise InputError(
            f"{text} was evaluated by a function of your own",
            field="STUDY",
            accepted="a study of the built-in model",
        )
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


def whole_servers(asked: Asked) -> Asked:
    """The same with chips that are had in whole servers. Raises InputError without a demand of
    tokens, which alone says how many deployments there are."""
    problem = asked.subject.problem
    if problem.demand is None or problem.demand.average_tokens_per_s is None:
        raise InputError(
            "whole servers of no demand",
            field="--whole-servers",
            accepted="--demand TOKENS/TIME, too",
        )
    catalog = asked.subject.catalog
    subject = replace(asked.subject, problem=in_servers(problem, catalog))
    return replace(asked, subject=subject)


def under(asked: Asked, average: Any, peak_over_average: Any) -> Asked:
    """The same under a demand, of which each figure that is given takes the place of the space's.
    Raises InputError, its field --demand or --peak-over-average."""
    problem = asked.subject.problem
    now = problem.demand or Demand(None, 1.0)
    ratio = now.peak_over_average if peak_over_average is None else peak_over_average
    try:
        demand = read_demand(average, ratio)
    except InputError as error:
        flags = {"average": "--demand", "peak_over_average": "--peak-over-average"}
        field = flags.get(str(error.field), error.field)
        raise InputError(error.message, field=field, accepted=error.accepted) from None
    if average is None:
        demand = replace(demand, average_tokens_per_s=now.average_tokens_per_s)
    subject = replace(asked.subject, problem=replace(problem, demand=demand))
    return replace(asked, subject=subject)


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
        more = tuple(limit_from(text) for text in limits)
        problem = replace(problem, limits=(*problem.limits, *more))
    chosen = objective or _first(problem.objectives)
    if chosen not in [one.metric for one in problem.objectives]:
        raise InputError(
            f"{chosen} is no objective of {study.name}",
            field="--objective",
            accepted=", ".join(one.metric for one in problem.objectives),
        )
    return Asked(
        Subject(problem, catalog), study.title or study.name, seed, engine, chosen, tuple(notes)
    )


def _first(objectives: Sequence[Any]) -> str:
    """The first objective in dollars, else the first."""
    names = [one.metric for one in objectives]
    return next((name for name in names if name.startswith("usd_")), names[0])


def limit_from(text: str) -> Limit:
    """A limit that a flag gives. Raises InputError."""
    try:
        return parse_constraint(text)
    except InputError as error:
        raise InputError(error.message, field="--limit", accepted=error.accepted) from None
