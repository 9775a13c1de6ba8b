"""The front as columns to look around in, and the tables of a study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Column, Table
from dse.answer.labels import axis_title, label
from dse.answer.numbers import show
from dse.answer.palette import PALETTE, SYMBOLS
from dse.questions.study.describe import dtypes, given_name, kind, short_shape, short_split
from dse.questions.study.folder import Chosen, Json, StudyFolder
from dse.questions.study.words import capital, efficiency_shares, limits, span
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
    "chip",
    "kind",
    "num_hidden_layers",
    "hidden_size",
    "num_experts",
    "total_parameters",
    "active_parameters",
    "weights",
    "kv",
    "chips",
    "replicas",
    "tensor_parallel",
    "expert_parallel",
    "scale_up_domain",
    "concurrency",
)
SPLIT = (
    "Shape: layers × hidden size, query heads/KV heads. Split: replicas × (TP tensor, PP pipeline, "
    "DP attention data, EP expert parallel)."
)
# Of a longer front the page draws about so many points, and tells so many rows.
DRAWN = {
    "table_rows": 200,
    "printed_rows": 40,
    "drawn_points": 1_500,
    "drawn_lines": 600,
    "palette": PALETTE,
    "symbols": SYMBOLS,
}
NOT_PLOTTED = ("memory_capacity_bytes_per_chip",)


def front_data(folder: StudyFolder, data_bytes: int = DATA_BYTES) -> dict[str, Any]:
    """The front in columns, in display units, for the page's script.

    Text and repeated numbers are stored as codes into `levels`. A front too long for `data_bytes`
    is thinned evenly along its order, chosen points kept; `rows` and `total` say so.
    """
    count = len(folder.items)
    while True:
        data = _columns(folder, thin(folder, count))
        size = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
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
        **DRAWN,
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


def tallies(folder: StudyFolder) -> Table:
    """Constraints by how many evaluated designs they ruled out, most first."""
    evaluations = max(1, folder.study["evaluations"])
    found = sorted(folder.study["constraint_tallies"], key=lambda row: -row["violated"])
    never = ", ".join(row["constraint"] for row in found if not row["violated"])
    return Table(
        "constraints",
        "",
        (
            Column("constraint", "constraint"),
            Column("meaning", "meaning"),
            Column("violated", "violated", "count"),
            Column("only", "alone", "count"),
            Column("share", "share of evaluated", "share", bar=True),
        ),
        [
            {
                "constraint": row["constraint"],
                "meaning": row.get("meaning") or "",
                "violated": row["violated"],
                "only": row["only"],
                "share": min(1.0, row["violated"] / evaluations),
            }
            for row in found
            if row["violated"]
        ],
        notes=[f"Never violated: {never}."] if never else [],
    )


def times(chosen: Chosen) -> Table:
    """The operators of a chosen point, longest decode first."""
    rows = sorted(chosen.detail["breakdown"], key=lambda row: -(row["decode_s"] or 0.0))
    return Table(
        f"time-of-{chosen.item['point']}",
        capital(chosen.under),
        (
            Column("operator", "operator"),
            Column("prefill_s", "prefill of one prompt", "prefill_s"),
            Column("decode_s", "decode step", "decode_step_s"),
            Column("bounds", "bound"),
            Column("efficiency", "efficiency"),
        ),
        [{**row, "bounds": bounds(row)} for row in rows],
    )


def bounds(row: Json) -> str:
    """What bounds an operator: once, or `prefill / decode` where the two differ."""
    prefill = row.get("prefill_bound", row["bound"])
    return row["bound"] if prefill == row["bound"] else f"{prefill} / {row['bound']}"


def memories(folder: StudyFolder) -> Table:
    """What one chip of each chosen point holds, part by part, what is free, and its capacity."""
    parts = list(dict.fromkeys(r["part"] for c in folder.chosen for r in c.detail["memory"]))
    rows = []
    for chosen in folder.chosen:
        held = {row["part"]: row["bytes"] for row in chosen.detail["memory"]}
        capacity = chosen.detail["capacity_bytes"]
        free = max(0.0, capacity - sum(held.values()))
        rows.append({"point": chosen.under, **held, "free": free, "capacity": capacity})
    return Table(
        "memory",
        "",
        (
            Column("point", "point"),
            *(Column(part, part.replace("_", " ").replace("kv", "KV"), "bytes") for part in parts),
            Column("free", "free", "bytes"),
            Column("capacity", "capacity", "bytes"),
        ),
        rows,
    )


def floors(folder: StudyFolder) -> Table:
    """Floor, prediction and interval of each chosen point's decode step."""
    return Table(
        "floor",
        "",
        (
            Column("point", "point"),
            Column("floor_s", "floor of the decode step", "decode_step_s"),
            Column("predicted_s", "prediction", "decode_step_s"),
            Column("interval", "80% interval", right=True),
            Column("ratio", "prediction / floor", "ratio"),
        ),
        [
            {
                "point": chosen.under,
                "floor_s": (floor := chosen.detail["floor_s"]),
                "predicted_s": (predicted := chosen.detail["decode_step_s"]),
                "interval": span("decode_step_s", i) if (i := chosen.step_interval) else None,
                "ratio": predicted / floor if floor else None,
            }
            for chosen in folder.chosen
        ],
    )


