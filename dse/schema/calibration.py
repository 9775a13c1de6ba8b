"""What measured serving says on top of the kernel laws.

`hardware/efficiency/serving/calibration.yaml` holds it; `python -m tools.fits.serving`
writes it.
Two things: factors with a physical meaning, each close to 1, and how far predictions of unseen
configurations have been off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from dse.schema.backend import Backend
from dse.schema.loader import load_yaml, validate

FILE = "serving/calibration.yaml"
# How far a number can be trusted, best first; the worst of what an answer used is its provenance.
KINDS = ("fitted", "derived", "assumed")


@dataclass(frozen=True, slots=True)
class Calibration:
    """`factors[name]` multiplies what `dse.physics.calibrated` says of the name; 1 where absent.

    `spread[metric class][kind]` is the 80% interval of measured / predicted, (low, high), for
    efficiencies of each of KINDS. `shared` is the part of the variance of an error that the rows of
    a group (model and chip) have in common.
    """

    factors: Mapping[str, float]
    spread: Mapping[str, Mapping[str, tuple[float, float]]]
    shared: float = 0.5
    data_digest: str = ""
    source: str = ""
    date: str = ""

    def backend(self, backend: Backend) -> Backend:
        """The backend with the factors named "id.field" applied to its fields."""
        changed = {}
        for name, factor in self.factors.items():
            owner, _, field = name.partition(".")
            if owner == backend.id:
                changed[field] = getattr(backend, field) * factor
        return replace(backend, **changed) if changed else backend


NONE = Calibration(MappingProxyType({}), MappingProxyType({}))


class _CalibrationFile(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    title: str
    kind: str
    source: str
    date: str
    data_digest: str
    factors: dict[str, float]
    spread: dict[str, dict[str, tuple[float, float]]] = Field(default_factory=dict)
    shared: float = Field(default=0.5, ge=0, le=1)


def load_calibration(path: Path) -> Calibration:
    """Raises InputError with the line and field of every mistake."""
    spec = validate(_CalibrationFile, load_yaml(path))
    return Calibration(
        spec.factors, spec.spread, spec.shared, spec.data_digest, spec.source, spec.date
    )
