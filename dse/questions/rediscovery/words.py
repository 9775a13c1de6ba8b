"""What was found, in sentences; each carries numbers of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.numbers import NONE, dollars, plain, show, significant, times
from dse.answer.sentences import listed
from dse.problem.quality import amount
from dse.quality import LAWS
from dse.questions.rediscovery.answer import Rediscovery, Variant
from dse.questions.rediscovery.front import Distance
from dse.questions.rediscovery.path import Step
from dse.questions.rediscovery.table import DEGREES
from dse.space.candidates import Floats

LEVEL = 0.05  # a price within it of the front's is level with the front
SMALL = 0.02  # a change of less is not named
NAMES = {
    "hidden_size": "hidden size",
    "num_hidden_layers": "layers",
    "attention": "attention",
    "head_dim": "head size",
    "num_attention_heads": "query heads",
    "num_key_value_heads": "KV heads",
    "q_lora_rank": "query rank",
    "kv_lora_rank": "KV rank",
    "sparse": "sparse",
    "sliding_window": "window",
    "sliding_window_pattern": "full attention every n-th layer",
    "intermediate_size": "dense feed-forward",
    "num_experts": "experts",
    "num_experts_per_tok": "experts per token",
    "moe_intermediate_size": "expert width",
    "num_shared_experts": "shared experts",
    "num_dense_layers": "dense layers",
    "qk_nope_head_dim": "query-key head size",
    "qk_rope_head_dim": "rotary head size",
    "v_head_dim": "value head size",
}
KINDS = {"attention": ("grouped", "latent"), "sparse": ("dense", "sparse")}
# Columns that explain a step: what each is called, and how it is printed where it is no metric.
TERMS: Mapping[str, tuple[str, Callable[[float], str] | None]] = {
    "active_non_embedding": ("active", lambda value: show("active_parameters", value)),
    "activation_ratio": ("share of experts used", "{:.2%}".format),
    "granularity": ("granularity", plain),
    "efficiency_leverage": ("leverage of experts", plain),
    "depth_factor": ("depth factor", "{:.3f}".format),
    "active_parameters": ("active", None),
    "total_parameters": ("total", None),
    "kv_bytes_per_token": ("cache a token", None),
    "running_requests": ("running", None),
}
CAUSES = ("active_parameters", "total_parameters", "kv_bytes_per_token", "running_requests")


def billions(value: float | None) -> str:
    return show("dense_equivalent_parameters", value)


def nats(value: float | None) -> str:
    return NONE if value is None else f"{value:+.4f}"


def value_words(axis: str, value: float) -> str:
    """A value of an axis as a person writes it."""
    if axis in KINDS:
        return KINDS[axis][int(value)]
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def deployment_words(deployment: Mapping[str, Any]) -> str:
    return f"{_degrees(deployment)}, {deployment['concurrency']:,} in flight"


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
    """The answer: where the design stands, and which assumption puts it there."""
    table, away, name = found.table, found.distance, found.case.expert.name
    if not found.servable:
        return [
            f"{name} cannot be served within the limits of the case on any deployment of the space."
        ]
    own = table.row(found.expert)
    where = standing(away, served=True)
    if away.cost_ratio is None:
        worse = "" if away.nats is None else f"{abs(away.nats):.4f} nats worse"
        gap = f"; at its price the best one is {worse}" if worse else ""
        first = (
            f"{name} is {where}: no shape of the space within the same budgets reaches its "
            f"predicted loss of {own['predicted_loss']:.4f}{gap}."
        )
    else:
        first = (
            f"{name} is {where}: it costs {times(away.cost_ratio)} what the front does at equal "
            f"predicted quality ({dollars(own['price'])} a million tokens)"
        )
        if away.nats is not None:
            first += f", and at equal cost the front's loss is {_less(away.nats)}"
        if away.equivalent_ratio is not None:
            ahead = own["dense_equivalent_parameters"] * away.equivalent_ratio
            first += (
                f" ({billions(ahead)} dense-equivalent for "
                f"{billions(own['dense_equivalent_parameters'])})"
            )
        first += "."
    rank = f"{away.dominating:,} of {found.served:,} shapes are at least as good and cost no more."
    return [first, *memory(found), *outside(found), rank, *_changed(found), *_blame(found)]


def _changed(found: Rediscovery) -> list[str]:
    """What the cheapest shape that is as good does otherwise, step by step in two figures."""
    steps = found.to_cheaper
    if not steps:
        return []
    said = []
    for step in steps:
        a, b = (row["dense_equivalent_parameters"] for row in (step.before, step.after))
        quality = f", dense-equivalent {_change(a, b)}" if a and b else ""
        price = _change(step.before["price"], step.after["price"])
        said.append(f"{changes_words(step)} (price {price}{quality})")
    return [f"The cheapest shape that is as good takes {'; '.join(said)}."]


def _less(gain: float) -> str:
    return f"{abs(gain):.4f} nats {'lower' if gain >= 0 else 'higher'}"


def _blame(found: Rediscovery) -> list[str]:
    """Which single change of an assumption moves the distance most, each way."""
    ratio = found.distance.cost_ratio
    if ratio is None:
        return []
    kindest, harshest = _single(found, min), _single(found, max)
    said = []
    if kindest is not None and _harshness(kindest) < ratio * (1.0 - SMALL):
        said.append(
            f"One assumption does most of it: with {kindest.words}, it {_stands(kindest)}, not "
            f"{times(ratio)}."
        )
    elif ratio > 1.0 + LEVEL:
        said.append("No single assumption that was changed brings the design nearer.")
    if harshest is not None and _harshness(harshest) > ratio * (1.0 + SMALL):
        said.append(f"Another one widens it: with {harshest.words}, it {_stands(harshest)}.")
    free = next((v for v in found.variants if v.key == "free"), None)
    if free is not None and free.distance_known:
        said.append(f"With {free.words}, it {_stands(free)}.")
    every = next((v for v in found.variants if v.key == "all"), None)
    if every is not None and every.front_size:
        said.append(
            "With rivals held to its own sparsity, granularity, attention and depth together, it "
            f"{_stands(every)}."
        )
    return said


def _single(found: Rediscovery, pick: Callable[..., Any]) -> Variant | None:
    """The single change that leaves the least or the greatest distance."""
    single = [v for v in found.variants if v.key not in ("all", "free") and v.distance_known]
    return pick(single, key=_harshness, default=None)


def most_of_it(found: Rediscovery) -> str:
    """The single change that brings the design nearest, with the cost ratio that it leaves."""
    kindest, ratio = _single(found, min), found.distance.cost_ratio
    if kindest is None or ratio is None or _harshness(kindest) >= ratio * (1.0 - SMALL):
        return "-"
    left = kindest.distance.cost_ratio
    return f"{kindest.key}: {'no rival' if left is None else times(left)}"


def _harshness(variant: Variant) -> float:
    """The cost ratio; where no rival is as good, the design is ahead by any measure: 0."""
    ratio = variant.distance.cost_ratio
    return 0.0 if ratio is None else ratio


def _stands(variant: Variant) -> str:
    away = variant.distance
    if away.cost_ratio is not None:
        return f"costs {times(away.cost_ratio)} the front"
    if away.nats is None:
        return "has no rival that is as good or as cheap"
    return f"has no rival that is as good (at its price they are {abs(away.nats):.4f} nats worse)"


def changes_words(step: Step) -> str:
    """Axes with their values before and after; of a change of kind, those that both kinds have."""
    return ", ".join(
        f"{NAMES.get(axis, axis)} {value_words(axis, a)} -> {value_words(axis, b)}"
        for axis, (a, b) in step.changes.items()
        if axis in KINDS or not set(KINDS) & set(step.changes) or (a and b)
    )


def step_words(step: Step) -> str:
    """One swap: what changes, what it does to quality and to price, and through which terms."""
    before, after = step.before, step.after
    return f"{changes_words(step)}: {_quality(before, after)}; {_price(before, after)}"


def _quality(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    a, b = before["dense_equivalent_parameters"], after["dense_equivalent_parameters"]
    if a is None or b is None:
        return f"loss {before['predicted_loss']:.4f} -> {after['predicted_loss']:.4f}"
    if abs(math.log(b / a)) < 1e-6:
        return "quality as it was, for the law does not see it"
    leverage = _arrows(before, after, "efficiency_leverage")
    if leverage and (why := _arrows(before, after, "activation_ratio", "granularity")):
        leverage = [f"{leverage[0]} ({', '.join(why)})"]
    terms = [
        *_arrows(before, after, "active_non_embedding"),
        *leverage,
        *_arrows(before, after, "depth_factor"),
    ]
    through = f" through {' and '.join(terms)}" if terms else ""
    return f"dense-equivalent {_change(a, b)} to {billions(b)}{through}"


def _price(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    a, b = before["price"], after["price"]
    if not math.isfinite(b):
        return "cannot be served within the limits"
    said = f"price {_change(a, b)} to {dollars(b)}"
    if abs(b / a - 1.0) < SMALL / 2:
        return said
    # Active parameters are named once, with what they do to quality.
    named = _arrows(before, after, "active_non_embedding")
    causes = _arrows(before, after, *(CAUSES[1:] if named else CAUSES))
    one, other = (_degrees(row["deployment"]) for row in (before, after))
    if one != other:
        causes.append(f"{other} in place of {one}")
    return f"{said} with {', '.join(causes)}" if causes else said


def _degrees(deployment: Mapping[str, Any]) -> str:
    degrees = [f"{DEGREES[name]}{deployment[name]}" for name in DEGREES if name in deployment]
    return " ".join(degrees) or "tp1"


def _arrows(before: Mapping[str, Any], after: Mapping[str, Any], *columns: str) -> list[str]:
    """`total 8.03B -> 70B` of each column that moved."""
    said = []
    for column in columns:
        a, b = before[column], after[column]
        if a and b and abs(math.log(b / a)) > SMALL / 2:
            words, text = TERMS[column]
            one, other = ((text(x) if text else show(column, x)) for x in (a, b))
            said.append(f"{words} {one} -> {other}")
    return said


def _change(a: float, b: float) -> str:
    change = b / a - 1.0
    return f"{change:+.0%}" if abs(change) < 1.0 else f"x {significant(b / a, 2)}"


def looked_at(found: Rediscovery) -> str:
    """How much was looked at, and how sure a price is."""
    said = (
        f"{found.shapes:,} shapes, {found.served:,} of them within the budgets and served within "
        f"the limits, {len(found.front.rows):,} on the front."
    )
    if found.servable:
        low, high = (dollars(end) for end in found.price_interval)
        said += (
            f" The 80% interval of the design's price is {low} to {high} (kernel laws: "
            f"{found.known_as}); shapes on one chip share much of that error."
        )
    return said


def law_words(found: Rediscovery) -> str:
    name = found.case.study.quality_law
    return f"Quality law: `{name}`, {LAWS[name].title[0].lower()}{LAWS[name].title[1:]}."


def figures(found: Rediscovery, i: int) -> dict[str, str]:
    """{name: value} of one row: quality, price, service, size."""
    row = found.table.row(i)
    sizes = (show(name, row[name]) for name in ("active_parameters", "total_parameters"))
    waits = (show(name, row[name]) for name in ("tpot_s", "ttft_s"))
    return {
        "price, $ a million tokens": dollars(row["price"]),
        "predicted loss": f"{row['predicted_loss']:.4f}",
        "dense-equivalent": billions(row["dense_equivalent_parameters"]),
        "active, total": ", ".join(sizes),
        "cache a token": show("kv_bytes_per_token", row["kv_bytes_per_token"]),
        "per token, to the first": ", ".join(waits),
        "deployment": deployment_words(row["deployment"]),
    }


# Columns of a table that a law's range is for, and whether experts alone are meant.
QUANTITIES = {
    "activation_ratio": ("share of experts used", True),
    "granularity": ("granularity", True),
    "total_parameters": ("total parameters", True),
    "active_parameters": ("active parameters", False),
    "dense_equivalent_parameters": ("dense-equivalent parameters", False),
}
# Memory is named where the weights take so much less of it, and so many times the requests run.
LESS, MORE = 0.1, 1.25


def outside(found: Rediscovery) -> list[str]:
    """In what the shapes of the front, and the design, lie beyond what the law was fitted on."""
    columns, rows = found.table.columns, found.front.rows
    sparse = columns["activation_ratio"] < 1.0
    said, own = [], []
    for name, known in LAWS[found.case.study.quality_law].fit.items():
        if name not in QUANTITIES:
            continue
        words, experts = QUANTITIES[name]
        beyond = known.excludes(columns[name]) & (sparse if experts else True)
        if beyond[rows].any():
            shown = _share if name == "activation_ratio" else amount
            ends = [shown(end) for end in _ends(columns[name][rows][beyond[rows]])]
            low = f"on {shown(known.low)} " if known.low > 0.0 else "up "
            said.append(
                f"{beyond[rows].sum():,} in {words} ({' to '.join(ends)}; fitted {low}to "
                f"{shown(known.high)})"
            )
        if beyond[found.expert]:
            own.append(words)
    if not said:
        return []
    text = f"Of the {len(rows):,} shapes of the front the law extrapolates for {'; '.join(said)}"
    return [f"{text}; for the design in {listed(own)}." if own else f"{text}; not for the design."]


def memory(found: Rediscovery) -> list[str]:
    """Where the cheapest shape that is as good runs more requests on as many chips, because its
    weights leave more of their memory."""
    cheaper = found.distance.cheaper
    if cheaper is None or found.distance.cost_ratio is None:
        return []
    a, b = (found.table.row(i) for i in (found.expert, cheaper))
    (own, few), (other, many) = (
        (
            row["memory_weights_bytes_per_chip"] / row["memory_capacity_bytes_per_chip"],
            row["running_requests"] / row["chips"],
        )
        for row in (a, b)
    )
    if own - other < LESS or many < MORE * few:
        return []
    return [
        f"Part of that is memory, not speed: the design's weights take {own:.0%} of each chip's "
        f"and {few:,.0f} requests run on it at once, with the cheapest shape that is as good "
        f"{other:.0%} and {many:,.0f}."
    ]


def of_all(answers: Sequence[Rediscovery]) -> list[str]:
    """What to know of the figures of several cases side by side."""
    said = []
    for one in answers:
        known = LAWS[one.case.study.quality_law].fit.get("activation_ratio")
        used = one.table.columns["activation_ratio"][one.front.rows]
        if known is not None and (used < known.low).any():
            said.append(
                f"{one.case.title}: {(used < known.low).sum():,} of the {len(used):,} shapes of "
                f"the front use fewer of their experts (down to {_share(float(used.min()))}) than "
                f"the law has seen ({_share(known.low)})."
            )
        if memory(one):
            said.append(f"{one.case.title}: part of the cost is memory of the chip, not speed.")
    return said


def _ends(values: Floats) -> Sequence[float]:
    low, high = float(np.min(values)), float(np.max(values))
    return [low] if low == high else [low, high]


def _share(value: float) -> str:
    return f"{100.0 * value:.3g}%"
