"""What a question is asked of: a study folder or a space, under limits and a demand."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.errors import Doubt, InputError
from dse.problem.objective import pose
from dse.questions.whatif.demand import Demanded, demanded, in_servers
from dse.schema.load import Demand, read_demand
from dse.schema.metrics import Limit, parse_constraint
from dse.schema.study import Space, Study, load_study
from dse.study.definition import reopened
from dse.study.folder import STUDY


@dataclass(frozen=True, slots=True)
class Subject:
    """A posed study with the catalog that it was posed against, before prices of owned chips.
    `objective` is the metric that the winner is best in; `seed` and `engine` find the front,
    `notes` are what a reader must know."""

    problem: Demanded
    catalog: Catalog
    title: str = ""
    objective: str = ""
    seed: int = 0
    engine: str = "auto"
    notes: tuple[str, ...] = ()


def of_study(
    space: Space, catalog: Catalog, limits: Sequence[str] = (), objective: str | None = None
) -> Subject:
    """A finished study folder, a shipped space, the path of a space file or what such a file says,
    with further limits. What a study was made with stands beneath the catalog.

    Raises InputError for what is neither, for a study whose space file has changed since, or one
    that was evaluated by a function of the user.
    """
    folder = Path() if isinstance(space, Mapping) else Path(str(space))
    notes, found = [], {}
    if not isinstance(space, Mapping) and (folder / STUDY).is_file():
        before = reopened(folder, catalog)
        document, study = before.document, before.study
        if "--evaluator" in document.get("command", ""):
            raise InputError(
                f"{folder} was evaluated by a function of your own",
                field="STUDY",
                accepted="a study of the built-in model",
            )
        if catalog.source.has_prices:
            notes.append(f"prices and costs as this command gives them, not those of {folder}")
        elif document.get("data_digest") != catalog.source.made_with(document).digest():
            notes.append(
                f"the hardware data have changed since {folder}: before and after are both today's"
            )
        catalog = before.catalog
        found = {"seed": document["seed"], "engine": document["engine"]}
    elif not isinstance(space, Mapping) and folder.is_dir():
        accepted = "a folder that `dse run` wrote"
        raise InputError(f"{folder} is no finished study", field="STUDY", accepted=accepted)
    else:
        study = load_study(space, catalog)
        if isinstance(space, Mapping) and study.description:
            notes.append(study.description)
    study = limited(study, limits)
    catalog = catalog.with_files(study.chip_files)
    problem = demanded(pose(study, catalog), catalog, study.demand)
    names = [one.metric for one in problem.objectives]
    first = next((name for name in names if name.startswith("usd_")), names[0])
    if objective and objective not in names:
        raise InputError(
            f"{objective} is no objective of {study.name}",
            field="--objective",
            accepted=", ".join(names),
        )
    return Subject(
        problem, catalog, study.title or study.name, objective or first, notes=tuple(notes), **found
    )


def limited(study: Study, limits: Sequence[str]) -> Study:
    """The study with further limits, as flags give them. Raises InputError."""
    more: list[Limit] = []
    for text in limits:
        try:
            more.append(parse_constraint(text))
        except InputError as error:
            raise InputError(error.message, field="--limit", accepted=error.accepted) from None
        if said := more[-1].unusual:
            warnings.warn(f"--limit: {said}", Doubt, stacklevel=2)
    return replace(study, constraints=(*study.constraints, *more)) if more else study


def whole_servers(subject: Subject) -> Subject:
    """The same with chips that are had in whole servers. Raises InputError without a demand of
    tokens, which alone says how many deployments there are."""
    demand = subject.problem.demand
    if demand is None or demand.average_tokens_per_s is None:
        raise InputError(
            "whole servers of no demand",
            field="--whole-servers",
            accepted="--demand TOKENS/TIME, too",
        )
    return replace(subject, problem=in_servers(subject.problem, subject.catalog))


def under(subject: Subject, average: Any, peak_over_average: Any) -> Subject:
    """The same under a demand, of which each figure that is given takes the place of the space's.
    Raises InputError, its field --demand or --peak-over-average."""
    now = subject.problem.demand or Demand(None, 1.0)
    ratio = now.peak_over_average if peak_over_average is None else peak_over_average
    try:
        demand = read_demand(average, ratio)
    except InputError as error:
        flags = {"average": "--demand", "peak_over_average": "--peak-over-average"}
        field = flags.get(str(error.field), error.field)
        raise InputError(error.message, field=field, accepted=error.accepted) from None
    if average is None:
        demand = replace(demand, average_tokens_per_s=now.average_tokens_per_s)
    return replace(subject, problem=replace(subject.problem, demand=demand))
