"""YAML and CSV at the edge: safe, no duplicate keys, and every mistake with its file and line."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from dse.data import data_root, is_shipped
from dse.errors import InputError
from dse.files import MOST_TABLE_BYTES, read_bytes, text_of
from dse.record import record

KeyPath = tuple[str | int, ...]
ACCEPTED_CHIPS = "an id that `dse catalog chips list` prints"
T = TypeVar("T")


@record
class Document:
    """One YAML file: its content and the 1-based line of every key path. What stands in no file has
    an empty `file`; a mapping that a program gives has no lines (None)."""

    file: str
    data: Mapping[str, Any]
    lines: Mapping[KeyPath, int] | None

    def line(self, path: KeyPath) -> int | None:
        """Line of a key path, or of the nearest parent that was written."""
        if self.lines is None:
            return None
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def written(self, path: KeyPath) -> Any:
        """What stands at a key path; None where nothing does."""
        found: Any = self.data
        for part in path:
            try:
                found = found[part]
            except (LookupError, TypeError):
                return None
        return found

    def error(self, path: KeyPath, message: str, accepted: str | None = None) -> InputError:
        place = {"file": self.file, "line": self.line(path)} if self.file else {}
        return InputError(message, field=dotted(path), accepted=accepted, **place)


def dotted(path: KeyPath) -> str:
    """("levels", 0, "latency") -> "levels[0].latency"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A hint at the nearest of the known names, or nothing."""
    return "".join(f"; did you mean {near}?" for near in nearest(name, known))


def nearest(name: object, known: Iterable[str]) -> list[str]:
    """The nearest known name, or nothing."""
    import difflib  # noqa: PLC0415 - for mistakes alone

    return difflib.get_close_matches(str(name), list(known), n=1)


def unknown(
    what: str, name: object, known: Iterable[str], accepted: str = "", **place: Any
) -> InputError:
    """The error of a name that is not among those that are known, with the nearest of them."""
    known = list(known)
    message = f"{what} {name!r}{did_you_mean(name, known)}"
    return InputError(message, accepted=accepted or ", ".join(known), **place)


def named_file(text: str, what: str, shipped: Mapping[str, Path]) -> Path:
    """A shipped name or the path of a file of what is read. Raises InputError with near names."""
    if text in shipped or (Path(text).exists() and not Path(text).is_dir()):
        return shipped.get(text) or Path(text)
    accepted = f"{', '.join(shipped)}, or the path of a {what} file"
    message = f"no {what} of the name {text!r}, and no such file"
    raise InputError(f"{message}{did_you_mean(text, shipped)}", field=what, accepted=accepted)


class _Lines(UserDict[KeyPath, int]):
    """The lines of a file that was read compiled, found when a message names one."""

    def __init__(self, content: bytes, file: str) -> None:
        self.content, self.file = content, file

    @cached_property
    def data(self) -> Mapping[KeyPath, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _parse(self.content, self.file)[1]


def load_yaml(path: Path | str) -> Document:
    """Reads one YAML mapping. Raises InputError: no such file, not YAML, a key written twice."""
    file = str(path)
    content = read_bytes(path)
    if is_shipped(file) and (known := _compiled(content)) is not None:
        return Document(file, known, _Lines(content, file))
    return Document(file, *_parse(content, file))


def _parse(content: bytes, file: str) -> tuple[dict[str, Any], Mapping[KeyPath, int]]:
    from dse.schema.yaml_text import parse  # noqa: PLC0415 - PyYAML takes 20 ms

    return parse(content, file)


def csv_rows(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV file. Raises InputError where it cannot be read."""
    text = text_of(read_bytes(path, MOST_TABLE_BYTES, "a CSV file"), str(path))
    try:
        yield from csv.reader(io.StringIO(text, newline=""), strict=True)
    except csv.Error as error:
        message = f"cannot be read: {error}"
        raise InputError(message, file=str(path), accepted="a CSV file") from None


class Lazy(Mapping[str, T]):
    """Entries by id, each made when it is first asked for."""

    def __init__(self, names: Iterable[str], read: Callable[[str], T]) -> None:
        self._names, self._read, self._known = dict.fromkeys(names), read, dict[str, T]()

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# The shipped YAML files as JSON, which is read in a tenth of the time.
#
# A wheel brings such a file beside its data (`tools/compiled_wheel.py`); a checkout reads its YAML.
# Each line of it is the digest of the bytes of a YAML file and its document as JSON: nothing in it
# is executed, and what is read goes through the same schemas as YAML does. A YAML file of other
# bytes has no line, and is read itself.

NAME = "documents.jsonl"


@cache
def compiled() -> Mapping[bytes, bytes]:
    """What a wheel brings, documents as JSON by the digest of their files; nothing in a
    checkout."""
    file = data_root() / NAME
    lines = file.read_bytes().splitlines() if file.exists() else ()
    return dict(line.split(b" ", 1) for line in lines if b" " in line)


def _compiled(content: bytes) -> dict[str, Any] | None:
    """The document of the bytes of a YAML file, None where it was not compiled."""
    known = compiled()
    with suppress(KeyError, ValueError):
        return json.loads(known[_digest(content)]) if known else None
    return None


def compiled_line(content: bytes, data: dict[str, Any]) -> bytes:
    """The line of a YAML file with these bytes and this document; none where JSON cannot say it."""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return b""
    same = repr(json.loads(text)) == repr(data)
    return b"%s %s\n" % (_digest(content), text.encode()) if same else b""


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()
