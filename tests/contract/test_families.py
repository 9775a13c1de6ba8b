"""Every Hugging Face family: one map, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from dse.schema.architectures import config_of_family
from dse.schema.families import CLASSES, FAMILIES
from dse.schema.families.shape import merged
from dse.schema.huggingface import from_config
from dse.schema.model import Model

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
PUBLISHED = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in CONFIGS.glob("*.json")
}
# What a file says of a model beside its layers and formats.
NOTES = ("id", "name", "source", "assumed", "unknown_keys", "architecture", "blocks", "kv_dtype")
# Published configurations that their own family cannot write, and a word of why.
NOT_WRITTEN = {"phi-3.5-moe": "window"}


def family_of(config: Mapping[str, object]) -> str:
    named = config["architectures"]
    assert isinstance(named, list)
    return CLASSES[named[0]]


def facts(model: Model) -> dict[str, object]:
    found = {f.name: getattr(model, f.name) for f in fields(Model) if f.name not in NOTES}
    blocks = sorted((b.kind, b.count, sorted(b.sizes.items())) for b in merged(model))
    return {**found, "blocks": blocks}


def again(model: Model, family: str) -> Model:
    text = json.dumps(config_of_family(family, model))
    return from_config(json.loads(text), "again", "config.json")


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_what_is_read_is_written_and_read_alike(name: str):
    model = from_config(PUBLISHED[name], name, "config.json")
    family = family_of(PUBLISHED[name])
    read = again(model, family)
    assert facts(read) == facts(model)
    assert read.unknown_keys == ()
    assert read.architecture == FAMILIES[family].class_name
