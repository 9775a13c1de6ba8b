"""A quality law moved to training runs of one's own (`dse.quality.own_runs`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.errors import InputError
from dse.physics.parameters import parameters
from dse.problem.models import shape_quality_of
from dse.quality.law import Law, Quality, training_flops
from dse.quality.laws import LAWS
from dse.quality.own_runs import (
    LEAST_FACTOR,
    PRIOR,
    Posterior,
    columns_of,
    posterior_of,
    rescaled,
)
from dse.record import record
from dse.schema.loss_runs import LossRuns
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

FAR = 3.0  # standard deviations of the scatter, beyond which a run is named


@record
class OwnLaw:
    """`law` is the law of that name moved to the runs; of r runs, in their order: `flops`, of
    their training, `published` and `predicted`, their loss under the law before and after, (r,)."""

    law: Law
    posterior: Posterior
    runs: LossRuns
    flops: Floats
    published: Floats
    predicted: Floats


@lru_cache(maxsize=64)
def own_law(name: str, runs: LossRuns) -> OwnLaw:
    """The law moved to the runs. Raises InputError for runs in which size or data do nothing."""
    models = [run.model for run in runs.runs]
    batch, tokens = batch_of_models(models), np.array([run.training_tokens for run in runs.runs])
    measured = np.array([run.loss for run in runs.runs])
    found = quality_of_models(batch, tokens, LAWS[name])
    posterior = posterior_of(columns_of(found), measured - found.predicted_loss)
    for k, what in ((1, "size"), (2, "training tokens")):
        if 1.0 + posterior.mean[k] < LEAST_FACTOR:
            raise InputError(
                f"by these runs {what} is worth {1.0 + posterior.mean[k]:.2f} of what the law "
                f"{name} says",
                file=runs.file,
                field="loss",
                accepted=f"runs whose loss falls with {what}; nats per token, on unseen text",
            )
    law = rescaled(LAWS[name], posterior)
    moved = quality_of_models(batch, tokens, law)
    flops = training_flops(parameters(batch).active, tokens)
    return OwnLaw(law, posterior, runs, flops, found.predicted_loss, moved.predicted_loss)


def batch_of_models(models: Sequence[Model]) -> CandidateBatch:
    """n models as they are, each on one chip."""
    n = len(models)
    axes = {axis: np.ones(n) for axis in DEPLOYMENT_AXES}
    return batch_of(models, np.zeros(n, dtype=np.intp), [None] * n, ["bf16"] * n, axes)


def quality_of_models(batch: CandidateBatch, tokens: Floats, law: str | Law) -> Quality:
    """The quality of n models that are trained on `tokens` (n,)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return shape_quality_of(batch, parameters(batch), tokens, law)


def describe_own_law(own: OwnLaw) -> dict[str, Any]:
    """`loss_runs` of an answer: what the runs say of the law."""
    posterior, runs = own.posterior, own.runs
    return {
        "file": runs.file,
        "digest": runs.digest,
        "noise": posterior.noise,
        "posterior": [
            {"name": name, "prior_sd": prior, "mean": float(mean), "sd": float(sd)}
            for (name, prior), mean, sd in zip(
                PRIOR.items(), posterior.mean, posterior.sd, strict=True
            )
        ],
        "runs": [
            {
                **row,
                "training_flops": float(flops),
                "published_loss": number(published),
                "predicted_loss": number(predicted),
            }
            for row, flops, published, predicted in zip(
                runs.as_json(), own.flops, own.published, own.predicted, strict=True
            )
        ],
    }


def own_law_words(answer: Mapping[str, Any]) -> list[str]:
    """Sentences on `loss_runs` of an answer; none without."""
    if not (document := answer.get("loss_runs")):
        return []
    runs, (floor, size, tokens, leverage) = document["runs"], document["posterior"]
    said = [
        f"Moved to {len(runs)} runs of {document['file']}: floor {_signed(floor)} nats, "
        f"parameter term {_factor(size)}, token term {_factor(tokens)}, leverage of experts to the "
        f"power of {_factor(leverage).removeprefix('x ')}; the runs scatter by "
        f"{document['noise']:.4f} nats about it."
    ]
    far = [
        f"{row['name']} ({row['loss'] - row['predicted_loss']:+.4f})"
        for row in runs
        if abs(row["loss"] - row["predicted_loss"]) > FAR * document["noise"]
    ]
    if far:
        said.append(f"Runs that lie more than {FAR:g} times as far from it: {', '.join(far)}.")
    return said


def _signed(one: dict[str, Any]) -> str:
    return f"{one['mean']:+.3f} ± {one['sd']:.3f}"


def _factor(one: dict[str, Any]) -> str:
    return f"x {1.0 + one['mean']:.3f} ± {one['sd']:.3f}"
