"""Reads a study folder: front.json and study.json are all that a report needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.errors import StorageError
from dse.schema.metrics import EVERY

Json = Mapping[str, Any]

STUDY_KEYS = (
    "space", "size", "seed", "engine", "versions", "data_digest", "trials", "evaluations",
    "objectives", "constraints", "constraint_tallies", "price", "workload", "chosen", "sources",
)  # fmt: skip
LOAD_KEYS = ("name", "weight", "prompt_tokens", "output_tokens", "serving", "backend")
ITEM_KEYS = ("point", "model", "deployment", "metrics", "command")
CHOSEN_KEYS = ("point", "breakdown", "memory", "capacity_bytes", "floor_s", "decode_step_s")
CHOSEN_ORDER = ("cheapest", "fastest", "best", "knee")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One point of the front under all the names it was chosen by.

    `detail` is its entry of study.json's `chosen`, `item` its entry of front.json.
    """

    names: tuple[str, ...]
    item: Json
    detail: Json

    @property
    def labels(self) -> tuple[str, ...]:
        """The names as read: one that is a metric goes by the metric's own words."""
        return tuple(EVERY[name].label if name in EVERY else name for name in self.names)

    @property
    def label(self) -> str:
        return ", ".join(self.labels)

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
    """What the two files say; `name` is the folder's own."""

    name: str
    study: Json
    items: tuple[Json, ...]
    chosen: tuple[Chosen, ...]

    @property
    def title(self) -> str:
        return self.study.get("title") or self.study["space"]

    @property
    def objectives(self) -> list[Json]:
        return self.study["objectives"]


def read_study(folder: Path) -> StudyFolder:
    """The study in `folder`. Raises StorageError for a file that is absent, broken or too old."""
    front, study = _json(folder / "front.json"), _json(folder / "study.json")
    _require(study, STUDY_KEYS, folder / "study.json", "study")
    _require(front, ("items",), folder / "front.json", "front")
    if not isinstance(front["items"], list):
        raise StorageError(f"{folder / 'front.json'}: items: not a list")
    for i, item in enumerate(front["items"]):
        _require(item, ITEM_KEYS, folder / "front.json", f"items[{i}]")
        for key in ("model", "deployment", "metrics"):
            _object(item[key], folder / "front.json", f"items[{i}].{key}")
    if study["workload"] is None:
        for load in study.get("workloads") or [None]:
            _require(load, LOAD_KEYS, folder / "study.json", "workloads")
    else:
        _object(study["workload"], folder / "study.json", "workload")
    for key in ("versions", "price", "chosen"):
        _object(study[key], folder / "study.json", key)
    for name, detail in study["chosen"].items():
        _require(detail, CHOSEN_KEYS, folder / "study.json", f"chosen.{name}")
    items = {item["point"]: item for item in front["items"]}
    if items and not study["chosen"]:
        raise StorageError(f"{folder / 'study.json'}: chosen: no point of the front is named")
    return StudyFolder(
        folder.resolve().name, study, tuple(front["items"]), _chosen(study, items, folder)
    )


def _chosen(study: Json, items: Mapping[int, Json], folder: Path) -> tuple[Chosen, ...]:
    ordered = sorted(
        study["chosen"],
        key=lambda name: CHOSEN_ORDER.index(name) if name in CHOSEN_ORDER else len(CHOSEN_ORDER),
    )
    names: dict[int, list[str]] = {}
    for name in ordered:
        names.setdefault(study["chosen"][name]["point"], []).append(name)
    for point, of_point in names.items():
        if point not in items:
            raise StorageError(
                f"{folder / 'study.json'}: chosen: {of_point[0]} is point {point}, "
                f"which {folder / 'front.json'} does not hold"
            )
    return tuple(
        Chosen(tuple(of_point), items[point], study["chosen"][of_point[0]])
        for point, of_point in names.items()
    )


def _json(path: Path) -> Json:
    def refuse(constant: str) -> None:
        raise StorageError(f"{path}: {constant} is not JSON")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; `dse run` writes it") from error
    except ValueError as error:
        raise StorageError(f"{path}: not a JSON document: {error}") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path}: not a JSON object")
    return content


def _object(content: object, path: Path, where: str) -> Json:
    if not isinstance(content, dict):
        raise StorageError(f"{path}: {where}: not a JSON object")
    return content


def _require(content: Json | None, keys: tuple[str, ...], path: Path, where: str) -> None:
    missing = [key for key in keys if key not in _object(content, path, where)]
    if missing:
        raise StorageError(f"{path}: {where}: without {', '.join(missing)}; run the study again")
