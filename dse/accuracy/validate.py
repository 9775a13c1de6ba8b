"""`dse.validate`: how far predictions are off what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.backtest import backtest
from dse.accuracy.saturating_fit import FOLDS
from dse.accuracy.tables import training_rows
from dse.accuracy.targets import targets
from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import of_rows
from dse.answer.numbers import tenths
from dse.answer.plots import line, marks
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.options import Opt
from dse.vocabulary import find

Json = dict[str, Any]
MAIN_SCORES = 3  # named in the headline, and drawn
WORST_GROUPS = 10
BAND = 0.2
DRAWN_ROWS = 1_000  # in a picture, evenly thinned
SCORE = "metric serving measured_groups=groups measured_rows=rows group_median_error median_error "
SCORE += "p90_error bias rank_correlation interval_coverage interval_width"
SHOWN = ("metric", "serving", "measured_groups", "measured_rows", "group_median_error", "bias")
SHOWN = (*SHOWN, "interval_coverage", "interval_width")
WORDS = {
    "group": "all rows of one model on one chip",
    "static": "serving one fixed batch from its first to its last token",
    "continuous": "serving a closed loop: so many requests are always in flight",
    "poisson": "serving requests that arrive at random moments, an open loop",
    "offline": "serving requests that are all queued at the start",
    "disaggregated": "one pool of chips reads prompts, another writes answers",
    "pretrain": "training from scratch",
    "sft": "training all weights on examples",
    "lora": "training low-rank adapters beside frozen weights",
    "held out": "predicted by a model whose constants were fitted without that row's group, chip "
    "or model",
}


def validate(
    data: Annotated[
        str | Path | None, Opt("CSV file in the measurement format.", metavar="FILE")
    ] = None,
    *,
    cross_validate: Annotated[
        bool, Opt("Also score groups, chips and models that a fit left out; takes minutes.")
    ] = False,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Compare predictions with measurements.

    Of the measurements that come with dse, or of the rows of `data` in their format, which
    hardware/measurements/README.md describes: rows of serving or of training, told apart by their
    columns. Errors are fractions of the measured value; a group is one model on one chip.

        dse.validate().document["scores"][0]["group_median_error"]

    Raises InputError for a file that is none, and where no row could be left out of a fit.
    """
    catalog = catalog or load_catalog()
    tables = [measurements.read(Path(data))] if data else measurements.shipped()
    answers = [measurements.predict(table, catalog) for table in tables]
    rows = pd.concat(answers, ignore_index=True)
    document = measurements.accuracy(rows)
    if cross_validate:
        document |= _held_out(rows, data, catalog, progress)
    return replace(answer(document, rows, own=data is not None), names=catalog.names)


