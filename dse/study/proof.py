"""How sure a study is of its front, for study.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.problem.objective import PhysicsProblem
from dse.search.checkpoint import Checkpoint
from dse.search.engine import Progress
from dse.search.exhaustive import LARGEST
from dse.search.proof import SUBGRID, history, prove
from dse.search.run import ENUMERATE, Result
from dse.space.thin import thinned
from dse.study.external import ExternalProblem

# Where an enumeration has come to: that of the search, and that which follows another search.
SWEEP, PROOF = "sweep.npz", "proof.npz"


def proof_of(
    problem: PhysicsProblem | ExternalProblem,
    result: Result,
    identity: Mapping[str, Any],
    out: Path,
    asked: bool | None,
    jobs: int,
    progress: Progress,
) -> dict[str, Any]:
    """`true_hypervolume_share` and `proof` of study.json, `proof` null where none was wanted
    (`asked` False). A function of the user is not called for it."""
    whole = result.evaluations == problem.space.size
    share = 1.0 if whole else None
    if asked is False:
        return {"true_hypervolume_share": share, "proof": None}
    if isinstance(problem, ExternalProblem):
        found: dict[str, Any] = {"history": history(problem, result)}
        return {"true_hypervolume_share": share, "proof": found}
    size = problem.space.size
    part = thinned(problem.space, SUBGRID)
    found = prove(
        problem,
        result,
        seed=identity["seed"],
        subgrid=replace(problem, space=part) if part.size <= 2 * SUBGRID else None,
        enumerate_up_to=LARGEST if asked else ENUMERATE,
        threads=jobs,
        progress=progress,
        checkpoint=Checkpoint(out / PROOF, identity),
    )
    if "enumerated" in found:
        share = found["enumerated"]["true_hypervolume_share"]
    elif asked:
        found["not_enumerated"] = f"{size:,} points are more than {LARGEST:,}"
    return {"true_hypervolume_share": share, "proof": found}
