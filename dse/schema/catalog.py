"""The catalog of hardware: chips, systems, kernel laws, prices, costs and software, as of a day.

A catalog does not change. It is read from a hardware folder and from files of the user's own
(`Source`), and is passed as an argument to whatever needs it. The files of the shipped chips,
systems and laws are each read when they are first asked for.
"""

from __future__ import annotations

import hashlib
import math
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dse.data import hardware_dir
from dse.errors import InputError
from dse.files import full_path, read_bytes
from dse.record import record
from dse.schema.backend import CALIBRATION, UNCALIBRATED, Backend, Calibration, load_backends
from dse.schema.chip import ROOFLINE, Chip, load_chip
from dse.schema.constants import (
    ENERGY_FILE,
    NO_ENERGY,
    NO_RELIABILITY,
    NO_TIERS,
    RELIABILITY_FILE,
    TIERS_FILE,
    EnergyConstants,
    Reliability,
    TierDefaults,
)
from dse.schema.costs import FILE as COSTS_FILE
from dse.schema.costs import NO_COSTS, Costs, check_chips, load_costs
from dse.schema.efficiency import Efficiency, load_efficiency
from dse.schema.loader import Lazy, did_you_mean, load_yaml, unknown
from dse.schema.prices import (
    PriceTable,
    PurchaseRow,
    last_day,
    load_prices,
    load_purchases,
    with_own_prices,
)
from dse.schema.system import ON_PCIE, THROUGH_HOST, FabricLevel, System, load_system

if TYPE_CHECKING:
    from dse.schema.own_chip import OwnChip

MEASUREMENTS = "measurements"
# Chips whose collectives were measured over PCIe; the first without peer-to-peer too.
ON_PCIE_SERVERS = ("l40s", "rtx_pro_6000")
PRICES, LAWS = "own_prices", "efficiency_files"  # of study.json


