"""What a chip must have to enter a front: the smallest change of one figure at which one of its
deployments is beaten by no point of the front.

A deployment enters where it keeps every constraint and no front point is as good in every
objective, to within `trials.MARGIN`. Each quantity is changed alone; all others stay as the chip
has them. A better bandwidth, peak, link or price makes no deployment worse, so that "enters" is
monotone in them and is bisected. Capacity admits more requests at once, a domain regroups
collectives, and power may move a clock: these are scanned on a grid, and bisected within the first
step that enters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse import units
from dse.answer.answer import Answer, Block, Column, Notes, Table, table_of
from dse.catalog import Catalog
from dse.economics.priced import inputs_words, price_assumptions, price_documents, price_parts
from dse.errors import InputError
from dse.physics.serving import BOTTLENECKS
from dse.problem.describe import describe_deployment
from dse.problem.objective import KNOWN, on_terms, pose
from dse.problem.shapes import model_at
from dse.problem.words import SHORT, short_deployment, short_shape, show, spans
from dse.rules.registry import STRUCTURAL
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.own_config import config_of, model_of
from dse.space.studied import count_deployments, deployments
from dse.study.definition import reopened
from dse.study.folder import FRONT
from dse.study.trials import Trials, Tried, gap

Json = Mapping[str, Any]
MOST = 16.0  # the largest factor that is tried, and one over the smallest
FINE = 1.0005  # bisection ends where the two ends are this close
MOST_SHAPES, MOST_CANDIDATES = 200, 100_000
DEAREST, CHEAPEST = 1e4, 1e-4  # USD per chip-hour, for a chip without a price
LISTED = 12
# Rules that no figure of a chip can mend.
FIXED_RULES = (*STRUCTURAL, "offload_tier_exists", "offload_tier_capacity")
Progress = Callable[[str, int, int], None]
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
    folder: Path,
    chip: str,
    catalog: Catalog,
    *,
    space: str | None = None,
    progress: Progress = lambda name, done, total: None,
) -> dict[str, Any]:
    """The document of `dse whatif --require --json`.

    Raises InputError for a folder that is no study, a space file that has changed since, a chip
    that lacks a figure of every estimate.
    """
    found = reopened(folder, catalog, space)
    document, items, study = found.document, found.items, found.study
    stale = document["data_digest"] != replace(catalog.source, chips=()).over(document).digest()
    catalog = on_terms(found.catalog.with_files(study.chip_files), study)
    catalog.require(chip)
    problem = pose(study, catalog)
    front = np.array(
        [[o.sign * item["metrics"][o.metric] for o in problem.objectives] for item in items]
    )
    shapes = _shapes(items)
    most = MOST_CANDIDATES // max(count_deployments(study), 1)
    most = max(min(MOST_SHAPES, most, len(shapes)), 1)
    kept = [shapes[k] for k in np.unique(np.linspace(0, len(shapes) - 1, most).astype(int))]
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
        "shapes_of_front": len(shapes),
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
        for k, name in enumerate(QUANTITIES):
            progress(name, k, len(QUANTITIES))
            answer["requirements"].append(_requirement(trials, name, items, now))
    return answer


def _shapes(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The distinct shapes of a front, in its order."""
    seen: dict[str, Mapping[str, Any]] = {}
    for item in items:
        config = item["model"]
        named = {key: value for key, value in config.items() if key not in ("name", "id")}
        seen.setdefault(json.dumps(named, sort_keys=True), config)
    return list(seen.values())


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
            field="--from",
            accepted="a chip with the links that its instances need",
        )
    trials.batch = batch[keep]
    return len(keep), int((sound & unlinked).sum())


