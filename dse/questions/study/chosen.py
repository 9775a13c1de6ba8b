"""What a report reads: the documents of a study folder, the points chosen from its front, and the
published models beside them (`dse.study.decide`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dse.answer.answer import Column, Table
from dse.answer.labels import label
from dse.answer.numbers import show, significant
from dse.answer.sentences import listed
from dse.errors import StorageError
from dse.problem.mix import held, loads_of
from dse.problem.words import short_deployment
from dse.schema.metrics import EVERY
from dse.study.folder import FRONT, STUDY, read_study

Json = Mapping[str, Any]

ORDER = ("start", "cheapest", "fastest", "best", "knee")


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
    def start(self) -> Chosen:
        """The design to start from; of a study that names none, its knee or its first."""
        for name in ("start", "knee"):
            for chosen in self.chosen:
                if name in chosen.names:
                    return chosen
        return self.chosen[0]

    def axes(self) -> tuple[str, str]:
        """The objectives of a picture of the front: cost across and predicted loss up where the
        study has them. The same twice of a study with one objective."""
        kinds = {metric: label(metric).kind for metric in self.wanted}
        x = min(self.wanted, key=lambda m: (kinds[m] != "usd/Mtoken", kinds[m] == "nats"))
        others = [metric for metric in self.wanted if metric != x] or [x]
        return x, min(others, key=lambda m: kinds[m] != "nats")


QUALITY = "predicted_loss"
ABOUT = (
    "Models that anyone can download, by the same law of loss and model of time and price: each "
    "on the deployment of this space that has the least {0} within the limits. Their losses "
    "are predictions from size and training tokens, not results of a benchmark."
)


def beside(folder: StudyFolder, loss: float | None) -> str:
    """`between Qwen3-32B and Llama-3-70B`, by the same law; empty without published models."""
    known = sorted((one["loss"], one["name"]) for one in folder.study.get("landmarks") or ())
    if loss is None or not known:
        return ""
    if loss < known[0][0]:
        return f"better than {known[0][1]}"
    for (_, better), (worse, name) in pairwise(known):
        if loss < worse:
            return f"between {name} and {better}"
    return f"worse than {known[-1][1]}"


def multiples(folder: StudyFolder) -> list[str]:
    """What the better losses of the decisions would take of the design to start from."""
    found: dict[str, list[str]] = {}
    families = (folder.study.get("decisions") or {}).get("families", ())
    for one in families:
        multiple = one.get("compute_multiple")
        if multiple is not None and multiple >= 1.05:
            found.setdefault(significant(multiple, 2), []).append(str(one["decision"]))
    return [
        f"To reach the loss of decision{'s' * (len(of) > 1)} {listed(of)} by more training alone, "
        f"the model of decision {families[0]['decision']} would take {times} times its compute."
        for times, of in found.items()
    ]


def landmark_tables(folder: StudyFolder) -> list[Table]:
    """A row for each published model, the best loss first; nothing without any."""
    known = folder.study.get("landmarks") or ()
    if not known:
        return []
    held_too = held(loads_of(folder.study))
    others = [metric for metric in folder.wanted if metric != QUALITY]

    def served(one: dict) -> str:
        if one["deployment"] is None:
            return "no deployment of this space can serve it within the limits"
        return short_deployment(one["deployment"], held_too)

    return [
        Table.of(
            "landmarks",
            "Published models on the same chips",
            sorted(known, key=lambda one: one["loss"]),
            (
                Column("name", "model"),
                Column(
                    QUALITY,
                    "loss as served",
                    QUALITY,
                    of=lambda one: (one["metrics"] or one | {QUALITY: one["loss"]})[QUALITY],
                ),
                *(
                    Column(
                        m,
                        label(m).short,
                        m,
                        explain=label(m).text,
                        of=lambda one, m=m: (one["metrics"] or {}).get(m),
                    )
                    for m in others
                ),
                Column("deployment", "deployment", of=served),
            ),
            notes=[ABOUT.format(label(known[0]["best_in"]).text)],
            on_console=False,
        )
    ]


def landmark_words(folder: StudyFolder, model: dict) -> str:
    """`Llama-3-70B: predicted loss 1.9309, cost per million tokens $0.137, ...`"""
    parts = [f"{label(m).text} {show(m, model['metrics'][m])}" for m in folder.wanted]
    return f"{model['name']}: {', '.join(parts)}"
