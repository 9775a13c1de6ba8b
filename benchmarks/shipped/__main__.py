"""Every shipped study through check and export, and its design to start from.

    python -m benchmarks.shipped [SPACE ..] [--backend vllm] [--studies DIR] [--json | --write]

Without a SPACE all shipped ones run, in about ten minutes on two cores. Exits 1 where `check` or
`export` refuses a design of a front.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import dse
from benchmarks.shipped.designs import HEAD, design, rows
from benchmarks.shipped.servable import nothing, servable
from benchmarks.temptations.pairs import offered
from dse.catalog import load_catalog
from dse.errors import NothingFeasible
from dse.questions.export import STACKS
from dse.schema.study import resolve_space, shipped_spaces
from dse.study.result import Study
from tools.written import markdown, write

SERVED = "space|designs|refused by `check`|by `export`|written for|refused, for example"


def study_of(space: str, backend: str | None, folder: Path | None) -> Study:
    """The study of a shipped space, or of a space with another backend in its workloads."""
    out = None if folder is None else folder / space
    if backend is None:
        return dse.run(space, out=out, prove=False)
    definition = yaml.safe_load(resolve_space(space).read_text(encoding="utf-8"))
    for load in definition.get("workloads") or [definition["workload"]]:
        load["backend"] = backend
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{space}.yaml"
        path.write_text(yaml.safe_dump(definition, sort_keys=False), encoding="utf-8")
        return dse.run(str(path), out=out, prove=False)


def served(found: Sequence[dict[str, Any]]) -> str:
    return markdown(
        SERVED.split("|"),
        [
            [
                row["space"],
                f"{row['points']:,}",
                f"{row['check']:,}",
                f"{row['export']:,}",
                ", ".join(f"{STACKS[k].title} {n:,}" for k, n in row["by"].items() if n),
                "; ".join(row["examples"]).replace("|", "/") or "–",
            ]
            for row in found
        ],
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shipped",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spaces", nargs="*", metavar="SPACE", help="a shipped name or a path")
    parser.add_argument("--backend", help="as if every workload named this serving software")
    parser.add_argument("--studies", type=Path, metavar="DIR", help="keep the studies in DIR/SPACE")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/search.md")
    options = parser.parse_args(arguments)
    known, found, designs = load_catalog().backends, [], []
    if options.backend is not None and options.backend not in known:
        parser.error(f"unknown backend {options.backend}; accepted: {', '.join(sorted(known))}")
    for space in options.spaces or shipped_spaces():
        try:
            study = study_of(space, options.backend, options.studies)
        except NothingFeasible as error:  # such as a server that runs on none of the chips
            found.append(nothing(space, str(error).splitlines()[0]))
            continue
        found.append(servable(study))
        if offered(study.document["definition"], "hidden_size"):
            designs.append(design(study))
    tables = [served(found), *([markdown(HEAD.split("|"), rows(designs))] if designs else [])]
    if options.json:
        for row in designs:
            row["shape"] = dict(row["shape"].values)
        print(json.dumps({"served": found, "designs": designs}, indent=1))
    else:
        print("\n\n".join(tables))
    if options.write:
        write("search.md", "python -m benchmarks.shipped --write", "\n\n".join(tables))
    return 1 if any(row["check"] or row["export"] for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
