"""The study folder: reading it, and replacing its files atomically."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from dse.errors import InputError, StorageError

STUDY, FRONT, FRONT_TABLE = "study.json", "front.json", "front.csv"


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """One of the folder's documents. Raises InputError when the folder is not a study."""
    path = folder / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} is not a finished study: it has no {name}",
            accepted="a folder written by `dse run`",
        ) from error
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error


def write_text(folder: Path, name: str, text: str) -> None:
    """Replaces a file of the folder in one move. Raises StorageError when it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(folder / name)
    except OSError as error:
        raise StorageError(f"cannot write {folder / name}: {error.strerror or error}") from error


def write_json(folder: Path, name: str, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(folder, name, text + "\n")


def find_item(folder: Path, point: str) -> dict[str, Any]:
    """A point of the front by its number or by the name it was chosen under.

    Raises InputError with the numbers and names that exist.
    """
    items = read_json(folder, FRONT)["items"]
    names = sorted({name for item in items for name in item["names"]})
    for item in items:
        if point in item["names"] or point == str(item["point"]):
            return item
    raise InputError(
        f"no point {point!r} in {folder}",
        field="POINT",
        accepted=f"a number from 1 to {len(items)}, or one of {', '.join(names)}",
    )
