"""The front as columns for the page, and the page's plain tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.labels import axis_title, label
from dse.answer.numbers import show
from dse.render.describe import dtypes, given_name, kind, short_shape, short_split
from dse.render.folder import Chosen, Json, StudyFolder
from dse.render.page import script_json
from dse.render.words import efficiency_shares, limits, span
from dse.schema.metrics import METRICS

# Text of the front that one page may carry beside plotly.js (1.2 MB).
DATA_BYTES = 900_000
# Choices that only the parallel coordinates show: elsewhere `shape` and `split` say them.
AXES_ONLY = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden size",
    "num_experts": "experts",
    "replicas": "replicas",
    "tensor_parallel": "tensor parallel",
    "expert_parallel": "expert parallel",
    "scale_up_domain": "scale-up domain (hypothetical)",
}
PARALLEL = (
    "chip", "kind", "num_hidden_layers", "hidden_size", "num_experts", "total_parameters",
    "active_parameters", "weights", "kv", "chips", "replicas", "tensor_parallel",
    "expert_parallel", "scale_up_domain", "concurrency",
)  # fmt: skip
NOT_PLOTTED = ("memory_capacity_bytes_per_chip",)


def front_data(folder: StudyFolder, data_bytes: int = DATA_BYTES) -> dict[str, Any]:
    """The front in columns, in display units, for the page's script.

    Text and repeated numbers are stored as codes into `levels`. A front too long for `data_bytes`
    is thinned evenly along its order, chosen points kept; `rows` and `total` say so.
    """
    count = len(folder.items)
    while True:
        data = _columns(folder, thin(folder, count))
        size = len(script_json(data))
        if size <= data_bytes or count == 1:
            return data
        count = max(1, min(count - 1, int(0.95 * count * data_bytes / size)))


def thin(folder: StudyFolder, count: int) -> list[Json]:
    """About `count` items, evenly spaced in the front's order; chosen points always stay."""
    step = max(1.0, len(folder.items) / count)
    keep = {int(i * step) for i in range(count)}
    points = {chosen.item["point"] for chosen in folder.chosen}
    return [item for i, item in enumerate(folder.items) if i in keep or item["point"] in points]


def _columns(folder: StudyFolder, items: Sequence[Json]) -> dict[str, Any]:
    names = {chosen.item["point"]: chosen.label for chosen in folder.chosen}
    directions = {o["metric"]: o["direction"] for o in folder.objectives}
    logs = {o["metric"]: bool(o.get("log")) for o in folder.objectives}
    columns = [
        _text("names", "chosen as", [names.get(item["point"], "") for item in items]),
        _text("chip", "chip", [item["deployment"]["chip"] for item in items]),
        _text("weights", "weights", [dtypes(i["deployment"]["weight_dtype"]) for i in items]),
        _text("kv", "KV cache", [item["deployment"].get("kv_dtype") or "" for item in items]),
        _text("kind", "kind", [kind(item) for item in items]),
        _text("model", "model", [given_name(item) for item in items]),
        _text("shape", "shape", [short_shape(item["model"]) for item in items]),
        _text("split", "split", [short_split(item["deployment"]) for item in items]),
        _text("bottleneck", "bound by", [item["metrics"]["bottleneck"] for item in items]),
        _number("concurrency", [item["deployment"]["concurrency"] for item in items]),
    ]
    columns[-1]["label"] = columns[-1]["axis"] = "requests in flight"
    columns += [column for key in AXES_ONLY if (column := _axis_only(key, items))]
    for metric in _metrics(folder, items):
        column = _number(metric, [item["metrics"].get(metric) for item in items])
        column["axis"] = axis_title(metric, directions.get(metric))
        column["log"] = logs.get(metric, False)
        columns.append(column)
    x, y = _axes(folder, [column["key"] for column in columns if column.get("number")])
    return {
        "total": len(folder.items),
        "rows": len(items),
        "point": [item["point"] for item in items],
        "columns": [column for column in columns if column.get("levels") != [""]],
        "objectives": [o["metric"] for o in folder.objectives],
        "parallel": _parallel(columns, folder),
        "x": x,
        "y": y,
        "study": folder.name,
    }


