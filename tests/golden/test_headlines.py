"""Headline predictions move only with the file that holds them, and with a word in CHANGELOG.md."""

from __future__ import annotations

import pytest

from tests import drift


def test_predictions_are_those_of_the_file() -> None:
    written = drift.written()
    changes = drift.moved(written, drift.predicted(written))
    lines = "\n".join(f"{change:+.1%}  {line}" for change, line in changes)
    assert not changes, f"{lines}\npython -m tests.drift --write, and say so in {drift.CHANGELOG}"


def test_every_headline_has_a_value() -> None:
    written = drift.written()
    assert len(written) >= 40
    assert all(value is not None and value > 0.0 for value in written.values())


def test_a_move_is_in_the_changelog() -> None:
    """Against the last commit; nothing to compare in a clean checkout, or without one."""
    last, log = drift.committed(drift.FILE), drift.committed(drift.CHANGELOG)
    if last is None or not drift.moved(drift.read(last), drift.written()):
        pytest.skip("the last commit has the same headlines, or none")
    now = (drift.ROOT / drift.CHANGELOG).read_text(encoding="utf-8")
    top = now.split("\n## ")[1]
    assert now != log, f"{drift.CHANGELOG} does not say that predictions moved"
    assert "headline predictions" in top.lower()
