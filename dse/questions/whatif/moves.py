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
from dse.answer.numbers import dollars, number, show, tenths
from dse.answer.plots import scaled
from dse.errors import InputError, NothingFeasible
from dse.problem.demanded import Demanded, tokens_per_request
from dse.problem.evaluate import Metrics
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
ELASTICITIES = ("elasticity", "elasticity_tpot", "elasticity_optimum")


def scenario(stand: Stand, name: str, changes: Sequence[Change]) -> Part:
    """What the changes do: the winner after, the old winner under the changed inputs, and what
    enters and leaves the front."""
    before, after = stand.now, stand.under(*changes)
    problem, a, b = after.problem, before.value, after.value
    new = ~np.isin(after.ids, before.ids)
    old = None
    if before.winner_id is not None:
        old = described(problem, before.winner_id)
        found = problem.evaluate(problem.space.unrank(np.array([before.winner_id])))
        old["feasible"] = bool((found.G <= 0.0).all())
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
    front, winner, old = row["front"], row["winner"], row["old_winner"]
    if winner is None:
        return f"With {row['name']}, nothing is feasible: {row['infeasible_because']}."
    who, then = "it stays first", ""
    if not row["same_winner"]:
        who, then = f"{words(winner)} wins", "the old one no longer keeps the limits; "
        if old["feasible"]:
            was = show(metric, old["metrics"][metric])
            then = f"in its place the old one would be at {was}; "
    by, worse = (
        row["change"],
        ("dearer", "cheaper") if metric.startswith("usd_") else ("more", "less"),
    )
    said = "" if by is None else f"{tenths(abs(by))} {worse[by < 0]}, "
    if by is not None and abs(by) < 5e-4:
        said = "unchanged within 0.05%, "
    found = (
        f"With {row['name']}, {who} at {show(metric, winner['metrics'][metric])}{bought(winner)}, "
        f"{said.removesuffix(', ')}; {then}the front changes by {front['entered']['count']:,} new "
        f"points and {front['left']['count']:,} gone ({front['size_before']:,} before, "
        f"{front['size']:,} after)."
    )
    if (times := row["demand_of_as_many_requests"]) is None:
        return found
    other = "longer requests are fewer" if times > 1.0 else "shorter requests are more"
    return (
        f"{found} The demand counts tokens, so {other}: as many as before are demand={times:.3g}x."
    )


def _fronts(stand: Stand, row: Json, after: Solved) -> list[Block]:
    """Two fronts in their first two objectives, a latency across and dollars before others, thinned
    to DRAWN points each; and what enters and leaves."""
    if after.winner is None:
        return []
    problem = stand.problem
    names = [one.metric for one in problem.objectives]
    order = sorted(range(len(names)), key=lambda k: (not names[k].startswith("usd_"), k))
    across = next((k for k in order if names[k] in ("tpot_s", "ttft_s")), order[0])
    up = next((k for k in order if k != across), across)
    drawn = [
        {"front": name} | {names[k]: problem.objectives[k].sign * F[k] for k in (across, up)}
        for name, solved in (("before", stand.now), ("after", after))
        for F in solved.F[_evenly(len(solved.ids), DRAWN)].tolist()
    ]
    keys = (names[across], names[up])
    picture = lines(
        "front",
        f"The front, before and after {row['name']}",
        of_rows("fronts", "", drawn, ("front", *keys)),
        *keys,
        "front",
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
    table = of_rows("entered", caption, points, shown, on_console=False)
    return [picture, table] if points else [picture]


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
    found = [text for part in parts for text in part.sentences]
    return Part(
        {"scenarios": [part.facts for part in parts]}, found, [*blocks[:1], table, *blocks[1:]]
    )


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
                | {"chip": (was and was["chip"]) != (now and now["chip"])}
            )
        last = found
        progress(f"{one.name}: step {k + 1} of {len(steps)}")
    row = {"input": one.name, "unit": one.dimension, "now": one.now, "rows": rows}
    metric, turned = stand.objective, {switch["after_step"] for switch in switches}
    shown = [
        {
            "step_at": step["words"],
            "value": step["factor"] if step["value"] is None else step["value"],
            "chip": (step["winner"] or {}).get("chip"),
            **cells(step["winner"]),
        }
        for step in rows
    ]
    for k in turned:
        shown[k]["deployed"] += "*"
    notes = ["* another winner than a line above."] if turned else []
    columns = ("step_at", metric, *HELD, "deployed")
    name = f"Sweep of {one.name}"
    table = of_rows("sweep", name, shown, columns, *notes, first=("step_at", metric))
    points = of_rows("steps", "", shown, ("value", "chip", metric, "step_at", "deployed"))
    ends = [switch["factor"] if switch["value"] is None else switch["value"] for switch in switches]
    ends = [end for end, switch in zip(ends, switches, strict=True) if end and switch["chip"]]
    unit = "factor" if rows[0]["value"] is None else one.dimension.replace("usd", "USD")
    picture = lines(
        f"sweep-{one.name.replace('.', '-')}",
        f"The winner along {one.name}",
        points,
        *("value", metric, "chip"),
        "The winner at each step, a colour for each chip; dashed: another chip takes over.",
        at=ends,
        hover=("deployed",),
        across=f"{one.name} ({unit})",
    )
    said = _sweep_words(one.name, rows, switches, metric)
    return Part({**row, "switches": switches}, [said], [picture, table])


