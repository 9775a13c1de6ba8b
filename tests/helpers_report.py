"""The sample study and its report, as tests of the page read them."""

from __future__ import annotations

import json
import shutil
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.answer.answer import Answer, Section

SAMPLE = Path(__file__).parent / "data" / "study_sample"
HOSTILE = "<script>alert(1)</script>|`]]>&amp;"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(tmp_path_factory.mktemp("sample"))


def report_of(folder: Path, front: Json | None = None, study: Json | None = None) -> Path:
    """Writes the sample, or what is given in its place, and its report into `folder`."""
    for name, content in (("front.json", front), ("study.json", study)):
        if content is None:
            shutil.copy(SAMPLE / name, folder)
        else:
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    write_again(folder)
    return folder


def write_again(folder: Path) -> None:
    """Writes the report of a study folder into it."""
    dse.Study(folder).report().write(folder, ("html", "md"))


def sections(answer: Answer) -> list[Section]:
    """Every section of a report, those inside another after it."""
    found: list[Section] = []
    waiting = list(answer.blocks)
    while waiting:
        block = waiting.pop(0)
        if isinstance(block, Section):
            found.append(block)
            waiting[:0] = block.blocks
    return found


def both() -> tuple[Json, Json]:
    return tuple(json.loads((SAMPLE / f"{name}.json").read_text()) for name in ("front", "study"))


class Page(HTMLParser):
    """Tags, ids, and the text outside script and style of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts: dict[str | None, str] = {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self.tags[-1][1].get("id")] = data
        elif self.open and self.open[-1] != "style":
            self.text += data


def answer_of(front: Json, study: Json) -> Answer:
    """The report of a folder that holds these documents."""
    with tempfile.TemporaryDirectory() as name:
        for file, content in (("front.json", front), ("study.json", study)):
            (Path(name) / file).write_text(json.dumps(content), encoding="utf-8")
        return dse.Study(name).report()


def decided_sample() -> tuple[Json, Json]:
    """The sample with a start that is not the knee, and three decisions."""
    front, study = both()
    items = front["items"]
    for item in items:
        item["decision"] = 1 + (item["point"] > 20) + (item["point"] > 40)
    items[24]["names"].append("start")
    study["chosen"]["start"] = {"point": 25}
    study["decisions"] = {
        "wish": "all objectives alike", "draws": 200, "best": None,
        "regret_in": "share of the range of the front",
        "start": {"point": 25, "probability": 0.62, "regret": 0.034, "kept": 0.9},
        "families": [
            {"decision": k, "point": point, "designs": 20, "probability": share, "regret": 0.1}
            for k, point, share in ((2, 25, 0.62), (1, 3, 0.3), (3, 50, 0.08))
        ],
        "turns": [
            {"objective": "predicted_loss", "factor": 2.0, "decision": 3, "point": 50},
            {"objective": "predicted_loss", "factor": 4.0, "decision": 1, "point": 3},
        ],
    }  # fmt: skip
    return front, study