def certainty(folder: StudyFolder, chosen: Chosen) -> Table:
    """What the main numbers of a chosen point rest on, and its distance to each limit."""
    metrics = chosen.metrics
    intervals, provenance = metrics.get("intervals", {}), metrics.get("provenance", {})
    listed = dict.fromkeys([o["metric"] for o in folder.objectives] + list(intervals))
    shares = ", ".join(f"{share:.0%} {kind}" for kind, share in efficiency_shares(chosen))
    rests = f"Kernel efficiencies behind the decode step's time: {shares}."
    near = "; ".join(sentence for sentence, _ in limits(folder, chosen.item))
    return Table(
        f"certainty-of-{chosen.item['point']}",
        capital(chosen.label),
        (
            Column("metric", "metric"),
            Column("value", "predicted", right=True),
            Column("interval", "80% interval", right=True),
            Column("kind", "kind"),
        ),
        [
            {
                "metric": label(name).text,
                "value": show(name, metrics.get(name)),
                "interval": span(name, intervals[name]) if name in intervals else None,
                "kind": provenance.get(name, "not stated"),
            }
            for name in listed
        ],
        notes=[*([rests] if shares else []), *([f"Limits: {near}."] if near else [])],
    )


def assumptions(folder: StudyFolder) -> list[str]:
    """Each sentence once, with the names of the chosen points that rest on it."""
    names: dict[str, list[str]] = {}
    for chosen in folder.chosen:
        for sentence in chosen.metrics.get("assumed", ()):
            names.setdefault(sentence, []).append(chosen.label)
    return [f"{sentence} ({', '.join(of)})" for sentence, of in names.items()]


def front(folder: StudyFolder, most: int) -> Table:
    """About `most` points, evenly along the front, with their shape and deployment."""
    total = len(folder.items)
    shown = thin(folder, min(most, total))
    note = (
        f"{len(shown)} of {total:,} points, evenly along the front; front.csv has all."
        if total > most
        else "All of it is in front.csv too."
    )
    metrics = [o["metric"] for o in folder.objectives]
    rows = [
        {
            "point": item["point"],
            "chip": item["deployment"]["chip"],
            "split": short_split(item["deployment"]),
            "weights": dtypes(item["deployment"]["weight_dtype"]),
            "shape": short_shape(item["model"]),
            **{metric: item["metrics"].get(metric) for metric in metrics},
            "bottleneck": item["metrics"]["bottleneck"],
        }
        for item in shown
    ]
    return Table(
        "front",
        "The front",
        (
            Column("point", "point", right=True),
            Column("chip", "chip"),
            Column("split", "split"),
            Column("weights", "weights"),
            Column("shape", "shape"),
            *(Column(metric, label(metric).text, metric) for metric in metrics),
            Column("bottleneck", "bound by"),
        ),
        rows,
        notes=(note, SPLIT),
        on_console=False,
    )


def prices(study: Json) -> Table:
    """What an hour of each chip costs, and where the price is from."""
    return Table(
        "prices",
        f"Prices on the basis {study['price']['basis']}",
        (
            Column("chip", "chip"),
            Column("usd_per_chip_hour", "USD per chip-hour", "chip_usd_per_hour"),
            *(Column(key, key) for key in ("date", "rule", "note", "source")),
        ),
        [_filled(row, "date", "rule", "note", "source") for row in study["price"]["rows"]],
    )


def sources(study: Json) -> Table:
    """Every figure of a chip that the study used."""
    keys = ("figure", "kind", "date", "source")
    rows = [_filled(row, *keys) for row in study["sources"]]
    return Table("sources", "Figures", tuple(Column(key, key) for key in keys), rows)


def _filled(row: Json, *keys: str) -> Json:
    return {**row, **{key: row.get(key) or "" for key in keys}}


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
