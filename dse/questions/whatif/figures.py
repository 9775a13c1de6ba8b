"""The figures of a chip: what each must be for the chip to enter a front, and what twice does.

To enter a front: the smallest change of one figure at which one of the chip's deployments is beaten
by no point of the front.

A deployment enters where it keeps every constraint and no front point is as good in every
objective, to within `trials.MARGIN`. Each quantity is changed alone; all others stay as the chip
has them. A better bandwidth, peak, link or price makes no deployment worse, so that "enters" is
monotone in them and is bisected. Capacity admits more requests at once, a domain regroups
collectives, and power may move a clock: these are scanned on a grid, and bisected within the first
step that enters.

Twice a figure is asked of training, of a token of one user and of a served token under load. The
change is t(2 x) / t(x) - 1, the elasticity ln(t(2 x) / t(x)) / ln 2, of a time t in chip-hours;
of power it is taken from half of the rated power up to it. Plans of training are searched again,
serving keeps its chips; loads are searched again within the limit of latency. Twice the figure pays
for a price per chip-hour of t(x) / t(2 x) times today's: what is above today's is its worth.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dse import units
from dse.answer.answer import Answer, Block, table_of
from dse.answer.frames import bar_chart, of_rows
from dse.answer.labels import label
from dse.answer.numbers import share, show
from dse.answer.sentences import spans
from dse.catalog import Catalog
from dse.economics.prices import price_assumptions, price_documents, price_parts, rests_on
from dse.economics.tco import with_basis
from dse.errors import InputError, NothingFeasible
from dse.physics.serving import BOTTLENECKS
from dse.problem.describe import describe_deployment
from dse.problem.objective import KNOWN, on_terms, pose
from dse.problem.shapes import model_at
from dse.problem.words import short_deployment, short_shape
from dse.questions.estimate.estimate import estimate
from dse.questions.train import train
from dse.questions.whatif.solve import Part, Progress, turning
from dse.rules.registry import STRUCTURAL
from dse.schema.catalog import with_own_chips
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.model import config_of, model_of
from dse.schema.model_catalog import load_model
from dse.space.studied import count_deployments, deployments
from dse.study.choices import Trials, Tried, gap
from dse.study.definition import reopened
from dse.study.folder import FRONT

Json = Mapping[str, Any]
MOST = 16.0  # the largest factor that is tried, and one over the smallest
FINE = math.log(1.0005)  # bisection ends where the two ends are this close
MOST_SHAPES, MOST_CANDIDATES = 200, 100_000
DEAREST, CHEAPEST = 1e4, 1e-4  # USD per chip-hour, for a chip without a price
LISTED = 12
# Rules that no figure of a chip can mend.
FIXED_RULES = (*STRUCTURAL, "offload_tier_exists", "offload_tier_capacity")
# The figures to vary, under the names that `derive` takes.
QUANTITIES = {
    "hbm_bandwidth": "memory bandwidth",
    "capacity": "memory capacity",
    "flops": "FLOP/s",
    "link": "scale-up link",
    "domain": "scale-up domain",
    "price": "price",
    "tdp": "rated power",
}
DOWN = ("price", "tdp")  # less is tried of these, of the others more
# The factors of a scan, of those in which "enters" is not monotone.
_FINE_GRID = tuple(2.0 ** (k / 4) for k in range(1, 17))
GRIDS = {"capacity": _FINE_GRID, "domain": (2.0, 4.0, 8.0, 16.0), "tdp": _FINE_GRID}


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
    document, items, study = found.document, found.items, found.study
    stale = document["data_digest"] != replace(catalog.source, chips=()).over(document).digest()
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
    distinct = list(shapes.values())
    most = MOST_CANDIDATES // max(count_deployments(study), 1)
    most = max(min(MOST_SHAPES, most, len(distinct)), 1)
    kept = [distinct[k] for k in np.unique(np.linspace(0, len(distinct) - 1, most).astype(int))]
    models = [
        model_of(config, str(folder / FRONT)) if problem.model is None else problem.model
        for config in kept
    ]
    trials = Trials(problem, catalog, chip, deployments(study, models, kept), front)
    candidates, without_link = _possible(trials)
    now = trials.try_(trials.machines(None))
    enters = bool(now.enters.any())
    answer: dict[str, Any] = {
        "study": document["space"],
        "chip": chip,
        "price_basis": study.price_basis,
        "usd_per_chip_hour": trials.price(),
        "front_size": len(items),
        "shapes": len(kept),
        "shapes_of_front": len(distinct),
        "fixed_model": problem.model is not None,
        "candidates": candidates,
        "evaluations": document["evaluations"],
        "size": problem.space.size,
        "without_link": without_link,
        "stale": stale,
        "price_rests_on": price_assumptions(catalog, chip, study.price_basis),
        "price": next(iter(price_documents(catalog, [chip], study.price_basis)), None),
        "on_front": [item["point"] for item in items if item["deployment"]["chip"] == chip],
        "enters_as_it_is": enters,
        "entry": _entry(trials, now, items) if enters else None,
        "requirements": [],
    }
    if not (answer["on_front"] or enters):
        for name, words in QUANTITIES.items():
            progress(f"{chip}: {words}")
            answer["requirements"].append(_requirement(trials, name, items, now))
    return replace(_answer(answer), names=names)


def _possible(trials: Trials) -> tuple[int, int]:
    """Leaves out candidates that no figure makes possible, and those whose instance needs a link
    whose bandwidth is unknown; how many are left, and how many of the latter."""
    problem, batch = trials.problem, trials.batch
    system = trials.catalog.systems[trials.catalog.chip(trials.chip).system]
    sizes, which = np.unique(batch.chips_per_instance, return_inverse=True)
    unlinked = np.array([system.unknown_link(float(size)) is not None for size in sizes])[which]
    found = trials.try_(trials.machines(None)).found.G
    fixed = [problem.constraints.index(rule) for rule in FIXED_RULES]
    sound = (found[:, fixed] <= 0.0).all(axis=1)
    keep = np.flatnonzero(sound & ~unlinked)
    if not len(keep):
        links = " with a known link" if (sound & unlinked).any() else ""
        raise InputError(
            f"the study has no deployment{links} that {trials.chip} could run",
            field="--require",
            accepted="a chip with the links that its instances need",
        )
    trials.batch = batch[keep]
    return len(keep), int((sound & unlinked).sum())


def _requirement(trials: Trials, name: str, items: Sequence[Json], now: Tried) -> dict[str, Any]:
    """One row of `requirements`."""
    keys = ("now", "needed", "factor", "setting", "entry", "why_not", "bound_by")
    row: dict[str, Any] = {
        "quantity": name,
        **dict.fromkeys(keys),
        "method": "scan" if name in GRIDS else "bisection",
        "tried_to": 1 / MOST if name in DOWN else MOST,
    }
    try:
        if name == "price":
            return row | _price(trials, items)
        if not np.isfinite(now.found.F).all(axis=1).any():
            basis = trials.basis
            raise InputError(f"{trials.chip} has no price on basis {basis}: see the price it needs")
        return row | _figure(trials, name, items, now)
    except InputError as error:
        return row | {"why_not": error.message}


def _figure(trials: Trials, name: str, items: Sequence[Json], now: Tried) -> dict[str, Any]:
    """The smallest factor of a figure, its value and what then enters."""

    def at(factor: float, rows: np.ndarray | None = None) -> Tried:
        return trials.try_(trials.machines(f"{name}={factor:.12g}x"), rows)

    def same(one: Tried) -> bool:
        pairs = ((one.found.F, now.found.F), (one.found.G, now.found.G))
        return all(np.array_equal(a, b) for a, b in pairs)

    grid, sign = GRIDS.get(name, ()), -1.0 if name in DOWN else 1.0
    low, high, tried = 1.0, MOST**sign, None
    still = {"tried_to": high, "why_not": "it changes no objective and no constraint"}
    if name == "tdp" and same(at(high)):
        return still
    for step in grid or (MOST,):
        high = step**sign
        try:
            tried = at(high)
        except InputError:
            if tried is None:
                raise
            break  # a domain that the level around it bounds: what was tried before stands
        if tried.enters.any():
            break
        low = high if grid else low
    assert tried is not None
    if not tried.enters.any():
        if same(tried):
            return still | {"tried_to": high}
        return _not_at_all(trials, tried, low if grid else high)
    if name != "domain":
        rows = None
        if not grid:  # what is beaten with more of a figure that worsens nothing is with less
            F = tried.found.F
            beaten = np.zeros(len(F), dtype=bool)
            for point in trials.front:  # over the front, not over candidates
                beaten |= (point <= F).all(axis=1)
            rows = np.flatnonzero(~beaten)
        high = _turning(lambda factor: at(factor, rows), low, high, up=sign > 0.0)
        tried = at(high)
    setting = f"{name}={high:.12g}x"
    return {
        "factor": high,
        **_values(trials, setting),
        "setting": setting,
        "changes": list(derive(trials.catalog, trials.chip, [setting]).chip.changes),
        "entry": _entry(trials, tried, items),
    }


def _turning(at: Any, low: float, high: float, up: bool) -> float:
    """The value between `low` and `high` from which one enters, to four significant digits, rounded
    to the side that enters."""

    def enters(log: float) -> bool:
        return bool(at(math.exp(log)).enters.any())

    value = math.exp(turning(enters, math.log(low), math.log(high), FINE))
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    steps = math.ceil(value / unit) if up else math.floor(value / unit)
    return float(f"{steps * unit:.4g}")


def _values(trials: Trials, setting: str) -> dict[str, Any]:
    """What the chip has and what it needs, as text: the first figure that the setting changes."""
    own = derive(trials.catalog, trials.chip, [setting])
    before = trials.catalog.chip(trials.chip)
    pairs = [(f, own.chip.figure(f.name)) for f in before.figures]
    if own.system is not None:
        after = {figure.name: figure for figure in own.system.figures}
        pairs += [(f, after.get(f.name)) for f in trials.catalog.systems[before.system].figures]
    for a, b in pairs:
        if b is not None and a.text != b.text:
            return {"now": a.text, "needed": units.format(b.value, b.unit, 4)}
    return {}


def _price(trials: Trials, items: Sequence[Json]) -> dict[str, Any]:
    """The highest price per chip-hour at which the chip enters."""
    price, machines = trials.price(), trials.machines(None)
    low, high = (price, price / MOST) if price else (DEAREST, CHEAPEST)

    def at(usd: float, rows: np.ndarray | None = None) -> Tried:
        return trials.try_(replace(machines, usd_per_chip_hour=np.array([usd])), rows)

    tried = at(high)
    now = None if price is None else f"{price:.4g} USD/h"
    tried_to = high / low if price else None
    if not tried.enters.any():
        return {"now": now, **_not_at_all(trials, tried, tried_to)}
    rows = np.flatnonzero(tried.enters)
    if not price and (dearest := at(low, rows)).enters.any():
        needed = f"any up to {low:,.0f} USD/h"
        return {"tried_to": None, "needed": needed, "entry": _entry(trials, dearest, items)}
    usd = _turning(lambda one: at(one, rows), low, high, up=False)
    setting = f"price.{trials.basis}={usd:.12g}USD/h"
    return {
        "now": now,
        "tried_to": tried_to,
        "needed": f"{usd:.4g} USD/h",
        "factor": usd / price if price else None,
        "setting": None if trials.basis == OWNED else setting,
        "changes": [],
        "entry": _entry(trials, at(usd), items),
    }


def _not_at_all(trials: Trials, tried: Tried, factor: float | None) -> dict[str, Any]:
    """Why no value helps: what bounds the candidate that comes nearest, or the constraint that
    removes most where none is feasible."""
    feasible = np.flatnonzero((tried.found.G <= 0.0).all(axis=1))
    if not len(feasible):
        broken = (tried.found.G > 0.0).sum(axis=0)
        worst = trials.problem.constraints[int(np.argmax(broken))]
        part = f"; {worst} removes {broken.max() / len(tried.found.G):.0%} of them"
        words = "no deployment keeps the constraints"
        why = f"{words}: no price" if worst == KNOWN else f"{words}{part}"
        return {"tried_to": factor, "why_not": why, "bound_by": worst}
    gaps = gap(trials.front, tried.found.F[feasible])
    nearest, least = int(feasible[np.argmin(gaps)]), float(gaps.min())
    by = f"{least:.3g} times" if least >= 1.1 else f"{least - 1:.1%}"
    why = f"the nearest deployment would have to be {by} better"
    if least < 1.001:
        why = "the nearest deployment is as good as the front, within 0.1%, and not better"
    return {
        "tried_to": factor,
        "why_not": why,
        "bound_by": BOTTLENECKS[tried.bottleneck[nearest]],
        "nearest": {**_deployed(trials, tried, nearest), "gap": least},
    }


def _deployed(trials: Trials, tried: Tried, row: int) -> dict[str, Any]:
    """The deployment and the objectives of a candidate."""
    found = describe_deployment(trials.batch[row : row + 1], 0, tried.machines)
    F = zip(trials.problem.objectives, tried.found.F[row].tolist(), strict=True)
    objectives = {o.metric: o.sign * value for o, value in F}
    return {"deployment": {**found, "chip": trials.chip}, "objectives": objectives}


def _entry(trials: Trials, tried: Tried, items: Sequence[Json]) -> dict[str, Any]:
    """The deployment that enters by most, the front points that it beats, and the nearest one."""
    rows = np.flatnonzero(tried.enters)
    row = int(rows[np.argmin(gap(trials.front, tried.found.F[rows]))])
    F = tried.found.F[row]
    beaten = (trials.front >= F).all(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(np.log(np.abs(trials.front / F))).max(axis=1)
    near = items[int(np.nanargmin(np.where(beaten, 0.0, 1.0) + apart / (1.0 + apart)))]
    shape = None
    if trials.problem.model is None:
        shape = short_shape(config_of(model_at(trials.batch[row : row + 1], 0, "", None)))
    return {
        "deployments": len(rows),
        **_deployed(trials, tried, row),
        "shape": shape,
        "bottleneck": BOTTLENECKS[tried.bottleneck[row]],
        "displaces": [item["point"] for item, less in zip(items, beaten, strict=True) if less],
        "nearest": {
            "point": near["point"],
            "chip": near["deployment"]["chip"],
            "objectives": {o.metric: near["metrics"][o.metric] for o in trials.problem.objectives},
        },
    }


def _answer(found: Json) -> Answer:
    """The smallest change that lets the chip in; a row for each quantity, or why none helps."""
    chip, study = found["chip"], found["study"]
    helped = [row for row in found["requirements"] if row["entry"]]
    first = min(helped, key=lambda row: abs(math.log(row["factor"] or math.inf)), default=None)
    if on := sorted(found["on_front"]):
        some = ", ".join(map(str, on[:LISTED])) + ", ..." * (len(on) > LISTED)
        said = f"is on the front of {study} as it is, with {len(on)} of its points: {some}"
    elif entry := found["entry"]:
        said = f"enters the front of {study} as it is, best with {_entry_words(entry)}"
    elif first is None:
        said = f"enters the front of {study} by no single change"
    else:
        factor = f", {first['factor']:.4g} times what it has" if first["factor"] else ""
        what = f"a {QUANTITIES[first['quantity']]} of {first['needed']}{factor}"
        said = f"enters the front of {study} ({found['front_size']} points) with {what}"
    shown = [
        {**row, "needed_factor": row["factor"], "quantity": QUANTITIES[row["quantity"]]}
        | {"enters": row["entry"] and _entry_words(row["entry"]), "reason": _why_not(row)}
        for row in found["requirements"]
    ]
    caption = "What the chip needs, each quantity changed alone"
    keys = ("quantity", "now", "needed", "needed_factor", "enters")
    enough = [row for row in shown if row["entry"]]
    never = [row for row in shown if not row["entry"]]
    tables = (
        of_rows("requirements", caption, enough, keys),
        of_rows("never", "No value of these helps", never, ("quantity", "reason")),
    )
    blocks: list[Block] = [table for table in tables if table.rows]
    prices = [found["price"]] if found["price"] else []
    blocks += [price_parts(prices)] if prices else []
    as_it_is = {name: found[name] for name in ("chip", "study", "enters_as_it_is", "entry")}
    as_it_is["points_on_front"] = len(found["on_front"])
    return Answer(
        question="whatif",
        title=f"What {chip} needs to enter the front of {study}",
        headline=f"{chip} {said}.",
        blocks=blocks,
        rests=[*_rests(found), *rests_on(prices)],
        document=found,
        data=(table_of("data", found["requirements"] or [as_it_is]),),
    )


def _why_not(row: Json) -> str | None:
    """Why no value of a quantity helps."""
    tried = row["tried_to"]
    if row["entry"] or not (row["bound_by"] and tried):
        return row["why_not"]
    value = f"up to {tried:.3g}x" if tried >= 1 else f"down to {tried:.3g}x"
    return f"no value {value} helps: {row['why_not']}; bound by {row['bound_by']}"


def _rests(found: Json) -> list[str]:
    """What the answer rests on."""
    of = f"{found['shapes']} of the {found['shapes_of_front']} shapes of the front"
    of = "the study's model" if found["fixed_model"] else of
    lines = [f"{found['candidates']:,} deployments of {of}; prices: {found['price_basis']}."]
    if found["evaluations"] < found["size"]:
        lines.append(
            f"The search saw {found['evaluations']:,} of its {found['size']:,} points: what enters "
            "by little may be what it did not see."
        )
    if found["without_link"]:
        lines.append(
            f"{found['without_link']:,} deployments are left out: their instance needs a link "
            "whose bandwidth is not known."
        )
    lines += [f"{text}." for text in found["price_rests_on"]]
    if found["stale"]:
        lines.append(
            "The hardware data or prices are not those of the study: run it again to compare alike."
        )
    return lines


def _entry_words(entry: Json) -> str:
    """`8 mi300x TP8 fp8/fp8 c64: $/M 0.07; beside point 3 of h200_sxm`."""
    deployed = short_deployment(entry["deployment"])
    deployed = f"{entry['shape']} on {deployed}" if entry["shape"] else deployed
    values = [f"{label(name).short} {show(name, v)}" for name, v in entry["objectives"].items()]
    near, beaten = entry["nearest"], sorted(entry["displaces"])
    then = f"beside point {near['point']} of {near['chip']}"
    if beaten:
        then = f"displaces point{'s' * (len(beaten) > 1)} {spans(beaten)}"
    return f"{deployed}: {', '.join(values)}; {then}"


# By figure, its name in `dse.schema.derive`; power is a cap.
DOUBLED = {
    "FLOP/s": "flops",
    "memory bandwidth": "bandwidth",
    "memory capacity": "capacity",
    "link bandwidth": "link_bandwidth",
    "network bandwidth": "network_bandwidth",
    "power": "",
}
TRAINING, ONE_USER, LOAD = "training", "one user's token", "served under load"
# Model and the chips that train it where no model is asked for: small and large, dense and sparse.
MODELS = {"llama-3-8b": 1024, "llama-3.1-405b": 16_384, "gpt-oss-20b": 512, "deepseek-v3": 2048}
TOKENS, WEIGHTS = "15T", "fp8"
GROUPS = (1, 2, 4, 8, 16, 32, 64)
LOADS = tuple(round(2 ** (k / 2)) for k in range(0, 23))  # requests in flight a chip
# Seconds of a task on a chip of a catalog under a power cap; None where nothing fits.
Time = Callable[[Catalog, str, str | None], float | None]


def doubled(
    catalog: Catalog,
    chips: Sequence[str],
    models: Mapping[str, int],
    load: Json,
    tpot_limit_s: float,
    price_basis: str,
    progress: Progress,
) -> Part:
    """Each task of each of `models`, by the chips that train it, and each figure of `chips`; the
    mean over the models; and dollars per unit of the figures of every chip with a price. Tasks that
    a chip cannot do are left out. `load`: prompt and output tokens."""
    catalog = with_basis(catalog, OWNED)
    prices = catalog.prices.select(price_basis)
    rows: list[dict[str, Any]] = []
    means: list[dict[str, Any]] = []
    for chip in chips:
        price = prices[chip].usd_per_chip_hour if chip in prices else None
        changed = {figure: _changed(catalog, chip, figure) for figure in DOUBLED}
        mine: list[dict[str, Any]] = []
        for model, trainers in models.items():
            progress(f"{chip}: {model}")
            for task, time, count in _tasks(catalog, chip, model, trainers, load, tpot_limit_s):
                if (now := time(catalog, chip, None)) is None:
                    continue
                for figure, to in changed.items():
                    capped = task == TRAINING and figure == "power"
                    then = None if to is None or capped else time(*to)
                    mine.append(
                        {"chip": chip, "task": task, "model": model, "chips": count}
                        | {"figure": figure, "seconds": now, **_moved(now, then, figure, price)}
                    )
        for task, figure in product(dict.fromkeys(row["task"] for row in mine), DOUBLED):
            of = [row["change"] for row in mine if (row["task"], row["figure"]) == (task, figure)]
            known = [change for change in of if change is not None]
            mean = sum(known) / len(known) if known else None
            means.append({"chip": chip, "task": task, "figure": figure, "change": mean})
        rows += mine
    units = unit_prices(catalog)
    facts = {"doubled": rows, "doubled_mean": means, "unit_prices": units}
    said = [_said(chip, [row for row in means if row["chip"] == chip]) for chip in chips]
    return Part(facts, said, _shown(rows, means, units))


def _changed(catalog: Catalog, chip: str, figure: str) -> tuple[Catalog, str, str | None] | None:
    """The catalog, chip and power cap with twice the figure; of power, with half of it. None where
    the chip has no such figure."""
    if figure == "power":
        watts = catalog.chip(chip).tdp_w
        return None if watts is None else (catalog, chip, f"{watts / 2:g} W")
    try:
        own = derive(catalog, chip, [f"{DOUBLED[figure]}=2x"])
    except InputError:
        return None
    return with_own_chips(catalog, [own]), own.chip.id, None


def _moved(now: float, then: float | None, figure: str, price: float | None) -> dict[str, Any]:
    """Of power, `then` is at half of it: the change from there up to all of it."""
    if then is None:
        return dict.fromkeys(("change", "elasticity", "worth_usd_per_chip_hour"))
    ratio = now / then if figure == "power" else then / now
    worth = None if price is None or figure == "power" else price * (1.0 / ratio - 1.0)
    elasticity = math.log(ratio) / math.log(2.0) + 0.0
    return {
        "change": ratio - 1.0,
        "elasticity": elasticity,
        "worth_usd_per_chip_hour": worth,
    }


def _tasks(
    catalog: Catalog,
    chip: str,
    model: str,
    chips: int,
    load: Json,
    tpot_limit_s: float,
) -> list[tuple[str, Time, int]]:
    """Each task, the seconds that it takes, its chips: training, and serving on the fewest chips, a
    power of two, that hold the model for one request."""
    sparse = bool(load_model(model).experts)

    def trained(of: Catalog, name: str, cap: str | None) -> float | None:
        """A token of training on the best plan."""
        found = train(model, name, chips, tokens=TOKENS, catalog=of).document
        return chips / found["tokens_per_s"] if found["feasible"] else None

    def served(of: Catalog, name: str, cap: str | None, group: int, flight: int) -> Any:
        own = {"tp": group, "ep": group if sparse else 1, "concurrency": flight}
        try:
            found = estimate(
                model, name, **own, **load, weight_dtype=WEIGHTS, power_cap=cap, catalog=of
            ).document
        except (InputError, NothingFeasible):
            return None
        return found if found["feasible"] else None

    def token(of: Catalog, name: str, cap: str | None) -> float | None:
        """A token of one user."""
        found = served(of, name, cap, group, 1)
        return None if found is None else float(found["tpot_s"])

    def loaded(of: Catalog, name: str, cap: str | None) -> float | None:
        """Chip-seconds of an output token at the load that reaches the limit, between the last one
        that keeps it and the next."""
        last: tuple[float, float] | None = None
        for flight in LOADS:
            found = served(of, name, cap, group, flight * group)
            if found is None:
                break
            tpot_s, cost = found["tpot_s"], 1.0 / found["output_tokens_per_s_per_chip"]
            if tpot_s > tpot_limit_s:
                if last is None:
                    return None
                part = (tpot_limit_s - last[0]) / (tpot_s - last[0])
                return last[1] + part * (cost - last[1])
            last = tpot_s, cost
        return last and last[1]

    tasks: list[tuple[str, Time, int]] = [(TRAINING, trained, chips)]
    fits = (size for size in GROUPS if served(catalog, chip, None, size, 1) is not None)
    if group := next(fits, 0):
        tasks += [(ONE_USER, token, group), (LOAD, loaded, group)]
    return tasks


def unit_prices(catalog: Catalog) -> list[dict[str, Any]]:
    """Dollars a chip-hour over its dense 16-bit PFLOP/s, TB/s of memory and 100 GB, by chip and
    price basis, the oldest first."""
    rows = []
    for basis in catalog.prices.bases():
        for chip, price in catalog.prices.select(basis).items():
            if (spec := catalog.chips.get(chip)) is None:
                continue
            hour, peak = price.usd_per_chip_hour, spec.peak_flops_per_s.get("bf16")
            bandwidth = spec.memories[0].bytes_per_s
            rows.append(
                {
                    "chip": chip,
                    "year": spec.year,
                    "basis": basis,
                    "usd_per_chip_hour": hour,
                    "usd_per_pflop": hour / (peak / 1e15) if peak else None,
                    "usd_per_tb_per_s": hour / (bandwidth / 1e12) if bandwidth else None,
                    "usd_per_100_gb": hour / (spec.capacity_bytes / 1e11),
                }
            )
    return sorted(rows, key=lambda row: (row["basis"], row["year"] or 0, row["chip"]))


def _said(chip: str, means: Sequence[Json]) -> str:
    """By which figure each task of a chip gains most."""
    said = []
    for task in dict.fromkeys(row["task"] for row in means):
        known = [row for row in means if row["task"] == task and row["change"] is not None]
        if known:
            first = min(known, key=lambda row: row["change"])
            said.append(f"{task} most by {first['figure']} ({share(first['change'])})")
    if not said:
        return f"Nothing fits on {chip}."
    return f"Twice a figure of {chip} shortens {', '.join(said)}."


def _shown(rows: Sequence[Json], means: Sequence[Json], units: Sequence[Json]) -> list[Any]:
    names = list(dict.fromkeys(f"{row['chip']}, {row['task']}: {row['model']}" for row in rows))
    by_figure = {
        figure: [row["elasticity"] for row in rows if row["figure"] == figure] for figure in DOUBLED
    }
    across = "elasticity of time: -1 halves it with twice the figure"
    shows = "Bars of how far the time of each task falls with each figure of the chip."
    keys = ("chip", "task", "model", "chips", "figure", "change", "worth_usd_per_chip_hour")
    prices = ("usd_per_chip_hour", "usd_per_pflop", "usd_per_tb_per_s", "usd_per_100_gb")
    prices = ("chip", "year", "basis", *prices)
    caption = "Change of chip-seconds with twice a figure"
    per_unit = "Dollars per chip-hour for each PFLOP/s (dense, 16 bits), TB/s and 100 GB"
    return [
        bar_chart("doubled", "What each figure does", names, by_figure, across, shows),
        of_rows("doubled_mean", f"{caption}, mean", means, ("chip", "task", "figure", "change")),
        of_rows("doubled", caption, rows, keys, on_console=len(names) < 4),
        of_rows("unit_prices", per_unit, units, prices, on_console=False),
    ]
