"""Which chip: where two cost the same, which is best at an equal budget or level, and how sure the
best one is.

Break-even price: a chip's cost per token is its price times the chip-hours that a token takes, and
its cheapest deployment takes fewest, whatever the price. So chip B costs as much as chip A at

    price B = price A x chip-hours A / chip-hours B.

An owned chip that serves the share u of its hours costs, by the hour that it is owned,
A + E (1 - d + d u), on the costs of `dse.economics.tco`: A its capital and upkeep, E its
electricity when busy, d the share of that which depends on the load. One that is rented by use, at
r and paid only while it serves, costs r u. The two are equal at u = (A + E (1 - d)) / (r - E d).
A rent that is committed for years is paid whether or not the chip serves; it is held against an
owned chip that is always busy.

An equal budget (dollars per hour, watts, chips) buys as many whole deployments as it pays
for, at their full rate; of each chip the deployment counts that serves most output tokens per
second. At equal quality or latency, each chip's cheapest deployment that is at least as good
counts.

How sure: prices, efficiency and demand are drawn from their intervals (`dse.study.choices`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse import units
from dse.answer.answer import Answer, Block, Commands
from dse.answer.frames import bar_chart, document, lines, of_rows
from dse.answer.numbers import axis_title, dollars, number, percent, priced, share, show, tenths
from dse.answer.plots import scaled
from dse.answer.sentences import never_measured
from dse.catalog import Catalog
from dse.economics.prices import (
    price_documents,
    price_parts,
    price_spreads,
    prices_rest_on,
    rests_on,
    unsold,
    unsold_rests,
)
from dse.economics.tco import price_by_parts
from dse.errors import InputError, of_field
from dse.problem.evaluate import Metrics
from dse.problem.mix import held
from dse.problem.objective import TOTAL as COST
from dse.problem.objective import on_terms, tokens_per_request
from dse.problem.words import short_deployment
from dse.questions.whatif.inputs import (
    CHIP_RATE,
    RATE,
    TPOT,
    Floats,
    Ids,
    Stand,
    Subject,
    chunks,
    points,
    random_arrivals,
)
from dse.questions.whatif.moves import Told, counted, table
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import lacks_for_owning
from dse.schema.metrics import METRICS, parse_limit
from dse.schema.study import Study
from dse.schema.traffic import read_rate
from dse.schema.workloads import load_words, mix_words
from dse.space.candidates import CandidateBatch
from dse.study.choices import Choice, Choices, choices_of, draw, measure_next, robustness
from dse.study.folder import STUDY, item_of, read_study

Json = Mapping[str, Any]
ON_DEMAND = "on_demand"  # the basis of a chip that is paid only while it is used
COMMITTED = ("rental_", "reserved_")  # bases that are paid for years, used or not
# Budgets with what they are counted in, and levels with their metric.
UNITS = {"cost": "USD per hour", "power": "W", "chips": "chips"}
LEVELS = {"quality": "predicted_loss", "latency": TPOT}
EQUAL = (*UNITS, *LEVELS)
BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs
PRICED = {
    "published": "spread of three or more published rows of the chip",
    "pooled": "too few rows of a chip: pooled spread of the basis's chips that have three",
    "assumed": "no two chips of the basis have three rows: 15% either way (assumed)",
    "given": "price_interval, as it was given",
}


# Where two choices cost the same.


def best_of_each(
    stand: Stand,
    worth: Callable[[Metrics, CandidateBatch], Floats],
    group: Callable[[CandidateBatch, Ids], Ids] = lambda batch, index: batch.chip,
) -> dict[int, tuple[float, int]]:
    """(worth, point) of the feasible point of least `worth` (n,) of each chip, by its code, or of
    each `group` (n,) of a batch and its index (n, d); of equal ones the first. None where no point
    has a finite one. Pools of two kinds of chip are of no one chip."""
    found: dict[int, tuple[float, int]] = {}
    for ids, metrics, judged in chunks(stand.problem, stand.ids):
        index = stand.problem.space.unrank(ids)
        batch = stand.problem.batch(index)
        kinds = stand.problem.kinds(batch, index)
        feasible = (judged.G <= 0.0).all(axis=1) & (kinds.first == kinds.second)
        value, numbers = np.where(feasible, worth(metrics, batch), np.inf), group(batch, index)
        for one in map(int, np.unique(numbers)):
            rows = np.flatnonzero(numbers == one)
            row = int(rows[np.argmin(value[rows])])
            if value[row] < found.get(one, (np.inf, 0))[0]:
                found[one] = (float(value[row]), int(ids[row]))
    return found


def break_even(stand: Stand) -> Told:
    """At which price, number of requests or utilisation one choice overtakes another. Raises
    InputError for a study without prices or with one chip that cannot be priced as owned."""
    problem, machines = stand.problem, stand.problem.machines
    best = best_of_each(stand, lambda metrics, batch: metrics.values[COST])
    order = sorted(best, key=lambda code: best[code][0])
    rows: list[dict[str, Any]] = []
    for code in order:
        price, (cost, point) = float(machines.usd_per_chip_hour[code]), best[code]
        row = {**points(problem, [point])[0], "usd_per_chip_hour": price}
        others = [other for other in order[:2] if other != code]
        if others:
            # chip-hours per million tokens are cost / price, so that the closed form is this ratio
            even = price * best[others[0]][0] / cost
            row |= {"against": machines.ids[others[0]], "break_even_usd_per_chip_hour": even}
            row["change"] = even / price - 1.0
        rows.append(row)
    owned, prices = _owning(stand.subject, rows)
    if len(rows) < 2 and not owned:
        raise InputError(
            "nothing to compare: one feasible chip, and no price to own it at",
            field="--break-even",
            accepted="two chips, or one with a rent and a price to buy it at",
        )
    notes = []
    if problem.model is None:
        notes.append("Of any predicted loss: --limit 'predicted_loss <= ...' holds it.")
    if without := [chip for code, chip in enumerate(machines.ids) if code not in best]:
        notes.append(f"Nothing feasible: {', '.join(without)}.")
    keys = ("usd_per_chip_hour", "break_even_usd_per_chip_hour")
    shown = ("chip", "deployed", COST, *keys, "change", "against")
    caption = "Break-even prices per chip-hour"
    blocks: list[Block] = [table("break_even", caption, rows, shown, *notes, first=("chip", *keys))]
    said: list[str] = []
    if len(rows) > 1:
        one, other = rows[:2]
        said.append(
            f"{other['chip']} breaks even with {one['chip']} at "
            f"{dollars(other['break_even_usd_per_chip_hour'])} per chip-hour "
            f"({tenths(other['change'], sign=True)} from {dollars(other['usd_per_chip_hour'])})."
        )
        if not (random_arrivals(problem) or problem.pools) and "concurrency" in problem.space.names:
            more, flight = _by_requests(stand, order[:2])
            said, blocks = said + more, [*flight[:1], *blocks, *flight[1:]]
    if owned:
        known = [row["chip"] for row in owned]
        left = [row["chip"] for row in rows if row["chip"] not in known]
        notes = [f"No price or power to own it at: {', '.join(left)}."] if left else []
        keys = ("chip", "owned_at_full_use", "committed_usd_per_hour", "rent_usd_per_hour")
        keys = (*keys, "owning_wins_from", "demand_output_tokens_per_s")
        parts = price_parts(prices, "An owned chip-hour by its parts, always busy")
        said.append(_owning_words(owned[0]))
        blocks += [
            table("owning", "Owning against renting, per chip-hour", owned, keys, *notes),
            replace(parts, on_console=False),
        ]
    owns = problem.study.price_basis == OWNED  # then the prices of the winners say it
    return said, blocks, [] if owns else rests_on(prices, but="utilisation")


def _by_requests(stand: Stand, codes: Sequence[int]) -> tuple[list[str], list[Block]]:
    """The lowest cost of two chips at each number of requests in flight, under the limits."""
    space, ids = stand.problem.space, stand.problem.machines.ids
    axis = space.names.index("concurrency")
    values = space.choices[axis]
    best = best_of_each(
        stand,
        lambda metrics, batch: metrics.values[COST],
        lambda batch, index: batch.chip * len(values) + index[:, axis],
    )
    rows, leads = [], []
    for k, value in enumerate(values):
        usd = [best.get(code * len(values) + k, (math.inf, 0))[0] for code in codes]
        for code, one in zip(codes, usd, strict=True):
            rows.append({"concurrency": value, "chip": ids[code], COST: number(one)})
        if max(usd) < math.inf:
            leads.append((value, ids[codes[int(np.argmin(usd))]]))
    caption = "Lowest cost at each number of requests in flight"
    flight = table("requests", caption, rows, ("concurrency", "chip", COST), on_console=False)
    shows = "The lowest cost per million tokens within the limits by requests in flight."
    picture = lines("requests", caption, flight, "concurrency", COST, "chip", shows)
    turns = [f"{load:,}" for (_, one), (load, other) in itertools.pairwise(leads) if one != other]
    said = []
    if turns:
        said.append(
            f"With few requests in flight {leads[0][1]} is cheaper; the lead changes at "
            f"{', '.join(turns)} in flight."
        )
    return said, [picture, flight]


def _owning(subject: Subject, rows: Sequence[Json]) -> tuple[list[dict[str, Any]], list[Json]]:
    """Of each chip that can be priced as owned: it against renting it by use, with the demand on
    one deployment at which they cost the same, and against a committed rent where the study's basis
    is one (ON_DEMAND is then the rent by use); and its price, always busy, by its parts."""
    study, catalog = subject.problem.study, subject.catalog
    basis, costs = study.price_basis, study.costs or catalog.costs
    committed = basis.startswith(COMMITTED)
    by_use = ON_DEMAND if committed or basis == OWNED else basis
    rents = catalog.prices.select(by_use) if by_use in catalog.prices.bases() else {}
    found, prices = [], []
    for point in rows:
        chip = point["chip"]
        if lacks_for_owning(catalog, chip, costs) is not None:
            continue
        price = price_by_parts(catalog, chip, OWNED, costs.changed({"utilisation": 1.0}))
        prices.append(price)
        usd = {part["name"]: part["usd_per_chip_hour"] for part in price["parts"]}
        power, full = usd["electricity"], price["usd_per_chip_hour"]
        by_load = power * costs.value("load_share")
        row = {"chip": chip, "deployed": point["deployed"], "owned_at_full_use": full}
        row |= {"chips": point["deployment"]["chips"], "basis": by_use}
        if committed:
            row["committed_usd_per_hour"] = point["usd_per_chip_hour"]
        if chip in rents:
            rent = row["rent_usd_per_hour"] = rents[chip].usd_per_chip_hour
            even = ((full - power) + power - by_load) / (rent - by_load) if rent > by_load else 2.0
            if even <= 1.0:
                row["owning_wins_from"] = even
                row["demand_output_tokens_per_s"] = even * point[CHIP_RATE] * row["chips"]
        found.append(row)
    return found, prices


def _owning_words(row: Json) -> str:
    said = f"Nobody publishes a price for {row['chip']} by use"
    if "owning_wins_from" in row:
        said = (
            f"Owning {row['chip']} beats renting it by use ({dollars(row['rent_usd_per_hour'])}, "
            f"{row['basis']}) from {share(row['owning_wins_from'])} utilisation: "
            f"{row['demand_output_tokens_per_s']:,.0f} output tokens/s on one instance of "
            f"{row['chips']} chips"
        )
    elif "rent_usd_per_hour" in row:
        said = f"Owning {row['chip']} costs more than renting it by use at any utilisation"
    said += f"; always busy it costs {dollars(row['owned_at_full_use'])} per chip-hour"
    if "committed_usd_per_hour" in row:
        said += f", against {dollars(row['committed_usd_per_hour'])} committed for years"
    return f"{said}."


def equal(stand: Stand, kind: str, text: str | None = None) -> Told:
    """The chips at an equal amount `text` of `kind`, the best first, each with what it falls short
    of the best by; without a text, at the amount of the winner: of its deployments for the demand,
    or of ten, enough that whole deployments compare fairly.

    Raises InputError for an amount that cannot be read, that buys no deployment of any chip or that
    the winner does not have.
    """
    problem, winner, bound = stand.problem, stand.winner, LEVELS.get(kind)
    ids, mine = problem.machines.ids, problem.machines.code(winner["chip"])
    each = {"cost": problem.machines.usd_per_chip_hour, "power": problem.meter_w}
    each = each.get(kind, np.ones(len(ids)))
    level = _amount(kind, text) if text else winner[bound] if bound else None
    if level is None and not bound:
        level = winner.get("deployments", 10) * winner["deployment"]["chips"] * float(each[mine])
    if level is None or not math.isfinite(level):
        message, accepted = f"{kind} of {winner['chip']} is not known", "--at AMOUNT"
        raise InputError(message, field="--equal", accepted=accepted)

    def needed(metrics: Metrics, batch: CandidateBatch) -> Floats:
        return batch.chips * each[batch.chip]

    def worth(metrics: Metrics, batch: CandidateBatch) -> Floats:
        if bound:
            good = metrics.values[bound] <= level * (1.0 + 1e-12)
            return np.where(good, metrics.values[COST], np.inf)
        many = np.floor(level * (1.0 + 1e-9) / needed(metrics, batch))
        return np.where(many >= 1.0, -many * metrics.values[RATE], np.inf)

    amount = f"{bound} <= {show(bound, level)}" if bound else f"{level:,.4g} {UNITS[kind]}"
    amount = units.format(level, "W", 4) if kind == "power" else amount
    best = best_of_each(stand, worth)
    if not best and bound:
        message = f"no chip keeps the limits at {amount}"
        raise InputError(message, field="--at", accepted="a looser one")
    if not best:
        least = [value for value, _ in best_of_each(stand, needed).values()]
        message = f"{amount}: too little for any deployment that keeps the limits"
        accepted = f"at least {min(least):,.4g} {UNITS[kind]}" if least else "another limit"
        raise InputError(message, field="--at", accepted=accepted)
    rows, metric = [], COST if bound else RATE
    top = min(value for value, _ in best.values())
    for code, (value, point) in sorted(best.items(), key=lambda one: one[1][0]):
        (own,) = points(problem, [point])
        row = {"kind": kind, "level": level, **own, "over_best": value / top - 1.0}
        if not bound:  # a budget is served at the full rate
            many = round(-value / own[RATE])
            row |= {"deployments": many, "all_chips": many * own["deployment"]["chips"]}
            row |= {RATE: -value, COST: own.get(f"{COST}.busy", own[COST]), "usd_per_hour": None}
        if kind == "power":
            row["watts_per_chip_counted"] = float(each[code])
        rows.append(row)
    verb, value = "is cheapest", priced(COST, rows[0][COST])
    if not bound:
        verb = "serves most"
        chips = counted(rows[0]["all_chips"], "chip")
        value = f"{rows[0][RATE]:,.0f} output tokens/s from {chips}"
    then = "no deployment of another chip fits"
    if rows[1:]:
        then = f"next {rows[1]['chip']}, {tenths(rows[1]['over_best'], sign=True)}"
    said = f"At equal {kind} ({amount}), {rows[0]['chip']} {verb}: {value}; {then}."
    notes, without = [], [chip for code, chip in enumerate(ids) if code not in best]
    if kind == "power":
        notes.append("Power is at the meter: a chip with its share of server, network and cooling.")
    if without:
        notes.append(f"No deployment: {', '.join(without)}.")
    shown = dict.fromkeys(("chip", metric, "over_best", "deployments", "all_chips", "deployed"))
    shown = (*shown, *((COST,) if not bound else ()), TPOT, "watts_per_chip_counted")
    caption = f"At equal {kind}: {amount}"
    picture = bar_chart(
        f"equal-{kind}",
        caption,
        [row["chip"] for row in rows],
        {METRICS[metric].title: scaled(metric, [row[metric] for row in rows])},
        axis_title(metric),
        f"Each chip at equal {kind}, the best on top.",
    )
    first = ("chip", metric, "over_best")
    made = table(f"equal_{kind}", caption, rows, shown, *notes, first=first)
    return [said], [picture, made], []


def _amount(kind: str, text: str) -> float:
    """The budget or level that `--at` gives. Raises InputError."""
    dimension = {"cost": "usd/h", "power": "W"}.get(kind, "count")
    dimension = METRICS[LEVELS[kind]].dimension if kind in LEVELS else dimension
    with of_field("--at"):
        value = parse_limit(text, dimension)
    if value <= 0.0:
        raise InputError(f"read {text!r}", field="--at", accepted="more than 0")
    return value


# How sure the best one is.


def how_sure(subject: Subject, source: Any, given: Json) -> Answer:
    """`point` of a study that searched shapes names the shape that is served; `demand` is LOW..HIGH
    in tokens. Raises InputError for shapes without a point, NothingFeasible where no chip keeps the
    limits."""
    study, problem = subject.problem.study, subject.problem.busy
    basis, point, progress = study.price_basis, given["point"], given["progress"]
    draws, seed = given.get("draws") or 10_000, given.get("seed") or 0
    shape = _shape_of(source, point, study)
    choices = choices_of(problem, given["objective"], shape and shape["model"], progress)
    rate = None if given["demand"] is None else _rate_of(given["demand"], subject, choices)
    catalog, metric = on_terms(subject.catalog, study), choices.objective
    chips = [item.chip for item in choices.items]
    prices: list[dict[str, Any]] = []
    if choices.priced:
        prices = price_spreads(catalog.prices, basis, chips, given.get("price_interval"))
        choices = replace(choices, price_sd=np.array([row["sd"] for row in prices]))
    choices = replace(choices, demand=rate)
    drawn = draw(choices, draws, seed)
    columns, none, error = robustness(choices, drawn)
    loads = [load.row() for load in study.workloads]
    rows: list[dict[str, Any]] = []
    for item, *values in zip(choices.items, *columns.values(), strict=True):
        deployment = dict(item.deployment)
        row = {"chip": item.chip, "deployed": short_deployment(deployment, held(loads))}
        row |= {"efficiency": item.kind, "deployment": deployment}
        rows.append(row | dict(zip(columns, map(number, values), strict=True)))
    take = min(rows, key=lambda row: row["expected_regret"])
    now = min(rows, key=lambda row: row[metric])
    wrong = 1.0 - max(row["chance_first"] for row in rows)
    learned = []
    for one in measure_next(choices, drawn, columns, progress):
        row, serving = rows[one["i"]], one["what"] == "serving"
        learned.append(
            {
                "what": one["what"],
                "chip": row["chip"],
                "learn": f"serving on {row['deployed']}"
                if serving
                else f"a quote for {row['chip']}",
                "chance_wrong_after": max(wrong - one["chance_saved"], 0.0),
                "expected_regret_after": max(
                    take["expected_regret"] - one["expected_regret_saved"], 0.0
                ),
                "changes_choice": one["changes_choice"],
                "commands": _commands(catalog, choices.items[one["i"]], loads) if serving else [],
            }
        )
    rows.sort(key=lambda row: -row["chance_first"])
    shown = ("deployed", "efficiency", metric, "chance_first", "expected_regret", "regret_95")
    shown = (*shown, "worst_regret_at_ends", "chance_misses_limits")
    meaning = "Regret: what a choice costs in a draw over the best choice of that draw, less 1."
    first = ("chip", metric, "chance_first", "expected_regret")
    caption = "Choices, the one most often first on top"
    made = table("choices", caption, rows, shown, meaning, first=first)
    spreads = of_rows(
        "prices",
        f"Prices that were drawn, per chip-hour on basis {basis}",
        prices,
        "chip usd_per_chip_hour usd_per_chip_hour.low usd_per_chip_hour.high published_rows kind",
        on_console=False,
    )
    picture = bar_chart(
        "choices",
        "How often each choice is the best, and what it gives away",
        made["chip"],
        {
            "best in": scaled("chance_first", made["chance_first"]),
            "gives away": scaled("expected_regret", made["expected_regret"]),
        },
        "share of the draws, and regret on average (%)",
        "Each choice by the share of the draws in which it is the best, and by its regret.",
    )
    blocks: list[Block] = [made] if len(rows) == 1 else [picture, made]
    if learned:
        keys = ("learn", "chance_wrong_after", "expected_regret_after", "changes_choice")
        caption = f"Measure next: now a choice is wrong in {share(wrong)}"
        blocks.append(table("measure_next", caption, learned[:4], keys))
        if learned[0]["commands"]:
            blocks.append(Commands("To make the first measurement", learned[0]["commands"]))
    blocks += [spreads] if prices else []
    parts = price_documents(catalog, chips, basis)
    blocks += [price_parts(parts)] if parts else []
    limits = "; ".join(limit.text for limit in study.constraints) or "none"
    asked = load_words(loads[0]) if len(loads) == 1 else mix_words(loads)
    asked = f"{choices.points:,} deployments; {asked}; limits: {limits}; prices: {basis}"
    asked += f"; demand {rate[0]:g} to {rate[1]:g} requests/s" if rate else ""
    asked += f"; shape of point {point}" if shape else ""
    said = _advice(metric, draws, rows, take, now, learned)
    off_sale, left = unsold(catalog, chips), {**study.why_left_out, **choices.left_out}
    if why := off_sale.get(take["chip"]):
        text = f"{take['chip']} is not on general sale ({why}): the next may have to do."
        said.insert(1, text)
    if none:
        said.append(f"In {percent(none)} of the draws no choice keeps the limits.")
    rests = [*_drawn_from(choices, prices, shape), *unsold_rests(off_sale)]
    rests += prices_rest_on(catalog, chips, basis)
    rests += [f"left out: {', '.join(left)}"] if left else []
    facts = {
        "title": subject.title,
        "objective": metric,
        "price_basis": basis,
        "point": point,
        "draws": draws,
        "seed": seed,
        "standard_error": error,
        "demand": rate and {"requests_per_s_low": rate[0], "requests_per_s_high": rate[1]},
        "advised": take["chip"],
        "predicted_best": now["chip"],
        "chance_wrong": wrong,
        "share_without_answer": none,
        "measure_next": learned,
        "price_parts": parts,
        "prices_given": catalog.source.own_prices(),
        "left_out": left,
        "rests_on": rests,
        "answer": said,
    }
    return Answer(
        question="whatif",
        title=f"How sure: {subject.title}",
        asked=f"{subject.title}: {asked}. Standard error of a chance {100 * error:.2g}%.",
        headline=said[0],
        sentences=said[1:],
        blocks=blocks,
        rests=rests,
        document=document(facts, [made, spreads]),
        data=[made],
        names=catalog.names,
    )


def _shape_of(source: Any, point: str | None, study: Study) -> Json | None:
    """The item of front.json whose shape is held; None where the space has one model."""
    folder = Path() if isinstance(source, Mapping) else Path(source)
    known = not isinstance(source, Mapping) and (folder / STUDY).is_file()
    if known and point is None and study.model is None:
        raise InputError(
            f"{folder} searched shapes: of which point?",
            field="--point",
            accepted="its number in front.csv, or start, cheapest, fastest, best, knee",
        )
    if point is not None and not known:
        raise InputError(
            f"read {point!r} of a space, which is no study",
            field="--point",
            accepted="the folder of a finished study as STUDY",
        )
    return None if point is None else item_of(read_study(folder)[1], point, folder)


def _rate_of(text: str, subject: Subject, choices: Choices) -> tuple[float, float]:
    """Requests per second of `1B/day..4B/day`, or of one rate: as many as instances of a deployment
    that runs full serve. Raises InputError."""
    if not choices.priced or random_arrivals(subject.problem):
        raise InputError(
            "demand changes no time, and no rate of arrivals that the workload has",
            field="--demand",
            accepted="an objective in dollars, of continuous, static or offline serving",
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


def _commands(catalog: Catalog, item: Choice, loads: Sequence[Json]) -> list[str]:
    """Command lines that measure a choice and bring that in: vLLM's own benchmark of a server that
    was started as `dse export` writes it."""
    flight = int(item.deployment["concurrency"])
    lines = []
    if item.kind != "fitted" and catalog.chips[item.chip].vendor in BY_TORCH:
        lines.append(f"dse calibrate --chip {item.chip} --full")
    for load in loads:
        rate = load.get("requests_per_second")
        lines.append(
            "vllm bench serve --dataset-name random --random-input-len "
            f"{load['prompt_tokens']:.0f} --random-output-len {load['output_tokens']:.0f} "
            f"--ignore-eos {f'--request-rate {rate:g}' if rate else f'--max-concurrency {flight}'} "
            f"--num-prompts {max(10 * flight, 1000 if rate else 100)}"
        )
    return [*lines, "dse validate --data measured.csv"]


def _advice(
    metric: str, draws: int, rows: Sequence[Json], take: Json, now: Json, learned: Sequence[Json]
) -> list[str]:
    """What to take and how sure that is; what being wrong costs; what to measure. `take` is the
    choice of least expected regret, `now` the best at the prediction."""
    words = [
        f"Take {take['chip']}, served on {take['deployed']}: {priced(metric, take[metric])} "
        f"at the prediction, the best in {tenths(take['chance_first'])} of {draws:,} draws."
    ]
    if len(rows) == 1:
        return [*words, "There is no other choice."]
    if take is not now:
        words.append(
            f"{now['chip']} is best at the prediction and in {tenths(now['chance_first'])} of the "
            f"draws, and costs more where it is not: {take['chip']} is the safest."
        )
    keys = ("expected_regret", "regret_95", "worst_regret_at_ends")
    regrets = ["unbounded" if take[key] is None else share(take[key]) for key in keys]
    words.append(
        f"A wrong choice costs: {take['chip']} gives away {regrets[0]} on average to the best "
        f"choice of each draw, {regrets[1]} or more in one draw of twenty, and with every interval "
        f"at its end against it {regrets[2]}."
    )
    if learned:
        before = 1.0 - max(row["chance_first"] for row in rows)
        after = learned[0]["chance_wrong_after"]
        words.append(
            f"Before buying, measure {learned[0]['learn']}: a wrong choice falls from "
            f"{tenths(before)} to {tenths(after)}."
            if before - after >= 0.0005
            else "No single measurement lowers the chance of a wrong choice by 0.05 points."
        )
    return words


def _drawn_from(choices: Choices, prices: Sequence[Json], shape: Json | None) -> list[str]:
    """What is assumed, and how draws were made."""
    items = choices.items
    words = [
        never_measured(item.chip, item.kind, "wider intervals")
        for item in items
        if item.kind != "fitted"
    ]
    words.append(
        f"errors of the model are drawn from its 80% intervals, {choices.shared:.0%} of the "
        "variance shared by what runs on a chip (fitted), prices and demand from theirs"
    )
    if shape:
        loss = show("predicted_loss", shape["metrics"].get("predicted_loss"))
        words.append(f"quality is not judged, nor how sure it is (predicted loss {loss})")
        if (limit := items[0].loss) is not None:
            words[-1] = (
                f"whether the shape keeps a loss of {limit.limit:g} is drawn from what "
                f"{limit.doubt.posterior.runs} runs of yours leave of the law (predicted: {loss})"
            )
    spreads = dict.fromkeys(row["kind"] for row in prices)
    return words + [f"price intervals: {PRICED[kind]}" for kind in spreads]
