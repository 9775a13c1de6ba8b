"""A label is printed and decides nothing: with every label renamed, every number stays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dse.physics import gemms
from dse.physics.deployed import Deployed
from dse.physics.ledger import Ledger
from dse.physics.step import Step
from dse.physics.training.passes import Pass
from tests.helpers import MODELS, deploy, machines, run, workload
from tests.helpers_training import plan, train

LABELLED = ("gemm", "over_prompt", "over_cache", "exchange")  # one operator, which has a label
METHODS = {"elementwise": 1, "tensor_all_reduce": 0}  # where the label stands
LEDGER = dict.fromkeys(("operator", "stream", "network"), 1)


def rename(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every operator gets a label that was never seen. Returns the methods that gave one."""
    fresh, used = itertools.count(), set[str]()

    def of_operator(name: str, method: Any) -> Any:
        def call(self: Any, one: Any) -> Any:
            used.add(name)
            return method(self, one._replace(label=f"operator {next(fresh)}"))

        return call

    def of_words(name: str, method: Any, at: int) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            assert isinstance(args[at], str)
            used.add(name)
            return method(self, *args[:at], f"operator {next(fresh)}", *args[at + 1 :], **kwargs)

        return call

    for owner in (Step, Pass):
        for name in LABELLED:
            monkeypatch.setattr(owner, name, of_operator(name, getattr(owner, name)))
    for owner, found in ((Step, METHODS), (Pass, METHODS), (Ledger, LEDGER)):
        for name, at in found.items():
            monkeypatch.setattr(owner, name, of_words(name, getattr(owner, name), at))
    return used


def assert_same(one: Any, other: Any) -> None:
    """Every number and array of two nested structures of dictionaries, lists and tuples."""
    assert type(one) is type(other)
    if isinstance(one, Mapping):
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert np.array_equal(one, other, equal_nan=True)


@pytest.mark.parametrize("name", MODELS)
def test_labels_change_nothing_of_a_step(name, monkeypatch):
    axes = {"tensor_parallel": 2.0, "data_parallel": 2.0, "expert_parallel": 4.0}
    deployed = Deployed(deploy(name, "h100_sxm", **axes), machines())

    def steps() -> list[Any]:
        batch = deploy(name, "h100_sxm", **axes)
        mixed = [gemms.prefill(deployed, 2048.0, 2048.0), gemms.decode(deployed, 8.0, 3000.0)]
        of_gemms = [[g.rows, g.out, g.inner, g.seconds] for step in mixed for g in step.gemms]
        of_entries = [[e.seconds, e.flops, e.bytes] for s in mixed for e in s.ledger.entries or ()]
        metrics = run(batch, workload(1000.0, 200.0))
        return [of_gemms, of_entries, metrics.values, metrics.violations, metrics.provenance]

    before = steps()
    used = rename(monkeypatch)
    after = steps()
    assert {"gemm", "elementwise", "operator"} <= used
    assert_same(before, after)
    entries = gemms.decode(deployed, 8.0, 3000.0).ledger.entries or ()
    assert all(entry.name.startswith("operator ") for entry in entries)


@pytest.mark.parametrize("name", MODELS)
def test_labels_change_nothing_of_a_training_step(name, monkeypatch):
    axes = {"tensor_parallel": 2.0, "data_parallel": 4.0, "expert_parallel": 4.0}
    settings = {
        "recompute": ["none", "selective", "mlp", "moe", "full"],
        "precision": ["bf16", "fp8", "fp8", "bf16", "fp8"],
        "sequence_parallel": [1.0, 0.0, 1.0, 1.0, 1.0],
    }

    def step() -> Any:
        found = train(plan(name, **axes, **settings))
        return [found.step_s, found.mfu, found.losses, found.memory]

    before = step()
    rename(monkeypatch)
    assert_same(before, step())
