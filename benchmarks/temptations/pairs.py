"""What a misaligned hidden size may not gain on its aligned neighbour, by the model that searched.

Of a space that offers both, the nearest aligned neighbour of each misaligned size is held against
it on every chip and in every weight format, all else equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dse
from benchmarks.temptations.rules import WHOLE
from dse.schema.catalog import Catalog
from dse.study.result import Study

KERNELS = ("prefill_s", "decode_step_s")
PRICES = ("usd_per_million_total_tokens", "tpot_s")
# Smaller by less than this, a misaligned size has nothing to be faster by (0.3% of the parameters).
NEAR = 0.003


def offered(definition: Mapping[str, Any], axis: str) -> Sequence[Any]:
    """The values of an axis as study.json defines it."""
    value = definition.get(f"axis {axis}", ())
    return value["values"] if isinstance(value, Mapping) else value


def pairs(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(aligned, misaligned), each misaligned size with the nearest aligned one that is near."""
    aligned = [size for size in sizes if size % WHOLE == 0]
    found = []
    for size in sizes:
        if size % WHOLE and aligned:
            near = min(aligned, key=lambda one: abs(one - size))
            if near - size <= NEAR * size:
                found.append((near, size))
    return found


def refused(study: Study, catalog: Catalog) -> Iterator[str]:
    """In words, each pair in which the misaligned size wins something."""
    definition = study.document["definition"]
    sizes = offered(definition, "hidden_size")
    if definition["model"] is not None or "prompt_tokens" not in study.document["workload"]:
        return  # a fixed model, a mix of requests
    for aligned, misaligned in pairs([int(size) for size in sizes]):
        for chip in offered(definition, "chip"):
            for dtype in offered(definition, "weight_dtype"):
                one, other = (
                    _metrics(study, catalog, size, chip, dtype) for size in (aligned, misaligned)
                )
                # A wider one has more to do: it is slower in all. One a little narrower is not
                # faster where kernels decide.
                names = (*KERNELS, *PRICES) if misaligned > aligned else KERNELS
                for name in names:
                    if one[name] is None or other[name] is None:
                        continue
                    if not one[name] < other[name] * (1 if misaligned > aligned else 1 + 1e-9):
                        yield (
                            f"{name} of hidden size {misaligned} is no worse than of {aligned} on "
                            f"{chip} in {dtype}"
                        )


def _metrics(
    study: Study, catalog: Catalog, hidden: int, chip: str, dtype: str
) -> Mapping[str, Any]:
    """Of the first design of the front at another hidden size, on another chip."""
    point, workload = study.front[0], study.document["workload"]
    degree = point.deployment
    return dse.estimate(
        {**point.model, "hidden_size": hidden},
        chip,
        tp=degree["tensor_parallel"],
        pp=degree["pipeline_parallel"],
        dp=degree["data_parallel"],
        ep=degree["expert_parallel"],
        weight_dtype=dtype,
        kv_dtype=degree["kv_dtype"],
        concurrency=max(1, degree["concurrency"] // degree["replicas"]),
        prompt_tokens=workload["prompt_tokens"],
        output_tokens=workload["output_tokens"],
        price_basis=study.document["price_basis"],
        catalog=catalog,
    ).document
