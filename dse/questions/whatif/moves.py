"""What an input moves: the front and the winner of a study with inputs changed, step by step, by a
little, or until something turns.

Elasticity: d ln y / d ln x by central differences of a step of 1% on either side,
(ln y(x (1 + h)) - ln y(x (1 - h))) / (ln(1 + h) - ln(1 - h)), from x itself on the side on which
the input has no other value (a share of 100%); of the winner as it is deployed, and of the optimum
that is found again at either side, the envelope. A shadow price is what a finite step of a limit or
a memory is worth.

To enter a front: the smallest change of one figure of a chip at which one of its deployments keeps
every constraint and no front point is as good in every objective, to within `choices.MARGIN`. Each
quantity is changed alone. A better bandwidth, peak, link or price makes no deployment worse, so
that "enters" is monotone in them and is bisected. Capacity admits more requests at once, a domain
regroups collectives, and power may move a clock: these are scanned on a grid, and bisected within
the first step that enters.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Block, Figure, Table
from dse.answer.frames import bar_chart, document, lines, of_rows
from dse.answer.numbers import dollars, label, number, show, tenths
from dse.answer.plots import scaled
from dse.answer.sentences import spans
from dse.catalog import Catalog
from dse.economics.prices import price_assumptions, price_documents, price_parts, rests_on
from dse.errors import InputError, NothingFeasible
from dse.physics.serving import BOTTLENECKS
from dse.problem.describe import describe_deployment
from dse.problem.objective import TOTAL, Demanded, on_terms, pose
from dse.problem.shapes import model_at
from dse.problem.words import short_deployment, short_shape
from dse.questions.whatif.inputs import (
    COSTS,
    DEMAND,
    FIGURES,
    PEAK,
    PRICE,
    TPOT,
    TTFT,
    Change,
    Input,
    Progress,
    Solved,
    Stand,
    apply,
    between,
    checked,
    inputs_of,
    metrics_at,
    points,
)
from dse.rules.registry import STRUCTURAL
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import CHIP_RULES, RULES
from dse.schema.derive import derive
from dse.schema.metrics import METRICS
from dse.schema.model import config_of, model_of
from dse.space.space import count_deployments, deployments
from dse.study.choices import Trials, Tried, gap
from dse.study.definition import reopened
from dse.study.folder import FRONT

Json = Mapping[str, Any]
# Sentences, blocks, and what they rest on.
Told = tuple[list[str], list[Block], list[str]]
NOTHING = "nothing feasible"
# Columns of a point under a demand: what is bought of it.
HELD = ("deployments", "all_chips", "usd_per_hour", f"{TOTAL}.busy")
# Points of a front that are listed and drawn; chips that are named.
LISTED, DRAWN, NAMED = 5, 400, 3
REFINE = 2.0**-40  # of a step in which the winner changes
STEP, WIDE = 0.01, 0.10
ENDS = ("at_10_percent_less", "at_10_percent_more")
ELASTICITIES = ("elasticity", "elasticity_tpot", "elasticity_optimum")
# The step of a limit whose shadow price is asked, SI; of other limits it is a tenth.
STEPS = {"tpot_s": 5e-3, "ttft_s": 0.1, "e2e_s": 1.0, "predicted_loss": 0.01}
MEMORY = 10e9
# Evaluations that may be spent on points far from the winner. Beyond, those count that a small
# change can make the winner: within so much of it in the objective, and within so much of every
# limit. Under a demand, one deployment more may double what is paid.
MOST_EVALUATIONS = 4_000_000
NEAR, NEAR_AT_DEMAND, SLACK = 1.6, 3.2, 0.4


def table(
    name: str, caption: str, rows: Sequence[Json], shown: Sequence[str], *notes: str, **more: Any
) -> Table:
    """The frame of rows, such as `points`: every number and word of them under its key; those of
    `shown` that any row has are shown."""
    nested = {key for row in rows for key, v in row.items() if isinstance(v, Mapping | list)}
    keys = dict.fromkeys(key for row in rows for key in row if key not in nested)
    made = of_rows(name, caption, rows, [*keys], *notes, **more)
    known = {column.key for column in made.columns}
    return replace(made, shown=[key for key in shown if key in known])


def counted(count: float, what: str) -> str:
    """`1 chip`, `1,024 chips`."""
    return f"{count:,.0f} {what}{'' if count == 1 else 's'}"


def _at(metric: str, point: Json) -> str:
    """`$0.202 with 4 deployments, 8 chips, $8.40 an hour`, the latter under a demand."""
    if not point:
        return NOTHING
    if "deployments" not in point:
        return show(metric, point[metric])
    many = f"{counted(point['deployments'], 'deployment')}, {counted(point['all_chips'], 'chip')}"
    return f"{show(metric, point[metric])} with {many}, {dollars(point['usd_per_hour'])} an hour"


# Inputs that are set.


def scenarios(stand: Stand, named: Mapping[str, Sequence[Change]]) -> Told:
    """Each scenario against the study as it stands: the winner then, the old winner under the
    changed inputs, and what enters and leaves the front."""
    before, metric = stand.now, stand.objective
    rows: list[dict[str, Any]] = [
        {"name": "as things stand", **stand.winner, "front_size": len(before.ids)}
    ]
    moved: list[dict[str, Any]] = []
    said: list[str] = []
    pictures: list[Block] = []
    for name, changes in named.items():
        after = stand.under(*changes)
        row = {"name": name, **after.point, "front_size": len(after.ids)}
        rows.append(row)
        if after.value is None or before.value is None:
            row |= {"deployed": NOTHING, "reason": after.miss}
            said.append(f"With {name}, nothing is feasible: {after.miss}.")
            continue
        by = row["change"] = after.value / before.value - 1.0
        stays = after.winner_id == before.winner_id
        worse, better = ("dearer", "cheaper") if metric.startswith("usd_") else ("more", "less")
        much = f"{tenths(abs(by))} {better if by < 0 else worse}"
        much = "unchanged" if abs(by) < 5e-4 else much
        who = "it stays first" if stays else f"{row['deployed']} wins"
        parts = [f"With {name}, {who} at {_at(metric, row)}, {much}"]
        if not stays:
            (old,) = points(after.problem, [stand.winner["id"]])
            index = after.problem.space.unrank(np.array([old["id"]]))
            kept = bool((after.problem.evaluate(index).G <= 0.0).all())
            rows.append(
                {"name": f"  the old winner then{'' if kept else ' (breaks a limit)'}", **old}
            )
            then = (
                f"would be at {show(metric, old[metric])}" if kept else "no longer keeps the limits"
            )
            parts.append(f"the old one {then}")
        changed = []
        for what, here, there in (("entered", after, before), ("left", before, after)):
            mine = ~np.isin(here.ids, there.ids)
            index = here.problem.space.unrank(here.ids[mine])
            chips = Counter(here.problem.machines.ids[k] for k in here.problem.batch(index).chip)
            which = ", ".join(f"{count} {chip}" for chip, count in chips.most_common(NAMED))
            changed.append(f"{mine.sum():,} {what}{f' ({which})' if which else ''}")
            order = np.lexsort(here.F[mine].T[::-1])
            few = here.ids[mine][order[evenly(len(order), LISTED)]]
            moved += [{"name": name, "front": what, **one} for one in points(here.problem, few)]
        if any(not one.startswith("0 ") for one in changed):
            parts[-1] += f". On the front, {' and '.join(changed)}"
        said.append(f"{'; '.join(parts)}.")
        pictures.append(_fronts(stand, name, after))
    shown = ("name", "deployed", *HELD, metric, TTFT, TPOT, "change", "front_size")
    first = ("name", metric, "change")
    made = table("scenarios", "Before and after: the winner", rows, shown, first=first)
    caption = f"What entered and left the front, at most {LISTED} of each by {metric}"
    shown = ("name", "front", "deployed", metric, TTFT, TPOT)
    entered = [table("entered", caption, moved, shown[len(named) == 1 :])] if moved else []
    return said, [*pictures[:1], made, *entered, *pictures[1:]], []


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of `count` rows, evenly."""
    return np.unique(np.linspace(0, count - 1, most).astype(int)) if count else np.zeros(0, int)


