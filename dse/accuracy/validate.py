"""`dse.validate`: how far predictions are off what was measured.

What would have been predicted of a chip before anything was measured on it.

For each case the kernel laws of the new chip are those of an older one, or of a class of chips, and
neither the factors nor the intervals have seen a row of the new family: the fit, and the spread of
its held-out rows, are those of the other rows alone. The rows of the new chip are then predicted.

A format that the older chip has no arithmetic for (4 bits on Hopper) was measured there, if at all,
with weights unpacked to 16 bits; its law says nothing of a chip that computes in it, which gets the
law of fp8, as fractions of its own peak. Forms, rules of rows and backend files are today's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy import measurements
from dse.accuracy.fits import Problem, as_factors, pose, row_weights
from dse.accuracy.measurements import covered, ready
from dse.accuracy.saturating_fit import FOLDS, linearise
from dse.accuracy.scores import score, speed_up, targets
from dse.accuracy.serving_points import predict_rows
from dse.accuracy.tables import ADDED, machines_of, training_rows
from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import of_rows
from dse.answer.numbers import tenths
from dse.answer.plots import line, marks
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.options import Opt
from dse.schema.calibration import Calibration
from dse.schema.chip import Chip
from dse.schema.dtypes import arithmetic
from dse.schema.efficiency import Efficiency, load_efficiency
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


@dataclass(frozen=True, slots=True)
class Case:
    """`chip`, predicted with the laws of the file `laws`; chips whose `field` is `value` are
    unknown."""

    chip: str
    laws: str
    field: str
    value: str

    def hides(self, chip: Chip) -> bool:
        return getattr(chip, self.field) == self.value


# The class of any GPU is the median of NVIDIA's chips; that of MI300X has in addition its best
# published matrix product and all-reduce.
CASES = (
    Case("b200_sxm", "h200_sxm", "family", "blackwell"),
    Case("gb200_nvl72", "b200_sxm", "id", "gb200_nvl72"),
    Case("mi300x", "class_gpu", "vendor", "AMD"),
    Case("mi300x", "class_mi300x", "vendor", "AMD"),
)


@dataclass(frozen=True, slots=True)
class Known:
    """What the rows of `rows` (n,) say: factors, and the spread of held-out rows."""

    rows: NDArray[np.bool_]
    calibration: Calibration


def backtest(
    answer: pd.DataFrame,
    held_out: list[dict[str, Any]],
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """For each case with rows: `chip, laws, left_out, fitted_rows, rows, interval_coverage, scores,
    speed_up`.

    `answer`: rows as `measurements.predict` leaves them; `held_out`: the scores of today's fits
    without one chip, of which each score gets that of its chip as `held_out_by_chip` (None where
    there is none). `speed_up` is the pair of the chip and the one whose laws it took, or None.
    """
    rows = covered(answer).drop(columns=list(ADDED)).reset_index(drop=True)
    problem = pose(rows)
    return [
        _outcome(case, known, covered(ready(table)), held_out)
        for case, known, table in predictions(problem, progress)
    ]


def predictions(
    problem: Problem, progress: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[Case, Known, pd.DataFrame]]:
    """Every case whose chip has rows, with the table and the columns ADDED."""
    found: dict[tuple[str, str], Known] = {}
    chips = problem.table["chip"]
    for case in CASES:
        if not (chips == case.chip).any():
            continue
        key = (case.field, case.value)
        if key not in found:
            progress(f"as before {case.chip}: fit without {case.field} {case.value}")
            hidden = [c for c in sorted(set(chips)) if case.hides(problem.catalog.chips[c])]
            found[key] = learn(problem, ~chips.isin(hidden).to_numpy())
        known = found[key]
        catalog = before(problem.catalog, case, known.calibration)
        numbers = predict_rows(problem.readout, catalog, machines_of(catalog))
        yield case, known, problem.predicted(numbers)


def learn(problem: Problem, known: NDArray[np.bool_]) -> Known:
    """What the fit makes of the `known` (n,) rows alone."""
    weight = row_weights(problem.table, known & (problem.weight > 0.0))
    past = replace(problem, weight=weight)
    moves = past.fit()
    numbers = past.without_each("group", moves, linearise(past.logs, moves))
    spread, wider = past.spread(numbers)
    return Known(past.used, Calibration(as_factors(moves), spread, stock_wider=wider))


def before(catalog: Catalog, case: Case, calibration: Calibration) -> Catalog:
    """The catalog with `calibration`, in which hidden chips have the laws of `case`."""
    laws = load_efficiency(hardware_dir() / "efficiency" / f"{case.laws}.yaml")
    chips, efficiencies = dict(catalog.chips), dict(catalog.efficiencies)
    for chip in catalog.chips.values():
        if case.hides(chip):
            lent = _lend(laws, catalog.chips.get(laws.id), chip)
            efficiencies[lent.id] = lent
            chips[chip.id] = replace(chip, efficiency=lent.id)
    backends = {name: calibration.backend(backend) for name, backend in catalog.backends.items()}
    return replace(
        catalog,
        chips=chips,
        efficiencies=efficiencies,
        backends=backends,
        calibration=calibration,
    )


def _lend(laws: Efficiency, owner: Chip | None, chip: Chip) -> Efficiency:
    """`laws`, measured on `owner` (None: of a class), for another chip; see the module for formats
    that the owner does not compute in."""
    lent = laws.of_chip(chip)
    if owner is None:
        return lent
    new = {name for name in chip.peak_flops_per_s if name not in owner.peak_flops_per_s}
    operators = {
        operator: {
            dtype: of["fp8"] if arithmetic(dtype) in new else law for dtype, law in of.items()
        }
        for operator, of in lent.operators.items()
    }
    return replace(lent, operators=operators)


def _outcome(
    case: Case, known: Known, rows: pd.DataFrame, held_out: list[dict[str, Any]]
) -> dict[str, Any]:
    mine = rows[rows["chip"] == case.chip]
    inside = (mine["predicted_low"] <= mine["value"]) & (mine["value"] <= mine["predicted_high"])
    today = {
        (item["metric"], item["serving"]): item
        for item in held_out
        if item["by"] == "chip" and item["key"] == case.chip
    }
    pairs = speed_up(rows[rows["chip"].isin([case.chip, case.laws])])["chips"]
    return {
        "chip": case.chip,
        "laws": case.laws,
        "left_out": f"{case.field} {case.value}",
        "fitted_rows": int(known.rows.sum()),
        "rows": len(mine),
        "interval_coverage": float(inside.mean()),
        "scores": [
            item | {"held_out_by_chip": today.get((item["metric"], item["serving"]))}
            for item in score(mine)
            if item["by"] == "all"
        ],
        "speed_up": pairs[0] if pairs else None,
    }
