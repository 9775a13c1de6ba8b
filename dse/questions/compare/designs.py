"""Published designs against the front of a space: `dse compare SPACE MODEL`, `rediscovery/NAME`.

By cause: the design and the cheapest shape that is as good differ in a few choices (GROUPS, those
of experts taken together). Each set of them is swapped, and the shape served on its best
deployment: ln(price) + exchange x loss says what it costs at equal quality. What one choice is
worth depends on those made before it, so the mean over all orders is taken (the value of Shapley
1953), over those of which every shape on the way can be served. The shares add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import bar_chart, document, frame, stacked
from dse.answer.numbers import dollars, times
from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.intervals import interval
from dse.problem.objective import PhysicsProblem, pose
from dse.problem.shapes import (
    OF_SHAPES,
    Adapt,
    Distance,
    Front,
    Place,
    Shapes,
    axis_values,
    best_deployments,
    distance,
    exchange,
    front_of,
    joined,
    metrics_of,
    places,
    price_metric,
    shapes_of,
    stored_as,
    tabled,
)
from dse.quality import LAWS
from dse.record import record
from dse.schema.calibration import KINDS
from dse.schema.study import Case
from dse.space.candidates import CandidateBatch, Floats

Progress = Callable[[str, int, int], None]
NEAR = 300  # shapes that are served again where an assumption changes prices
MOST_CHOICES = 7  # more have too many orders
LEVEL = 0.05  # a price within it of the front's is level with the front
SMALL = 0.02  # a change of less is not named
# Memory is named where the weights take so much less of it, and so many times the requests run.
LESS, MORE = 0.1, 1.25
WORDS = {
    "front": "the shapes, each on its cheapest deployment, that no other beats in both predicted "
    "loss and price",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
}
SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHAPE = (*SHAPE, "intermediate_size", "num_experts", "num_experts_per_tok")
SHAPE = (*SHAPE, "moe_intermediate_size")
MLA_SIZES = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
# What is one choice: axes that mean nothing without each other are swapped together.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "hidden size and layers": ("hidden_size", "num_hidden_layers"),  # depth at a given size
    "attention kind": ("attention",),
    "attention heads": ("head_dim", "num_attention_heads"),
    "KV heads": ("num_key_value_heads",),
    "latent ranks": ("q_lora_rank", "kv_lora_rank"),
    "sliding window": ("sliding_window", "sliding_window_pattern"),
    "dense or sparse": ("sparse",),
    "feed-forward width": ("intermediate_size",),
    "experts": ("num_experts",),
    "experts per token": ("num_experts_per_tok",),
    "expert width": ("moe_intermediate_size",),
    "shared experts": ("num_shared_experts",),
    "dense layers": ("num_dense_layers",),
}
# A choice of kind, and the groups that mean nothing in the other kind.
_KINDS = {
    "dense or sparse": (
        "feed-forward width",
        "experts",
        "experts per token",
        "expert width",
        "shared experts",
        "dense layers",
    ),
    "attention kind": ("attention heads", "KV heads", "latent ranks", *MLA_SIZES),
}


def differing(
    start: Mapping[str, NDArray], end: Mapping[str, NDArray], axes: Sequence[str]
) -> dict[str, list[str]]:
    """Groups of axes in which two shapes, (1,) each, differ: name -> those of its axes."""
    differ = {name for name in axes if start[name][0] != end[name][0]}
    known = {name for names in GROUPS.values() for name in names}
    every = dict(GROUPS) | {name: (name,) for name in axes if name not in known}
    groups = {
        group: [name for name in names if name in differ]
        for group, names in every.items()
        if differ.intersection(names)
    }
    for kind, sizes in _KINDS.items():
        if kind in groups:
            groups[kind] += [name for group in sizes for name in groups.pop(group, [])]
    return groups


def free_of_budgets(problem: PhysicsProblem) -> PhysicsProblem:
    """The problem without limits on shapes; those on serving stay."""
    return replace(
        problem, limits=tuple(one for one in problem.limits if one.metric not in OF_SHAPES)
    )


# Their number, those of a token and their width make up for each other.
EXPERTS = ("experts", "experts per token", "expert width", "shared experts", "dense layers")


def causes(
    problem: PhysicsProblem,
    start: Mapping[str, NDArray],
    end: Mapping[str, NDArray],
    worth: float,
    adapt: Adapt,
) -> dict[str, float]:
    """{choice: factor of cost at equal quality}, the dearest first; empty where the shapes, (1,) of
    every model axis, differ in more than MOST_CHOICES choices or no order can be served."""
    axes = tuple(axis.name for axis in problem.study.model_axes)
    groups = differing(start, end, axes)
    of_experts = [axis for name in EXPERTS for axis in groups.pop(name, [])]
    if of_experts:
        groups["experts"] = of_experts
    names = list(groups)
    if not names or len(names) > MOST_CHOICES:
        return {}
    sets = [{name for k, name in enumerate(names) if s >> k & 1} for s in range(1 << len(names))]
    shapes = {name: np.repeat(start[name], len(sets)) for name in axes}
    for i, swapped in enumerate(sets):
        for axis in (axis for group in swapped for axis in groups[group]):
            shapes[axis][i] = end[axis][0]
    free = free_of_budgets(problem)
    table = tabled(free, best_deployments(free, shapes, adapt=adapt), adapt, axes)
    score = np.where(table.served, np.log(table.price) + worth * table.loss, np.inf)
    shares = shapley(score, len(names))
    if shares is None:
        return {}
    order = np.argsort(-shares, kind="stable")
    return {names[k]: float(np.exp(shares[k])) for k in order}


def shapley(score: NDArray[np.float64], n: int) -> NDArray[np.float64] | None:
    """(n,) mean fall of `score`, (2^n,) by set, when a member joins; infinite scores are no way."""
    orders = np.array(list(permutations(range(n))))
    sets = np.concatenate(
        [np.zeros((len(orders), 1), dtype=np.intp), np.cumsum(1 << orders, axis=1)], axis=1
    )
    along = score[sets]
    possible = np.isfinite(along).all(axis=1)
    if not possible.any():
        return None
    along, joined = along[possible], orders[possible]
    falls = along[:, :-1] - along[:, 1:]
    return np.array([falls[joined == k].mean() for k in range(n)])


@record
class Rediscovery:
    """What a comparison with a published design found. `shapes` were looked at, `served` can be
    served within the limits. `price_interval` is the 80% interval of the design's price, and
    `known_as` says how the kernel laws behind it are known. `causes` is what each choice of the
    cheapest shape that is as good saves at equal quality, a factor of cost."""

    case: Case
    objective: str
    shapes: int
    served: int
    places: list[Place]
    price_interval: tuple[float, float]
    known_as: str
    table: Shapes
    front: Front
    distance: Distance
    causes: dict[str, float]
    variants: list[Variant]

    @property
    def expert(self) -> int:
        """Its row in the table."""
        return len(self.table.price) - 1

    @property
    def servable(self) -> bool:
        """Whether the design can be served within the limits on any deployment of the space."""
        return bool(self.table.served[self.expert])


def rediscover(
    case: Case, catalog: Catalog, progress: Progress = lambda what, done, total: None
) -> Rediscovery:
    """Every shape of the case's space and the expert's own, each on its best deployment; the
    distance between them, and what it rests on.

    Raises InputError for a space of several chips, one that cannot be enumerated and one whose axes
    cannot say the design.
    """
    problem = pose(case.study, catalog)
    if len(problem.machines.ids) > 1:
        raise InputError(
            f"{len(problem.machines.ids)} chips: {', '.join(problem.machines.ids)}",
            file=str(case.study.path),
            field="deployment.chip",
            accepted="the chip of the design",
        )
    objective = price_metric(problem)
    axes = tuple(axis.name for axis in case.study.model_axes)
    own = axis_values(case.expert, case.study.model_axes)
    adapt = stored_as(case.expert)
    served = best_deployments(
        problem,
        shapes_of(problem),
        adapt=adapt,
        progress=lambda done, total: progress(case.name, done, total),
    )
    design = best_deployments(free_of_budgets(problem), own, adapt=adapt)
    table = tabled(problem, joined(served, design), adapt, axes)
    allowed = table.served.copy()  # and keep what the designers had settled on
    for name, values in case.held.items():
        allowed &= np.isin(table.values[name], values)
    front, away = against_front(table, allowed)
    own_metrics = metrics_of(problem, design.values, adapt)
    low, high = interval(
        objective, own_metrics.values[objective], own_metrics.provenance, own_metrics.spread
    )
    worth = exchange(front, float(table.loss[-1]))
    saved: dict[str, float] = {}
    if (row := away.cheaper) is not None:
        end = {axis: table.values[axis][row : row + 1] for axis in axes}
        saved = causes(problem, own, end, worth, adapt)
    return Rediscovery(
        case=case,
        objective=objective,
        shapes=len(served.price),
        served=int((served.feasible & allowed[:-1]).sum()),
        places=places(own, case.study.model_axes),
        price_interval=(float(low[0]), float(high[0])),
        known_as=KINDS[own_metrics.provenance[0]],
        table=table,
        front=front,
        distance=away,
        causes=saved,
        variants=_variants(case, problem, table, front, allowed, worth, adapt),
    )


def _variants(
    case: Case,
    problem: PhysicsProblem,
    table: Shapes,
    front: Front,
    allowed: NDArray[np.bool_],
    worth: float,
    adapt: Adapt,
) -> list[Variant]:
    found: list[Variant] = []

    def uniform(batch: CandidateBatch, values: Mapping[str, NDArray]) -> CandidateBatch:
        """Experts chosen equally often."""
        return replace(adapt(batch, values), routing_skew=np.zeros(len(batch)))

    def add(key: str, words: str, pair: tuple[Front, Distance]) -> None:
        found.append(Variant(key, words, pair[1], len(pair[0].rows)))

    for law in LAWS:
        if law != problem.study.quality_law:
            loss, equivalent = _relearned(problem, table, adapt, quality_law=law)
            pair = against_front(table, allowed, loss=loss, equivalent=equivalent)
            add(f"law {law}", f"quality law `{law}`", pair)
    for key, (words, mask) in limits_on_shapes(table).items():
        add(key, words, against_front(table, allowed & mask))
    if table.columns["activation_ratio"][-1] < 1.0:
        rows = nearest(table, front, allowed, worth)
        shapes = {name: table.values[name][rows] for name in table.shape_axes}
        again = best_deployments(free_of_budgets(problem), shapes, adapt=uniform)
        near = replace(
            table,
            price=again.price,
            columns={name: column[rows] for name, column in table.columns.items()},
        )
        words = f"experts chosen equally often (the {len(rows) - 1} shapes nearest to the front)"
        add("routing", words, against_front(near, again.feasible))
    if case.held:
        words = f"{' and '.join(case.held)} free, not held at the expert's"
        add("free", words, against_front(table, table.served.copy()))
    tokens = problem.study.training_tokens
    assert tokens is not None  # of every case
    budget = 6.0 * tokens * float(table.columns["active_parameters"][-1])
    loss, equivalent = _relearned(
        problem, table, adapt, training_tokens=None, training_compute=budget
    )
    words = f"no end to the corpus: every shape trained for the design's {budget:.2e} FLOP"
    add("tokens", words, against_front(table, allowed, loss=loss, equivalent=equivalent))
    return found


def _relearned(
    problem: PhysicsProblem, table: Shapes, adapt: Adapt, **changed: Any
) -> tuple[Floats, Floats]:
    """(loss, dense-equivalent parameters) of every row where the study differs in what is said of
    training. What serving costs does not depend on it."""
    other = replace(problem, study=replace(problem.study, **changed))
    metrics = metrics_of(other, table.values, adapt)
    return metrics.values["predicted_loss"], metrics.values["dense_equivalent_parameters"]


@record
class Variant:
    """`words` say what is changed, so that they follow `with`. `front_size` is 0 where no rival is
    left."""

    key: str
    words: str
    distance: Distance
    front_size: int

    @property
    def distance_known(self) -> bool:
        return self.distance.cost_ratio is not None or self.distance.nats is not None


def against_front(
    table: Shapes,
    allowed: NDArray[np.bool_],
    *,
    loss: Floats | None = None,
    equivalent: Floats | None = None,
) -> tuple[Front, Distance]:
    """The expert, the last row, against the front of the other rows that are allowed. A column that
    is given takes the place of the table's."""
    loss = table.loss if loss is None else loss
    price = table.price
    equivalent = table.equivalent if equivalent is None else equivalent
    rivals = allowed.copy()
    rivals[-1] = False
    front = front_of(loss, price, equivalent, rivals)
    design = (float(loss[-1]), float(price[-1]), float(equivalent[-1]))
    return front, distance(front, loss, price, rivals, design)


