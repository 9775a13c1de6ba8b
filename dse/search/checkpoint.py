"""What a study has done, on disk: a killed run goes on from there."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.files import replacing

EVERY = 4_000_000
_IDENTITY = "identity"


class Checkpoint:
    """Results of tasks in one file, replaced whole: of one that is done, and of an enumeration
    about every `every` points. An enumeration of fewer leaves none.

    `identity` is what a run must share to go on: anything else in the file, or a file that cannot
    be read, counts as no checkpoint. `fresh` forgets what is there.
    """

    def __init__(
        self, path: Path, identity: Mapping[str, Any], every: int = EVERY, fresh: bool = False
    ) -> None:
        self.path, self.every = path, every
        self._identity = json.dumps(dict(identity), sort_keys=True)
        if fresh:
            path.unlink(missing_ok=True)
        self._arrays = self._read()

    def _read(self) -> dict[str, NDArray]:
        try:
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            return {}
        return arrays if str(arrays.pop(_IDENTITY, "")) == self._identity else {}

    def load(self, task: str) -> dict[str, NDArray] | None:
        """What was saved last of a task, or None."""
        mine = f"{task}/"
        found = {
            name.removeprefix(mine): array
            for name, array in self._arrays.items()
            if name.startswith(mine)
        }
        return found or None

    def save(self, task: str, state: Mapping[str, NDArray]) -> None:
        """Raises StorageError when the file cannot be written."""
        self._arrays |= {f"{task}/{name}": array for name, array in state.items()}
        with replacing(self.path) as file:
            arrays = {_IDENTITY: np.array(self._identity), **self._arrays}
            np.savez(file, allow_pickle=False, **arrays)
