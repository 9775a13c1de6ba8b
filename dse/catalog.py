"""The hardware catalog: every file of `hardware/`, read once and checked against each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from dse.data import hardware_dir as shipped_hardware_dir
from dse.errors import InputError
from dse.schema.backend import Backend, load_backends
from dse.schema.calibration import FILE as CALIBRATION
from dse.schema.calibration import NONE, Calibration, load_calibration
from dse.schema.chip import ROOFLINE, Chip, load_chip
from dse.schema.costs import FILE as COSTS_FILE
from dse.schema.costs import NO_COSTS, Costs, check_chips, load_costs
from dse.schema.efficiency import Efficiency, load_efficiency
from dse.schema.energy import FILE as ENERGY
from dse.schema.energy import NONE as NO_ENERGY
from dse.schema.energy import EnergyConstants, load_energy
from dse.schema.loader import did_you_mean, load_yaml
from dse.schema.overrides import efficiency_files
from dse.schema.own_chip import read_own_chip
from dse.schema.own_full import OwnChip
from dse.schema.own_prices import OwnPrices, in_force, with_own_prices
from dse.schema.prices import PriceTable, PurchaseRow, load_prices, load_purchases
from dse.schema.reliability import FILE as RELIABILITY
from dse.schema.reliability import NO_RELIABILITY, Reliability, load_reliability
from dse.schema.system import System, load_system
from dse.schema.tiers import FILE as TIERS_FILE
from dse.schema.tiers import NO_TIERS, TierDefaults, load_tiers

MEASUREMENTS = "measurements"


class _Entry(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def file(self) -> str: ...


EntryT = TypeVar("EntryT", bound=_Entry)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything by id. A chip's `system` and `efficiency` are ids of this catalog.

    The laws of a class, or of another chip, appear once for each chip that uses them, as
    "file:chip". Laws are as their files say, with `calibration` yet to be applied
    (`dse.physics.machines`); to `backends` it is applied.
    """

    chips: dict[str, Chip]
    systems: dict[str, System]
    efficiencies: dict[str, Efficiency]
    prices: PriceTable
    purchases: tuple[PurchaseRow, ...]
    backends: dict[str, Backend]
    calibration: Calibration = NONE
    tiers: TierDefaults = NO_TIERS
    energy: EnergyConstants = NO_ENERGY
    reliability: Reliability = NO_RELIABILITY
    costs: Costs = NO_COSTS

    def chip(self, name: str) -> Chip:
        """By id. Raises InputError with near spellings."""
        if name in self.chips:
            return self.chips[name]
        raise InputError(
            f"unknown chip {name!r}{did_you_mean(name, self.chips)}",
            field="chip",
            accepted="an id that `dse hardware list` prints, or the path of a chip file",
        )

    def refusal(self, name: str, chips_per_instance: float = 1.0) -> str | None:
        """Which figure the chip lacks for an instance of so many chips; None where it lacks none.

        Raises InputError for an unknown chip.
        """
        chip = self.chip(name)
        absent = chip.lacks(*ROOFLINE)
        if absent:
            return f"{name} has no {' and no '.join(absent)}"
        link = self.systems[chip.system].unknown_link(chips_per_instance)
        if link is None:
            return None
        return (
            f"{name} has no bandwidth_per_direction of {link}, "
            f"which an instance of {chips_per_instance:g} chips needs"
        )

    def require(self, name: str, chips_per_instance: float = 1.0) -> None:
        """Raises InputError where the chip lacks a figure for an instance of so many chips."""
        reason = self.refusal(name, chips_per_instance)
        if reason is not None:
            fewer = "" if self.refusal(name) else "an instance of fewer chips, or "
            accepted = f"{fewer}a chip file of yours with that figure (dse hardware new)"
            raise InputError(reason, file=self.chips[name].file, accepted=accepted)


