"""The shipped YAML files as JSON, which is read in a tenth of the time.

Each line of a file of documents is a digest and one document as JSON: nothing in it is executed,
and what is read goes through the same schemas as YAML does. The digest is of the bytes of the YAML
file, of the code that reads it and of the JSON, so that a line of other bytes, of an older version
or with a letter changed is no line at all, and the YAML file is read. A wheel brings such a file
beside its data (`tools/compiled_wheel.py`). That of a checkout stands in the user's cache folder,
is believed if nobody else can write it, and is written whole when a process ends that had to read
YAML.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from dse.data import data_root
from dse.errors import StorageError
from dse.files import replacing

NAME = "documents.jsonl"
_SIZE = 16  # bytes of a digest
_MOST_BYTES = 32_000_000  # of a cache; it starts anew beyond


@cache
def compiled() -> Compiled:
    """What was compiled for this code."""
    return Compiled(_cache_folder(), data_root() / NAME)


class Compiled:
    """Documents by the bytes of their YAML files. `folder` is the cache, None without one;
    `shipped` the file of the wheel, where there is one."""

    def __init__(self, folder: Path | None, shipped: Path | None = None) -> None:
        self.folder, self.new = folder, dict[bytes, bytes]()
        code = Path(__file__).with_name("yaml_text.py").read_bytes() + Path(__file__).read_bytes()
        self.code = hashlib.blake2b(code, digest_size=_SIZE).digest()
        self.shipped = _lines(shipped) if shipped else {}

    @cached_property
    def cached(self) -> dict[bytes, bytes]:
        """Of the cache folder, which a wheel's commands need not read."""
        folder = self.folder
        return _lines(folder / NAME) if folder and _is_private(folder) else {}

    def find(self, content: bytes) -> dict[str, Any] | None:
        """The document of the bytes of a YAML file, None where it was not compiled."""
        return self._document(self.shipped, content) or self._document(self.cached, content)

    def _document(self, lines: dict[bytes, bytes], content: bytes) -> dict[str, Any] | None:
        check, _, text = lines.get(self._digest(content), b"").partition(b" ")
        if check == self._digest(content, text):
            with suppress(ValueError):
                return json.loads(text)
        return None

    def keep(self, content: bytes, data: dict[str, Any]) -> None:
        """Compiles a document, where JSON can say it, to be written when the process ends."""
        try:
            text = json.dumps(data, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError):
            return
        if repr(json.loads(text)) == repr(data):
            if not self.new and self.folder is not None:
                atexit.register(self.write)
            encoded = text.encode()
            self.new[self._digest(content)] = self._digest(content, encoded) + b" " + encoded

    def text(self) -> bytes:
        """The file of documents, those of before and the new ones."""
        lines = {**self.cached, **self.new}
        if sum(map(len, lines.values())) > _MOST_BYTES:
            lines = self.new
        return b"".join(b"%s %s\n" % item for item in sorted(lines.items()))

    def write(self) -> None:
        """Into the cache folder; where it cannot be written, nothing is cached."""
        if self.folder is None:
            return
        with suppress(OSError, StorageError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(self.folder):
                with replacing(self.folder / NAME) as file:
                    file.write(self.text())

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(self.code, digest_size=_SIZE)
        for part in parts:
            digest.update(b"%d " % len(part))
            digest.update(part)
        return digest.hexdigest().encode()


def _lines(path: Path) -> dict[bytes, bytes]:
    """What stands behind the first word of each line; nothing where the file cannot be read."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError:
        return {}
    return dict(line.split(b" ", 1) for line in content.splitlines() if b" " in line)


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user can change a folder and the file of documents in it."""
    for path in (folder, folder / NAME):
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        foreign = hasattr(os, "geteuid") and about.st_uid != os.geteuid()
        if foreign or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True


def _cache_folder() -> Path | None:
    """Where this system keeps what a program can make again; None without a home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "dse"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home) / "dse" / "cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else home / ".cache") / "dse"