class _Entry(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def file(self) -> str: ...


T = TypeVar("T")
EntryT = TypeVar("EntryT", bound=_Entry)


@record
class Source:
    """What a catalog is read from: a hardware folder and files of the user's own, by their paths.

    `chips` are chip files. The rows of `prices` take the place of the shipped ones, `costs` that of
    `hardware/costs.yaml`, and the laws of `efficiency` (as `dse calibrate` writes them) those of
    the chip that they name. `as_of` is a date: shipped prices as they were known then. Two sources
    that are equal give the same catalog. A worker process reads its catalog from it.
    """

    folder: Path
    chips: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    costs: str | None = None
    efficiency: tuple[str, ...] = ()
    as_of: str | None = None

    @property
    def has_prices(self) -> bool:
        """Whether prices are other than the shipped ones of today."""
        return bool(self.prices or self.as_of or self.costs)

    def flags(self) -> list[str]:
        """As a command line gives them; chip files have flags of each command's own."""
        words = [word for file in self.efficiency for word in ("--efficiency-file", file)]
        words += [word for file in self.prices for word in ("--prices", file)]
        words += ["--as-of", self.as_of] if self.as_of else []
        return [*words, *(["--costs", self.costs] if self.costs else [])]

    def own_prices(self) -> dict[str, Any]:
        """What study.json says of the prices of the user's own."""
        return {"prices": list(self.prices), "as_of": self.as_of, "costs": self.costs}

    def over(self, document: Mapping[str, Any]) -> Source:
        """This source with what a finished study (study.json) was made with beneath it: prices and
        laws of both, the date and the costs of the study where this one has none."""
        own = document.get(PRICES) or {}
        return replace(
            self,
            chips=_each_once((*self.chips, *document.get("chip_files", ()))),
            prices=_each_once((*own.get("prices", ()), *self.prices)),
            costs=self.costs or own.get("costs"),
            efficiency=_each_once((*self.efficiency, *document.get(LAWS, ()))),
            as_of=self.as_of or own.get("as_of"),
        )

    def made_with(self, document: Mapping[str, Any]) -> Source:
        """What a finished study was made with, as it is now."""
        return Source(self.folder).over(document)

    def digest(self) -> str:
        """SHA-256 (hex) of the bytes of every file, and of the date."""
        digest = catalog_digest(self.folder)
        costs = [self.costs] if self.costs else []
        for path in (*self.efficiency, *self.prices, *costs, *self.chips):
            digest = hashlib.sha256(digest.encode() + read_bytes(path)).hexdigest()
        if self.as_of is not None:
            digest = hashlib.sha256(f"{digest} as of {self.as_of}".encode()).hexdigest()
        return digest

    def read(self) -> Catalog:
        """Raises InputError for any file that is wrong, for an id that two files give, and for a
        chip whose system or efficiency does not exist."""
        if self.as_of is not None:
            last_day(self.as_of)
        shipped = self.folder == hardware_dir()
        if shipped and self == Source(self.folder):
            return _shipped_catalog()
        folder = _shipped_folder() if shipped else _Folder.read(self.folder)
        return _on_terms(_read(folder, self), self)


def _each_once(files: Iterable[str]) -> tuple[str, ...]:
    """Files by their first spelling."""
    return tuple({full_path(file): file for file in reversed(tuple(files))}.values())[::-1]


@record
class Catalog:
    """Everything by id. A chip's `system` and `efficiency` are ids of this catalog.

    The laws of a class, or of another chip, appear once for each chip that uses them, as
    "file:chip". Laws are as their files say, with `calibration` yet to be applied
    (`dse.physics.machines`); to `backends` it is applied. `laws` are those of the files by id,
    classes among them. `source` says what all this was read from.
    """

    source: Source
    chips: Mapping[str, Chip]
    systems: Mapping[str, System]
    efficiencies: Mapping[str, Efficiency]
    laws: Mapping[str, Efficiency]
    prices: PriceTable
    purchases: tuple[PurchaseRow, ...]
    backends: Mapping[str, Backend]
    calibration: Calibration = UNCALIBRATED
    tiers: TierDefaults = NO_TIERS
    energy: EnergyConstants = NO_ENERGY
    reliability: Reliability = NO_RELIABILITY
    costs: Costs = NO_COSTS

    @property
    def names(self) -> Mapping[str, str]:
        """The makers' names of chips and systems by id: `H100 SXM5 80GB`, `HGX H100, 8 GPUs`."""
        known, systems = self.chips, self.systems
        return Lazy(
            (*known, *systems), lambda one: known[one].label if one in known else systems[one].name
        )

    @property
    def digest(self) -> str:
        """Identifies what the catalog was read from: the data digest of a study."""
        return self.source.digest()

    def with_files(self, chip_files: Iterable[str | Path]) -> Catalog:
        """The catalog of the same source and these chip files; itself where it has them all.

        Raises InputError for a file that is wrong and for an id that two chips have.
        """
        chips = _each_once((*self.source.chips, *map(str, chip_files)))
        if chips == self.source.chips:
            return self
        return replace(self.source, chips=chips).read()

    def with_chip(self, text: str, field: str = "chip") -> tuple[Catalog, str]:
        """(catalog, id) of a chip that is named by its id or by the path of its file, which the
        catalog then has. Raises InputError for a file that is wrong and for an unknown id, which
        was read in `field`."""
        if not is_chip_file(text):
            return self, self.chip(text, field).id
        found = self.with_files([text])
        return found, _own_chip(text, found.source.folder, found.source.efficiency).chip.id

    def with_chips(self, texts: Iterable[str], field: str = "chip") -> tuple[Catalog, list[str]]:
        """`with_chip` of several."""
        catalog, found = self, []
        for text in texts:
            catalog, name = catalog.with_chip(text, field)
            found.append(name)
        return catalog, found

    def over(self, document: Mapping[str, Any]) -> Catalog:
        """`Source.over`, read: for a question about a finished study."""
        source = self.source.over(document)
        return self if source == self.source else source.read()

    def as_of(self, date: str | None) -> Catalog:
        """The catalog with prices as they were known at another date. Raises InputError."""
        return self if date is None else replace(self.source, as_of=date).read()

    def chip(self, name: str, field: str = "chip") -> Chip:
        """By id. Raises InputError with near spellings, that it was read in `field`."""
        if name in self.chips:
            return self.chips[name]
        accepted = "an id that `dse catalog chips list` prints, or the path of a chip file"
        raise unknown("unknown chip", name, self.chips, accepted, field=field)

    def fabric_laws(self, chip: Chip) -> Efficiency:
        """The laws of a chip with the collectives of its own fabric. On PCIe a chip that borrows
        its laws from one with other links takes the collectives of the PCIe server whose links are
        the nearest in bandwidth, and without peer-to-peer those through the host; both measured."""
        laws = self.efficiencies[chip.efficiency]
        level = self.systems[chip.system].levels[0]
        known = [self.laws[name] for name in ON_PCIE_SERVERS if name in self.laws]
        if chip.efficiency == chip.id and level.topology != THROUGH_HOST:
            return laws
        if level.topology not in ON_PCIE or not known:
            return laws
        if level.topology == THROUGH_HOST:
            return laws.without_peer_to_peer(known[0])
        if laws.id.partition(":")[0] in ON_PCIE_SERVERS:
            return laws
        return laws.with_links_of(min(known, key=lambda one: self._farther(one, level)))

    def _farther(self, laws: Efficiency, level: FabricLevel) -> float:
        """How far the links of the chip with these laws are from those of a level, a logarithm."""
        there = self.systems[self.chips[laws.id].system].levels[0]
        ratio = there.bytes_per_s_per_direction / level.bytes_per_s_per_direction
        return 0.0 if math.isnan(ratio) else abs(math.log(ratio))

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
            accepted = f"{fewer}a chip file of yours with that figure (dse catalog chips new)"
            raise InputError(reason, file=self.chips[name].file, accepted=accepted)


def is_chip_file(text: str) -> bool:
    """Whether a chip is named by the path of its file."""
    return text.endswith((".yaml", ".yml"))


class _Efficiencies(Mapping[str, Efficiency]):
    """The laws of files that are of a chip, then those that each chip borrows, as "file:chip"."""

    def __init__(self, laws: Mapping[str, Efficiency], chips: Mapping[str, Chip]) -> None:
        self._laws, self._chips, self._known = laws, chips, dict[str, Efficiency]()

    def __getitem__(self, name: str) -> Efficiency:
        if name not in self._known:
            law, borrowed, chip = name.partition(":")
            if borrowed:
                if self._chips[chip].efficiency != name:
                    raise KeyError(name)
                self._known[name] = self._laws[law].of_chip(self._chips[chip])
            elif self._laws[law].is_class:
                raise KeyError(name)
            else:
                self._known[name] = self._laws[law]
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, law in self._laws.items() if not law.is_class)
        yield from (chip.efficiency for chip in self._chips.values() if ":" in chip.efficiency)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@record
