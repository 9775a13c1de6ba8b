"""Before and after: what enters and leaves the front, how the winner changes, and sweeps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.questions.whatif.demand import Demanded, tokens_per_request
from dse.questions.whatif.inputs import (
    Change,
    Input,
    Subject,
    apply,
    change_to,
    find_input,
    read_change,
    show,
)
from dse.questions.whatif.solve import Points, Progress, Solved, describe, metrics_at, solve
from dse.schema.loader import load_yaml

MOST_LISTED = 10
DRAWN = 400  # points of a front in a picture
MOST_STEPS = 101
REFINE = 40  # halvings of an interval in which the winner changes


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name and what it changes."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """An input and its steps, ascending or descending."""

    input: Input
    steps: tuple[Change, ...]


def from_flags(settings: Sequence[str], known: Mapping[str, Input]) -> list[Scenario]:
    """All of `--set` together, as one scenario. Raises InputError for an input that is set
    twice."""
    if not settings:
        return []
    changes = tuple(read_change(text, known) for text in settings)
    names = [one.input.name for one in changes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is set twice", field="--set", accepted="each input once")
    return [Scenario(", ".join(_short(one) for one in changes), changes)]


def _short(change: Change) -> str:
    """`workload prompt tokens 2x`, which a narrow column can wrap; ids and metrics as they are."""
    of, _, last = change.input.name.rpartition(".")
    name = last if of == "limit" else last.replace("_", " ")
    of = of.removeprefix("chip.").removeprefix("costs").replace(".", " ")
    return f"{of} {name} {change.written}".strip()


def from_file(path: str, known: Mapping[str, Input]) -> list[Scenario]:
    """The scenarios of a file: `scenarios: {NAME: {INPUT: CHANGE}}`. Raises InputError with file,
    line and field."""
    document = load_yaml(path)
    for key in document.data:
        if key != "scenarios":
            raise document.error((key,), f"unknown field {key!r}", "scenarios")
    written = document.data.get("scenarios")
    if not isinstance(written, Mapping) or not written:
        accepted = "scenarios: {NAME: {INPUT: CHANGE}}"
        raise document.error(("scenarios",), "no scenario", accepted)
    found = []
    for name, changes in written.items():
        if not isinstance(changes, Mapping) or not changes:
            accepted = "INPUT: CHANGE lines, such as chip.all.price: 0.8x"
            raise document.error(("scenarios", name), f"read {changes!r}", accepted)
        read = []
        for one, text in changes.items():
            try:
                read.append(change_to(find_input(str(one), known, str(one)), str(text), str(one)))
            except InputError as error:
                at = ("scenarios", name, one)
                raise document.error(at, error.message, str(error.accepted)) from None
        found.append(Scenario(str(name), tuple(read)))
    return found


def read_sweep(written: str, known: Mapping[str, Input]) -> Sweep:
    """`chip.all.price=0.5x..2x:7`: so many steps, evenly spaced. Raises InputError."""
    field = f"--sweep {written}"
    form = "INPUT=FROM..TO:STEPS, such as chip.h100_sxm.price=1USD/h..4USD/h:7"
    name, equals, rest = written.partition("=")
    ends, colon, count = rest.rpartition(":")
    first, dots, last = ends.partition("..")
    if not (equals and colon and dots):
        raise InputError(f"read {written!r}", field="--sweep", accepted=form)
    one = find_input(name, known, "--sweep")
    if not count.strip().isdigit() or not 2 <= int(count) <= MOST_STEPS:
        message = "a sweep of one point" if count.strip() == "1" else f"read {count!r} steps"
        raise InputError(message, field=field, accepted=f"2 to {MOST_STEPS} steps")
    a, b = change_to(one, first.strip(), field), change_to(one, last.strip(), field)
    if (a.value is None) != (b.value is None):
        raise InputError("one end is a factor", field=field, accepted="two factors or two values")
    if a.factor == b.factor and a.value == b.value:
        raise InputError("a sweep of one point", field=field, accepted="two ends that differ")
    spaced = np.linspace(0.0, 1.0, int(count))
    return Sweep(one, tuple(_between(a, b, float(x)) for x in spaced))


def _between(a: Change, b: Change, x: float) -> Change:
    """The change a share `x` of the way from `a` to `b`."""
    if a.value is None or b.value is None:
        factor = a.factor + x * (b.factor - a.factor)
        return replace(a, factor=factor, written=f"{factor:.4g}x")
    value = a.value + x * (b.value - a.value)
    return replace(a, value=value, written=show(a.input, value))


def scenario_row(
    subject: Subject, scenario: Scenario, points: Points, before: Solved, objective: str
) -> dict[str, Any]:
    """What the changes do: the winner after, and the old winner under the changed inputs."""
    problem = apply(subject, scenario.changes)
    after = solve(problem, points, objective)
    entered = after.ids[~np.isin(after.ids, before.ids)]
    left = before.ids[~np.isin(before.ids, after.ids)]
    winner = None if after.winner_id is None else describe(problem, _one(after))[0]
    kept = None
    if before.winner_id is not None:
        kept = describe(problem, _one(before))[0]
        found = problem.evaluate(problem.space.unrank(np.array([before.winner_id])))
        kept["feasible"] = bool((found.G <= 0.0).all())
    return {
        "name": scenario.name,
        "changes": [_change_row(change) for change in scenario.changes],
        "winner": winner,
        "same_winner": winner is not None and after.winner_id == before.winner_id,
        "old_winner": kept,
        "change": relative(before, after, objective),
        "demand_of_as_many_requests": _as_many(subject.problem, problem),
        "front": {
            "size_before": len(before.ids),
            "size": len(after.ids),
            "stayed": int(np.isin(after.ids, before.ids).sum()),
            "entered": _listed(problem, entered, after),
            "left": _listed(subject.problem, left, before),
            "chips_before": _chips(subject.problem, before.ids),
            "chips": _chips(problem, after.ids),
        },
        "infeasible_because": after.miss if winner is None else None,
        "picture": _picture(before, after),
    }


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


def _picture(before: Solved, after: Solved) -> dict[str, Any]:
    """Two fronts in their first two objectives, those in dollars and seconds before others, thinned
    to DRAWN points each."""
    names = [one.metric for one in before.problem.objectives]
    order = sorted(range(len(names)), key=lambda k: (not names[k].startswith("usd_"), k))
    chosen = order[:2] if len(order) > 1 else [order[0], order[0]]
    latency = [k for k in order if names[k] in ("tpot_s", "ttft_s")]
    if latency:
        chosen = [latency[0], next(k for k in order if k != latency[0])]

    def column(solved: Solved, k: int) -> list[float]:
        sign = solved.problem.objectives[k].sign
        rows = np.unique(np.linspace(0, max(len(solved.ids) - 1, 0), DRAWN).astype(int))
        return [] if not len(solved.ids) else (sign * solved.F[rows, k]).tolist()

    return {
        "x": names[chosen[0]],
        "y": names[chosen[1]],
        "before": [column(before, k) for k in chosen],
        "after": [column(after, k) for k in chosen],
    }


def _one(solved: Solved) -> np.ndarray:
    assert solved.winner_id is not None
    return np.array([solved.winner_id])


def best(solved: Solved, objective: str) -> float | None:
    """The winner's objective; None where nothing is feasible."""
    if solved.winner is None:
        return None
    column = [one.metric for one in solved.problem.objectives].index(objective)
    return float(solved.problem.objectives[column].sign * solved.F[solved.winner, column])


