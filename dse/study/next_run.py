"""`loss_runs` of study.json: what one's own runs say of the law, and which run to do next.

A front trades loss for cost and time. With every objective scaled to 0 at the front's best and 1 at
its worst, the first choice is the point with the least sum (the knee), and a rival gives away

    gap = (its sum - that of the knee) x the front's range of loss        nats

so that the rival is the better one where its loss is `gap` lower, against the knee's, than is
predicted. The error of that difference of losses is normal with the posterior's standard deviation
s (`dse.quality.own_runs.Posterior`). The expected regret of the choice, nats, is

    r(s) = s phi(gap / s) - gap Phi(-gap / s)

and the rival that is asked about is the one where it is largest. A run takes away the variance q^2
of the difference (`Posterior.learned`), and choosing after it is worth r(q): the run with the
largest r(q), which is that with the largest q, is the one to do next (the knowledge gradient of
Frazier et al. 2008, SIAM J. Control Optim. 47, 2410, of two choices). Only the loss is in doubt
here, not prices and times.

Candidates are small models of the two shapes: hidden size, widths and heads shrunk together, layers
as hidden size to the power of 0.62 (the best shapes of `dse.quality.depth`), as many experts as the
shape has; trained on what the compute pays for, between 5 and 1,000 tokens a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.pareto import Scale
from dse.physics.parameters import parameters
from dse.problem.objective import PhysicsProblem
from dse.problem.own_law import (
    OwnLaw,
    affordable_tokens,
    batch_of_models,
    describe_own_law,
    quality_of_models,
)
from dse.quality.laws import LAWS
from dse.quality.own_runs import Doubt, columns_of
from dse.schema.blocks import MIXERS
from dse.schema.model import BlockSpec, Model, check
from dse.schema.own_config import config_of, model_of
from dse.space.candidates import CandidateBatch, Floats

LOSS = "predicted_loss"
WIDTHS = (512, 768, 1024, 1536, 2048, 3072, 4096)  # hidden sizes of candidates
SHARES = (1.0, 0.25)  # of the compute
TOKENS_PER_PARAMETER = (5.0, 1000.0)
BY_WIDTH = 0.62
OFFERED = 5


def describe_loss_runs(
    problem: PhysicsProblem, F: Floats, index: NDArray[np.int64], items: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """`loss_runs` of study.json for a front F (n, m) at `index` (n, d), whose items of front.json
    are `items`; empty without runs."""
    own = problem.own_law
    if own is None:
        return {}
    found = describe_own_law(own)
    doubt = problem.metrics(index).quality.doubt
    assert doubt is not None
    found["next"] = _next(problem, own, doubt, F, items)
    return {"loss_runs": found}


def _next(
    problem: PhysicsProblem,
    own: OwnLaw,
    doubt: Doubt,
    F: Floats,
    items: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """The choice that is most in doubt, and the runs that would tell most of it."""
    flops = float(own.flops.max())
    found: dict[str, Any] = {"training_flops": flops, "choice": None, "runs": []}
    columns = [j for j, o in enumerate(problem.objectives) if o.metric == LOSS]
    if not columns:
        return {**found, "why": "no objective of this study reads a predicted loss"}
    scaled = Scale.of(F, tuple(o.log for o in problem.objectives))(F)
    total = np.add.reduce(scaled, axis=1)
    first = int(np.argmin(total))
    gap = (total - total[first]) * float(np.ptp(F[:, columns[0]]))
    apart = tuple(column - column[first] for column in doubt.columns)
    sd = np.sqrt(np.maximum(own.posterior.variance(apart), 0.0))
    regret = expected_regret(gap, sd)
    rival = int(np.lexsort((-sd, -regret))[0])
    if not sd[rival] > 0.0:
        return {**found, "why": "all points of the front have the same error of the loss"}
    models = {i + 1: model_of(items[i]["model"], f"point {i + 1}") for i in (first, rival)}
    kinds, batch, tokens = _candidates(models, flops)
    found["choice"] = {
        "point": first + 1,
        "rival": rival + 1,
        "gap": float(gap[rival]),
        "sd": float(sd[rival]),
        "expected_regret": float(regret[rival]),
    }
    if not kinds:
        return {**found, "why": "the compute of the largest run pays for no small model of the two"}
    quality = quality_of_models(batch, tokens, LAWS[problem.study.quality_law])
    told = own.posterior.learned(
        tuple(column[rival : rival + 1] for column in apart), columns_of(quality)
    )
    worth = expected_regret(gap[rival], np.sqrt(told))
    moved = quality_of_models(batch, tokens, own.law).predicted_loss
    count = parameters(batch)
    order = np.lexsort((count.active * tokens, -np.round(told, 15)))[:OFFERED]
    found["runs"] = [
        {
            "model": {**config_of(kinds[i]), "training_tokens": float(tokens[i])},
            "like_point": int(kinds[i].id),
            "training_tokens": float(tokens[i]),
            "training_flops": float(6.0 * count.active[i] * tokens[i]),
            "active_parameters": float(count.active[i]),
            "total_parameters": float(count.total[i]),
            "predicted_loss": float(moved[i]),
            "regret_saved": float(worth[i]),
            "sd_after": float(np.sqrt(max(sd[rival] ** 2 - told[i], 0.0))),
        }
        for i in order
    ]
    return found


def expected_regret(gap: Floats | float, sd: Floats) -> Floats:
    """(n,) r(sd) as above; `gap` is at least 0. 0 where nothing is in doubt."""
    from scipy.special import ndtr  # noqa: PLC0415 - 150 ms

    safe = np.where(sd > 0.0, sd, 1.0)
    z = gap / safe
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return np.where(sd > 0.0, np.maximum(safe * density - gap * ndtr(-z), 0.0), 0.0)


def _candidates(
    models: Mapping[int, Model], flops: float
) -> tuple[list[Model], CandidateBatch, Floats]:
    """Small models of the shapes of points with their tokens: (k models, their batch, (k,)); the id
    of a model is the point that it is like."""
    made: dict[str, Model] = {}
    for point, model in models.items():
        for small in _small(model):
            one = replace(small, id=str(point), name=f"like-{point}-{small.hidden_size}")
            made.setdefault(str((one.hidden_size, one.blocks)), one)
    each = [(model, flops * share) for model in made.values() for share in SHARES]
    if not each:
        return [], batch_of_models([]), np.zeros(0)
    batch = batch_of_models([model for model, _ in each])
    tokens = affordable_tokens(batch, np.array([compute for _, compute in each]))
    per_parameter = tokens / parameters(batch).active
    low, high = TOKENS_PER_PARAMETER
    kept = np.flatnonzero((per_parameter >= low) & (per_parameter <= high))
    return [each[i][0] for i in kept], batch[kept], tokens[kept]


def _small(model: Model) -> Iterator[Model]:
    for width in WIDTHS:
        if width <= model.hidden_size:
            try:
                small = _shrunk(model, width)
                check(small)
            except InputError:  # a kind of layer that does not shrink so
                continue
            yield small


def _shrunk(model: Model, width: int) -> Model:
    share = width / model.hidden_size
    layers = max(2, round(model.num_hidden_layers * share**BY_WIDTH))
    mixers = [block for block in model.blocks if block.kind in MIXERS]
    others = [block for block in model.blocks if block.kind not in MIXERS]
    blocks = [*_fewer(mixers, layers), *_fewer(others, layers)]
    return replace(
        model,
        hidden_size=width,
        prediction_layers=None,
        blocks=tuple(
            BlockSpec(block.kind, count, _sizes(block, share)) for block, count in blocks if count
        ),
    )


def _fewer(blocks: Sequence[BlockSpec], layers: int) -> list[tuple[BlockSpec, int]]:
    """Counts in proportion that add up to `layers`; what is rounded away goes to the most."""
    whole = sum(block.count for block in blocks)
    counts = [round(block.count / whole * layers) for block in blocks]
    if counts:
        most = max(range(len(counts)), key=lambda k: blocks[k].count)
        counts[most] += layers - sum(counts)
    return list(zip(blocks, counts, strict=True))


def _sizes(block: BlockSpec, share: float) -> dict[str, float]:
    """Widths to multiples of 32, heads to whole groups; the width of a head, experts and experts
    per token stay."""
    sizes = dict(block.sizes)
    for name, value in sizes.items():
        if value and name.endswith(("_size", "_rank")):
            sizes[name] = max(32, round(value * share / 32) * 32)
    heads, groups = sizes.get("heads"), sizes.get("kv_heads")
    if heads:
        sizes["heads"] = max(1, round(heads * share))
    if heads and groups:
        each = heads / groups
        sizes["kv_heads"] = max(1, round(sizes["heads"] / each))
        sizes["heads"] = sizes["kv_heads"] * max(1, round(sizes["heads"] / sizes["kv_heads"]))
    return sizes
