"""`dse.validate`: how far predictions are off what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.backtest import backtest
from dse.accuracy.fits import FOLDS
from dse.accuracy.tables import training_rows
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
    catalog, own = catalog or load_catalog(), data is not None
    tables = [measurements.read(Path(data))] if data else measurements.shipped()
    answers = [measurements.predict(table, catalog) for table in tables]
    rows = pd.concat(answers, ignore_index=True)
    scored = measurements.covered(rows)
    document: Json = measurements.accuracy(rows)
    if cross_validate:
        held = rows[rows["serving"] != "disaggregated"]
        if measurements.covered(held).empty:
            raise InputError(
                "no row that a fit could leave out",
                file=str(data) if own else None,
                field="--cross-validate",
                accepted="covered rows of static, continuous or offline serving, or of training",
            )
        document["cross_validation"] = measurements.cross_validated(
            held, progress, own=own, catalog=catalog
        )
        if not own:
            document["backtest"] = backtest(held[~training_rows(held)], progress=progress)
    overall = [item for item in document["scores"] if item["by"] == "all"]
    main = sorted(overall, key=lambda item: -item["rows"])[:MAIN_SCORES]
    headline, *sentences = _sentences(document, main, own=own)
    return Answer(
        question="validate",
        title="Predictions against measurements",
        headline=headline,
        sentences=sentences,
        blocks=[*(_picture(scored, item) for item in main), *_tables(document, rows)],
        words=WORDS,
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
        overall = [item for item in document["scores"] if item["by"] == "all"]
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
    row = find({"mfu": "training_mfu", "chip_hours": "training_chip_hours"}.get(metric, metric))
    return row.title if row else metric


def _named(items: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Rows with the title of their metric."""
    return [{**item, "metric": _name(item["metric"])} for item in items]


def _tables(document: Json, rows: pd.DataFrame) -> list[Table]:
    scores = _named(document["scores"])
    overall = [item for item in scores if item["by"] == "all"]
    worst = measurements.worst_groups(rows)
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
    if "cross_validation" in document:
        made.insert(1, _held_out(document))
        made.append(_purchase(document.get("backtest", ())))
    return [table for table in made if table.rows]


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


def _held_out(document: Json) -> Table:
    """`group_median_error` of the model as it is, and of each kind of fold that the rows have."""
    errors: dict[tuple[str, str], Json] = {}
    for name, scores in ({"in_sample": document["scores"]} | document["cross_validation"]).items():
        for item in scores:
            if item["by"] == "all":
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
