"""Iso-questions: at equal cost, power, chips, racks, quality or latency, which chip wins and by
how much.

A budget (dollars per hour, watts, chips, racks) buys whole deployments: as many as it pays for, at
their full rate. Of each chip the deployment counts that serves most output tokens per second within
the budget and the limits. At equal quality or latency, each chip's cheapest deployment that is at
least as good counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse import units
from dse.answer.answer import Block, Column, Figure, Table
from dse.answer.labels import axis_title
from dse.answer.numbers import priced, tenths
from dse.answer.plots import BLUE, bars, names_axis, plain, scaled
from dse.catalog import Catalog
from dse.errors import InputError
from dse.problem.evaluate import Metrics
from dse.questions.whatif.demand import TOTAL as COST
from dse.questions.whatif.inputs import show_limit
from dse.questions.whatif.solve import Stand, best_of_each, described, words
from dse.questions.whatif.subject import Subject
from dse.questions.whatif.words import Json, counted, load_of, named
from dse.schema.costs import Cost, Costs
from dse.schema.metrics import METRICS, parse_limit
from dse.schema.owning import lacks_power, power_at_meter
from dse.space.candidates import CandidateBatch, Floats

RATE = "output_tokens_per_s"
# What an hour or a rack is counted in, and what a person writes.
BUDGETS = {"cost": "usd/h", "power": "W", "chips": "count", "racks": "count"}
LEVELS = {"quality": "predicted_loss", "latency": "tpot_s"}
KINDS = (*BUDGETS, *LEVELS)
RACK_W = 40e3
LARGEST_RACK = 144  # chips; a larger domain is joined by a network between racks
RACK_NOTE = (
    "a rack is taken to carry 40 kW (assumed: a common air-cooled limit; --rack-power changes it) "
    "in whole servers of 8 chips; a scale-up domain of more than 8 is a rack of its own, whatever "
    "it draws"
)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one chip takes of a budget, (chips,) in the order of the machines; NaN: not known.
    `draws` says of power and racks what each chip's watts rest on, by chip."""

    per_chip: Floats
    words: str
    assumed: tuple[str, ...] = ()
    draws: Mapping[str, dict[str, Any]] = field(default_factory=dict)


def draw(
    catalog: Catalog, chip: str, costs: Costs, at_meter: bool
) -> tuple[dict[str, Any], tuple[Cost, ...]] | None:
    """What a chip with its share of the server draws, at the meter or at the server, as JSON: the
    figure (of a chip file, or a cost) that it follows from, what that counts, and the factors that
    it is multiplied by, or `over` which it is; and these factors. None where no power is known."""
    if lacks_power(catalog, chip, costs) is not None:
        return None
    figure, server_w, meter_w = power_at_meter(catalog, chip, costs)
    facility, server = costs.inputs["facility_factor"], costs.inputs["server_power_factor"]
    all_in = figure.value == meter_w
    if all_in:
        of, factors = "all in, at the meter", () if at_meter else (facility,)
    else:
        of, factors = "the chip with its share of the server", ()
        if figure.value != server_w:
            of, factors = "the chip alone, as rated", (server,)
        factors = (*factors, facility) if at_meter else factors
    row = {
        "watts_per_chip": meter_w if at_meter else server_w,
        "published": not factors,
        "figure": figure.name,
        "figure_w": figure.value,
        "of": of,
        "kind": figure.kind,
        "factors": {factor.name: factor.value for factor in factors},
        "over": all_in and not at_meter,
        "source": figure.source,
    }
    return row, factors


