"""A record is a frozen dataclass with slots in everything but how it is made."""

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
    assert Mine.__slots__ == Theirs.__slots__  # pyright: ignore[reportAttributeAccessIssue]


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


def test_wrong_arguments_are_refused() -> None:
    make: Any = Mine
    for arguments in ((), ("a", (), {}, 1)):
        with pytest.raises(TypeError):
            make(*arguments)
    with pytest.raises(TypeError, match="other"):
        make("a", other=1)
