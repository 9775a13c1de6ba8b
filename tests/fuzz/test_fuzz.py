"""Two thousand inputs with mistakes in every run, and those that were once taken badly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import dse, few_futures  # noqa: F401 - a fixture
from tests.fuzz import SHARES, complaint, say
from tests.fuzz.kinds import KINDS, OWN_CHIP, PLAN, good

pytestmark = pytest.mark.usefixtures("few_futures")

# Kinds whose inputs take a tenth of a second and more: fewer of each.
SLOW = {
    **{"study": 6, "plans": 4, "heavy chip": 4, "runs": 2, "journal": 4, "sqlite": 2},
    **{"trace": 8, "prices": 32, "laws": 48, "plan": 48},
}
ROUNDS = 8
INPUTS = {kind: SLOW.get(kind, ROUNDS * share) for kind, share in SHARES.items()}
CHIP = "id: mine\nname: mine\nmemory_capacity: 96 GB\nmemory_bandwidth: 4 TB/s\n"
# {what was once a traceback or an echo: (end of a chip file, part of the message)}
ONCE = {
    "a tag that its text is not": ("peak_bf16: !!bool maybe\n", "'maybe' as bool"),
    "a day that is no day": ("peak_bf16: !!timestamp 2026-13-99, 1\n", "as timestamp"),
    "a name too long for a file": (f"efficiency: {'a' * 3000}\n", "aaa"),
    "a control character": ('peak_bf16: "\\e[31mred"\n', "U+001B"),
    "text from right to left": ('source: "\\u202edlog"\n', "chip.yaml:5: source: read the"),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_mistakes_are_answered_in_words(kind: str, tmp_path: Path) -> None:
    found = {}
    for seed in range(INPUTS[kind]):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found[seed] = complaint(kind, seed, folder)
    assert {seed: said for seed, said in found.items() if said} == {}


def test_without_a_mistake_every_input_is_accepted(tmp_path: Path) -> None:
    """Else a mistake would be refused for another reason than its own."""
    refused = {}
    for k, words in enumerate(good(tmp_path)):
        said = say(words)
        if said.code:
            refused[k, *words[:4]] = said.err[:300]
    assert not refused, "\n".join(f"{words}: {said}" for words, said in refused.items())


@pytest.mark.parametrize("what", ONCE)
def test_what_was_once_taken_badly(what: str, tmp_path: Path) -> None:
    end, part = ONCE[what]
    path = tmp_path / "chip.yaml"
    path.write_text(CHIP + end, encoding="utf-8")
    said = dse("estimate", "--model", "llama-3-8b", "--chip", path)
    assert said.code in (2, 4)
    assert part in said.err
    assert "\x1b" not in said.err


# Inputs that were once taken badly: {what: (kind, seed)}.
SEEDS = {
    "a number for the name of a chip, in a claim": ("claim", 5024),
    "a link to itself for a table": ("prices", 104),
    "a link to itself for a journal": ("journal", 5000),
    "a layer without its window": ("front", 700559),
    "a price for the format of a cache": ("front", 700853),
    "a model without its number of layers": ("front", 900753),
    "a mapping for whether embeddings are tied": ("front", 1301842),
    "a width of 5,000 digits": ("loss runs", 701026),
    "a scenario at 1e308 dollars": ("scenarios", 700541),
}


@pytest.mark.parametrize("what", SEEDS)
def test_an_input_that_was_once_taken_badly(what: str, tmp_path: Path) -> None:
    kind, seed = SEEDS[what]
    assert complaint(kind, seed, tmp_path) == ""


def test_a_stored_study_with_a_metric_that_there_is_not(tmp_path: Path) -> None:
    KINDS["study.json"].beside(tmp_path)
    text = KINDS["study.json"].texts()[0]
    (tmp_path / "study.json").write_text(text.replace('"tpot_s"', '"0x"'), "utf-8")
    said = dse("estimate", tmp_path, "knee")
    assert said.code == 4
    assert "metric is '0x'" in said.err


def test_a_stored_front_whose_interval_is_none(tmp_path: Path) -> None:
    KINDS["front"].beside(tmp_path)
    document = json.loads(KINDS["front"].texts()[0])
    document["items"][0]["metrics"]["intervals"]["tpot_s"] = [0.01, -1.0]
    (tmp_path / "front.json").write_text(json.dumps(document), "utf-8")
    said = dse("estimate", tmp_path, "knee")
    assert said.code == 4
    assert "intervals.tpot_s is [0.01, -1.0]" in said.err


def test_a_stored_trial_with_a_value_that_its_axis_has_not(tmp_path: Path) -> None:
    run = ("run", "tiny", "--engine", "random", "--no-prove", "--out", tmp_path, "--trials")
    assert dse(*run, 20).code == 0
    journal = tmp_path / "journal.log"
    text = re.sub(
        r'"params":{"(\w+)":\d+', r'"params":{"\1":999', journal.read_text("utf-8"), count=1
    )
    journal.write_text(text, "utf-8")
    said = dse(*run, 24)
    assert said.code == 4
    assert "damaged" in said.err
    assert "--fresh" in said.err


def test_a_pipe_for_a_journal_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal.log")
    said = dse("run", "tiny", "--engine", "random", "--trials", 20, "--out", tmp_path)
    assert said.code == 4
    assert "it is no file" in said.err


def test_a_stored_limit_that_is_no_number(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    run = ("run", "tiny", "--engine", "random", "--no-prove", "--storage", url, "--out")
    assert dse(*run, tmp_path / "out", "--trials", 20).code == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as database:
        changed = database.execute(
            "UPDATE trial_system_attributes SET value_json = '\x100.5' WHERE key LIKE 'constr%:%'"
        )
        assert changed.rowcount
        database.commit()
    said = dse(*run, tmp_path / "out", "--trials", 24)
    assert said.code == 4
    assert "damaged" in said.err
    assert "\x10" not in said.err


# -- what stands in the place of a file -----------------------------------------------------


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _text(encoding: str, begins: str = "") -> Callable[[Path], object]:
    return lambda path: path.write_bytes((begins + OWN_CHIP).encode(encoding))


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "chip.yaml"),
    "a pipe without a writer": (os.mkfifo, "chip.yaml"),
    "a link to itself": (_loop, "chip.yaml"),
    "a device without an end": (lambda path: path.symlink_to("/dev/zero"), "at most 16,000,000"),
    "what cannot be read": (lambda path: path.symlink_to("/proc/self/mem"), "cannot be read"),
    "nothing in it": (lambda path: path.touch(), "not a mapping"),
    "UTF-16": (_text("utf-16"), "UTF-16 text (accepted: UTF-8 text)"),
    "latin-1": (_text("latin-1", "# é\n"), "not UTF-8 text at byte 2"),
    "17 MB": (lambda path: path.write_text("x" * 17_000_000), "at most 16,000,000 bytes"),
}


@pytest.mark.parametrize("what", PLACES)
def test_what_is_no_file_is_refused_at_once(what: str, tmp_path: Path) -> None:
    put, part = PLACES[what]
    path = tmp_path / "chip.yaml"
    put(path)
    for words in (("catalog", "chips", "check", path), ("estimate", "--chip", path)):
        said = dse(*words, *(("--model", "llama-3-8b") if words[0] == "estimate" else ()))
        assert said.code == 2, said.err
    said = dse("catalog", "chips", "check", path)
    assert part in said.err


def test_a_plan_may_come_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(PLAN,))
    writer.start()
    said = dse("fleet", path)
    writer.join()
    assert said.code == 0, said.err


@pytest.mark.parametrize("mark", ["\x1b[31m", "\u202e", "\x07"])
def test_an_argument_that_a_terminal_acts_on_is_refused(mark: str) -> None:
    said = dse("estimate", "--model", f"llama{mark}", "--chip", "h100_sxm")
    assert said.code == 2
    assert f"U+{ord(mark[0]):04X}" in said.err
    assert mark not in said.err
