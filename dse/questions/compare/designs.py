"""Shapes against shapes: a published design and the front of a space (`dse compare SPACE MODEL`,
`rediscovery/NAME`), and one shape for several chips (`dse compare SPACE --by chip`).

By cause: the design and the cheapest shape that is as good differ in a few choices (CHOICES). Each
set of them is swapped, and the shape served on its best deployment: ln(price) + exchange x loss
says what it costs at equal quality. What one choice is worth depends on those made before it, so
the mean over all orders is taken (the value of Shapley 1953), over those of which every shape on
the way can be served. The shares add up to the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.answer import Answer, Table
from dse.answer.frames import document, frame, lines, stacked
from dse.answer.numbers import priced, tenths, times
from dse.answer.sentences import listed, never_measured
from dse.catalog import Catalog
from dse.economics.prices import price_documents, price_parts, prices_rest_on
from dse.errors import InputError, NothingFeasible
from dse.physics.intervals import interval
from dse.problem.objective import PhysicsProblem, on_terms, pose
from dse.problem.shapes import (
    OF_SHAPES,
    QUALITY,
    Adapt,
    Front,
    Shapes,
    axis_values,
    best_deployments,
    distance,
    exchange,
    front_of,
    metrics_of,
    price_metric,
    shapes_of,
    stored_as,
    tabled,
)
from dse.quality import LAWS
from dse.schema.backend import KINDS
from dse.schema.dtypes import DTYPES
from dse.schema.study import Case, Study
from dse.schema.workloads import load_words, mix_words
from dse.space.candidates import Floats, concatenated
from dse.vocabulary import quantity

Progress = Callable[[str, int, int], None]
Columns = dict[str, Any]
DENSE = "dense_equivalent_parameters"
DEPLOYED = ("tensor_parallel", "data_parallel", "expert_parallel", "replicas", "concurrency")
AWAY = ("cost_ratio", "nats", "dominating")  # of a distance to the front
LEVELS = 24  # of quality, at which the regret of one shape for all is worked out
MOST_CHOICES = 7  # more have too many orders
LEVEL = 0.05  # a price within it of the front's is level with the front
SMALL = 0.02  # a change of less is not named
WORDS = {
    "front": "the shapes, each on its cheapest deployment, that no other beats in both predicted "
    "loss and price",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
}
SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHAPE = (*SHAPE, "intermediate_size", "num_experts", "num_experts_per_tok")
SHAPE = (*SHAPE, "moe_intermediate_size")
# What is one choice: axes that mean nothing without each other are swapped together.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "hidden size and layers": ("hidden_size", "num_hidden_layers"),  # depth at a given size
    "attention heads": ("head_dim", "num_attention_heads"),
    "KV heads": ("num_key_value_heads",),
    "latent ranks": ("q_lora_rank", "kv_lora_rank"),
    "sliding window": ("sliding_window", "sliding_window_pattern"),
    "feed-forward width": ("intermediate_size",),
    "experts": (
        *("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
        *("num_shared_experts", "num_dense_layers"),
    ),
}
# A kind, what the choice of it is called, and the choices that mean nothing in the other kind.
KINDS_OF = {
    "sparse": ("dense or sparse", ("feed-forward width", "experts")),
    "attention": ("attention kind", ("attention heads", "KV heads", "latent ranks")),
}


def designs_answer(
    cases: Sequence[Case],
    catalog: Catalog,
    progress: Progress = lambda what, done, total: None,
) -> Answer:
    """Where each published design stands, what its choices cost, and what an assumption does.

    Raises InputError for a space of several chips, one that cannot be enumerated and one whose axes
    cannot say the design.
    """
    found = {case.name: _against_rivals(case, catalog, progress) for case in cases}
    alone, first = len(cases) == 1, cases[0]

    def made(name: str, caption: str, *notes: str, **more: Any) -> Table:
        columns = stacked("case", [(case, parts[name]) for case, parts in found.items()])
        return frame(name, caption, columns, *notes, **more)

    metric, near = found[first.name]["objective"], [one["nearest"] for one in found.values()]
    sizes = [key for key in SHAPE if any(np.any(columns.get(key, 0)) for columns in near)]
    shown = ("model", "standing", "cost_ratio", "nats", "dominating", "served_shapes", metric)
    frames = [
        made(
            "designs",
            "Published designs and the front",
            "Last two columns: the one assumption that brings it nearest, and what is left then.",
            shown=(*shown, "assumption", "cost_ratio.after"),
        ),
        made(
            "nearest",
            "The design and the nearest shapes of the front",
            "design: as published; cheaper: the cheapest as good; better: the best at its price.",
            shown=("which", *sizes, metric, QUALITY, "tpot_s"),
            on_console=alone,
        ),
        made(
            "variants",
            "The same with one assumption changed",
            shown=("with", "cost_ratio", "nats", "dominating"),
            on_console=alone,
        ),
        made(
            "causes",
            "What each choice of the cheaper shape saves at equal quality",
            "The factors of a case multiply to its cost at equal quality; below 1 a choice costs.",
        ),
        made("known", "What was known when it was designed", on_console=False),
        made("front", "The shapes of the front", on_console=False),
    ]
    study = first.study
    behind = sum((ratio or 0.0) > 1.0 + LEVEL for ratio in frames[0]["cost_ratio"])
    title, asked = "Published designs and the front", f"{len(cases)} published designs"
    said = [f"{behind} of {len(cases)} published designs cost more than 5% above the front."]
    pictures = ()
    if alone:
        parts = found[first.name]
        title, name = first.title, first.expert.name
        asked = f"{title}: {name} against the front of {study.name}; prices: {study.price_basis}"
        said = _lead(frames, metric, parts["extrapolated"])
        own = {key: values[:1] for key, values in parts["nearest"].items() if key != "which"}
        shows = "Each mark of the line is a shape of the front; lower is better in both."
        both = frame("both", "", stacked("which", [("front", parts["front"]), (name, own)]))
        drawn_as = f"{name} and the front"
        pictures = (lines("front-plot", drawn_as, both, metric, QUALITY, "which", shows),)
    law = LAWS[study.quality_law]
    facts = [
        {
            "case": case.name,
            "title": case.title,
            "expert": case.expert.id,
            "quality_law": case.study.quality_law,
            "price_metric": metric,
            "price_basis": case.study.price_basis,
            "held": {axis: list(values) for axis, values in case.held.items()},
            "why_held": case.why_held or None,
        }
        for case in cases
    ]
    return Answer(
        question="compare",
        title=title,
        asked=asked,
        headline=said[0],
        sentences=said[1:],
        blocks=(*pictures, *(one for one in frames if one.rows)),
        rests=(f"Quality law: `{law.name}`, {law.title[0].lower()}{law.title[1:]}.",),
        document=document({"answer": said, "cases": facts}, frames),
        data=(frames[0], frames[-1]),
        words=WORDS,
    )


def _against_rivals(case: Case, catalog: Catalog, progress: Progress) -> dict[str, Any]:
    """Columns by frame: every shape of the case's space and the expert's own, each on its best
    deployment, and the distance between them; `objective`, and how many shapes of the front lie
    beyond what the law was fitted on, `extrapolated`."""
    study = case.study
    problem = pose(study, catalog)
    if len(problem.machines.ids) > 1:
        raise InputError(
            f"{len(problem.machines.ids)} chips: {', '.join(problem.machines.ids)}",
            file=str(study.path),
            field="deployment.chip",
            accepted="the chip of the design",
        )
    metric = price_metric(problem)
    axes = tuple(axis.name for axis in study.model_axes)
    own, adapt = axis_values(case.expert, study.model_axes), stored_as(case.expert)
    served = best_deployments(
        problem,
        shapes_of(problem),
        adapt=adapt,
        progress=lambda done, total: progress(case.name, done, total),
    )
    # Budgets bind the rivals; the design is what it is.
    limits = tuple(one for one in problem.limits if one.metric not in OF_SHAPES)
    free = replace(problem, limits=limits)
    design = best_deployments(free, own, adapt=adapt)
    both = concatenated([served, design], [len(served.price), 1])
    table = tabled(problem, both, adapt, axes)
    allowed = table.served.copy()  # and keep what the designers had settled on
    for name, values in case.held.items():
        allowed &= np.isin(table.values[name], values)
    front, away = against_front(table, allowed)
    rows = {"design": len(allowed) - 1, "cheaper": away["cheaper"], "better": away["better"]}
    rows = {which: row for which, row in rows.items() if row is not None}
    saved: dict[str, float] = {}
    if away["cheaper"] is not None:
        end = {axis: table.values[axis][[away["cheaper"]]] for axis in axes}
        saved = causes(free, own, end, exchange(front, float(table.loss[-1])), adapt)
    variants = _variants(case, problem, table, allowed, adapt)
    least = (away["cost_ratio"] or 0.0) * (1.0 - SMALL)
    kinder = [
        one
        for one in variants
        if one["assumption"] != "free"
        and (one["cost_ratio"] or one["nats"]) is not None
        and (one["cost_ratio"] or 0.0) < least
    ]
    kindest = min(kinder, key=lambda one: one["cost_ratio"] or 0.0, default={})
    metrics = metrics_of(problem, design.values, adapt)
    low, high = interval(metric, metrics.values[metric], metrics.provenance, metrics.spread)
    nearest = table.rows(list(rows.values()), metric)
    servable = bool(table.served[-1])
    designs = {
        "model": case.expert.name,
        "standing": standing(away, servable),
        **{key: away[key] for key in (*AWAY, "dense_equivalent_ratio")},
        "served_shapes": int((served.feasible & allowed[:-1]).sum()),
        "shapes": len(served.price),
        "front_size": len(front.rows),
        metric: float(nearest[metric][0]),
        f"{metric}.low": float(low[0]) if servable else None,
        f"{metric}.high": float(high[0]) if servable else None,
        "known": KINDS[metrics.provenance[0]],
        "assumption": kindest.get("assumption"),
        "cost_ratio.after": kindest.get("cost_ratio"),
    }
    return {
        "objective": metric,
        "extrapolated": _extrapolated(study.quality_law, table.columns, front.rows),
        "designs": {key: [value] for key, value in designs.items()},
        "nearest": {"which": list(rows), **nearest},
        "variants": {key: [one[key] for one in variants] for key in variants[0]},
        "causes": {"choice": list(saved), "factor": list(saved.values())},
        "known": {
            "what": [one.what for one in case.known],
            "given": [one.value for one in case.known],
            "kind": [one.kind for one in case.known],
            "source": [one.source or one.note for one in case.known],
            "date": [one.date for one in case.known],
        },
        "front": table.rows(front.rows.tolist(), metric),
    }


def against_front(
    table: Shapes,
    allowed: NDArray[np.bool_],
    loss: Floats | None = None,
    equivalent: Floats | None = None,
) -> tuple[Front, dict[str, Any]]:
    """The expert, the last row, against the front of the other rows that are allowed. A column that
    is given takes the place of the table's."""
    loss = table.loss if loss is None else loss
    equivalent = table.equivalent if equivalent is None else equivalent
    rivals = allowed.copy()
    rivals[-1] = False
    front = front_of(loss, table.price, equivalent, rivals)
    design = (float(loss[-1]), float(table.price[-1]), float(equivalent[-1]))
    return front, distance(front, loss, table.price, rivals, design)


