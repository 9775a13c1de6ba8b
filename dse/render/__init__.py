"""What a person reads of an answer: the console, Markdown, pages and files; and of a study folder:
report.html and report.md, from front.json and study.json alone."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_report"]


def write_report(folder: Path) -> None:
    """Writes report.html and report.md into `folder`, each whole or not at all.

    Raises StorageError when the folder's front.json or study.json cannot be read, or the folder
    cannot be written.
    """
    from dse.files import write_text
    from dse.render.folder import read_study
    from dse.render.study_markdown import markdown
    from dse.render.study_page import page

    study = read_study(folder)
    for name, text in (("report.html", page(study)), ("report.md", markdown(study))):
        write_text(folder, name, text)
