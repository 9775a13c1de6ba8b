"""How sure the best chip is: prices, efficiency and demand drawn from their intervals, what a wrong
choice costs, and which measurement would help most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Block, Commands, Opening, table_of
from dse.answer.frames import bar_chart, of_rows
from dse.answer.numbers import number, percent, priced, share, tenths
from dse.answer.plots import scaled
from dse.catalog import Catalog
from dse.economics.prices import (
    PriceSpread,
    price_documents,
    price_parts,
    price_spreads,
    prices_rest_on,
    unsold,
    unsold_rests,
    unsold_sentences,
)
from dse.errors import InputError
from dse.physics.intervals import COMMON, MEASURED
from dse.physics.workload import POISSON
from dse.problem.demanded import tokens_per_request
from dse.problem.mix import held
from dse.problem.objective import on_terms
from dse.problem.words import served_words, short_deployment
from dse.questions.whatif.inputs import Subject
from dse.questions.whatif.solve import Progress
from dse.schema.load import read_rate
from dse.schema.study import Study
from dse.schema.workloads import load_words, mix_words
from dse.study.choices import Choice, Choices, choices_of, joined
from dse.study.folder import STUDY, find_item
from dse.study.regret import Uncertain, draw, measure_next, robustness

QUALITY = ("predicted_loss", "dense_equivalent_parameters")
LEARNED = ("chance_saved", "expected_regret_saved", "changes_choice")
NAMED = 8  # chips that are left out for one reason and named
SHOWN = 4  # measurements
BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs
BINS, FARTHEST = 40, math.log(4.0)  # of the margin, as a logarithm
MEANING = (
    "Regret: what a choice costs in a draw over what the best choice of that draw costs, less 1. A "
    "choice that then keeps the limits with no deployment is counted with its own price and, on "
    "top, that of the best choice, which is bought after it."
)
PRICED = {
    "published": "spread of three or more published rows of the chip",
    "pooled": "too few rows of a chip: pooled spread of the basis's chips that have three",
    "assumed": "no two chips of the basis have three rows: 15% either way (assumed)",
    "given": "price_interval, as it was given",
}


def uncertain_answer(
    subject: Subject,
    source: Any,
    points: Sequence[str],
    *,
    objective: str | None,
    draws: int | None,
    seed: int | None,
    price_interval: float | None,
    demand: str | None,
    progress: Progress,
) -> Answer:
    """`points` of a study that searched shapes name the shape, or the shapes that are compared;
    `demand` is LOW..HIGH in tokens. Raises InputError for several shapes of a study that limits no
    quality, NothingFeasible where no chip keeps the limits."""
    draws, seed = draws or 10_000, seed or 0
    problem, study = subject.problem.busy, subject.problem.study
    shapes = shapes_of(source, points, study)
    if len(shapes) > 1:
        each = {
            name: choices_of(problem, objective, item["model"], progress)
            for name, item in shapes.items()
        }
        choices = joined(each)
    else:
        config = next((item["model"] for item in shapes.values()), None)
        choices = choices_of(problem, objective, config, progress)
    rate = None if demand is None else rate_of(demand, subject, choices)
    terms, chips = on_terms(subject.catalog, study), [item.chip for item in choices.items]
    prices: tuple[PriceSpread, ...] = ()
    if choices.priced:
        known = list(dict.fromkeys(chips))
        prices = price_spreads(terms.prices, study.price_basis, known, price_interval)
    sd = {one.chip: one.sd for one in prices}
    kin_of = dict(zip(problem.machines.ids, problem.machines.kin, strict=True))
    case = Uncertain(
        choices,
        np.array([sd.get(chip, 0.0) for chip in chips]),
        rate,
        tuple(kin_of[chip] for chip in chips),
    )
    drawn = draw(case, draws, seed)
    robust = robustness(case, drawn)
    measured = measure_next(case, drawn, robust, progress)
    document = _document(subject, terms, case, robust, measured, prices, shapes)
    document |= {"draws": draws, "seed": seed}
    document["rests_on"] = _rests(subject, terms, case, prices, shapes)
    document["answer"] = said = _sentences(document, unsold(terms, chips))
    asked = f"{subject.title}: {document['asked']}"
    rows = sorted(document["choices"], key=lambda row: -row["chance_first"])
    metric = choices.objective
    keys = ("name", metric, "chance_first", "expected_regret")
    picture = bar_chart(
        "choices",
        "How often each choice is the best, and what it gives away",
        [row["name"] for row in rows],
        {
            "best in": scaled("chance_first", [row["chance_first"] for row in rows]),
            "gives away": scaled("expected_regret", [row["expected_regret"] for row in rows]),
        },
        "share of the draws, and regret on average (%)",
        "Each choice by the share of the draws in which it is the best, and by its regret.",
    )
    often = of_rows("often", "", [{**row, metric: row["predicted"]} for row in rows[:8]], keys)
    steps = document["measure_next"][0]["commands"] if measured else []
    parts = price_documents(terms, dict.fromkeys(chips), study.price_basis)
    blocks: list[Block] = [
        *_tables(document, rows),
        *([price_parts(parts)] if parts else []),
        *([Commands("To make the first measurement", steps)] if steps else []),
    ]
    flat = [{**row, "low": row["interval"][0], "high": row["interval"][1]} for row in rows]
    take = next(row for row in rows if row["name"] == document["advised"])
    full = served_words(take["deployment"], held([load.row() for load in study.workloads]))
    first = Opening(asked, said[0].replace(take["words"], full), picture, often)
    return Answer(
        question="whatif",
        title=f"How sure: {subject.title}",
        asked=asked,
        headline=said[0],
        sentences=said[1:],
        blocks=blocks,
        rests=document["rests_on"],
        document=document,
        data=(table_of("data", flat),),
        opening=first if len(rows) > 1 else None,
        names=terms.names,
    )


def shapes_of(source: Any, points: Sequence[str], study: Study) -> dict[str, Mapping[str, Any]]:
    """Unlike shapes of the points: an item of front.json by the names that were asked for; none
    where the space has one model."""
    folder = Path() if isinstance(source, Mapping) else Path(source)
    if isinstance(source, Mapping) or not (folder / STUDY).is_file():
        if points:
            raise InputError(
                f"read {points[0]!r} of a space, which is no study",
                field="--point",
                accepted="the folder of a finished study as STUDY",
            )
        return {}
    if not points and study.model is None:
        raise InputError(
            f"{folder} searched shapes: of which point?",
            field="--point",
            accepted="its number in front.csv, or start, cheapest, fastest, best, knee",
        )
    found: list[tuple[list[str], Mapping[str, Any]]] = []
    for point in dict.fromkeys(points):
        item = find_item(folder, point)
        alike = [names for names, known in found if known["model"] == item["model"]]
        alike[0].append(point) if alike else found.append(([point], item))
    if len(found) > 1 and not _quality_limits(study):
        raise InputError(
            f"{study.name} limits no quality, and the cheapest of several shapes is the smallest",
            field="--point",
            accepted=f"one point, or a space with a limit on {' or '.join(QUALITY)}",
        )
    return {", ".join(names): item for names, item in found}


def _quality_limits(study: Study) -> list[str]:
    """Limits of a study by which all its points are good enough."""
    return [limit.text for limit in study.constraints if limit.metric in QUALITY]


def rate_of(text: str, subject: Subject, choices: Choices) -> tuple[float, float]:
    """Requests per second of `1B/day..4B/day`, or of one rate: as many as instances of a deployment
    that runs full serve. Raises InputError."""
    if not choices.priced:
        accepted = "an objective in dollars"
        raise InputError("demand changes no time", field="--demand", accepted=accepted)
    if any(load.serving == POISSON for load in subject.problem.study.workloads):
        raise InputError(
            "the workload has a rate of arrivals already",
            field="--demand",
            accepted="a space whose serving is continuous, static or offline",
        )
    low, dots, high = text.partition("..")
    try:
        each = tokens_per_request(subject.problem)
        ends = [read_rate(end.strip()) / each for end in (low, high if dots else low)]
    except InputError:
        ends = [1.0, 0.0]
    if ends[0] > ends[1]:
        accepted = "tokens by time, LOW..HIGH: such as 1B/day..4B/day"
        raise InputError(f"read {text!r}", field="--demand", accepted=accepted)
    return ends[0], ends[1]


def _document(
    subject: Subject,
    catalog: Catalog,
    case: Uncertain,
    robust: Mapping[str, Any],
    measured: Sequence[Mapping[str, Any]],
    prices: Sequence[PriceSpread],
    shapes: Mapping[str, Any],
) -> dict[str, Any]:
    study, items = subject.problem.study, case.items
    loads = [load.row() for load in study.workloads]
    is_held, names = held(loads), [item.name for item in items]

    def words(item: Choice) -> str:
        shape = f" ({item.shape})" if item.shape else ""
        return short_deployment(item.deployments[item.best], is_held) + shape

    columns = {key: value for key, value in robust.items() if np.ndim(value) and key != "margin"}
    wrong, regret = 1.0 - robust["chance_first"].max(), robust["expected_regret"].min()
    choices = []
    for i, item in enumerate(items):
        own = {key: number(value[i]) for key, value in columns.items()}
        low, high = own.pop("low"), own.pop("high")
        choices.append(
            {
                "name": item.name,
                "chip": item.chip,
                "point": item.shape or None,
                "words": words(item),
                "deployment": dict(item.deployments[item.best]),
                "efficiency": item.kind,
                "interval": [low, high],
                **own,
            }
        )
    learn = []
    for one in measured:
        item, serving = items[one["i"]], one["what"] == "serving"
        learn.append(
            {
                **{key: one[key] for key in ("what", *LEARNED)},
                "words": f"serving on {words(item)}" if serving else f"a quote for {item.chip}",
                "chip": item.chip,
                "deployment": dict(item.deployments[item.best]) if serving else None,
                "chance_wrong_now": float(wrong),
                "chance_wrong_after": max(float(wrong) - one["chance_saved"], 0.0),
                "expected_regret_after": max(float(regret) - one["expected_regret_saved"], 0.0),
                "commands": _commands(catalog, item, loads) if serving else [],
            }
        )
    return {
        "space": study.name,
        "title": subject.title,
        "asked": _asked(study, case, robust, shapes),
        "meaning": MEANING,
        "point": ", ".join(shapes) or None,
        "objective": case.choices.objective,
        "price_basis": study.price_basis,
        "standard_error": float(robust["standard_error"].max()),
        "demand": case.demand
        and {"requests_per_s_low": case.demand[0], "requests_per_s_high": case.demand[1]},
        "advised": names[int(np.argmin(robust["expected_regret"]))],
        "predicted_best": names[int(np.argmin(robust["predicted"]))],
        "most_often_first": names[int(np.argmax(robust["chance_first"]))],
        "least_worst_regret": names[int(np.argmin(robust["worst_regret"]))],
        "least_worst_price": names[int(np.argmin(robust["worst_price"]))],
        "chance_wrong": float(1.0 - robust["chance_first"][int(np.argmin(robust["predicted"]))]),
        "share_without_answer": robust["share_without_answer"],
        "margin": _margin_shares(robust["margin"]),
        "kin": [{"choice": n, "kin": kin} for n, kin in zip(names, case.kin, strict=True)],
        "choices": choices,
        "measure_next": learn,
        "prices": [
            {
                "chip": one.chip,
                "usd_per_chip_hour": one.usd_per_chip_hour,
                "interval": list(one.ends),
                "rows": one.rows,
                "kind": one.kind,
            }
            for one in prices
        ],
        "price_parts": [
            {"chip": price["chip"], "usd_per_chip_hour": price["usd_per_chip_hour"]}
            | {part["name"]: part["usd_per_chip_hour"] for part in price["parts"]}
            for price in price_documents(
                catalog, dict.fromkeys(item.chip for item in items), study.price_basis
            )
        ],
        "prices_given": catalog.source.own_prices(),
        "left_out": {**study.why_left_out, **case.choices.left_out},
    }


def _commands(catalog: Catalog, item: Choice, loads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Command lines that measure a choice and bring that in: vLLM's own benchmark of a server that
    was started as `dse export` writes it."""
    flight = int(item.deployments[item.best]["concurrency"])
    lines = []
    for load in loads:
        rate = load.get("requests_per_second")
        lines.append(
            "vllm bench serve --dataset-name random --random-input-len "
            f"{load['prompt_tokens']:.0f} --random-output-len {load['output_tokens']:.0f} "
            f"--ignore-eos {f'--request-rate {rate:g}' if rate else f'--max-concurrency {flight}'} "
            f"--num-prompts {max(10 * flight, 1000 if rate else 100)}"
        )
    if item.kind != "fitted" and catalog.chips[item.chip].vendor in BY_TORCH:
        lines.insert(0, f"dse calibrate --chip {item.chip} --full")
    return [*lines, "dse validate --data measured.csv"]


