"""How sure the best chip is: prices, efficiency and demand drawn from their intervals, what a wrong
choice costs, and which measurement would help most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Block, Commands, Opening, Table, table_of
from dse.answer.frames import bar_chart, of_rows
from dse.answer.numbers import number, percent, priced, share, tenths
from dse.answer.plots import scaled
from dse.catalog import Catalog
from dse.economics.prices import (
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
from dse.problem.mix import held
from dse.problem.objective import on_terms, tokens_per_request
from dse.problem.words import deployment_words, short_deployment
from dse.questions.whatif.inputs import Subject
from dse.questions.whatif.solve import Progress
from dse.schema.study import Study
from dse.schema.traffic import read_rate
from dse.schema.workloads import load_words, mix_words
from dse.study.choices import Choice, Choices, choices_of, joined
from dse.study.folder import STUDY, find_item
from dse.study.regret import Uncertain, draw, measure_next, robustness

QUALITY = ("predicted_loss", "dense_equivalent_parameters")
NAMED = 8  # chips that are left out for one reason and named
BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs
MEANING = "Regret: what a choice costs in a draw over the best choice of that draw, less 1."
PRICED = {
    "published": "spread of three or more published rows of the chip",
    "pooled": "too few rows of a chip: pooled spread of the basis's chips that have three",
    "assumed": "no two chips of the basis have three rows: 15% either way (assumed)",
    "given": "price_interval, as it was given",
}
Json = Mapping[str, Any]


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
    models = {name: item["model"] for name, item in shapes.items()} or {"": None}
    each = {n: choices_of(problem, objective, model, progress) for n, model in models.items()}
    choices = joined(each) if len(each) > 1 else next(iter(each.values()))
    rate = None if demand is None else rate_of(demand, subject, choices)
    catalog, chips = on_terms(subject.catalog, study), [item.chip for item in choices.items]
    prices: list[dict[str, Any]] = []
    if choices.priced:
        known = list(dict.fromkeys(chips))
        prices = price_spreads(catalog.prices, study.price_basis, known, price_interval)
    sd = {row["chip"]: row["sd"] for row in prices}
    kin_of = dict(zip(problem.machines.ids, problem.machines.kin, strict=True))
    price_sd = np.array([sd.get(chip, 0.0) for chip in chips])
    case = Uncertain(choices, price_sd, rate, tuple(kin_of[chip] for chip in chips))
    drawn = draw(case, draws, seed)
    robust = robustness(case, drawn)
    loads, metric = [load.row() for load in study.workloads], choices.objective
    rows = _choices(case, robust, held(loads))
    learned = _learned(catalog, case, rows, measure_next(case, drawn, robust, progress), loads)
    take = min(rows, key=lambda row: row["expected_regret"])
    now = min(rows, key=lambda row: row["predicted"])
    parts = price_documents(catalog, dict.fromkeys(chips), study.price_basis)
    asked = _asked(study, case, robust, shapes)
    rests = _rests(subject, catalog, case, prices, shapes)
    none, not_sold = robust["share_without_answer"], unsold(catalog, chips)
    said = _sentences(metric, draws, rows, (take, now), learned, none, not_sold)
    spreads = of_rows(
        "prices",
        f"Prices that were drawn, per chip-hour on basis {study.price_basis}",
        prices,
        "chip usd_per_chip_hour usd_per_chip_hour.low usd_per_chip_hour.high published_rows kind",
        on_console=False,
    )
    document = {
        "space": study.name,
        "title": subject.title,
        "asked": asked,
        "point": ", ".join(shapes) or None,
        "objective": metric,
        "price_basis": study.price_basis,
        "draws": draws,
        "seed": seed,
        "standard_error": float(robust["standard_error"].max()),
        "demand": rate and {"requests_per_s_low": rate[0], "requests_per_s_high": rate[1]},
        "advised": take["name"],
        "predicted_best": now["name"],
        "chance_wrong": 1.0 - now["chance_first"],
        "share_without_answer": none,
        "choices": rows,
        "measure_next": learned,
        "prices": [dict(row) for row in spreads.rows],
        "price_parts": parts,
        "prices_given": catalog.source.own_prices(),
        "left_out": {**study.why_left_out, **choices.left_out},
        "rests_on": rests,
        "answer": said,
    }
    best_first = sorted(rows, key=lambda row: -row["chance_first"])
    picture = bar_chart(
        "choices",
        "How often each choice is the best, and what it gives away",
        [row["name"] for row in best_first],
        {
            "best in": scaled("chance_first", [row["chance_first"] for row in best_first]),
            "gives away": scaled("expected_regret", [row["expected_regret"] for row in best_first]),
        },
        "share of the draws, and regret on average (%)",
        "Each choice by the share of the draws in which it is the best, and by its regret.",
    )
    tables: list[Table] = [_table(metric, best_first)]
    if learned:
        keys = ("learn", "chance_wrong_after", "expected_regret_after", "changes_choice")
        caption = f"Measure next: now a choice is wrong in {share(learned[0]['chance_wrong_now'])}"
        tables.append(of_rows("measure_next", caption, learned[:4], keys))
    blocks: list[Block] = [*tables, *([spreads] if prices else [])]
    blocks += [price_parts(parts)] if parts else []
    if learned and learned[0]["commands"]:
        blocks.append(Commands("To make the first measurement", learned[0]["commands"]))
    full = deployment_words(take["deployment"], held(loads))
    often = of_rows(
        "often", "", best_first[:8], ("name", metric, "chance_first", "expected_regret")
    )
    first = Opening(asked, said[0].replace(take["deployed"], full), picture, often)
    return Answer(
        question="whatif",
        title=f"How sure: {subject.title}",
        asked=f"{subject.title}: {asked}",
        headline=said[0],
        sentences=said[1:],
        blocks=blocks,
        rests=rests,
        document=document,
        data=(table_of("data", rows),),
        opening=first if len(rows) > 1 else None,
        names=catalog.names,
    )


def shapes_of(source: Any, points: Sequence[str], study: Study) -> dict[str, Json]:
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
    found: list[tuple[list[str], Json]] = []
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


def _choices(case: Uncertain, robust: Json, is_held: bool) -> list[dict[str, Any]]:
    """A row for each choice; under its objective the price at the prediction."""
    metric = case.choices.objective
    keys = ("predicted", "chance_first", "chance_first_as_deployed", "standard_error")
    keys = (*keys, "expected_regret", "regret_95", "chance_misses_limits", "worst_price")
    rows = []
    for i, item in enumerate(case.items):
        deployment = dict(item.deployments[item.best])
        shape = f" ({item.shape})" if item.shape else ""
        rows.append(
            {
                "name": item.name,
                "chip": item.chip,
                "point": item.shape or None,
                "deployed": short_deployment(deployment, is_held) + shape,
                "deployment": deployment,
                "efficiency": item.kind,
                metric: number(robust["predicted"][i]),
                f"{metric}.low": number(robust["low"][i]),
                f"{metric}.high": number(robust["high"][i]),
                "worst_regret_at_ends": number(robust["worst_regret"][i]),
                **{key: number(robust[key][i]) for key in keys},
            }
        )
    return rows


def _learned(
    catalog: Catalog,
    case: Uncertain,
    rows: Sequence[Json],
    measured: Sequence[Json],
    loads: Sequence[Json],
) -> list[dict[str, Any]]:
    """What each measurement would save, and the commands that make it."""
    regret = min(row["expected_regret"] for row in rows)
    wrong = 1.0 - max(row["chance_first"] for row in rows)
    found = []
    for one in measured:
        row, serving = rows[one["i"]], one["what"] == "serving"
        commands = _commands(catalog, case.items[one["i"]], loads) if serving else []
        found.append(
            {
                "what": one["what"],
                "chip": row["chip"],
                "learn": f"serving on {row['deployed']}"
                if serving
                else f"a quote for {row['chip']}",
                "deployment": row["deployment"] if serving else None,
                "chance_saved": one["chance_saved"],
                "expected_regret_saved": one["expected_regret_saved"],
                "changes_choice": one["changes_choice"],
                "chance_wrong_now": wrong,
                "chance_wrong_after": max(wrong - one["chance_saved"], 0.0),
                "expected_regret_after": max(regret - one["expected_regret_saved"], 0.0),
                "commands": commands,
            }
        )
    return found


def _commands(catalog: Catalog, item: Choice, loads: Sequence[Json]) -> list[str]:
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


def _asked(study: Study, case: Uncertain, robust: Json, shapes: Json) -> str:
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


def _sentences(
    metric: str,
    draws: int,
    rows: Sequence[Json],
    chosen: tuple[Json, Json],
    learned: Sequence[Json],
    none: float,
    not_sold: Mapping[str, str],
) -> list[str]:
    """What to take and how sure that is; what being wrong costs; what to measure. `chosen`: the
    choice of least expected regret, and the best at the prediction."""
    take, now = chosen
    said = (
        f"Take {take['chip']}, served on {take['deployed']}: {priced(metric, take['predicted'])} "
        f"at the prediction, the best in {tenths(take['chance_first'])} of {draws:,} draws."
    )
    words = [said, *unsold_sentences(not_sold, [take["chip"]])]
    if len(rows) == 1:
        return [*words, "There is no other choice."]
    if take is not now:
        words.append(
            f"{now['name']} is best at the prediction and in {tenths(now['chance_first'])} of the "
            f"draws, and costs more where it is not: {take['name']} is the safest."
        )
    words.append(
        f"A wrong choice costs: {take['name']} gives away {_share(take['expected_regret'])} on "
        f"average to the best choice of each draw, {_share(take['regret_95'])} or more in one draw "
        f"of twenty, and with every interval at its end against it "
        f"{_share(take['worst_regret_at_ends'])}."
    )
    if none > 0.0:
        words.append(f"In {percent(none)} of the draws no choice keeps the limits.")
    if learned and learned[0]["chance_saved"] >= 0.0005:
        best = learned[0]
        words.append(
            f"Before buying, measure {best['learn']}: a wrong choice falls from "
            f"{tenths(best['chance_wrong_now'])} to {tenths(best['chance_wrong_after'])}."
        )
    elif learned:
        words.append("No single measurement lowers the chance of a wrong choice by 0.05 points.")
    return words


def _share(regret: float | None) -> str:
    return "unbounded" if regret is None else share(regret)


def _table(metric: str, rows: Sequence[Json]) -> Table:
    shown = ("deployed", "efficiency", metric, "chance_first", "expected_regret", "regret_95")
    shown = (*shown, "worst_regret_at_ends", "chance_misses_limits")
    caption = "Choices, the one most often first on top"
    every = (*shown, f"{metric}.low", f"{metric}.high")
    return of_rows("choices", caption, rows, every, MEANING, shown=shown)


def _rests(
    subject: Subject,
    catalog: Catalog,
    case: Uncertain,
    prices: Sequence[Json],
    shapes: Json,
) -> list[str]:
    """What is assumed, and how draws were made."""
    study, choices, items = subject.problem.study, case.choices, case.items
    chips = list(dict.fromkeys(item.chip for item in items))
    words = [
        "errors of times and costs: the 80% intervals of the model, log-normal on either side; "
        f"{choices.shared:.0%} of the variance is shared by all configurations of a chip (fitted), "
        "the rest is each configuration's own, whatever is in flight (assumed)",
    ]
    kin: dict[str, dict[str, None]] = {}
    for item, name in zip(items, case.kin, strict=True):
        kin.setdefault(name, {})[item.chip] = None
    if names := "; ".join(", ".join(group) for group in kin.values() if len(group) > 1):
        words.append(
            f"chips whose kernel laws have one origin err together in {COMMON:.0%} of that shared "
            f"part ({MEASURED}): {names}"
        )
    words += _shapes(study, items, shapes)
    if loose := ", ".join(dict.fromkeys(one.chip for one in items if one.kind != "fitted")):
        words.append(f"kernel laws not measured on the chip, wider intervals: {loose}")
    words.append(
        "the configuration of a chip stays the one predicted best; requests in flight are chosen "
        "again in every draw"
    )
    kinds = {row["kind"] for row in prices}
    words += [f"price intervals: {text}" for kind, text in PRICED.items() if kind in kinds]
    if case.demand is not None:
        words.append("demand: 80% interval, log-normal; as many whole instances as the rate needs")
    words += unsold_rests(unsold(catalog, chips))
    words += prices_rest_on(catalog, chips, study.price_basis)
    left: dict[str, list[str]] = {}  # chips of the space that are no choice, by reason
    for chip, why in {**study.why_left_out, **choices.left_out}.items():
        left.setdefault(why.removeprefix(f"{chip} ").partition(";")[0], []).append(chip)
    for why, few in left.items():
        named = ", ".join(few) if len(few) <= NAMED else f"{len(few)} chips"
        words.append(f"left out, {why}: {named}")
    return words


def _shapes(study: Study, items: Sequence[Choice], shapes: Json) -> list[str]:
    """What is held and what is asked where shapes are compared."""
    if not shapes:
        return []
    losses = {name: item["metrics"].get("predicted_loss") for name, item in shapes.items()}
    each = "; ".join(
        f"{name}: predicted loss {'not known' if loss is None else f'{loss:.4g}'}"
        for name, loss in losses.items()
    )
    words = [f"quality is not judged, nor how sure it is ({each})"]
    if (loss := items[0].loss) is not None:
        words = [
            f"whether a shape keeps a loss of {loss.limit:g} is drawn from what "
            f"{loss.doubt.posterior.runs} runs of yours leave of the law ({each})"
        ]
    if len(shapes) > 1:
        words += [
            f"all shapes keep the limit of the study on quality as predicted: "
            f"{'; '.join(_quality_limits(study))}",
            "shapes on one chip have its price and its part of the error in common, and in one "
            "configuration all of the error, so that their order there is taken for sure (assumed)",
        ]
    return words
