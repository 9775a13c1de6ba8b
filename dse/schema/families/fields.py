"""One size of a layer and the keys of a configuration that say it, in both directions.

A field reads its size from a configuration and writes the keys back from the size. Writing raises
Cannot, with the reason, where the class has no keys for that size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from dse.record import record
from dse.schema.families.reader import REQUIRED, ConfigReader
from dse.schema.families.shape import Cannot, Config, Shape, Sizes

ReadSize = Callable[[ConfigReader, Sizes], int]
WriteSize = Callable[[int, Sizes, Shape], Config]
Keys = Mapping[str, object]
NO_KEYS: Keys = {}


class Field(ABC):
    """`keys` are the keys that are read, each with the value that an absent one has."""

    @property
    def keys(self) -> Keys:
        return NO_KEYS

    @abstractmethod
    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        """The size; `sizes` are those of the same layer that are read already."""

    @abstractmethod
    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        """The keys that say the size; `sizes` are all of the same layer."""

    def fits(self, value: int) -> bool:
        """Whether a layer with this size may be one of these."""
        return True


@record
class Size(Field):
    """A whole number under a key. `null` is what null means: a key in whose place it stands, or a
    function; without it null is refused. A size of 0 is written as null where null means something.
    With `uniform`, the file may give one number a layer as long as all are equal. `also` are
    further keys that are written alike and not read. `needs` is the reason why a size of 0 cannot
    be written."""

    key: str
    default: object = REQUIRED
    least: int = 1
    null: ReadSize | str | None = None
    uniform: bool = False
    also: tuple[str, ...] = ()
    needs: str = ""

    @property
    def keys(self) -> Keys:
        return {**dict.fromkeys(self.also), self.key: self.default}

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        if self.uniform:
            reader.collapse(self.key)
        if self.null is None:
            return reader.integer(self.key, self.least)
        if found := reader.optional_integer(self.key, self.least):
            return found
        return reader.integer(self.null) if isinstance(self.null, str) else self.null(reader, sizes)

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if self.needs and not value:
            raise Cannot(self.needs)
        written = None if self.null is not None and not value else value
        return dict.fromkeys((self.key, *self.also), written)

    def fits(self, value: int) -> bool:
        return value >= self.least or self.null is not None


@record
class Flag(Field):
    """A size of 0 or 1 under a key that is true or false. `only` are the sizes that the class
    may be written with; `why` is the reason for the others."""

    key: str
    default: object = False
    only: tuple[int, ...] = (0, 1)
    why: str = ""

    @property
    def keys(self) -> Keys:
        return {self.key: self.default}

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        return int(reader.boolean(self.key))

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if value not in self.only:
            raise Cannot(self.why)
        return {self.key: bool(value)}

    def fits(self, value: int) -> bool:
        return value in self.only


@record
class Const(Field):
    """A size that every model of the class has, and that no key says. Shapes with another are
    refused with `why`; `near` is what Cannot says of it."""

    value: int
    why: str
    near: bool = True

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        return self.value

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if value != self.value:
            raise Cannot(self.why, near=self.near)
        return {}

    def fits(self, value: int) -> bool:
        return value == self.value


@record
class Same(Field):
    """A size that equals another one of the layer."""

    name: str
    why: str

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        return sizes[self.name]

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if value != sizes[self.name]:
            raise Cannot(self.why)
        return {}


@record
class Times(Field):
    """A multiple of another size of the layer, or of the hidden size: the key says how many times.
    Null and, with `least` 0, zero mean that there is none."""

    key: str
    by: str
    why: str
    default: object = REQUIRED
    least: int = 1
    needs: str = ""

    @property
    def keys(self) -> Keys:
        return {self.key: self.default}

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        if self.least:
            return reader.integer(self.key) * self._unit(sizes, reader.hidden)
        reader.collapse(self.key)
        times = reader.optional_integer(self.key, least=0) or 0
        return times * self._unit(sizes, reader.hidden) if times else 0

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if self.needs and not value:
            raise Cannot(self.needs)
        unit = self._unit(sizes, shape.hidden)
        if value % unit:
            raise Cannot(self.why.format(unit=unit, value=value))
        return {self.key: value // unit}

    def _unit(self, sizes: Sizes, hidden: int) -> int:
        return hidden if self.by == "hidden_size" else sizes[self.by]


@record
class Product(Field):
    """The product of two keys; `unit` and its default are written as they are."""

    key: str
    default: object
    unit: str
    unit_default: int
    needs: str = ""
    least: int = 1

    @property
    def keys(self) -> Keys:
        return {self.key: self.default, self.unit: self.unit_default}

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        units = reader.optional_integer(self.unit, self.least) or 0
        return units * reader.integer(self.key)

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if self.needs and not value:
            raise Cannot(self.needs)
        if value % self.unit_default:
            raise Cannot(f"its {self.key} counts in units of {self.unit_default}")
        return {self.unit: self.unit_default, self.key: value // self.unit_default}


@record
class Own(Field):
    """A size that a pair of functions reads and writes."""

    own_keys: Keys
    reading: ReadSize
    writing: WriteSize

    @property
    def keys(self) -> Keys:
        return self.own_keys

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        return self.reading(reader, sizes)

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        return self.writing(value, sizes, shape)


@record
class Unwritten(Field):
    """A size that some files have and the class has not: it is read, and written only if 0."""

    inner: Field
    why: str

    @property
    def keys(self) -> Keys:
        return self.inner.keys

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        return self.inner.read(reader, sizes)

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        if value:
            raise Cannot(self.why)
        return {}

    def fits(self, value: int) -> bool:
        return not value