def _step(change: Change) -> dict[str, Any]:
    after, factor = change.after, f"{change.factor:.4g}x"
    return {
        "value": after,
        "factor": None if change.value is not None else change.factor,
        "words": factor if after is None else change.input.show(after),
    }


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


def _sweep_words(name: str, rows: Sequence[Json], switches: Sequence[Json], metric: str) -> str:
    """Where chips take over, and the objective at both ends."""
    values = " to ".join(
        "nothing feasible"
        if row["winner"] is None
        else show(metric, row["objective"]) + bought(row["winner"])
        for row in (rows[0], rows[-1])
    )
    said = f"With {name} from {rows[0]['words']} to {rows[-1]['words']}: {values}"
    turns = []
    for one in switches:
        k = one["after_step"]
        near = f"between {rows[k - 1]['words']} and {rows[k]['words']}"
        if one["to"] is None:
            turns.append(f"{near} nothing keeps the limits any more")
        elif one["from"] is None:
            turns.append(f"{near} {one['to']['chip']} begins to keep the limits")
        elif one["chip"]:
            at = f"at {one['words']}" if one["words"] else near
            turns.append(f"{one['to']['chip']} takes over from {one['from']['chip']} {at}")
    stays = f"the chip stays, its deployment changes {len(switches)} times"
    if not switches:
        stays = f"the winner stays {words(rows[0]['winner'])}"
    return f"{said}; {', '.join(turns) or stays}."


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
    metric = stand.objective
    moved = [row for row in rows if any(abs(row[end] or 0.0) >= 5e-4 for end in ENDS)]
    objective = METRICS[metric].title
    picture = bar_chart(
        "tornado",
        f"What moves the {objective}: each input 10% less and 10% more",
        [row["input"] for row in moved],
        {
            f"input 10% {word}": scaled("change", [row[end] for row in moved])
            for word, end in zip(("less", "more"), ENDS, strict=True)
        },
        f"change of {objective} (%)",
        f"For each input, by how many percent the {objective} changes, deployed anew.",
    )
    shown = [
        {**row, "bends": "~" if _bends(row) else ""}
        for row in rows
        if row["elasticity"] is None
        or any(abs(row[key] or 0.0) >= 5e-3 for key in (*ELASTICITIES, *ENDS))
    ]
    bends = ("bends",) if any(row["bends"] for row in shown) else ()
    columns = ("input", "words", *ELASTICITIES, *bends, *ENDS)
    caption = f"Elasticities of the {objective}, strongest first"
    bend = "~ a step or a bend lies near: 10% say otherwise than 1% does. " if bends else ""
    first = ("input", *ENDS)
    tables = [
        of_rows("sensitivities", caption, shown, columns, f"{bend}{how}", first=first),
        of_rows(
            "shadow_prices",
            "Shadow prices: what a step of a limit is worth, deployed anew",
            [{**row, "limit_binds": row["binds"]} for row in shadows],
            ("step", "gain", "worth_usd_per_chip_hour", "limit_binds"),
        ),
    ]
    facts = {"sensitivities": rows, "shadow_prices": shadows, "sensitivities_how": how}
    return Part(facts, [_moves(rows, metric), _worth(shadows)], [picture, *tables])


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
    for one in moving_inputs(stand):
        progress(f"sensitivity to {one.name}")
        near = [_at(stand, one, 1.0 + step) or (1.0, stand.problem) for step in (-STEP, STEP)]
        (low, _), (high, _) = near
        own = [metrics_at(problem, np.array([stand.now.winner_id])) for _, problem in near]
        again = [stand.solve(problem).value for _, problem in near]
        wide = [_at(stand, one, 1.0 + step) for step in (-WIDE, WIDE)]
        ends = [None if end is None else stand.solve(end[1]).value for end in wide]
        rows.append(
            {
                "input": one.name,
                "now": one.now,
                "words": one.show(one.now or 0.0),
                "unit": one.dimension,
                "elasticity": elasticity(*_values(own, stand.objective), low, high),
                "elasticity_tpot": elasticity(*_values(own, TPOT), low, high),
                "elasticity_optimum": elasticity(again[0], again[1], low, high),
                **{key: v and v / base - 1.0 for key, v in zip(ENDS, ends, strict=True)},
            }
        )
    return sorted(rows, key=lambda row: max(abs(row[end] or 0.0) for end in ENDS), reverse=True)


