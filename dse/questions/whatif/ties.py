"""Where two choices cost the same, and which chip is best at an equal budget or level.

Break-even price: a chip's cost per token is its price times the chip-hours that a token takes, and
its cheapest deployment takes fewest, whatever the price. So chip B costs as much as chip A at

    price B = price A x chip-hours A / chip-hours B.

An owned chip that serves the share u of its hours costs, by the hour that it is owned,
A + E (1 - d + d u), on the costs of `dse.economics.tco`: A its capital and upkeep, E its
electricity when busy, d the share of that which depends on the load. One that is rented by use, at
r and paid only while it serves, costs r u. The two are equal at u = (A + E (1 - d)) / (r - E d).
A rent that is committed for years is paid whether or not the chip serves; it is held against an
owned chip that is always busy.

An equal budget (dollars per hour, watts, chips, racks) buys as many whole deployments as it pays
for, at their full rate; of each chip the deployment counts that serves most output tokens per
second. At equal quality or latency, each chip's cheapest deployment that is at least as good
counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse import units
from dse.answer.answer import Block
from dse.answer.frames import bar_chart, lines, of_rows
from dse.answer.labels import axis_title
from dse.answer.numbers import dollars, number, priced, share, show, tenths
from dse.answer.plots import scaled
from dse.catalog import Catalog
from dse.economics.prices import price_parts
from dse.economics.tco import price_by_parts
from dse.errors import InputError
from dse.physics.workload import POISSON
from dse.problem.evaluate import Metrics
from dse.problem.objective import TOTAL as COST
from dse.questions.whatif.inputs import (
    Subject,
)
from dse.questions.whatif.solve import (
    Part,
    Stand,
    best_of_each,
    cells,
    counted,
    described,
    load_of,
)
from dse.schema.costs import BASIS, Costs, lacks_for_owning, lacks_power, power_at_meter
from dse.schema.metrics import METRICS, parse_limit
from dse.space.candidates import CandidateBatch, Floats

Json = Mapping[str, Any]
TPOT, RATE = "tpot_s", "output_tokens_per_s"
CURVE_POINTS = 25
ON_DEMAND = "on_demand"  # the basis of a chip that is paid only while it is used
# Bases that are paid for years, used or not, and those of owned chips, which are no rent.
COMMITTED, OWNED = ("rental_", "reserved_"), ("owned_",)
# What an hour or a rack is counted in.
BUDGETS = {"cost": "usd/h", "power": "W", "chips": "count", "racks": "count"}
UNITS = {"cost": "USD per hour", "power": "W", "chips": "chips", "racks": "racks"}
LEVELS = {"quality": "predicted_loss", "latency": TPOT}
KINDS = (*BUDGETS, *LEVELS)
RACK_W = 40e3
PARTS = "An owned chip-hour by its parts"
LARGEST_RACK = 144  # chips; a larger domain is joined by a network between racks
RACK_NOTE = (
    "a rack is taken to carry 40 kW (assumed: a common air-cooled limit; --set rack_power changes "
    "it) in whole servers of 8 chips; a scale-up domain of more than 8 is a rack of its own, "
    "whatever it draws"
)


def break_even(stand: Stand) -> Part:
    """At which price, number of requests or utilisation one choice overtakes another. Raises
    InputError for a study without prices or with one chip that cannot be priced as owned."""
    problem = stand.problem
    best = best_of_each(stand, lambda metrics, batch: metrics.values[COST])
    rows = price_rows(stand, best)
    owned = own_rows(stand.subject, rows)
    if len(rows) < 2 and not owned:
        raise InputError(
            "nothing to compare: one feasible chip, and no price to own it at",
            field="--break-even",
            accepted="two chips, or one with a rent and a price to buy it at",
        )
    no_rate = all(one.workload.serving != POISSON for one in problem.mix)
    loads: list[dict[str, Any]] = []
    if len(rows) > 1 and no_rate and problem.pools is None and "concurrency" in problem.space.names:
        loads = by_requests(stand, *(row["chip"] for row in rows[:2]))
    named = [one["chip"] for one in owned]
    facts = {
        "break_even": rows,
        "any_quality": problem.model is None,
        "infeasible_chips": [chip for k, chip in enumerate(problem.machines.ids) if k not in best],
        "concurrency": loads,
        "owning": owned,
        "owning_left_out": [row["chip"] for row in rows if row["chip"] not in named],
    }
    return Part(facts, _tied(facts), _ties(facts))


def price_rows(stand: Stand, best: Mapping[int, tuple[float, int]]) -> list[dict[str, Any]]:
    """Each chip against the cheapest one: the price at which it would cost as much, and that of
    the cheapest chip itself against the next."""
    machines, order = stand.problem.machines, sorted(best, key=lambda code: best[code][0])
    rows = []
    for code in order:
        other = order[0] if code != order[0] else next(iter(order[1:]), None)
        price, (cost, point) = float(machines.usd_per_chip_hour[code]), best[code]
        # chip-hours per million tokens are cost / price, so that the closed form is this ratio
        even = None if other is None else price * best[other][0] / cost
        rows.append(
            {
                "chip": machines.ids[code],
                "usd_per_chip_hour": price,
                COST: cost,
                "chip_hours_per_million_tokens": cost / price,
                "against": None if other is None else machines.ids[other],
                "break_even_usd_per_chip_hour": even,
                "change": None if even is None else even / price - 1.0,
                "point": described(stand.problem, point),
            }
        )
    return rows


def by_requests(stand: Stand, *chips: str) -> list[dict[str, Any]]:
    """The lowest cost of chips at each number of requests in flight, under the limits."""
    space, machines = stand.problem.space, stand.problem.machines
    axis = space.names.index("concurrency")
    values = space.choices[axis]
    found = best_of_each(
        stand,
        lambda metrics, batch: metrics.values[COST],
        lambda batch, index: batch.chip * len(values) + index[:, axis],
    )
    rows = []
    for chip in chips:
        for k, value in enumerate(values):
            usd, _ = found.get(machines.code(chip) * len(values) + k, (math.inf, 0))
            rows.append({"concurrency": value, "chip": chip, COST: number(usd)})
    return rows


def owning(catalog: Catalog, chip: str, rent: float | None, costs: Costs) -> dict[str, Any] | None:
    """Owned against rented by use at `rent` (None: nobody rents it so), dollars by the chip-hour;
    None where the chip cannot be priced as owned. `curve` and `owned_at_full_use` are by the hour
    that it serves, `price` is the latter by its parts."""
    if lacks_for_owning(catalog, chip, costs) is not None:
        return None
    price = price_by_parts(catalog, chip, BASIS, costs.changed({"utilisation": 1.0}))
    power = next(
        part["usd_per_chip_hour"] for part in price["parts"] if part["name"] == "electricity"
    )
    held, by_load = price["usd_per_chip_hour"] - power, power * costs.value("load_share")
    idle = held + power - by_load
    even = idle / (rent - by_load) if rent is not None and rent > by_load else math.inf
    return {
        "chip": chip,
        "price": price,
        "held_usd_per_hour": held,
        "electricity_usd_per_hour": power,
        "electricity_load_share": costs.value("load_share"),
        "rent_usd_per_hour": rent,
        "utilisation": even if even <= 1.0 else None,
        "owned_at_full_use": price["usd_per_chip_hour"],
        "curve": [
            {"utilisation": u, "owned": idle / u + by_load}
            for u in np.linspace(0.04, 1.0, CURVE_POINTS).tolist()
        ],
    }


def own_rows(subject: Subject, rows: Sequence[Json]) -> list[dict[str, Any]]:
    """Owning each chip against renting it by use, with the demand on one instance at which they
    cost the same, and against a committed rent where the study's basis is one. Where the basis is
    committed, or owned, ON_DEMAND is the rent by use."""
    study, catalog = subject.problem.study, subject.catalog
    basis, costs = study.price_basis, study.costs or catalog.costs
    committed = basis.startswith(COMMITTED)
    other = committed or basis.startswith(OWNED)
    known = other and ON_DEMAND in catalog.prices.bases()
    by_use = catalog.prices.select(ON_DEMAND) if known else {}
    found = []
    for row in rows:
        chip, rent = row["chip"], row["usd_per_chip_hour"]
        if other:
            rent = by_use[chip].usd_per_chip_hour if chip in by_use else None
        if (one := owning(catalog, chip, rent, costs)) is None:
            continue
        point, even = row["point"], one["utilisation"]
        chips = point["deployment"]["chips"]
        full = point["metrics"]["output_tokens_per_s_per_chip"] * chips
        found.append(
            {
                **one,
                "rent_basis": ON_DEMAND if other else basis,
                "committed_basis": basis if committed else None,
                "committed_usd_per_hour": row["usd_per_chip_hour"] if committed else None,
                "instance": point["words"],
                "instance_chips": chips,
                "instance_output_tokens_per_s": full,
                "demand_output_tokens_per_s": None if even is None else even * full,
            }
        )
    return found


def _tied(facts: Json) -> list[str]:
    found, chips = [], facts["break_even"]
    if len(chips) > 1:
        first, other = chips[0], chips[1]
        found.append(
            f"{other['chip']} breaks even with {first['chip']} at "
            f"{dollars(other['break_even_usd_per_chip_hour'])} per chip-hour "
            f"({tenths(other['change'], sign=True)} from {dollars(other['usd_per_chip_hour'])})."
        )
    by_load: dict[int, dict[str, float]] = {}
    for row in facts["concurrency"]:
        if row[COST]:
            by_load.setdefault(row["concurrency"], {})[row["chip"]] = row[COST]
    leads = [(load, min(usd, key=usd.__getitem__)) for load, usd in by_load.items() if len(usd) > 1]
    turns = [f"{load:,}" for (_, one), (load, other) in itertools.pairwise(leads) if one != other]
    if turns:
        found.append(
            f"With few requests in flight {leads[0][1]} is cheaper; the lead changes at "
            f"{', '.join(turns)} in flight."
        )
    if facts["owning"]:
        found.append(_owned(facts["owning"][0]))
    return found


def _owned(row: Json) -> str:
    chip, rent, even = row["chip"], row["rent_usd_per_hour"], row["utilisation"]
    if rent is None:
        said = f"Nobody publishes a price for {chip} by use"
    elif even is None:
        said = f"Owning {chip} costs more than renting it by use at any utilisation"
    else:
        said = (
            f"Owning {chip} beats renting it by use ({dollars(rent)}, {row['rent_basis']}) "
            f"from {share(even)} utilisation: {row['demand_output_tokens_per_s']:,.0f} output "
            f"tokens/s on one instance of {row['instance_chips']} chips"
        )
    said += f"; always busy it costs {dollars(row['owned_at_full_use'])} per chip-hour"
    if row["committed_usd_per_hour"] is not None:
        said += f", against {dollars(row['committed_usd_per_hour'])} on {row['committed_basis']}"
    return f"{said}."


def _ties(facts: Json) -> list[Block]:
    """Pictures of requests in flight and of owning, then the tables."""
    rows, requests, owned = facts["break_even"], facts["concurrency"], facts["owning"]
    notes = ["Of any predicted loss: --limit 'predicted_loss <= ...' holds it."]
    notes = notes if facts["any_quality"] else []
    if facts["infeasible_chips"]:
        notes.append(f"Nothing feasible: {', '.join(facts['infeasible_chips'])}.")
    prices = ("chip", "deployed", COST, "usd_per_chip_hour", "break_even_usd_per_chip_hour")
    table = of_rows(
        "break_even",
        "Break-even prices per chip-hour",
        [{**cells(row["point"]), **row} for row in rows],
        (*prices, "change", "against"),
        *notes,
        first=("chip", *prices[2:]),
    )
    blocks: list[Block] = [table]
    if requests:
        keys = ("concurrency", "chip", COST)
        caption = "Lowest cost at each number of requests in flight"
        flight = of_rows("requests", caption, requests, keys, on_console=False)
        shows = "The lowest cost per million tokens within the limits by requests in flight."
        picture = lines("requests", caption, flight, "concurrency", COST, "chip", shows)
        blocks = [picture, *blocks, flight]
    if owned:
        curve = [{"chip": row["chip"], **at} for row in owned for at in row["curve"]]
        table = of_rows("owning_by_utilisation", "", curve, ("chip", "utilisation", "owned"))
        picture = lines(
            *("owning", "Owning by utilisation", table, "utilisation", "owned", "chip"),
            "What an owned chip costs per hour that it serves, by the share of its hours in which "
            "it does.",
            across="utilisation (%)",
        )
        left, prices = facts["owning_left_out"], [row["price"] for row in owned]
        keys = ("owned_at_full_use", "committed_usd_per_hour", "rent_usd_per_hour")
        blocks += [
            picture,
            of_rows(
                "owning",
                "Owning against renting, per chip-hour",
                [{**row, "owning_wins_from": row["utilisation"]} for row in owned],
                ("chip", *keys, "owning_wins_from", "demand_output_tokens_per_s", "instance"),
                *([f"No price or power to own it at: {', '.join(left)}."] if left else []),
            ),
            replace(price_parts(prices, f"{PARTS}, always busy"), on_console=False),
        ]
    return blocks


def draw(catalog: Catalog, chip: str, costs: Costs, at_meter: bool) -> dict[str, Any] | None:
    """What a chip with its share of the server draws, at the meter or at the server: the figure (of
    a chip file, or a cost) that it follows from, and the factor on that. None where no power is
    known."""
    if lacks_power(catalog, chip, costs) is not None:
        return None
    figure, server_w, meter_w = power_at_meter(catalog, chip, costs)
    watts = meter_w if at_meter else server_w
    return {
        "chip": chip,
        "watts_per_chip_counted": watts,
        "of": figure.name,
        "figure_w": figure.value,
        "power_factor": watts / figure.value,
        "kind": figure.kind,
        "source": figure.source,
    }


def drawn_by(subject: Subject, at_meter: bool) -> list[dict[str, Any] | None]:
    """The `draw` of each chip of the machines."""
    costs = subject.problem.study.costs or subject.catalog.costs
    ids = subject.problem.machines.ids
    return [draw(subject.catalog, chip, costs, at_meter) for chip in ids]


def per_chip(subject: Subject, kind: str, rack_w: float) -> Floats:
    """What one chip takes of a budget of `kind`, (chips,) in the order of the machines; NaN: not
    known. A scale-up domain of more than 8 chips is a rack of its own, whatever it draws."""
    machines, catalog = subject.problem.machines, subject.catalog
    if kind == "cost":
        return machines.usd_per_chip_hour
    if kind == "chips":
        return np.ones(len(machines.ids))
    each = drawn_by(subject, kind == "power")
    watts = [math.nan if one is None else one["watts_per_chip_counted"] for one in each]
    if kind == "power":
        return np.array(watts)
    chips = []
    for chip, one in zip(machines.ids, watts, strict=True):
        domain = catalog.systems[catalog.chip(chip).system].levels[0].size or 1
        whole = math.floor(rack_w / one / 8) * 8 if one > 0 else 0
        chips.append(domain if 8 < domain <= LARGEST_RACK else whole or math.nan)
    return 1.0 / np.array(chips, dtype=float)


def racks_held(subject: Subject, point: Json, rack_w: float) -> float | None:
    """Racks of the deployments that a demand takes; None where that is not known."""
    if not (load := load_of(point)):
        return None
    each = per_chip(subject, "racks", rack_w)[subject.problem.machines.code(point["chip"])]
    needed = point["deployment"]["chips"] * each
    return _racks_of(load["deployments"], needed) if math.isfinite(needed) else None


def _racks_of(deployments: int, needed: float) -> int:
    """Racks of so many deployments, each of which needs `needed` of one: several in one rack, or
    one over several whole ones."""
    in_one = math.floor(1.0 / needed * (1.0 + 1e-9))
    if in_one:
        return math.ceil(deployments / in_one)
    return deployments * math.ceil(needed * (1.0 - 1e-9))


def deployments_of(kind: str, level: float, each: Floats) -> Floats:
    """Whole deployments that a budget buys, each of which takes `each` (n,) of it."""
    if kind != "racks":
        return np.floor(level * (1.0 + 1e-9) / each)
    in_one = np.floor(1.0 / each * (1.0 + 1e-9))
    return np.where(in_one >= 1.0, level * in_one, np.floor(level / np.ceil(each * (1.0 - 1e-9))))


def read_level(kind: str, text: str | None) -> float | None:
    """The budget or level that `--at` gives. Raises InputError."""
    if text is None:
        return None
    try:
        dimension = {**BUDGETS, "latency": "s"}.get(kind, "")
        quality = METRICS["predicted_loss"].dimension
        value = units.parse(text, dimension) if dimension else parse_limit(text, quality)
    except InputError as error:
        raise InputError(error.message, field="--at", accepted=error.accepted) from None
    if value <= 0.0:
        raise InputError(f"read {text!r}", field="--at", accepted="more than 0")
    return value


def equal(stand: Stand, kind: str, at: float | None = None, rack_w: float = RACK_W) -> Part:
    """The chips at an equal amount of `kind`, the best first, each with what it falls short of the
    best by; without `at`, at the amount of the winner.

    Raises InputError for a budget that buys no deployment of any chip, and for a quality that is
    not known.
    """
    bound, ids = LEVELS.get(kind), stand.problem.machines.ids
    each = np.ones(len(ids)) if bound else per_chip(stand.subject, kind, rack_w)
    level = at if at is not None else _of_winner(stand, kind, each)

    def needed(metrics: Metrics, batch: CandidateBatch) -> Floats:
        return batch.chips * each[batch.chip]

    def worth(metrics: Metrics, batch: CandidateBatch) -> Floats:
        if bound:
            good = metrics.values[bound] <= level * (1.0 + 1e-12)
            return np.where(good, metrics.values[COST], np.inf)
        many = deployments_of(kind, level, needed(metrics, batch))
        return np.where(many >= 1.0, -many * metrics.values[RATE], np.inf)

    best = best_of_each(stand, worth)
    if not best and bound:
        message = f"no chip keeps the limits at {level_words(kind, level)}"
        raise InputError(message, field="--at", accepted="a looser one")
    if not best:
        least = [value for value, _ in best_of_each(stand, needed).values()]
        message = f"{level_words(kind, level)}: too little for any deployment that keeps the limits"
        accepted = f"at least {level_words(kind, min(least))}" if least else "another limit"
        raise InputError(message, field="--at", accepted=accepted)
    rows: list[dict[str, Any]] = []
    first = min(value for value, _ in best.values())
    for code, (value, point) in best.items():
        one = described(stand.problem, point, bound or RATE, COST)
        many = None if bound else round(-value / one["metrics"][RATE])
        row = {"chip": ids[code], "value": abs(value), "over_best": value / first - 1.0}
        row |= {"deployments": many, "point": one}
        rows.append(row | {"chips": many and many * one["deployment"]["chips"]})
    rows.sort(key=lambda row: (-row["over_best"] if not bound else row["over_best"], row["chip"]))
    power = drawn_by(stand.subject, kind == "power") if kind in ("power", "racks") else []
    facts = {
        "kind": kind,
        "level": level,
        "unit": bound or UNITS[kind],
        "level_is_the_winners": at is None,
        "metric": COST if bound else RATE,
        "rows": rows,
        "without": [chip for code, chip in enumerate(ids) if code not in best],
        "draw": [one for one in power if one is not None],
        "assumed": _assumed(stand.subject, kind),
    }
    return Part(facts, [_first(facts)], _equals(facts))


def _assumed(subject: Subject, kind: str) -> list[str]:
    """What watts rest on beyond the figures of the chips."""
    if kind not in ("power", "racks"):
        return []
    inputs = (subject.problem.study.costs or subject.catalog.costs).inputs
    notes = [
        ": ".join(filter(None, (f"{one.name}: {one.text}, {one.kind}", one.note)))
        for one in (inputs["facility_factor"], inputs["server_power_factor"])
    ]
    return [*notes, RACK_NOTE] if kind == "racks" else notes


def _of_winner(stand: Stand, kind: str, each: Floats) -> float:
    """The winner's quality or latency, or what its deployments take of a budget for the demand;
    without one, ten of them: enough that whole deployments compare fairly."""
    winner = stand.winner
    if bound := LEVELS.get(kind):
        at = described(stand.problem, winner["id"], bound)["metrics"][bound]
        if at is None:
            accepted = "a space of shapes, whose quality is known"
            raise InputError(f"the winner has no {bound}", field="--equal", accepted=accepted)
        return at
    chip = winner["chip"]
    found = winner["deployment"]["chips"] * float(each[stand.problem.machines.code(chip)])
    if not math.isfinite(found):
        message = f"how much {chip} takes is not known"
        raise InputError(message, field="--equal", accepted="--at AMOUNT")
    held = load_of(winner).get("deployments", 10)
    return _racks_of(held, found) if kind == "racks" else held * found


def level_words(kind: str, level: float) -> str:
    """`40 kW`, `1 rack`, `23 USD per hour`, `tpot_s <= 30 ms`."""
    if kind in LEVELS:
        return f"{LEVELS[kind]} <= {show(LEVELS[kind], level)}"
    if kind == "power":
        return units.format(level, "W", 4)
    unit = UNITS[kind].removesuffix("s") if level == 1.0 and kind != "cost" else UNITS[kind]
    return f"{level:,.4g} {unit}"


def _first(facts: Json) -> str:
    first, rest = facts["rows"][0], facts["rows"][1:]
    verb, value = "is cheapest", priced(COST, first["value"])
    if facts["metric"] == RATE:
        verb = "serves most"
        value = f"{first['value']:,.0f} output tokens/s from {counted(first['chips'], 'chip')}"
    then = "no deployment of another chip fits"
    if rest:
        then = f"next {rest[0]['chip']}, {tenths(rest[0]['over_best'], sign=True)}"
    level = level_words(facts["kind"], facts["level"])
    return f"At equal {facts['kind']} ({level}), {first['chip']} {verb}: {value}; {then}."


def _equals(facts: Json) -> list[Block]:
    """A bar for each chip, the table, and from which figure watts follow."""
    kind, metric, rows = facts["kind"], facts["metric"], facts["rows"]
    caption = f"At equal {kind}: {level_words(kind, facts['level'])}"
    without = [f"No deployment: {', '.join(facts['without'])}."] if facts["without"] else []
    shown = []
    for row in rows:  # a budget is served at the full rate
        busy = (row["point"]["at_average_load"] or {}).get("busy_usd_per_million_total_tokens")
        own = cells(row["point"]) | {"usd_per_hour": None, "chip": row["chip"]}
        own |= {"deployments": row["deployments"], "all_chips": row["chips"]}
        own |= {"over_best": row["over_best"], COST: busy or own[COST], metric: row["value"]}
        shown.append(own)
    keys = dict.fromkeys((metric, "over_best", "deployments", "all_chips", "deployed", COST, TPOT))
    picture = bar_chart(
        f"equal-{kind}",
        caption,
        [row["chip"] for row in rows],
        {METRICS[metric].title: scaled(metric, [row["value"] for row in rows])},
        axis_title(metric),
        f"Each chip at equal {kind}, the best on top.",
    )
    first = ("chip", metric, "over_best")
    table = of_rows(f"equal_{kind}", caption, shown, ("chip", *keys), *without, first=first)
    blocks: list[Block] = [picture, table]
    if facts["draw"]:
        what = f"What a chip draws, {'at the meter' if kind == 'power' else 'of the server'}"
        keys = ("chip", "watts_per_chip_counted", "figure_w", "of", "power_factor", "kind")
        note = f"{'; '.join(facts['assumed'])}."
        blocks.append(of_rows(f"draw_{kind}", what, facts["draw"], keys, note, on_console=False))
    return blocks