def _fronts(stand: Stand, name: str, after: Solved) -> Figure:
    """Two fronts in the objective and another one, thinned to DRAWN points each."""
    objectives = stand.problem.objectives
    names = [one.metric for one in objectives]
    up = names.index(stand.objective)
    across = next((k for k in range(len(names)) if k != up), up)
    drawn = [
        {"front": when} | {names[k]: objectives[k].sign * F[k] for k in (across, up)}
        for when, solved in (("before", stand.now), ("after", after))
        for F in solved.F[evenly(len(solved.ids), DRAWN)].tolist()
    ]
    return lines(
        "front",
        f"The front, before and after {name}",
        table("fronts", "", drawn, ()),
        *(names[across], names[up], "front"),
        "Every point of the front, before as filled and after as open marks, on logarithmic axes.",
        joined=False,
    )


# Inputs that are varied until something turns.


def turning(holds: Callable[[float], bool], low: float, high: float, width: float) -> float:
    """Where a condition turns, by bisection: it does not hold at `low` and holds at `high`, which
    may lie either way. The end at which it holds, once the two are within `width`."""
    while abs(high - low) > width:
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def sweeps(stand: Stand, asked: Sequence[Sequence[Change]], fixed: Sequence[Change]) -> Told:
    """The winner at every step of each sweep, and from which value on it is the winner."""
    metric = stand.objective
    said: list[str] = []
    blocks: list[Block] = []
    rows: list[dict[str, Any]] = []
    for steps in asked:
        name, last, turns, mine = steps[0].input.name, None, [], []
        for k, step in enumerate(steps):
            found = stand.under(*fixed, step)
            row = {"input": name, **_step(step), "chip": NOTHING, "deployed": NOTHING}
            row |= found.point or {"reason": found.miss}
            row["front_size"] = len(found.ids)
            if last is not None and last.winner_id != found.winner_id:
                where = f"between {mine[-1]['step_at']} and {row['step_at']}"
                if (at := _crossing(stand, steps[k - 1], step, last, found, fixed)) is not None:
                    where, row["takes_over_at"] = f"at {_step(at)['step_at']}", _step(at)["value"]
                turns.append((mine[-1]["chip"], row["chip"], where, row.get("takes_over_at")))
            mine.append(row)
            last = found
            stand.progress(f"{name}: step {k + 1} of {len(steps)}")
        chips = [turn for turn in turns if turn[0] != turn[1]]
        then = ", ".join(f"{a} gives way to {b} {where}" for a, b, where, _ in chips)
        if not turns:
            then = f"the winner stays {mine[0]['deployed']}"
        elif not chips:
            then = f"the chip stays, its deployment changes {len(turns)} times"
        ends = [_at(metric, row if metric in row else {}) for row in (mine[0], mine[-1])]
        unit = "factor" if steps[0].after is None else steps[0].input.rule.unit
        span = f"{name} from {mine[0]['step_at']} to {mine[-1]['step_at']}"
        said.append(f"With {span}: {' to '.join(ends)}; {then}.")
        picture = lines(
            f"sweep-{name.replace('.', '-')}",
            f"The winner along {name}",
            table("steps", "", [{metric: None, **row} for row in mine], ()),
            *("value", metric, "chip"),
            "The winner at each step, a colour for each chip; dashed: another chip takes over.",
            at=[value for _, _, _, value in chips if value],
            hover=("deployed",),
            across=f"{name} ({unit.replace('usd', 'USD')})",
        )
        blocks += [picture] if any(metric in row for row in mine) else []
        rows += mine
    shown = ("input", "step_at", metric, TPOT, *HELD, "deployed", "takes_over_at")
    caption = "The winner at each step" if len(asked) > 1 else f"Sweep of {rows[0]['input']}"
    first = ("step_at", metric)
    made = table("sweep", caption, rows, shown[len(asked) == 1 :], first=first)
    return said, [*blocks[:1], made, *blocks[1:]], []


