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
    from dse.accuracy.validate import validate
    from dse.answer.answer import Answer
    from dse.catalog import load_catalog
    from dse.questions.check.ask import check
    from dse.questions.claims import claims
    from dse.questions.compare.ask import compare
    from dse.questions.estimate.ask import estimate, fewest_chips
    from dse.questions.export import export
    from dse.questions.fleet.ask import fleet
    from dse.questions.levers.ask import levers
    from dse.questions.risk.ask import risk
    from dse.questions.scale import scale
    from dse.questions.train.ask import train
    from dse.questions.whatif.ask import require, whatif
    from dse.questions.whatif.served import space_of_model
    from dse.schema.model_catalog import load_model
    from dse.schema.study import load_space
    from dse.study.result import Study
    from dse.study.run import run

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Study",
    "check",
    "claims",
    "compare",
    "estimate",
    "export",
    "fewest_chips",
    "fleet",
    "levers",
    "load_catalog",
    "load_model",
    "load_space",
    "require",
    "risk",
    "run",
    "scale",
    "space_of_model",
    "train",
    "validate",
    "whatif",
]

_PLACES = {
    "Answer": "dse.answer.answer",
    "Study": "dse.study.result",
    "check": "dse.questions.check.ask",
    "claims": "dse.questions.claims",
    "compare": "dse.questions.compare.ask",
    "estimate": "dse.questions.estimate.ask",
    "export": "dse.questions.export",
    "fewest_chips": "dse.questions.estimate.ask",
    "fleet": "dse.questions.fleet.ask",
    "levers": "dse.questions.levers.ask",
    "load_catalog": "dse.catalog",
    "load_model": "dse.schema.model_catalog",
    "load_space": "dse.schema.study",
    "require": "dse.questions.whatif.ask",
    "risk": "dse.questions.risk.ask",
    "run": "dse.study.run",
    "scale": "dse.questions.scale",
    "space_of_model": "dse.questions.whatif.served",
    "train": "dse.questions.train.ask",
    "validate": "dse.accuracy.validate",
    "whatif": "dse.questions.whatif.ask",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'dse' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
