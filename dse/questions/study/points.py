"""What a report reads of a study folder, and the designs of the front that it tells of: the
decisions, and those that were chosen by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dse.answer.answer import Table
from dse.answer.frames import of_rows
from dse.answer.numbers import BOUNDS, label, show, show_as, significant
from dse.errors import StorageError
from dse.problem.describe import pools_of
from dse.problem.mix import held, loads_of
from dse.problem.words import (
    DEPLOYMENT_KEY,
    SHAPE_KEY,
    brief_shape,
    given_name,
    of_pools,
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
# What a design is made of, costs and gives, beside its objectives.
OF_A_DESIGN = (
    *("shape", "deployed", "total_parameters", "active_parameters", "training_tokens"),
    *("overtraining_ratio", "dense_equivalent_parameters", "quantisation_loss", "usd_per_hour"),
    *(*COSTS, ALL_IN, "bottleneck", "distance_to_floor", "nearest_limit", "efficiency"),
    "front_probability",
)
HOW = (
    "A decision stands for the designs of the front that are nearest to it. With quality, speed "
    "and prices varied within their errors {draws} times, the best design was of the decision in "
    "that share of the cases. Wish: {wish}."
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A design that is told: `family` is its decision in study.json, `names` are those it was
    chosen by, `item` is its entry of front.json."""

    item: Json
    names: tuple[str, ...]
    family: Json | None

    @property
    def number(self) -> str:
        """That of the decision; of another design empty."""
        return str(self.family["decision"]) if self.family else ""

    @property
    def named(self) -> str:
        """The names as read: one that is a metric goes by the metric's own words."""
        return ", ".join(label(name).text if name in EVERY else name for name in self.names)

    @property
    def label(self) -> str:
        """`1, start`, `cheapest`."""
        return ", ".join(filter(None, (self.number, self.named)))

    @property
    def metrics(self) -> Json:
        return self.item["metrics"]

    @property
    def bottleneck(self) -> str:
        """`memory bandwidth in decode: chips wait for ...`"""
        phase, _, cause = str(self.metrics["bottleneck"]).rpartition(": ")
        where = f" in {phase}" if phase else ""
        return f"{cause}{where}{f': {BOUNDS[cause]}' if cause in BOUNDS else ''}."


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """study.json, the items of front.json and the designs that are told, the one to start from
    first; `name` is the folder's own."""

    name: str
    study: Json
    items: tuple[Json, ...]
    marks: tuple[Mark, ...]

    @classmethod
    def read(cls, folder: Path) -> StudyFolder:
        """Raises InputError for a folder that is no study, StorageError for a damaged one."""
        study, items = read_study(folder)
        by_point = {item["point"]: item for item in items}
        names: dict[int, list[str]] = {}
        for name in sorted(study["chosen"], key=lambda n: (*ORDER, n).index(n)):
            names.setdefault(study["chosen"][name]["point"], []).append(name)
        families = {one["point"]: one for one in study["decisions"]["families"]}
        if absent := {*families, *names} - set(by_point):
            point = min(absent)
            name = names[point][0] if point in names else "a decision"
            raise StorageError(
                f"{folder / STUDY}: chosen: {name} is point {point}, which {folder / FRONT} does "
                "not hold; `dse run` writes it anew"
            )
        if not families:
            raise StorageError(f"{folder / STUDY}: decisions: no point of the front is named")
        marks = [
            Mark(by_point[point], tuple(names.get(point, ())), families.get(point))
            for point in dict.fromkeys([*families, *names])
        ]
        return cls(folder.resolve().name, study, tuple(items), tuple(marks))

    @property
    def objectives(self) -> list[Json]:
        return self.study["objectives"]

    @property
    def wanted(self) -> list[str]:
        """The metrics of the objectives."""
        return [objective["metric"] for objective in self.objectives]

    @property
    def start(self) -> Mark:
        """The design to start from."""
        return self.marks[0]

    @property
    def drawn(self) -> bool:
        """Whether errors were drawn: those of a function of the user are not known."""
        return self.study["decisions"]["start"]["probability"] is not None

    @property
    def held(self) -> bool:
        """Whether requests in flight are held by a closed loop."""
        return held(loads_of(self.study))

    @property
    def several_shapes(self) -> bool:
        return len({brief_shape(item) for item in self.items}) > 1

    def system(self, item: Json) -> str:
        """The chip of an item, or the system where the study compares systems."""
        rows = (self.study.get("systems") or {}).get("rows", ())
        chip = of_pools(item["deployment"], "chip")
        return next((row["system"] for row in rows if row["chip"] == chip), chip)

    def axes(self) -> tuple[str, str]:
        """The objectives of a picture of the front: cost across and predicted loss up where the
        study has them; of one objective, that against another metric."""
        kinds = {metric: label(metric).kind for metric in self.wanted}
        x = min(self.wanted, key=lambda m: (kinds[m] != "usd/Mtoken", kinds[m] == "nats"))
        others = [metric for metric in self.wanted if metric != x]
        others = others or [m for m in ("tpot_s", "ttft_s", COSTS[2]) if m != x][:1]
        return x, min(others, key=lambda m: label(m).kind != "nats")

    def thin(self, count: int) -> list[Json]:
        """About `count` items, evenly spaced in the front's order; those of marks always stay."""
        step = max(1.0, len(self.items) / count)
        keep = {int(i * step) for i in range(count)}
        points = {one.item["point"] for one in self.marks}
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

    def usd_per_hour(self, deployment: Json) -> float | None:
        """None where the study has no one price of a chip."""
        rates: dict[str, set[float]] = {}
        for row in self.study["price"]["rows"]:
            rates.setdefault(row["chip"], set()).add(row["usd_per_chip_hour"])
        pools = pools_of(deployment) or (deployment,)
        if any(len(rates.get(one["chip"], ())) != 1 for one in pools):
            return None
        return sum(int(one["chips"]) * max(rates[one["chip"]]) for one in pools)


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