def _values(own: Sequence[Metrics], metric: str) -> tuple[float | None, float | None]:
    low, high = (number(metrics.values[metric][0]) for metrics in own)
    return low, high


def _at(stand: Stand, one: Input, factor: float) -> tuple[float, Demanded] | None:
    """(factor, the study with one input times it); None where it cannot have that value."""
    try:
        change = checked(Change(one, factor, None, f"{factor:g}x"), one.name)
        return factor, apply(stand.subject, [change])
    except InputError:
        return None


def shadow_prices(stand: Stand, progress: Progress = lambda text: None) -> list[dict[str, Any]]:
    """What a step of each limit, and of the memory of the winner's chip, is worth: the objective of
    the optimum found again, and, of the memory, the dollars per chip-hour that it may cost more
    before nothing is gained."""
    problem, chip, base = stand.problem, stand.winner["chip"], stand.now.value
    assert base is not None
    price = float(problem.machines.usd_per_chip_hour[problem.machines.code(chip)])
    known = inputs_of(stand.subject)
    asked: list[tuple[str, Change, str]] = []
    memory = known[f"chip.{chip}.memory_capacity"]
    if memory.now is not None:
        change = Change(memory, (memory.now + MEMORY) / memory.now)
        asked.append(("memory", change, "10 GB more memory"))
    for limit in problem.limits:
        one = known[f"limit.{f'{limit.workload}.' if limit.workload else ''}{limit.metric}"]
        step = STEPS.get(limit.metric, 0.1 * abs(limit.limit))
        if METRICS[limit.metric].dimension == "count":
            step = float(max(round(step), 1))
        change = Change(one, 1.0, limit.limit + limit.sign * step)
        more = "more" if limit.sign > 0 else "less"
        asked.append(("limit", change, f"{one.show(step)} {more} of {limit.metric}"))
    sign = 1.0 if METRICS[stand.objective].direction == "minimize" else -1.0
    rows = []
    for kind, change, step in asked:
        progress(f"shadow price of {change.input.name}")
        found = stand.under(change).value
        gain = None if found is None else sign * (1.0 - found / base) + 0.0
        counts = kind == "memory" and stand.objective.startswith("usd_") and math.isfinite(price)
        rows.append(
            {
                "kind": kind,
                "input": change.input.name,
                "step": step,
                "now": change.input.now,
                "after": change.after,
                "gain": gain,
                "worth_usd_per_chip_hour": price * (base / found - 1.0) + 0.0
                if found and counts
                else None,
                "binds": bool(gain is not None and gain > 0.0),
            }
        )
    return rows


def _moves(rows: Sequence[Json], metric: str) -> str:
    strong = [
        f"{row['input']} {row['elasticity_optimum']:+.2f}%"
        for row in [row for row in rows if row["elasticity_optimum"] is not None][:4]
        if abs(row["elasticity_optimum"]) >= 0.005
    ]
    title = METRICS[metric].title
    if not strong:
        return f"No input moves the {title} near where it stands."
    said = f"One percent more of an input moves the {title}, deployed anew, by: {', '.join(strong)}"
    for row in rows:  # a tenth of the demand buys or saves a whole deployment or none
        less, more = (row[end] for end in ENDS)
        if row["input"] == DEMAND and None not in (less, more):
            said += (
                f"; 10% less demand {tenths(less, sign=True)}, 10% more {tenths(more, sign=True)}"
            )
    return f"{said}."


def _worth(shadows: Sequence[Json]) -> str:
    """What the limits and the memory that bind are worth."""
    bind = []
    for row in shadows:
        if row["binds"]:
            usd = row["worth_usd_per_chip_hour"]
            each = f", {dollars(usd)} per chip-hour" if usd is not None else ""
            bind.append(f"{row['step']} is worth {tenths(row['gain'])}{each}")
    return f"{'; '.join(bind) or 'No limit binds, and more memory is worth nothing'}."


def _bends(row: Json) -> bool:
    """Whether 10% on either side say otherwise than 1% do."""
    less, more, near = (row[key] for key in (*ENDS, "elasticity_optimum"))
    if None in (less, more, near) or min(less, more) <= -1.0:
        return False
    wide = (math.log1p(more) - math.log1p(less)) / math.log(1.1 / 0.9)
    return abs(wide - near) > 0.05 + 0.5 * min(abs(wide), abs(near))
