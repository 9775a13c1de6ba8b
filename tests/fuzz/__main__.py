"""`python -m tests.fuzz`: see the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=fuzz.__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first input")
    parser.add_argument("--kinds", default=",".join((*fuzz.KINDS, "flags")))
    asked = parser.parse_args()
    kinds, wrong = asked.kinds.split(","), 0
    for k in range(asked.inputs):
        kind, seed = kinds[k % len(kinds)], asked.seed + k // len(kinds)
        with tempfile.TemporaryDirectory(prefix="dse-fuzz-") as folder:
            if found := fuzz.complaint(kind, seed, Path(folder)):
                wrong += 1
                print(f"{kind} {seed}: {found[:300]}", flush=True)
    print(f"{asked.inputs:,} inputs, {wrong:,} taken badly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