def limits_on_shapes(table: Shapes) -> dict[str, tuple[str, NDArray[np.bool_]]]:
    """Key -> (words, mask): shapes no farther than the expert in one term of the law, or at least
    as rich in what no law sees."""
    columns, values = table.columns, table.values
    found = {}
    ratio, grain = columns["activation_ratio"], columns["granularity"]
    if ratio[-1] < 1.0:
        found["sparsity"] = (
            f"no shape sparser than the expert's ({ratio[-1]:.2%} of the experts used)",
            ratio >= ratio[-1],
        )
        found["granularity"] = (
            f"no experts finer than the expert's (granularity {grain[-1]:.3g})",
            grain <= grain[-1],
        )
    zeros = np.zeros(len(aspect_of(values)))
    size = np.maximum(values.get("head_dim", zeros), values.get("v_head_dim", zeros))
    heads = values["num_attention_heads"] * size
    cache = columns["kv_bytes_per_token"]
    found["attention"] = (
        f"attention no smaller than the expert's ({values['num_attention_heads'][-1]:,.0f} query "
        f"heads of its size, {cache[-1] / 1e3:.4g} kB of cache a token)",
        (heads >= heads[-1]) & (cache >= cache[-1]),
    )
    aspect = aspect_of(values)
    found["depth"] = (
        f"hidden size over layers within 10% of the expert's ({aspect[-1]:.0f})",
        np.abs(aspect / aspect[-1] - 1.0) <= 0.1,
    )
    words, every = "all of these at once", table.served.copy()
    for _, mask in found.values():
        every &= mask
    return found | {"all": (words, every)}