def _step(change: Change) -> dict[str, Any]:
    """The value that an input has, or the factor of all that have one."""
    value = change.factor if change.after is None else change.after
    words = f"{value:.4g}x" if change.after is None else change.input.rule.show(value)
    return {"step_at": words, "value": value}


def _crossing(
    stand: Stand, first: Change, second: Change, a: Solved, b: Solved, fixed: Sequence[Change]
) -> Change | None:
    """Where, between two steps, the winner of `b` takes the place of that of `a`, the two alone
    compared: None where one of them is nothing feasible."""
    if a.winner_id is None or b.winner_id is None:
        return None
    pair = replace(stand, ids=np.sort(np.array([a.winner_id, b.winner_id])))

    def overtaken(part: float) -> bool:
        found = pair.under(*fixed, between(first, second, part))
        if found.winner_id is None:
            raise NothingFeasible(found.miss)
        return found.winner_id == b.winner_id

    try:
        return between(first, second, turning(overtaken, 0.0, 1.0, REFINE))
    except NothingFeasible:
        return None


# Inputs that are moved a little.


def sensitivities(stand: Stand) -> Told:
    """A row of each input, strongest first: elasticities of the winner's objective and time per
    output token, that of the optimum found again, and the objective at 10% less and more; and what
    a step of each limit, and of the memory of the winner's chip, is worth: the objective of the
    optimum found again, and, of the memory, the dollars per chip-hour that it may cost more before
    nothing is gained. Of all points where they are few, else of those that a small change can make
    the winner."""
    known, chip, problem = inputs_of(stand.subject), stand.winner["chip"], stand.problem
    names = [f"chip.{chip}.{figure}" for figure in (PRICE, *FIGURES)]
    several = len(problem.mix) > 1
    names += [n for n in known if n.startswith("workload.") and (n.count(".") == 2) == several]
    demand = problem.demand is not None  # which takes the place of a utilisation
    names += [DEMAND, PEAK] if demand else []
    names += [f"{COSTS}{name}" for name in RULES if not (demand and name == "utilisation")]
    names += [f"{COSTS}{chip}.{name}" for name in CHIP_RULES]
    inputs = [known[name] for name in names if name in known and (known[name].now or 0.0) > 0.0]
    how = "The optimum was found again among all points."
    if len(stand.ids) * 5 * len(inputs) > MOST_EVALUATIONS:
        reach = NEAR_AT_DEMAND if demand else NEAR
        stand = stand.within(reach, SLACK)
        how = (
            f"The optimum was found again among the {len(stand.ids):,} points within "
            f"{reach - 1.0:.0%} of the winner and {SLACK:.0%} of the limits."
        )

    def under(problem: Demanded) -> list[float]:
        own = metrics_at(problem, [stand.now.winner_id or 0]).values
        own = [float(own[name][0]) for name in (stand.objective, TPOT)]
        return [*own, stand.solve(problem).value or math.nan]

    def times(one: Input, factor: float) -> tuple[float, list[float]] | None:
        """(factor, objective, time, optimum); None where the input cannot have that value."""
        try:
            change = checked(Change(one, factor, None, f"{factor:g}x"), one.name)
            return factor, under(apply(stand.subject, [change]))
        except InputError:
            return None

    here, rows = under(problem), []
    for one in inputs:
        stand.progress(f"sensitivity to {one.name}")
        low, high = (times(one, 1.0 + step) or (1.0, here) for step in (-STEP, STEP))
        wide = [times(one, 1.0 + step) for step in (-WIDE, WIDE)]
        row: dict[str, Any] = {"input": one.name, "now": one.now}
        row["words"] = one.rule.show(one.now or 0.0)
        across = math.log(high[0]) - math.log(low[0])
        for key, a, b in zip(ELASTICITIES, low[1], high[1], strict=True):
            up = math.log(b) - math.log(a) if across and a > 0.0 and b > 0.0 else math.nan
            row[key] = number(up / across + 0.0) if across else None
        for key, end in zip(ENDS, wide, strict=True):
            row[key] = None if end is None else number(end[1][2] / here[2] - 1.0)
        rows.append(row)
    rows.sort(key=lambda row: max(abs(row[end] or 0.0) for end in ENDS), reverse=True)
    price = float(problem.machines.usd_per_chip_hour[problem.machines.code(chip)])
    memory = known[f"chip.{chip}.memory_capacity"]
    steps: list[tuple[Change, str]] = []
    if memory.now is not None:
        change = Change(memory, (memory.now + MEMORY) / memory.now)
        steps.append((change, "10 GB more memory"))
    for limit in problem.limits:
        one = known[f"limit.{f'{limit.workload}.' if limit.workload else ''}{limit.metric}"]
        step = STEPS.get(limit.metric, 0.1 * abs(limit.limit))
        if METRICS[limit.metric].dimension == "count":
            step = float(max(round(step), 1))
        change = Change(one, 1.0, limit.limit + limit.sign * step)
        more = "more" if limit.sign > 0 else "less"
        steps.append((change, f"{one.rule.show(step)} {more} of {limit.metric}"))
    base, sign = stand.now.value or math.nan, 1.0
    if METRICS[stand.objective].direction == "maximize":
        sign = -1.0
    shadows = []
    for change, words in steps:
        stand.progress(f"shadow price of {change.input.name}")
        value = stand.under(change).value or math.nan
        gain = number(sign * (1.0 - value / base) + 0.0)
        row = {"input": change.input.name, "step": words, "value": change.after, "gain": gain}
        if change.input is memory and stand.objective.startswith("usd_"):
            row["worth_usd_per_chip_hour"] = number(price * (base / value - 1.0) + 0.0)
        shadows.append(row | {"limit_binds": gain is not None and gain > 0.0})
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
    caption = f"Elasticities of the {objective}, strongest first"
    columns = ("input", "words", *ELASTICITIES, *ENDS)
    made = table("sensitivities", caption, rows, columns, how, first=("input", *ENDS))
    caption = "Shadow prices: what a step of a limit is worth, deployed anew"
    columns = ("step", "gain", "worth_usd_per_chip_hour", "limit_binds")
    worth = table("shadow_prices", caption, shadows, columns)
    strong = [
        f"{row['input']} {row['elasticity_optimum']:+.2f}%"
        for row in rows[:4]
        if abs(row["elasticity_optimum"] or 0.0) >= 0.005
    ]
    said = f"No input moves the {objective} near where it stands."
    if strong:
        said = f"One percent more of an input moves the {objective}, deployed anew, by: "
        said += f"{', '.join(strong)}."
    binds = [
        f"{row['step']} is worth {tenths(row['gain'])}" for row in shadows if row["limit_binds"]
    ]
    bound = f"{'; '.join(binds) or 'No limit binds, and more memory is worth nothing'}."
    return [said, bound], [picture, made, worth], []


