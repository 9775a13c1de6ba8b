"""A file kind is a class whose fields are its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dse.errors import InputError
from dse.schema.reader import Field, Number, Quantity, Refused, Schema, Whole, field, gathered


class Overlap(Schema, kw_only=True):
    tokens: int = field(Whole(1), default=2048)
    wait_s: float = field(Quantity("s"), written="wait")
    shares: Mapping[str, float] = gathered(Field("own", Number(0, 1), None), default={})

    def check(self) -> None:
        if self.wait_s > 1.0:
            raise Refused("read {}", "1 s at most", "wait")


def test_an_object_is_what_a_mapping_says() -> None:
    assert Overlap(wait_s=0.5) == Overlap.of({"wait": "500 ms"})
    assert Overlap.of({"wait": "1 s", "own": 0.5}).shares == {"own": 0.5}
    assert Overlap.table.names == ("tokens", "wait", "own")
    assert replace(Overlap(wait_s=0.5), tokens=1).tokens == 1


def test_what_is_needed_after_what_is_not_is_given_by_name() -> None:
    with pytest.raises(TypeError):
        Overlap(1, 2.0)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"wait": "2 s"}, "wait: read '2 s' .*1 s at most"),
        ({"wait": "1 s", "tokns": 3}, "tokns: unknown field 'tokns'; did you mean tokens?"),
        ({}, "wait: missing field .*'wait', among tokens, wait, own"),
        ({"wait": "1 s", "own": 2}, "own: read 2 .*less than or equal to 1"),
    ],
)
def test_a_mistake_is_told_with_its_field(written: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Overlap.of(written)
