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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dse import units
from dse.catalog import Catalog
from dse.economics.priced import price_assumptions, price_documents
from dse.errors import InputError
from dse.physics.serving import BOTTLENECKS
from dse.problem.describe import describe_deployment
from dse.problem.objective import KNOWN, on_terms, pose
from dse.problem.shapes import model_at
from dse.problem.words import short_shape
from dse.rules.registry import STRUCTURAL
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.loader import did_you_mean
from dse.schema.own_config import config_of, model_of
from dse.schema.study import load_study, resolve_space
from dse.space.candidates import CandidateBatch
from dse.space.studied import count_deployments, deployments
from dse.study.folder import FRONT, read_study, space_of
from dse.study.trials import Trials, Tried, gap

MOST = 16.0  # the largest factor that is tried, and one over the smallest
FINE = 1.0005  # bisection ends where the two ends are this close
MOST_SHAPES, MOST_CANDIDATES = 200, 100_000
DEAREST, CHEAPEST = 1e4, 1e-4  # USD per chip-hour, for a chip without a price
# Rules that no figure of a chip can mend.
FIXED_RULES = (*STRUCTURAL, "offload_tier_exists", "offload_tier_capacity")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure to vary, under the name that `derive` takes. `up`: more of it is tried. `grid` holds
    the factors of a scan, empty where "enters" is monotone."""

    name: str
    up: bool
    grid: tuple[float, ...] = ()


_FINE_GRID = tuple(2.0 ** (k / 4) for k in range(1, 17))
QUANTITIES = {
    "hbm_bandwidth": Quantity("hbm_bandwidth", up=True),
    "capacity": Quantity("capacity", up=True, grid=_FINE_GRID),
    "flops": Quantity("flops", up=True),
    "link": Quantity("link", up=True),
    "domain": Quantity("domain", up=True, grid=(2.0, 4.0, 8.0, 16.0)),
    "price": Quantity("price", up=False),
    "tdp": Quantity("tdp", up=False, grid=_FINE_GRID),
}


def required(
    folder: Path,
    chip: str,
    catalog: Catalog,
    vary: Sequence[str] = tuple(QUANTITIES),
    *,
    space: str | None = None,
    margin: float = 0.0,
    progress: Progress = lambda name, done, total: None,
) -> dict[str, Any]:
    """The document of `dse whatif --require --json`.

    Raises InputError for a folder that is no study, a space file that has changed since, a chip
    that lacks a figure of every estimate, and an unknown quantity.
    """
    for name in vary:
        if name not in QUANTITIES:
            message = f"unknown quantity {name!r}{did_you_mean(name, QUANTITIES)}"
            raise InputError(message, field="--vary", accepted=", ".join(QUANTITIES))
    document, items = read_study(folder)
    file = resolve_space(space) if space else space_file_of(document, folder)
    stale = document["data_digest"] != replace(catalog.source, chips=()).over(document).digest()
    catalog = catalog.over(document)
    study = load_study(file, catalog, document.get("quality_law"))
    catalog = on_terms(catalog.with_files(study.chip_files), study)
    catalog.require(chip)
    rests_on = price_assumptions(catalog, chip, study.price_basis)
    if study.fingerprint != document["fingerprint"]:
        raise InputError(
            f"{study.path} is not the space that {folder} was made from",
            field="--space",
            accepted="that space file, or a new `dse run` of this one",
        )
    problem = pose(study, catalog)
    front = np.array(
        [[o.sign * item["metrics"][o.metric] for o in problem.objectives] for item in items]
    )
    shapes = _shapes(items)
    deployments_each = count_deployments(study)
    most = max(min(MOST_SHAPES, MOST_CANDIDATES // max(deployments_each, 1)), 1)
    kept = _spread(shapes, most)
    models = [
        model_of(config, str(folder / FRONT)) if problem.model is None else problem.model
        for config in kept
    ]
    batch = deployments(study, models, kept)
    trials = Trials(problem, catalog, chip, batch, front, margin)
    first, without_link = _possible(trials)
    price = trials.price()
    now = trials.try_(trials.machines(None))
    answer: dict[str, Any] = {
        "study": document["space"],
        "chip": chip,
        "price_basis": study.price_basis,
        "usd_per_chip_hour": price,
        "front_size": len(items),
        "shapes": len(kept),
        "shapes_of_front": len(shapes),
        "fixed_model": problem.model is not None,
        "candidates": first,
        "margin": margin,
        "evaluations": document["evaluations"],
        "size": problem.space.size,
        "without_link": without_link,
        "stale": stale,
        "price_rests_on": rests_on,
        "price": next(iter(price_documents(catalog, [chip], study.price_basis)), None),
        "on_front": [item["point"] for item in items if item["deployment"]["chip"] == chip],
        "enters_as_it_is": bool(now.enters.any()),
        "entry": _entry(trials, now, items) if now.enters.any() else None,
        "requirements": [],
    }
    if answer["on_front"] or answer["enters_as_it_is"]:
        return answer
    for k, name in enumerate(vary):
        progress(name, k, len(vary))
        answer["requirements"].append(_requirement(trials, QUANTITIES[name], items, now))
    return answer


def space_file_of(document: Mapping[str, Any], folder: Path | str) -> Path:
    """The file of that space. Raises InputError where it does not lie where the study was made."""
    named = space_of(document)
    try:
        return resolve_space(named)
    except InputError:
        raise InputError(
            f"{folder} was made from the space file {named}, which is not here",
            field="STUDY",
            accepted="a command given where `dse run` was, or a new `dse run`",
        ) from None


def _shapes(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The distinct shapes of a front, in its order."""
    seen: dict[str, Mapping[str, Any]] = {}
    for item in items:
        config = item["model"]
        named = {key: value for key, value in config.items() if key not in ("name", "id")}
        seen.setdefault(json.dumps(named, sort_keys=True), config)
    return list(seen.values())