def _margin_shares(margin: np.ndarray) -> list[dict[str, float]]:
    """Shares of the draws by what the best other choice costs over the advised one, less 1; what
    lies beyond the ends is in the first and the last."""
    inside = np.clip(margin, -FARTHEST, FARTHEST)
    count, edges = np.histogram(inside, bins=BINS, range=(-FARTHEST, FARTHEST))
    ends = np.expm1(edges)
    ends[BINS // 2] = 0.0
    return [
        {"from": float(a), "to": float(b), "share": float(n) / len(margin)}
        for a, b, n in zip(ends[:-1], ends[1:], count, strict=True)
    ]


def _asked(
    study: Study, case: Uncertain, robust: Mapping[str, Any], shapes: Mapping[str, Any]
) -> str:
    """What the answer was worked out from."""
    loads = [load.row() for load in study.workloads]
    choices, limits = case.choices, "; ".join(limit.text for limit in study.constraints) or "none"
    shape = f"; shape of point {', '.join(shapes)}" if shapes else ""
    demand = ""
    if case.demand:
        demand = f"; demand {case.demand[0]:g} to {case.demand[1]:g} requests/s"
    chips = (len(choices.items) + len(choices.left_out)) // max(len(shapes), 1)
    return (
        f"{choices.points:,} deployments on {chips} chip{'s' if chips > 1 else ''}; "
        f"{load_words(loads[0]) if len(loads) == 1 else mix_words(loads)}; limits: {limits}; "
        f"prices: {study.price_basis}{demand}{shape}. Standard error of a chance "
        f"{100 * robust['standard_error'].max():.2g}%."
    )


def _sentences(found: Mapping[str, Any], unsold_chips: Mapping[str, str]) -> list[str]:
    """What to take and how sure that is; what being wrong costs; what to measure."""
    rows = {row["name"]: row for row in found["choices"]}
    take, now = rows[found["advised"]], rows[found["predicted_best"]]
    chance, draws = tenths(take["chance_first"]), f"{found['draws']:,} draws"
    said = f"Take {take['chip']}, served on {take['words']}: "
    said += f"{priced(found['objective'], take['predicted'])} at the prediction"
    if take is not now:
        said += (
            f" and the best in {chance} of {draws}; it is the safest. {now['name']} is best at the "
            f"prediction and in {tenths(now['chance_first'])} of the draws, and costs more where "
            "it is not."
        )
    else:
        other = f"; in {tenths(1.0 - take['chance_first'])} another choice is better"
        said += f", the best there and in {chance} of {draws}{other * (len(rows) > 1)}."
    words = [said, *unsold_sentences(unsold_chips, [take["chip"]])]
    if len(rows) == 1:
        return [*words, "There is no other choice."]
    order = sorted(rows.values(), key=lambda row: -row["chance_first"])
    rest = [row for row in order if row is not take and row["chance_first"] > 0.0][:3]
    if rest:
        others = ", ".join(f"{row['name']} in {percent(row['chance_first'])}" for row in rest)
        words.append(f"Next most often best: {others}.")
    words.append(
        f"A wrong choice costs: {take['name']} gives away {_share(take['expected_regret'])} on "
        f"average to the best choice of each draw, {_share(take['regret_95'])} or more in one draw "
        f"of twenty, and with every interval at its end against it {_share(take['worst_regret'])}."
    )
    if found["share_without_answer"] > 0.0:
        none = percent(found["share_without_answer"])
        words.append(f"In {none} of the draws no choice keeps the limits.")
    if found["measure_next"]:
        best = found["measure_next"][0]
        words.append(
            f"Before buying, measure {best['words']}: a wrong choice falls from "
            f"{tenths(best['chance_wrong_now'])} to {tenths(best['chance_wrong_after'])}, expected "
            f"regret from {_share(take['expected_regret'])} to "
            f"{_share(best['expected_regret_after'])}."
            if best["chance_saved"] >= 0.0005
            else "No single measurement lowers the chance of a wrong choice by 0.05 points."
        )
    return words


def _share(regret: float | None) -> str:
    return "unbounded" if regret is None else share(regret)


def _tables(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    metric = found["objective"]
    ends = ((f"{metric}.low", 0), (f"{metric}.high", 1))
    shown = [
        {**row, "deployed": row["words"], metric: row["predicted"]}
        | {"worst_regret_at_ends": row["worst_regret"]}
        | {key: row["interval"][k] for key, k in ends}
        for row in rows
    ]
    keys = ("deployed", "efficiency", metric, "chance_first", "expected_regret", "regret_95")
    more = ("worst_regret_at_ends", "chance_misses_limits")
    caption = "Choices, the one most often first on top"
    every = (*keys, *more, *(key for key, _ in ends))
    note = MEANING.partition(". ")[0]
    table = of_rows("choices", caption, shown, every, f"{note}.", shown=(*keys, *more))
    blocks: list[Block] = [table]
    if learn := found["measure_next"]:
        wrong = learn[0]["chance_wrong_now"]
        few = [{**row, "learn": row["words"]} for row in learn[:SHOWN]]
        keys = ("learn", "chance_wrong_after", "expected_regret_after", "changes_choice")
        caption = f"Measure next: now a choice is wrong in {share(wrong)}"
        caption += f" ({SHOWN} of {len(learn)} measurements)" * (len(learn) > SHOWN)
        blocks.append(of_rows("measure_next", caption, few, keys))
    if drawn := found["prices"]:
        low_high = (("usd_per_chip_hour.low", 0), ("usd_per_chip_hour.high", 1))
        few = [
            {**row, "published_rows": row["rows"]}
            | {key: row["interval"][k] for key, k in low_high}
            for row in drawn
        ]
        keys = (
            "chip",
            "usd_per_chip_hour",
            *(key for key, _ in low_high),
            "published_rows",
            "kind",
        )
        caption = f"Prices that were drawn, per chip-hour on basis {found['price_basis']}"
        blocks.append(of_rows("prices", caption, few, keys, on_console=False))
    return blocks


def _rests(
    subject: Subject,
    catalog: Catalog,
    case: Uncertain,
    prices: Sequence[PriceSpread],
    shapes: Mapping[str, Any],
) -> list[str]:
    """What is assumed, and how draws were made."""
    study, choices, items = subject.problem.study, case.choices, case.items
    chips, loose = (
        {item.chip: None for item in some}
        for some in (items, [i for i in items if i.kind != "fitted"])
    )
    words = [
        "errors of times and costs: the 80% intervals of the model, log-normal on either side; "
        f"{choices.shared:.0%} of the variance is shared by all configurations of a chip (fitted), "
        "the rest is each configuration's own, whatever is in flight (assumed)",
    ]
    groups: dict[str, dict[str, None]] = {}
    for item, kin in zip(items, case.kin, strict=True):
        groups.setdefault(kin, {})[item.chip] = None
    if names := "; ".join(", ".join(group) for group in groups.values() if len(group) > 1):
        words.append(
            f"chips whose kernel laws have one origin err together in {COMMON:.0%} of that shared "
            f"part ({MEASURED}): {names}"
        )
    words += _shapes(study, items, shapes)
    if loose:
        words.append(f"kernel laws not measured on the chip, wider intervals: {', '.join(loose)}")
    words.append(
        "the configuration of a chip stays the one predicted best; requests in flight are chosen "
        "again in every draw"
    )
    kinds = {one.kind for one in prices}
    words += [f"price intervals: {text}" for kind, text in PRICED.items() if kind in kinds]
    if case.demand is not None:
        words.append(
            "demand: the interval given as 80%, log-normal; whole instances are paid, as many as "
            "the drawn rate needs"
        )
    words += unsold_rests(unsold(catalog, chips))
    left: dict[str, list[str]] = {}  # chips of the space that are no choice, by reason
    for chip, why in {**study.why_left_out, **choices.left_out}.items():
        left.setdefault(why.removeprefix(f"{chip} ").partition(";")[0], []).append(chip)
    return [
        *words,
        *prices_rest_on(catalog, chips, study.price_basis),
        *(
            f"left out, {why}: {', '.join(few) if len(few) <= NAMED else f'{len(few)} chips'}"
            for why, few in left.items()
        ),
    ]


def _shapes(study: Study, items: Sequence[Choice], shapes: Mapping[str, Any]) -> list[str]:
    """What is held and what is asked where shapes are compared."""
    if not shapes:
        return []
    losses = {name: item["metrics"].get("predicted_loss") for name, item in shapes.items()}
    each = "; ".join(
        f"{name}: predicted loss {'not known' if loss is None else f'{loss:.4g}'}"
        for name, loss in losses.items()
    )
    words = f"quality is not judged, nor how sure it is ({each})"
    if (loss := items[0].loss) is not None:
        words = (
            f"whether a shape keeps a loss of {loss.limit:g} is drawn from what "
            f"{loss.doubt.posterior.runs} runs of yours leave of the law ({each})"
        )
    if len(shapes) == 1:
        return [words]
    then = ", and within it" if loss is None else " as predicted;"
    limits = "; ".join(_quality_limits(study))
    return [
        f"all shapes keep the limit of the study on quality ({limits}){then} {words}",
        "shapes on one chip have its price and its part of the error in common, and in one "
        "configuration all of the error, so that their order there is taken for sure (assumed)",
    ]