# Frames over the designs that are told.


def _design(folder: StudyFolder, item: Json) -> str:
    """`Sparse 133B (7.56B active), 8 × b200_sxm fp8, 64 in flight`; without the shape where every
    design has the same."""
    d, metrics, system = item["deployment"], item["metrics"], folder.system(item)
    where = f"{d['chips']} × {system}" if system == d.get("chip") else system
    served = f"{where} {of_pools(d, 'weight_dtype')}, {round(d['concurrency']):,} in flight"
    if not folder.several_shapes:
        return served
    sizes = [show(name, metrics.get(name)) for name in ("total_parameters", "active_parameters")]
    shape = f"Sparse {sizes[0]} ({sizes[1]} active)"
    if not item["model"].get("num_experts"):
        shape = f"Dense {sizes[0]}"
    return f"{given_name(item) or shape}, {served}"


def designs(folder: StudyFolder) -> list[Table]:
    """Of each design that is told a row: what it is and gives, how often it is the best, and how
    much more training the first one's model would take to reach its loss; what it is made of; and
    the intervals of its objectives."""
    rows, sure = [], []
    for one in folder.marks:
        item, family = one.item, one.family or {}
        intervals = one.metrics.get("intervals", {})
        row = {**one.metrics, "decision": one.number, "point": item["point"]}
        row |= {"names": one.named}
        row |= {"design": _design(folder, item), "designs": family.get("designs")}
        row |= {"chance_first": family.get("probability")}
        row |= {"compute_multiple": family.get("compute_multiple")}
        row |= {"shape": short_shape(item["model"]), "nearest_limit": nearest_limit(folder, item)}
        row |= {"deployed": short_deployment(item["deployment"], folder.held)}
        row |= {"usd_per_hour": folder.usd_per_hour(item["deployment"])}
        row |= {"efficiency": one.metrics.get("provenance", {}).get("decode_step_s")}
        row |= {"front_probability": item.get("front_probability"), "chosen": one.label}
        rows.append(row)
        known = {m: span(m, intervals[m]) for m in folder.wanted if m in intervals}
        sure.append({"chosen": one.label, **known})
    keys = ("decision", "names", "design", "point", *folder.wanted, "designs", "chance_first")
    keys, caption = (*keys, "compute_multiple"), "The decisions of this front, and its ends"
    notes = [HOW.format(**folder.study["decisions"])] if folder.drawn else []
    first = ("decision", "design", *folder.wanted, "chance_first")
    told = of_rows("decisions", caption, rows, keys, *notes, first=first)
    keys, caption = ("chosen", *OF_A_DESIGN), "What they are made of, cost and give"
    key = f"Shape: {SHAPE_KEY}. Deployed: {DEPLOYMENT_KEY}; degrees of 1 are left out."
    made = of_rows("made-of", caption, rows, keys, key, on_console=False)
    keys, caption = ("chosen", *folder.wanted), "Their 80% intervals"
    ends = of_rows("intervals", caption, sure, keys, on_console=False)
    return [told, made, ends]


def turns(folder: StudyFolder) -> list[Table]:
    """A row for each weight of an objective, or limit, from which another decision is the best;
    nothing where none is."""
    rows = [
        {
            "objective": label(turn["objective"]).text,
            "counts": f"{significant(turn['factor'], 2)} times as much"
            if "factor" in turn
            else f"limited to {show(turn['objective'], turn['limit'])}",
            "decision": str(turn["decision"]),
        }
        for turn in folder.study["decisions"]["turns"]
    ]
    keys, caption = "objective counts decision", "If one objective counts for more"
    return [of_rows("turns", caption, rows, keys, on_console=False)] if rows else []


def workloads(folder: StudyFolder) -> list[Table]:
    """Of a mix, a row for each design and workload; none of one workload."""
    rows = [
        {"chosen": one.label, **load}
        for one in folder.marks
        for load in one.item.get("workloads", ())
    ]
    keys = ("chosen", "workload=name", "weight", "chip_seconds_share", "ttft_s", "tpot_s", *COSTS)
    return [of_rows("workloads", "Each workload", rows, keys, on_console=False)] if rows else []


def average_loads(folder: StudyFolder) -> list[Table]:
    """A row for each design that was priced at an average load; none without a demand."""
    demand = folder.study.get("demand")
    rows = []
    for one in folder.marks if demand else ():
        if load := one.item.get("at_average_load"):
            chips = None if load["deployments"] is None else load["chips"]
            rows.append({**load, "chosen": one.label, "chips": chips})
    if not (demand and rows):
        return []
    average = demand["average_tokens_per_s"]
    of = "" if average is None else f" of {average:,.0f} tokens a second, input and output together"
    keys = ("chosen", "busy_share", "deployments", "chips", "usd_per_hour", *COSTS)
    caption = (
        f"Sized for a peak of {demand['peak_over_average']:g} times the average{of}, and paid "
        "around the clock: the prices of a token at average load. All other prices of this "
        "report are those of a busy deployment."
    )
    return [of_rows("load", caption, rows, keys)]
