"""`record`: a frozen dataclass that is quick to define.

`dataclass` writes and compiles six methods for each class, most of which no run calls; with some
200 classes that is a third of the start of a command. A record shares them with all others, but for
its `__init__`, which is compiled when the first one is made. `fields`, `replace` and `asdict` of
`dataclasses` read it as they read any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
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


class _Later:
    """An attribute of a class that is made when it is first asked for."""

    def __init__(self, owner: type, name: str, make: Callable[[type], Any]) -> None:
        self.owner, self.name, self.make = owner, name, make

    def __get__(self, one: object, cls: type) -> Any:
        if vars(self.owner)[self.name] is self:
            setattr(self.owner, self.name, self.make(self.owner))
        return getattr(cls if one is None else one, self.name)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """The class with an `__init__` of its annotated fields, compared and printed by all of them.
    Where one without a default follows one that has it, they are given by name alone. Raises
    TypeError for a field that is left out of one of these."""
    given: dict[str, Any] = {}  # the default of each field, MISSING where it has none
    for base in cls.__mro__[:0:-1]:
        given |= vars(base).get("__defaults", {})
    for name, kind in cls.__annotations__.items():
        if not str(kind).startswith("ClassVar"):
            given[name] = value = vars(cls).get(name, MISSING)
            if isinstance(value, Field):
                delattr(cls, name)
                if not (value.init and value.repr and value.compare):
                    message = f"{cls.__qualname__}: a field that is left out takes a dataclass"
                    raise TypeError(message)
    methods: dict[str, Any] = {
        **_SHARED,
        "__defaults": given,
        "__match_args__": tuple(given),
        "__init__": _Later(cls, "__init__", _init),
        "__dataclass_fields__": _Later(cls, "__dataclass_fields__", _fields),
    }
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return cls


def _fields(cls: Any) -> dict[str, Field[Any]]:
    """What `dataclasses` keeps of the fields of a record."""
    kinds: dict[str, Any] = {}
    for base in cls.__mro__[::-1]:
        if "__defaults" in vars(base):
            kinds |= base.__annotations__
    alike = {name: value for name, value in vars(cls)["__defaults"].items() if value is not MISSING}
    alike |= {"__annotations__": kinds, "__doc__": "Read by dataclasses."}
    make: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)
    return make(type(cls.__name__, (), alike)).__dataclass_fields__


def _init(cls: Any) -> Callable[..., None]:
    """The `__init__` of a record, of the fields that it has."""
    given: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, lines = ["self"], []
    for name, default in vars(cls)["__defaults"].items():
        value = name
        made = isinstance(default, Field) and default.default is MISSING
        given[f"_{name}"] = default.default if isinstance(default, Field) else default
        if made and default.default_factory is not MISSING:
            given[f"_{name}"] = default.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_{name}() if {name} is _missing else {name}"
        elif made or default is MISSING:
            parameters.append(name)
        else:
            parameters.append(f"{name}=_{name}")
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    needed = ["=" not in parameter for parameter in parameters]
    if needed != sorted(needed, reverse=True):
        parameters.insert(1, "*")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    exec(source, given)  # noqa: S102  names of fields alone
    given["__init__"].__annotations__ = dict(cls.__annotations__)
    return given["__init__"]
