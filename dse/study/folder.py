"""The study folder: reading it, and replacing its files atomically."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.blocks import BLOCK_SIZES
from dse.errors import InputError, StorageError
from dse.files import MOST_TABLE_BYTES, read_bytes, text_of
from dse.schema.dtypes import DTYPES
from dse.schema.metrics import METRICS
from dse.schema.model import layers_in_short

STUDY, FRONT, FRONT_TABLE, FLEET = "study.json", "front.json", "front.csv", "fleet.json"
JOURNAL, CHECKPOINT = "journal.log", "checkpoint.npz"

# What the readers of a study lean on, by example: a type, a set of texts, a mapping of needed keys
# (of ANY: every key that there is), or a list of one example.
ANY = "*"
_NUMBER = (int, float)
_MAYBE = (int, float, type(None))
_LOAD = {"prompt_tokens": _NUMBER, "output_tokens": _NUMBER, "serving": str, "backend": str}
_METRIC = {"metric": frozenset(METRICS)}
_TEXTS = ("space", "fingerprint", "price_basis", "data_digest", "engine")
_COUNTS = ("evaluations", "size", "seed", "trials")

# front.csv: one row a point, 9 significant digits, no times of the machine in it.
MODEL = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "num_shared_experts",
    "vocab_size",
)
DEPLOYMENT = (
    "chip",
    "chips",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "replicas",
    "weight_dtype",
    "kv_dtype",
    "concurrency",
)
# Columns of the prefill pool, empty where one pool does both phases.
PREFILL = tuple(name for name in DEPLOYMENT if name != "concurrency")
LAYERS = "layers"  # in short, in studies whose layers are not all alike
# Columns of the studies that vary them: memory tiers, a hypothetical scale-up domain.
SEARCHED = (
    "redundant_experts",
    "draft_tokens",
    "max_running_requests",
    "weights_offloaded",
    "kv_offloaded",
    "offload_tier",
    "scale_up_domain",
)

_SHAPES: dict[str, Any] = {
    STUDY: {
        **dict.fromkeys(_TEXTS, str),
        **dict.fromkeys(_COUNTS, int),
        "true_hypervolume_share": _MAYBE,
        "objectives": [{**_METRIC, "direction": str, "log": bool}],
        "constraints": [{**_METRIC, "sign": _NUMBER, "limit": _NUMBER, "text": str}],
        "constraint_tallies": [{"constraint": str, "violated": int, "only": int}],
        "versions": dict,
        "price": {"rows": [{"chip": str, "usd_per_chip_hour": _NUMBER}]},
        "sources": [{"figure": str}],
        "chosen": {ANY: {"point": int}},
        "decisions": {
            "families": [{"decision": int, "point": int, "probability": _MAYBE}],
            "start": {"probability": _MAYBE, "kept": _NUMBER},
            "turns": list,
        },
    },
    FRONT: {
        "items": [
            {
                "point": int,
                "names": [str],
                "model": {"blocks": list},
                "deployment": {
                    **dict.fromkeys(DEPLOYMENT, _NUMBER),
                    **dict.fromkeys(("chip", "weight_dtype"), str),
                    "kv_dtype": frozenset(DTYPES),
                },
                "metrics": dict,
            }
        ]
    },
    FLEET: {
        "plan": str,
        "title": str,
        "feasible": bool,
        "price_basis": str,
        "quarters": int,
        **dict.fromkeys(("usd", "usd_undiscounted", "usd_per_million_tokens"), _MAYBE),
        "orders": [{"way": str, "chip": str, "offer": str, "order_quarter": int, "chips": int}],
        "chips": [{"quarter": int, "chip": str, "rented_chips": _NUMBER, "owned_chips": _NUMBER}],
        "prices": [{"offer": str, "price_usd": _NUMBER, "per": str}],
    },
}
# The workloads of study.json: `workload`, or null and several `workloads`.
_ONE = {"workload": _LOAD}
_SEVERAL = {"workloads": [{"name": str, "weight": _NUMBER, **_LOAD}]}
_MAY_HAVE = ("definition", "own_prices")  # objects of study.json that may be absent or null
# What writes a document, and what a folder of it is called.
_WRITERS = {FLEET: ("`dse fleet --out`", "fleet")}
_WRITER = ("`dse run`", "finished study")


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """One of the folder's documents. Raises InputError when the folder is not a study, StorageError
    when the document is damaged."""
    path, (writer, called) = folder / name, _WRITERS.get(name, _WRITER)
    if not os.path.lexists(path):
        raise InputError(
            f"{folder} is not a {called}: it has no {name}",
            accepted=f"a folder written by {writer}",
        )
    try:
        text = text_of(read_bytes(path, MOST_TABLE_BYTES), str(path), escapes=True)
        document = json.loads(text, parse_constant=_refuse)
    except InputError as error:
        raise StorageError(f"{error}; {writer} writes it anew") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: cannot be read: {error}; {writer} writes it anew") from error
    wrong = _misfit(document, _SHAPES[name], "")
    if wrong is None and name == STUDY:
        several = document.get("workload", {}) is None and document.get("workloads")
        has = {key: dict for key in _MAY_HAVE if document.get(key) is not None}
        wrong = _misfit(document, {**has, **(_SEVERAL if several else _ONE)}, "")
    if wrong:
        raise StorageError(f"{path}: {wrong}; {writer} writes it anew")
    return document


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_study(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(study.json, the items of front.json), with a value of every objective at every point."""
    study, items = read_json(folder, STUDY), read_json(folder, FRONT)["items"]
    if not items:
        raise StorageError(f"{folder / FRONT}: holds no point; `dse run` writes it anew")
    shape = {"metrics": {row["metric"]: _NUMBER for row in study["objectives"]}}
    for item in items:
        where = f"point {item['point']}"
        if wrong := _misfit(item, shape, where) or _item_misfit(item, where):
            raise StorageError(f"{folder / FRONT}: {wrong}; `dse run` writes it anew")
    return study, items


