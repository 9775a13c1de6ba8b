"""What an input moves: scenarios, sweeps, sensitivities and shadow prices.

Elasticity: d ln y / d ln x by central differences of a step of 1% on either side,
(ln y(x (1 + h)) - ln y(x (1 - h))) / (ln(1 + h) - ln(1 - h)), from x itself on the side on which
the input has no other value (a share of 100%); of the winner as it is deployed, and of the optimum
that is found again at either side, the envelope. A shadow price is what a finite step of a limit or
a memory is worth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.answer.answer import Block
from dse.answer.frames import bar_chart, lines, of_rows
from dse.answer.numbers import number, show, tenths
from dse.answer.plots import scaled
from dse.errors import InputError, NothingFeasible
from dse.problem.objective import Demanded, tokens_per_request
from dse.questions.whatif.inputs import (
    COSTS,
    DEMAND,
    FIGURES,
    PEAK,
    PRICE,
    Change,
    Input,
    apply,
    between,
    checked,
    inputs_of,
)
from dse.questions.whatif.solve import (
    HELD,
    SLACK,
    Part,
    Progress,
    Solved,
    Stand,
    bought,
    cells,
    describe,
    described,
    metrics_at,
    turning,
    words,
)
from dse.schema.costs import CHIP_RULES, RULES
from dse.schema.metrics import METRICS

Json = Mapping[str, Any]
TPOT = "tpot_s"
MOST_LISTED, DRAWN = 10, 400  # points of a front that are listed, and drawn
REFINE = 2.0**-40  # of a step in which the winner changes
STEP, WIDE = 0.01, 0.10
# The step of a limit whose shadow price is asked, SI; of other limits it is a tenth.
STEPS = {"tpot_s": 5e-3, "ttft_s": 0.1, "e2e_s": 1.0, "predicted_loss": 0.01}
MEMORY = 10e9
# Evaluations that may be spent on points far from the winner.
MOST_EVALUATIONS = 4_000_000
ENDS = ("at_10_percent_less", "at_10_percent_more")
ELASTICITIES = {"elasticity": "own", "elasticity_tpot": "tpot", "elasticity_optimum": "optimum"}


def scenario(stand: Stand, name: str, changes: Sequence[Change]) -> Part:
    """What the changes do: the winner after, the old winner under the changed inputs, and what
    enters and leaves the front."""
    before, after = stand.now, stand.under(*changes)
    problem, a, b = after.problem, before.value, after.value
    old = described(problem, stand.winner["id"])
    found = problem.evaluate(problem.space.unrank(np.array([old["id"]])))
    old["feasible"] = bool((found.G <= 0.0).all())
    new = ~np.isin(after.ids, before.ids)
    row: dict[str, Any] = {
        "name": name,
        "changes": [
            {
                "input": change.input.name,
                "written": change.written,
                "before": change.input.now,
                "after": change.after,
                "unit": change.input.dimension,
            }
            for change in changes
        ],
        "winner": after.point,
        "same_winner": after.winner is not None and after.winner_id == before.winner_id,
        "old_winner": old,
        "change": b / a - 1.0 if a and b is not None else None,
        "demand_of_as_many_requests": _as_many(stand.problem, problem),
        "front": {
            "size_before": len(before.ids),
            "size": len(after.ids),
            "stayed": int((~new).sum()),
            "entered": _listed(after, new),
            "left": _listed(before, ~np.isin(before.ids, after.ids)),
            "chips_before": _chips(stand.problem, before.ids),
            "chips": _chips(problem, after.ids),
        },
        "infeasible_because": after.miss if after.winner is None else None,
    }
    return Part(row, [_scenario_words(row, stand.objective)], _fronts(stand, row, after))


def _as_many(before: Demanded, after: Demanded) -> float | None:
    """The factor of a demand, in tokens, of as many requests as before; None without a demand,
    where requests have as many tokens as before, and where the demand has that factor already."""
    if before.demand is None or after.demand is None:
        return None
    a, b = before.demand.average_tokens_per_s, after.demand.average_tokens_per_s
    longer = tokens_per_request(after) / tokens_per_request(before)
    if a is None or b is None or math.isclose(longer, 1.0):
        return None
    return None if math.isclose(b / a, longer, rel_tol=0.01) else longer


def _evenly(count: int, most: int) -> np.ndarray:
    """At most so many of `count` rows, evenly."""
    return np.unique(np.linspace(0, count - 1, most).astype(int)) if count else np.zeros(0, int)


def _chips(problem: Demanded, ids: np.ndarray) -> dict[str, int]:
    """How many points of a front each chip has."""
    if not len(ids):
        return {}
    batch = problem.batch(problem.space.unrank(ids))
    return dict(Counter(problem.machines.ids[code] for code in batch.chip).most_common())


def _listed(solved: Solved, mine: np.ndarray) -> dict[str, Any]:
    """Of the front points `mine` (k,): how many, how many of each chip, and a few, evenly by the
    objectives."""
    rows = np.flatnonzero(mine)
    order = rows[np.lexsort((solved.ids[rows], *solved.F[rows].T[::-1]))]
    few = order[_evenly(len(order), MOST_LISTED)]
    return {
        "count": len(rows),
        "chips": _chips(solved.problem, solved.ids[rows]),
        "points": describe(solved.problem, solved.ids[few]),
    }


def _scenario_words(row: Json, metric: str) -> str:
    winner, old, by = row["winner"], row["old_winner"], row["change"]
    if winner is None:
        return f"With {row['name']}, nothing is feasible: {row['infeasible_because']}."
    who = "it stays first" if row["same_winner"] else f"{words(winner)} wins"
    said = f"With {row['name']}, {who} at {show(metric, winner['metrics'][metric])}{bought(winner)}"
    if by is not None:
        worse, better = ("dearer", "cheaper") if metric.startswith("usd_") else ("more", "less")
        small = abs(by) < 5e-4
        said += ", unchanged" if small else f", {tenths(abs(by))} {better if by < 0 else worse}"
    if not row["same_winner"] and old["feasible"]:
        said += f"; the old one would be at {show(metric, old['metrics'][metric])}"
    elif not row["same_winner"]:
        said += "; the old one no longer keeps the limits"
    if (times := row["demand_of_as_many_requests"]) is not None:
        said += f"; the demand counts tokens: as many requests as before are demand={times:.3g}x"
    return f"{said}."


def _fronts(stand: Stand, row: Json, after: Solved) -> list[Block]:
    """Two fronts in the objective and another one, thinned to DRAWN points each; and what enters
    and leaves."""
    if after.winner is None:
        return []
    objectives = stand.problem.objectives
    names = [one.metric for one in objectives]
    up = names.index(stand.objective)
    across = next((k for k in range(len(names)) if k != up), up)
    drawn = [
        {"front": name} | {names[k]: objectives[k].sign * F[k] for k in (across, up)}
        for name, solved in (("before", stand.now), ("after", after))
        for F in solved.F[_evenly(len(solved.ids), DRAWN)].tolist()
    ]
    picture = lines(
        "front",
        f"The front, before and after {row['name']}",
        of_rows("fronts", "", drawn, ("front", *dict.fromkeys((names[across], names[up])))),
        *(names[across], names[up], "front"),
        "Every point of the front before and after, both axes logarithmic.",
        joined=False,
    )
    points = [
        {"front": kind, **cells(point)}
        for kind in ("entered", "left")
        for point in row["front"][kind]["points"]
    ]
    caption = f"What enters and leaves the front: {row['name']}"
    shown = ("front", "deployed", stand.objective, TPOT)
    return [picture, of_rows("entered", caption, points, shown, on_console=False)][
        : 1 + bool(points)
    ]


def scenarios(stand: Stand, parts: Sequence[Part]) -> Part:
    """Before and after, a row for each scenario."""
    rows = [{"name": "as things stand", **cells(stand.winner), "front_size": len(stand.now.ids)}]
    for row in (part.facts for part in parts):
        front = {"change": row["change"], "front_size": row["front"]["size"]}
        rows.append({"name": row["name"], **cells(row["winner"]), **front})
        if row["winner"] is not None and not row["same_winner"]:
            broken = "" if row["old_winner"]["feasible"] else " (breaks a limit)"
            rows.append({"name": f"  the old winner then{broken}", **cells(row["old_winner"])})
    shown = ("name", "deployed", *HELD, stand.objective, TPOT, "change", "front_size")
    first = ("name", stand.objective, "change")
    table = of_rows("scenarios", "Before and after: the winner", rows, shown, first=first)
    blocks = [block for part in parts for block in part.blocks]
    said = [text for part in parts for text in part.sentences]
    facts = {"scenarios": [part.facts for part in parts]}
    return Part(facts, said, [*blocks[:1], table, *blocks[1:]])


def sweep(
    stand: Stand,
    steps: Sequence[Change],
    fixed: Sequence[Change] = (),
    progress: Progress = lambda text: None,
) -> Part:
    """The winner at every step, and between which values it changes. Where two winners meet, the
    crossing of the two is found by bisection."""
    rows: list[dict[str, Any]] = []
    switches: list[dict[str, Any]] = []
    one, last = steps[0].input, None
    for k, step in enumerate(steps):
        found = stand.under(*fixed, step)
        rows.append(
            {
                **_step(step),
                "objective": found.value,
                "winner": found.point,
                "front_size": len(found.ids),
                "infeasible_because": found.miss if found.winner is None else None,
            }
        )
        if last is not None and last.winner_id != found.winner_id:
            at = _crossing(stand, steps[k - 1], step, last, found, fixed)
            was, now = rows[k - 1]["winner"], rows[k]["winner"]
            switches.append(
                {"from": was, "to": now, "after_step": k}
                | (dict.fromkeys(("value", "factor", "words")) if at is None else _step(at))
                | {"chip": _chip(was) != _chip(now)}
            )
        last = found
        progress(f"{one.name}: step {k + 1} of {len(steps)}")
    facts = {"input": one.name, "unit": one.dimension, "now": one.now, "rows": rows}
    facts["switches"] = switches
    return Part(facts, [_sweep_words(facts, stand.objective)], _swept(facts, stand.objective))


def _chip(point: Json | None) -> str:
    return "nothing feasible" if point is None else point["chip"]


def _step(change: Change) -> dict[str, Any]:
    after, factor = change.after, f"{change.factor:.4g}x"
    return {
        "value": after,
        "factor": None if change.value is not None else change.factor,
        "words": factor if after is None else change.input.show(after),
    }


def _at(step: Json) -> float | None:
    return step["factor"] if step["value"] is None else step["value"]


def _swept(facts: Json, metric: str) -> list[Block]:
    """A picture with a mark for each step, and the table."""
    name, rows = facts["input"], facts["rows"]
    shown = [
        {"step_at": row["words"], "value": _at(row), "chip": _chip(row["winner"])}
        | cells(row["winner"])
        for row in rows
    ]
    columns = ("step_at", metric, *HELD, "deployed")
    table = of_rows("sweep", f"Sweep of {name}", shown, columns, first=("step_at", metric))
    ends = [_at(switch) for switch in facts["switches"] if switch["chip"]]
    unit = "factor" if rows[0]["value"] is None else facts["unit"].replace("usd", "USD")
    picture = lines(
        f"sweep-{name.replace('.', '-')}",
        f"The winner along {name}",
        of_rows("steps", "", shown, ("value", "chip", metric, "step_at", "deployed")),
        *("value", metric, "chip"),
        "The winner at each step, a colour for each chip; dashed: another chip takes over.",
        at=[end for end in ends if end],
        hover=("deployed",),
        across=f"{name} ({unit})",
    )
    return [picture, table]


def _crossing(
    stand: Stand, first: Change, second: Change, a: Solved, b: Solved, fixed: Sequence[Change]
) -> Change | None:
    """Where, between two steps, the winner of `b` takes the place of that of `a`, the two alone
    compared: None where one of them is nothing feasible."""
    if a.winner_id is None or b.winner_id is None:
        return None
    ids = np.sort(np.array([a.winner_id, b.winner_id]))
    pair = replace(stand, points=replace(stand.points, ids=ids))

    def overtaken(part: float) -> bool:
        found = pair.under(*fixed, between(first, second, part))
        if found.winner is None:
            raise NothingFeasible(found.miss)
        return found.winner_id == b.winner_id

    try:
        return between(first, second, turning(overtaken, 0.0, 1.0, REFINE))
    except NothingFeasible:
        return None


def _sweep_words(facts: Json, metric: str) -> str:
    """Where chips take over, and the objective at both ends."""
    rows, switches = facts["rows"], facts["switches"]
    ends = [
        "nothing feasible"
        if row["winner"] is None
        else show(metric, row["objective"]) + bought(row["winner"])
        for row in (rows[0], rows[-1])
    ]
    turns = []
    for one in switches:
        before, after = (rows[k]["words"] for k in (one["after_step"] - 1, one["after_step"]))
        where = f"at {one['words']}" if one["words"] else f"between {before} and {after}"
        if one["chip"]:
            turns.append(f"{_chip(one['from'])} gives way to {_chip(one['to'])} {where}")
    if not switches:
        turns = [f"the winner stays {words(rows[0]['winner'])}"]
    elif not turns:
        turns = [f"the chip stays, its deployment changes {len(switches)} times"]
    span = f"{facts['input']} from {rows[0]['words']} to {rows[-1]['words']}"
    return f"With {span}: {' to '.join(ends)}; {', '.join(turns)}."


def sensitivities(stand: Stand, progress: Progress = lambda text: None) -> Part:
    """Elasticities of the winner's objective, what a tenth of each input does, and shadow prices:
    of all points where they are few, else of those that a small change can make the winner."""
    how = "The optimum was found again among all points."
    if len(stand.points.ids) * 5 * len(moving_inputs(stand)) > MOST_EVALUATIONS:
        stand = stand.near()
        how = (
            f"The optimum was found again among the {len(stand.points.ids):,} points within "
            f"{stand.reach - 1.0:.0%} of the winner and {SLACK:.0%} of the limits."
        )
    rows, shadows = elasticities(stand, progress), shadow_prices(stand, progress)
    objective = METRICS[stand.objective].title
    moved = [row for row in rows if any(abs(row[end] or 0.0) >= 5e-4 for end in ENDS)]
    less, more = (scaled("change", [row[end] for row in moved]) for end in ENDS)
    picture = bar_chart(
        "tornado",
        f"What moves the {objective}: each input 10% less and 10% more",
        [row["input"] for row in moved],
        {"input 10% less": less, "input 10% more": more},
        f"change of {objective} (%)",
        f"For each input, by how many percent the {objective} changes, deployed anew.",
    )
    shown = [
        row
        for row in rows
        if row["elasticity"] is None
        or any(abs(row[key] or 0.0) >= 5e-3 for key in (*ELASTICITIES, *ENDS))
    ]
    caption = f"Elasticities of the {objective}, strongest first"
    columns = ("input", "words", *ELASTICITIES, *ENDS)
    blocks: list[Block] = [
        picture,
        of_rows("sensitivities", caption, shown, columns, how, first=("input", *ENDS)),
        of_rows(
            "shadow_prices",
            "Shadow prices: what a step of a limit is worth, deployed anew",
            shadows,
            "step gain worth_usd_per_chip_hour limit_binds=binds",
        ),
    ]
    strong = [
        f"{row['input']} {row['elasticity_optimum']:+.2f}%"
        for row in rows[:4]
        if abs(row["elasticity_optimum"] or 0.0) >= 0.005
    ]
    said = f"No input moves the {objective} near where it stands."
    if strong:
        said = f"One percent more of an input moves the {objective}, deployed anew, by: "
        said += f"{', '.join(strong)}."
    worth = [f"{row['step']} is worth {tenths(row['gain'])}" for row in shadows if row["binds"]]
    bound = f"{'; '.join(worth) or 'No limit binds, and more memory is worth nothing'}."
    facts = {"sensitivities": rows, "shadow_prices": shadows, "sensitivities_how": how}
    return Part(facts, [said, bound], blocks)


def moving_inputs(stand: Stand) -> list[Input]:
    """The inputs of the winner that have a value above zero: of its chip, of the workloads, the
    demand, and the costs of owning."""
    known, chip = inputs_of(stand.subject), stand.winner["chip"]
    names = [f"chip.{chip}.{figure}" for figure in (PRICE, *FIGURES)]
    several = len(stand.problem.mix) > 1
    names += [n for n in known if n.startswith("workload.") and (n.count(".") == 2) == several]
    demand = stand.problem.demand is not None  # which takes the place of a utilisation
    names += [DEMAND, PEAK] if demand else []
    names += [f"{COSTS}{name}" for name in RULES if not (demand and name == "utilisation")]
    names += [f"{COSTS}{chip}.{name}" for name in CHIP_RULES]
    return [known[name] for name in names if name in known and (known[name].now or 0.0) > 0.0]


def elasticity(
    y_low: float | None, y_high: float | None, low: float = 1.0 - STEP, high: float = 1.0 + STEP
) -> float | None:
    """d ln y / d ln x of y at x times `low` and `high`; None where y is not known at both."""
    if not (y_low and y_high and y_low > 0.0 and y_high > 0.0) or low == high:
        return None
    return (math.log(y_high) - math.log(y_low)) / (math.log(high) - math.log(low)) + 0.0


def elasticities(stand: Stand, progress: Progress = lambda text: None) -> list[dict[str, Any]]:
    """A row of each input, strongest first: elasticities of the winner's objective and time per
    output token, that of the optimum found again, and the objective at 10% less and more."""
    base, rows = stand.now.value, []
    assert base is not None
    here = _values(stand, stand.problem, 1.0)
    for one in moving_inputs(stand):
        progress(f"sensitivity to {one.name}")
        low, high = (_moved(stand, one, 1.0 + step) or here for step in (-STEP, STEP))
        wide = [_moved(stand, one, 1.0 + step) for step in (-WIDE, WIDE)]
        ends = [None if end is None else end["optimum"] for end in wide]
        factors = (low["factor"] or 1.0, high["factor"] or 1.0)
        rows.append(
            {
                "input": one.name,
                "now": one.now,
                "words": one.show(one.now or 0.0),
                "unit": one.dimension,
                **{
                    key: elasticity(low[of], high[of], *factors) for key, of in ELASTICITIES.items()
                },
                **{key: v and v / base - 1.0 for key, v in zip(ENDS, ends, strict=True)},
            }
        )
    return sorted(rows, key=lambda row: max(abs(row[end] or 0.0) for end in ENDS), reverse=True)


def _moved(stand: Stand, one: Input, factor: float) -> dict[str, float | None] | None:
    """The `_values` with one input times a factor; None where it cannot have that value."""
    try:
        change = checked(Change(one, factor, None, f"{factor:g}x"), one.name)
        return _values(stand, apply(stand.subject, [change]), factor)
    except InputError:
        return None


def _values(stand: Stand, problem: Demanded, factor: float) -> dict[str, float | None]:
    """The winner's objective and time per output token as deployed, and the optimum found again."""
    own = metrics_at(problem, np.array([stand.now.winner_id])).values
    return {
        "factor": factor,
        "own": number(own[stand.objective][0]),
        "tpot": number(own[TPOT][0]),
        "optimum": stand.solve(problem).value,
    }


