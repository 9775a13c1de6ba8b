"""`dse.compare`: two of anything side by side, one answer. Each kind imports what it needs itself:
chips need no search, studies no fleet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.schema.loader import Lazy, load_yaml
from dse.schema.model_catalog import load_model, resolve_model
from dse.schema.plan_reader import shipped_plans
from dse.schema.prices import last_day
from dse.schema.rediscovery import case_of, load_case, resolve_case, shipped_cases
from dse.schema.study import chip_files_of, load_study, resolve_space, shipped_spaces
from dse.study.definition import space_file_of
from dse.study.folder import STUDY, read_json

Kind = Literal["studies", "merged", "plans", "dates", "chips", "by chip", "design", "model"]
Say = Callable[[str], None]
CASES = "rediscovery"  # all shipped cases; before a slash, one of them


def compare(
    *what: Any,
    as_of: Sequence[str] = (),
    by: str | None = None,
    law: str | None = None,
    model: Any = None,
    merge: bool = False,
    out: str | Path | None = None,
    catalog: Catalog | None = None,
    progress: Say = lambda text: None,
    **point: Any,
) -> Answer:
    """What differs between two studies, dates, fleets or chips, or from a published model.

        dse.compare("studies/june", "studies/now").headline
        dse.compare("studies/gpu", "studies/tpu", "studies/wafer")
        dse.compare("quickstart", as_of=("2026-06", "2026-11"))
        dse.compare("h100_sxm", "h200_sxm", model="llama-3-70b", tp=8).to_html("chips.html")
        dse.compare("basket-h200-tpu-trn2", by="chip")
        dse.compare("rediscovery/llama-3-70b")

    `what` says what is compared:

    - two folders that `dse run` or `dse fleet --out` wrote, or what `dse.run` or
      `dse.fleet` returned: prices, the chosen designs, the front;
    - three such studies or more, or two with `merge`: their fronts as one, which study each point
      comes from, and what each study adds;
    - two plans, by name or by the path of a file, or one and such a folder: what each buys or rents
      at the prices of the catalog, and what it costs;
    - a space, with two dates in `as_of`, the earlier first: two studies of it at the prices known
      then, which `out` keeps;
    - chips by id or by the path of a chip file, six at most, with `model` and the other arguments
      of `dse.estimate`: figures, prices, and the model's operators on each;
    - a space of several chips, with `by="chip"`: one shape for all of them, against each chip's own
      best;
    - a space of one chip or a study, and a published model: how far the front lands from it. A
      shipped case (`rediscovery/NAME`) or the path of a case file says both, with what was known
      when the model was designed; `rediscovery` alone is all of them. `law` is another quality law.

    Raises InputError for what cannot be compared or read, NothingFeasible for a space none of whose
    points is feasible.
    """
    catalog = catalog or load_catalog()
    kind = kind_of(what, as_of, by, catalog, merge)
    if kind != "chips" and (point or model is not None):
        given = "model" if model is not None else next(iter(point))
        raise InputError(f"{given} does not go with {SAID[kind]}", accepted="chips")
    made = _compared(kind, what, as_of, law, model, out, catalog, progress, point)
    names = catalog.names
    known = Lazy((*made.names, *names), lambda chip: made.names.get(chip) or names[chip])
    return replace(made, names=known)


def _compared(
    kind: Kind,
    what: Sequence[Any],
    as_of: Sequence[str],
    law: str | None,
    model: Any,
    out: str | Path | None,
    catalog: Catalog,
    progress: Say,
    point: dict[str, Any],
) -> Answer:
    if kind == "merged":
        from dse.questions.compare.merged import merge as merge_studies
        from dse.questions.compare.merged import merged_answer

        folders = [Path(str(getattr(one, "folder", one))) for one in what]
        return merged_answer(merge_studies(folders))
    if kind == "studies":
        return _studies(what[0], what[1])
    if kind == "dates":
        return _dates(str(what[0]), tuple(as_of), out, catalog, progress)
    if len(as_of) == 1:
        catalog = catalog.as_of(as_of[0])
    if kind == "plans":
        from dse.questions.compare.fleet import compare_fleets

        fleets = [_fleet(one, catalog, progress) for one in what]
        return compare_fleets(fleets[0], fleets[1])
    if kind == "chips":
        from dse.questions.compare.chips import compare_chips
        from dse.questions.compare.chips_tables import chips_answer
        from dse.questions.estimate.ask import DEFAULTS

        asked = {**DEFAULTS, "law": law, "model": model, **point}
        return chips_answer(compare_chips(catalog, list(map(str, what)), **asked))

    def count(name: str, done: int, total: int) -> None:
        progress(f"{name}: {done:,} of {total:,} shapes served")

    if kind == "by chip":
        from dse.questions.compare.basket import basket_answer

        study = load_study(resolve_space(str(what[0])), _for(what[0], catalog), law)
        return basket_answer(study, _for(what[0], catalog), count)
    from dse.questions.compare.designs import designs_answer
    from dse.questions.compare.rediscovery import rediscover

    if kind == "model":
        space = _space_of(what[0])
        study = load_study(resolve_space(space), _for(space, catalog), law)
        case = case_of(study, load_model(what[1]))
        return designs_answer([rediscover(case, _for(space, catalog), count)])
    name = str(what[0]).removeprefix(f"{CASES}/")
    paths = list(shipped_cases().values()) if name == CASES else [resolve_case(name)]
    cases = [load_case(path, law, catalog) for path in paths]
    found = [rediscover(case, catalog, count) for case in cases]
    return designs_answer(found)


# What each kind of comparison is called in a message.
SAID: dict[Kind, str] = {
    "studies": "two studies or fleets",
    "merged": "studies that are merged",
    "plans": "two plans",
    "dates": "a space at two dates",
    "chips": "chips",
    "by chip": "a space by chip",
    "design": "a published design",
    "model": "a space and a published model",
}


def kind_of(
    what: Sequence[Any],
    as_of: Sequence[str],
    by: str | None,
    catalog: Catalog,
    merge: bool = False,
) -> Kind:
    """What is compared. Raises InputError where that is not clear."""
    folders = [Path(str(getattr(one, "folder", one))) for one in what]
    studies = [(folder / STUDY).is_file() for folder in folders]
    if (len(what) > 2 and any(studies)) or merge:
        if not all(studies) or len(what) < 2 or as_of or by is not None:
            wrong = next((str(what[k]) for k, good in enumerate(studies) if not good), "")
            message = f"{wrong} is no study" if wrong else "these are not merged"
            raise InputError(message, accepted="folders of studies alone, two or more")
        return "merged"
    if len(what) == 2 and all(isinstance(one, Answer) for one in what):
        return "studies"
    names = [str(getattr(one, "folder", one)) for one in what]
    if by is not None and (by != "chip" or len(names) != 1):
        raise InputError(f"read {by!r}", field="--by", accepted="chip, with one space")
    if names and all(Path(name).is_dir() for name in names) and len(names) == 2:
        kind: Kind = "studies"
    elif by is not None:
        kind = "by chip"
    elif len(names) == 1 and _is_case(names[0]):
        kind = "design"
    elif len(names) == 2 and any(map(_is_plan, names)):
        kind = "plans"
    elif any(_is_chip(name, catalog) for name in names) or len(names) > 2:
        kind = "chips"
    elif len(names) == 2 and _is_space(names[0], names[1]):
        kind = "model"
    elif len(names) == 2:
        kind = "studies"
    elif names and len(as_of) == 2:
        kind = "dates"
    else:
        raise InputError(
            "'B' is missing",
            accepted="a second folder or plan; of a space, --as-of twice, --by chip or a published "
            "model; chips; rediscovery/NAME",
        )
    if kind == "studies" and as_of:
        raise InputError("--as-of does not go with two folders", accepted="one of the two")
    if len(as_of) > (2 if kind == "dates" else 1):
        raise InputError(f"{len(as_of)} dates", field="--as-of", accepted="one, or two of a space")
    return kind


def _is_case(text: str) -> bool:
    """`rediscovery`, `rediscovery/NAME`, or a file that names an expert."""
    if text == CASES or text.startswith(f"{CASES}/"):
        return True
    return "expert" in _keys(text)


def _is_plan(text: str) -> bool:
    """A shipped plan of a fleet, or a file that is one."""
    return text in shipped_plans() or "demand" in _keys(text)


def _fleet(one: Any, catalog: Catalog, progress: Say) -> Path | Answer:
    """The fleet of a plan; a folder as it is."""
    if isinstance(one, Answer):
        return one
    from dse.questions.fleet.fleet import fleet

    return fleet(one, catalog=catalog, progress=progress) if _is_plan(str(one)) else Path(one)


def _is_chip(text: str, catalog: Catalog) -> bool:
    """An id of the catalog, or a file that is neither a space nor a plan."""
    keys = _keys(text)
    return text in catalog.chips or (bool(keys) and not keys & {"workload", "workloads", "demand"})


def _is_space(text: str, model: str) -> bool:
    """A space, or a study beside the name of a published model."""
    if text in shipped_spaces() or Path(text).is_file():
        return True
    if not (Path(text) / STUDY).is_file():
        return False
    try:
        resolve_model(model)
    except InputError:
        return False
    return True


def _keys(text: str) -> set[str]:
    """The keys of a YAML file, none of anything else."""
    if not text.endswith((".yaml", ".yml")) or not Path(text).is_file():
        return set()
    written = load_yaml(text).data
    return set(map(str, written)) if isinstance(written, dict) else set()


def _for(space: Any, catalog: Catalog) -> Catalog:
    """The catalog with the chip files that a space names."""
    return catalog.with_files(chip_files_of(str(space)))


def _space_of(text: Any) -> str:
    """A space, or that of a finished study."""
    if (Path(str(text)) / STUDY).is_file():
        return str(space_file_of(read_json(Path(str(text)), STUDY), str(text)))
    return str(text)


def _studies(a: Any, b: Any) -> Answer:
    from dse.questions.compare.fleet import compare_fleets, is_fleet
    from dse.questions.compare.studies import compare as compare_studies
    from dse.questions.compare.tables import studies_answer

    if isinstance(a, Answer) and isinstance(b, Answer):
        return compare_fleets(a, b)
    first, second = (Path(str(getattr(one, "folder", one))) for one in (a, b))
    if is_fleet(first) or is_fleet(second):
        return compare_fleets(first, second)
    return studies_answer(compare_studies(first, second))


def _dates(
    space: str,
    dates: tuple[str, ...],
    out: str | Path | None,
    catalog: Catalog,
    progress: Say,
) -> Answer:
    """Two studies of a space at the prices of two dates, kept under `out`."""
    from dse.questions.compare.studies import compare as compare_studies
    from dse.questions.compare.tables import studies_answer
    from dse.study.run import run

    if last_day(dates[0]) >= last_day(dates[1]):
        raise InputError(
            f"read {' and '.join(dates)}", field="--as-of", accepted="the earlier date first"
        )
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as folder:
        sides = []
        for date in dates:

            def count(done: int, total: int | None, front: int, date: str = date) -> None:
                of = f" of at most {total:,}" if total else ""
                progress(f"as of {date}: {done:,}{of} points evaluated; front {front:,}")

            sides.append(Path(folder) / date)
            run(space, out=sides[-1], catalog=catalog.as_of(date), progress=count)
        called = None if out else (f"{space} as of {dates[0]}", f"{space} as of {dates[1]}")
        return studies_answer(compare_studies(sides[0], sides[1], called))
