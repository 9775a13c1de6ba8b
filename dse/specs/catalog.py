"""The hardware catalog: every file of `hardware/`, read once and checked against each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from dse.data import hardware_dir as shipped_hardware_dir
from dse.errors import InputError
from dse.specs.backend import Backend, load_backends
from dse.specs.chip import Chip, load_chip
from dse.specs.efficiency import Efficiency, load_efficiency
from dse.specs.loader import did_you_mean, load_yaml
from dse.specs.prices import PriceTable, load_prices
from dse.specs.system import System, load_system


class _Entry(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def file(self) -> str: ...


EntryT = TypeVar("EntryT", bound=_Entry)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything by id. A chip's `system` and `efficiency` are ids of this catalog.

    A class default appears once for each chip that uses it, as "class:chip".
    """

    chips: dict[str, Chip]
    systems: dict[str, System]
    efficiencies: dict[str, Efficiency]
    prices: PriceTable
    backends: dict[str, Backend]

    def chip(self, name: str) -> Chip:
        """By id. Raises InputError with near spellings."""
        if name in self.chips:
            return self.chips[name]
        raise InputError(
            f"unknown chip {name!r}{did_you_mean(name, self.chips)}",
            field="chip",
            accepted=", ".join(self.chips),
        )


def load_catalog(
    hardware_dir: Path | str | None = None, extra_chip_files: Sequence[Path | str] = ()
) -> Catalog:
    """Reads a hardware folder (the shipped one by default) and chip files of the user's own.

    Raises InputError for any file that is wrong, for an id that two files give, and for a chip
    whose system or efficiency does not exist.
    """
    shipped = hardware_dir is None
    folder = shipped_hardware_dir() if hardware_dir is None else Path(hardware_dir)
    if shipped and not extra_chip_files:
        return _shipped_catalog(folder)
    return _read(folder, extra_chip_files)


@cache
def _shipped_catalog(folder: Path) -> Catalog:
    return _read(folder, ())


def _read(folder: Path, extra_chip_files: Sequence[Path | str]) -> Catalog:
    if not folder.is_dir():
        raise InputError("no such folder", file=str(folder))
    systems = _by_id(_files(folder / "systems"), load_system)
    efficiencies = _by_id(_files(folder / "efficiency"), load_efficiency)
    written = _by_id([*_files(folder / "chips"), *extra_chip_files], load_chip)
    classes = {name for name, efficiency in efficiencies.items() if efficiency.is_class}
    chips: dict[str, Chip] = {}
    for chip in written.values():
        _refer(chip, "system", systems)
        _refer(chip, "efficiency", efficiencies)
        chips[chip.id] = chip
        if chip.efficiency in classes:
            own = efficiencies[chip.efficiency].of_chip(chip)
            efficiencies[own.id] = own
            chips[chip.id] = replace(chip, efficiency=own.id)
    return Catalog(
        chips=chips,
        systems=systems,
        efficiencies={name: e for name, e in efficiencies.items() if name not in classes},
        prices=load_prices(folder / "prices.csv"),
        backends=load_backends(folder / "backends"),
    )


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _by_id(paths: Iterable[Path | str], load: Callable[[Path | str], EntryT]) -> dict[str, EntryT]:
    entries: dict[str, EntryT] = {}
    for path in paths:
        entry = load(path)
        if entry.id in entries:
            raise InputError(
                f"{entry.id!r} is the id of {entries[entry.id].file} too",
                file=str(path),
                field="id",
                accepted="an id of its own",
            )
        entries[entry.id] = entry
    return entries


def _refer(chip: Chip, field: str, known: dict[str, System] | dict[str, Efficiency]) -> None:
    name = getattr(chip, field)
    if name not in known:
        accepted = ", ".join(key for key in known if ":" not in key)
        message = f"read {name!r}: no such {field}{did_you_mean(name, known)}"
        raise load_yaml(chip.file).error((field,), message, accepted)


def catalog_digest(catalog_dir: Path | str) -> str:
    """SHA-256 (hex) over the names and bytes of every file of a folder, in the order of names."""
    root = Path(catalog_dir)
    digest = hashlib.sha256()
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
