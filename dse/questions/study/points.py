"""The points chosen from a front: what a report reads of a study folder, a card for each point, and
tables over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dse.answer.answer import Bar, Facts, Table
from dse.answer.frames import frame, of_rows
from dse.answer.labels import BOUND_NAMES, BOUNDS, label
from dse.answer.numbers import bytes_, show, show_as, significant, time
from dse.errors import StorageError
from dse.problem.describe import pools_of
from dse.problem.mix import held, loads_of
from dse.problem.quality import overtraining_words
from dse.problem.words import (
    DEPLOYMENT_KEY,
    DOMAIN_KEY,
    HELD_KEY,
    brief_shape,
    deployment_words,
    shape_words,
    short_deployment,
)
from dse.schema.metrics import EVERY
from dse.study.folder import FRONT, STUDY, read_study

Json = Mapping[str, Any]

ORDER = ("start", "cheapest", "fastest", "best", "knee")
QUALITY = "predicted_loss"
CERTAINTY = ("measured", "fitted", "derived", "spec", "estimated", "claimed", "assumed")
TOKENS = ("input", "output", "total")
COSTS = tuple(f"usd_per_million_{name}_tokens" for name in TOKENS)
ALL_IN = "usd_per_million_output_tokens_all_in"
MOST_PARTS = 6  # of a decode step that stand alone
SHOWN_LOSS = 0.0005  # nats that quantising adds, from which on they are told
OF_A_POOL = (
    *("chip", "chips", "replicas", "tensor_parallel", "pipeline_parallel", "data_parallel"),
    *("expert_parallel", "weight_dtype", "kv_dtype"),
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
    def step_interval(self) -> Sequence[float | None]:
        """The 80% interval of the decode step whose operators are told."""
        interval = self.detail.get("decode_step_interval")
        known = self.metrics.get("intervals", {}).get("decode_step_s")
        return interval or known or (None, None)

    @property
    def efficiency_shares(self) -> list[tuple[str, float]]:
        """(how the kernel laws are known, share of the decode step's seconds), best known first."""
        seconds: dict[str, float] = {}
        for row in self.detail["breakdown"]:
            kind = row["efficiency"]
            seconds[kind] = seconds.get(kind, 0.0) + (row["decode_s"] or 0.0)
        total = sum(seconds.values())
        ordered = sorted(seconds, key=lambda kind: (*CERTAINTY, kind).index(kind))
        return [(kind, seconds[kind] / total) for kind in ordered] if total else []

    @property
    def bottleneck(self) -> str:
        """`Memory bandwidth in decode: chips wait for ...`"""
        phase, _, cause = str(self.metrics["bottleneck"]).rpartition(": ")
        where = f" in {phase}" if phase else ""
        return capital(f"{cause}{where}{f': {BOUNDS[cause]}' if cause in BOUNDS else ''}.")


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
        parts = [
            (int(one["chips"]), next(iter(rates[one["chip"]])))
            for one in pools_of(deployment) or (deployment,)
            if len(rates.get(one["chip"], ())) == 1
        ]
        return parts if len(parts) == len(pools_of(deployment) or (deployment,)) else []


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def span(metric: str, interval: Iterable[float]) -> str:
    low, high = interval
    return f"{show(metric, low)} to {show(metric, high)}"


def limits(folder: StudyFolder, item: Json) -> list[tuple[str, float]]:
    """(sentence, share of the limit used) for every constraint that has a number."""
    metrics, found = item["metrics"], []
    by_name = {load["name"]: load for load in item.get("workloads", ())}
    for constraint in folder.study["constraints"]:
        metric, limit = constraint["metric"], constraint["limit"]
        of = constraint.get("workload", "")
        value = by_name.get(of, metrics).get(metric)
        if value is None or not limit:
            continue
        least = constraint["sign"] < 0
        used = limit / value if least and value else value / limit
        allowed = f"{used:.0%} of the {show(metric, limit)} allowed"
        if least:
            allowed = f"where at least {show(metric, limit)} is asked"
        name = f"{label(metric).text} of {of}" if of in by_name else label(metric).text
        found.append((f"{name} {show(metric, value)}, {allowed}", used))
    capacity = metrics.get("memory_capacity_bytes_per_chip")
    used = metrics.get("memory_bytes_per_chip")
    if capacity and used is not None:
        share = used / capacity
        amounts = show_as("bytes", used), show_as("bytes", capacity)
        found.append((f"memory {amounts[0]}, {share:.0%} of the chip's {amounts[1]}", share))
    return found


def cards(folder: StudyFolder) -> list[Facts]:
    """One card for each chosen point, the design to start from first: what to build, what it costs
    and gives, what bounds it, how certain it is."""
    found = []
    for chosen in folder.chosen:
        near = max(limits(folder, chosen.item), key=lambda limit: limit[1], default=None)
        rows = {
            "Build": [shape_words(chosen.item)],
            "Run it on": [deployment_words(chosen.item["deployment"], folder.held)],
            "It costs": _cost(folder, chosen),
            "It gives": _quality(folder, chosen.metrics),
            "Bound by": [chosen.bottleneck, *([f"Nearest limit: {near[0]}."] if near else [])],
            "Certainty": _certainty(folder, chosen),
        }
        found.append(
            Facts(
                _title(folder, chosen),
                [(what, " ".join(said)) for what, said in rows.items() if said],
                strong=[(label(m).text, show(m, chosen.metrics[m])) for m in folder.wanted],
                command=chosen.item["command"],
                marked=chosen is folder.start,
                on_console=False,
                bars=[*_step_bar(chosen), _memory_bar(chosen)],
                folded=("Certainty",),
            )
        )
    return found


def _title(folder: StudyFolder, chosen: Chosen) -> str:
    """`Best: lowest predicted loss (point 5)`, `Start, knee: decision 1 (point 75)`."""
    found = []
    if chosen is folder.start and folder.study.get("decisions"):
        found.append("decision 1")
    else:
        for one in folder.objectives:
            least = one["direction"] == "minimize"
            values = [item["metrics"][one["metric"]] for item in folder.items]
            if chosen.metrics[one["metric"]] == (min(values) if least else max(values)):
                found.append(f"{'lowest' if least else 'highest'} {label(one['metric']).text}")
    why = f": {', '.join(found)}" if found else ""
    return f"{capital(chosen.label)}{why} (point {chosen.item['point']})"


def _step_bar(chosen: Chosen) -> list[Bar]:
    """Where a decode step goes: the operators that take most of it, coloured by what bounds them,
    and the others together."""
    rows = sorted(chosen.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0))
    total = sum(row["decode_s"] or 0.0 for row in rows)
    if not total:
        return []
    parts = [
        (
            row["operator"],
            row["decode_s"] / total,
            f"{time(row['decode_s'])} ({BOUND_NAMES[row['bound']]})",
            row["bound"],
        )
        for row in rows[:MOST_PARTS]
        if row["decode_s"]
    ]
    rest = sum(row["decode_s"] or 0.0 for row in rows[MOST_PARTS:])
    parts += [("others", rest / total, time(rest), "rest")] if rest else []
    of = chosen.detail.get("breakdown_of")
    return [Bar(f"A decode step{f' of {of}' if of else ''}: {time(total)}", parts)]


