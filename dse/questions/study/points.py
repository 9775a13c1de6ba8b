"""The points chosen from a front: what a report reads of a study folder, and frames over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dse.answer.answer import Commands, Table
from dse.answer.frames import of_rows
from dse.answer.numbers import BOUNDS, label, show, show_as
from dse.errors import StorageError
from dse.problem.describe import pools_of
from dse.problem.mix import held, loads_of
from dse.problem.words import (
    DEPLOYMENT_KEY,
    SHAPE_KEY,
    brief_shape,
    short_deployment,
    short_shape,
)
from dse.schema.metrics import EVERY
from dse.study.folder import FRONT, STUDY, read_study

Json = Mapping[str, Any]

ORDER = ("start", "cheapest", "fastest", "best", "knee")
QUALITY = "predicted_loss"
TOKENS = ("input", "output", "total")
COSTS = tuple(f"usd_per_million_{name}_tokens" for name in TOKENS)
ALL_IN = "usd_per_million_output_tokens_all_in"
# What a chosen point is made of, costs and gives, in a row of its own.
OF_A_POINT = (
    *("total_parameters", "active_parameters", "training_tokens", "overtraining_ratio"),
    *("dense_equivalent_parameters", "quantisation_loss", "usd_per_hour", *COSTS, ALL_IN),
    *("bottleneck", "nearest_limit", "front_probability"),
)


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
    def numbered(self) -> str:
        return f"{self.label} ({self.item['point']})"

    @property
    def under(self) -> str:
        """The label, and of a mix the workload under which operators and memory are told."""
        of = self.detail.get("breakdown_of")
        return f"{self.numbered}, under {of}" if of else self.numbered

    @property
    def metrics(self) -> Json:
        return self.item["metrics"]

    @property
    def efficiency(self) -> str | None:
        """How the kernel laws of most of the decode step are known."""
        seconds: dict[str, float] = {}
        for row in self.detail["breakdown"]:
            kind = row["efficiency"]
            seconds[kind] = seconds.get(kind, 0.0) + (row["decode_s"] or 0.0)
        half = sum(seconds.values()) / 2.0
        return next((kind for kind, s in seconds.items() if half and s >= half), None)

    @property
    def bottleneck(self) -> str:
        """`memory bandwidth in decode: chips wait for ...`"""
        phase, _, cause = str(self.metrics["bottleneck"]).rpartition(": ")
        where = f" in {phase}" if phase else ""
        return f"{cause}{where}{f': {BOUNDS[cause]}' if cause in BOUNDS else ''}."


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

    @property
    def held(self) -> bool:
        """Whether requests in flight are held by a closed loop."""
        return held(loads_of(self.study))

    @property
    def several_shapes(self) -> bool:
        return len({brief_shape(item) for item in self.items}) > 1

    def axes(self) -> tuple[str, str]:
        """The objectives of a picture of the front: cost across and predicted loss up where the
        study has them. The same twice of a study with one objective."""
        kinds = {metric: label(metric).kind for metric in self.wanted}
        x = min(self.wanted, key=lambda m: (kinds[m] != "usd/Mtoken", kinds[m] == "nats"))
        others = [metric for metric in self.wanted if metric != x] or [x]
        return x, min(others, key=lambda m: kinds[m] != "nats")

    def thin(self, count: int) -> list[Json]:
        """About `count` items, evenly spaced in the front's order; chosen points always stay."""
        step = max(1.0, len(self.items) / count)
        keep = {int(i * step) for i in range(count)}
        points = {chosen.item["point"] for chosen in self.chosen}
        return [item for i, item in enumerate(self.items) if i in keep or item["point"] in points]

    def beside(self, loss: float | None) -> str:
        """`between Qwen3-32B and Llama-3-70B`, by the same law; empty without published models."""
        known = sorted((one["loss"], one["name"]) for one in self.study.get("landmarks") or ())
        if loss is None or not known:
            return ""
        if loss < known[0][0]:
            return f"better than {known[0][1]}"
        for (_, better), (worse, name) in pairwise(known):
            if loss < worse:
                return f"between {name} and {better}"
        return f"worse than {known[-1][1]}"

    def priced_chips(self, deployment: Json) -> list[tuple[int, float]]:
        """(chips, USD per chip-hour) of each pool; empty where the study has no one price of a
        chip."""
        rates: dict[str, set[float]] = {}
        for row in self.study["price"]["rows"]:
            rates.setdefault(row["chip"], set()).add(row["usd_per_chip_hour"])
        pools = pools_of(deployment) or (deployment,)
        if any(len(rates.get(one["chip"], ())) != 1 for one in pools):
            return []
        return [(int(one["chips"]), max(rates[one["chip"]])) for one in pools]


