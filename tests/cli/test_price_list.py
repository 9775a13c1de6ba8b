"""dse catalog prices list: computed prices by their parts, and what changed since a date."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.answer.numbers import dollars
from dse.schema.prices import first_day
from tests.cli.conftest import dse, fits

HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"


def document(*words: object) -> dict:
    return dse("catalog", "prices", "list", *words, "--json").json()


def test_owned_chips_are_listed_by_parts_that_make_up_their_price() -> None:
    said = dse("catalog", "prices", "list", "--basis", "owned_tco")
    assert said.code == 0
    assert fits(said.out, 100)
    assert "…" not in said.out
    assert "Costs: life 5 years (claimed" in " ".join(said.out.split())
    paid = document("--basis", "owned_tco")["paid"]
    for one in paid:
        parts = [part["usd_per_chip_hour"] for part in one["breakdown"]["parts"]]
        assert sum(parts) == pytest.approx(one["usd_per_chip_hour"], rel=1e-12)
        (line,) = [row for row in said.out.splitlines() if row.startswith(f"{one['chip']} ")]
        assert line.split()[1:] == [dollars(usd) for usd in (*parts, one["usd_per_chip_hour"])]
        assert f"{one['chip']}: " in said.out


def test_a_chip_by_name_shows_every_input_with_its_source() -> None:
    said = dse("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "owned_tco")
    assert fits(said.out, 100)
    (paid,) = document("--chip", "h100_sxm", "--basis", "owned_tco")["paid"]
    text = " ".join(said.out.split())
    for one in paid["breakdown"]["inputs"]:
        assert one["name"] in text
        assert one["source"] in text
    both = dse("catalog", "prices", "list", "--chip", "h100_sxm").out
    assert "cost of capital" in both
    assert "on_demand" in both


def test_what_changed_since_a_date_is_the_difference_of_two_lists() -> None:
    basis = ("--basis", "on_demand")
    then = {one["chip"]: one for one in document(*basis, "--as-of", "2026-Q2")["paid"]}
    now = {one["chip"]: one for one in document(*basis)["paid"]}
    found = document(*basis, "--since", "2026-Q2")
    changes = {row["chip"]: row for row in found["changes"]}
    assert found["paid_then"] == len(then)
    for chip in {*then, *now}:
        ends = [side.get(chip, {}).get("usd_per_chip_hour") for side in (then, now)]
        if ends[0] == ends[1]:
            assert chip not in changes
        else:
            assert [changes[chip]["a"], changes[chip]["b"]] == ends
    moved = [row for row in found["changes"] if row["ratio"]]
    assert moved
    assert all(row["ratio"] == row["b"] / row["a"] for row in moved)
    assert all(first_day(row["date_a"]) <= "2026-06-31" for row in moved)
    new = [row for row in found["changes"] if row["a"] is None]
    assert all(first_day(row["date_b"]) > "2026-06-31" for row in new)


def test_changes_until_a_date_and_in_text() -> None:
    said = dse("catalog", "prices", "list", "--since", "2026-Q2")
    assert said.code == 0
    assert fits(said.out, 100)
    all_bases = document("--since", "2026-Q2")["changes"]
    assert f"{sum(row['a'] is None for row in all_bases)} are new" in " ".join(said.out.split())
    until = document("--since", "2026-Q2", "--as-of", "2026-07")
    assert 0 < len(until["changes"]) < len(all_bases)
    assert until["as_of"] == "2026-07"
    nothing = dse("catalog", "prices", "list", "--chip", "v100_sxm2_32", "--since", "2026-Q3")
    assert "Since 2026-Q3: 0 of 2 prices changed." in nothing.out


def test_a_price_of_ones_own_has_no_date_to_change_at(tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text(f"{HEADER}h100_sxm,on_demand,9.9,quote,2026-11,mail,\n", encoding="utf-8")
    changes = document("--since", "2026-Q2", "--basis", "on_demand", "--prices", mine)["changes"]
    assert "h100_sxm" not in {row["chip"] for row in changes}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--since", "june"), "--since: read 'june': not a date"),
        (("--since", "2026-Q4", "--as-of", "2026-06"), "not before --as-of 2026-06"),
        (("--since", "2026", "--basis", "on_demnd"), "did you mean on_demand?"),
        (("--since", "2026", "--chip", "h100_smx"), "did you mean h100_sxm?"),
        (("--since", "2026-06", "--chip", "trn1", "--basis", "spot"), "no price of trn1, spot"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words: tuple[str, ...], says: str) -> None:
    said = dse("catalog", "prices", "list", *words)
    assert said.code == 2
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1
