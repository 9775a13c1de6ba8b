"""Rows as CSV and as a sheet."""

from __future__ import annotations

from dse.render.records import csv_text, sheet


def test_no_row_leaves_the_head_that_is_given() -> None:
    assert csv_text([], ("a", "b")) == "a,b\n"
    assert csv_text([]) == ""
    assert sheet([]) == []


def test_a_sheet_says_counts_and_answers_in_words() -> None:
    rows = [{"a": True, "b": {"h100_sxm": 2, "mi300x": 1}}, {"b": {}, "a": False}]
    assert sheet(rows) == [["a", "b"], ["yes", "2 h100_sxm, 1 mi300x"], ["no", ""]]
