"""The published shapes of `search_spaces/models.csv`, and what a user may call a model."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from dse.blocks import BLOCK_SIZES, WEIGHT_PARTS
from dse.data import rows_beside, search_spaces_dir
from dse.errors import InputError
from dse.schema.loader import Lazy
from dse.schema.model import BlockSpec, Model, check
from dse.schema.reader import number

_WHOLE = re.compile(r"-?[0-9]{1,18}")  # no 1_000, no digits of other scripts


def load_models(path: Path | None = None) -> dict[str, Model]:
    """Every model of the catalog by id, in the order of the file."""
    return dict(_entries(path or _shipped()))


def resolve_model(text: str) -> Model:
    """A catalog id or one of its other names (any case), or a config.json or its folder by path.

    Raises InputError with near spellings where it is neither.
    """
    names = _names(_shipped())
    name = text.strip().lower()
    if name in names:
        return _entries(_shipped())[names[name]]
    if os.path.exists(text):
        from dse.schema.huggingface import load_config

        return load_config(text)
    near = difflib.get_close_matches(name.rsplit("/", 1)[-1], names, n=3, cutoff=0.5)
    raise InputError(
        f"{text!r} is no model of the catalog and no file",
        field="model",
        accepted=(f"near: {', '.join(near)}; " if near else "")
        + "an id that `dse catalog models list` prints, or the path of a Hugging Face config.json",
    )


def load_model(model: str | Path | Mapping[str, Any] | Model) -> Model:
    """A model by its catalog id, the path of a config.json (or of its folder), or what such a file
    says.

        dse.load_model("llama-3-70b").hidden_size

    Raises InputError for a name that is unknown and a configuration that is not covered.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, Mapping):
        name = model.get("name") or model.get("_name_or_path") or model.get("model_type")
        from dse.schema.huggingface import from_config

        return from_config(model, str(name), "the configuration given")
    return resolve_model(str(model))


def model_of_row(row: Mapping[str, str], path: Path) -> Model:
    """The model of a line with the columns of the catalog that say its shape and formats; `path` is
    the file that messages name. Raises InputError with the field."""
    return _Row(row, path).model(str(path))


def _shipped() -> Path:
    return search_spaces_dir() / "models.csv"


@cache
def _entries(path: Path) -> Mapping[str, Model]:
    """The model of each line, read when it is asked for."""
    drafts, rows = published_drafts(path.with_name("drafts.csv")), _rows(path)

    def entry(id_: str) -> Model:
        row, (gains, by) = rows[id_], drafts.get(id_, (None, ""))
        model = _Row(row, path).model(f"{row['source']}, {row['date']}")
        return replace(model, drafts=gains, drafted_by=by)

    return Lazy(rows, entry)


@cache
def _rows(path: Path) -> Mapping[str, Mapping[str, str]]:
    return {row["id"]: row for row in rows_beside(str(path), path.name)}


@cache
def _names(path: Path) -> Mapping[str, str]:
    """The id behind every name of a model."""
    rows = _rows(path)
    others = {alias: id_ for id_, row in rows.items() for alias in row["aliases"].split()}
    return {id_: id_ for id_ in rows} | others


def published_drafts(path: Path) -> dict[str, tuple[dict[int, float], str]]:
    """By id of a model, tokens that a decode step gives by how many were drafted, and what drafts
    them; none without the file. Raises InputError where a step gives more than it verifies."""
    found: dict[str, tuple[dict[int, float], str]] = {}
    for line, row in enumerate(rows_beside(str(path), path.name) if path.exists() else (), 2):
        drafted, gained = int(row["draft_tokens"]), float(row["tokens_per_step"])
        if not 1.0 <= gained <= drafted + 1.0:
            place = {"file": str(path), "line": line, "field": "tokens_per_step"}
            message = f"read {gained:g} with {drafted} drafted"
            raise InputError(message, accepted="1 to the drafted ones and one more", **place)
        found.setdefault(row["id"], ({}, row["drafted_by"]))[0][drafted] = gained
    return found


