"""What measured serving says on top of the kernel laws.

`hardware/efficiency/serving/calibration.yaml` holds it; `python -m tools.fits.serving`
writes it.
Two things: factors with a physical meaning, each close to 1, and how far predictions of unseen
configurations have been off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dse.schema.backend import Backend
from dse.schema.reader import (
    REQUIRED,
    ByName,
    Date,
    Listed,
    Number,
    Refused,
    Schema,
    Text,
    Then,
    field,
)

FILE = "serving/calibration.yaml"
EVERY = "backend"  # before the name of a field of every backend
# How far a number can be trusted, best first; the worst of what an answer used is its provenance.
KINDS = ("fitted", "derived", "assumed")


FACTOR = (0.05, 20.0)  # what is further off is no correction, but another model


def _about_one(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] <= 1.0 <= ends[1]:
        raise Refused(f"read {ends[0]:g} to {ends[1]:g}", "an interval that holds 1")
    return ends


class Calibration(Schema):
    """`factors[name]` multiplies what `dse.physics.kernels` says of the name; 1 where absent.

    `spread[metric class][kind]` is the 80% interval of measured / predicted, (low, high), for
    efficiencies of each of KINDS. `shared` is the part of the variance of an error that the rows of
    a group (model and chip) have in common. Of a stock launch both ends of an interval are taken
    to the power `stock_wider`.
    """

    factors: Mapping[str, float] = field(ByName(Number(*FACTOR)))
    spread: Mapping[str, Mapping[str, tuple[float, float]]] = field(
        ByName(ByName(Then(Listed(Number(above=0), 2, 2), _about_one))), default={}
    )
    shared: float = field(
        Number(0, 1), default=0.5, meaning="variance that the rows of a group share"
    )
    stock_wider: float = field(
        Number(1), default=1.0, meaning="power of the ends of a stock launch"
    )
    title: str = field(Text(), default="", left_out=REQUIRED)
    kind: str = field(Text(), default="", left_out=REQUIRED)
    source: str = field(Text(), default="", left_out=REQUIRED)
    data_digest: str = field(Text(), default="", left_out=REQUIRED)
    date: str = field(Date(), default="", left_out=REQUIRED)

    def backend(self, backend: Backend) -> Backend:
        """The backend with the factors named "id.field", of what it is `calibrated_as`, and those
        of EVERY, applied to its fields."""
        changed: dict[str, float] = {}
        for name, factor in self.factors.items():
            owner, _, field = name.partition(".")
            if owner in (EVERY, backend.calibrated_as or backend.id):
                before: float = getattr(backend, field)
                changed[field] = changed.get(field, before) * factor
        return replace(backend, **changed) if changed else backend


NONE = Calibration({}, {})
