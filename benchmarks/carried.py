"""Through how many types a plan, a price and a demand pass between the file and the answer.

    python -m benchmarks.carried [--json]

Each number of a small plan, its price and its demand are values that occur nowhere else. While
`dse.fleet` answers it, every object of a class of dse is looked at when it has been made: a class
whose object holds such a value itself, in an array or in a container, is one that the value passed
through. A demand is known in tokens a day and, by the day, the second and the request, in what
follows from it without a model. Objects that hold another such object are not
counted for it, nor are the answer and its tables.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import dse

PRICE = 3.1415926
TOKENS_PER_DAY = 123_456_789.0
PROMPT, OUTPUT = 2039, 509
PLAN = f"""
name: carried
title: One service on one chip
description: Each number of this plan occurs once.
quarters: 3
price_basis: rental_3yr
demand:
  - name: carriedservice
    model: llama-3-70b
    tokens_per_day: {TOKENS_PER_DAY:.0f}
    prompt_tokens: {PROMPT}
    output_tokens: {OUTPUT}
    ttft: 2.0173 s
    tpot: 50.179 ms
    peak_over_average: 3.0137
    growth_per_quarter: 19.037 %
    weight_dtype: [fp8]
    kv_dtype: [fp8]
chips:
  - chip: h100_sxm
"""
PER_REQUEST = (1, PROMPT + OUTPUT, (PROMPT + OUTPUT) / PROMPT, (PROMPT + OUTPUT) / OUTPUT)
KINDS: dict[str, tuple[float, ...]] = {
    "plan": (PROMPT, OUTPUT, 2.0173, 0.050179, 3.0137, 0.19037),
    "price": (PRICE,),
    "demand": tuple(TOKENS_PER_DAY / time / n for time in (1, 3600, 86400) for n in PER_REQUEST),
}
TEXTS = {"plan": ("carriedservice",)}


def held(value: Any, depth: int = 3) -> Iterator[Any]:
    """Numbers and texts of a value, in its arrays and containers."""
    if isinstance(value, float | int | str):
        yield value
    elif isinstance(value, np.ndarray) and value.size <= 10_000 and value.dtype.kind in "if":
        yield from np.unique(value).tolist()
    elif depth and isinstance(value, Mapping):
        for key, one in value.items():
            yield from held(key, depth - 1)
            yield from held(one, depth - 1)
    elif (
        depth
        and isinstance(value, list | tuple | set | frozenset)
        and not hasattr(value, "_asdict")
    ):
        for one in value:
            yield from held(one, depth - 1)


def fields(one: Any) -> Iterator[Any]:
    """The values of an object of a class of dse."""
    if isinstance(one, tuple):
        yield from one
    yield from vars(one).values() if hasattr(one, "__dict__") else ()
    for base in type(one).__mro__:
        for name in getattr(base, "__slots__", ()):
            if hasattr(one, name):
                yield getattr(one, name)


def carriers(ask: Callable[[], object]) -> dict[str, list[str]]:
    """The classes through which each of KINDS passes while `ask` runs."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}

    def look(frame: FrameType, event: str, result: Any) -> None:
        if event != "return" or frame.f_code.co_name not in ("__init__", "__new__"):
            return
        one = frame.f_locals.get("self", result)
        name = f"{type(one).__module__}.{type(one).__qualname__}"
        if not name.startswith("dse.") or name.startswith("dse.answer."):
            return
        values = [value for field in fields(one) for value in held(field)]
        numbers = np.array([v for v in values if isinstance(v, float | int)], float)
        for kind, marks in KINDS.items():
            close = np.isclose(numbers[:, None], np.array(marks)[None, :], rtol=1e-12, atol=0)
            if close.any() or any(text in values for text in TEXTS.get(kind, ())):
                found[kind].add(name)

    sys.setprofile(look)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return {kind: sorted(names) for kind, names in found.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan, prices = Path(folder) / "plan.yaml", Path(folder) / "prices.csv"
        plan.write_text(PLAN, encoding="utf-8")
        prices.write_text(
            "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
            f"h100_sxm,rental_3yr,{PRICE},mine,2026-07,invoice,\n",
            encoding="utf-8",
        )
        passed = carriers(
            lambda: dse.fleet(str(plan), catalog=dse.load_catalog(prices=str(prices))).to_json()
        )
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(passed, indent=1))
        return
    for kind, names in passed.items():
        print(f"a {kind}: {len(names)} types")
        for name in names:
            print(f"    {name}")


if __name__ == "__main__":
    main()