def aspect_of(values: Mapping[str, NDArray]) -> Floats:
    """(n,) hidden size over layers."""
    return values["hidden_size"] / values["num_hidden_layers"]


def nearest(table: Shapes, front: Front, allowed: NDArray[np.bool_], worth: float) -> NDArray:
    """Up to NEAR rows of the table closest to its front, those of the front and the expert's
    included, by ln(price) + worth x loss."""
    score = np.log(table.price) + worth * table.loss
    score[~allowed] = np.inf
    score[front.rows] = -np.inf
    score[-1] = np.inf
    order = np.argsort(score, kind="stable")[:NEAR]
    return np.append(np.sort(order[np.isfinite(table.price[order])]), len(score) - 1)


def standing(away: Distance, served: bool) -> str:
    """A few words for a distance."""
    if not served:
        return "not servable"
    if away.cost_ratio is None:
        return "ahead of the front"
    if away.cost_ratio > 1.0 + LEVEL:
        return "behind the front"
    return "level with the front" if away.cost_ratio >= 1.0 - LEVEL else "ahead of the front"


def lead(found: Rediscovery) -> list[str]:
    """Where the design stands, and which assumption puts it there."""
    away, name = found.distance, found.case.expert.name
    if not found.servable:
        return [f"{name} cannot be served within the limits on any deployment of the space."]
    first = f"{name} is {standing(away, served=True)}: "
    if away.cost_ratio is None:
        first += "no shape of the space within the same budgets reaches its predicted loss"
    else:
        price = dollars(float(found.table.price[found.expert]))
        first += f"it costs {times(away.cost_ratio)} the front's price at equal predicted quality "
        first += f"({price} per million tokens)"
    if away.nats is not None:
        better = "lower" if away.nats >= 0 else "higher"
        first += f"; at equal cost the front's loss is {abs(away.nats):.4f} nats {better}"
    said = [f"{first}."]
    kindest, ratio = _kindest(found), away.cost_ratio
    if kindest is not None:
        left = kindest.distance.cost_ratio
        now = "no rival is as good" if left is None else f"it costs {times(left)} the front's price"
        said.append(f"One assumption does most of it: with {kindest.words}, {now}.")
    elif ratio is not None and ratio > 1.0 + LEVEL:
        said.append("No single assumption that we changed brings the design nearer.")
    if found.causes:
        dearest = next(iter(found.causes))
        said.append(f"The choice that costs most is {dearest}: {times(found.causes[dearest])}.")
    return [*said, *_memory(found), *_beyond(found)]