def relative(before: Solved, after: Solved, objective: str) -> float | None:
    """After over before, less 1."""
    a, b = best(before, objective), best(after, objective)
    return None if a is None or b is None or a == 0.0 else b / a - 1.0


def _change_row(change: Change) -> dict[str, Any]:
    one = change.input
    return {
        "input": one.name,
        "written": change.written,
        "before": one.now,
        "after": change.after,
        "before_words": show(one, one.now) if one.now is not None else None,
        "after_words": show(one, change.after) if change.after is not None else change.written,
        "unit": one.dimension,
    }


def _chips(problem: Demanded, ids: np.ndarray) -> dict[str, int]:
    """How many points of a front each chip has."""
    if not len(ids):
        return {}
    batch = problem.batch(problem.space.unrank(ids))
    counts = Counter(problem.machines.ids[code] for code in batch.chip)
    return dict(counts.most_common())


def _listed(problem: Demanded, ids: np.ndarray, solved: Solved) -> dict[str, Any]:
    """How many, how many of each chip, and the first few by the objectives."""
    rows = np.flatnonzero(np.isin(solved.ids, ids))
    order = rows[np.lexsort((solved.ids[rows], *solved.F[rows].T[::-1]))] if len(rows) else rows
    few = (
        order[np.unique(np.linspace(0, len(order) - 1, MOST_LISTED).astype(int))]
        if len(order)
        else order
    )
    return {
        "count": len(ids),
        "chips": _chips(problem, ids),
        "points": describe(problem, solved.ids[few]),
    }