class _Folder:
    """The files of a hardware folder that have an id."""

    path: Path
    chips: Mapping[str, Chip]
    systems: Mapping[str, System]
    laws: Mapping[str, Efficiency]

    @classmethod
    def read(cls, path: Path) -> _Folder:
        """All of it, now; of the shipped one, of which each file is named after the id in it, what
        is asked for, then. Raises InputError for what is wrong."""

        def entries(folder: str, load: Callable[[Path], EntryT]) -> Mapping[str, EntryT]:
            files = {file.stem: file for file in _files(path / folder)}
            if path == hardware_dir():
                return Lazy(files, lambda name: load(files[name]))
            return _by_id(map(load, files.values()))

        if not path.is_dir():
            raise InputError("no such folder", file=str(path))
        return cls(
            path,
            entries("chips", load_chip),
            entries("systems", load_system),
            entries("efficiency", load_efficiency),
        )


@cache
def _shipped_folder() -> _Folder:
    return _Folder.read(hardware_dir())


@cache
def _shipped_catalog() -> Catalog:
    return _read(_shipped_folder(), Source(hardware_dir()))


def _read(folder: _Folder, source: Source) -> Catalog:
    """The catalog without the prices and costs of the source."""
    path = folder.path
    own = [_own_chip(file, path, source.efficiency) for file in source.chips]
    replacing = _by_id([load_efficiency(file) for file in source.efficiency])
    laws = ChainMap(dict(replacing), folder.laws) if replacing else folder.laws  # pyright: ignore
    fitted = _read_or(path / "efficiency" / CALIBRATION, Calibration.load, UNCALIBRATED)
    backends = load_backends(path / "backends")

    def checked(name: str) -> Chip:
        chip = folder.chips[name]
        if chip.id in replacing:
            chip = replace(chip, efficiency=_of_its_own(chip, replacing[chip.id]))
        _refer(chip, "system", folder.systems)
        _refer(chip, "efficiency", laws)
        _refer(chip, "backend", backends)
        return chip if chip.efficiency == chip.id else _borrowing(chip)

    chips = Lazy(folder.chips, checked)
    for name in chips:  # the user's own files are wrong now, not when a chip is asked for
        if name in replacing or path != hardware_dir():
            chips[name]
    prices, purchases = load_prices(path / "prices.csv"), load_purchases(path / "purchases.csv")
    hours, bought = list(prices.rows), list(purchases)
    for file in _files(path / "chips"):  # one without prices of its own is not read further
        content = file.read_bytes()
        if b"prices:" in content or b"purchases:" in content:
            hours += (chip := load_chip(file)).prices
            bought += chip.purchases
    shipped = Catalog(
        source=source,
        chips=chips,
        systems=folder.systems,
        efficiencies=_Efficiencies(laws, chips),
        laws=laws,
        prices=replace(prices, rows=tuple(hours)),
        purchases=tuple(bought),
        backends={name: fitted.backend(backend) for name, backend in backends.items()},
        calibration=fitted,
        tiers=_read_or(path / TIERS_FILE, TierDefaults.load, NO_TIERS),
        energy=_read_or(path / ENERGY_FILE, EnergyConstants.load, NO_ENERGY),
        reliability=_read_or(path / RELIABILITY_FILE, Reliability.load, NO_RELIABILITY),
        costs=_read_or(path / COSTS_FILE, load_costs, NO_COSTS),
    )
    return with_own_chips(shipped, own, replacing) if own else shipped