# What a chip lacks to enter a front.

MOST = 16.0  # the largest factor that is tried, and one over the smallest
FINE = math.log(1.0005)  # bisection ends where the two ends are this close
MOST_SHAPES, MOST_CANDIDATES = 200, 100_000
DEAREST, CHEAPEST = 1e4, 1e-4  # USD per chip-hour, for a chip without a price
# Rules that no figure of a chip can mend.
FIXED_RULES = (*STRUCTURAL, "offload_tier_exists", "offload_tier_capacity")
# The figures to vary, under the names that `derive` takes, with the factors that are tried: several
# of those in which "enters" is not monotone.
_FINE_GRID = tuple(2.0 ** (k / 4) for k in range(1, 17))
QUANTITIES = {
    "hbm_bandwidth": ("memory bandwidth", (MOST,)),
    "capacity": ("memory capacity", _FINE_GRID),
    "flops": ("FLOP/s", (MOST,)),
    "link": ("scale-up link", (MOST,)),
    "domain": ("scale-up domain", (2.0, 4.0, 8.0, 16.0)),
    "price": ("price", (1.0 / MOST,)),
    "tdp": ("rated power", tuple(1.0 / step for step in _FINE_GRID)),
}


def required(
    folder: Path, chip: str, catalog: Catalog, space: str | None, progress: Progress
) -> Answer:
    """What each figure of a chip must be to enter the front of a finished study; `space` is the
    study's space file, where that has moved.

    Raises InputError for a folder that is no study, a space file that has changed since, and a chip
    that lacks a figure of every estimate.
    """
    catalog, chip = catalog.with_chip(chip)
    found = reopened(folder, catalog, space)
    made, items, study = found.document, found.items, found.study
    name, basis = made["space"], study.price_basis
    stale = made["data_digest"] != replace(catalog.source, chips=()).over(made).digest()
    names, catalog = catalog.names, on_terms(found.catalog.with_files(study.chip_files), study)
    catalog.require(chip)
    problem = pose(study, catalog)
    front = np.array(
        [[o.sign * item["metrics"][o.metric] for o in problem.objectives] for item in items]
    )
    shapes: dict[str, Json] = {}  # those of the front, in its order
    for config in (item["model"] for item in items):
        own = {key: value for key, value in config.items() if key not in ("name", "id")}
        shapes.setdefault(json.dumps(own, sort_keys=True), config)
    most = MOST_CANDIDATES // max(count_deployments(study), 1)
    most = max(min(MOST_SHAPES, most, len(shapes)), 1)
    kept = [[*shapes.values()][k] for k in evenly(len(shapes), most)]
    models = [problem.model or model_of(config, str(folder / FRONT)) for config in kept]
    trials = Trials(problem, catalog, chip, deployments(study, models, kept), front)
    # Those that no figure makes possible, and whose instance needs a link of unknown bandwidth.
    system = catalog.systems[catalog.chip(chip).system]
    sizes, which = np.unique(trials.batch.chips_per_instance, return_inverse=True)
    linked = np.array([system.unknown_link(float(size)) is None for size in sizes])[which]
    fixed = [problem.constraints.index(rule) for rule in FIXED_RULES]
    sound = (trials.try_(trials.machines(None)).found.G[:, fixed] <= 0.0).all(axis=1)
    if not (sound & linked).any():
        raise InputError(
            f"the study has no deployment with known links that {chip} could run",
            field="--require",
            accepted="a chip with the links that its instances need",
        )
    trials.batch, unlinked = trials.batch[np.flatnonzero(sound & linked)], (sound & ~linked).sum()
    now = trials.try_(trials.machines(None))
    on_front = [item["point"] for item in items if item["deployment"]["chip"] == chip]
    rows = []
    if now.enters.any():
        rows.append({"quantity": "as it is", **_entry(trials, now, items)})
    elif not on_front:
        for figure, (words, factors) in QUANTITIES.items():
            progress(f"{chip}: {words}")
            row = {"quantity": words, "figure_name": figure}
            try:
                rows.append(row | _requirement(trials, figure, factors, now, items))
            except InputError as error:
                rows.append(row | {"reason": error.message})
    helped = [row for row in rows if "needed" in row]
    headline = f"{chip} enters the front of {name} by no single change."
    if on_front:
        many, some = len(on_front), spans(sorted(on_front))
        headline = f"{chip} is on the front of {name} as it is, with {many} of its points: {some}."
    elif now.enters.any():
        headline = f"{chip} enters the front of {name} as it is, best with {rows[0]['enters']}."
    elif helped:
        row = min(helped, key=lambda row: abs(math.log(row["needed_factor"] or math.inf)))
        headline = (
            f"{chip} enters the front of {name} ({len(items)} points) with a {row['quantity']} of "
            f"{row['needed']}."
        )
    facts = {
        "study": name,
        "chip": chip,
        "price_basis": basis,
        "usd_per_chip_hour": trials.price,
        "front_size": len(items),
        "shapes": len(kept),
        "shapes_of_front": len(shapes),
        "candidates": len(trials.batch),
        "evaluations": made["evaluations"],
        "stale": stale,
        "on_front": on_front,
        "enters_as_it_is": bool(now.enters.any()),
    }
    of = "the study's model" if problem.model else f"{len(kept)} of {len(shapes)} shapes"
    rests = [f"{len(trials.batch):,} deployments of {of}; prices: {basis}."]
    if made["evaluations"] < problem.space.size:
        rests.append(
            f"The search saw {made['evaluations']:,} of its {problem.space.size:,} points: what "
            "enters by little may be what it did not see."
        )
    if unlinked:
        rests.append(f"{unlinked:,} deployments are left out: their links have no known bandwidth.")
    rests += [f"{text}." for text in price_assumptions(catalog, chip, basis)]
    if stale:
        rests.append(
            "The hardware data or prices are not those of the study: run it again to compare alike."
        )
    keys = ("quantity", "needed", "enters")
    caption = "What the chip needs, each quantity changed alone"
    never = [f"{row['quantity']}: {row['reason']}." for row in rows if "reason" in row]
    needs = table("requirements", caption, rows, keys, *never)
    prices = price_documents(catalog, [chip], basis)
    return Answer(
        question="whatif",
        title=f"What {chip} needs to enter the front of {name}",
        headline=headline,
        blocks=[needs] * bool(rows) + ([price_parts(prices)] if prices else []),
        rests=[*rests, *rests_on(prices)],
        document=document(facts, [needs]),
        data=[needs],
        names=names,
    )


