"""dse estimate: predict one point, and where its time, memory, money and energy go.

Examples:

    dse estimate --model llama-3-70b --chip h100_sxm --tp 8 --concurrency 32
    dse estimate --model llama-3-70b --chip h200_sxm --set hbm_bandwidth=2x --detail
    dse estimate studies/quickstart start     a point of a study again
    dse estimate --why-not studies/tiny --model llama-3-70b --chip h100_sxm --tp 4
    dse estimate --fit --model llama-3-70b --chip groq_lpu_v1 --weight-dtype int8
    dse estimate --points IN.csv --out OUT.csv
    dse estimate --serving disaggregated --model llama-3-8b --chip l4 --set prefill_tp=8
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dse.answer.answer import Answer
from dse.catalog import Catalog
from dse.cli.options import refuse
from dse.cli.signature import Instead, verb
from dse.errors import InputError
from dse.options import Opt
from dse.questions.estimate.estimate import SETTINGS, estimate
from dse.questions.fewest_chips import SETTINGS as FIT_SETTINGS
from dse.questions.fewest_chips import fewest_chips
from dse.schema.derive import ALIASES, FABRIC

NOTHING = 3  # exit code of a search with nothing feasible (`dse.errors.NothingFeasible`)
FIGURES = ("price", *ALIASES, *FABRIC)  # of a chip, which --set changes


def estimate_points(points: str, out: Path | None = None, *, catalog: Catalog) -> Answer:
    """Predicts every row of a file in the measurement format, and writes them to `out`."""
    from dse.accuracy.validate import estimate_file

    if out is None:
        raise InputError("--out is missing", accepted="dse estimate --points IN.csv --out OUT")
    counted = estimate_file(Path(points), out, catalog)
    also = f", {counted['infeasible']:,} infeasible" if counted["infeasible"] else ""
    said = f"{counted['ok']:,} of {counted['rows']:,} rows predicted{also}, written to {out}"
    return Answer(question="estimate", title=points, headline=said, document=counted)


def only_a_point(given: dict[str, Any]) -> None:
    """Raises InputError for options beside a point of a study, which says them itself."""
    if "point" in given:
        refuse(given.keys() - {"model", "point", "set", "format"}, "STUDY POINT")


command = verb(
    estimate,
    fields=SETTINGS,
    others="settings",
    also="Change a figure of the chip: hbm_bandwidth=2x, capacity=+20%, link=900GB/s. ",
    also_known=FIGURES,
    check=only_a_point,
    instead={
        "fit": Instead(
            fewest_chips,
            FIT_SETTINGS,
            Opt(
                "The fewest chips that hold the model; also --set most_chips=N. Exit code 3: none."
            ),
        ),
        "points": Instead(
            estimate_points,
            None,
            Opt("A file in the measurement format, predicted into --out OUT.", metavar="IN"),
        ),
    },
    exit_code=lambda answer: NOTHING if answer.document.get("fits") is False else 0,
    examples=__doc__,
)