def _own_chip(file: str, folder: Path, efficiency: Sequence[str]) -> OwnChip:
    from dse.schema.own_chip import read_own_chip  # noqa: PLC0415 - it writes YAML, too

    return read_own_chip(file, folder, efficiency)


def _read_or(file: Path, load: Callable[[Path], T], absent: T) -> T:
    return load(file) if file.exists() else absent


def _on_terms(catalog: Catalog, source: Source) -> Catalog:
    """The catalog at the prices and costs of the source."""
    if source.as_of is not None or source.prices:
        rows, purchases = with_own_prices(
            catalog.prices.rows, catalog.purchases, source.prices, source.as_of, catalog.chips
        )
        then = f" as of {source.as_of}" if source.as_of else ""
        file = f"{catalog.prices.file}{then}"
        table = replace(catalog.prices, rows=rows, file=file, as_of=source.as_of)
        catalog = replace(catalog, prices=table, purchases=purchases)
    if source.costs is not None:
        catalog = replace(catalog, costs=load_costs(source.costs, catalog.costs))
        check_chips(catalog.costs, catalog.chips)
    return catalog


def with_own_chips(
    catalog: Catalog, own: Sequence[OwnChip], replacing: Mapping[str, Efficiency] | None = None
) -> Catalog:
    """The catalog and chips beside it; `replacing` are the laws of the user's own (by default those
    of the catalog's source). A chip that was derived costs its buyer what the one that it was
    derived from costs.

    Raises InputError for an id that two chips have, and for laws that the catalog does not have.
    """
    if replacing is None:
        replacing = _by_id([load_efficiency(file) for file in catalog.source.efficiency])
    chips: dict[str, Chip] = {}
    efficiencies: dict[str, Efficiency] = {}
    purchases = list(catalog.purchases)
    for one in own:
        chip = one.chip
        if (known := chips.get(chip.id) or catalog.chips.get(chip.id)) is not None:
            raise _twice(chip, known)
        if chip.id in replacing:
            chip = replace(chip, efficiency=_of_its_own(chip, replacing[chip.id]))
        _refer(chip, "efficiency", catalog.laws)
        _refer(chip, "backend", catalog.backends)
        root = catalog.chips.get(chip.derived_from)
        law = catalog.laws[chip.efficiency]
        purchases += chip.purchases
        if law.id == chip.id:
            efficiencies[law.id], chips[chip.id] = law, chip
            continue
        borrowed = (law.of_figures(root) if root and root.id == law.id else law).of_chip(chip)
        efficiencies[borrowed.id] = borrowed
        chips[chip.id] = _borrowing(chip)
        purchases += [
            replace(row, chip=chip.id, note=f"assumed: that of {row.chip}; {row.note}")
            for row in catalog.purchases
            if row.chip == chip.derived_from
        ]
    prices = tuple(row for one in own for row in one.chip.prices)
    systems = {one.system.id: one.system for one in own if one.system}
    return replace(
        catalog,
        chips=_beside(catalog.chips, chips),
        systems=_beside(catalog.systems, systems),
        efficiencies=_beside(catalog.efficiencies, efficiencies),
        prices=replace(catalog.prices, rows=catalog.prices.rows + prices),
        purchases=tuple(purchases),
    )


def _beside(known: Mapping[str, T], more: dict[str, T]) -> Mapping[str, T]:
    """Both, those of `more` before what has their name."""
    return ChainMap(more, known)  # pyright: ignore[reportArgumentType]: it is only read


def _borrowing(chip: Chip) -> Chip:
    """The chip with laws that are made its own."""
    return replace(chip, efficiency=f"{chip.efficiency}:{chip.id}")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _by_id(entries: Iterable[EntryT]) -> dict[str, EntryT]:
    known: dict[str, EntryT] = {}
    for entry in entries:
        if entry.id in known:
            raise _twice(entry, known[entry.id])
        known[entry.id] = entry
    return known


def _twice(entry: _Entry, known: _Entry) -> InputError:
    message = f"{entry.id!r} is the id of {known.file} too"
    return InputError(message, file=entry.file, field="id", accepted="an id of its own")


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


def catalog_digest(folder: Path | str) -> str:
    """SHA-256 (hex) over the names and bytes of every file of a folder, in the order of names. The
    folder MEASUREMENTS is left out: no prediction reads it."""
    root = Path(folder)
    digest = hashlib.sha256()
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if not name.startswith(f"{MEASUREMENTS}/")}
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