def shadow_prices(stand: Stand, progress: Progress = lambda text: None) -> list[dict[str, Any]]:
    """What a step of each limit, and of the memory of the winner's chip, is worth: the objective of
    the optimum found again, and, of the memory, the dollars per chip-hour that it may cost more
    before nothing is gained."""
    problem, chip, base = stand.problem, stand.winner["chip"], stand.now.value
    assert base is not None
    price = float(problem.machines.usd_per_chip_hour[problem.machines.code(chip)])
    known = inputs_of(stand.subject)
    memory = known[f"chip.{chip}.memory_capacity"]
    asked: list[tuple[Change, str]] = []
    if memory.now is not None:
        change = Change(memory, (memory.now + MEMORY) / memory.now)
        asked.append((change, "10 GB more memory"))
    for limit in problem.limits:
        one = known[f"limit.{f'{limit.workload}.' if limit.workload else ''}{limit.metric}"]
        step = STEPS.get(limit.metric, 0.1 * abs(limit.limit))
        if METRICS[limit.metric].dimension == "count":
            step = float(max(round(step), 1))
        change = Change(one, 1.0, limit.limit + limit.sign * step)
        more = "more" if limit.sign > 0 else "less"
        asked.append((change, f"{one.show(step)} {more} of {limit.metric}"))
    sign = 1.0 if METRICS[stand.objective].direction == "minimize" else -1.0
    rows = []
    for change, step in asked:
        progress(f"shadow price of {change.input.name}")
        found = stand.under(change).value
        gain = None if found is None else sign * (1.0 - found / base) + 0.0
        worth = None
        if change.input is memory and found and stand.objective.startswith("usd_"):
            worth = number(price * (base / found - 1.0) + 0.0)
        rows.append(
            {
                "input": change.input.name,
                "step": step,
                "now": change.input.now,
                "after": change.after,
                "gain": gain,
                "worth_usd_per_chip_hour": worth,
                "binds": bool(gain is not None and gain > 0.0),
            }
        )
    return rows