def load_catalog(
    hardware_dir: Path | str | None = None, extra_chip_files: Sequence[Path | str] = ()
) -> Catalog:
    """Reads a hardware folder (the shipped one by default) and chip files of the user's own. To the
    shipped folder come the efficiency files in force (`dse.schema.overrides`): the laws of id X
    take the place of the file X, and a chip X that borrowed its laws has these; and the prices and
    costs in force (`dse.schema.own_prices`).

    Raises InputError for any file that is wrong, for an id that two files give, and for a chip
    whose system or efficiency does not exist.
    """
    shipped = hardware_dir is None
    folder = shipped_hardware_dir() if hardware_dir is None else Path(hardware_dir)
    measured = efficiency_files() if shipped else ()
    if shipped and not extra_chip_files and not measured:
        catalog = _shipped_catalog(folder)
    else:
        catalog = _read(folder, extra_chip_files, measured)
    return _with_own_prices(catalog, in_force()) if shipped else catalog


def _with_own_prices(catalog: Catalog, own: OwnPrices) -> Catalog:
    if own.as_of is not None or own.prices:
        rows, purchases = with_own_prices(
            catalog.prices.rows, catalog.purchases, own, catalog.chips
        )
        then = f" as of {own.as_of}" if own.as_of else ""
        file = f"{catalog.prices.file}{then}"
        table = replace(catalog.prices, rows=rows, file=file, as_of=own.as_of)
        catalog = replace(catalog, prices=table, purchases=purchases)
    if own.costs is not None:
        catalog = replace(catalog, costs=load_costs(own.costs, catalog.costs))
        check_chips(catalog.costs, catalog.chips)
    return catalog


def is_chip_file(text: str) -> bool:
    """Whether a chip is named by the path of its file."""
    return text.endswith((".yaml", ".yml"))


