"""Files of training software: complete, sourced, and refused with a reason where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema.training import (
    Constants,
    load_training_stack,
    training_stack,
    training_stacks,
)

SHIPPED = hardware_dir() / "training" / "generic.yaml"


def test_shipped_stacks_are_complete_and_sourced() -> None:
    stacks = training_stacks()
    assert {"generic", "megatron", "fsdp", "maxtext"} <= set(stacks)
    for name, stack in stacks.items():
        assert stack.id == name
        assert set(stack.kinds) == set(stack.sources) == set(Constants.table.names)
        assert all(stack.sources.values())


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = SHIPPED.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tensor_overlap:", "tensor_overlaps:", "did you mean tensor_overlap"),
        ("{value: 0.9,", "{value: 1.9,", "0 to 1"),
        ("{value: 0.9,", "{value: most,", "data_overlap"),
        ("kind: assumed", "kind: known", "fitted"),
        ("id: generic\n", "", "id"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_training_stack(changed(tmp_path, old, new))
    assert said in str(error.value)
    assert "mine.yaml" in str(error.value)


def test_a_file_without_a_constant_names_it(tmp_path: Path) -> None:
    line = next(one for one in SHIPPED.read_text().splitlines() if "  straggler:" in one)
    with pytest.raises(InputError, match="straggler"):
        load_training_stack(changed(tmp_path, line + "\n", ""))


def test_an_unknown_stack_has_near_names() -> None:
    with pytest.raises(InputError, match="did you mean megatron"):
        training_stack("megatrn")


def test_two_stacks_of_one_id_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="the id of another stack"):
        training_stacks(tmp_path)
