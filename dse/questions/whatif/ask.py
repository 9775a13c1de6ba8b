"""`dse.whatif`, what changes when an input does, and `dse.require`, what a chip lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import units
from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.questions.whatif.answer import Questions, answer
from dse.questions.whatif.change import from_file, from_flags, read_sweep
from dse.questions.whatif.equal import KINDS
from dse.questions.whatif.inputs import inputs_of
from dse.questions.whatif.present import whatif_answer
from dse.questions.whatif.require import QUANTITIES, require_answer, required
from dse.questions.whatif.subject import Subject, of_study, under
from dse.questions.whatif.subject import whole_servers as in_whole_servers
from dse.schema.loader import did_you_mean
from dse.schema.metrics import parse_limit


def whatif(
    study: Any,
    changes: Mapping[str, str] | None = None,
    *,
    scenario: str | None = None,
    sweeps: Sequence[str] = (),
    sensitivities: bool = False,
    break_even: bool = False,
    equal: Sequence[str] = (),
    at: str | None = None,
    rack_power: str = "40kW",
    demand: str | None = None,
    peak_over_average: str | None = None,
    whole_servers: bool = False,
    limits: Sequence[str] = (),
    objective: str | None = None,
    settings: Sequence[str] = (),
    catalog: Catalog | None = None,
    command: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """What enters and leaves the front, who wins and by how much, where inputs change.

        dse.whatif("tiny", {"chip.h100_sxm.price": "-20%"}).to_html("whatif.html")

    `study` is what `dse.run` returned, its folder, a shipped space, the path of a space file, or a
    dict such as that of `dse.space_of_model`. `changes` are inputs and what becomes of them;
    `settings` are the same as `--set` takes them. The other arguments are the options of
    `dse whatif`.

    Raises InputError for what cannot be read, NothingFeasible where no point keeps the limits.
    """
    subject = of_study(_space(study), catalog or load_catalog(), limits, objective)
    if demand is not None or peak_over_average is not None:
        subject = under(subject, demand, peak_over_average)
    if whole_servers:
        subject = in_whole_servers(subject)
    known = inputs_of(subject)
    made = [*settings, *(f"{name}={to}" for name, to in (changes or {}).items())]
    scenarios = from_flags(made, known)
    fixed = scenarios[0].changes if scenarios else ()
    questions = Questions(
        scenarios=[*scenarios, *(from_file(scenario, known) if scenario else [])],
        sweeps=[read_sweep(text, known) for text in sweeps],
        fixed=fixed,
        sensitivities=sensitivities,
        break_even=break_even or _ranks(subject, made, scenario, sweeps, sensitivities, equal),
        equal=list(dict.fromkeys(equal)),
        at=at,
        rack_w=_rack_power(rack_power),
    )
    _check(questions)
    made = whatif_answer(answer(subject, questions, progress), command)
    return replace(made, names=subject.catalog.names)


def _ranks(subject: Subject, *asked: Any) -> bool:
    """Whether nothing else is asked of a model on several chips: these are then ranked."""
    problem = subject.problem
    return not any(asked) and problem.model is not None and len(problem.machines.ids) > 1


def require(
    study: Any,
    chip: str,
    *,
    vary: Sequence[str] = tuple(QUANTITIES),
    margin: str = "0%",
    space: str | None = None,
    catalog: Catalog | None = None,
    command: str = "",
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Answer:
    """What bandwidth, capacity, FLOP/s, link, domain, price or power a chip must have to enter the
    front of a finished study.

        dse.require("studies/llama", "mi300x", margin="2%").headline

    `chip` is an id or the path of a chip file; each of `vary` is changed alone; `space` is the
    study's space file, where that has moved. Raises InputError.
    """
    try:
        share = parse_limit(margin.strip(), "fraction")
    except InputError:
        share = 1.0
    if share >= 1.0:
        message = f"read {margin!r}"
        raise InputError(message, field="--margin", accepted="a share below 100%, such as 2%")
    known, name = (catalog or load_catalog()).with_chip(chip)
    folder = Path(_space(study))
    names = tuple(dict.fromkeys(vary))
    found = required(folder, name, known, names, space=space, margin=share, progress=progress)
    return replace(require_answer(found, command), names=known.names)


def _space(study: Any) -> Any:
    return study if isinstance(study, Mapping) else getattr(study, "folder", study)


def _check(asked: Questions) -> None:
    """Raises InputError for questions that do not go together."""
    for kind in asked.equal:
        if kind not in KINDS:
            message = f"unknown kind {kind!r}{did_you_mean(kind, KINDS)}"
            raise InputError(message, field="--equal", accepted=", ".join(KINDS))
    if asked.at and len(asked.equal) != 1:
        raise InputError("--at needs one --equal", accepted="--equal power --at 100kW")
    changed = [change.input.name for change in asked.fixed]
    for sweep in asked.sweeps:
        if sweep.input.name in changed:
            raise InputError(
                f"{sweep.input.name} is set and swept", field="--sweep", accepted="one of the two"
            )
    of_today = {
        "sensitivities": asked.sensitivities,
        "break-even": asked.break_even,
        "equal": asked.equal,
    }
    other = [name for name, given in of_today.items() if given]
    if other and changed:
        raise InputError(
            f"--{other[0]} is asked of the study as it stands",
            field="--set",
            accepted="one of the two; --sweep goes with --set",
        )


def _rack_power(text: str) -> float:
    rack_w = units.parse(text, "W", field="--rack-power")
    if rack_w <= 0.0:
        raise InputError(f"read {text!r}", field="--rack-power", accepted="a power above 0")
    return rack_w
