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
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError
from dse.physics.workload import POISSON
from dse.problem.demanded import TOTAL as COST
from dse.problem.evaluate import Metrics
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
from dse.record import record
from dse.schema.costs import BASIS, Cost, Costs
from dse.schema.metrics import METRICS, parse_limit
from dse.schema.owning import lacks_for_owning, lacks_power, power_at_meter
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
    together: dict[str, Any] = {}
    no_rate = all(one.workload.serving != POISSON for one in problem.mix)
    one_pool = problem.pools is None and "concurrency" in problem.space.names
    if len(rows) > 1 and no_rate and one_pool:
        together = by_requests(stand, *(row["chip"] for row in rows[:2]))
    owned = own_rows(stand.subject, rows)
    if len(rows) < 2 and not owned:
        raise InputError(
            "nothing to compare: one feasible chip, and no price to own it at",
            field="--break-even",
            accepted="two chips, or one with a rent and a price to buy it at",
        )
    left_out = [row["chip"] for row in rows if row["chip"] not in [one["chip"] for one in owned]]
    infeasible = [chip for k, chip in enumerate(problem.machines.ids) if k not in best]
    facts = {
        "break_even": rows,
        "any_quality": problem.model is None,
        "infeasible_chips": infeasible,
        "concurrency": together.pop("rows", []),
        "concurrency_turns": together or None,
        "owning": owned,
        "owning_left_out": left_out,
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


def by_requests(stand: Stand, a: str, b: str) -> dict[str, Any]:
    """The lowest cost of two chips at each number of requests in flight a chip may be given, under
    the limits, and where one overtakes the other."""
    space, machines = stand.problem.space, stand.problem.machines
    axis = space.names.index("concurrency")
    values = space.choices[axis]
    found = best_of_each(
        stand,
        lambda metrics, batch: metrics.values[COST],
        lambda batch, index: batch.chip * len(values) + index[:, axis],
    )
    rows = [
        {"concurrency": value, "chip": chip, COST: number(found.get(at, (math.inf, 0))[0])}
        for chip in (a, b)
        for k, value in enumerate(values)
        for at in (machines.code(chip) * len(values) + k,)
    ]
    pairs = zip(rows[: len(values)], rows[len(values) :], strict=True)
    both = [(one, other) for one, other in pairs if one[COST] and other[COST]]
    ahead = [other[COST] < one[COST] for one, other in both]
    return {
        "a": a,
        "b": b,
        "rows": rows,
        "compared": len(both),
        "b_is_ahead_at_first": ahead[0] if ahead else None,
        "overtakes_at": [
            both[k][0]["concurrency"] for k in range(1, len(both)) if ahead[k] != ahead[k - 1]
        ],
    }


def owning(catalog: Catalog, chip: str, rent: float | None, costs: Costs) -> dict[str, Any] | None:
    """Owned against rented by use at `rent` (None: nobody rents it so), dollars by the chip-hour;
    None where the chip cannot be priced as owned. `curve` and `owned_at_full_use` are by the hour
    that it serves, `price` is the latter by its parts."""
    if lacks_for_owning(catalog, chip, costs) is not None:
        return None
    price = usd_per_chip_hour(catalog, chip, BASIS, costs.changed({"utilisation": 1.0}))
    power = next(part.usd_per_chip_hour for part in price.parts if part.name == "electricity")
    held, by_load = price.usd_per_chip_hour - power, power * costs.value("load_share")
    idle = held + power - by_load
    even = idle / (rent - by_load) if rent is not None and rent > by_load else math.inf
    return {
        "chip": chip,
        "price": price.as_json(),
        "held_usd_per_hour": held,
        "electricity_usd_per_hour": power,
        "electricity_load_share": costs.value("load_share"),
        "rent_usd_per_hour": rent,
        "utilisation": even if even <= 1.0 else None,
        "owned_at_full_use": price.usd_per_chip_hour,
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
    found, chips, turns = [], facts["break_even"], facts["concurrency_turns"]
    if len(chips) > 1:
        first, other = chips[0], chips[1]
        found.append(
            f"{other['chip']} breaks even with {first['chip']} at "
            f"{dollars(other['break_even_usd_per_chip_hour'])} per chip-hour "
            f"({tenths(other['change'], sign=True)} from {dollars(other['usd_per_chip_hour'])}); "
            f"{first['chip']} stays cheapest up to "
            f"{dollars(first['break_even_usd_per_chip_hour'])} "
            f"({tenths(first['change'], sign=True)})."
        )
    if turns and turns["compared"]:
        a, b = turns["a"], turns["b"]
        ahead, behind = (b, a) if turns["b_is_ahead_at_first"] else (a, b)
        places = ", ".join(f"{one:,}" for one in turns["overtakes_at"])
        where = f"with few requests in flight; the lead changes at {places}"
        every = "at every number of requests in flight"
        found.append(f"{ahead} is cheaper than {behind} {where if places else every}.")
    if facts["owning"]:
        said = _owned(facts["owning"][0])
        if chips[0]["chip"] in facts["owning_left_out"]:
            said = (
                f"What owning {chips[0]['chip']} costs is not known (no price or no power). {said}"
            )
        found.append(said)
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


@record
class Budget:
    """What one chip takes of a budget, (chips,) in the order of the machines; NaN: not known.
    `draws` says of power and racks what each chip's watts rest on, by chip."""

    per_chip: Floats
    assumed: Sequence[str] = ()
    draws: Mapping[str, dict[str, Any]] = {}


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
    if kind in ("cost", "chips"):
        usd = machines.usd_per_chip_hour
        return Budget(usd if kind == "cost" else np.ones(len(usd)))
    found = {chip: draw(catalog, chip, costs, kind == "power") for chip in machines.ids}
    draws = {chip: one[0] for chip, one in found.items() if one is not None}
    used = dict.fromkeys(factor for one in found.values() if one for factor in one[1])
    # `facility_factor: 1.36, estimated: power at the meter over that of the servers ...`
    notes = [
        ": ".join(filter(None, (f"{one.name}: {one.text}, {one.kind}", one.note))) for one in used
    ]
    if missing := [chip for chip in found if chip not in draws]:
        notes.append(f"no power is known of {', '.join(missing)}")
    watts = np.array([draws[one]["watts_per_chip"] if one in draws else math.nan for one in found])
    if kind == "power":
        where = "power is that at the meter: the chip with its share of server, network and cooling"
        return Budget(watts, (where, *notes), draws)
    chips = []
    for chip, each in zip(found, watts.tolist(), strict=True):
        # Those of a scale-up domain that is a rack, else whole servers; NaN where it holds none.
        domain = catalog.systems[catalog.chip(chip).system].levels[0].size or 1
        whole = math.floor(rack_w / each / 8) * 8 if each > 0 else 0
        chips.append(domain if 8 < domain <= LARGEST_RACK else whole or math.nan)
    where = "a rack holds the power of its servers; cooling is outside it"
    return Budget(1.0 / np.array(chips, dtype=float), (where, *notes, RACK_NOTE), draws)


def racks_held(subject: Subject, point: Json, rack_w: float) -> float | None:
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
    metric = COST if bound else RATE
    budget = Budget(np.ones(0)) if bound else budget_of(stand.subject, kind, rack_w)
    level = at if at is not None else _of_winner(stand, kind, budget)

    def needed(batch: CandidateBatch) -> Floats:
        return batch.chips * budget.per_chip[batch.chip]

    def worth(metrics: Metrics, batch: CandidateBatch) -> Floats:
        if bound:
            good = metrics.values[bound] <= level * (1.0 + 1e-12)
            return np.where(good, metrics.values[COST], np.inf)
        each = needed(batch)
        many = np.floor(level * (1.0 + 1e-9) / each)
        if kind == "racks":  # several in one, or one over several whole racks
            per_rack = np.floor(1.0 / each * (1.0 + 1e-9))
            over = np.floor(level / np.ceil(each * (1.0 - 1e-9)))
            many = np.where(per_rack >= 1.0, level * per_rack, over)
        return np.where(many >= 1.0, -many * metrics.values[RATE], np.inf)

    rows: list[dict[str, Any]] = []
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
    if not rows:
        _refuse(stand, needed, kind, level)
    rows.sort(key=lambda row: (row["value"] if bound else -row["value"], row["chip"]))
    for row in rows:
        row["over_best"] = row["value"] / rows[0]["value"] - 1.0
    seen = [row["chip"] for row in rows]
    facts = {
        "kind": kind,
        "level": level,
        "unit": bound or UNITS[kind],
        "level_is_the_winners": at is None,
        "metric": metric,
        "rows": rows,
        "without": [chip for chip in ids if chip not in seen],
        "assumed": list(budget.assumed),
    }
    return Part(facts, [_first(facts)], _equals(facts))


def _refuse(stand: Stand, needed: Any, kind: str, level: float) -> None:
    if kind in LEVELS:
        message = f"no chip keeps the limits at {level_words(kind, level)}"
        raise InputError(message, field="--at", accepted="a looser one")
    least = best_of_each(stand, lambda _, batch: needed(batch)).values()
    known = [level_words(kind, value) for value, _ in least if value == min(least)[0]]
    message = f"{level_words(kind, level)}: too little for any deployment that keeps the limits"
    accepted = f"at least {known[0]}" if known else "another limit"
    raise InputError(message, field="--at", accepted=accepted)


def _of_winner(stand: Stand, kind: str, budget: Budget) -> float:
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
    each = float(budget.per_chip[stand.problem.machines.code(chip)])
    found = winner["deployment"]["chips"] * each
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
    if facts["metric"] == RATE:
        verb, none = "serves most", "; no deployment of another chip fits"
        value = f"{first['value']:,.0f} output tokens/s from {counted(first['chips'], 'chip')}"
    else:
        verb, none = "is cheapest", "; no other chip keeps it"
        value = priced(facts["metric"], first["value"])
    then = f"; next {rest[0]['chip']}, {tenths(rest[0]['over_best'], sign=True)}" if rest else none
    level = level_words(facts["kind"], facts["level"])
    return f"At equal {facts['kind']} ({level}), {first['chip']} {verb}: {value}{then}."


def _equals(facts: Json) -> list[Block]:
    """A bar for each chip, the table, and from which figure watts follow."""
    kind, metric, rows = facts["kind"], facts["metric"], facts["rows"]
    caption = f"At equal {kind}: {level_words(kind, facts['level'])}"
    said = []
    if facts["level_is_the_winners"]:
        said.append("The level is that of the winner, for the demand or of ten deployments.")
    if facts["without"]:
        said.append(f"No deployment: {', '.join(facts['without'])}.")
    notes = [" ".join(said)] if said else []
    shown = [
        {**cells(row["point"]), metric: row["value"], "chip": row["chip"]}
        | {"over_best": row["over_best"], "deployments": row["deployments"]}
        | {"all_chips": row["chips"], "usd_per_hour": None}
        for row in rows
    ]
    for row, one in zip(shown, rows, strict=True):  # a budget is served at the full rate
        load = one["point"]["at_average_load"] or {}
        row[COST] = load.get("busy_usd_per_million_total_tokens", row[COST])
    keys = dict.fromkeys((metric, "over_best", "deployments", "all_chips", "deployed", COST, TPOT))
    first = ("chip", metric, "over_best")
    values = scaled(metric, [row["value"] for row in rows])
    picture = bar_chart(
        f"equal-{kind}",
        caption,
        [row["chip"] for row in rows],
        {METRICS[metric].title: values},
        axis_title(metric),
        f"Each chip at equal {kind}, the best on top.",
    )
    blocks: list[Block] = [
        picture,
        of_rows(f"equal_{kind}", caption, shown, ("chip", *keys), *notes, first=first),
    ]
    drawn = [row["draw"] | {"chip": row["chip"]} for row in rows if row["draw"]]
    for one in drawn:
        sign = "/" if one["over"] else "x"
        factors = " ".join(f"{sign} {value:.4g} {name}" for name, value in one["factors"].items())
        one |= {"watts_per_chip_counted": one["watts_per_chip"], "how": factors or "as published"}
        one |= {"of": f"{one['of']} ({one['kind']})"}
    if drawn:
        where = "at the meter" if kind == "power" else "of the server"
        text = "; ".join(facts["assumed"])
        note = f"{text[0].upper()}{text[1:]}."
        shown_keys = ("chip", "watts_per_chip_counted", "figure_w", "of", "how")
        what = f"What a chip draws, {where}"
        blocks.append(of_rows(f"draw_{kind}", what, drawn, shown_keys, note, on_console=False))
    return blocks
