"""`dse.validate`: how far predictions are off what was measured.

A scored table has, for each row, texts `metric`, `serving`, `model`, `chip`, `backend`, `group`
(model|chip), and numbers `value` (measured), `predicted`, `predicted_low`, `predicted_high`.

    error              |predicted / measured - 1|
    bias               median of predicted / measured - 1 (above 0: predicted too large)
    group_median_error median error of each group, averaged over the groups with 5 rows or more
                       (over all groups where none has), so that a group of 700 rows weighs no more
                       than one of 5
    rank_correlation   Spearman's, predicted against measured; None below 3 rows
    interval_coverage  share of measured values inside the 80% interval
    interval_width     median of (high - low) / (2 predicted), comparable with an error

All but `group_median_error` weigh each row equally. Errors are fractions of the measured value.

Figures that claims rest on and no verb prints as one number: shipped rows, joules of an access
against a multiply, measured pairs of chips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from dse.accuracy.fits import FOLDS, cross_validate_training, pose
from dse.accuracy.scores import (
    LAUNCH,
    group_errors,
    pairs_of,
    score,
    score_decisions,
    speed_up,
    supported,
)
from dse.accuracy.serving_points import asked_rows, estimate_disaggregated, estimate_rows
from dse.accuracy.serving_rows import backend_of, serving_of
from dse.accuracy.tables import (
    ADDED,
    ENOUGH_ROWS,
    INFEASIBLE,
    not_covered,
    read_points,
    text_column,
    training_rows,
)
from dse.accuracy.training_rows import SUPERSEDED, asked_training, estimate_training
from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import of_rows
from dse.answer.numbers import share, tenths, time
from dse.answer.plots import line, marks
from dse.catalog import MEASUREMENTS, Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.files import write_text
from dse.options import Opt
from dse.schema.dtypes import arithmetic
from dse.units import LARGEST, SMALLEST
from dse.vocabulary import find

Json = dict[str, Any]
MAIN_SCORES = 3  # named in the headline, and drawn
WORST_GROUPS = 10
FIRST_ASKED = (  # named in the sentence of what is asked
    ("tpot_s", "continuous"),
    ("ttft_s", "continuous"),
    ("output_tokens_per_s", "offline"),
    ("tokens_per_s_per_chip", "pretrain"),
)
BANDS = (("exact", 1.0, "solid"), ("20% above", 1.2, "dot"), ("20% below", 0.8, "dot"))
DRAWN_ROWS = 1_000  # in a picture, evenly thinned
SCORE = "metric serving measured_groups=groups measured_rows=rows group_median_error median_error "
SCORE += "p90_error bias rank_correlation interval_coverage interval_width"
SHOWN = ("metric", "serving", "measured_groups", "measured_rows", "group_median_error", "bias")
SHOWN = (*SHOWN, "interval_coverage", "interval_width")
ABOUT = (
    "error: median error of a group (all rows of one model on one chip), averaged over the groups "
    "with 5 rows or more.",
    "bias: above 0, predictions are too large at the median.",
    "inside: share of the measured values inside the 80% interval, 80% where its width is right.",
)
WITHOUT = "source"  # the fold that decisions are scored without
PICKS = (
    "A need is a model and lengths on a chip, measured in several ways. The pick is predicted to "
    "serve most tokens a chip, of several chips most a dollar.",
)
ASKED = ("continuous", "poisson", "offline")  # serving that is scored as asked, too
TRAINING = "training.csv"
SHIPPED = ("inference.csv", "disaggregated.csv", TRAINING)


def validate(
    data: Annotated[
        str | Path | None, Opt("CSV file in the measurement format.", metavar="FILE")
    ] = None,
    *,
    cross_validate: Annotated[
        bool, Opt("Also score groups, chips and models that a fit left out; takes minutes.")
    ] = False,
    decisions: Annotated[
        bool, Opt("Show what would have been picked by predictions, as it was measured.")
    ] = False,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Compare predictions with measurements.

    Of the measurements that come with dse, or of the rows of `data` in their format, which
    hardware/measurements/README.md describes: rows of serving or of training, told apart by their
    columns. Errors are fractions of the measured value; a group is one model on one chip.

        dse.validate().document["scores"][0]["group_median_error"]

    Raises InputError for a file that is none, where no row could be left out of a fit, and for
    `decisions` of rows that leave nothing to decide.
    """
    catalog, own = catalog or load_catalog(), data is not None
    tables = [read(Path(data))] if data else shipped()
    answers = [predict(table, catalog) for table in tables]
    rows = pd.concat(answers, ignore_index=True)
    scored = covered(rows)
    document: Json = accuracy(rows) | {"decisions": score_decisions(scored, catalog)}
    document |= asked_accuracy(tables, rows, catalog, unseen=cross_validate)
    if decisions and not document["decisions"]:
        raise InputError(
            "nothing to decide",
            file=str(data) if own else None,
            field="--decisions",
            accepted="tpot_s and ttft_s of two ways or more to serve a model and lengths, some "
            "within 10, 20 or 33 ms a token and some not",
        )
    if cross_validate:
        held = rows[rows["serving"] != "disaggregated"]
        if covered(held).empty:
            raise InputError(
                "no row that a fit could leave out",
                file=str(data) if own else None,
                field="--cross-validate",
                accepted="covered rows of static, continuous or offline serving, or of training",
            )
        folds = cross_validated(held, progress, own=own, catalog=catalog)
        document["cross_validation"] = {by: score(table) for by, table in folds.items()}
        document["decisions_held_out"] = score_decisions(folds[WITHOUT], catalog)
        if not own:
            from dse.accuracy.backtest import backtest  # noqa: PLC0415 - it asks for scores

            document["backtest"] = backtest(held[~training_rows(held)], progress=progress)
    main = sorted(_overall(document["scores"]), key=lambda item: -item["rows"])[:MAIN_SCORES]
    headline, *sentences = _sentences(document, main, own=own)
    return Answer(
        question="validate",
        title="Predictions against measurements",
        headline=headline,
        sentences=sentences,
        blocks=[*(_picture(scored, item) for item in main), *_tables(document, rows, decisions)],
        document=document,
        names=catalog.names,
    )


