"""Memory tiers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.specs.catalog import Catalog
from dse.specs.tiers import tiers_of

OVERLAP = (
    "offloaded weights are fetched while the layer before computes, routed experts and cache on "
    "demand, while the device waits (docs/tiers.md)"
)


def offload_assumptions(catalog: Catalog, deployment: Mapping[str, Any]) -> list[str]:
    """What an answer with offloaded weights or cache rests on, a sentence each."""
    name = deployment.get("offload_tier")
    if name is None:
        return []
    chip = deployment["chip"]
    tier = tiers_of(catalog.chip(chip), catalog.tiers).get(name)
    if tier is None:
        return []
    return [f"{chip}: {text}" for text in tier.assumed] + [catalog.tiers.reason, OVERLAP]


def offload_words(deployment: Mapping[str, Any]) -> list[str]:
    """`50% of the weights and 25% of the cache in host memory`, or nothing."""
    name = deployment.get("offload_tier")
    if name is None:
        return []
    parts = [
        f"{deployment[share] * 100:.3g}% of the {what}"
        for share, what in (("weights_offloaded", "weights"), ("kv_offloaded", "cache"))
        if deployment[share]
    ]
    return [f"{' and '.join(parts)} in {name} memory"] if parts else []