def _memory_bar(chosen: Chosen) -> Bar:
    """What fills the memory of one chip."""
    rows, capacity = chosen.detail["memory"], chosen.detail["capacity_bytes"]
    used = sum(row["bytes"] for row in rows)
    parts = [
        (_part(row["part"]), row["bytes"] / capacity, bytes_(row["bytes"]), f"part{k}")
        for k, row in enumerate(rows)
        if row["bytes"]
    ]
    return Bar(f"Memory of a chip: {bytes_(used)} of {bytes_(capacity)}", parts)


def _part(part: str) -> str:
    """A part of memory: `KV cache`."""
    return part.replace("_", " ").replace("kv", "KV")


def _cost(folder: StudyFolder, chosen: Chosen) -> list[str]:
    metrics, basis = chosen.metrics, folder.study["price"]["basis"]
    parts = [
        f"{show(metric, metrics[metric])} {name}"
        for name, metric in zip(TOKENS, COSTS, strict=True)
        if metrics.get(metric) is not None
    ]
    if not parts:
        return [f"No price on the basis {basis}."]
    said = [f"Per million tokens ({basis}): {', '.join(parts)}."]
    if metrics.get(ALL_IN) is not None:
        said.append(f"With all cost put on the output tokens {show(ALL_IN, metrics[ALL_IN])}.")
    if priced := folder.priced_chips(chosen.item["deployment"]):
        each = " + ".join(f"{chips} × ${significant(rate)}" for chips, rate in priced)
        hour = significant(sum(chips * rate for chips, rate in priced))
        said.append(f"The chips: {each} = ${hour} an hour.")
    return said