def _kindest(found: Rediscovery) -> Variant | None:
    """The single change of an assumption that brings the design nearest; None where none does."""
    ratio = found.distance.cost_ratio
    single = [v for v in found.variants if v.key not in ("all", "free") and v.distance_known]
    kindest = min(single, key=lambda one: one.distance.cost_ratio or 0.0, default=None)
    if ratio is None or kindest is None:
        return None
    return kindest if (kindest.distance.cost_ratio or 0.0) < ratio * (1.0 - SMALL) else None


def _memory(found: Rediscovery) -> list[str]:
    """Where the cheapest shape that is as good runs more requests on as many chips, because its
    weights leave more of their memory."""
    if (cheaper := found.distance.cheaper) is None or found.distance.cost_ratio is None:
        return []
    of, rows = found.table.columns, [found.expert, cheaper]
    weights = of["memory_weights_bytes_per_chip"] / of["memory_capacity_bytes_per_chip"]
    own, other = weights[rows]
    few, many = (of["running_requests"] / of["chips"])[rows]
    if own - other < LESS or many < MORE * few:
        return []
    return [
        f"Part of that is memory, not speed: its weights take {own:.0%} of each chip's memory and "
        f"{few:,.0f} requests run at once; with the cheapest as good, {other:.0%} and {many:,.0f}."
    ]


