"""Reports of a study folder: report.html and report.md, from front.json and study.json alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dse.errors import StorageError
from dse.report.folder import read_study
from dse.report.markdown import markdown
from dse.report.page import page

__all__ = ["write_report"]


def write_report(folder: Path) -> None:
    """Writes report.html and report.md into `folder`, each whole or not at all.

    Raises StorageError when the folder's front.json or study.json cannot be read, or the folder
    cannot be written.
    """
    study = read_study(folder)
    for name, text in (("report.html", page(study)), ("report.md", markdown(study))):
        _replace(folder / name, text)


def _replace(path: Path, text: str) -> None:
    """Writes beside `path`, then renames: a reader never sees half a file."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            Path(temporary).chmod(0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error