def budget_of(subject: Subject, kind: str, rack_w: float) -> Budget:
    """What one chip takes of a budget of `kind`."""
    problem, catalog = subject.problem, subject.catalog
    machines, costs = problem.machines, problem.study.costs or catalog.costs
    if kind == "cost":
        return Budget(machines.usd_per_chip_hour, "USD per hour")
    if kind == "chips":
        return Budget(np.ones(len(machines.ids)), "chips")
    found = {chip: draw(catalog, chip, costs, kind == "power") for chip in machines.ids}
    draws = {chip: one[0] for chip, one in found.items() if one is not None}
    used = dict.fromkeys(factor for one in found.values() if one for factor in one[1])
    # `facility_factor: 1.36, estimated: power at the meter over that of the servers ...`
    notes = [
        ": ".join(filter(None, (f"{one.name}: {one.text}, {one.kind}", one.note))) for one in used
    ]
    if missing := [chip for chip in found if chip not in draws]:
        notes.append(f"no power is known of {', '.join(missing)}")
    watts = [draws[chip]["watts_per_chip"] if chip in draws else math.nan for chip in found]
    if kind == "power":
        where = "power is that at the meter: the chip with its share of server, network and cooling"
        return Budget(np.array(watts), "W", (where, *notes), draws)
    where = "a rack holds the power of its servers; cooling is outside it"
    racks = [
        1.0 / _chips_of_rack(catalog, chip, one, rack_w)
        for chip, one in zip(found, watts, strict=True)
    ]
    return Budget(np.array(racks), "racks", (where, *notes, RACK_NOTE), draws)


def _chips_of_rack(catalog: Catalog, chip: str, watts: float, rack_w: float) -> float:
    """Chips that a rack holds: those of a scale-up domain that is a rack, else whole servers; NaN
    where it holds none, or what one draws is not known."""
    domain = catalog.systems[catalog.chip(chip).system].levels[0].size or 1
    if 8 < domain <= LARGEST_RACK:
        return float(domain)
    whole = math.floor(rack_w / watts / 8) * 8 if watts > 0 else 0
    return float(whole) if whole else math.nan


def racks_held(subject: Subject, point: Mapping[str, Any], rack_w: float) -> float | None:
    """Racks of the deployments that a demand takes; None where that is not known."""
    if not (load := load_of(point)):
        return None
    each = budget_of(subject, "racks", rack_w).per_chip
    needed = point["deployment"]["chips"] * each[subject.problem.machines.code(point["chip"])]
    return _racks_of(load["deployments"], needed) if math.isfinite(needed) else None


def _racks_of(deployments: int, needed: float) -> int:
    """Racks of so many deployments, each of which needs `needed` of one: several in one rack, or
    one over several whole ones."""
    in_one = math.floor(1.0 / needed * (1.0 + 1e-9))
    if in_one:
        return math.ceil(deployments / in_one)
    return deployments * math.ceil(needed * (1.0 - 1e-9))


def read_level(kind: str, text: str | None) -> float | None:
    """The budget or level that `--at` gives. Raises InputError."""
    if text is None:
        return None
    if kind == "quality":
        value = parse_limit(text, METRICS["predicted_loss"].dimension)
    else:
        dimension = {**BUDGETS, "latency": "s"}[kind]
        try:
            value = units.parse(text, dimension)
        except InputError as error:
            raise InputError(error.message, field="--at", accepted=error.accepted) from None
    if value <= 0.0:
        raise InputError(f"read {text!r}", field="--at", accepted="more than 0")
    return value


