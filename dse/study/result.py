"""A finished study: what `dse.run` returns, or that of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.catalog import Catalog, load_catalog
from dse.problem.objective import pose
from dse.search.record import Record
from dse.study.definition import reopened
from dse.study.folder import FRONT_TABLE, JOURNAL, STUDY, item_of, option_of, read_json, read_study

if TYPE_CHECKING:
    import pandas as pd

    from dse.answer.answer import Answer


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a front: its number, the shape as a config object, where it runs, its metrics (SI
    units) and the command that evaluates it again."""

    point: int
    names: Sequence[str]
    model: Mapping[str, Any]
    deployment: Mapping[str, Any]
    metrics: Mapping[str, Any]
    command: str


class Study:
    """A finished study: what `dse.run` returns, or that of a folder.

        study = dse.Study("studies/tiny")
        study.best.metrics["predicted_loss"], study.knee.deployment
        study.front.to_pandas().plot.scatter("tpot_s", "predicted_loss")

    A notebook shows the answer, the chosen points and the front to look around in.
    """

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
        """By its number or by a name it was chosen under: start, cheapest, fastest, best, knee.
        Raises InputError with those that exist."""
        item = item_of(self.front.items, name, self.folder)
        return self.front[self.front.items.index(item)]

    @property
    def start(self) -> Point:
        """The design of least expected regret (`dse.study.decide`)."""
        return self.point("start")

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
        """In a notebook: the answer, the chosen points and the front."""
        return self.report()._repr_html_()

    def catalog(self) -> Catalog:
        """What the study was made with, as it is now."""
        return (self._catalog or load_catalog()).over(self.document)

    def __repr__(self) -> str:
        return f"Study({str(self.folder)!r}: {self.document['space']}, {len(self.front)} points)"


class Front(list[Point]):
    """The points of a front; `items` are what front.json says of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.items = folder, read_study(folder)[1]
        keys = [field.name for field in fields(Point)]
        super().__init__(Point(**{key: item[key] for key in keys}) for item in self.items)

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
        """A row a trial: what brought it here, its axes, its objectives in their own direction and
        unit, and each constraint, at most 0 where it is kept."""
        import pandas as pd  # noqa: PLC0415

        again = reopened(self._study.folder, self._study.catalog())
        problem = pose(again.study, again.catalog)
        location = option_of(again.document, "--storage") or self._study.folder / JOURNAL
        stored = Record(problem, location, problem.study.name, {}).load()
        batch = stored.batch
        columns: dict[str, Any] = {"point_id": batch.ids, "stage": stored.stages}
        columns["feasible"] = batch.violation == 0
        for j, name in enumerate(problem.space.names):
            choices = problem.space.choices[j]
            columns[name] = [choices[k] for k in batch.index[:, j]]
        for j, objective in enumerate(problem.objectives):
            columns[objective.metric] = batch.F[:, j] * objective.sign
        for j, name in enumerate(problem.constraints):
            columns[name] = batch.G[:, j]
        return pd.DataFrame(columns)