def standing(away: Mapping[str, Any], served: bool) -> str:
    """A few words for a distance."""
    if not served:
        return "not servable"
    ratio = away["cost_ratio"]
    if ratio is None or ratio < 1.0 - LEVEL:
        return "ahead of the front"
    return "behind the front" if ratio > 1.0 + LEVEL else "level with the front"


def _variants(
    case: Case,
    problem: PhysicsProblem,
    table: Shapes,
    allowed: NDArray[np.bool_],
    adapt: Adapt,
) -> list[Columns]:
    """A row for each assumption that is changed: `with` says what, `front_size` is 0 where no rival
    is left."""
    rows: list[Columns] = []

    def add(key: str, words: str, mask: NDArray[np.bool_], **changed: Any) -> None:
        """The front under a mask, the study differing in what is said of training: what serving
        costs does not depend on that."""
        columns: list[Floats] = []
        if changed:
            other = replace(problem, study=replace(problem.study, **changed))
            values = metrics_of(other, table.values, adapt).values
            columns = [values[QUALITY], values[DENSE]]
        front, away = against_front(table, mask, *columns)
        row = {"assumption": key, "with": words, "front_size": len(front.rows)}
        rows.append(row | {key: away[key] for key in AWAY})

    for law in LAWS:
        if law != problem.study.quality_law:
            add(f"law {law}", f"quality law `{law}`", allowed, quality_law=law)
    # No shape farther than the expert in one term of the law, or poorer in what no law sees.
    columns, values = table.columns, table.values
    ratio, grain = columns["activation_ratio"], columns["granularity"]
    if ratio[-1] < 1.0:
        words = f"no shape sparser than the expert's ({ratio[-1]:.2%} of the experts used)"
        add("sparsity", words, allowed & (ratio >= ratio[-1]))
        words = f"no experts finer than the expert's (granularity {grain[-1]:.3g})"
        add("granularity", words, allowed & (grain <= grain[-1]))
    zeros = np.zeros(len(allowed))
    size = np.maximum(values.get("head_dim", zeros), values.get("v_head_dim", zeros))
    heads, cache = values["num_attention_heads"] * size, columns["kv_bytes_per_token"]
    words = (
        f"attention no smaller than the expert's ({values['num_attention_heads'][-1]:,.0f} query "
        f"heads of its size, {cache[-1] / 1e3:.4g} kB of cache per token)"
    )
    add("attention", words, allowed & (heads >= heads[-1]) & (cache >= cache[-1]))
    aspect = values["hidden_size"] / values["num_hidden_layers"]
    words = f"hidden size over layers within 10% of the expert's ({aspect[-1]:.0f})"
    add("depth", words, allowed & (np.abs(aspect / aspect[-1] - 1.0) <= 0.1))
    if case.held:
        words = f"{' and '.join(case.held)} free, not held at the expert's"
        add("free", words, table.served)
    tokens = problem.study.training_tokens
    assert tokens is not None  # of every case
    budget = 6.0 * tokens * float(columns["active_parameters"][-1])
    words = f"no end to the corpus: every shape trained for the design's {budget:.2e} FLOP"
    add("tokens", words, allowed, training_tokens=None, training_compute=budget)
    return rows


