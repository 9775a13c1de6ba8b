"""How long a fleet's answer takes: `python -m benchmarks.fleet [PLAN ...] [--json]`.

Seconds of the processor by stage, for the shipped plans and `three-services` of this folder (three
services, eight quarters, a dozen offers): the options (the model's best instances), the program,
what would change its answer (limits and demand, then prices), and what was not searched.
Those of the clock, which other work on the machine lengthens, stand beside their sum.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dse
from dse.catalog import load_catalog
from dse.questions.fleet import fleet

HERE = Path(__file__).parent
PLANS = (
    "dense-70b-billion-tokens",
    "a100-owner-grows",
    "deepseek-v3-two-megawatts",
    str(HERE / "three-services.yaml"),
)
# Where the answer takes each stage from.
STAGES: dict[str, tuple[Any, str]] = {
    "options": (fleet, "options_of"),
    "program": (fleet, "solve"),
    "settle": (fleet, "settled"),
    "limits": (fleet, "loosened"),
    "prices": (fleet, "entries"),
    "not searched": (fleet, "untried"),
}


def measured(plan: str) -> dict[str, Any]:
    """Seconds by stage, in all and of the clock, and the answer's cost, gap and orders."""
    seconds = dict.fromkeys(STAGES, 0.0)

    def timed(stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            start = time.process_time()
            try:
                return call(*given, **more)
            finally:
                seconds[stage] += time.process_time() - start

        return run

    catalog = load_catalog()
    patches = [
        patch.object(room, name, timed(stage, getattr(room, name)))
        for stage, (room, name) in STAGES.items()
    ]
    for one in patches:
        one.start()
    start, used = time.perf_counter(), time.process_time()
    try:
        found = dse.fleet(plan, catalog=catalog)
        str(found._repr_html_())
    finally:
        for one in patches:
            one.stop()
    every, spent = time.perf_counter() - start, time.process_time() - used
    document = found.document
    return {
        "plan": Path(plan).stem,
        "seconds": seconds | {"all": spent, "clock": every},
        "options": len(document["options"]),
        "usd": document["usd"],
        "gap": document["gap"],
        "orders": {
            f"{row['offer']} Q{row['order_quarter']}": row["chips"] for row in document["orders"]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plans", nargs="*", default=PLANS)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    names = [*STAGES, "all", "clock"]
    if not asked.json:
        print(f"{'plan':26}" + "".join(f"{name:>13}" for name in names) + "  columns  gap      USD")
    for plan in asked.plans:
        row = measured(plan)
        rows.append(row)
        if not asked.json:
            cells = "".join(f"{row['seconds'][name]:13.1f}" for name in names)
            usd = f"{row['usd']:,.0f}"
            print(f"{row['plan']:26}{cells}{row['options']:9}  {row['gap']:.2%}  {usd}", flush=True)
    if asked.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