def _requirement(
    trials: Trials, figure: str, factors: Sequence[float], now: Tried, items: Sequence[Json]
) -> dict[str, Any]:
    """The least change of a figure with which a deployment of the chip enters, and that deployment;
    or why no change helps. Raises InputError for a figure that the chip lacks."""
    price, own = trials.price, trials.machines(None)
    if figure != "price" and price is None:
        message = f"{trials.chip} has no price on basis {trials.basis}: see the price it needs"
        raise InputError(message)
    # A price is tried in dollars, any other figure as a factor.
    base = (price or DEAREST) if figure == "price" else 1.0
    if not price:
        factors = (1.0, CHEAPEST / DEAREST)

    def at(value: float, rows: np.ndarray | None = None) -> Tried:
        if figure == "price":
            return trials.try_(replace(own, usd_per_chip_hour=np.array([value])), rows)
        return trials.try_(trials.machines(f"{figure}={value:.12g}x"), rows)

    tried, low, high = now, base, base
    for factor in factors:
        high = base * factor
        try:
            tried = at(high)
        except InputError:
            if tried is now:
                raise
            break  # a domain that the level around it bounds: what was tried before stands
        if tried.enters.any():
            break
        low = high
    if not tried.enters.any():
        return {"reason": _why_not(trials, now, tried, low / base)}
    rows = None
    if len(factors) == 1:  # what is beaten with more of a figure that worsens nothing is with less
        beaten = np.zeros(len(tried.found.F), dtype=bool)
        for point in trials.front:  # over the front, not over candidates
            beaten |= (point <= tried.found.F).all(axis=1)
        rows = np.flatnonzero(~beaten)
    if figure != "domain" and high != low:
        ends = math.log(low), math.log(high)
        found = turning(lambda log: bool(at(math.exp(log), rows).enters.any()), *ends, FINE)
        # Four significant digits, rounded to the side that enters.
        unit = 10.0 ** (math.floor(math.log10(math.exp(found))) - 3)
        steps = math.exp(found) / unit
        high = float(f"{(math.ceil(steps) if high > low else math.floor(steps)) * unit:.4g}")
        tried = at(high)
    row: dict[str, Any] = {"needed_factor": high / price if figure == "price" and price else high}
    if figure == "price":
        of = f" ({high / price:.3g} x {price:.4g})" if price else ""
        setting = None if trials.basis == OWNED else f"price.{trials.basis}={high:.12g}USD/h"
        row |= {"needed": f"{high:.4g} USD/h{of}", "setting": setting}
    else:
        row["setting"] = f"{figure}={high:.12g}x"
        made = derive(trials.catalog, trials.chip, [row["setting"]])
        words = made.chip.changes[0].removesuffix(f" of {trials.chip}")
        row["needed"] = words.partition(" ")[2]
    return row | _entry(trials, tried, items)


