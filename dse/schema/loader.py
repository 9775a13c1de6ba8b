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
    if is_shipped(file) and (known := compiled().find(content)) is not None:
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
# Each line of it is a digest and one document as JSON: nothing in it is executed, and what is read
# goes through the same schemas as YAML does. The digest is of the bytes of the YAML file, of the
# code that reads it and of the JSON, so that a line of other bytes, of an older version or with a
# letter changed is no line at all, and the YAML file is read.

NAME = "documents.jsonl"
_SIZE = 16  # bytes of a digest


@cache
def compiled() -> Compiled:
    """What a wheel brings; nothing in a checkout."""
    return Compiled(data_root() / NAME)


class Compiled:
    """Documents by the bytes of their YAML files: those of a file, and what is added."""

    def __init__(self, file: Path | None = None) -> None:
        code = Path(__file__).with_name("yaml_text.py").read_bytes() + Path(__file__).read_bytes()
        self.code = hashlib.blake2b(code, digest_size=_SIZE).digest()
        try:
            content = file.read_bytes() if file and file.exists() else b""
        except OSError:
            content = b""
        lines = (line.split(b" ", 1) for line in content.splitlines() if b" " in line)
        self.lines: dict[bytes, bytes] = dict(lines)

    def find(self, content: bytes) -> dict[str, Any] | None:
        """The document of the bytes of a YAML file, None where it was not compiled."""
        if not self.lines:
            return None
        check, _, text = self.lines.get(self._digest(content), b"").partition(b" ")
        if check == self._digest(content, text):
            with suppress(ValueError):
                return json.loads(text)
        return None

    def add(self, content: bytes, data: dict[str, Any]) -> None:
        """Compiles a document, where JSON can say it."""
        try:
            text = json.dumps(data, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError):
            return
        if repr(json.loads(text)) == repr(data):
            encoded = text.encode()
            self.lines[self._digest(content)] = self._digest(content, encoded) + b" " + encoded

    def text(self) -> bytes:
        """The file of the documents."""
        return b"".join(b"%s %s\n" % item for item in sorted(self.lines.items()))

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(self.code, digest_size=_SIZE)
        for part in parts:
            digest.update(b"%d " % len(part))
            digest.update(part)
        return digest.hexdigest().encode()