def _metrics(folder: StudyFolder, items: Sequence[Json]) -> list[str]:
    """Objectives first, then every metric with a number somewhere on the front."""
    objectives = [o["metric"] for o in folder.objectives]
    present: dict[str, None] = dict.fromkeys(objectives)
    for metric in (*METRICS, "overtraining_ratio"):
        if metric not in NOT_PLOTTED and any(
            isinstance(item["metrics"].get(metric), int | float) for item in items
        ):
            present.setdefault(metric)
    return list(present)


def _axis_only(key: str, items: Sequence[Json]) -> dict[str, Any] | None:
    """A choice as a column, None where no item has it."""
    values = [
        value if isinstance(value, int | float) else None
        for value in (item["model"].get(key, item["deployment"].get(key)) for item in items)
    ]
    if all(value is None for value in values):
        return None
    column = _number(key, values)
    return column | {"label": AXES_ONLY[key], "axis": AXES_ONLY[key], "axes_only": True}


def _parallel(columns: Sequence[dict[str, Any]], folder: StudyFolder) -> list[str]:
    """Choices, then objectives, as far as they differ on the front."""
    by_key = {column["key"]: column for column in columns}
    listed = dict.fromkeys((*PARALLEL, *(o["metric"] for o in folder.objectives)))

    def differs(column: dict[str, Any]) -> bool:
        values = column.get("levels") or column.get("values") or []
        return len(set(values) - {None}) > 1

    return [key for key in listed if key in by_key and differs(by_key[key])]


def _axes(folder: StudyFolder, keys: list[str]) -> tuple[str, str]:
    """Cost across and quality up where the study has both, else its first two objectives; a study
    of one objective shows it against the first other of `keys`."""
    metrics = [o["metric"] for o in folder.objectives]
    costs = [metric for metric in metrics if label(metric).kind == "usd/Mtoken"]
    x = costs[0] if costs else metrics[0]
    others = [metric for metric in metrics if metric != x] or [k for k in keys if k != x]
    quality = [metric for metric in others if label(metric).kind == "nats"]
    return x, (quality or others)[0]


def _text(key: str, text: str, values: list[str]) -> dict[str, Any]:
    levels = list(dict.fromkeys(values))
    codes = {level: code for code, level in enumerate(levels)}
    return {"key": key, "label": text, "levels": levels, "codes": [codes[v] for v in values]}


def _number(metric: str, values: Sequence[float | None]) -> dict[str, Any]:
    known = label(metric)
    digits = 5 if known.kind == "nats" else 4
    shown = [None if v is None else _short(v * known.scale, digits) for v in values]
    column: dict[str, Any] = {
        "key": metric,
        "label": axis_title(metric),
        "axis": axis_title(metric),
    }
    levels = list(dict.fromkeys(shown))
    if 2 * len(levels) < len(shown):
        codes = {level: code for code, level in enumerate(levels)}
        return column | {"number": True, "levels": levels, "codes": [codes[v] for v in shown]}
    return column | {"number": True, "values": shown}


