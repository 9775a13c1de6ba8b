"""`record`: a frozen dataclass with slots that is quick to define.

`dataclass` writes and compiles six methods for each class, most of which no run calls; with some
200 classes that is a third of the start of a command. A record compiles its `__init__` alone, and
shares the others. `fields`, `replace` and `asdict` of `dataclasses` read it as they read any.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _repr(self: Any) -> str:
    values = zip(self.__match_args__, _values(self), strict=True)
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in values)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _restore(self: Any, values: tuple[Any, ...]) -> None:
    for name, value in zip(self.__match_args__, values, strict=True):
        object.__setattr__(self, name, value)


_SHARED = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _set,
    "__delattr__": _delete,
    "__getstate__": _values,
    "__setstate__": _restore,
}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """The class with an `__init__` of its annotated fields, compared and printed by all of them.
    Raises TypeError for a field that is left out of one of these."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    found = dataclasses.fields(made)
    if not all(one.init and one.repr and one.compare for one in found):
        raise TypeError(f"{cls.__qualname__}: a field that is left out takes a dataclass")
    given: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, lines = ["self"], []
    for one in found:
        value = one.name
        if one.default is not MISSING:
            given[f"_{value}"] = one.default
            parameters.append(f"{value}=_{value}")
        elif one.default_factory is not MISSING:
            given[f"_{value}"] = one.default_factory
            parameters.append(f"{value}=_missing")
            value = f"_{value}() if {value} is _missing else {value}"
        else:
            parameters.append(value)
        lines.append(f" _set(self, {one.name!r}, {value})")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    exec(source, given)  # noqa: S102  names of fields alone
    given["__init__"].__annotations__ = {one.name: one.type for one in found}
    for name, method in {"__init__": given["__init__"], **_SHARED}.items():
        if name not in vars(cls):
            setattr(made, name, method)
    return made