def _held_out(
    rows: pd.DataFrame, data: str | Path | None, catalog: Catalog, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Scores of predictions by fits that never saw the group, chip or model of a row; of the
    shipped rows, the backtest too."""
    rows = rows[rows["serving"] != "disaggregated"]
    if measurements.covered(rows).empty:
        raise InputError(
            "no row that a fit could leave out",
            file=None if data is None else str(data),
            field="--cross-validate",
            accepted="covered rows of static, continuous or offline serving, or of training",
        )
    held = measurements.cross_validated(rows, progress, own=data is not None, catalog=catalog)
    if data is not None:
        return {"cross_validation": held}
    served = rows[~training_rows(rows)]
    return {"cross_validation": held, "backtest": backtest(served, held["chip"], progress)}


def answer(document: Json, rows: pd.DataFrame, *, own: bool) -> Answer:
    """`document` is that of `dse validate --json`, `rows` the predicted rows that it scores, `own`
    where they are the user's."""
    overall = [item for item in document["scores"] if item["by"] == "all"]
    main = sorted(overall, key=lambda item: -item["rows"])[:MAIN_SCORES]
    headline, *sentences = _sentences(document, main, own=own)
    scored = rows[rows["status"] == "ok"]
    return Answer(
        question="validate",
        title="Predictions against measurements",
        headline=headline,
        sentences=sentences,
        blocks=[*(_picture(scored, item) for item in main), *_tables(document, rows, own=own)],
        words=WORDS,
        document=document,
    )


def _sentences(document: Json, main: Sequence[Json], *, own: bool) -> list[str]:
    """The answer first: how far off, how much is covered, how often inside the interval."""
    rows, covered, refused = (document[key] for key in ("rows", "covered", "infeasible"))
    said = f"{covered:,} of {rows:,} measured rows predicted"
    said += f" ({covered / rows:.1%})" if rows else ""
    said += f"; {refused:,} are infeasible by a rule and not scored" if refused else ""
    lines = [f"{said}."]
    if main:
        parts = [
            f"{_name(item['metric'])} ({item['serving']}) {tenths(item['group_median_error'])}"
            for item in main
        ]
        about = "That is the median error of a group, averaged over groups; a group is one model "
        lines = [f"How far off: {', '.join(parts)}.", f"{about}on one chip.", *lines]
    overall = [item for item in document["scores"] if item["by"] == "all"]
    if covered:
        inside = sum(item["interval_coverage"] * item["rows"] for item in overall) / covered
        lines.append(f"{inside:.0%} of the measured values lie inside the 80% interval.")
    pairs = document["speed_up"]
    if pairs["pairs"]:
        lines.append(
            f"Speed of one chip over another, the rest equal: off by "
            f"{tenths(pairs['median_error'])} at the median of {pairs['pairs']:,} pairs of rows."
        )
    if not own and "cross_validation" not in document:
        lines.append(
            "Constants of the model were fitted to some of these rows; --cross-validate shows the "
            "error on groups, chips and models that a fit has not seen."
        )
    return lines


def _name(metric: str) -> str:
    row = find(metric)
    return row.title if row else metric


def _tables(document: Json, rows: pd.DataFrame, *, own: bool) -> list[Table]:
    scores = document["scores"]
    overall = [item for item in scores if item["by"] == "all"]
    worst = measurements.worst_groups(rows)
    large = {(item["metric"], item["serving"]) for item in worst}
    names = [(item["metric"], item["serving"]) for item in overall]
    small = ", ".join(f"{metric} ({of})" for metric, of in names if (metric, of) not in large)
    notes = [f"No group of {small} has 5 rows: theirs is over all groups."] if small else []
    keys = "metric serving group measured_rows=rows median_error bias"
    caption = "Worst groups with 5 rows or more"
    made = [
        of_rows("scores", "Error by metric", overall, SCORE, *notes, shown=SHOWN),
        of_rows("worst", caption, worst[:WORST_GROUPS], keys, on_console=own),
        of_rows(
            "not_covered",
            "Not covered",
            document["not_covered"],
            "measured_rows=rows reason",
            on_console=own,
        ),
    ]
    parts = [item for item in scores if item["by"] != "all"]
    caption = "Error by chip, model and serving software"
    long = [of_rows("by", caption, parts, f"by=by scored_key=key {SCORE}", on_console=False)]
    pairs, keys = document["speed_up"]["chips"], "chip_a chip_b pairs measured predicted"
    caption = "One chip against another"
    long.append(of_rows("speed", caption, pairs, f"{keys} median_error", on_console=False))
    if "cross_validation" in document:
        made.insert(1, _held_out_table(document))
        if not own:
            long.append(targets(document))
    if "backtest" in document:
        long += _backtest_tables(document["backtest"])
    return [table for table in (*made, *long) if table.rows]


def _held_out_table(document: Json) -> Table:
    """`group_median_error` of the model as it is, and of each kind of fold that the rows have."""
    held = document["cross_validation"]
    columns = {"in_sample": document["scores"]} | {fold: held.get(fold, []) for fold in FOLDS}
    errors = {
        name: {
            (item["metric"], item["serving"]): item["group_median_error"]
            for item in scores
            if item["by"] == "all"
        }
        for name, scores in columns.items()
    }
    rows = [
        {"metric": key[0], "serving": key[1]} | {n: error.get(key) for n, error in errors.items()}
        for key in errors[FOLDS[0]]
    ]
    keys = " ".join(f"error_without_{fold}={fold}" for fold in FOLDS)
    caption = "Held out (fitted without what stands above the column), error by group"
    return of_rows("held_out", caption, rows, f"metric serving error_in_sample=in_sample {keys}")


def _backtest_tables(cases: Sequence[Json]) -> list[Table]:
    """Each case with the speed over the chip whose laws it took, and its scores beside those of
    today's fit without the chip's rows."""
    no_score = {"group_median_error": None, "interval_coverage": None}
    no_pair = dict.fromkeys(("pairs", "measured", "predicted"))
    rows = [
        item
        | {"chip": case["chip"], "laws": case["laws"]}
        | {f"own_{name}": (item["held_out_by_chip"] or no_score)[name] for name in no_score}
        for case in cases
        for item in case["scores"]
    ]
    speeds = [
        case | {name: (case["speed_up"] or no_pair)[name] for name in no_pair} for case in cases
    ]
    keys = "metric serving measured_groups=groups measured_rows=rows group_median_error "
    keys += "median_error bias interval_coverage interval_width "
    keys += "error_own_laws=own_group_median_error coverage_own_laws=own_interval_coverage"
    said = "left_out fitted_rows measured_rows=rows interval_coverage pairs measured predicted"
    caption = "On the day of purchase"
    return [
        of_rows("purchase", caption, speeds, f"chip laws {said}", on_console=False),
        of_rows(
            "purchase_scores", f"{caption}, by metric", rows, f"chip laws {keys}", on_console=False
        ),
    ]


def _picture(scored: pd.DataFrame, item: Json) -> Figure:
    """Predicted against measured of one metric and serving."""
    metric, serving = item["metric"], item["serving"]
    rows = scored[(scored["metric"] == metric) & (scored["serving"] == serving)]
    count = len(rows)
    rows = rows.iloc[np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))]
    ends = [float(rows["value"].min()), float(rows["value"].max())]
    band = (("exact", 1.0, "solid"), ("20% off", 1.0 + BAND, "dot"), ("20% off", 1.0 - BAND, "dot"))
    data = [line(0, name, ends, [end * by for end in ends], dash) for name, by, dash in band]
    for k, chip in enumerate(rows["chip"].value_counts().index):
        mine = rows[rows["chip"] == chip]
        x, y = ([float(f"{v:.4g}") for v in mine[name]] for name in ("value", "predicted"))
        made = marks(k, str(chip), x, y, [f"{model} on {chip}" for model in mine["model"]])
        data.append(made | {"marker": made["marker"] | {"size": 6, "opacity": 0.7}})
    layout = {
        "height": 520,
        "xaxis": {"title": {"text": f"measured {metric}"}, "type": "log"},
        "yaxis": {"title": {"text": f"predicted {metric}"}, "type": "log"},
    }
    return Figure(
        f"{metric}-{serving}",
        f"{metric} ({serving}): predicted against measured",
        {"data": data, "layout": layout},
        f"{count:,} rows, {len(rows):,} of them drawn, a colour for each chip. A prediction is "
        "exact on the line, and within 20% of the measured value between the dotted lines.",
    )