def span(metric: str, interval: Iterable[float]) -> str:
    low, high = interval
    return f"{show(metric, low)} to {show(metric, high)}"


def nearest_limit(folder: StudyFolder, item: Json) -> str | None:
    """The limit of which most is used: `time to first token 1.9 s, 95% of the 2 s allowed`; the
    memory of the chip is one."""
    metrics = item["metrics"]
    by_name = {load["name"]: load for load in item.get("workloads", ())}
    found: list[tuple[float, str]] = []
    for constraint in folder.study["constraints"]:
        metric, limit, of = constraint["metric"], constraint["limit"], constraint.get("workload")
        value = by_name.get(of, metrics).get(metric)
        if value is None or not limit:
            continue
        least = constraint["sign"] < 0
        used = limit / value if least and value else value / limit
        allowed = f"{used:.0%} of the {show(metric, limit)} allowed"
        if least:
            allowed = f"where at least {show(metric, limit)} is asked"
        name = f"{label(metric).text} of {of}" if of in by_name else label(metric).text
        found.append((used, f"{name} {show(metric, value)}, {allowed}"))
    capacity, used = (metrics.get(f"memory_{n}_per_chip") for n in ("capacity_bytes", "bytes"))
    if capacity and used is not None:
        amounts = show_as("bytes", used), show_as("bytes", capacity)
        share = used / capacity
        found.append((share, f"memory {amounts[0]}, {share:.0%} of the chip's {amounts[1]}"))
    return max(found)[1] if found else None


# Frames over the chosen points.


def summary(folder: StudyFolder) -> Table:
    """A row for each chosen point: name, objectives, what its time rests on, shape, deployment."""
    rows = [
        {
            **one.metrics,
            "chosen": one.numbered,
            "efficiency": one.efficiency,
            "shape": brief_shape(one.item),
            "deployed": short_deployment(one.item["deployment"], folder.held),
        }
        for one in folder.chosen
    ]
    shape = "shape " * folder.several_shapes
    keys = f"chosen {' '.join(folder.wanted)} efficiency {shape}deployed"
    note = f"Deployment: {DEPLOYMENT_KEY}; degrees of 1 are left out."
    return of_rows("summary", "Points by name", rows, keys, note)


def made_of(folder: StudyFolder) -> list[Table | Commands]:
    """What each chosen point is made of, costs and gives, and the commands that show all of it."""
    rows = []
    for one in folder.chosen:
        priced = folder.priced_chips(one.item["deployment"])
        row = {
            **one.metrics,
            "chosen": one.numbered,
            "shape": short_shape(one.item["model"]),
            "usd_per_hour": sum(chips * rate for chips, rate in priced) if priced else None,
            "nearest_limit": nearest_limit(folder, one.item),
            "front_probability": one.item.get("front_probability"),
        }
        rows.append(row)
    keys, caption = ("chosen", "shape", *OF_A_POINT), "What they are made of, cost and give"
    note = f"Shape: {SHAPE_KEY}. Prices: {folder.study['price']['basis']}."
    table = of_rows("made-of", caption, rows, keys, note, on_console=False)
    return [table, Commands("Everything about one", [one.item["command"] for one in folder.chosen])]