def sweep_rows(
    subject: Subject,
    sweep: Sweep,
    points: Points,
    objective: str,
    fixed: Sequence[Change] = (),
    progress: Progress = lambda text: None,
) -> dict[str, Any]:
    """The winner at every step, and between which values it changes. Where two winners meet, the
    crossing of the two is bisected."""
    rows: list[dict[str, Any]] = []
    solved: list[Solved] = []
    for k, step in enumerate(sweep.steps):
        problem = apply(subject, [*fixed, step])
        found = solve(problem, points, objective)
        winner = None if found.winner_id is None else describe(problem, _one(found))[0]
        solved.append(found)
        rows.append(
            {
                "value": step.after,
                "factor": None if step.value is not None else step.factor,
                "words": show(step.input, step.after) if step.after is not None else step.written,
                "objective": best(found, objective),
                "winner": winner,
                "front_size": len(found.ids),
                "infeasible_because": found.miss if winner is None else None,
            }
        )
        progress(f"{sweep.input.name}: step {k + 1} of {len(sweep.steps)}")
    switches = []
    for k in range(1, len(rows)):
        a, b = solved[k - 1].winner_id, solved[k].winner_id
        if a != b:
            at = _crossing(subject, sweep.steps[k - 1], sweep.steps[k], a, b, objective, fixed)
            one = sweep.input
            switches.append(
                {
                    "from": rows[k - 1]["winner"],
                    "to": rows[k]["winner"],
                    "after_step": k,
                    "value": None if at is None else at.after,
                    "factor": None if at is None or at.value is not None else at.factor,
                    "words": None
                    if at is None
                    else show(one, at.after)
                    if at.after is not None
                    else f"{at.factor:.4g}x",
                    "chip": _chip(rows[k - 1]) != _chip(rows[k]),
                }
            )
    return {
        "input": sweep.input.name,
        "unit": sweep.input.dimension,
        "now": sweep.input.now,
        "rows": rows,
        "switches": switches,
    }


def _chip(row: Mapping[str, Any]) -> str | None:
    return row["winner"] and row["winner"]["chip"]


def _crossing(
    subject: Subject,
    low: Change,
    high: Change,
    a: int | None,
    b: int | None,
    objective: str,
    fixed: Sequence[Change],
) -> Change | None:
    """Where, between two steps, winner `b` takes the place of winner `a`, the two alone compared:
    None where one of them is nothing feasible, or where neither follows the other."""
    if a is None or b is None:
        return None
    ids = np.array([a, b])
    left, right = 0.0, 1.0
    for _ in range(REFINE):
        middle = (left + right) / 2.0
        change = _between(low, high, middle)
        problem = apply(subject, [*fixed, change])
        found = problem.judge(metrics_at(problem, ids))
        column = [one.metric for one in problem.objectives].index(objective)
        F = np.where((found.G <= 0.0).all(axis=1), found.F[:, column], math.inf)
        if not np.isfinite(F).any():
            return None
        left, right = (left, middle) if F[1] < F[0] else (middle, right)
    return _between(low, high, right)
