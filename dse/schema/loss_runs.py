"""Training runs of one's own (`loss_runs:`, `--loss-runs FILE`): a CSV with a row a run.

Columns, in any order: `training_tokens` (20B), `loss` (nats per token on text that no run has
seen), and the shape: `model`, a catalog id or the path of a config.json as seen from the file, or
columns of search_spaces/models.csv. `name` is what messages call a run. An empty cell is a size
that a model does not have.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.blocks import WEIGHT_PARTS
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import csv_rows, did_you_mean
from dse.schema.model import Model, config_of, model_of
from dse.schema.model_catalog import model_of_row, resolve_model
from dse.schema.reader import (
    TRAINING_TOKENS,
    Field,
    Number,
    Table,
    Text,
    csv_table,
    each,
    together,
)

MOST_RUNS = 10_000
_SIZE = re.compile(r"[1-9][0-9]{0,9}")
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
SHAPE = (
    *NEEDED,
    "architecture",
    "blocks",
    "num_key_value_heads",
    "head_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "qkv_bias",
    "sliding_window",
    "sliding_layers",
    "intermediate_size",
    "mlp_matrices",
    "num_dense_layers",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_intermediate_size",
    "tie_word_embeddings",
)


RUN = Table(
    Field("training_tokens", TRAINING_TOKENS),
    Field("loss", Number(above=0, below=20, says="nats per token, above 0 and below 20")),
    Field("name", Text(1, 200), ""),
    Field("model", Text(1), ""),
    *(Field(name, Text(1), "") for name in SHAPE),
)


@record
class LossRun:
    """One run: its shape, tokens, and loss in nats per token."""

    name: str
    model: Model
    training_tokens: float
    loss: float


@dataclass(frozen=True, eq=False)
class LossRuns:
    """The runs of a file; `digest` is the sha256 of what they say, names apart."""

    file: str
    runs: tuple[LossRun, ...]
    digest: str

    @classmethod
    def of(cls, file: str, runs: Sequence[LossRun]) -> LossRuns:
        message = [[_config(run.model), run.training_tokens, run.loss] for run in runs]
        text = json.dumps(message, sort_keys=True)
        return cls(file, tuple(runs), hashlib.sha256(text.encode()).hexdigest())

    def as_json(self) -> list[dict[str, Any]]:
        """`runs` of study.json; `runs_again` reads them back."""
        return [
            {
                "name": run.name,
                "model": _config(run.model),
                "training_tokens": run.training_tokens,
                "loss": run.loss,
            }
            for run in self.runs
        ]


def runs_again(written: Mapping[str, Any]) -> LossRuns:
    """The runs that a study was made with, from `loss_runs` of study.json."""
    file = str(written["file"])
    runs = [
        LossRun(str(row["name"]), model_of(row["model"], file), row["training_tokens"], row["loss"])
        for row in written["runs"]
    ]
    return LossRuns.of(file, runs)


def _config(model: Model) -> dict[str, Any]:
    return {**config_of(model), "name": "run", "training_tokens": None}


def load_loss_runs(path: Path | str) -> LossRuns:
    """Reads a file of runs. Raises InputErrors with every mistake, each with its line and field."""
    file = str(path)
    reader = csv_rows(Path(path))
    header = [name.strip() for name in next(reader, [])]
    _check_header(header, file)
    rows, errors = csv_table(RUN, reader, header, file)
    runs = []
    for line, row in rows:
        try:
            runs.append(_run(row, line, file))
        except InputError as error:
            errors += each(error)
    if not runs and not errors:
        errors.append(InputError("no runs", file=file, line=1, accepted="a row for each run"))
    if len(runs) > MOST_RUNS:
        accepted = f"at most {MOST_RUNS:,}"
        errors.append(InputError(f"{len(runs):,} runs", file=file, accepted=accepted))
    if errors:
        raise together(errors)
    return LossRuns.of(file, runs)


def _check_header(header: Sequence[str], file: str) -> None:
    """Raises InputError for columns that are missing, unknown or there twice."""
    accepted = ", ".join(RUN.names)

    def refuse(message: str, field: str | None = None) -> InputError:
        return InputError(message, file=file, line=1, field=field, accepted=accepted)

    if not header:
        raise refuse("empty")
    for name in header:
        if name not in RUN.names:
            raise refuse(f"unknown column {name!r}{did_you_mean(name, RUN.names)}", name or None)
        if header.count(name) > 1:
            raise refuse("a column that is there twice", name)
    missing = [name for name in ("training_tokens", "loss") if name not in header]
    if "model" not in header:
        missing += [name for name in NEEDED if name not in header and "blocks" not in header]
    if missing:
        raise refuse(f"no column {missing[0]!r}", missing[0])


def _run(row: Mapping[str, Any], line: int, file: str) -> LossRun:
    """Raises InputError with that line; of a configuration in another file, that file is named."""
    try:
        model = _model(row, file)
    except InputError as error:
        errors = []
        for one in each(error):
            inside = one.file is not None and Path(one.file) != Path(file)
            message = f"{one.file}: {one.field}: " if inside and one.field else ""
            field = "model" if row["model"] else one.field
            place = {"file": file, "line": line, "field": field, "accepted": one.accepted}
            errors.append(InputError(f"{message}{one.message}", **place))
        raise together(errors) from None
    return LossRun(row["name"] or f"line {line}", model, row["training_tokens"], row["loss"])


def _model(row: Mapping[str, Any], file: str) -> Model:
    given = {name: row[name] for name in SHAPE if row[name]}
    if row["model"]:
        if given:
            raise InputError(
                f"a model and {next(iter(given))}", field="model", accepted="one of the two"
            )
        beside = Path(file).parent / row["model"]
        model = resolve_model(str(beside) if beside.exists() else row["model"])
        return replace(model, prediction_layers=None)
    for name in NEEDED if not row["blocks"] else ("hidden_size", "vocab_size"):
        if not row[name]:
            raise InputError(
                "missing field", field=name, accepted=f"{', '.join(NEEDED)}, or a model"
            )
    cells = dict.fromkeys(SHAPE, "") | given
    heads = cells["num_attention_heads"]
    defaults = {"num_key_value_heads": heads, "mlp_matrices": "3"}
    if all(_SIZE.fullmatch(size) for size in (heads, cells["hidden_size"])):
        defaults["head_dim"] = str(int(cells["hidden_size"]) // int(heads))
    if not cells["num_experts"]:
        defaults["num_dense_layers"] = cells["num_hidden_layers"]
    for name, value in defaults.items():
        cells[name] = cells[name] or value
    cells |= {f"{part}_dtype": "bf16" for part in WEIGHT_PARTS}
    return model_of_row({**cells, "id": "run", "name": "run"}, Path(file))
