"""The report of a study: everything that its folder says, as an Answer.

answer = report("studies/quickstart")       from front.json and study.json alone
answer.to_html("quickstart.html")
write_report("studies/quickstart")          report.html and report.md in the folder itself
"""

from __future__ import annotations

from pathlib import Path

from dse.answer.answer import Answer
from dse.questions.study.answer import study_answer
from dse.questions.study.chosen import StudyFolder

__all__ = ["report", "write_report"]


def report(folder: Path | str) -> Answer:
    """The report of a study folder, as an Answer. Raises InputError for a folder that is no study,
    StorageError for a damaged one."""
    return study_answer(StudyFolder.read(Path(folder)))


def write_report(folder: Path | str) -> Answer:
    """Writes report.html and report.md into `folder`, each whole or not at all, and returns them as
    an Answer. Raises InputError for a folder that is no study, StorageError when it cannot be read
    or written."""
    answer = report(folder)
    answer.write(folder, ("html", "md"))
    return answer