def _quality(folder: StudyFolder, metrics: Json) -> list[str]:
    """Predicted loss, what it compares with and what it would take to train."""
    loss, size = metrics.get(QUALITY), metrics.get("dense_equivalent_parameters")
    if loss is None:
        return []
    said = f"Predicted loss {show(QUALITY, loss)} nats"
    if size is not None:
        amount = show("dense_equivalent_parameters", size)
        said += f" (dense-equivalent {amount} parameters)"
    said += f" by the quality law {metrics['quality_law']}" if "quality_law" in metrics else ""
    near = folder.beside(loss)
    found = [f"{said}{f', {near} by the same law' if near else ''}."]
    if metrics.get("overtraining_ratio") is not None:
        found.append(overtraining_words(metrics))
    added = metrics.get("quantisation_loss") or 0.0
    if added >= SHOWN_LOSS:
        found.append(
            f"Of it {added:.3f} come from quantising the weights after training, by a law "
            "fitted on small models in whole-number formats."
        )
    return found


def _certainty(folder: StudyFolder, chosen: Chosen) -> list[str]:
    """Interval and provenance of each objective, then what they rest on."""
    metrics = chosen.metrics
    intervals, provenance = metrics.get("intervals", {}), metrics.get("provenance", {})
    parts = [
        f"{label(name).text} {span(name, intervals[name]) if name in intervals else 'no interval'}"
        f" ({provenance.get(name, 'kind not stated')})"
        for name in folder.wanted
    ]
    kind = metrics.get("interval_kind")
    width = f" (its width is {kind})" if kind else ""
    said = [f"80% interval{width}: {', '.join(parts)}."]
    shares = sorted(chosen.efficiency_shares, key=lambda pair: -pair[1])
    if shares:
        rests = ", ".join(f"{share:.0%} on {kind}" for kind, share in shares)
        said.append(f"Time of the decode step rests {rests} efficiencies.")
    likely = chosen.item.get("front_probability")
    if likely is not None:
        said.append(f"With errors drawn from these, it is on the front in {likely:.0%} of draws.")
    if count := len(metrics.get("assumed", ())):
        said.append(f"{count} assumption{'s' * (count > 1)}, listed under Certainty.")
    return said


# Tables over the chosen points.


def summary(folder: StudyFolder) -> Table:
    """A row for each chosen point: name, objectives, what its time rests on, shape, deployment."""
    key = f"{DEPLOYMENT_KEY}{DOMAIN_KEY if 'rack' in folder.study else ''}"
    key += HELD_KEY if folder.held else ""
    chosen = folder.chosen
    rests = [
        ", ".join(kind for kind, share in one.efficiency_shares if share >= 0.5) or None
        for one in chosen
    ]
    shapes = {"shape": [brief_shape(one.item) for one in chosen]}
    return frame(
        "summary",
        "",
        {
            "chosen": [one.numbered for one in chosen],
            **{m: [one.metrics[m] for one in chosen] for m in folder.wanted},
            "efficiency": rests,
            **(shapes if folder.several_shapes else {}),
            "deployed": [short_deployment(one.item["deployment"], folder.held) for one in chosen],
        },
        f"Deployment: {key}; degrees of 1 are left out. front.csv has every design of the front.",
    )


def workloads(folder: StudyFolder) -> list[Table]:
    """Of a mix, a row for each chosen point and workload; none of one workload."""
    rows = [
        {"chosen": one.numbered, **load}
        for one in folder.chosen
        for load in one.item.get("workloads", ())
    ]
    keys = ("chosen", "workload", "weight", "chip_seconds_share", "ttft_s", "tpot_s", *COSTS)
    rows = [{**row, "workload": row["name"]} for row in rows]
    caption = "Each workload by itself"
    return [of_rows("workloads", caption, rows, keys, on_console=False)] if rows else []


def pools(folder: StudyFolder) -> list[Table]:
    """The two pools of each chosen point that has them, a row each."""
    rows = [
        {"chosen": one.numbered, "phase": phase, **pool}
        for one in folder.chosen
        if (found := pools_of(one.item["deployment"])) is not None
        for phase, pool in zip(("prefill", "decode"), found, strict=True)
    ]
    keys = ("chosen", "phase", *OF_A_POOL, "concurrency")
    return [of_rows("pools", "", rows, keys, on_console=False)] if rows else []


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
            "decode_step_s": row["decode_s"],
            "bounds": " / ".join(
                dict.fromkeys((row.get("prefill_bound", row["bound"]), row["bound"]))
            ),
        }
        for one in folder.chosen
        for row in sorted(one.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0))
    ]
    return of_rows(
        "time", "", rows, "chosen operator prefill_s decode_step_s bound=bounds efficiency"
    )