def chip_and_files(text: str, chip_files: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """(id, chip files to load) of a chip that is named by its id or by the path of its file.

    Raises InputError for a file that is wrong.
    """
    if not is_chip_file(text):
        return text, tuple(chip_files)
    return read_own_chip(text).chip.id, tuple(dict.fromkeys((*chip_files, text)))


@cache
def _shipped_catalog(folder: Path) -> Catalog:
    return _read(folder, ())


def _read(
    folder: Path, extra_chip_files: Sequence[Path | str], efficiency_files: Sequence[str] = ()
) -> Catalog:
    if not folder.is_dir():
        raise InputError("no such folder", file=str(folder))
    own = [read_own_chip(path, folder) for path in extra_chip_files]
    energy = load_energy(folder / ENERGY) if (folder / ENERGY).exists() else NO_ENERGY
    trained = folder / RELIABILITY
    reliability = load_reliability(trained) if trained.exists() else NO_RELIABILITY
    systems = _by_id([load_system(path) for path in _files(folder / "systems")])
    efficiencies = _laws(folder)
    replacing = _by_id([load_efficiency(path) for path in efficiency_files])
    efficiencies |= replacing
    fitted = folder / "efficiency" / CALIBRATION
    calibration = load_calibration(fitted) if fitted.exists() else NONE
    written = _by_id([load_chip(path) for path in _files(folder / "chips")])
    backends = load_backends(folder / "backends")
    classes = {name for name, efficiency in efficiencies.items() if efficiency.is_class}
    chips: dict[str, Chip] = {}
    for chip in written.values():
        if chip.id in replacing:
            chip = replace(chip, efficiency=_of_its_own(chip, replacing[chip.id]))
        _refer(chip, "system", systems)
        _refer(chip, "efficiency", efficiencies)
        _refer(chip, "backend", backends)
        chips[chip.id] = chip
        if chip.efficiency != chip.id:
            borrowed = efficiencies[chip.efficiency].of_chip(chip)
            efficiencies[borrowed.id] = borrowed
            chips[chip.id] = replace(chip, efficiency=borrowed.id)
    shipped = Catalog(
        chips=chips,
        systems=systems,
        efficiencies={name: e for name, e in efficiencies.items() if name not in classes},
        prices=load_prices(folder / "prices.csv"),
        purchases=load_purchases(folder / "purchases.csv"),
        backends={name: calibration.backend(backend) for name, backend in backends.items()},
        calibration=calibration,
        tiers=load_tiers(folder / TIERS_FILE) if (folder / TIERS_FILE).exists() else NO_TIERS,
        energy=energy,
        reliability=reliability,
        costs=load_costs(costs) if (costs := folder / COSTS_FILE).exists() else NO_COSTS,
    )
    return with_own_chips(shipped, own, folder, replacing) if own else shipped


def with_own_chips(
    catalog: Catalog,
    own: Sequence[OwnChip],
    hardware_dir: Path | None = None,
    replacing: Mapping[str, Efficiency] | None = None,
) -> Catalog:
    """The catalog of a hardware folder (the shipped one by default) and chips beside it, with the
    laws of `replacing` before those of the folder (by default the efficiency files in force). A
    chip that was derived costs its buyer what the one that it was derived from costs.

    Raises InputError for an id that two chips have, and for laws that the folder does not have.
    """
    if replacing is None:
        replacing = _by_id([load_efficiency(path) for path in efficiency_files()])
    laws = {**(_laws(hardware_dir) if hardware_dir else _shipped_laws()), **replacing}
    chips, efficiencies = dict(catalog.chips), dict(catalog.efficiencies)
    _by_id([*catalog.chips.values(), *(one.chip for one in own)])
    purchases = list(catalog.purchases)
    for one in own:
        chip = one.chip
        if chip.id in replacing:
            chip = replace(chip, efficiency=_of_its_own(chip, replacing[chip.id]))
        _refer(chip, "efficiency", laws)
        _refer(chip, "backend", catalog.backends)
        root = catalog.chips.get(chip.derived_from)
        law = laws[chip.efficiency]
        if law.id == chip.id:
            efficiencies[law.id], chips[chip.id] = law, chip
            continue
        borrowed = (law.of_figures(root) if root and root.id == law.id else law).of_chip(chip)
        efficiencies[borrowed.id] = borrowed
        chips[chip.id] = replace(chip, efficiency=borrowed.id)
        purchases += [
            replace(row, chip=chip.id, note=f"assumed: that of {row.chip}; {row.note}")
            for row in catalog.purchases
            if row.chip == chip.derived_from
        ]
    prices = tuple(row for one in own for row in one.prices)
    return replace(
        catalog,
        chips=chips,
        systems=catalog.systems | {one.system.id: one.system for one in own if one.system},
        efficiencies=efficiencies,
        prices=replace(catalog.prices, rows=catalog.prices.rows + prices),
        purchases=tuple(purchases),
    )


@cache
def _shipped_laws() -> dict[str, Efficiency]:
    return _laws(shipped_hardware_dir())


def _laws(folder: Path) -> dict[str, Efficiency]:
    """Every file of kernel efficiencies, as it says them."""
    return _by_id([load_efficiency(path) for path in _files(folder / "efficiency")])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _by_id(entries: Iterable[EntryT]) -> dict[str, EntryT]:
    known: dict[str, EntryT] = {}
    for entry in entries:
        if entry.id in known:
            raise InputError(
                f"{entry.id!r} is the id of {known[entry.id].file} too",
                file=entry.file,
                field="id",
                accepted="an id of its own",
            )
        known[entry.id] = entry
    return known


def _refer(chip: Chip, field: str, known: Mapping[str, object]) -> None:
    name = getattr(chip, field)
    if name not in known:
        accepted = ", ".join(key for key in known if ":" not in key)
        message = f"read {name!r}: no such {field}{did_you_mean(name, known)}"
        raise load_yaml(chip.file).error((field,), message, accepted)


def _of_its_own(chip: Chip, laws: Efficiency) -> str:
    if laws.is_class:
        raise load_yaml(laws.file).error(
            ("divided_by",),
            f"laws of the chip {chip.id} without the peaks that they are fractions of",
            "divided_by: {bf16: ..., memory_bandwidth: ...}, or the id of a class",
        )
    return laws.id


def data_digest() -> str:
    """`catalog_digest` of the shipped folder; with files of the user's own in force, their bytes
    too."""
    digest = catalog_digest(shipped_hardware_dir())
    own = in_force()
    for path in (*efficiency_files(), *own.files):
        digest = hashlib.sha256(digest.encode() + Path(path).read_bytes()).hexdigest()
    if own.as_of is not None:
        digest = hashlib.sha256(f"{digest} as of {own.as_of}".encode()).hexdigest()
    return digest


def catalog_digest(catalog_dir: Path | str) -> str:
    """SHA-256 (hex) over the names and bytes of every file of a folder, in the order of names. The
    folder MEASUREMENTS is left out: no prediction reads it."""
    root = Path(catalog_dir)
    digest = hashlib.sha256()
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if not name.startswith(f"{MEASUREMENTS}/")}
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
