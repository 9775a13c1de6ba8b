"""A finished study read again, with its space and the catalog that it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.errors import InputError
from dse.schema.study import Study, load_study, resolve_space
from dse.study.folder import loss_runs_of, read_study, space_of


@dataclass(frozen=True, slots=True)
class Reopened:
    """study.json, the items of front.json, the study that its space file says, and the catalog with
    what the study was made with beneath what the command gives."""

    document: Mapping[str, Any]
    items: list[dict[str, Any]]
    study: Study
    catalog: Catalog


def reopened(folder: Path, catalog: Catalog, space: str | None = None) -> Reopened:
    """A study folder; `space` is its space file, where that has moved.

    Raises InputError for a folder that is no study, and for a space file that is missing, has
    changed since, or is that of another study.
    """
    document, items = read_study(folder)
    file = resolve_space(space) if space else space_file_of(document, folder)
    catalog = catalog.over(document)
    study = load_study(file, catalog, document.get("quality_law"), loss_runs_of(document))
    if study.fingerprint == document["fingerprint"]:
        return Reopened(document, items, study, catalog)
    if space:
        raise InputError(
            f"{study.path} is not the space that {folder} was made from",
            field="--space",
            accepted="that space file, or a new `dse run` of this one",
        )
    raise InputError(
        f"{study.path} has changed since {folder} was made from it",
        field="STUDY",
        accepted="that space file as it was, or a new `dse run` of this one",
    )


def space_file_of(document: Mapping[str, Any], folder: Path | str) -> Path:
    """The file of that space. Raises InputError where it does not lie where the study was made."""
    named = space_of(document)
    try:
        return resolve_space(named)
    except InputError:
        raise InputError(
            f"{folder} was made from the space file {named}, which is not here",
            field="STUDY",
            accepted="a command given where `dse run` was, or a new `dse run`",
        ) from None