def _beyond(found: Rediscovery) -> list[str]:
    """How much of the front lies beyond what the law was fitted on."""
    columns, rows = found.table.columns, found.front.rows
    sparse = columns["activation_ratio"] < 1.0
    beyond = np.zeros(len(rows), dtype=bool)
    for name, known in LAWS[found.case.study.quality_law].fit.items():
        if name in columns:
            of_experts = name in ("activation_ratio", "granularity", "total_parameters")
            beyond |= (known.excludes(columns[name]) & (sparse if of_experts else True))[rows]
    if not beyond.any():
        return []
    return [
        f"The quality law extrapolates for {beyond.sum():,} of {len(rows):,} shapes of the front."
    ]


def designs_answer(answers: Sequence[Rediscovery]) -> Answer:
    """Where each published design stands, what its choices cost, and what an assumption does."""
    behind = sum((one.distance.cost_ratio or 0.0) > 1.0 + LEVEL for one in answers)
    alone, first = len(answers) == 1, answers[0]
    title, asked = "Published designs and the front", f"{len(answers)} published designs"
    said = [f"{behind} of {len(answers)} published designs cost more than 5% above the front."]
    if alone:
        title, study = first.case.title, first.case.study
        asked = f"{title}: {first.case.expert.name} against the front of {study.name}; prices: "
        asked, said = f"{asked}{study.price_basis}", lead(first)
    metric = first.objective
    made = [
        _designs(answers, metric),
        _near(answers, metric, alone),
        _variants_frame(answers, alone),
        _causes(answers),
        _grid(answers),
        _known(answers),
        _front(answers, metric),
    ]
    law = LAWS[first.case.study.quality_law]
    return Answer(
        question="compare",
        title=title,
        asked=asked,
        headline=said[0],
        sentences=said[1:],
        blocks=(*([_variant_figure(first)] if alone else []), *(one for one in made if one.rows)),
        rests=(f"Quality law: `{law.name}`, {law.title[0].lower()}{law.title[1:]}.",),
        document=document({"answer": said, "cases": [_facts(one) for one in answers]}, made),
        data=(made[0], made[-1]),
        words=WORDS,
    )


def _facts(found: Rediscovery) -> dict[str, Any]:
    case = found.case
    return {
        "case": case.name,
        "title": case.title,
        "expert": case.expert.id,
        "quality_law": case.study.quality_law,
        "price_metric": found.objective,
        "price_basis": case.study.price_basis,
        "held": {name: list(values) for name, values in case.held.items()},
        "why_held": case.why_held or None,
    }


def _designs(answers: Sequence[Rediscovery], metric: str) -> Table:
    kindest = [_kindest(one) for one in answers]
    interval = [one.price_interval if one.servable else (math.nan, math.nan) for one in answers]
    columns = {
        "case": [one.case.name for one in answers],
        "model": [one.case.expert.name for one in answers],
        "standing": [standing(one.distance, one.servable) for one in answers],
        "cost_ratio": [one.distance.cost_ratio for one in answers],
        "nats": [one.distance.nats for one in answers],
        "dense_equivalent_ratio": [one.distance.equivalent_ratio for one in answers],
        "dominating": [one.distance.dominating for one in answers],
        "served_shapes": [one.served for one in answers],
        "shapes": [one.shapes for one in answers],
        "front_size": [len(one.front.rows) for one in answers],
        metric: [float(p) if np.isfinite(p := one.table.price[-1]) else None for one in answers],
        f"{metric}.low": [low for low, _ in interval],
        f"{metric}.high": [high for _, high in interval],
        "known": [one.known_as for one in answers],
        "assumption": [None if one is None else one.key for one in kindest],
        "cost_ratio.after": [None if one is None else one.distance.cost_ratio for one in kindest],
    }
    shown = ("model", "standing", "cost_ratio", "nats", "dominating", "served_shapes", metric)
    shown = (*shown, "assumption", "cost_ratio.after")
    note = "Last two columns: the one assumption that brings it nearest, and what is left then."
    return frame("designs", "Published designs and the front", columns, note, shown=shown)