def _misfit(value: Any, shape: Any, where: str) -> str | None:
    """The first place where `value` is not of `shape`, in words."""
    at = where or "the document"
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{at} is no object"
        found = dict.fromkeys(value, shape[ANY]) if ANY in shape else shape
        for key, inner in found.items():
            if key not in value:
                return f"{at} lacks {key!r}"
            if wrong := _misfit(value[key], inner, f"{where}.{key}".lstrip(".")):
                return wrong
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{at} is no list"
        for k, element in enumerate(value):
            if wrong := _misfit(element, shape[0], f"{where}[{k}]"):
                return wrong
    elif not (value in [*shape] if isinstance(shape, frozenset) else isinstance(value, shape)):
        return f"{at} is {value!r:.40}"
    return None


def _item_misfit(item: Mapping[str, Any], where: str) -> str | None:
    """The same of a point: the layers of its model, and its intervals, two numbers above zero, the
    lower one first."""
    model = item["model"]
    flat = ["hidden_size", "num_hidden_layers"] if "hidden_size" in model else []
    flat += ["moe_intermediate_size", "num_experts_per_tok"] if model.get("num_experts") else []
    if wrong := _misfit(model, dict.fromkeys(flat, _NUMBER), f"{where}.model"):
        return wrong
    layers = model.get("blocks", [])
    if wrong := _misfit(layers, [{"kind": str, "count": _NUMBER}], f"{where}.model.blocks"):
        return wrong
    for k, block in enumerate(layers):
        sizes = dict.fromkeys(BLOCK_SIZES.get(block["kind"], ()), _NUMBER)
        if wrong := _misfit(block, sizes, f"{where}.model.blocks[{k}]"):
            return wrong
        if not sizes:
            return f"{where}.model.blocks[{k}].kind is {block['kind']!r:.40}"
    for name, ends in item["metrics"].get("intervals", {}).items():
        if wrong := _misfit(ends, [_NUMBER], f"{where}.intervals.{name}"):
            return wrong
        if len(ends) != 2 or not 0.0 <= ends[0] <= ends[1]:
            return f"{where}.intervals.{name} is {ends!r:.60}"
    return None


