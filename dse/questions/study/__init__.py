"""The report of a study: everything that its folder says, as an Answer.

answer = report("studies/quickstart")       from front.json and study.json alone
answer.to_html("quickstart.html")
write_report("studies/quickstart")          report.html and report.md in the folder itself
"""

from __future__ import annotations

from pathlib import Path

from dse.answer.answer import Answer
from dse.questions.study.answer import study_answer
from dse.questions.study.folder import read_study

__all__ = ["report", "write_report"]


def report(folder: Path | str) -> Answer:
    """The report of a study folder, as an Answer. Raises StorageError when the folder's front.json
    or study.json cannot be read."""
    return study_answer(read_study(Path(folder)))


def write_report(folder: Path | str) -> Answer:
    """Writes report.html and report.md into `folder`, each whole or not at all, and returns them as
    an Answer. Raises StorageError when the folder cannot be read or written."""
    answer = report(folder)
    answer.write(folder, ("html", "md"))
    return answer
