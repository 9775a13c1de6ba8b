"""`dse.compare`: two of anything side by side, one answer. Each kind imports what it needs itself:
chips need no search, studies no fleet; two fleets need nothing more and stand here."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dse.answer.answer import Answer
from dse.answer.frames import document, of_rows, stacked_bars
from dse.answer.numbers import dollars, significant, tenths
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.options import MODEL, Opt
from dse.questions.estimate.estimate import option
from dse.schema.loader import Lazy, load_yaml
from dse.schema.model import Model
from dse.schema.model_catalog import load_model, resolve_model
from dse.schema.plan_reader import shipped_plans
from dse.schema.prices import last_day
from dse.schema.study import (
    case_of,
    chip_files_of,
    load_case,
    load_study,
    resolve_case,
    resolve_space,
    shipped_cases,
    shipped_spaces,
)
from dse.study.folder import FLEET, STUDY, read_json

Kind = Literal["studies", "merged", "fleets", "plans", "dates", "chips", "basket", "case", "model"]
Say = Callable[[str], None]
CASES = "rediscovery"  # all shipped cases; before a slash, one of them
# What each kind of comparison is called in a message.
SAID: dict[Kind, str] = {
    "studies": "two studies or fleets",
    "merged": "studies that are merged",
    "fleets": "two studies or fleets",
    "plans": "two plans",
    "dates": "a space at two dates",
    "chips": "chips",
    "basket": "a space by chip",
    "case": "a published design",
    "model": "a space and a published model",
}


def compare(
    *what: Annotated[Any, Opt(positional=True, metavar="A [B ...]")],
    as_of: Annotated[
        tuple[str, ...],
        Opt("Shipped prices known then: 2026-06. A SPACE with two: two studies.", metavar="DATE"),
    ] = (),
    by: Annotated[
        str | None, Opt("Of a SPACE of several chips: one shape for all.", metavar="chip")
    ] = None,
    merge: Annotated[bool, Opt("Two studies as one front, as three or more are.")] = False,
    law: Annotated[
        str | None, Opt("Quality law that predicts the loss (default: that of the space).")
    ] = None,
    model: Annotated[str | Path | Mapping[str, Any] | Model | None, MODEL] = None,
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
    point = {name: value for name, value in point.items() if value is not None}
    if kind != "chips" and (point or model is not None):
        given = option("model" if model is not None else next(iter(point)))
        raise InputError(f"{given} does not go with {SAID[kind]}", accepted="chips")
    if kind == "chips" and model is None:
        asked = [name for name in point if name not in ("settings", "price_basis")]
        asked += ["law"] if law is not None else []
        if asked:
            message = f"{option(asked[0])} does not go with a comparison of figures"
            raise InputError(message, accepted="also --model")
    if kind in ("studies", "merged", "fleets", "plans", "dates") and law is not None:
        raise InputError(f"--law does not go with {SAID[kind]}", accepted="one of the two")
    if len(as_of) == 1:
        catalog = catalog.as_of(as_of[0])
    names = [str(getattr(one, "folder", one)) for one in what]
    folders = [Path(name) for name in names]

    def count(name: str, done: int, total: int) -> None:
        progress(f"{name}: {done:,} of {total:,} shapes served")

    if kind in ("merged", "studies"):
        from dse.questions.compare.studies import compare_studies, merged_studies

        made = (
            merged_studies(folders) if kind == "merged" else compare_studies(folders[0], folders[1])
        )
    elif kind == "dates":
        made = _at_dates(names[0], as_of, out, catalog, progress)
    elif kind in ("fleets", "plans"):
        from dse.questions.fleet.fleet import fleet

        first, second = (
            one
            if isinstance(one, Answer)
            else folder
            if folder.is_dir()
            else fleet(str(folder), catalog=catalog, progress=progress)
            for one, folder in zip(what, folders, strict=True)
        )
        made = compare_fleets(first, second)
    elif kind == "chips":
        from dse.questions.compare.chips import compare_chips

        made = compare_chips(catalog, names, law=law, model=model, **point)
    elif kind == "basket":
        from dse.questions.compare.designs import basket_answer

        catalog = catalog.with_files(chip_files_of(names[0]))
        made = basket_answer(load_study(resolve_space(names[0]), catalog, law), catalog, count)
    else:
        from dse.questions.compare.designs import designs_answer

        if kind == "model":
            space = names[0]
            if (folders[0] / STUDY).is_file():
                from dse.study.definition import space_file_of

                space = str(space_file_of(read_json(folders[0], STUDY), space))
            catalog = catalog.with_files(chip_files_of(space))
            study = load_study(resolve_space(space), catalog, law)
            cases = [case_of(study, load_model(what[1]))]
        else:
            name = names[0].removeprefix(f"{CASES}/")
            paths = list(shipped_cases().values()) if name == CASES else [resolve_case(name)]
            cases = [load_case(path, law, catalog) for path in paths]
        made = designs_answer(cases, catalog, count)
    chips = catalog.names
    known = Lazy((*made.names, *chips), lambda chip: made.names.get(chip) or chips[chip])
    return replace(made, names=known)


def kind_of(
    what: Sequence[Any],
    as_of: Sequence[str],
    by: str | None,
    catalog: Catalog,
    merge: bool = False,
) -> Kind:
    """What is compared. Raises InputError where that is not clear."""
    names = [str(getattr(one, "folder", one)) for one in what]
    sorts, two = [_sort_of(name, catalog) for name in names], len(names) == 2
    kind: Kind
    if merge or (len(names) > 2 and "study" in sorts):
        if {*sorts} != {"study"} or len(names) < 2 or as_of or by is not None:
            wrong = next((n for n, sort in zip(names, sorts, strict=True) if sort != "study"), "")
            message = f"{wrong} is no study" if wrong else "these are not merged"
            raise InputError(message, accepted="folders of studies alone, two or more")
        return "merged"
    if two and all(isinstance(one, Answer) for one in what):
        return "fleets"
    if by is not None and (by != "chip" or len(names) != 1):
        raise InputError(f"read {by!r}", field="--by", accepted="chip, with one space")
    if two and {*sorts} <= {"study", "fleet", "folder"}:
        kind = "fleets" if "fleet" in sorts else "studies"
    elif by is not None:
        kind = "basket"
    elif sorts == ["case"]:
        kind = "case"
    elif two and "plan" in sorts:
        kind = "plans"
    elif "chip" in sorts or len(names) > 2:
        kind = "chips"
    elif two:
        named = sorts[0] == "space" or (sorts[0] == "study" and _is_model(names[1]))
        kind = "model" if named else "studies"
    elif names and len(as_of) == 2:
        kind = "dates"
    else:
        raise InputError(
            "'B' is missing",
            accepted="a second folder or plan; of a space, --as-of twice, --by chip or a published "
            "model; chips; rediscovery/NAME",
        )
    if kind in ("studies", "fleets") and as_of:
        raise InputError("--as-of does not go with two folders", accepted="one of the two")
    if len(as_of) > (2 if kind == "dates" else 1):
        raise InputError(f"{len(as_of)} dates", field="--as-of", accepted="one, or two of a space")
    source = catalog.source
    own = {"--chip-file": source.chips, "--prices": source.prices, "--costs": source.costs}
    for flag, given in {**own, "--efficiency-file": source.efficiency}.items():
        if given and kind in ("studies", "fleets"):
            message = f"{flag} does not go with {SAID[kind]}, which have theirs"
            raise InputError(message, accepted="one of the two")
    return kind


def _sort_of(name: str, catalog: Catalog) -> str:
    """What a name or a path is of; empty where nothing has it."""
    path, keys = Path(name), set[str]()
    if path.is_dir():
        held = [
            sort for sort, file in (("study", STUDY), ("fleet", FLEET)) if (path / file).is_file()
        ]
        return held[0] if held else "folder"
    if path.suffix in (".yaml", ".yml") and path.is_file():
        written = load_yaml(name).data
        keys = set(map(str, written)) if isinstance(written, dict) else keys
    if name == CASES or name.startswith(f"{CASES}/") or "expert" in keys:
        return "case"
    if name in shipped_plans() or "demand" in keys:
        return "plan"
    if name in catalog.chips or (keys and not keys & {"workload", "workloads"}):
        return "chip"
    return "space" if name in shipped_spaces() or path.is_file() else ""


def _is_model(name: str) -> bool:
    try:
        resolve_model(name)
    except InputError:
        return False
    return True


def _at_dates(
    space: str, dates: Sequence[str], out: str | Path | None, catalog: Catalog, progress: Say
) -> Answer:
    """Two studies of a space at the prices of two dates, kept under `out` with their reports."""
    from dse.questions.compare.studies import compare_studies
    from dse.questions.study import write_report
    from dse.study.run import run

    if last_day(dates[0]) >= last_day(dates[1]):
        raise InputError(
            f"read {' and '.join(dates)}", field="--as-of", accepted="the earlier date first"
        )
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as folder:
        sides = [Path(folder) / date for date in dates]
        for side, date in zip(sides, dates, strict=True):

            def count(done: int, total: int | None, front: int, date: str = date) -> None:
                of = f" of at most {total:,}" if total else ""
                progress(f"as of {date}: {done:,}{of} points evaluated; front {front:,}")

            run(space, out=side, catalog=catalog.as_of(date), progress=count)
            if out is not None:
                write_report(side)
        called = None if out else (f"{space} as of {dates[0]}", f"{space} as of {dates[1]}")
        return compare_studies(sides[0], sides[1], called)


# Two fleets of `dse fleet` side by side: prices, what to order, what it costs.

Json = Mapping[str, Any]
ALIKE = 1e-6  # relative: tokens of two plans that ask the same
SAME = 5e-4  # a share below which two costs are said to be the same
# Frames of both: the caption, the keys of a row, and what it has of either side.
PAIRS = {
    "prices": ("Prices of the offers", ("offer", "per"), ("price_usd",)),
    "orders": ("Chips to order", ("order_quarter", "way", "chip", "offer"), ("chips",)),
    "chips": ("Chips by quarter", ("quarter", "chip"), ("rented_chips", "owned_chips")),
}
SIDES = ("before", "after")
WORDS = {"offer": "a way to get a chip, and its price: rented by the hour, or bought"}


def compare_fleets(a: Path | Answer, b: Path | Answer) -> Answer:
    """What changed from one fleet to the other, of two folders with a fleet.json, or of what
    `dse.fleet` returned. Raises InputError for a folder without one, StorageError for one that is
    damaged."""
    first, second = (
        one.document if isinstance(one, Answer) else read_json(one, FLEET) for one in (a, b)
    )
    folders = [Path(one.document["plan"]) if isinstance(one, Answer) else one for one in (a, b)]
    before, after = (folder.resolve().name for folder in folders)
    if before == after:
        before, after = f"A ({folders[0]})", f"B ({folders[1]})"
    rows = {name: _pairs(first[name], second[name], by, of) for name, (_, by, of) in PAIRS.items()}
    for row in (prices := rows["prices"]):
        one, other = row["price_usd.before"], row["price_usd.after"]
        row["change"] = other / one - 1.0 if one and other else None
    moved = [row for row in prices if row["price_usd.before"] != row["price_usd.after"]]
    frames = [of_rows(n, PAIRS[n][0], made, tuple(made[0])) for n, made in rows.items() if made]
    costs = [one["usd_undiscounted"] for one in (first, second)]
    ratio = costs[1] / costs[0] if costs[0] and costs[1] else None
    infeasible = [n for n, one in ((before, first), (after, second)) if not one["feasible"]]
    if infeasible:
        headline = f"nothing keeps the plan of {' and '.join(infeasible)}."
    else:
        over = f"over {second['quarters']} quarters"
        cost = f"the fleet costs the same {dollars(costs[1])} {over}"
        if ratio is not None and abs(ratio - 1.0) >= SAME:
            much = f"{tenths(abs(ratio - 1.0))} {'more' if ratio > 1.0 else 'less'}"
            cost = (
                f"the fleet costs {much} ({dollars(costs[1])} {over}, before {dollars(costs[0])})"
            )
        headline = f"{_order_words(first, second)}; {cost}."
    sentences = [f"From {before} to {after}, {headline}", _moves(moved, len(prices))]
    each = [one["usd_per_million_tokens"] for one in (first, second)]
    if all(each):
        sentences.append(f"Per million tokens: {dollars(each[1])}, before {dollars(each[0])}.")
    sentences += _unlike(first, second)
    facts: dict[str, Any] = {
        "a": str(folders[0]),
        "b": str(folders[1]),
        "names": {"a": before, "b": after},
        "title": second["title"],
        "quarters": second["quarters"],
        **{
            f"{key}_{side}": one[key]
            for key in ("feasible", "usd", "usd_undiscounted", "usd_per_million_tokens")
            for side, one in (("a", first), ("b", second))
        },
        "ratio": ratio,
        "answer": sentences,
    }
    series: dict[str, list[float]] = {}
    last = max((int(row["quarter"]) for row in rows["chips"]), default=0)
    for row in rows["chips"]:
        for k, side in enumerate(SIDES):
            for way in PAIRS["chips"][2]:
                if value := row[f"{way}.{side}"]:
                    name = f"{row['chip']}, {way.removesuffix('_chips')}"
                    bars = series.setdefault(name, [0.0] * 2 * last)
                    bars[2 * int(row["quarter"]) - 2 + k] = value
    at = [f"Q{q + 1}<br>{name}" for q in range(last) for name in (before, after)]
    shows = "Chips that are held by quarter, before and after, stacked by chip."
    chart = stacked_bars("chips", "Chips by quarter", series, "chips", shows, at=at)
    return Answer(
        question="compare",
        title=f"{second['title']}: what changed",
        asked=f"{second['title']}: from {before} to {after}",
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*((chart,) if series else ()), *frames),
        document=document(facts, frames),
        data=frames[-1:],
        words=WORDS,
    )


def _pairs(
    a: Sequence[Json], b: Sequence[Json], by: Sequence[str], of: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each that one of two frames has, called `by` its keys, with the values `of` both;
    those that stand in several rows are summed, and those of one alone are None in the other."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for side, rows in zip(SIDES, (a, b), strict=True):
        for row in rows:
            key = tuple(row[name] for name in by)
            empty = {f"{name}.{end}": None for name in of for end in SIDES}
            one = found.setdefault(key, {**dict(zip(by, key, strict=True)), **empty})
            for name in of:
                one[f"{name}.{side}"] = (one[f"{name}.{side}"] or 0) + (row[name] or 0)
    return [found[key] for key in sorted(found, key=lambda key: tuple(map(str, key)))]


def _order_words(a: Json, b: Json) -> str:
    """`order 24 h100_sxm (rent, quarter 1) instead of 8 h200_sxm (buy, quarter 2)`."""
    before, after = (
        " and ".join(
            f"{row['chips']:,} {row['chip']} ({row['way']}, quarter {row['order_quarter']})"
            for row in one["orders"]
            if row["chips"]
        )
        or "nothing"
        for one in (a, b)
    )
    return f"the orders stay: {after}" if before == after else f"order {after} instead of {before}"


def _moves(moved: Sequence[Json], offers: int) -> str:
    """How many prices changed, and the largest change of one that both have."""
    said = f"Prices of {len(moved)} of {offers} offers changed"
    known = [row for row in moved if row["change"] is not None]
    if not known:
        return f"{said}."
    row = max(known, key=lambda row: abs(math.log1p(row["change"])))
    one, other = (significant(row[f"price_usd.{end}"]) for end in SIDES)
    return (
        f"{said}, most {row['offer']} from ${one} to ${other} ({tenths(row['change'], sign=True)})."
    )


def _unlike(a: Json, b: Json) -> list[str]:
    """What else differs, so that prices alone do not explain the change."""
    found = []
    for what, key in (("plan", "plan"), ("quarters", "quarters"), ("price basis", "price_basis")):
        if a[key] != b[key]:
            found.append(f"{what}: {a[key]} and {b[key]}")
    costs = [(one["usd_undiscounted"], one["usd_per_million_tokens"]) for one in (a, b)]
    tokens = [usd / each * 1e6 for usd, each in costs if usd and each]
    if len(tokens) == 2 and not math.isclose(*tokens, rel_tol=ALIKE):
        ours, theirs = (f"{significant(one / 1e9)}B" for one in tokens)
        found.append(f"demand: {ours} and {theirs} tokens over the horizon")
    return [f"Not by prices alone: {text}." for text in found]
