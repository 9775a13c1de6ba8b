"""`dse.compare`: two studies, or two fleets, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dse.questions.compare.fleet import compare_fleets, is_fleet
from dse.questions.compare.studies import compare as compare_studies
from dse.questions.compare.words import lead


def compare(a: Any, b: Any, *, called: tuple[str, str] | None = None) -> dict[str, Any]:
    """What changed from A to B: prices, the chosen designs, the front. The document of
    `dse compare A B --json`.

        dse.compare("studies/june", "studies/now")["answer"]

    Each is what `dse.run` returned, or a folder that `dse run` or `dse fleet --out` wrote; `called`
    is said in place of the folders. Raises InputError for studies of different objectives or price
    bases, and for a folder that is neither.
    """
    first, second = (Path(getattr(one, "folder", one)) for one in (a, b))
    if is_fleet(first) or is_fleet(second):
        return compare_fleets(first, second)
    found = compare_studies(first, second, called)
    return {**found.document, "answer": lead(found)}
