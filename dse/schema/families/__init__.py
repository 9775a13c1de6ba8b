"""The Hugging Face families: one row each, read and written by `dse.schema.families.engine`.

A new family is one row of `dense.py`, `experts.py` or `hybrid.py`: its classes, its layers as maps
of sizes to keys, and the family's own defaults. The order of the rows decides which class a model
is written as where several fit equally well.
"""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families.dense import DENSE_FAMILIES
from dse.schema.families.engine import Family
from dse.schema.families.experts import EXPERT_FAMILIES
from dse.schema.families.hybrid import HYBRID_FAMILIES

__all__ = ["CLASSES", "FAMILIES", "MODEL_TYPES", "Family"]

FAMILIES: Mapping[str, Family] = {**DENSE_FAMILIES, **EXPERT_FAMILIES, **HYBRID_FAMILIES}
# The name of the family of each class and of each model type.
CLASSES: Mapping[str, str] = {
    architecture: name
    for name, family in FAMILIES.items()
    for architecture in (family.architecture, *family.others)
}
MODEL_TYPES: Mapping[str, str] = {
    model_type: name
    for name, family in FAMILIES.items()
    for model_type in (name, *family.model_types)
}