def study_folder(study: Any) -> Path | None:
    """The folder of a finished study, where `study` is one (`dse.Study`) or the path of one."""
    if isinstance(study, str | Path):
        return Path(study) if study and (Path(study) / STUDY).is_file() else None
    return getattr(study, "folder", None)


def space_of(document: Mapping[str, Any]) -> str:
    """The space that the study's command names."""
    words = shlex.split(document.get("command", ""))
    return words[2] if words[:2] == ["dse", "run"] and len(words) > 2 else document["space"]


def option_of(document: Mapping[str, Any], flag: str) -> str | None:
    """What the study's command gives behind a flag; None without it."""
    words = shlex.split(document.get("command", ""))
    return words[words.index(flag) + 1] if flag in words else None


def refuse_other(
    folder: Path, space: str, fingerprint: str, defined: Mapping[str, Any] | None = None
) -> None:
    """Raises StorageError where the folder holds a finished study of another space, with what
    differs from `defined` (dse.study.definition) where the folder says so."""
    try:
        study = read_json(folder, STUDY)
    except (InputError, StorageError):
        return
    if (study["space"], study["fingerprint"]) != (space, fingerprint):
        from dse.study.definition import differences

        said = differences(study.get("definition"), defined or {})
        raise StorageError(
            f"{folder} holds a study of another space, {study['space']!r} "
            f"({study['fingerprint'][:8]}), not of {space!r} ({fingerprint[:8]}): "
            f"{f'{said}; ' if said else ''}start it afresh (--fresh) or use another folder (--out)"
        )


def item_of(items: Sequence[dict[str, Any]], point: str | int, folder: Path) -> dict[str, Any]:
    """A point of the front of `folder` by its number or by a name it was chosen under: start,
    cheapest, fastest, best, knee. Raises InputError with those that exist."""
    for item in items:
        if str(point) in (*item["names"], str(item["point"])):
            return item
    names = sorted({name for item in items for name in item["names"]})
    raise InputError(
        f"no point {str(point)!r} in {folder}",
        field="POINT",
        accepted=f"a number from 1 to {len(items)}, or one of {', '.join(names)}",
    )


def front_table(
    items: Sequence[Mapping[str, Any]], searched: Mapping[str, Sequence[Any]] | None = None
) -> str:
    """The text of front.csv. `searched` are the values of the axes that the space varies
    (`searched_axes`), (n,) each; those that a point says anyway are no second column. A value that
    does not apply is an empty cell."""
    given = {name for item in items for name in item["deployment"]}
    deployment = (*DEPLOYMENT, *(name for name in SEARCHED if name in given))
    prefill = PREFILL if "prefill" in given else ()
    layers = [layers_in_short(item["model"]) for item in items]
    vary = len(set(layers)) > 1
    metrics = [
        name
        for name, value in items[0]["metrics"].items()
        if isinstance(value, (int, float, str, type(None))) and name != "interval_kind"
    ]
    rows = []
    for i, item in enumerate(items):
        own = item["deployment"]
        row = {
            "point": item["point"],
            "names": " ".join(item["names"]),
            "decision": item["decision"],
            "front_probability": item["front_probability"],
        }
        if "laws" in item:
            row["laws"] = " ".join(item["laws"]["on_fronts"])
            row["worst_regret"] = item["worst_regret"]
        row |= {name: item["model"].get(name) for name in MODEL}
        if vary:
            row[LAYERS] = layers[i]
        row |= {name: own.get(name) for name in deployment}
        row |= {f"prefill_{name}": own.get("prefill", {}).get(name) for name in prefill}
        told = {name: item["metrics"][name] for name in metrics if name not in row}
        axes = {name: values[i] for name, values in (searched or {}).items()}
        rows.append(row | {k: axes[k] for k in axes if k not in row and k not in told} | told)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: f"{value:.9g}" if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    )
    return text.getvalue()
