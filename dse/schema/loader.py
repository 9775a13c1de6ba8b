"""YAML and CSV at the edge: safe, no duplicate keys, and every mistake with its file and line."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dse import units
from dse.errors import InputError
from dse.record import record

KeyPath = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as the text that was written."""


# No file nests deeper than its brackets and the longest run of marks that a line begins with.
_DEEP = 300
# Python refuses to print whole numbers beyond 4300 digits.
_MOST_BITS = 10_000
_PREFIX = re.compile(r"^[ \t?:-]*", re.MULTILINE)
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _FastLoader(_Parser):
    """The same on the C parser, where PyYAML has it."""


_Loader.yaml_implicit_resolvers = _FastLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _compose(text: str) -> tuple[Any, yaml.Node | None]:
    """A loader and the node of `text`. What is wrong or nested deep goes to the Python parser: its
    words are the same everywhere, and it raises RecursionError where the C parser would crash."""
    opened = text.count("[") + text.count("{")
    if max(opened, *(len(prefix) for prefix in _PREFIX.findall(text))) <= _DEEP:
        try:
            loader = _FastLoader(text)
            return loader, loader.get_single_node()
        except yaml.YAMLError:
            pass
    loader = _Loader(text)
    return loader, loader.get_single_node()


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

    def error(self, path: KeyPath, message: str, accepted: str | None = None) -> InputError:
        place = {"file": self.file, "line": self.line(path)} if self.file else {}
        return InputError(message, field=dotted(path), accepted=accepted, **place)

    def quantity(self, path: KeyPath, text: str | float, dimension: str) -> float:
        """SI value of `text`. Raises InputError that names this file, the line and the field."""
        try:
            return units.parse(text, dimension)
        except InputError as error:
            raise self.error(path, error.message, error.accepted) from None


def dotted(path: KeyPath) -> str:
    """("levels", 0, "latency") -> "levels[0].latency"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A hint at the nearest of the known names, or nothing."""
    return "".join(f"; did you mean {near}?" for near in nearest(name, known))


def nearest(name: object, known: Iterable[str]) -> list[str]:
    """The nearest known name, or nothing."""
    return difflib.get_close_matches(str(name), list(known), n=1)


def load_yaml(path: Path | str) -> Document:
    """Reads one YAML mapping. Raises InputError: no such file, not YAML, a key written twice."""
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
        loader, node = _compose(text)
    except FileNotFoundError:
        raise InputError("no such file", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text at byte {error.start}", file=file) from None
    except ValueError as error:  # a path with a zero in it
        raise InputError(f"cannot be read: {error}", file=file) from None
    except yaml.YAMLError as error:
        raise _syntax_error(error, file) from None
    except RecursionError:
        raise InputError("nested too deep", file=file) from None
    if not isinstance(node, yaml.MappingNode):
        raise InputError(
            "not a mapping", file=file, line=1, accepted="lines of the form `field: value`"
        )
    build = _Builder(loader, file)
    try:
        data = build.value(node, ())
    except (yaml.YAMLError, ValueError) as error:
        raise _syntax_error(error, file) from None
    except RecursionError:
        raise InputError("nested too deep", file=file) from None
    return Document(file, data, build.lines)


def csv_rows(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV file. Raises InputError where it cannot be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from csv.reader(stream, strict=True)
    except FileNotFoundError:
        raise InputError("no such file", file=str(path), accepted="a CSV file") from None
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read: {why}", file=str(path), accepted="a CSV file") from None


def _syntax_error(error: Exception, file: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return InputError(
        f"not YAML: {problem}", file=file, line=mark.line + 1 if mark else None, accepted="YAML"
    )


class _Builder:
    """The values of nodes, and the line of every key and item; an aliased node is built once."""

    def __init__(self, loader: Any, file: str) -> None:
        self.loader, self.file = loader, file
        self.lines: dict[KeyPath, int] = {}
        self.built: dict[int, Any] = {}

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """Raises InputError for a key that is written twice."""
        if isinstance(node, yaml.ScalarNode):
            if node.tag == "tag:yaml.org,2002:str":
                return node.value
            try:
                value = self.loader.construct_object(node)
            except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
                kind = node.tag.rpartition(":")[2]
                raise _wrong(f"read {node.value!r} as {kind}, which it is not", node) from None
            if isinstance(value, int) and value.bit_length() > _MOST_BITS:
                raise _wrong("a number of too many digits", node)
            return value
        if id(node) in self.built:
            return self.built[id(node)]
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            return self.loader.construct_object(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            items = self.built[id(node)] = []
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index)))
            return items
        found = self.built[id(node)] = {}
        for key, item in node.value:
            child, line = (*path, str(key.value)), key.start_mark.line + 1
            if child in self.lines:
                raise InputError(
                    f"written twice, first on line {self.lines[child]}",
                    file=self.file,
                    line=line,
                    field=dotted(child),
                    accepted="each field once",
                )
            self.lines[child] = line
            self._put(found, key, item, child)
        return found

    def _put(self, found: dict[Any, Any], key: yaml.Node, item: yaml.Node, path: KeyPath) -> None:
        if key.tag == "tag:yaml.org,2002:merge":  # what the mapping says itself comes first
            merged = self.value(item, path)
            for one in merged if isinstance(merged, list) else [merged]:
                if not isinstance(one, dict):
                    raise _wrong("nothing to merge", item)
                for name, value in one.items():
                    found.setdefault(name, value)
            return
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong("found a key that is no text", key)
        found[self.value(key, path)] = self.value(item, path)


def _wrong(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
