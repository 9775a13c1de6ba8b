"""Mistakes in files that a user writes: each is named with its file, line and field, and with what
would be accepted. The rows are in mistakes.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dse.catalog import load_catalog
from dse.schema.chip import load_chip
from dse.schema.costs import load_costs
from dse.schema.efficiency import load_efficiency
from dse.schema.study import load_case, load_study
from dse.schema.system import load_system
from dse.schema.training import load_training_stack
from tests.helpers_files import mistakes, write
from tests.unit import (
    test_chip_files,
    test_loader,
    test_mix,
    test_rediscovery,
    test_space,
    test_tiers,
    test_training_formats,
)

READ = {
    "space": (test_space.DENSE, load_study),
    "sparse space": (test_space.SPARSE, load_study),
    "space of several workloads": (test_mix.SPACE, load_study),
    "space with tiers": (test_tiers.SPACE, load_study),
    "chip": (test_loader.CHIP, load_chip),
    "system": (test_loader.SYSTEM, load_system),
    "efficiency": (test_loader.EFFICIENCY, load_efficiency),
    "chip of one's own": (test_chip_files.SHORT, lambda path: load_catalog(chips=[path])),
    "training software": (
        test_training_formats.SHIPPED.read_text(encoding="utf-8"),
        load_training_stack,
    ),
    "costs": ("# mine\n", lambda path: load_costs(path, load_catalog().costs)),
    "case": (test_rediscovery.CASE, load_case),
}
MISTAKES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("kind", "row"), [(kind, row) for kind in READ for row in MISTAKES[kind]])
def test_a_mistake_is_named(tmp_path: Path, kind: str, row: list[str]) -> None:
    (text, read), (old, new, *words) = READ[kind], row
    assert old in text
    write(tmp_path, test_rediscovery.SMALL, "small.yaml")
    path = write(tmp_path, text.replace(old, new, 1), "mine.yaml")
    errors = [str(error) for error in mistakes(read, path)]
    assert all(error.startswith(f"{path}:") for error in errors), errors
    assert any(all(word in error for word in words) for error in errors), errors