def workloads(folder: StudyFolder) -> list[Table]:
    """Of a mix, a row for each chosen point and workload; none of one workload."""
    rows = [
        {"chosen": one.numbered, **load}
        for one in folder.chosen
        for load in one.item.get("workloads", ())
    ]
    keys = ("chosen", "workload=name", "weight", "chip_seconds_share", "ttft_s", "tpot_s", *COSTS)
    return [of_rows("workloads", "Each workload", rows, keys, on_console=False)] if rows else []


def average_loads(folder: StudyFolder) -> list[Table]:
    """A row for each chosen point that was priced at an average load; none without a demand."""
    demand = folder.study.get("demand")
    found = [one for one in folder.chosen if one.item.get("at_average_load")]
    if not (demand and found):
        return []
    average = demand["average_tokens_per_s"]
    of = "" if average is None else f" of {average:,.0f} tokens a second, input and output together"
    rows = []
    for one in found:
        load = one.item["at_average_load"]
        chips = None if load["deployments"] is None else load["chips"]
        rows.append({**load, "chosen": one.numbered, "chips": chips})
    keys = ("chosen", "busy_share", "deployments", "chips", "usd_per_hour", *COSTS)
    caption = (
        f"Sized for a peak of {demand['peak_over_average']:g} times the average{of}, and paid "
        "around the clock: the prices of a token at average load. All other prices of this "
        "report are those of a busy deployment."
    )
    return [of_rows("load", caption, rows, keys)]


def times(folder: StudyFolder) -> Table:
    """The operators of each chosen point, longest decode first, each with what bounds it: once, or
    `prefill / decode` where the two differ."""
    rows = [
        {
            **row,
            "chosen": one.under,
            "bounds": " / ".join(
                dict.fromkeys((row.get("prefill_bound", row["bound"]), row["bound"]))
            ),
        }
        for one in folder.chosen
        for row in sorted(one.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0))
    ]
    keys = "chosen operator prefill_s decode_step_s=decode_s bound=bounds efficiency"
    return of_rows("time", "", rows, keys)


def memory(folder: StudyFolder) -> Table:
    """What one chip of each chosen point holds, part by part, what is free, and its capacity."""
    rows = []
    for one in folder.chosen:
        parts = {
            row["part"].replace("_", " ").replace("kv", "KV"): row["bytes"]
            for row in one.detail["memory"]
        }
        capacity = one.detail["capacity_bytes"]
        parts |= {"free": max(0.0, capacity - sum(parts.values())), "capacity": capacity}
        rows += [{"chosen": one.under, "part": part, "bytes": size} for part, size in parts.items()]
    return of_rows("memory", "", rows, "chosen part bytes")


def floors(folder: StudyFolder) -> Table:
    """Floor, prediction and interval of each chosen point's decode step."""
    rows = []
    for one in folder.chosen:
        floor, step = one.detail["floor_s"], one.detail["decode_step_s"]
        known = one.metrics.get("intervals", {}).get("decode_step_s")
        low, high = one.detail.get("decode_step_interval") or known or (None, None)
        row = {"chosen": one.under, "latency_floor_s": floor, "decode_step_s": step}
        row |= {"decode_step_s.low": low, "decode_step_s.high": high}
        rows.append(row | {"distance_to_floor": step / floor if floor else None})
    keys = "chosen latency_floor_s decode_step_s decode_step_s.low decode_step_s.high "
    return of_rows("floor", "", rows, f"{keys}distance_to_floor")


def certainty(folder: StudyFolder) -> Table:
    """The 80% interval and the provenance of the main numbers of the chosen points."""
    rows = []
    for one in folder.chosen:
        intervals = one.metrics.get("intervals", {})
        provenance = one.metrics.get("provenance", {})
        for name in dict.fromkeys((*folder.wanted, *intervals)):
            row = {"chosen": one.label, "metric": label(name).text}
            row |= {"value": show(name, one.metrics.get(name))}
            row |= {"interval": span(name, intervals[name]) if name in intervals else None}
            rows.append(row | {"known": provenance.get(name, "not stated")})
    return of_rows("certainty", "", rows, "chosen metric value interval known")