def _requirement(trials: Trials, name: str, items: Sequence[Json], now: Tried) -> dict[str, Any]:
    """One row of `requirements`."""
    row: dict[str, Any] = {
        "quantity": name,
        "now": None,
        "needed": None,
        "factor": None,
        "setting": None,
        "method": "scan" if name in GRIDS else "bisection",
        "tried_to": 1 / MOST if name in DOWN else MOST,
        "entry": None,
        "why_not": None,
        "bound_by": None,
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

    grid, sign = GRIDS.get(name, ()), -1.0 if name in DOWN else 1.0
    low, high, tried = 1.0, MOST**sign, None
    same = {"tried_to": high, "why_not": "it changes no objective and no constraint"}
    if name == "tdp" and _same(at(high), now):
        return same
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
        if _same(tried, now):
            return same | {"tried_to": high}
        return _not_at_all(trials, tried, low if grid else high)
    if name != "domain":
        # Where a figure makes no objective worse, what is beaten with more of it is with less.
        rows = None if grid else np.flatnonzero(_unbeaten(trials, tried))
        high = _bisect(lambda factor: bool(at(factor, rows).enters.any()), low, high)
        high = _outward(high, sign > 0.0)
        tried = at(high)
    setting = f"{name}={high:.12g}x"
    return {
        "factor": high,
        **_values(trials, setting),
        "setting": setting,
        "changes": list(derive(trials.catalog, trials.chip, [setting]).chip.changes),
        "entry": _entry(trials, tried, items),
    }


def _same(one: Tried, other: Tried) -> bool:
    pairs = ((one.found.F, other.found.F), (one.found.G, other.found.G))
    return all(np.array_equal(a, b) for a, b in pairs)


def _unbeaten(trials: Trials, tried: Tried) -> np.ndarray:
    """(n,) candidates that no front point is as good as everywhere, feasible or not."""
    F = tried.found.F
    beaten = np.zeros(len(F), dtype=bool)
    for point in trials.front:  # over the front, not over candidates
        beaten |= (point <= F).all(axis=1)
    return ~beaten


def _values(trials: Trials, setting: str) -> dict[str, Any]:
    """What the chip has and what it needs, as text: the first figure that the setting changes."""
    own = derive(trials.catalog, trials.chip, [setting])
    before = trials.catalog.chip(trials.chip)
    pairs = [(f, own.chip.figure(f.name)) for f in before.figures]
    if own.system is not None:
        after = {figure.name: figure for figure in own.system.figures}
        pairs += [(f, after.get(f.name)) for f in trials.catalog.systems[before.system].figures]
    changed = [(a, b) for a, b in pairs if b is not None and a.text != b.text]
    if not changed:
        return {}
    a, b = changed[0]
    return {"now": a.text, "needed": units.format(b.value, b.unit, 4)}


def _price(trials: Trials, items: Sequence[Json]) -> dict[str, Any]:
    """The highest price per chip-hour at which the chip enters."""
    price, machines = trials.price(), trials.machines(None)
    low, high = (price, price / MOST) if price else (DEAREST, CHEAPEST)

    def at(usd: float, rows: np.ndarray | None = None) -> Tried:
        return trials.try_(replace(machines, usd_per_chip_hour=np.array([usd])), rows)

    tried = at(high)
    found = {
        "now": None if price is None else f"{price:.4g} USD/h",
        "tried_to": high / low if price else None,
    }
    if not tried.enters.any():
        return {"now": found["now"], **_not_at_all(trials, tried, found["tried_to"])}
    rows = np.flatnonzero(tried.enters)
    if not price and (dearest := at(low, rows)).enters.any():
        needed = f"any up to {low:,.0f} USD/h"
        return {"tried_to": None, "needed": needed, "entry": _entry(trials, dearest, items)}
    usd = _outward(_bisect(lambda one: bool(at(one, rows).enters.any()), low, high), up=False)
    setting = f"price.{trials.basis}={usd:.12g}USD/h"
    return {
        **found,
        "needed": f"{usd:.4g} USD/h",
        "factor": usd / price if price else None,
        "setting": None if trials.basis == OWNED else setting,
        "changes": [],
        "entry": _entry(trials, at(usd), items),
    }


def _bisect(enters: Callable[[float], bool], low: float, high: float) -> float:
    """The end of the interval at which it enters, once the two are within FINE. `low` does not
    enter and `high` does; they may lie either way."""
    while max(high / low, low / high) > FINE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enters(middle) else (middle, high)
    return high


def _outward(value: float, up: bool) -> float:
    """Four significant digits, rounded to the side that enters."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    steps = math.ceil(value / unit) if up else math.floor(value / unit)
    return float(f"{steps * unit:.4g}")


def _not_at_all(trials: Trials, tried: Tried, factor: float | None) -> dict[str, Any]:
    """Why no value helps: what bounds the candidate that comes nearest, or the constraint that
    removes most where none is feasible."""
    feasible = np.flatnonzero((tried.found.G <= 0.0).all(axis=1))
    if not len(feasible):
        broken = (tried.found.G > 0.0).sum(axis=0)
        worst = trials.problem.constraints[int(np.argmax(broken))]
        share = f"; {worst} removes {broken.max() / len(tried.found.G):.0%} of them"
        words = "no deployment keeps the constraints"
        why = f"{words}: no price" if worst == KNOWN else f"{words}{share}"
        return {"tried_to": factor, "why_not": why, "bound_by": worst}
    gaps = gap(trials.front, tried.found.F[feasible])
    nearest, least = int(feasible[np.argmin(gaps)]), float(gaps.min())
    if least < 1.001:
        why = "the nearest deployment is as good as the front, within 0.1%, and not better"
    else:
        by = f"{least:.3g} times" if least >= 1.1 else f"{least - 1:.1%}"
        why = f"the nearest deployment would have to be {by} better"
    return {
        "tried_to": factor,
        "why_not": why,
        "bound_by": BOTTLENECKS[tried.bottleneck[nearest]],
        "nearest": {
            "deployment": _deployment(trials, tried, nearest),
            "gap": least,
            "objectives": _objectives(trials, tried, nearest),
        },
    }


def _deployment(trials: Trials, tried: Tried, row: int) -> dict[str, Any]:
    found = describe_deployment(trials.batch[row : row + 1], 0, tried.machines)
    return {**found, "chip": trials.chip}


def _objectives(trials: Trials, tried: Tried, row: int) -> dict[str, float]:
    signs = [(o.metric, o.sign) for o in trials.problem.objectives]
    return {name: sign * float(tried.found.F[row, j]) for j, (name, sign) in enumerate(signs)}


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
        "deployment": _deployment(trials, tried, row),
        "shape": shape,
        "objectives": _objectives(trials, tried, row),
        "bottleneck": BOTTLENECKS[tried.bottleneck[row]],
        "displaces": [item["point"] for item, less in zip(items, beaten, strict=True) if less],
        "nearest": {
            "point": near["point"],
            "chip": near["deployment"]["chip"],
            "objectives": {o.metric: near["metrics"][o.metric] for o in trials.problem.objectives},
        },
    }


def require_answer(document: Json) -> Answer:
    """`document` is that of `required`."""
    helped = [row for row in document["requirements"] if row["entry"]]
    blocks: list[Block] = [_table(helped)] if helped else []
    if refused := _refused(document):
        blocks.append(Notes("No value of these helps", refused))
    prices = [document["price"]] if document["price"] else []
    as_it_is = {name: document[name] for name in ("chip", "study", "enters_as_it_is", "entry")}
    as_it_is["points_on_front"] = len(document["on_front"])
    return Answer(
        question="whatif",
        title=f"What {document['chip']} needs to enter the front of {document['study']}",
        headline=_headline(document, helped),
        blocks=[*blocks, *([price_parts(prices)] if prices else [])],
        rests=[*_basis(document), *inputs_words(prices)],
        document=document,
        data=() if helped else (table_of("data", document["requirements"] or [as_it_is]),),
    )


def _headline(document: Json, helped: Sequence[Json]) -> str:
    chip, study = document["chip"], document["study"]
    if document["on_front"]:
        points = sorted(document["on_front"])
        some = ", ".join(map(str, points[:LISTED])) + ", ..." * (len(points) > LISTED)
        return (
            f"{chip} is on the front of {study} as it is, with {len(points)} of its "
            f"{document['front_size']} points: {some}."
        )
    if document["enters_as_it_is"]:
        entry = document["entry"]
        return (
            f"{chip} enters the front of {study} as it is, with {entry['deployments']} "
            f"deployments; the best of them: {_entry_words(entry)}."
        )
    if not helped:
        return f"No single change of {chip} brings it onto the front of {study}."
    first = min(helped, key=lambda row: abs(math.log(row["factor"] or math.inf)))
    factor = f", {first['factor']:.4g} times what it has" if first["factor"] else ""
    return (
        f"{chip} enters the front of {study} ({document['front_size']} points) with a "
        f"{QUANTITIES[first['quantity']]} of {first['needed']}{factor}"
        + (", the smallest change that does it alone." if len(helped) > 1 else ".")
    )


def _table(helped: Sequence[Json]) -> Table:
    columns = (
        Column("quantity", "quantity", of=lambda row: QUANTITIES[row["quantity"]]),
        Column("now", "has", right=True),
        Column("needed", "needs", right=True),
        Column("factor", "factor", "number"),
        Column("enters", "enters as", of=lambda row: _entry_words(row["entry"])),
    )
    caption = "What the chip needs, each quantity changed alone"
    return Table.of("requirements", caption, helped, columns)


def _refused(document: Json) -> list[str]:
    """A sentence for the quantities of which no value helps, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in document["requirements"]:
        if row["entry"]:
            continue
        tried, why = row["tried_to"], row["why_not"]
        if row["bound_by"] and tried:
            value = f"up to {tried:.3g}x" if tried >= 1 else f"down to {tried:.3g}x"
            why = f"no value {value} helps: {why}; bound by {row['bound_by']}"
        reasons.setdefault(why, []).append(QUANTITIES[row["quantity"]])
    return [f"{', '.join(names)}: {why}." for why, names in reasons.items()]


def _basis(document: Json) -> list[str]:
    """What the answer rests on."""
    shapes = (
        "the study's model"
        if document["fixed_model"]
        else f"{document['shapes']} of the {document['shapes_of_front']} shapes of the front"
    )
    lines = [
        f"{document['candidates']:,} deployments of {shapes}; prices: {document['price_basis']}."
    ]
    if document["requirements"]:
        lines.append(
            f"Each quantity is changed alone, the others as {document['chip']} has them. "
            "Capacity, domain and power: the first step of a grid that enters, refined within it; "
            "the others: bisection. Predictions as they stand, without their intervals."
        )
    if document["evaluations"] < document["size"]:
        lines.append(
            f"The search saw {document['evaluations']:,} of its {document['size']:,} points: what "
            "enters by little may be what it did not see."
        )
    if document["without_link"]:
        lines.append(
            f"{document['without_link']:,} deployments are left out: their instance needs a link "
            "whose bandwidth is not known."
        )
    lines += [f"{text}." for text in document["price_rests_on"]]
    if document["stale"]:
        lines.append(
            "The hardware data or prices are not those of the study: run it again to compare alike."
        )
    return lines


def _entry_words(entry: Json) -> str:
    """`8 mi300x TP8 fp8/fp8 c64, $/M 0.07, joins the front beside point 3 of h200_sxm`."""
    deployed = short_deployment(entry["deployment"])
    deployed = f"{entry['shape']} on {deployed}" if entry["shape"] else deployed
    values = [f"{SHORT.get(name, name)} {show(name, v)}" for name, v in entry["objectives"].items()]
    near = entry["nearest"]
    then = f"joins the front beside point {near['point']} of {near['chip']}"
    if entry["displaces"]:
        beaten = sorted(entry["displaces"])
        then = f"displaces point{'s' * (len(beaten) > 1)} {spans(beaten)}"
    return f"{deployed}: {', '.join(values)}; {then}"
