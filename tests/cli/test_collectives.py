"""`dse scale --collectives`, and the flags of jitter and overlap."""

from __future__ import annotations

import pytest

from tests.cli.conftest import ask, dse

COLLECTIVES = [
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "expert all-to-all",
    "point to point",
]
POINT = "estimate --model deepseek-v3 --chip h200_sxm --dp 16 --ep 16 --concurrency 512"


def collectives(*arguments: object):
    return dse("catalog", "chips", "collectives", *arguments)


def of(answer, size: float, name: str, chip: str = ""):
    rows = [row for row in answer["times"] if chip in ("", row["chip"])]
    return next(r for r in rows if (r["message_bytes"], r["collective"]) == (size, name))


def test_one_rack_against_eight_boxes():
    """64 chips at 32 KiB, 1 MiB and 128 MiB, with the measured ratios beside."""
    answer = collectives(
        *("gb200_nvl72", "--against", "b200_sxm", "--set", "against_system=hgx_b200_efa"), "--json"
    ).json()
    assert [fabric["domains"] for fabric in answer["fabrics"]] == [1, 8]
    named = [(row["message_bytes"], row["collective"]) for row in answer["times"]]
    assert named == 2 * [(size, name) for size in (2**15, 2**20, 2**27) for name in COLLECTIVES]
    ratios = [
        of(answer, size, "all-reduce", "b200_sxm")["seconds.ratio"]
        for size in (2**15, 2**20, 2**27)
    ]
    assert ratios[0] > ratios[1] > ratios[2] > 3
    measured = answer["measured"]
    assert [round(row["measured"], 1) for row in measured] == [120, 6.7, 2.9]
    assert "opened" in measured[0]["note"]
    for row in measured[1:]:
        assert row["predicted"] == pytest.approx(row["measured"], rel=0.2)


def test_copies_of_a_token_leave_a_domain_once():
    answer = collectives("h200_sxm", "--chips", 64, "--bytes", "128 MiB", "--json").json()
    plain, spared = (of(answer, 2**27, n) for n in ("all-to-all", "expert all-to-all"))
    assert spared["seconds"] < plain["seconds"]
    assert spared["sent_outside_bytes"] < plain["sent_outside_bytes"]
    few = collectives("h200_sxm", "--chips", 64, "--bytes", "1MiB", "--json").json()
    times = [of(few, 2**20, name)["seconds"] for name in ("expert all-to-all", "all-to-all")]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("chip", "chips", "known"),
    [
        ("h100_sxm", 8, "fitted"),
        ("h100_sxm", 64, "derived"),
        ("gb200_nvl72", 64, "extrapolated"),
        ("tpu_v5p", 64, "assumed"),
    ],
)
def test_what_a_figure_rests_on(chip: str, chips: int, known: str):
    answer = collectives(chip, "--chips", chips, "--bytes", "1 MiB", "--json").json()
    assert of(answer, 2**20, "all-reduce")["known"] == known


def test_algorithms_have_names():
    named = {
        (chip, chips): of(
            collectives(chip, "--chips", chips, "--bytes", size, "--json").json(),
            parsed,
            "all-reduce",
        )["algorithm"]
        for chip, chips, size, parsed in (
            ("gb200_nvl72", 64, "1MiB", 2**20),
            ("tpu_v5p", 64, "1MiB", 2**20),
            ("trn3_gen2", 64, "1 B", 1),
            ("h100_sxm", 8, "1MiB", 2**20),
            ("h100_sxm", 32, "1MiB", 2**20),
        )
    }
    assert named == {
        ("gb200_nvl72", 64): "in network",
        ("tpu_v5p", 64): "ring per axis",
        ("trn3_gen2", 64): "one-shot",
        ("h100_sxm", 8): "measured",
        ("h100_sxm", 32): "halving and doubling between, measured inside",
    }


def test_jitter_and_overlap_of_a_point():
    plain, late, hidden = (
        ask(POINT, *flags)
        for flags in (
            ("--set", "network_overlap=0"),
            ("--set", "network_overlap=0", "--set", "jitter=20 us"),
            ("--set", "network_overlap=0.5"),
        )
    )
    assert hidden["tpot_s"] < plain["tpot_s"] < late["tpot_s"]
    assert "exponential delays of 20 us in collectives, as given" in late["assumed"]
    assert hidden["workload"]["network_overlap"] == 0.5
    assert any("overlap of network and compute is as given" in text for text in hidden["assumed"])


def test_explain_shows_what_is_hidden():
    said = ask(POINT, "--detail", "--set", "network_overlap=0.5")
    rows = {row["operator"]: row for row in said["breakdown"]}
    assert rows["network behind compute"]["decode_s"] < 0
    total = sum(row["decode_s"] for row in said["breakdown"])
    assert total == pytest.approx(said["decode_step_s"], rel=1e-6)