def _sentences(document: Json, main: Sequence[Json], *, own: bool) -> list[str]:
    """The answer first: how far off, how much is covered, how often inside the interval."""
    rows, covered, refused = (document[key] for key in ("rows", "covered", "infeasible"))
    said = f"{covered:,} of {rows:,} measured rows predicted"
    said += f" ({covered / rows:.1%})" if rows else ""
    said += f"; {refused:,} are infeasible by a rule and not scored" if refused else ""
    lines = [f"{said}."]
    if main:
        errors = (
            f"{_name(item['metric'])} ({item['serving']}) {tenths(item['group_median_error'])}"
            for item in main
        )
        lines.insert(0, f"How far off: {', '.join(errors)}.")
        overall = _overall(document["scores"])
        inside = sum(item["interval_coverage"] * item["rows"] for item in overall) / covered
        lines.append(f"{inside:.0%} of the measured values lie inside the 80% interval.")
    asked = _overall(document.get("asked", {}).get("scores", ()))
    asked.sort(key=lambda one: -one["rows"])
    first = [one for one in asked if (one["metric"], one["serving"]) in FIRST_ASKED]
    if first := first or asked[:1]:
        errors = (
            f"{_name(one['metric'])} ({one['serving']}) {tenths(one['median_error'])}"
            for one in first
        )
        lines.append(
            "Asked for as a person would (model, chip, chips, lengths, load, formats, name of the "
            f"software), at the median row: {', '.join(errors)}."
        )
    pairs = document["speed_up"]
    if pairs["pairs"]:
        lines.append(
            f"Speed of one chip over another, the rest equal: off by "
            f"{tenths(pairs['median_error'])} at the median of {pairs['pairs']:,} pairs of rows."
        )
    if picks := document.get("decisions_held_out") or document["decisions"]:
        lines.append(_picked(picks, bool(document.get("decisions_held_out"))))
    if not own and "cross_validation" not in document:
        lines.append(
            "Constants of the model were fitted to some of these rows; --cross-validate shows the "
            "error on groups, chips and models that a fit has not seen."
        )
    return lines


