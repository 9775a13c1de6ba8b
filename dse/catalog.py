"""`load_catalog`: the catalog of hardware, prices and costs that every question takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from dse.data import hardware_dir
from dse.schema.catalog import (
    MEASUREMENTS,
    Catalog,
    Source,
    catalog_digest,
    full_path,
    with_own_chips,
)

__all__ = ["MEASUREMENTS", "Catalog", "catalog_digest", "load_catalog", "with_own_chips"]

Files: TypeAlias = str | Path | Sequence[str | Path]


def load_catalog(
    folder: Path | str | None = None,
    *,
    chips: Files = (),
    prices: Files = (),
    costs: str | Path | None = None,
    efficiency: Files = (),
    as_of: str | None = None,
) -> Catalog:
    """The catalog of a hardware folder (the shipped one by default) and of files of yours.

        catalog = dse.load_catalog(prices="mine.csv", as_of="2026-10-01")
        catalog.chip("h100_sxm").tdp_w

    `chips`: chip files (docs/hardware.md). `prices`: rows in the form of hardware/prices.csv, which
    take the place of those of a chip on their basis. `costs`: what owning costs you, before
    hardware/costs.yaml. `efficiency`: kernel laws that `dse calibrate` measured; those of id X take
    the place of the laws of chip X, and a chip that borrowed these has the new ones. `as_of`:
    shipped prices as they were known then, such as 2026-Q2.

    Raises InputError for any file that is wrong, for an id that two files give, and for a chip
    whose system or efficiency does not exist.
    """
    return Source(
        folder=hardware_dir() if folder is None else Path(folder),
        chips=tuple(str(file) for file in _many(chips)),
        prices=tuple(dict.fromkeys(full_path(file) for file in _many(prices))),
        costs=None if costs is None else full_path(costs),
        efficiency=tuple(dict.fromkeys(full_path(file) for file in _many(efficiency))),
        as_of=as_of,
    ).read()


def _many(files: Files) -> Sequence[str | Path]:
    return [files] if isinstance(files, str | Path) else files
