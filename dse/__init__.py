"""dse: choose model architectures and hardware together.

    import dse

    catalog = dse.load_catalog(prices="mine.csv", as_of="2026-10-01")
    e = dse.estimate("llama-3-70b", "h100_sxm", tp=8, concurrency=32, catalog=catalog)
    e.tpot_s, e.interval("tpot_s"), e.provenance
    study = dse.run("tiny", catalog=catalog, seed=1)  # a name, a path, a dict
    study.front.to_pandas().plot.scatter("tpot_s", "predicted_loss")
    dse.whatif(study, {"chip.h100_sxm.price": "-20%"}).to_html("whatif.html")
    dse.fleet("dense-70b-billion-tokens", catalog=catalog)  # shows itself in a notebook

Each name below is imported when it is first asked for: `import dse` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dse.accuracy.validate import validate as validate
    from dse.answer.answer import Answer as Answer
    from dse.catalog import load_catalog as load_catalog
    from dse.questions.check.check import check as check
    from dse.questions.claims import claims as claims
    from dse.questions.compare.compare import compare as compare
    from dse.questions.estimate.estimate import estimate as estimate
    from dse.questions.export import export as export
    from dse.questions.fewest_chips import fewest_chips as fewest_chips
    from dse.questions.fleet.fleet import fleet as fleet
    from dse.questions.scale import scale as scale
    from dse.questions.train import train as train
    from dse.questions.whatif.whatif import whatif as whatif
    from dse.schema.model_catalog import load_model as load_model
    from dse.schema.study import load_space as load_space
    from dse.study.model_space import space_of_model as space_of_model
    from dse.study.result import Study as Study
    from dse.study.run import run as run

__version__ = "0.1.0"

_PLACES = {
    "Answer": "dse.answer.answer",
    "Study": "dse.study.result",
    "check": "dse.questions.check.check",
    "claims": "dse.questions.claims",
    "compare": "dse.questions.compare.compare",
    "estimate": "dse.questions.estimate.estimate",
    "export": "dse.questions.export",
    "fewest_chips": "dse.questions.fewest_chips",
    "fleet": "dse.questions.fleet.fleet",
    "load_catalog": "dse.catalog",
    "load_model": "dse.schema.model_catalog",
    "load_space": "dse.schema.study",
    "run": "dse.study.run",
    "scale": "dse.questions.scale",
    "space_of_model": "dse.study.model_space",
    "train": "dse.questions.train",
    "validate": "dse.accuracy.validate",
    "whatif": "dse.questions.whatif.whatif",
}
# A checker knows them from above.
__all__ = list(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # a checker knows the names from above, and reports a misspelt one

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'dse' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