def _spread(shapes: list[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """At most so many, evenly along the front."""
    keep = np.unique(np.linspace(0, len(shapes) - 1, min(len(shapes), most)).astype(int))
    return [shapes[k] for k in keep]


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


def _requirement(
    trials: Trials, quantity: Quantity, items: Sequence[Mapping[str, Any]], now: Tried
) -> dict[str, Any]:
    """One row of `requirements`."""
    row: dict[str, Any] = {
        "quantity": quantity.name,
        "now": None,
        "needed": None,
        "factor": None,
        "setting": None,
        "method": "scan" if quantity.grid else "bisection",
        "tried_to": MOST if quantity.up else 1 / MOST,
        "entry": None,
        "why_not": None,
        "bound_by": None,
    }
    costs = np.isfinite(now.found.F).all(axis=1).any()
    if quantity.name != "price" and not costs:
        basis = trials.basis
        row["why_not"] = f"{trials.chip} has no price on basis {basis}: see the price it needs"
        return row
    try:
        if quantity.name == "price":
            return row | _price(trials, items)
        return row | _figure(trials, quantity, items, now)
    except InputError as error:
        row["why_not"] = error.message
        return row


def _figure(
    trials: Trials, quantity: Quantity, items: Sequence[Mapping[str, Any]], now: Tried
) -> dict[str, Any]:
    """The smallest factor of a figure, its value and what then enters."""

    def at(factor: float, rows: np.ndarray | None = None) -> Tried:
        return trials.try_(trials.machines(f"{quantity.name}={factor:.12g}x"), rows)

    sign = 1.0 if quantity.up else -1.0
    low, high, tried = 1.0, MOST**sign, None
    if quantity.name == "tdp" and _same(at(high), now):
        return {"tried_to": high, "why_not": "it changes no objective and no constraint"}
    if quantity.grid:
        for step in quantity.grid:
            high = step**sign
            try:
                tried = at(high)
            except InputError:
                if tried is None:
                    raise
                break  # a domain that the level around it bounds: what was tried before stands
            if tried.enters.any():
                break
            low = high
    else:
        tried = at(high)
    assert tried is not None
    if not tried.enters.any():
        if _same(tried, now):
            return {"tried_to": high, "why_not": "it changes no objective and no constraint"}
        return _not_at_all(trials, tried, low if quantity.grid else high)
    if quantity.name != "domain":
        # Where a figure makes no objective worse, what is beaten with more of it is with less.
        rows = None if quantity.grid else np.flatnonzero(_unbeaten(trials, tried))
        high = _bisect(lambda factor: bool(at(factor, rows).enters.any()), low, high)
        high = _outward(high, quantity.up)
        tried = at(high)
    setting = f"{quantity.name}={high:.12g}x"
    changes = derive(trials.catalog, trials.chip, [setting]).chip.changes
    return {
        "factor": high,
        **_values(trials, setting),
        "setting": setting,
        "changes": list(changes),
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


def _price(trials: Trials, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The highest price per chip-hour at which the chip enters."""
    price = trials.price()
    low, high = (price, price / MOST) if price else (DEAREST, CHEAPEST)
    machines = trials.machines(None)

    def at(usd: float, rows: np.ndarray | None = None) -> Tried:
        return trials.try_(replace(machines, usd_per_chip_hour=np.array([usd])), rows)

    tried = at(high)
    now = None if price is None else f"{price:.4g} USD/h"
    tried_to = high / low if price else None
    if not tried.enters.any():
        return {"now": now, **_not_at_all(trials, tried, tried_to)}
    rows = np.flatnonzero(tried.enters)
    if not price and at(low, rows).enters.any():
        any_price = {
            "needed": f"any up to {low:,.0f} USD/h",
            "entry": _entry(trials, at(low), items),
        }
        return {"tried_to": None, **any_price}
    usd = _outward(_bisect(lambda one: bool(at(one, rows).enters.any()), low, high), up=False)
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
        words = "no deployment keeps the constraints"
        if worst == KNOWN:
            return {"tried_to": factor, "why_not": f"{words}: no price", "bound_by": worst}
        share = broken.max() / len(tried.found.G)
        return {
            "tried_to": factor,
            "why_not": f"{words}; {worst} removes {share:.0%} of them",
            "bound_by": worst,
        }
    gaps = gap(trials.front, tried.found.F[feasible])
    nearest = int(feasible[np.argmin(gaps)])
    bound = BOTTLENECKS[tried.bottleneck[nearest]]
    deployment = describe_deployment(trials.batch[nearest : nearest + 1], 0, tried.machines)
    return {
        "tried_to": factor,
        "why_not": _distance(float(gaps.min())),
        "bound_by": bound,
        "nearest": {
            "deployment": {**deployment, "chip": trials.chip},
            "gap": float(gaps.min()),
            "objectives": _objectives(trials, tried, nearest),
        },
    }


def _distance(gap: float) -> str:
    if gap < 1.0:
        return "the nearest deployment is better by less than the margin"
    if gap < 1.001:
        return "the nearest deployment is as good as the front, within 0.1%, and not better"
    by = f"{gap:.3g} times" if gap >= 1.1 else f"{gap - 1:.1%}"
    return f"the nearest deployment would have to be {by} better"


def _objectives(trials: Trials, tried: Tried, row: int) -> dict[str, float]:
    signs = [(o.metric, o.sign) for o in trials.problem.objectives]
    return {name: sign * float(tried.found.F[row, j]) for j, (name, sign) in enumerate(signs)}


def _entry(trials: Trials, tried: Tried, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The deployment that enters by most, the front points that it beats, and the nearest one."""
    rows = np.flatnonzero(tried.enters)
    row = int(rows[np.argmin(gap(trials.front, tried.found.F[rows]))])
    F = tried.found.F[row]
    beaten = (trials.front >= F).all(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(np.log(np.abs(trials.front / F))).max(axis=1)
    near = items[int(np.nanargmin(np.where(beaten, 0.0, 1.0) + apart / (1.0 + apart)))]
    one = trials.batch[row : row + 1]
    deployment = describe_deployment(one, 0, tried.machines)
    shape = None
    if trials.problem.model is None:
        shape = _shape_words(one)
    return {
        "deployments": len(rows),
        "deployment": {**deployment, "chip": trials.chip},
        "shape": shape,
        "objectives": _objectives(trials, tried, row),
        "bottleneck": BOTTLENECKS[tried.bottleneck[row]],
        "displaces": [
            item["point"] for item, is_beaten in zip(items, beaten, strict=True) if is_beaten
        ],
        "nearest": {
            "point": near["point"],
            "chip": near["deployment"]["chip"],
            "objectives": {o.metric: near["metrics"][o.metric] for o in trials.problem.objectives},
        },
    }


def _shape_words(batch: CandidateBatch) -> str:
    return short_shape(config_of(model_at(batch, 0, "", None)))