def _extrapolated(law: str, columns: Mapping[str, Floats], rows: NDArray[np.intp]) -> int:
    """How many of some rows lie beyond what a law was fitted on."""
    sparse = columns["activation_ratio"] < 1.0
    beyond = np.zeros(len(rows), dtype=bool)
    for name, known in LAWS[law].fit.items():
        if name in columns:
            of_experts = name in ("activation_ratio", "granularity", "total_parameters")
            beyond |= (known.excludes(columns[name]) & (sparse if of_experts else True))[rows]
    return int(beyond.sum())


def _lead(frames: Sequence[Table], metric: str, extrapolated: int) -> list[str]:
    """Where the one design stands, and which assumption and which choice put it there."""
    designs, _, variants, causes_, *_ = frames
    row: Mapping[str, Any] = designs.rows[0]
    name, ratio = row["model"], row["cost_ratio"]
    if row["standing"] == "not servable":
        return [f"{name} cannot be served within the limits on any deployment of the space."]
    first = f"{name} is {row['standing']}: "
    if ratio is None:
        first += "no shape of the space within the same budgets reaches its predicted loss"
    else:
        first += f"it costs {times(ratio)} the front's price at equal predicted quality "
        first += f"({priced(metric, row[metric])})"
    if row["nats"] is not None:
        better = "lower" if row["nats"] >= 0 else "higher"
        first += f"; at equal cost the front's loss is {abs(row['nats']):.4f} nats {better}"
    said = [f"{first}."]
    if row["assumption"] is not None:
        left = row["cost_ratio.after"]
        now = "no rival is as good" if left is None else f"it costs {times(left)} the front's price"
        words = dict(zip(variants["assumption"], variants["with"], strict=True))
        said.append(f"One assumption does most of it: with {words[row['assumption']]}, {now}.")
    elif ratio is not None and ratio > 1.0 + LEVEL:
        said.append("No single assumption that we changed brings the design nearer.")
    if causes_.rows:
        dearest: Mapping[str, Any] = causes_.rows[0]
        said.append(
            f"The choice that costs most is {dearest['choice']}: {times(dearest['factor'])}."
        )
    if extrapolated:
        of = f"{extrapolated:,} of {row['front_size']:,} shapes of the front"
        said.append(f"The quality law extrapolates for {of}.")
    return said


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
    known = {axis for named in CHOICES.values() for axis in named} | set(KINDS_OF)
    every = {**CHOICES, **{axis: (axis,) for axis in axes if axis not in known}}
    groups = {}
    for name, named in every.items():
        if differ := [axis for axis in named if axis in axes and start[axis] != end[axis]]:
            groups[name] = differ
    for kind, (name, choices) in KINDS_OF.items():
        if kind in axes and start[kind] != end[kind]:
            sizes = [groups.pop(choice, []) for choice in choices]
            groups[name] = [kind, *chain.from_iterable(sizes)]
    names = list(groups)
    if not names or len(names) > MOST_CHOICES:
        return {}
    sets = np.arange(1 << len(names))
    shapes = {axis: np.repeat(start[axis], len(sets)) for axis in axes}
    for k, swapped in enumerate(groups.values()):
        for axis in swapped:
            shapes[axis] = np.where(sets >> k & 1, end[axis], shapes[axis])
    table = tabled(problem, best_deployments(problem, shapes, adapt=adapt), adapt, axes)
    score = np.where(table.served, np.log(table.price) + worth * table.loss, np.inf)
    shares = shapley(score, len(names))
    if shares is None:
        return {}
    order = np.argsort(-shares, kind="stable")
    return {names[k]: float(np.exp(shares[k])) for k in order}


