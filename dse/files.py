"""Files are replaced whole: a reader never sees half of one. What a person names is read with care:
it may be no file, never end, be in another encoding, or hold what a terminal acts on."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dse.errors import ACTING, ACTS, InputError, StorageError

MOST_BYTES = 16_000_000  # of a file that a person writes
MOST_TABLE_BYTES = 4_000_000_000  # of a table, or what this program wrote
_WRITER_S = 2.0  # that a pipe may be without its writer
# The same in JSON strings, which escape them.
_ESCAPED = re.compile(
    rf"(?<!\\)(?:\\\\)*\\(?:u({'|'.join(f'{k:04x}' for k in ACTING)})|[bf])", re.IGNORECASE
)
_SHORT = {"b": 0x08, "f": 0x0C}


def read_bytes(path: Path | str, most: int = MOST_BYTES, accepted: str | None = None) -> bytes:
    """What a file holds. Raises InputError where it cannot be read, is a pipe into which
    nobody writes, or is larger than `most`."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
            kind = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(kind):  # a device may have no end
                most = min(most, MOST_BYTES)
            found = bytearray(_begun(file)) if stat.S_ISFIFO(kind) else bytearray()
            if hasattr(os, "set_blocking"):
                os.set_blocking(file.fileno(), True)
            while len(found) <= most and (more := file.read(min(most + 1, 1 << 26))):
                found += more
    except FileNotFoundError:
        raise InputError("no such file", file=str(path), accepted=accepted) from None
    except (OSError, ValueError) as error:  # a path with a zero in it is a ValueError
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read: {why}", file=str(path), accepted=accepted) from None
    if len(found) > most:
        raise InputError("is too large", file=str(path), accepted=f"at most {most:,} bytes")
    return bytes(found)


def _begun(pipe: Any) -> bytes:
    """The first bytes of a pipe: without a writer it gives nothing, and must not be waited for."""
    until = time.monotonic() + _WRITER_S
    while time.monotonic() < until:
        found = pipe.read(1 << 16)
        if found or found is None:  # there is a writer, who has not written yet
            return found or b""
        time.sleep(0.02)
    raise InputError("is a pipe that nobody writes to", file=str(pipe.name))


def text_of(content: bytes, file: str, *, escapes: bool = False) -> str:
    """A file's bytes as text. Raises InputError with the line where it is not UTF-8, or holds a
    character that a terminal acts on; with `escapes`, as a string of JSON says one too."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        said = "UTF-16 text" if wide else f"not UTF-8 text at byte {error.start}"
        raise InputError(said, file=file, accepted="UTF-8 text") from None
    found = ACTS.search(text)
    code = ord(found[0]) if found else 0
    if found is None and escapes and (found := _ESCAPED.search(text)):
        code = int(found[1], 16) if found[1] else _SHORT[found[0][-1].lower()]
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        said = f"read the character U+{code:04X}"
        raise InputError(said, file=file, line=line, accepted="text without it")
    return text


def full_path(path: Path | str) -> str:
    """The path from the root, links followed; of links in a circle, as far as it goes. Raises
    InputError for a path with a zero in it."""
    try:
        return os.path.realpath(path)
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", file=str(path)) from None


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside `path`, renamed to it at the end: a reader never sees half of it, and
    nothing is left of a write that failed. Where `path` is a link, what it leads to is replaced; a
    pipe, a device and what a process has open are written themselves. Raises StorageError when it
    cannot be written."""
    import tempfile  # noqa: PLC0415 - 8 ms that a process which writes nothing need not wait

    try:
        own, path = path, Path(full_path(path))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _open_already(own) or (path.exists() and not path.is_file()):
            with own.open("wb") as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"{path}: cannot be written: {reason}") from error


def _open_already(path: Path) -> bool:
    """Whether a path stands for what a process has open, such as /dev/stdout."""
    leads = os.readlink(path) if path.is_symlink() else ""
    return any(one.startswith(("/dev/", "/proc/")) for one in (os.path.abspath(path), leads))


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replaces files of a folder: none where one cannot be written; else one after another, the
    last last."""
    with ExitStack() as every:  # which ends with what it began with
        for name, content in [*contents.items()][::-1]:
            file = every.enter_context(replacing(folder / name))
            file.write(content)
            file.flush()


def write_text(folder: Path, name: str, text: str) -> None:
    """`write_files` of one text in UTF-8."""
    write_files(folder, {name: text.encode("utf-8")})


def json_text(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """A document as its file holds it."""
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write_json(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    write_text(folder, name, json_text(document))