def memory(folder: StudyFolder) -> Table:
    """What one chip of each chosen point holds, part by part, what is free, and its capacity."""
    rows = []
    for one in folder.chosen:
        parts = {_part(row["part"]): row["bytes"] for row in one.detail["memory"]}
        capacity = one.detail["capacity_bytes"]
        parts |= {"free": max(0.0, capacity - sum(parts.values())), "capacity": capacity}
        rows += [{"chosen": one.under, "part": part, "bytes": size} for part, size in parts.items()]
    return of_rows("memory", "", rows, "chosen part bytes")


def floors(folder: StudyFolder) -> Table:
    """Floor, prediction and interval of each chosen point's decode step."""
    details = [one.detail for one in folder.chosen]
    ratios = [one["decode_step_s"] / one["floor_s"] if one["floor_s"] else None for one in details]
    columns = {
        "chosen": [one.under for one in folder.chosen],
        "latency_floor_s": [one["floor_s"] for one in details],
        "decode_step_s": [one["decode_step_s"] for one in details],
        "decode_step_s.low": [one.step_interval[0] for one in folder.chosen],
        "decode_step_s.high": [one.step_interval[1] for one in folder.chosen],
        "distance_to_floor": ratios,
    }
    return frame("floor", "", columns)


def elsewhere(folder: StudyFolder) -> list[Table]:
    """The points on every chip: on their own, then on those that can do it, the best of the first
    objective that differs from chip to chip first, then on those that cannot. Below it the chips
    that could not be evaluated, by reason."""
    rows: list[dict[str, Any]] = []
    reasons: dict[str, dict[str, None]] = {}
    compared: dict[str, None] = {}
    for one in folder.chosen:
        found, own = one.detail.get("elsewhere") or (), one.item["deployment"]["chip"]
        known = [row for row in found if row["metrics"]]
        for row in found:
            if not row["metrics"]:
                reason = row["why_not"].removeprefix(row["chip"]).lstrip(": ").removeprefix("has ")
                reasons.setdefault(reason, {})[row["chip"]] = None
        differing = [
            objective
            for objective in folder.objectives
            if len({row["metrics"].get(objective["metric"]) for row in known}) > 1
        ] or folder.objectives
        compared |= dict.fromkeys(objective["metric"] for objective in differing)
        first = differing[0]
        for row in sorted(known, key=lambda row: _order(row, own, first)):
            here = {m: row["metrics"].get(m) for m in folder.wanted}
            ratios = {
                f"{m}.ratio": value / one.metrics[m]
                for m, value in here.items()
                if value and one.metrics.get(m) and row["chip"] != own and label(m).kind != "nats"
            }
            usd = row["usd_per_chip_hour"]
            told = {"chosen": one.label, "chip": row["chip"], "usd_per_chip_hour": usd}
            rows.append({**told, **here, **ratios, "runs_it": _does_it(row, own)})
    if not rows:
        return []
    keys = ("chosen", "chip", "usd_per_chip_hour", *compared)
    keys += (*(f"{m}.ratio" for m in compared), "runs_it")
    why_not = "; ".join(f"{reason}: {', '.join(chips)}" for reason, chips in reasons.items())
    notes = [f"Not evaluated: {why_not}."] if why_not else []
    return [of_rows("elsewhere", "", rows, keys, *notes, on_console=False)]


def _order(row: Json, own: str, objective: Json) -> tuple[bool, bool, float]:
    value = row["metrics"].get(objective["metric"])
    sign = 1.0 if objective["direction"] == "minimize" else -1.0
    least = float("inf") if value is None else sign * value
    return row["chip"] != own, not row["feasible"], least


def _does_it(row: Json, own: str) -> str:
    said = ["its own chip" if row["chip"] == own else "yes"]
    if not row["feasible"]:
        said = [f"no: {row['why_not']}"]
    elif row["efficiency"] != "fitted":
        said.append(f"efficiencies {row['efficiency']}")
    said += [f"bound by {row['bottleneck']}"] * row["feasible"]
    return "; ".join([*said, *filter(None, [row.get("note")])])


def certainty(folder: StudyFolder) -> Table:
    """What the main numbers of the chosen points rest on."""
    rows = []
    for one in folder.chosen:
        intervals = one.metrics.get("intervals", {})
        provenance = one.metrics.get("provenance", {})
        for name in dict.fromkeys((*folder.wanted, *intervals)):
            row = {"chosen": one.label, "metric": label(name).text}
            row |= {"value": show(name, one.metrics.get(name)), "interval": None}
            row["interval"] = span(name, intervals[name]) if name in intervals else None
            rows.append(row | {"known": provenance.get(name, "not stated")})
    return of_rows("certainty", "", rows, "chosen metric value interval known")
