"""A scatter in characters: every mark at its place, nothing beyond the width."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dse.answer.answer import Figure
from dse.render.console import scatter_text


def figure(x: list[float | None], y: list[float | None], **across: Any) -> Figure:
    axis = {"title": {"text": "cost &lt;USD&gt;"}, "range": [0.0, 10.0], **across}
    up = {"title": {"text": "loss"}, "range": [1.0, 2.0]}
    chip = {"name": "a &amp; b", "x": x, "y": y, "marker": {"symbol": "circle"}}
    mark = {"name": "decisions", "x": [10.0], "y": [1.0], "text": ["7"], "marker": {"symbol": "x"}}
    return Figure("f", "", {"data": [chip, mark], "layout": {"xaxis": axis, "yaxis": up}}, "")


def test_corners_and_middle() -> None:
    text = scatter_text(figure([0.0, 5.0, 11.0, None], [2.0, 1.5, 1.5, 1.5]), 47, height=11)
    title, *rows, floor, ends, legend = text.splitlines()
    assert title.strip() == "loss"
    assert [row[6:] for row in rows if "•" in row] == ["•", " " * 20 + "•"]
    assert rows[-1].rstrip().endswith("7")
    assert len(rows[-1]) == len(floor) == 47
    assert rows[0].startswith("2.00 │")
    assert rows[-1].startswith("1.00 │")
    assert "cost <USD>" in ends
    assert legend.strip() == "• a & b; numbers are the decisions"


def test_a_decade_is_as_wide_as_the_next() -> None:
    text = scatter_text(figure([1.0, 10.0, 100.0], [1.5] * 3, type="log", range=[0.0, 2.0]), 47)
    row = next(line for line in text.splitlines() if "•" in line)
    places = [k for k, one in enumerate(row) if one == "•"]
    assert places[1] - places[0] == places[2] - places[1] == 20


@given(
    st.lists(st.floats(-1e9, 1e9) | st.none(), max_size=9),
    st.integers(40, 200),
    st.sampled_from(["linear", "log"]),
    st.integers(0, 40),
)
def test_it_keeps_to_its_width(x: list[float | None], width: int, kind: str, words: int) -> None:
    title = {"text": " ".join(["cost"] * words)}
    text = scatter_text(figure(x, [1.5] * len(x), type=kind, title=title), width)
    assert max(map(len, text.splitlines())) <= width