class _Row:
    """One line of the catalog; an empty cell is a size that the model does not have."""

    def __init__(self, row: Mapping[str, str], path: Path) -> None:
        self.row, self.path = row, path

    def integer(self, name: str) -> int:
        cell = self.row.get(name)
        if cell is None or (cell and not _WHOLE.fullmatch(cell.strip())):
            raise self._refuse(name, "a whole number")
        return int(cell or 0)

    def billions(self, name: str) -> float | None:
        cell = self.row.get(name)
        value = number(cell) if cell else 0.0
        if cell is None or not math.isfinite(value):
            raise self._refuse(name, "billions, or nothing")
        return value * 1e9 if cell else None

    def model(self, source: str) -> Model:
        tokens = self.billions("training_tokens_t") if "training_tokens_t" in self.row else None
        assumed = self.row.get("assumed")
        model = Model(
            id=self.row["id"],
            name=self.row["name"],
            hidden_size=self.integer("hidden_size"),
            vocab_size=self.integer("vocab_size"),
            tied_embeddings=bool(self.integer("tie_word_embeddings")),
            blocks=tuple(self._blocks()),
            weight_dtypes={part: self.row[f"{part}_dtype"] for part in WEIGHT_PARTS},
            kv_dtype=None,
            training_tokens=None if tokens is None else tokens * 1e3,
            source=source,
            assumed=(assumed,) if assumed else (),
            architecture=self.row.get("architecture") or None,
        )
        check(model)
        return model

    def _blocks(self) -> list[BlockSpec]:
        """The cell `blocks`, where there is one: `kind*count size=n size=n; ...` says all layers of
        a model that the columns cannot."""
        cell = self.row.get("blocks")
        if not cell:
            return [*self._attention(), *self._feed_forward()]
        try:
            return [_block(text.split()) for text in cell.split(";")]
        except (KeyError, ValueError):
            accepted = f"kind*count size=n ...; {', '.join(BLOCK_SIZES)}"
            raise self._refuse("blocks", accepted) from None

    def _attention(self) -> list[BlockSpec]:
        layers, heads = self.integer("num_hidden_layers"), self.integer("num_attention_heads")
        if self.integer("kv_lora_rank"):
            sizes = {name: self.integer(name) for name in BLOCK_SIZES["mla"] if name != "heads"}
            return [BlockSpec("mla", layers, {"heads": heads, **sizes})]
        sliding = self.integer("sliding_layers")
        size = self.integer("head_dim")
        sizes = {"heads": heads, "kv_heads": self.integer("num_key_value_heads"), "head_dim": size}
        sizes |= {"v_head_dim": size, "qkv_bias": self.integer("qkv_bias")}
        windows = ((layers - sliding, 0), (sliding, self.integer("sliding_window")))
        return [BlockSpec("gqa", n, {**sizes, "window": window}) for n, window in windows if n]

    def _feed_forward(self) -> list[BlockSpec]:
        dense, matrices = self.integer("num_dense_layers"), self.integer("mlp_matrices")
        blocks = []
        if dense:
            sizes = {"intermediate_size": self.integer("intermediate_size"), "matrices": matrices}
            blocks.append(BlockSpec("mlp", dense, sizes))
        if sparse := self.integer("num_hidden_layers") - dense:
            sizes = {
                "experts": self.integer("num_experts"),
                "experts_per_token": self.integer("num_experts_per_tok"),
                "expert_intermediate_size": self.integer("moe_intermediate_size"),
                "shared_intermediate_size": self.integer("shared_intermediate_size"),
                "matrices": matrices,
            }
            blocks.append(BlockSpec("moe", sparse, sizes))
        return blocks

    def _refuse(self, field: str, accepted: str) -> InputError:
        message = f"{self.row.get(field)!r} for {self.row.get('id')!r}"
        return InputError(message, file=str(self.path), field=field, accepted=accepted)


def _block(words: list[str]) -> BlockSpec:
    kind, count = words[0].split("*")
    sizes = dict(word.split("=") for word in words[1:])
    if not all(_WHOLE.fullmatch(value) for value in (count, *sizes.values())):
        raise ValueError(words)
    return BlockSpec(kind, int(count), {name: int(value) for name, value in sizes.items()})
