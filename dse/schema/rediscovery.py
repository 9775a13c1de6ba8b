"""Rediscovery cases: a design that experts published, and what was known when they chose it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.record import record
from dse.schema.axes import AXES
from dse.schema.catalog import Catalog
from dse.schema.loader import did_you_mean, load_yaml, named_file
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.reader import (
    ByName,
    Field,
    Listed,
    Raw,
    Refused,
    Schema,
    Table,
    Text,
    Word,
    field,
    read,
)
from dse.schema.study import Study, load_study

KINDS = ("spec", "measured", "claimed", "estimated", "assumed")


class Known(Schema):
    """One thing that was given before the shape was chosen."""

    what: str = field(Text())
    value: str = field(Text())
    kind: str = field(Word(KINDS))
    source: str = field(Text(), default="")
    date: str = field(Text(), default="")
    note: str = field(Text(), default="")

    def check(self) -> None:
        if self.kind == "assumed" and not self.note:
            raise Refused("assumed without a reason", "a note that says why")
        if self.kind != "assumed" and not (self.source and self.date):
            raise Refused("no source or no date", "source and date, or kind: assumed with a note")


class Held(Schema):
    """Values of model axes that the designers had settled on beforehand."""

    axes: Mapping[str, tuple[bool | int | str, ...]] = field(ByName(Listed(Raw())))
    reason: str = field(Text())
    source: str = field(Text(), default="")


CASE = Table(
    Field("name", Text(1, 100)),
    Field("title", Text()),
    Field("space", Text(), meaning="path of a space file, as seen from here"),
    Field("expert", Text(), meaning="the published design"),
    Field("known", Listed(Known), meaning="what was given before the shape was chosen"),
    Field("hold", Held, None, meaning="axes that the designers had settled on"),
)


@record
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
    return named_file(text, "case", shipped_cases())


def load_case(path: Path | str, law: str | None = None, catalog: Catalog | None = None) -> Case:
    """Reads one case with its space, whose path is as seen from the case file; `law` takes the
    place of the space's quality law. Raises InputError for what is wrong in either, and where the
    design was not trained on the space's tokens."""
    document = load_yaml(path)
    frame = read(CASE, document)
    beside, hold = Path(path).parent / frame["space"], frame["hold"]
    if not beside.is_file():
        message = f"no such file: {frame['space']}"
        raise document.error(("space",), message, "a path as seen from here")
    study = load_study(beside, catalog, law)
    at = "expert"
    try:
        expert = resolve_model(frame["expert"])
        at = "space"
        _share_corpus(study, expert)
    except InputError as error:
        raise document.error((at,), error.message, error.accepted) from None
    axes = {axis.name: axis for axis in study.model_axes}
    held = hold.axes if hold else {}
    for name, values in held.items():
        if name not in axes:
            message = f"no axis of the space{did_you_mean(name, axes)}"
            raise document.error(("hold", "axes", name), message, ", ".join(axes))
        if axes[name].ratio_of is not None:
            raise document.error(("hold", "axes", name), "a ratio", "an axis with listed values")
        if unknown := [value for value in values if value not in axes[name].values]:
            accepted = ", ".join(map(str, axes[name].values))
            raise document.error(("hold", "axes", name), f"read {unknown[0]!r}", accepted)
    source = f" ({hold.source})" if hold and hold.source else ""
    return Case(
        name=frame["name"],
        title=frame["title"],
        study=study,
        expert=expert,
        known=frame["known"],
        held={name: tuple(_code(name, v) for v in values) for name, values in held.items()},
        why_held=f"{hold.reason}{source}" if hold else "",
        path=Path(path),
    )


def case_of(study: Study, expert: Model) -> Case:
    """A space and a published model, of which nothing else is known. Raises InputError where the
    model was not trained on the space's tokens."""
    _share_corpus(study, expert)
    title = f"{expert.name} and {study.title or study.name}"
    return Case(study.name, title, study, expert, (), {}, "", Path(study.path))


def _share_corpus(study: Study, expert: Model) -> None:
    """Raises InputError where the design was not trained on the space's tokens."""
    tokens, file = study.training_tokens, str(study.path)
    if tokens is None:
        message = "no training_tokens: a design and its rivals share a corpus"
        raise InputError(message, file=file, accepted="training_tokens in the space file")
    if expert.training_tokens not in (None, tokens):
        message = (
            f"its shapes are trained on {tokens:.4g} tokens, {expert.name} on "
            f"{expert.training_tokens:.4g}"
        )
        raise InputError(message, file=file, field="training_tokens", accepted="the same tokens")


def _code(axis: str, value: bool | int | str) -> float:
    """The number that stands for a value in a space."""
    return float(AXES[axis].names.index(value)) if isinstance(value, str) else float(value)