def _near(answers: Sequence[Rediscovery], metric: str, alone: bool) -> Table:
    """The design, the cheapest shape that is as good and the best that costs no more."""
    parts = []
    for one in answers:
        rows = {"design": one.expert, "cheaper": one.distance.cheaper}
        rows |= {"better": one.distance.better}
        there = {name: row for name, row in rows.items() if row is not None}
        part = {"which": list(there), **one.table.rows(list(there.values()), metric)}
        parts.append((one.case.name, part))
    columns = stacked("case", parts)
    shown = [key for key in SHAPE if key in columns and np.nansum(columns[key])]
    shown = ["which", *shown, metric, "predicted_loss", "tpot_s"]
    note = "design: as published; cheaper: the cheapest as good; better: the best at its price."
    caption = "The design and the nearest shapes of the front"
    return frame("nearest", caption, columns, note, shown=shown, on_console=alone)


def _variants_frame(answers: Sequence[Rediscovery], alone: bool) -> Table:
    parts = [
        (
            one.case.name,
            {
                "assumption": [v.key for v in one.variants],
                "with": [v.words for v in one.variants],
                "front_size": [v.front_size for v in one.variants],
                "cost_ratio": [v.distance.cost_ratio for v in one.variants],
                "nats": [v.distance.nats for v in one.variants],
                "dominating": [v.distance.dominating for v in one.variants],
            },
        )
        for one in answers
    ]
    shown = ("with", "cost_ratio", "nats", "dominating")
    caption = "The same with one assumption changed"
    return frame("variants", caption, stacked("case", parts), shown=shown, on_console=alone)


def _causes(answers: Sequence[Rediscovery]) -> Table:
    parts = [
        (one.case.name, {"choice": list(one.causes), "factor": list(one.causes.values())})
        for one in answers
        if one.causes
    ]
    note = "The factors of a case multiply to its cost at equal quality; below 1 a choice costs."
    caption = "What each choice of the cheaper shape saves at equal quality"
    columns = stacked("case", parts) if parts else {"case": [], "choice": [], "factor": []}
    return frame("causes", caption, columns, note, shown=("case", "choice", "factor"))


def _grid(answers: Sequence[Rediscovery]) -> Table:
    parts = [
        (
            one.case.name,
            {
                "axis": [place.axis for place in one.places],
                "value": [place.value for place in one.places],
                "on_grid": [place.on for place in one.places],
                "inside": [place.inside for place in one.places],
                "value.below": [place.below for place in one.places],
                "value.above": [place.above for place in one.places],
            },
        )
        for one in answers
    ]
    caption = "Where the design lies on the axes of the space"
    return frame("grid", caption, stacked("case", parts), on_console=False)


def _known(answers: Sequence[Rediscovery]) -> Table:
    parts = [
        (
            one.case.name,
            {
                "what": [known.what for known in one.case.known],
                "given": [known.value for known in one.case.known],
                "kind": [known.kind for known in one.case.known],
                "source": [known.source or known.note for known in one.case.known],
                "date": [known.date for known in one.case.known],
            },
        )
        for one in answers
        if one.case.known
    ]
    columns = stacked("case", parts) if parts else {"case": [], "what": [], "given": []}
    return frame("known", "What was known when it was designed", columns, on_console=False)


def _front(answers: Sequence[Rediscovery], metric: str) -> Table:
    parts = [(o.case.name, o.table.rows(o.front.rows.tolist(), metric)) for o in answers]
    return frame("front", "The shapes of the front", stacked("case", parts), on_console=False)


def _variant_figure(found: Rediscovery) -> Figure:
    """What the design costs over the front, as the case says and with one assumption changed."""
    known = [("as the case says", found.distance.cost_ratio)]
    known += [(one.words, one.distance.cost_ratio) for one in found.variants if one.front_size]
    ratios = {
        words.partition(" (")[0].partition(":")[0].replace("`", ""): ratio
        for words, ratio in known
        if ratio is not None
    }
    title = "cost, times that of the front"
    return bar_chart(
        "variants-plot",
        "What it costs over the front, with one assumption changed",
        list(ratios),
        {title: list(ratios.values())},
        title,
        "A bar for each assumption. At 1 it costs what the front does; below it, less.",
    )