def equal(
    stand: Stand, kind: str, at: float | None = None, rack_w: float = RACK_W
) -> dict[str, Any]:
    """The chips at an equal amount of `kind`, the best first, each with what it falls short of the
    best by; without `at`, at the amount of the winner.

    Raises InputError for a budget that buys no deployment of any chip, and for a quality that is
    not known.
    """
    bound, ids = LEVELS.get(kind), stand.problem.machines.ids
    metric = COST if bound else RATE
    budget = Budget(np.ones(0), bound) if bound else budget_of(stand.subject, kind, rack_w)
    level = at if at is not None else _of_winner(stand, bound, budget)

    def needed(batch: CandidateBatch) -> Floats:
        return batch.chips * budget.per_chip[batch.chip]

    def worth(metrics: Metrics, batch: CandidateBatch) -> Floats:
        if bound:
            good = metrics.values[bound] <= level * (1.0 + 1e-12)
            return np.where(good, metrics.values[COST], np.inf)
        if kind == "racks":
            many = _in_racks(level, needed(batch))
        else:
            many = np.floor(level * (1.0 + 1e-9) / needed(batch))
        return np.where(many >= 1.0, -many * metrics.values[RATE], np.inf)

    rows = []
    for code, (value, point) in best_of_each(stand, worth).items():
        one = described(stand.problem, point, bound or RATE, COST)
        many = None if bound else round(-value / one["metrics"][RATE])
        rows.append(
            {
                "chip": ids[code],
                "value": abs(value),
                "deployments": many,
                "chips": None if many is None else many * one["deployment"]["chips"],
                "point": one,
                "draw": budget.draws.get(ids[code]),
            }
        )
    if not rows and bound:
        message = f"no chip keeps the limits at {bound} <= {show_limit(bound, level)}"
        raise InputError(message, field="--at", accepted="a looser one")
    if not rows:
        least = best_of_each(stand, lambda _, batch: needed(batch)).values()
        smallest = min((value for value, _ in least), default=None)
        known = smallest is not None
        raise InputError(
            f"{_counted(level, budget.words)}: too little for any deployment that keeps the limits",
            field="--at",
            accepted=f"at least {_counted(smallest, budget.words)}" if known else "another limit",
        )
    rows.sort(key=lambda row: (row["value"] if bound else -row["value"], row["chip"]))
    for row in rows:
        row["over_best"] = row["value"] / rows[0]["value"] - 1.0
    seen = [row["chip"] for row in rows]
    return {
        "kind": kind,
        "level": level,
        "unit": budget.words,
        "level_is_the_winners": at is None,
        "metric": metric,
        "rows": rows,
        "without": [chip for chip in ids if chip not in seen],
        "assumed": list(budget.assumed),
    }


def _of_winner(stand: Stand, bound: str | None, budget: Budget) -> float:
    """The winner's quality or latency, or what its deployments take of a budget for the demand;
    without one, ten of them: enough that whole deployments compare fairly."""
    winner = stand.winner
    if bound:
        at = described(stand.problem, winner["id"], bound)["metrics"][bound]
        if at is None:
            raise InputError(
                f"the winner has no {bound}",
                field="--equal",
                accepted="--training-tokens, or a space of shapes",
            )
        return at
    chip = winner["chip"]
    found = winner["deployment"]["chips"] * float(
        budget.per_chip[stand.problem.machines.code(chip)]
    )
    if not math.isfinite(found):
        raise InputError(
            f"how much {chip} takes is not known", field="--equal", accepted="--at AMOUNT"
        )
    held = load_of(winner).get("deployments", 10)
    return _racks_of(held, found) if budget.words == "racks" else held * found


def _in_racks(budget: float, needed: np.ndarray) -> np.ndarray:
    """Deployments in so many racks: several in one, or one over several whole racks."""
    per_rack = np.floor(1.0 / needed * (1.0 + 1e-9))
    over = np.ceil(needed * (1.0 - 1e-9))
    return np.where(per_rack >= 1.0, budget * per_rack, np.floor(budget / over))


def level_words(row: Mapping[str, Any]) -> str:
    """`40 kW`, `10 chips`, `tpot_s <= 30 ms`."""
    kind, level = row["kind"], row["level"]
    if kind in LEVELS:
        return f"{LEVELS[kind]} <= {show_limit(LEVELS[kind], level)}"
    return _counted(level, row["unit"])


def _counted(amount: float, unit: str) -> str:
    """`1 rack`, `10 chips`, `23 USD per hour`, `40 kW`."""
    if unit == "W":
        return units.format(amount, "W", 4)
    if amount == 1.0 and unit in ("racks", "chips"):
        unit = unit.removesuffix("s")
    return f"{amount:,.4g} {unit}"


