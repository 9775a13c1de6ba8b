"""The public surface: what `import dse` gives and costs, and a space that is no file."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import dse
from dse.errors import InputError
from tests import api_docs
from tests.cli.test_fleet import PLAN
from tests.helpers_spaces import space

HEAVY = ("numpy", "pandas", "optuna", "plotly", "scipy", "pydantic", "click", "rich")
SPACE = space({"chip": ["h100_sxm", "a100_80_sxm"], "tensor_parallel": [1, 2]})


def test_import_dse_imports_nothing_heavy():
    code = f"import sys, dse; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_import_dse_is_fast():
    code = "import time; t = time.process_time(); import dse; print(time.process_time() - t)"
    taken = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(taken) < 0.06


@pytest.mark.parametrize("name", dse.__all__)
def test_every_name_has_a_docstring_with_an_example(name: str):
    found = getattr(dse, name)
    assert found.__name__ == name
    shown = api_docs.example(found)
    ast.parse(shown)
    named = re.findall(r"\bdse\.(\w+)", shown)
    assert named, f"dse.{name} has no example"
    assert set(named) <= set(dse.__all__)


def test_the_lines_of_the_docstring_run_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    columns = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
    price = "h100_sxm,rental_3yr,1.90,me,2026-09,a quote,\n"
    Path("mine.csv").write_text(columns + price, encoding="utf-8")
    *lines, last = filter(None, api_docs.example(dse).splitlines())
    assert len(lines) == 7
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # noqa: S102 - the lines of our own docstring
    small = last.replace('"dense-70b-billion-tokens"', "plan")  # whatever the plan
    answer = eval(small, names | {"plan": yaml.safe_load(PLAN)})  # noqa: S307
    assert names["catalog"].prices.select("rental_3yr")["h100_sxm"].usd_per_chip_hour == 1.9
    assert "</html>" in Path("whatif.html").read_text(encoding="utf-8")
    for shown in (answer, names["study"]):
        cell = shown._repr_html_()
        assert cell.index("<b>") < cell.index("<table>") < cell.index("<iframe")


def test_what_is_found_is_one_line_in_a_console():
    answer = dse.whatif("tiny")
    assert repr(answer) == f"Answer(whatif: {answer.headline})"


def test_a_study_of_a_space_that_is_no_file():
    study = dse.run(SPACE, seed=1, engine="exhaustive")
    front = study.front.to_pandas()
    assert len(front) == len(study.front) == study.document["front_size"]
    assert set(front["chip"]) <= {"h100_sxm", "a100_80_sxm"}
    assert study.cheapest.metrics["usd_per_million_total_tokens"] == pytest.approx(
        front["usd_per_million_total_tokens"].min(), rel=1e-8
    )
    trials = study.trials.to_pandas()
    assert len(trials) == len(study.trials)
    assert trials["stage"].value_counts().to_dict() == study.document["trials_by_stage"]
    trials = trials[trials["feasible"]]
    assert trials["tpot_s"].min() == pytest.approx(front["tpot_s"].min(), rel=1e-8)
    assert dse.whatif(study).document["winner"]["chip"] == study.cheapest.deployment["chip"]
    with pytest.raises(InputError, match="no point 'nearest'"):
        study.point("nearest")
    for again in (
        dse.estimate(study, "cheapest"),
        dse.estimate(study.folder, study.cheapest.point),
    ):
        assert again.tpot_s == study.cheapest.metrics["tpot_s"]
    with pytest.raises(InputError, match="tp: a point of a study is given"):
        dse.estimate(study, "cheapest", tp=2)


def test_a_space_that_is_no_file_names_the_field():
    wrong = {**SPACE, "objectives": {"tpot": "minimize"}}
    with pytest.raises(InputError) as caught:
        dse.load_space(wrong)
    assert str(caught.value).startswith("the space given: objectives.tpot: ")


def test_an_estimate_has_its_metrics():
    e = dse.estimate("llama-3-8b", "h100_sxm", concurrency=8)
    low, high = e.interval("tpot_s") or (0.0, 0.0)
    assert low < e.tpot_s < high
    assert e.provenance["tpot_s"] == "fitted"
    assert e.feasible
    assert e.interval("feasible") is None
    with pytest.raises(AttributeError, match="tpot_ms"):
        e.tpot_ms  # noqa: B018


def test_every_question_about_a_model_is_an_answer():
    tokens, chip = "1T", "h100_sxm"
    split = dse.estimate("llama-3-8b", chip, serving="disaggregated", prefill_workers=2)
    assert split.prefill_pool["deployment"]["replicas"] == 2
    for answer in (
        dse.estimate("llama-3-8b", chip, detail=True),
        split,
        dse.check("llama-3-8b", chip),
        dse.train("llama-3-8b", chip, 64, tokens=tokens),
        dse.export("llama-3-8b", format="hf"),
    ):
        assert isinstance(answer, dse.Answer)
        assert answer.headline in " ".join(answer.to_text().split())
        assert answer._repr_html_()


def test_a_model_may_be_a_mapping(tmp_path: Path):
    model = dse.load_model("llama-3-8b")
    config = dse.export("llama-3-8b", format="hf").files["config.json"]
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert dse.load_model(json.loads(config)).blocks == dse.load_model(tmp_path).blocks
    assert dse.load_model(model) is model


def test_a_catalog_says_what_it_was_read_from(tmp_path: Path):
    shipped, then = dse.load_catalog(), dse.load_catalog(as_of="2026-06")
    assert shipped.digest != then.digest
    assert then.source.flags() == ["--as-of", "2026-06"]
    assert dse.load_catalog(as_of="2026-06").source == then.source
    again = dse.load_catalog().over({"own_prices": then.source.own_prices()})
    assert again.prices == then.prices
    with pytest.raises(InputError, match="not a date"):
        dse.load_catalog(as_of="June")
