"""`dse.run` and the study that it returns."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.files import write_text
from dse.schema.study import GIVEN, Space, chip_files_of
from dse.search.claims import LEASE_S
from dse.study.folder import (
    FRONT_TABLE,
    STUDY,
    read_json,
    read_study,
    space_of,
)
from dse.study.join import JOURNAL, posed_study
from dse.study.run import run_study

if TYPE_CHECKING:
    import pandas as pd

    from dse.answer.answer import Answer

SPACE = "space.yaml"  # what a study folder calls the space that a program gave


def run(
    space: Space,
    *,
    catalog: Catalog | None = None,
    seed: int = 0,
    trials: int | None = None,
    engine: str = "auto",
    out: Path | str | None = None,
    storage: str | None = None,
    jobs: int = 2,
    fresh: bool = False,
    evaluator: str | None = None,
    prove: bool | None = None,
    law: str | None = None,
    every_law: bool = False,
    cluster: str | None = None,
    lease_s: float = LEASE_S,
    progress: Callable[[int, int | None, int], None] = lambda done, total, front: None,
) -> Study:
    """Searches a space: a shipped name, the path of a space file, or what such a file says.

        study = dse.run("tiny", seed=1)
        study.best.metrics["predicted_loss"], study.front.to_pandas()

    Without `out` the study lies in a temporary folder, as long as the result is kept. The other
    arguments are the options of `dse run` and mean the same (`dse.study.run.run_study`).

    Raises InputError for a space that is wrong, StorageError for a folder that cannot be used or
    holds another study, NothingFeasible when no point is feasible.
    """
    catalog = catalog or load_catalog(chips=chip_files_of(space))
    folder = Path(tempfile.mkdtemp(prefix="dse-") if out is None else out)
    if isinstance(space, Mapping):
        write_text(folder, SPACE, json.dumps(_from_here(space), indent=1))
        space = folder / SPACE
    run_study(
        str(space),
        folder,
        catalog=catalog,
        engine=engine,
        seed=seed,
        trials=trials,
        storage=storage,
        jobs=jobs,
        fresh=fresh,
        evaluator=evaluator,
        prove=prove,
        law=law,
        every_law=every_law,
        cluster=cluster,
        lease_s=lease_s,
        progress=progress,
    )
    study = Study(folder, catalog)
    if out is None:
        weakref.finalize(study, shutil.rmtree, folder, ignore_errors=True)
    return study


def _from_here(space: Mapping[str, Any]) -> Any:
    """The space with the paths in it as seen from any folder. Raises InputError for what no file
    of a space could say."""

    def settled(value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {key: settled(inner, str(key)) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [settled(inner, name) for inner in value]
        named = name in ("model", "chip", "rack", "values") and isinstance(value, str)
        return str(Path(value).resolve()) if named and Path(value).exists() else value

    found = settled(space)
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            str(error), file=GIVEN, accepted="text, numbers, lists, mappings"
        ) from None
    return found


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a front: its number, the shape as a config object, where it runs, its metrics (SI
    units) and the command that evaluates it again."""

    point: int
    names: tuple[str, ...]
    model: Mapping[str, Any]
    deployment: Mapping[str, Any]
    metrics: Mapping[str, Any]
    command: str


class Study:
    """A finished study: what `dse.run` returns, or `dse.Study("studies/tiny")` of its folder."""

    def __init__(self, folder: Path | str, catalog: Catalog | None = None) -> None:
        """Raises InputError for a folder that is no study, StorageError for one that is damaged."""
        self.folder, self._catalog = Path(folder), catalog
        self.document = read_json(self.folder, STUDY)

    @cached_property
    def front(self) -> Front:
        """The points of the front, in the order of front.csv."""
        return Front(self.folder)

    @property
    def trials(self) -> Trials:
        """Every point that the study of record holds."""
        return Trials(self)

    def point(self, name: str | int) -> Point:
        """By its number or by a name it was chosen under: cheapest, fastest, best, knee. Raises
        InputError with those that exist."""
        for one in self.front:
            if name == one.point or str(name) in (*one.names, str(one.point)):
                return one
        names = sorted({name for one in self.front for name in one.names})
        raise InputError(
            f"no point {name!r} in {self.folder}",
            field="POINT",
            accepted=f"a number from 1 to {len(self.front)}, or one of {', '.join(names)}",
        )

    @property
    def best(self) -> Point:
        return self.point("best")

    @property
    def cheapest(self) -> Point:
        return self.point("cheapest")

    @property
    def fastest(self) -> Point:
        return self.point("fastest")

    @property
    def knee(self) -> Point:
        return self.point("knee")

    def as_json(self) -> dict[str, Any]:
        """study.json."""
        return self.document

    def report(self) -> Answer:
        """The report as an Answer: words, tables and pictures in each format."""
        from dse.questions.study import report  # noqa: PLC0415

        return report(self.folder)

    def _repr_html_(self) -> str:
        """In a notebook: the answer, the chosen points and the first picture."""
        return self.report()._repr_html_()

    def catalog(self) -> Catalog:
        """What the study was made with, as it is now."""
        return (self._catalog or load_catalog()).over(self.document)

    def __repr__(self) -> str:
        return f"Study({str(self.folder)!r}: {self.document['space']}, {len(self.front)} points)"


class Front:
    """The points of a front."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._points = [
            Point(
                item["point"],
                tuple(item["names"]),
                item["model"],
                item["deployment"],
                item["metrics"],
                item.get("command", ""),
            )
            for item in read_study(folder)[1]
        ]

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def __getitem__(self, row: int) -> Point:
        return self._points[row]

    def to_pandas(self) -> pd.DataFrame:
        """front.csv: a row a point; metrics in SI units under their names."""
        import pandas as pd  # noqa: PLC0415

        return pd.read_csv(self._folder / FRONT_TABLE)


class Trials:
    """The trials of a study."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def __len__(self) -> int:
        return int(self._study.document["trials"])

    def to_pandas(self) -> pd.DataFrame:
        """A row a trial: its axes, its objectives in their own direction and unit, and each
        constraint, at most 0 where it is kept."""
        import pandas as pd  # noqa: PLC0415

        document = self._study.document
        law, catalog = document.get("quality_law"), self._study.catalog()
        posed = posed_study(space_of(document), catalog, "auto", 0, law=law)
        posed.identity.clear()  # read as it is, whatever it was searched with
        words = shlex.split(document["command"])
        stored_at = words[words.index("--storage") + 1] if "--storage" in words else None
        stored = posed.record(stored_at or self._study.folder / JOURNAL).load()
        problem, batch = posed.problem, stored.batch
        columns: dict[str, Any] = {"point_id": batch.ids, "stage": stored.stages}
        for j, name in enumerate(problem.space.names):
            choices = problem.space.choices[j]
            columns[name] = [choices[k] for k in batch.index[:, j]]
        for j, objective in enumerate(problem.objectives):
            columns[objective.metric] = batch.F[:, j] * objective.sign
        for j, name in enumerate(problem.constraints):
            columns[name] = batch.G[:, j]
        return pd.DataFrame(columns)
