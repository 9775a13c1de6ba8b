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
from functools import partial
from pathlib import Path
from typing import Any

from dse.blocks import WEIGHT_PARTS
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import csv_rows
from dse.schema.model import Model, config_of, model_of
from dse.schema.model_catalog import model_of_row, resolve_model
from dse.schema.reader import (
    TRAINING_TOKENS,
    Field,
    Number,
    Table,
    Text,
    csv_table,
)

MOST_RUNS = 10_000
_SIZE = re.compile(r"[1-9][0-9]{0,9}")
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
# The columns of the catalog that say a shape.
_COLUMNS = next(csv_rows(search_spaces_dir() / "models.csv"))
_LAST = _COLUMNS.index("tie_word_embeddings") + 1
SHAPE = tuple(dict.fromkeys((*NEEDED, *_COLUMNS[_COLUMNS.index("architecture") : _LAST])))


_FIELDS = (
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
    table = Table(*_FIELDS, make=partial(_run, Path(path)))
    rows = csv_table(table, Path(path), _needed)
    runs = [replace(run, name=run.name or f"line {line}") for line, run in rows]
    if not 0 < len(runs) <= MOST_RUNS:
        message = f"{len(runs):,} runs" if runs else "no runs"
        accepted = f"a row for each run, at most {MOST_RUNS:,}"
        raise InputError(message, file=str(path), line=None if runs else 1, accepted=accepted)
    return LossRuns.of(str(path), runs)


def _needed(header: Sequence[str]) -> tuple[str, ...]:
    shape = () if "model" in header or "blocks" in header else NEEDED
    return ("training_tokens", "loss", *shape)


def _run(
    path: Path, name: str, model: str, training_tokens: float, loss: float, **shape: str
) -> LossRun:
    """Raises InputError with the column; of a configuration in another file, that file is named."""
    given = {size: cell for size, cell in shape.items() if cell}
    if not model:
        try:
            return LossRun(name, _shaped(given, path), training_tokens, loss)
        except InputError as error:  # the row says where
            raise InputError(error.message, field=error.field, accepted=error.accepted) from None
    if given:
        message = f"a model and {next(iter(given))}"
        raise InputError(message, field="model", accepted="one of the two")
    beside = path.parent / model
    try:
        found = resolve_model(str(beside) if beside.exists() else model)
    except InputError as error:
        said, accepted = (str(error), None) if error.file else (error.message, error.accepted)
        raise InputError(said, field="model", accepted=accepted) from None
    return LossRun(name, replace(found, prediction_layers=None), training_tokens, loss)


def _shaped(given: Mapping[str, str], path: Path) -> Model:
    """The model of the columns of a row. Raises InputError with the column."""
    for name in NEEDED if "blocks" not in given else ("hidden_size", "vocab_size"):
        if name not in given:
            accepted = f"{', '.join(NEEDED)}, or a model"
            raise InputError("missing field", field=name, accepted=accepted)
    cells = {**dict.fromkeys(SHAPE, ""), **given}
    heads = cells["num_attention_heads"]
    defaults = {"num_key_value_heads": heads, "mlp_matrices": "3"}
    if all(_SIZE.fullmatch(size) for size in (heads, cells["hidden_size"])):
        defaults["head_dim"] = str(int(cells["hidden_size"]) // int(heads))
    if not cells["num_experts"]:
        defaults["num_dense_layers"] = cells["num_hidden_layers"]
    for name, value in defaults.items():
        cells[name] = cells[name] or value
    cells |= {f"{part}_dtype": "bf16" for part in WEIGHT_PARTS}
    return model_of_row({**cells, "id": "run", "name": "run"}, path)
