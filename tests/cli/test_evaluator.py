"""`dse run --evaluator`: a function of the user in place of the model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Said, dse

SIMULATOR = '''
from pathlib import Path

HERE = Path(__file__).parent

def measure(values):
    """Faster with a wider split, cheaper with more requests; fails on request."""
    with (HERE / "calls").open("a") as file:
        file.write("x")
    if (HERE / "broken").exists() and (HERE / "calls").stat().st_size > 12:
        raise RuntimeError("the rack is on fire")
    split, load = values["tensor_parallel"], values["concurrency"]
    return {
        "tpot_s": None if values["chip"] == "mi300x" else 0.04 / split * (1 + load / 64),
        "ttft_s": 0.4 / split,
        "usd_per_million_total_tokens": split * values["pipeline_parallel"] / load,
    }

def incomplete(values):
    return {"tpot_s": 0.01}

def misspelt(values):
    return {"tpot": 0.01}

def text(values):
    return "fast"
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_simulator.py").write_text(SIMULATOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_simulator", raising=False)
    return tmp_path


def run(*arguments: str, function: str = "measure", out: str = "out") -> Said:
    sys.modules.pop("my_simulator", None)
    entry = f"my_simulator:{function}"
    return dse("run", "deploy-llama-3-70b", "--out", out, "--evaluator", entry, *arguments)


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())


def test_each_point_is_asked_once_and_the_front_is_the_functions(folder: Path) -> None:
    result = run("--engine", "random", "--trials", "30", "--json")
    assert result.code == 0, result.err
    study = json.loads(result.out)
    assert study["evaluations"] == study["trials"] == 30
    assert study["evaluator"] == "my_simulator:measure"
    assert study["true_hypervolume_share"] is None
    assert calls(folder) <= 30
    for item in json.loads((folder / "out" / "front.json").read_text())["items"]:
        where, found = item["deployment"], item["metrics"]
        split, load = where["tensor_parallel"], where["concurrency"]
        assert where["chip"] != "mi300x"
        assert found["tpot_s"] == 0.04 / split * (1 + load / 64)
        assert found["ttft_s"] == pytest.approx(0.4 / split)
        assert "tpot_s" not in found["intervals"]
    assert "my_simulator:measure" in (folder / "out" / "report.md").read_text()


def test_a_failure_keeps_what_was_done_and_the_study_goes_on(folder: Path) -> None:
    whole = run("--engine", "random", "--trials", "30", out="whole")
    assert whole.code == 0, whole.err
    needed = calls(folder)
    (folder / "calls").unlink()
    (folder / "broken").touch()
    broken = run("--engine", "random", "--trials", "30")
    assert broken.code == 2
    assert "RuntimeError: the rack is on fire" in broken.err
    assert "Traceback" not in broken.err
    (folder / "broken").unlink()
    again = run("--engine", "random", "--trials", "30")
    assert again.code == 0, again.err
    # the point that failed is asked again, those before it are not
    assert calls(folder) == needed + 1
    fronts = [(folder / name / "front.csv").read_bytes() for name in ("whole", "out")]
    assert fronts[0] == fronts[1]


def test_nobody_elses_study_is_continued(folder: Path) -> None:
    assert run("--engine", "random", "--trials", "10").code == 0
    engine = ("--engine", "random", "--trials", "10")
    other = dse("run", "deploy-llama-3-70b", "--out", "out", *engine)
    assert other.code == 4
    assert "another evaluator" in other.err


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("incomplete", "returned no ttft_s, usd_per_million_total_tokens"),
        ("misspelt", "unknown metric 'tpot'; did you mean tpot_s?"),
        ("text", "returned 'fast'"),
        ("nothing", "cannot be imported: AttributeError"),
        ("HERE", "is no function"),
    ],
)
def test_a_function_that_will_not_do(folder: Path, function: str, said: str) -> None:
    result = run("--trials", "5", "--engine", "random", function=function)
    assert result.code == 2
    assert "--evaluator" in result.err
    assert said in " ".join(result.err.split())
    assert "Traceback" not in result.err
