"""How the best design of a study moves with the tokens that it will serve.

Dollars over a model's life are a straight line in the tokens served: training, and dollars per
token. Whatever the demand, the cheapest design that reaches a loss is therefore one of those that
no other beats in loss, training dollars and dollars per served token at once. From these, kept once
over the whole space where it can be enumerated, follow the fronts of loss against lifetime dollars
at every demand, and the demands at which one design takes the place of another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.economics.tokens import (
    SERVING_FLOP_PER_PARAMETER,
    TRAINING_FLOP_PER_PARAMETER,
    LossLaw,
    cheapest_shape,
    lower_envelope,
)
from dse.pareto import Archive, non_dominated
from dse.problem.objective import PhysicsProblem
from dse.problem.training import serving_price
from dse.quality.laws import hoffmann, leverage
from dse.space.candidates import Floats

FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of the forecast
ENUMERATED = 1_000_000  # points of a space that is looked through for them
CHUNK = 16_384
LEVELS = (0.2, 0.45, 0.7)  # of the designs of the front, by loss
DRAWN = 60  # points of a front in the figure
OF_DESIGN = (
    *("predicted_loss", "total_parameters", "active_parameters", "training_tokens"),
    *("training_usd", "training_days", "training_chip_hours", "chip_usd_per_hour"),
)
# Laws whose dense loss has this form; `cautious` differs from the default in experts alone.
DENSE = {
    name: LossLaw(
        law.LOSS_FLOOR,
        law.LOSS_PARAMETERS,
        law.LOSS_PARAMETERS_EXPONENT,
        law.LOSS_TOKENS,
        law.LOSS_TOKENS_EXPONENT,
    )
    for name, law in (("leverage", leverage), ("cautious", leverage), ("hoffmann", hoffmann))
}


@dataclass(frozen=True, slots=True)
class Pool:
    """Designs that may be best at some demand: ids (k,) of the space and their figures."""

    ids: NDArray[np.int64]
    loss: Floats
    training_usd: Floats
    usd_per_million: Floats
    whole: bool  # of every point of the space
    dense: Pool | None = None  # the same of dense shapes alone, where the space has both kinds

    def lifetime_usd(self, tokens: float) -> Floats:
        return self.training_usd + tokens * self.usd_per_million / 1e6


def training_document(problem: PhysicsProblem, front: NDArray[np.int64]) -> dict[str, Any]:
    """What study.json holds of training and life, empty without either; `front` (n, d) is the
    index of the front."""
    trained, study = problem.trained, problem.study
    if trained is None or study.training is None:
        return {}
    document: dict[str, Any] = {"training": asdict(study.training)}
    if trained.life is None:
        return document
    tokens = trained.served_tokens
    found = {"terms": asdict(trained.life), "served_tokens": tokens}
    pool = _pool(problem, front)
    demand = None if pool is None else _demand(problem, pool, tokens)
    return {**document, "lifetime": {**found, "demand": demand}}


def _pool(problem: PhysicsProblem, front: NDArray[np.int64]) -> Pool | None:
    """None where no loss or no price is known."""
    whole = problem.space.size <= ENUMERATED
    archive, dense = Archive(3), Archive(3)
    both = any(axis.name == "sparse" and len(axis.values) > 1 for axis in problem.study.axes)
    ids = problem.space.rank(front)
    size = problem.space.size if whole else len(ids)
    for start in range(0, size, CHUNK):
        part = np.arange(start, min(start + CHUNK, size)) if whole else ids[start : start + CHUNK]
        index = problem.space.unrank(part)
        F, good = _figures(problem, index)
        archive.add(F[good], part[good])
        if both:
            good &= problem.space.values(index)["sparse"] == 0.0
            dense.add(F[good], part[good])
    if not len(archive):
        return None
    found = _pool_of(archive, whole)
    return replace(found, dense=_pool_of(dense, whole)) if len(dense) else found


def _pool_of(archive: Archive, whole: bool) -> Pool:
    F = archive.F
    return Pool(archive.ids, F[:, 0], F[:, 1], F[:, 2], whole)


def _figures(problem: PhysicsProblem, index: NDArray[np.int64]) -> tuple[Floats, NDArray[np.bool_]]:
    """(n, 3) loss, dollars of training, dollars per million served tokens; and which are feasible,
    limits on the life left out: they hold at one demand."""
    assert problem.trained is not None
    assert problem.trained.life is not None
    metrics = problem.metrics(index)
    values = metrics.values
    F = np.stack(
        [
            values["predicted_loss"],
            values["training_usd"],
            serving_price(values, problem.trained.life),
        ],
        axis=1,
    )
    good = metrics.feasible & ~np.isnan(F).any(axis=1)
    for limit in problem.limits:
        if not limit.metric.startswith("lifetime_"):
            good &= limit.amount(metrics) <= 0.0
    return F, good


def _demand(problem: PhysicsProblem, pool: Pool, tokens: float) -> dict[str, Any]:
    fronts = []
    for factor in FACTORS:
        usd = pool.lifetime_usd(factor * tokens)
        on = np.flatnonzero(non_dominated(np.stack([pool.loss, usd], axis=1)))
        on = on[np.argsort(pool.loss[on])]
        if len(on) > DRAWN:
            on = on[np.unique(np.linspace(0, len(on) - 1, DRAWN).round().astype(int))]
        fronts.append(
            {
                "factor": factor,
                "tokens": factor * tokens,
                "usd": usd[on].tolist(),
                "loss": pool.loss[on].tolist(),
            }
        )
    # Levels lie on the front at the forecast itself.
    losses = fronts[FACTORS.index(1.0)]["loss"]
    levels = [losses[int(share * (len(losses) - 1))] for share in LEVELS]
    return {
        "from_whole_space": pool.whole,
        "designs": len(pool.ids),
        "fronts": fronts,
        "levels": [_level(problem, pool, level, tokens) for level in dict.fromkeys(levels)],
    }


def _level(problem: PhysicsProblem, pool: Pool, loss: float, tokens: float) -> dict[str, Any]:
    """The cheapest designs of at most that loss as demand grows, and at each of FACTORS; beside
    them the dense model that takes the least FLOP by the loss law alone, whatever its price."""
    able = np.flatnonzero(pool.loss <= loss)
    rows, starts = lower_envelope(pool.training_usd[able], pool.usd_per_million[able])
    designs = _designs(problem, pool, able[rows])
    for design, start, end in zip(designs, starts, [*starts[1:], None], strict=True):
        design |= {"from_tokens": start, "to_tokens": end}
    demands = []
    for factor in FACTORS:
        served = factor * tokens
        least = _least_flop(problem, loss, served)
        k = int(np.searchsorted(starts, served, side="right")) - 1
        design = designs[k]
        serving = served * design["usd_per_million_served_tokens"] / 1e6
        active = design["active_parameters"]
        demands.append(
            {
                "factor": factor,
                "tokens": served,
                "design": k,
                "lifetime_usd": design["training_usd"] + serving,
                "serving_usd": serving,
                "training_flops": TRAINING_FLOP_PER_PARAMETER * active * design["training_tokens"],
                "serving_flops": SERVING_FLOP_PER_PARAMETER * active * served,
                "training_chip_hours": design["training_chip_hours"],
                "serving_chip_hours": serving / design["chip_usd_per_hour"],
                "dense_lifetime_usd": _cheapest(pool.dense, loss, served),
                **least,
            }
        )
    return {"loss": loss, "designs": designs, "demands": demands}


def _least_flop(problem: PhysicsProblem, loss: float, served: float) -> dict[str, float | None]:
    """Parameters and training tokens of the dense model that takes the least FLOP; None under a law
    of another form."""
    names = ("least_flop_parameters", "least_flop_training_tokens")
    law, own = DENSE.get(problem.study.quality_law), problem.own_law
    if law is None:
        return dict.fromkeys(names)
    if own is not None:
        floor, size, data, _ = own.posterior.mean
        a, b = law.a * (1.0 + size), law.b * (1.0 + data)
        law = replace(law, floor=law.floor + floor, a=a, b=b)
    found = cheapest_shape(law, np.array([loss]), np.array([served]))
    return {name: float(one[0]) for name, one in zip(names, found, strict=True)}


def _cheapest(pool: Pool | None, loss: float, tokens: float) -> float | None:
    """Least lifetime dollars at that loss; None where nothing reaches it."""
    if pool is None or not (pool.loss <= loss).any():
        return None
    return float(pool.lifetime_usd(tokens)[pool.loss <= loss].min())


def _designs(problem: PhysicsProblem, pool: Pool, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    values = problem.metrics(problem.space.unrank(pool.ids[rows])).values
    columns = {name: values[name] for name in OF_DESIGN}
    columns["usd_per_million_served_tokens"] = pool.usd_per_million[rows]
    columns["tokens_per_active_parameter"] = values["training_tokens"] / values["active_parameters"]
    return [
        {"id": int(pool.ids[row]), **{name: float(of[k]) for name, of in columns.items()}}
        for k, row in enumerate(rows)
    ]
