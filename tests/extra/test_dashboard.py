"""optuna-dashboard on a finished study: it loads, with the names of objectives and constraints."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dse.study.folder import STUDY, read_json
from tests.cli.conftest import dse
from tests.extra.conftest import free_port

pytestmark = pytest.mark.extra
STARTS_WITHIN_S = 60.0


@contextmanager
def dashboard(storage: str) -> Iterator[str]:
    """The address of a dashboard on loopback."""
    program = Path(sys.executable).with_name("optuna-dashboard")
    port = free_port()
    running = subprocess.Popen(
        [str(program), storage, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


def fetch(address: str) -> Any:
    until = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
                return json.load(answer)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_a_finished_study_opens_with_its_names(tmp_path: Path, kind: str):
    if importlib.util.find_spec("optuna_dashboard") is None:
        pytest.skip("no optuna-dashboard here: pip install '.[dashboard]'")
    out = tmp_path / "out"
    storage = str(out / "journal.log") if kind == "journal" else f"sqlite:///{tmp_path / 'x.db'}"
    more = () if kind == "journal" else ("--storage", storage)
    assert dse("run", "tiny", "--engine", "random", "--trials", 200, "--out", out, *more).code == 0
    document = read_json(out, STUDY)
    objectives = document["objectives"]
    with dashboard(storage) as address:
        # A study that others may join has a second one beside it, of its work units.
        studies = fetch(f"{address}/api/studies")["study_summaries"]
        study = next(one for one in studies if one["study_name"] == "tiny")
        assert study["directions"] == [row["direction"] for row in objectives]
        detail = fetch(f"{address}/api/studies/{study['study_id']}?after=0")
    assert detail["objective_names"] == [row["metric"] for row in objectives]
    # What the proof met beyond the front of the search is on the front, and so a trial.
    assert document["trials_by_stage"]["search"] == 200
    added = document["trials_by_stage"]["front"]
    assert document["proof"]["added"] <= added <= document["exact_front_size"]
    assert len(detail["trials"]) == document["trials"] == 200 + added
    broken = [trial for trial in detail["trials"] if violates(trial)]
    assert len(broken) == 200 - document["feasible"] > 0
    assert broken == [
        trial for trial in detail["trials"] if any(g > 0 for g in trial["constraints"])
    ]
    expected = {row["constraint"] for row in document["constraint_tallies"] if row["violated"]}
    assert {name for trial in broken for name in violates(trial)} == expected


def violates(trial: dict[str, Any]) -> list[str]:
    """The names of the constraints that a trial breaks, as the page shows them."""
    found = (row["value"] for row in trial["user_attrs"] if row["key"] == "violates")
    return json.loads(next(found, "[]"))
