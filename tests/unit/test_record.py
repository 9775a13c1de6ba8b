"""A record is a frozen dataclass in everything but how it is made."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from dse.record import record


@record
class Mine:
    """A record."""

    name: str
    sizes: tuple[int, ...] = ()
    more: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Theirs:
    """The same as a dataclass."""

    name: str
    sizes: tuple[int, ...] = ()
    more: dict[str, int] = field(default_factory=dict)


def test_it_is_made_compared_printed_and_hashed_as_a_dataclass() -> None:
    for made in (lambda cls: cls("a"), lambda cls: cls("a", more={"b": 1}, sizes=(1, 2))):
        mine, theirs = made(Mine), made(Theirs)
        assert repr(mine) == repr(theirs).replace("Theirs", "Mine")
        assert dataclasses.asdict(mine) == dataclasses.asdict(theirs)
        assert mine == made(Mine)
        assert mine != dataclasses.replace(mine, name="b")
        assert mine != theirs
    assert Mine("a").more is not Mine("a").more
    first, second = (inspect.signature(cls).parameters for cls in (Mine, Theirs))
    assert list(first) == list(second)
    first, second = (dataclasses.fields(cls) for cls in (Mine, Theirs))
    assert repr(first).replace("Mine", "Theirs") == repr(second)


def test_it_is_frozen_hashed_by_its_fields_and_travels() -> None:
    one: Any = Mine("a", (1,), more=())  # pyright: ignore[reportArgumentType]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'name'"):
        one.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert {one: 1}[copy.copy(one)] == 1
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one  # noqa: S301


@pytest.mark.parametrize("left_out", ["init", "repr", "compare"])
def test_a_field_that_is_left_out_is_refused(left_out: str) -> None:
    arguments: dict[str, Any] = {left_out: False}
    own = field(default=0, **arguments)
    cls = type("Some", (), {"__annotations__": {"a": int}, "a": own})
    with pytest.raises(TypeError, match="left out"):
        record(cls)


def test_what_is_built_on_it_has_the_fields_of_both() -> None:
    @record
    class More(Mine):
        last: float = field(default=1.0)

    for _ in range(2):  # `__init__` is made by the first
        assert More("a", (1,), last=2.0) == More("a", (1,), {}, 2.0) != More("a", (1,))
    assert [one.name for one in dataclasses.fields(More)] == ["name", "sizes", "more", "last"]
    assert More("a") != Mine("a")


def test_wrong_arguments_are_refused() -> None:
    make: Any = Mine
    for arguments in ((), ("a", (), {}, 1)):
        with pytest.raises(TypeError):
            make(*arguments)
    with pytest.raises(TypeError, match="other"):
        make("a", other=1)
