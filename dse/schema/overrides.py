"""Efficiency files of the user's own, in force for every catalog that is read.

The environment variable EFFICIENCY_FILES lists their paths; `--efficiency-file` adds to it for one
command. A variable, not an argument of every function between, so that worker processes and
scheduled jobs see the same laws.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

EFFICIENCY_FILES = "DSE_EFFICIENCY_FILES"


def efficiency_files() -> tuple[str, ...]:
    """Absolute paths of the files in force, each once."""
    written = os.environ.get(EFFICIENCY_FILES, "").split(os.pathsep)
    return tuple(dict.fromkeys(str(Path(path).resolve()) for path in written if path))


@contextmanager
def using(files: Sequence[str | Path]) -> Iterator[None]:
    """Adds `files` to those in force until the context ends."""
    before = os.environ.get(EFFICIENCY_FILES)
    added = [str(Path(file).resolve()) for file in files]
    os.environ[EFFICIENCY_FILES] = os.pathsep.join([*efficiency_files(), *added])
    try:
        yield
    finally:
        if before is None:
            del os.environ[EFFICIENCY_FILES]
        else:
            os.environ[EFFICIENCY_FILES] = before