def _short(value: float, digits: int) -> float | int:
    """`value` with `digits` significant digits; an integer where it is one."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def tallies(folder: StudyFolder) -> list[dict[str, Any]]:
    """Constraints by how many evaluated designs they ruled out, most first."""
    evaluations = max(1, folder.study["evaluations"])
    rows = sorted(folder.study["constraint_tallies"], key=lambda row: -row["violated"])
    return [
        {
            "constraint": row["constraint"],
            "meaning": row.get("meaning") or "",
            "violated": row["violated"],
            "only": row["only"],
            "share": min(1.0, row["violated"] / evaluations),
            "only_share": min(1.0, row["only"] / evaluations),
        }
        for row in rows
    ]


def time_rows(chosen: Chosen) -> list[dict[str, str]]:
    """The operators of a chosen point, longest decode first."""
    rows = sorted(chosen.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0))
    return [
        {
            "operator": row["operator"],
            "prefill": show("prefill_s", row["prefill_s"]),
            "decode": show("decode_step_s", row["decode_s"]),
            "bound": bounds(row),
            "efficiency": row["efficiency"],
        }
        for row in rows
    ]


def bounds(row: Json) -> str:
    """What bounds an operator: once, or `prefill / decode` where the two differ."""
    prefill = row.get("prefill_bound", row["bound"])
    return row["bound"] if prefill == row["bound"] else f"{prefill} / {row['bound']}"


def memory_rows(chosen: Chosen) -> list[tuple[str, str]]:
    parts = [(row["part"], row["bytes"]) for row in chosen.detail["memory"]]
    capacity = chosen.detail["capacity_bytes"]
    free = capacity - sum(size for _, size in parts)
    return [
        *((part.replace("_", " "), show("memory_bytes_per_chip", size)) for part, size in parts),
        ("free", show("memory_bytes_per_chip", max(0.0, free))),
        ("capacity", show("memory_bytes_per_chip", capacity)),
    ]


def floor_rows(folder: StudyFolder) -> list[dict[str, str]]:
    """Floor, prediction and interval of each chosen point's decode step."""
    rows = []
    for chosen in folder.chosen:
        floor, predicted = chosen.detail["floor_s"], chosen.detail["decode_step_s"]
        interval = chosen.step_interval
        rows.append(
            {
                "names": chosen.under,
                "floor": show("decode_step_s", floor),
                "predicted": show("decode_step_s", predicted),
                "interval": span("decode_step_s", interval) if interval else "–",
                "ratio": f"{predicted / floor:.1f} ×" if floor else "–",
            }
        )
    return rows


def certainty_rows(folder: StudyFolder) -> list[dict[str, Any]]:
    """What each chosen point's main numbers rest on."""
    rows = []
    for chosen in folder.chosen:
        metrics = chosen.metrics
        intervals, provenance = metrics.get("intervals", {}), metrics.get("provenance", {})
        listed = dict.fromkeys([o["metric"] for o in folder.objectives] + list(intervals))
        rows.append(
            {
                "names": chosen.label,
                "metrics": [
                    {
                        "label": label(name).text,
                        "value": show(name, metrics.get(name)),
                        "interval": span(name, intervals[name]) if name in intervals else "–",
                        "provenance": provenance.get(name, "not stated"),
                    }
                    for name in listed
                ],
                "shares": [
                    (kind, f"{share:.0%}", 100 * share) for kind, share in efficiency_shares(chosen)
                ],
                "limits": [sentence for sentence, _ in limits(folder, chosen.item)],
            }
        )
    return rows


def assumptions(folder: StudyFolder) -> list[tuple[str, str]]:
    """(sentence, names of the chosen points that rest on it), each sentence once."""
    names: dict[str, list[str]] = {}
    for chosen in folder.chosen:
        for sentence in chosen.metrics.get("assumed", ()):
            names.setdefault(sentence, []).append(chosen.label)
    return [(sentence, ", ".join(of)) for sentence, of in names.items()]


def run_facts(folder: StudyFolder) -> list[tuple[str, str]]:
    """What ran: space, engine, seed, versions, digest."""
    study = folder.study
    facts = [
        ("space", f"{study['space']}, {study['size']:,} designs"),
        ("engine", " – ".join(str(study[k]) for k in ("engine", "why_engine") if study.get(k))),
        ("evaluations", f"{study['evaluations']:,}"),
        ("trials recorded", f"{study['trials']:,}"),
        ("seed", str(study["seed"])),
        ("data digest", study["data_digest"]),
    ]
    if study.get("hypervolume") is not None:
        reference = ", ".join(f"{value:g}" for value in study.get("reference_point") or ())
        facts.append(("hypervolume", f"{study['hypervolume']:.6g}, reference point ({reference})"))
    if study.get("seconds"):
        times = ", ".join(f"{name} {value:.3g} s" for name, value in study["seconds"].items())
        facts.append(("time", times))
    facts.append(("versions", ", ".join(f"{k} {v}" for k, v in study["versions"].items())))
    return facts