def _why_not(trials: Trials, now: Tried, tried: Tried, factor: float) -> str:
    """Why no value helps: what bounds the candidate that comes nearest, or the constraint that
    removes most where none is feasible."""
    if all(np.array_equal(getattr(tried.found, k), getattr(now.found, k)) for k in ("F", "G")):
        return "it changes no objective and no constraint"
    tells = f"no value {'up' if factor >= 1.0 else 'down'} to {factor:.3g}x helps: "
    feasible = np.flatnonzero((tried.found.G <= 0.0).all(axis=1))
    if not len(feasible):
        broken = (tried.found.G > 0.0).mean(axis=0)
        worst = trials.problem.constraints[int(np.argmax(broken))]
        return f"{tells}no deployment keeps the constraints; {worst} removes {broken.max():.0%}"
    gaps = gap(trials.front, tried.found.F[feasible])
    bound = BOTTLENECKS[tried.bottleneck[feasible[np.argmin(gaps)]]]
    far = f"the nearest deployment would have to be {gaps.min() - 1.0:.1%} better"
    return f"{tells}{far}; bound by {bound}"


def _entry(trials: Trials, tried: Tried, items: Sequence[Json]) -> dict[str, Any]:
    """The deployment that enters by most, its objectives, and which front points it beats."""
    rows = np.flatnonzero(tried.enters)
    row = int(rows[np.argmin(gap(trials.front, tried.found.F[rows]))])
    F, one = tried.found.F[row], trials.batch[row : row + 1]
    deployment = {**describe_deployment(one, 0, tried.machines), "chip": trials.chip}
    deployed = short_deployment(deployment)
    if trials.problem.model is None:
        deployed = f"{short_shape(config_of(model_at(one, 0, '', None)))} on {deployed}"
    signs = {o.metric: o.sign for o in trials.problem.objectives}
    values = {metric: sign * float(f) for (metric, sign), f in zip(signs.items(), F, strict=True)}
    beaten = (trials.front >= F).all(axis=1)
    points = sorted(item["point"] for item, less in zip(items, beaten, strict=True) if less)
    words = ", ".join(f"{label(metric).short} {show(metric, v)}" for metric, v in values.items())
    then = f"; displaces point{'s' * (len(points) > 1)} {spans(points)}" if points else ""
    return {"deployed": deployed, **values, "enters": f"{deployed}: {words}{then}"}
