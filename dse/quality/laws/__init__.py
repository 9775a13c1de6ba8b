"""Named laws of predicted loss: `quality(..., law=NAME)`. Each file of this folder holds one, under
`LAW`: a new law is one new file."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Mapping
from importlib import import_module

from dse.errors import InputError
from dse.quality.law import UNIQUE_TOKENS as UNIQUE_TOKENS
from dse.quality.law import Floats, Law, Quality, Shape

DEFAULT = "leverage"
ALL = "all"  # what --law takes for every one of them


def _laws() -> dict[str, Law]:
    names = sorted(file.name for file in pkgutil.iter_modules(__path__))
    found = [import_module(f"{__name__}.{name}").LAW for name in names]
    return {law.name: law for law in sorted(found, key=lambda law: law.name != DEFAULT)}


LAWS: Mapping[str, Law] = _laws()


def find_law(name: object, field: str | None = "--law") -> Law:
    """The law of a name. Raises InputError with near spellings."""
    if isinstance(name, str) and name in LAWS:
        return LAWS[name]
    close = difflib.get_close_matches(str(name), LAWS, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ""
    raise InputError(
        f"unknown quality law {name!r}{hint}",
        field=field,
        accepted=", ".join(LAWS),
    )


def predicted_loss(parameters: Floats, training_tokens: Floats, law: str = DEFAULT) -> Floats:
    """(n,) loss in nats per token of dense models with `parameters`, as the law counts them."""
    return LAWS[law].dense(parameters, training_tokens).loss


def quality(shape: Shape, law: str | Law = DEFAULT) -> Quality:
    """Dense-equivalent parameters and loss of n shapes under a law: its name, or a law that was
    rescaled (`dse.quality.own_runs`). NaN tokens give a NaN loss."""
    return (LAWS[law] if isinstance(law, str) else law).predict(shape)
