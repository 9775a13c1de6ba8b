"""Writes docs/rediscovery.md: every shipped case with what was found.

python -m tools.rediscovery_page docs/rediscovery.md [CASE ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dse.catalog import load_catalog
from dse.questions.rediscovery import rediscover
from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.present import cause_table, summary
from dse.questions.rediscovery.words import changes_words, law_words, of_all
from dse.render.markdown import escape, table
from dse.schema.rediscovery import load_case, resolve_case, shipped_cases
from tools.written import filled

COMMAND = "python -m tools.rediscovery_page docs/rediscovery.md"


def changed(found: Rediscovery) -> str:
    """One case: what that shape does otherwise."""
    steps = "; ".join(changes_words(step) for step in found.to_cheaper)
    return escape(f"{found.case.title}: {steps or 'no shape is as good'}.")


def page(answers: Sequence[Rediscovery]) -> str:
    """The page; the same answers give the same bytes."""
    tables = {"distances": summary(answers), "saved": cause_table(answers)}
    lines = {name: table(one.titles, one.texts(), one.right) for name, one in tables.items()}
    lines["all"] = [f"- {text}" for text in of_all(answers)]
    lines["changes"] = [f"- {changed(found)}" for found in answers]
    parts = {name: "\n".join(of) for name, of in lines.items()}
    return filled(__file__, parts | {"command": COMMAND, "laws": law_words(answers[0])})


def main(arguments: Sequence[str]) -> None:
    file, *names = arguments
    catalog = load_catalog()
    paths = [resolve_case(name) for name in names] or list(shipped_cases().values())
    cases = [load_case(path, None, catalog) for path in paths]
    Path(file).write_text(page([rediscover(case, catalog) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