def sentence(row: Json) -> str:
    first, rest = row["rows"][0], row["rows"][1:]
    if row["metric"] == RATE:
        verb, none = "serves most", "; no deployment of another chip fits"
        value = f"{first['value']:,.0f} output tokens/s from {counted(first['chips'], 'chip')}"
    else:
        verb, none = "is cheapest", "; no other chip keeps it"
        value = priced(row["metric"], first["value"])
    then = f"; next {rest[0]['chip']}, {tenths(rest[0]['over_best'], sign=True)}" if rest else none
    return f"At equal {row['kind']} ({level_words(row)}), {first['chip']} {verb}: {value}{then}."


def blocks(row: Json, winner: Json) -> list[Block]:
    return [_figure(row), _table(row, winner), *_draws(row)]


def _figure(row: Json) -> Figure:
    """A bar for each chip, the best on top."""
    what = "output tokens/s" if row["metric"] == RATE else axis_title(row["metric"])
    rows = row["rows"][::-1]
    names, values = [plain(one["chip"]) for one in rows], [one["value"] for one in rows]
    shown = values if row["metric"] == RATE else scaled(row["metric"], values)
    layout = {
        "height": 100 + 34 * len(rows),
        "xaxis": {"title": {"text": plain(what)}},
        "yaxis": names_axis(names),
    }
    return Figure(
        f"equal-{row['kind']}",
        f"At equal {row['kind']}: {level_words(row)}",
        {"data": [bars(what, shown, names, BLUE)], "layout": layout},
        f"Each chip by its {what} at equal {row['kind']}, the best on top.",
    )


def _table(row: Json, winner: Json) -> Table:
    more, notes = row["metric"] == RATE, []
    if row["level_is_the_winners"]:
        whose = "the winner's"
        if more and (load := load_of(winner)):
            held = counted(load["deployments"], "deployment")
            whose = f"that of the winner's {held} for the demand"
        elif more:
            whose = "that of ten of the winner's deployments"
        notes.append(f"Without --at, the level is {whose}.")
    if row["without"]:
        notes.append(f"No deployment: {', '.join(row['without'])}.")
    value = ("output tokens/s", "count") if more else (named(row["metric"]), row["metric"])
    columns = [
        Column("chip", "chip", first=True),
        Column("value", *value, first=True),
        Column("over_best", "to best", "change", first=True),
        Column("deployments", "deployments", "count"),
        Column("chips", "chips", "count", first=True),
        Column("deployed", "each" if more else "deployed", of=lambda one: words(one["point"])),
        Column(COST, "$/M total", COST, of=_busy_cost),
        Column("tpot_s", "per token", "tpot_s", of=lambda one: one["point"]["metrics"]["tpot_s"]),
    ]
    if not more:
        columns = [c for c in columns if c.key not in ("deployments", "chips", COST)]
    caption = f"At equal {row['kind']}: {level_words(row)}"
    return Table.of(f"equal {row['kind']}", caption, row["rows"], columns, notes)


def _busy_cost(one: Json) -> float:
    """A budget is served at the full rate."""
    load = one["point"]["at_average_load"] or {}
    return load.get("busy_usd_per_million_total_tokens", one["point"]["metrics"][COST])


def _draws(row: Json) -> list[Table]:
    """From which figure the watts of each chip follow; nothing where no watts are compared."""
    drawn = [one["draw"] | {"chip": one["chip"]} for one in row["rows"] if one["draw"]]
    if not drawn:
        return []
    where = "at the meter" if row["kind"] == "power" else "of the server"
    columns = (
        Column("chip", "chip"),
        Column("watts_per_chip", "counted", "power"),
        Column("figure_w", "from", "power"),
        Column("of", "what that counts", of=lambda one: f"{one['of']} ({one['kind']})"),
        Column("how", "how it follows", of=_factors),
    )
    notes = [f"{text[0].upper()}{text[1:]}." for text in row["assumed"]]
    return [Table.of(f"draw {row['kind']}", f"What a chip draws, {where}", drawn, columns, notes)]


def _factors(draw: Json) -> str:
    sign = "/" if draw["over"] else "x"
    known = " ".join(f"{sign} {value:.4g} {name}" for name, value in draw["factors"].items())
    return known or "as published"
