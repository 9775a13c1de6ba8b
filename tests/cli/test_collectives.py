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


def of(answer, size: float, name: str):
    return next(r for r in answer["times"] if (r["message_bytes"], r["collective"]) == (size, name))


def test_one_rack_against_eight_boxes():
    """64 chips at 32 KiB, 1 MiB and 128 MiB, with the measured rows beside."""
    asked = (("gb200_nvl72",), ("b200_sxm", "--set", "system=hgx_b200_efa"))
    rack, boxes = (collectives(*words, "--json").json() for words in asked)
    assert [rack["domains"], boxes["domains"]] == [1, 8]
    sizes = (2**15, 2**20, 2**27)
    named = [(row["message_bytes"], row["collective"]) for row in rack["times"]]
    assert named == [(size, name) for size in sizes for name in COLLECTIVES]
    ratios = [
        of(boxes, size, "all-reduce")["seconds"] / of(rack, size, "all-reduce")["seconds"]
        for size in sizes
    ]
    assert ratios[0] > ratios[1] > ratios[2] > 3
    rows = {(row["chips"], row["message_bytes"]): row for row in boxes["measured"]}

    def slower(size: float, key: str) -> float:
        """By how much the bus bandwidth of 32 chips is below that of 8."""
        few, many = rows[8, size], rows[32, size]
        return many[key] / few[key] * (7 / 8) / (31 / 32)

    assert [round(slower(size, "seconds"), 1) for size in sizes] == [120, 6.7, 2.9]
    assert "opened" in rows[32, 2**15]["note"]
    for size in sizes[1:]:
        assert slower(size, "predicted_s") == pytest.approx(slower(size, "seconds"), rel=0.2)


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