def shapley(score: NDArray[np.float64], n: int) -> NDArray[np.float64] | None:
    """(n,) mean fall of `score`, (2^n,) by set, when a member joins; infinite scores are no way."""
    orders = np.array(list(permutations(range(n))))
    sets = np.cumsum(1 << orders, axis=1)
    along = score[np.pad(sets, ((0, 0), (1, 0)))]
    possible = np.isfinite(along).all(axis=1)
    if not possible.any():
        return None
    falls, joins = -np.diff(along[possible]), orders[possible]
    return np.array([falls[joins == k].mean() for k in range(n)])


# One shape for several chips. Of k shapes and c chips p[i, j] is the least price of shape i on chip
# j, over all deployments that keep the limits, and b[j] = min over i of p[i, j]:
#
#     regret[i, j] = p[i, j] / b[j] - 1        worst[i] = max over j        mean[i] = mean over j
#
# A price level of a chip cancels. Only shapes that every chip can serve have a regret; own bests
# are those of all shapes. The space bounds the quality from below, or else each chip's own best
# were the smallest shape.


def basket_answer(
    study: Study, catalog: Catalog, progress: Progress = lambda what, done, total: None
) -> Answer:
    """Every shape of the space on every chip of it.

    Raises InputError for a space of one chip, without a limit on quality, or too large to
    enumerate, and NothingFeasible where no shape can be served on all chips.
    """
    catalog = on_terms(catalog, study)
    problem = pose(study, catalog)
    metric, chips = price_metric(problem), problem.machines.ids
    if len(chips) < 2:
        raise InputError(
            f"one chip: {', '.join(chips)}",
            file=str(study.path),
            field="deployment.chip",
            accepted="two chips or more",
        )
    if not any(limit.metric in (QUALITY, DENSE) for limit in study.constraints):
        raise InputError(
            "no limit on quality: each chip's own best would be the smallest shape",
            file=str(study.path),
            field="constraints",
            accepted="such as dense_equivalent_parameters >= 80B",
        )
    shapes = shapes_of(problem)
    served = [
        best_deployments(
            problem,
            shapes,
            code,
            progress=lambda done, total, chip=chip: progress(chip, done, total),
        )
        for code, chip in enumerate(chips)
    ]
    metrics = [metrics_of(problem, one.values) for one in served]
    price = np.stack([one.price for one in served], axis=1)
    ok = np.isfinite(price)
    shared = ok.all(axis=1)
    if not shared.any():
        counts = ", ".join(f"{c} {n:,}" for c, n in zip(chips, ok.sum(axis=0), strict=True))
        raise NothingFeasible(
            f"none of {len(price):,} shapes can be served within the limits on all chips; served "
            f"on {counts}"
        )
    own = np.argmin(price, axis=0)
    regret = price / price[own, np.arange(len(own))] - 1.0
    # A deployment may quantise: the loss of a shape is that on the chip where it is highest.
    losses = np.where(ok, np.stack([one.values[QUALITY] for one in metrics], axis=1), np.inf)
    loss = losses.max(axis=1)
    worst, mean = (
        np.where(shared, one, np.inf) for one in (regret.max(axis=1), regret.mean(axis=1))
    )
    best, least_mean = int(np.argmin(worst)), int(np.argmin(mean))
    picked = [*own.tolist(), best, least_mean]
    names = [*(f"best for {chip}" for chip in chips), "least worst", "least mean"]
    sizes = [axis.name for axis in study.model_axes]
    parts = []
    for j, chip in enumerate(chips):
        of, values = served[j].values, metrics[j].values
        columns = {
            "which": names,
            **{name: shapes[name][picked] for name in sizes},
            "regret": np.where(ok[picked, j], regret[picked, j], np.nan),
            metric: np.where(ok[picked, j], price[picked, j], np.nan),
            "tpot_s": values["tpot_s"][picked],
            **{name: of[name][picked] for name in DEPLOYED if name in of},
            "weight_dtype": [DTYPES[int(code)] for code in of["weight_dtype"][picked]],
            QUALITY: values[QUALITY][picked],
            DENSE: values[DENSE][picked],
        }
        parts.append((chip, columns))
    choices = frame(
        "choices",
        "Each chip's own best shape, and one for all, on every chip",
        stacked("chip", parts),
        shown=("which", "chip", "regret", metric, "tpot_s", "weight_dtype", "concurrency"),
        first=("which", "chip", "regret"),
    )
    levels = frame(
        "levels",
        "The least worst regret where every chip's own best must be as good",
        _levels(price, losses, loss, {name: shapes[name] for name in sizes}),
        on_console=False,
    )
    picture = lines(
        "levels-plot",
        "The regret of one shape where better quality is asked",
        levels,
        "predicted_loss_at_most",
        "worst_regret",
        "which",
        "The least regret of one shape for all, by how good each chip's own best must be.",
    )
    each = ", ".join(f"{c} {tenths(float(regret[best, j]), True)}" for j, c in enumerate(chips))
    shape = ", ".join(
        f"{quantity(axis.name).title} {shapes[axis.name][best]:,.0f}"
        for axis in study.model_axes
        if len(axis.values) > 1 and shapes[axis.name][best]
    )
    said = [
        f"One shape for {listed(chips)} costs at most {tenths(float(worst[best]))} more than each "
        f"chip's own best ({each}): {shape}."
    ]
    for j, chip in enumerate(chips):
        away = [
            f"{tenths(float(regret[own[j], k]), True)} on {other}"
            if ok[own[j], k]
            else f"cannot be served on {other}"
            for k, other in enumerate(chips)
            if k != j
        ]
        said.append(f"The shape that is best for {chip} alone: {listed(away)}.")
    terms = tuple(price_documents(catalog, chips, study.price_basis))
    rests = [
        *(
            f"kernel laws of {chip} are {kind}"
            if kind == "fitted"
            else never_measured(chip, kind, "laws of its class or kin")
            for chip, of in zip(chips, metrics, strict=True)
            for kind in (KINDS[of.provenance[best]],)
        ),
        *prices_rest_on(catalog, chips, study.price_basis),
    ]
    limits = "; ".join(limit.text for limit in study.constraints)
    loads = [one.row() for one in study.workloads]
    load = mix_words(loads) if len(loads) > 1 else load_words(loads[0])
    facts = {
        "space": study.name,
        "objective": metric,
        "price_basis": study.price_basis,
        **({"prices": list(terms)} if terms else {}),
        "quality_law": study.quality_law,
        "chips": list(chips),
        "shapes": len(price),
        "shared": int(shared.sum()),
        "answer": said,
        "assumed": rests,
    }
    return Answer(
        question="compare",
        title=study.title or study.name,
        asked=f"{study.title or study.name}: {len(price):,} shapes on {len(chips)} chips, "
        f"{shared.sum():,} served on all within the limits ({limits}); "
        f"{load}; prices: {study.price_basis}",
        headline=said[0],
        sentences=[
            *said[1:],
            "Regret is what a shape costs on a chip over that chip's own cheapest shape, less 1; "
            "each on its cheapest deployment within the limits.",
        ],
        blocks=(picture, choices, levels, *([price_parts(terms)] if terms else [])),
        rests=rests,
        document=document(facts, (choices, levels)),
        data=(choices,),
    )


def _levels(
    price: Floats, losses: Floats, loss: Floats, shapes: Mapping[str, NDArray]
) -> dict[str, Any]:
    """Columns by level of the loss at most: the best shape for all there and its worst regret, from
    the loosest loss that a shape for all chips has to that which a tenth of these reach. `losses`
    (k, c) are those of each chip's deployment, inf where it cannot serve the shape."""
    reached = loss[np.isfinite(loss)]
    levels = np.linspace(reached.max(), np.quantile(reached, 0.1), LEVELS)
    rows, worst = [], []
    for level in levels:
        best = np.where(losses <= level, price, np.inf).min(axis=0)
        regret = np.where(loss <= level, (price / best - 1.0).max(axis=1), np.inf)
        rows.append(int(np.argmin(regret)))
        worst.append(regret[rows[-1]])
    return {
        "which": "one shape for all",
        "predicted_loss_at_most": levels,
        "worst_regret": np.array(worst),
        "changes": np.diff(rows, prepend=-1) != 0,
        **{name: values[rows] for name, values in shapes.items()},
    }
