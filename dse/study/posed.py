"""A study before its search: its space with the physics, and the study of record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse import __version__
from dse.catalog import Catalog
from dse.problem.objective import PhysicsProblem, on_terms, pose
from dse.quality.laws import DEFAULT
from dse.schema.study import load_study
from dse.search.record import Record
from dse.study.definition import definition, differences


@dataclass(frozen=True, slots=True)
class Posed:
    """A space with the physics, and what a study of it must share to be continued."""

    problem: PhysicsProblem
    catalog: Catalog
    identity: dict[str, Any]
    defined: dict[str, Any]

    def record(self, location: str | Path, fresh: bool = False) -> Record:
        """The study of record. Raises StorageError where it is another study, saying what
        differs."""
        record = Record(
            self.problem,
            location,
            self.problem.study.name,
            self.identity,
            fresh,
            lambda attrs: differences(attrs.get("definition"), self.defined),
        )
        if "definition" not in record.attrs:
            record.set_attrs({"definition": self.defined})
        return record


def posed_study(
    space: str,
    catalog: Catalog,
    engine: str,
    seed: int,
    model_version: str = __version__,
    evaluator: str = "model",
    law: str | None = None,
    loss_runs: Path | str | None = None,
) -> Posed:
    """`law` takes the place of the space's quality law, `loss_runs` of its file of runs. Raises
    InputError for a space that is wrong."""
    study = load_study(space, catalog, law, loss_runs)
    catalog = on_terms(catalog.with_files(study.chip_files), study)
    problem = pose(study, catalog)
    identity = {
        "space": problem.study.name,
        "fingerprint": problem.space.fingerprint,
        "engine": engine,
        "seed": seed,
        "model_version": model_version,
        "data_digest": catalog.digest,
        "evaluator": evaluator,
        **({"quality_law": study.quality_law} if study.quality_law != DEFAULT else {}),
    }
    return Posed(problem, catalog, identity, definition(study))
