"""Rediscovery cases: a design that experts published, and what was known when they chose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.schema.axes import AXES
from dse.schema.catalog import Catalog
from dse.schema.loader import did_you_mean, load_yaml, reject, validate
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.study import Study, load_study

Kind = Literal["spec", "measured", "claimed", "estimated", "assumed"]


class Known(BaseModel):
    """One thing that was given before the shape was chosen."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    what: str
    value: str
    kind: Kind
    source: str = ""
    date: str = ""
    note: str = ""

    @model_validator(mode="after")
    def _founded(self) -> Known:
        if self.kind == "assumed" and not self.note:
            raise reject("assumed without a reason", "a note that says why")
        if self.kind != "assumed" and not (self.source and self.date):
            raise reject("no source or no date", "source and date, or kind: assumed with a note")
        return self


class Held(BaseModel):
    """Values of model axes that the designers had settled on beforehand."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    axes: dict[str, list[bool | int | str]]
    reason: str
    source: str = ""


class _CaseFile(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    name: str = Field(min_length=1, max_length=100)
    title: str
    space: str
    expert: str
    known: list[Known]
    hold: Held | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One case: `study` is its space, `expert` the published design, `held` maps model axes to the
    values that they are held at, with the reason."""

    name: str
    title: str
    study: Study
    expert: Model
    known: tuple[Known, ...]
    held: Mapping[str, tuple[float, ...]]
    why_held: str
    path: Path


def shipped_cases() -> dict[str, Path]:
    """The case files that come with the project, by name."""
    folder = search_spaces_dir() / "rediscovery"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def resolve_case(text: str) -> Path:
    """A shipped name or the path of a case file. Raises InputError with near spellings."""
    shipped = shipped_cases()
    if text in shipped:
        return shipped[text]
    if Path(text).is_file():
        return Path(text)
    raise InputError(
        f"no case of the name {text!r}, and no such file{did_you_mean(text, shipped)}",
        field="case",
        accepted=f"{', '.join(shipped)}, or the path of a case file",
    )


def load_case(path: Path | str, law: str | None = None, catalog: Catalog | None = None) -> Case:
    """Reads one case with its space, whose path is as seen from the case file; `law` takes the
    place of the space's quality law. Raises InputError for what is wrong in either, and where the
    design was not trained on the space's tokens."""
    document = load_yaml(path)
    frame = validate(_CaseFile, document)
    beside = Path(path).parent / frame.space
    if not beside.is_file():
        raise document.error(("space",), f"no such file: {frame.space}", "a path as seen from here")
    study = load_study(beside, catalog, law)
    try:
        expert = resolve_model(frame.expert)
    except InputError as error:
        raise document.error(("expert",), error.message, error.accepted) from None
    tokens = study.training_tokens
    if tokens is None:
        message = f"{frame.space} has no training_tokens: the design and its rivals share a corpus"
        raise document.error(("space",), message, "training_tokens in the space file")
    if expert.training_tokens not in (None, tokens):
        raise document.error(
            ("space",),
            f"its shapes are trained on {tokens:.4g} tokens, {expert.name} on "
            f"{expert.training_tokens:.4g}",
            "the same tokens",
        )
    held = frame.hold.axes if frame.hold else {}
    names = [axis.name for axis in study.model_axes]
    for name in held:
        if name not in names:
            hint = did_you_mean(name, names)
            raise document.error(
                ("hold", "axes", name), f"no axis of the space{hint}", ", ".join(names)
            )
        axis = next(axis for axis in study.model_axes if axis.name == name)
        if axis.ratio_of is not None:
            raise document.error(("hold", "axes", name), "a ratio", "an axis with listed values")
        if unknown := [value for value in held[name] if value not in axis.values]:
            accepted = ", ".join(map(str, axis.values))
            raise document.error(("hold", "axes", name), f"read {unknown[0]!r}", accepted)
    return Case(
        name=frame.name,
        title=frame.title,
        study=study,
        expert=expert,
        known=tuple(frame.known),
        held={name: tuple(_code(name, v) for v in values) for name, values in held.items()},
        why_held=_why(frame.hold),
        path=Path(path),
    )


def _code(axis: str, value: bool | int | str) -> float:
    """The number that stands for a value in a space."""
    return float(AXES[axis].names.index(value)) if isinstance(value, str) else float(value)


def _why(hold: Any) -> str:
    if hold is None:
        return ""
    return f"{hold.reason} ({hold.source})" if hold.source else hold.reason
