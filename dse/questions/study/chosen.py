"""What a report reads: the documents of a study folder, and the points chosen from its front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.answer.labels import label
from dse.errors import StorageError
from dse.schema.metrics import EVERY
from dse.study.folder import FRONT, STUDY, read_study

Json = Mapping[str, Any]

ORDER = ("cheapest", "fastest", "best", "knee")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One point of the front under all the names it was chosen by.

    `detail` is its entry of study.json's `chosen`, `item` its entry of front.json.
    """

    names: tuple[str, ...]
    item: Json
    detail: Json

    @property
    def label(self) -> str:
        """The names as read: one that is a metric goes by the metric's own words."""
        return ", ".join(label(name).text if name in EVERY else name for name in self.names)

    @property
    def under(self) -> str:
        """The label, and of a mix the workload under which operators and memory are told."""
        of = self.detail.get("breakdown_of")
        return f"{self.label}, under {of}" if of else self.label

    @property
    def metrics(self) -> Json:
        return self.item["metrics"]

    @property
    def step_interval(self) -> list[float] | None:
        """The 80% interval of the decode step whose operators are told."""
        interval = self.detail.get("decode_step_interval")
        return interval or self.metrics.get("intervals", {}).get("decode_step_s")


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """study.json, the items of front.json and the chosen points; `name` is the folder's own."""

    name: str
    study: Json
    items: tuple[Json, ...]
    chosen: tuple[Chosen, ...]

    @classmethod
    def read(cls, folder: Path) -> StudyFolder:
        """Raises InputError for a folder that is no study, StorageError for a damaged one."""
        study, items = read_study(folder)
        by_point = {item["point"]: item for item in items}
        names: dict[int, list[str]] = {}
        for name in sorted(study["chosen"], key=lambda n: (*ORDER, n).index(n)):
            names.setdefault(study["chosen"][name]["point"], []).append(name)
        if absent := set(names) - set(by_point):
            name = names[min(absent)][0]
            raise StorageError(
                f"{folder / STUDY}: chosen: {name} is point {min(absent)}, which {folder / FRONT} "
                "does not hold; `dse run` writes it anew"
            )
        if not names:
            raise StorageError(f"{folder / STUDY}: chosen: no point of the front is named")
        chosen = [
            Chosen(tuple(of), by_point[point], study["chosen"][of[0]])
            for point, of in names.items()
        ]
        return cls(folder.resolve().name, study, tuple(items), tuple(chosen))

    @property
    def title(self) -> str:
        return self.study.get("title") or self.study["space"]

    @property
    def objectives(self) -> list[Json]:
        return self.study["objectives"]

    @property
    def wanted(self) -> list[str]:
        """The metrics of the objectives."""
        return [objective["metric"] for objective in self.objectives]

    @property
    def knee(self) -> Chosen | None:
        return next((chosen for chosen in self.chosen if "knee" in chosen.names), None)

    def axes(self) -> tuple[str, str]:
        """The objectives of a picture of the front: cost across and predicted loss up where the
        study has them. The same twice of a study with one objective."""
        kinds = {metric: label(metric).kind for metric in self.wanted}
        x = min(self.wanted, key=lambda m: (kinds[m] != "usd/Mtoken", kinds[m] == "nats"))
        others = [metric for metric in self.wanted if metric != x] or [x]
        return x, min(others, key=lambda m: kinds[m] != "nats")