def _picked(picks: Sequence[Json], held_out: bool) -> str:
    """What picks of how to launch a model give away, at the sureness that gives away least."""
    sure = supported(picks)
    rows = [row for row in picks if row["question"] == LAUNCH and row["sureness"] == sure]
    needs = sum(row["needs"] for row in rows)
    broken = sum(row["broken"] * row["needs"] for row in rows) / needs
    lost = sum((row["lost"] or 0.0) * row["needs"] for row in rows) / needs
    limits = ", ".join(time(row["tpot_limit_s"]) for row in rows)
    fitted = ", by a fit without their source" if held_out else ""
    return (
        f"Picked to hold {limits} a token with {share(sure)} sureness{fitted}, {share(broken)} of "
        f"{needs} launches break it by more than 5% as measured; the others serve {share(lost)} "
        "less than the best."
    )


def _name(metric: str) -> str:
    row = find({"mfu": "training_mfu", "chip_hours": "training_chip_hours"}.get(metric, metric))
    return row.title if row else metric


def _overall(scores: Sequence[Json]) -> list[Json]:
    """Those over all rows of a metric and serving."""
    return [score for score in scores if score["by"] == "all"]


def _named(items: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Rows with the title of their metric."""
    return [{**item, "metric": _name(item["metric"])} for item in items]


def _tables(document: Json, rows: pd.DataFrame, decisions: bool) -> list[Table]:
    scores = _named(document["scores"])
    overall = _overall(scores)
    worst = worst_groups(rows)
    large = {(_name(item["metric"]), item["serving"]) for item in worst}
    names = [(item["metric"], item["serving"]) for item in overall]
    small = ", ".join(f"{metric} ({of})" for metric, of in names if (metric, of) not in large)
    notes = [f"No group of {small} has 5 rows: theirs is over all groups."] if small else []
    made = [
        of_rows("scores", "Error by metric", overall, SCORE, *ABOUT, *notes, shown=SHOWN),
        of_rows(
            "worst",
            "Worst groups with 5 rows or more",
            _named(worst[:WORST_GROUPS]),
            "metric serving group measured_rows=rows median_error bias",
        ),
        of_rows("not_covered", "Not covered", document["not_covered"], "measured_rows=rows reason"),
        of_rows(
            "by",
            "Error by chip, model and serving software",
            [item for item in scores if item["by"] != "all"],
            f"by=by scored_key=key {SCORE}",
            on_console=False,
        ),
        of_rows(
            "speed",
            "One chip against another",
            document["speed_up"]["chips"],
            "chip_a chip_b pairs measured predicted median_error",
            on_console=False,
        ),
    ]
    if "asked" in document:
        made.insert(1, _asked(document["asked"]))
    picks = _decisions(document, decisions)
    made = [*picks, *made] if decisions else [*made, *picks]
    if "cross_validation" in document:
        made.insert(1, _held_out(document))
        made.append(_purchase(document.get("backtest", ())))
    return [table for table in made if table.rows]


def _decisions(document: Json, shown: bool) -> list[Table]:
    """Picks at each sureness, and every question at the one that they support; with the model's own
    rows left out of the fit too, where that was asked."""
    made = []
    seen = {"": "decisions", ", fitted without its source": "decisions_held_out"}
    for of, name in seen.items():
        if rows := document.get(name):
            sure = supported(rows)
            launch = [row for row in rows if row["question"] == LAUNCH]
            every = [row for row in rows if row["sureness"] == sure]
            keys = "tpot_limit_s needs broken lost unanswered wasted"
            made += [
                of_rows(
                    f"{name}_sureness",
                    f"How to launch a model, by how surely the limit is held{of}",
                    launch,
                    f"sureness {keys}",
                    on_console=shown,
                ),
                of_rows(
                    name,
                    f"Decisions, the limit held at {share(sure)}{of}",
                    every,
                    f"question {keys} right",
                    *PICKS,
                    on_console=shown,
                ),
            ]
    return made


def _purchase(cases: Sequence[Json]) -> Table:
    """The scores of each case of the backtest, and the speed over the chip whose laws it took."""
    rows = []
    for case in cases:
        pair = case["speed_up"] or {}
        speed = {"measured_speed": pair.get("measured"), "predicted_speed": pair.get("predicted")}
        of = {"chip": case["chip"], "laws": case["laws"], **speed}
        rows += [{**item, **of} for item in _named(case["scores"])]
    return of_rows(
        "purchase",
        "New chips as predicted before anybody had measured them",
        rows,
        "chip laws metric serving measured_rows=rows group_median_error bias interval_coverage "
        "interval_width measured=measured_speed predicted=predicted_speed",
        "laws: whose kernel laws the chip took, as fractions of its own data sheet.",
        "measured, predicted: speed of the chip over that one.",
        on_console=False,
    )


def _asked(document: Json) -> Table:
    """Errors of the same rows, told all that they say and asked as a person would."""
    told, asked, hidden = (
        {(one["metric"], one["serving"]): one for one in _overall(document.get(name, ()))}
        for name in ("told", "scores", "unseen")
    )
    rows = [
        one
        | {"told": told[of]["median_error"], "asked": one["median_error"]}
        | ({"unseen": hidden[of]["median_error"] if of in hidden else None} if hidden else {})
        for of, one in asked.items()
    ]
    keys = "metric serving measured_rows=rows error_told=told error_asked=asked p90_error "
    return of_rows(
        "asked",
        "Told all that a row says, and asked as a person would",
        _named(rows),
        f"{keys} interval_coverage interval_width" + (" error_unseen=unseen" if hidden else ""),
        "asked: model, chip, chips, lengths, load or batch, formats and the name of the serving "
        "software; dse chooses the division, the release and its settings.",
        f"superseded by a newer release and left out: {document['superseded']:,} rows of training.",
    )


def _held_out(document: Json) -> Table:
    """`group_median_error` of the model as it is, and of each kind of fold that the rows have."""
    errors: dict[tuple[str, str], Json] = {}
    for name, scores in ({"in_sample": document["scores"]} | document["cross_validation"]).items():
        for item in _overall(scores):
            row = errors.setdefault((item["metric"], item["serving"]), {})
            row[name] = item["group_median_error"]
    rows = [
        dict.fromkeys(("in_sample", *FOLDS)) | row | {"metric": metric, "serving": serving}
        for (metric, serving), row in errors.items()
        if row.keys() - {"in_sample"}
    ]
    keys = " ".join(f"error_without_{fold}={fold}" for fold in FOLDS)
    caption = "Held out (fitted without what stands above the column), error by group"
    keys = f"metric serving error_in_sample=in_sample {keys}"
    return of_rows("held_out", caption, _named(rows), keys)


def _picture(scored: pd.DataFrame, item: Json) -> Figure:
    """Predicted against measured of one metric and serving."""
    metric, serving = item["metric"], item["serving"]
    rows = scored[(scored["metric"] == metric) & (scored["serving"] == serving)]
    count = len(rows)
    rows = rows.iloc[np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))]
    ends = [float(rows["value"].min()), float(rows["value"].max())]
    data = [line(0, name, ends, [end * by for end in ends], dash) for name, by, dash in BANDS]
    for k, chip in enumerate(rows["chip"].value_counts().index):
        mine = rows[rows["chip"] == chip]
        x, y = ([float(f"{v:.4g}") for v in mine[name]] for name in ("value", "predicted"))
        made = marks(k, str(chip), x, y, [f"{model} on {chip}" for model in mine["model"]])
        data.append(made | {"marker": made["marker"] | {"size": 6, "opacity": 0.7}})
    layout = {
        "height": 520,
        "xaxis": {"title": {"text": f"measured {_name(metric)}"}, "type": "log"},
        "yaxis": {"title": {"text": f"predicted {_name(metric)}"}, "type": "log"},
    }
    return Figure(
        f"{metric}-{serving}",
        f"{_name(metric)} ({serving}): predicted against measured",
        {"data": data, "layout": layout},
        f"{count:,} rows, {len(rows):,} of them drawn, a colour for each chip. A prediction is "
        "exact on the line, and within 20% of the measured value between the dotted lines.",
    )


# Tables of the measurement format, predicted and scored.


def shipped() -> list[pd.DataFrame]:
    """The project's own measurements, one table a file."""
    return [read(hardware_dir() / MEASUREMENTS / name) for name in SHIPPED]


def read(path: Path) -> pd.DataFrame:
    """A file of the measurement format, every cell a text. Raises InputError for one that is none,
    lacks a column, or has no row to score."""
    table = read_points(path, "value")
    if scored_rows(table).empty:
        raise InputError("no row to score", file=str(path), accepted="rows without `exclude`")
    return table


def scored_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows without `exclude`."""
    if "exclude" not in table:
        return table
    return table[table["exclude"].str.strip() == ""].reset_index(drop=True)


def estimate_file(points: Path, out: Path, catalog: Catalog | None = None) -> dict[str, int]:
    """Writes every row of `points` with the columns ADDED to `out`; returns how many are `ok`
    and how many infeasible.

    Raises InputError for a file that is no CSV or lacks a column, StorageError for an `out` that
    cannot be written.
    """
    answer = estimate_table(read_points(points), catalog)
    write_text(out.parent, out.name, answer.to_csv(index=False, lineterminator="\n"))
    ok = int((answer["status"] == "ok").sum())
    return {"rows": len(answer), "ok": ok, "infeasible": infeasible(answer)}


def estimate_table(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED, by the model that its columns call for; rows of training
    get `serving`, their task, and `backend` too. Raises InputError where a needed column is
    missing."""
    training = training_rows(table)
    if training.any():
        own = estimate_training(table[training], catalog)
        if training.all():
            return own
        return pd.concat([estimate_table(table[~training], catalog), own]).loc[table.index]
    if "prefill_workers" not in table:  # a prefill and a decode pool each
        return estimate_rows(table, catalog)
    return estimate_disaggregated(table, catalog)


def predict(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The rows without `exclude`, predicted, as `ready` leaves them."""
    return ready(estimate_table(scored_rows(table), catalog))


def ready(predicted: pd.DataFrame) -> pd.DataFrame:
    """Predicted rows with `value` as a number, `backend` and `group`; a row whose measured value is
    no positive number is not covered."""
    answer = predicted.reset_index(drop=True)
    answer["value"] = pd.to_numeric(answer["value"], errors="coerce")
    cells = {
        name: text_column(answer, name)
        for name in ("engine", "group", "serving", "requests_per_s", "notes")
    }
    named = [backend_of(engine)[0] for engine in cells["engine"]]
    training = training_rows(answer)
    answer["backend"] = np.where(training, answer["backend"], named) if training.any() else named
    made = answer["model"] + "|" + answer["chip"]
    answer["group"] = cells["group"].where(cells["group"] != "", made)
    loads = zip(cells["serving"], cells["requests_per_s"], cells["notes"], strict=True)
    answer["serving"] = [serving_of(*load) for load in loads]
    sane = answer["value"].between(SMALLEST, LARGEST)
    wrong = (answer["status"] == "ok") & ~sane
    answer.loc[wrong, "status"] = "value is not a positive number"
    endless = (answer["status"] == "ok") & ~np.isfinite(answer["predicted"].astype(float))
    answer.loc[endless, "status"] = "no finite prediction"
    return answer


def covered(answer: pd.DataFrame) -> pd.DataFrame:
    """The rows of `ready` that can be scored."""
    return answer[answer["status"] == "ok"]


def infeasible(answer: pd.DataFrame) -> int:
    """How many rows break a rule; their predictions are no accuracy of anything."""
    return int(answer["status"].str.startswith(INFEASIBLE).sum())


def accuracy(answer: pd.DataFrame) -> dict[str, Any]:
    """The document of `dse validate --json` from predicted rows."""
    scored = covered(answer)
    return {
        "rows": len(answer),
        "covered": len(scored),
        "infeasible": infeasible(answer),
        "not_covered": not_covered(answer),
        "scores": score(scored),
        "speed_up": speed_up(scored[~training_rows(scored)]),
    }


def asked_accuracy(
    tables: Sequence[pd.DataFrame], rows: pd.DataFrame, catalog: Catalog, *, unseen: bool
) -> dict[str, Any]:
    """`asked`: `scores` of rows asked for as a person would (training, closed and open loops,
    offline), `told`, of the same rows told all that they say (`rows`, predicted tables one after
    the other), how many are superseded; `unseen`, training as if nothing of the model were
    published. Nothing where there is no such row."""
    found, told, hidden, start = [], [], [], 0
    for table in map(scored_rows, tables):
        own = rows.iloc[start : start + len(table)].reset_index(drop=True)
        start += len(table)
        training = training_rows(table)
        asks = training | own["serving"].isin(ASKED).to_numpy()
        for of, ask in ((training, asked_training), (asks & ~training, asked_rows)):
            if not of.any():
                continue
            some = table[of].reset_index(drop=True)
            answer = ready(ask(some, catalog))
            found.append(answer)
            told.append(own[of].reset_index(drop=True)[answer["status"] == "ok"])
            if unseen and ask is asked_training:
                hidden.append(covered(ready(asked_training(some, catalog, unseen=True))))
    if not found:
        return {}
    answer = pd.concat(found, ignore_index=True)
    document = {
        "rows": len(covered(answer)),
        "superseded": int((answer["status"] == SUPERSEDED).sum()),
        "told": score(covered(pd.concat(told))),
        "scores": score(covered(answer)),
    }
    return {"asked": document | ({"unseen": score(pd.concat(hidden))} if hidden else {})}


def cross_validated(
    answer: pd.DataFrame,
    progress: Callable[[str], None],
    *,
    own: bool,
    catalog: Catalog | None = None,
) -> dict[str, pd.DataFrame]:
    """The covered rows of `answer`, predicted without each fold, by kind of fold. Rows of the
    user's `own` enter no fit: theirs are to the shipped rows, without those that share the row's
    group, chip or model."""
    rows = covered(answer).drop(columns=list(ADDED))
    training = training_rows(rows)
    folds = []
    if not training.all():
        served = rows[~training].reset_index(drop=True)
        folds.append(_served_folds(served, progress, own, catalog))
    if training.any():
        trained = rows[training].reset_index(drop=True)
        fitted = scored_rows(read(hardware_dir() / MEASUREMENTS / TRAINING)) if own else None
        folds.append(cross_validate_training(trained, fitted, progress, catalog))
    together = {by: pd.concat([fold[by] for fold in folds]) for by in folds[0]}
    return {by: covered(ready(table)) for by, table in together.items()}


def _served_folds(
    rows: pd.DataFrame, progress: Callable[[str], None], own: bool, catalog: Catalog | None
) -> dict[str, pd.DataFrame]:
    """By fold, rows of serving as `predict` leaves them."""
    if not own:
        return pose(rows, catalog).cross_validate(progress)
    shipped_rows = scored_rows(shipped()[0])
    both = pd.concat([shipped_rows, rows.assign(exclude="not fitted")], ignore_index=True)
    folds = pose(both.fillna(""), catalog).cross_validate(progress)
    unseen = estimate_rows(rows, catalog)  # no shipped row shares the group, chip or model of these
    answers = {}
    for by, table in folds.items():
        mine = table.iloc[len(shipped_rows) :].reset_index(drop=True)
        for name in ADDED[:4]:
            mine[name] = np.where(mine[name].isna(), unseen[name], mine[name])
        answers[by] = mine
    return answers


def worst_groups(answer: pd.DataFrame) -> list[dict[str, Any]]:
    """`metric, serving, group, rows, median_error, bias` of groups with 5 rows or more, the largest
    error first."""
    found = []
    for (metric, serving), part in covered(answer).groupby(["metric", "serving"]):
        groups = group_errors(part)
        groups = groups[groups["rows"] >= ENOUGH_ROWS]
        of = {"metric": metric, "serving": serving}
        found += [of | row for row in groups.to_dict("records")]
    return sorted(found, key=lambda row: -row["median_error"])


def energy(*, catalog: Catalog) -> dict[str, dict[str, float]]:
    """Joules to read the bits of a number over those of its multiply: by node and multiply, by
    memory (hardware/energy.yaml)."""
    found: dict[str, dict[str, float]] = {}
    operations = catalog.energy.operations
    for multiply in (one for one in operations if one.name.endswith("multiply")):
        ratios = found.setdefault(f"{multiply.name}, {multiply.node}", {})
        for access in operations:
            if access.node == multiply.node and not access.name.endswith("multiply"):
                ratios[access.name] = access.j_per_bit * multiply.bits / multiply.figure.value
    return found


def measured(file: str, where: Mapping[str, Any], column: str = "value") -> dict[str, float | None]:
    """`least`, `median`, `most` and number of `rows` of a column of a shipped file of measurements,
    of the rows that have the values of `where`."""
    path = hardware_dir() / MEASUREMENTS / Path(file).name
    if not path.is_file():
        listed = ", ".join(sorted(one.name for one in path.parent.glob("*.csv")))
        raise InputError(f"no file {file!r}", field="file", accepted=listed)
    table = pd.read_csv(path, dtype=str)
    if missing := {column, *where} - set(table.columns):
        raise InputError(f"no column {missing.pop()!r}", accepted=", ".join(table.columns))
    for name, value in where.items():
        known = [str(one) for one in (value if isinstance(value, list) else [value])]
        table = table[table[name].isin(known)]
    return _ends(table[column].astype(float).to_numpy())


def reached(start: str, growth: str, limit: str) -> dict[str, float]:
    """The `year` in which what starts in the year of its row and grows by a factor each year meets
    a limit, and the `years` until then; all three are subjects of
    hardware/measurements/figures.csv."""
    table = pd.read_csv(hardware_dir() / MEASUREMENTS / "figures.csv", dtype=str)
    rows = {row["subject"]: row for row in table.to_dict("records")}
    if missing := {start, growth, limit} - set(rows):
        raise InputError(f"no subject {missing.pop()!r}", accepted=", ".join(rows))
    first, factor, last = (float(rows[name]["value"]) for name in (start, growth, limit))
    years = math.log(last / first) / math.log(factor)
    return {"year": float(rows[start]["date"][:4]) + years, "years": years}


def pairs(
    before: str = "", after: str = "", concurrency: int = 0, by: str = "speed"
) -> dict[str, Any]:
    """Measured decode speed of a later chip over an earlier one, of rows that share all but the
    chip (those of `before` and `after` alone, up to `concurrency` requests): its `speed`, and how
    far the ratio `by` (bandwidth, flops, predicted) is off it, as a factor minus one."""
    table = matched(DECODE)
    for name, value in (("chip_a", before), ("chip_b", after)):
        table = table[table[name] == value] if value else table
    if concurrency:
        table = table[table["concurrency"] <= concurrency]
    off = np.expm1(np.abs(np.log((table[by] / table["speed"]).to_numpy())))
    return {"speed": _ends(table["speed"].to_numpy()), "off": _ends(off)}


def _ends(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return {"least": None, "median": None, "most": None, "rows": 0}
    ends = {"least": values.min(), "median": np.median(values), "most": values.max()}
    return {name: float(value) for name, value in {**ends, "rows": len(values)}.items()}


DECODE = ("tpot_s", "decode_step_s", "output_tokens_per_s")


@cache
def matched(metrics: tuple[str, ...] = DECODE) -> pd.DataFrame:
    """Pairs (chip_a, chip_b) of closed-loop, static or offline rows that share model, parallelism,
    formats, lengths, concurrency and backend, b the later chip: `speed` of b over a as
    measured, `predicted` the same as predicted, `bandwidth` and `flops` the ratios of the chips'
    figures (dense peak of the arithmetic of the weights)."""
    rows = covered(predict(shipped()[0]))
    chips = load_catalog().chips
    rows = rows[rows["metric"].isin(metrics)]
    pairs = pairs_of(rows)
    order = {
        name: (chip.year or 0, chip.memories[0].bytes_per_s, name) for name, chip in chips.items()
    }
    later = [order[a] < order[b] for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)]
    pairs = pairs[np.array(later, dtype=bool)].reset_index(drop=True)
    pairs["concurrency"] = pd.to_numeric(pairs["concurrency"], errors="coerce")  # offline: none
    rate = np.where(pairs["metric"].str.endswith("_per_s"), 1.0, -1.0)
    for name, column in (("speed", "value"), ("predicted", "predicted")):
        pairs[name] = (pairs[f"{column}_b"] / pairs[f"{column}_a"]) ** rate
    pairs["bandwidth"] = [
        chips[b].memories[0].bytes_per_s / chips[a].memories[0].bytes_per_s
        for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)
    ]
    pairs["flops"] = [
        peak(b, dtype) / peak(a, dtype)
        for a, b, dtype in zip(pairs["chip_a"], pairs["chip_b"], pairs["weight_dtype"], strict=True)
    ]
    return pairs


def peak(chip: str, weight_dtype: str) -> float:
    """Dense FLOP/s of the arithmetic that weights of a format run on; 16 bits where the chip has
    none of its own or the format is not said."""
    peaks = load_catalog().chips[chip].peak_flops_per_s
    own = arithmetic(weight_dtype) if weight_dtype else "bf16"
    return peaks.get(own, peaks["bf16"])
