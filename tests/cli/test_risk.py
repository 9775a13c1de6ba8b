"""dse risk as a person uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import dse, fits

TWO = ("chip: h100_sxm", "chip: [h100_sxm, h200_sxm]")


def test_the_answer_comes_first_and_fits_the_console(space: Callable[..., Path]) -> None:
    said = dse("risk", space(*TWO), "--draws", 1000)
    assert said.code == 0, said.err
    assert said.out.splitlines()[1].startswith("- h")
    assert "Measure next" in said.out
    assert "seed 0" in said.out
    assert fits("\n".join(x for x in said.out.splitlines() if "vllm bench" not in x), 100)


def test_the_document_says_the_same(space: Callable[..., Path]) -> None:
    found = dse("risk", space(*TWO), "--draws", 1000, "--seed", 4, "--json").json()
    assert (found["draws"], found["seed"], len(found["choices"])) == (1000, 4, 2)
    assert sum(one["chance_first"] for one in found["choices"]) == pytest.approx(1.0)
    first = found["measure_next"][0]
    assert first["chance_wrong_after"] <= first["chance_wrong_now"]
    served = next(one for one in found["measure_next"] if one["what"] == "serving")
    assert any(line.startswith("vllm bench serve") for line in served["commands"])
    again = dse("risk", space(*TWO), "--draws", 1000, "--seed", 4, "--json").json()
    assert again == found


def test_a_certain_price_is_no_measurement(space: Callable[..., Path]) -> None:
    options = ("--draws", 1000, "--price-interval", 0, "--json")
    found = dse("risk", space(*TWO), *options).json()
    assert {one["what"] for one in found["measure_next"]} == {"serving"}
    assert all(one["kind"] == "given" for one in found["prices"])


def test_demand_pays_for_whole_instances(space: Callable[..., Path]) -> None:
    def nominal(*options: object) -> list[float]:
        asked = ("--draws", 1000, "--json", *options)
        return [one["predicted"] for one in dse("risk", space(*TWO), *asked).json()["choices"]]

    for full, partly in zip(nominal(), nominal("--demand", "1..2"), strict=True):
        assert partly >= full


def test_a_shape_of_a_study_on_every_chip(tiny: Path) -> None:
    found = dse("risk", tiny, "--point", "cheapest", "--draws", 1000, "--json").json()
    assert {one["chip"] for one in found["choices"]} == {"h100_sxm", "h200_sxm"}
    assert found["point"] == "cheapest"


def test_one_chip_has_no_rival(space: Callable[..., Path]) -> None:
    said = dse("risk", space(), "--draws", 1000)
    assert said.code == 0, said.err
    assert "There is no other choice." in said.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("quickstart",), "--point"),
        (("deploy-lama",), "deploy-llama-3-70b"),
        (("{}", "--point", "1"), "--point"),
        (("{}", "--objective", "usd"), "usd_per_million_total_tokens"),
        (("{}", "--objective", "tpot_s", "--demand", "5..9"), "--demand"),
        (("{}", "--demand", "9..5"), "LOW..HIGH"),
        (("{}", "--demand", "nan..inf"), "LOW..HIGH"),
        (("{}", "--draws", "10"), "1,000"),
        (("{}", "--price-interval", "-1"), "--price-interval"),
        (("{}", "--sed", "1"), "--seed"),
    ],
)
def test_what_is_refused(space: Callable[..., Path], arguments, told: str) -> None:
    said = dse("risk", *(str(space(*TWO)) if word == "{}" else word for word in arguments))
    assert said.code == 2
    assert told in said.err
    assert "Traceback" not in said.err
    assert not said.out


def test_a_study_of_shapes_asks_which_point(tiny: Path) -> None:
    said = dse("risk", tiny)
    assert said.code == 2
    assert "--point" in said.err


def test_limits_that_no_chip_keeps(space: Callable[..., Path]) -> None:
    said = dse("risk", space("ttft_s <= 2 s", "ttft_s <= 1 us"))
    assert said.code == 3
    assert "no chip" in said.err
