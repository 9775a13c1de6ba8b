"""Reports of a study folder: report.html and report.md, from front.json and study.json alone."""

from __future__ import annotations

from pathlib import Path

from dse.render.folder import read_study
from dse.render.markdown import markdown
from dse.render.page import page
from dse.study.folder import write_text

__all__ = ["write_report"]


def write_report(folder: Path) -> None:
    """Writes report.html and report.md into `folder`, each whole or not at all.

    Raises StorageError when the folder's front.json or study.json cannot be read, or the folder
    cannot be written.
    """
    study = read_study(folder)
    for name, text in (("report.html", page(study)), ("report.md", markdown(study))):
        write_text(folder, name, text)
