"""The Hugging Face families of families.yaml: one map each, read and written by
`dse.schema.families.engine`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dse.schema.families.engine import Family, family_of
from dse.schema.loader import Lazy, load_yaml

__all__ = ["CLASSES", "FAMILIES", "MODEL_TYPES", "PASSED_OVER", "Family"]

_FILE = load_yaml(Path(__file__).with_name("families.yaml")).data
_WRITTEN = _FILE["families"]
# Keys that move no byte and no flop.
PASSED_OVER = frozenset(" ".join(_FILE["passed_over"]).split())
# By name, which is the model type.
FAMILIES: Mapping[str, Family] = Lazy(_WRITTEN, lambda name: family_of(_WRITTEN[name]))
# The name of the family of each class and of each model type.
CLASSES: Mapping[str, str] = {
    architecture: name
    for name, family in _WRITTEN.items()
    for architecture in (family["class"], *family.get("others", ()))
}
MODEL_TYPES: Mapping[str, str] = {
    model_type: name
    for name, family in _WRITTEN.items()
    for model_type in (name, *family.get("model_types", ()))
}
