"""YAML text to plain values and the line of each: safe, no duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from dse.errors import InputError, acting
from dse.files import text_of
from dse.schema.loader import KeyPath, dotted


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as the text that was written."""


# No file nests deeper than its brackets and the longest run of marks that a line begins with.
_DEEP = 300
# Python refuses to print whole numbers beyond 4300 digits.
_MOST_BITS = 10_000
# Anchors and aliases can make a short file unfold to more values than any memory holds.
_MOST_VALUES = 1_000_000
# What YAML 1.1 takes for a number and a person does not: 1:30 (90), 0x1F, 0b1, 010 (8), 1_000.
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_ODD_NUMBER = re.compile(r"[-+]?(?:0[0-9xb_]|[0-9.]+[_:])")
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


def parse(content: bytes, file: str) -> tuple[dict[str, Any], Mapping[KeyPath, int]]:
    """The mapping that a file holds, and the 1-based line of every key path. Raises InputError: not
    UTF-8, not YAML, not a mapping, a key written twice."""
    text = text_of(content, file).replace("\r\n", "\n").replace("\r", "\n")
    try:
        loader, node = _compose(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"read the character U+{ord(text[error.position]):04X}"
        raise InputError(message, file=file, line=line, accepted="text without it") from None
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
    return data, build.lines


def _syntax_error(error: Exception, file: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return InputError(
        f"not YAML: {problem}", file=file, line=mark.line + 1 if mark else None, accepted="YAML"
    )


class _Builder:
    """The values of nodes, and the line of every key and item; an aliased node is built once, and
    counts each time: who reads the document sees its values as often."""

    def __init__(self, loader: Any, file: str) -> None:
        self.loader, self.file = loader, file
        self.lines: dict[KeyPath, int] = {}
        self.built: dict[int, Any] = {}
        self.values, self.sizes = 0, dict[int, int]()

    def _count(self, values: int, node: yaml.Node) -> None:
        self.values += values
        if self.values > _MOST_VALUES:
            raise _wrong(f"aliases that unfold to more than {_MOST_VALUES:,} values", node)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """Raises InputError for a key that is written twice."""
        before = self.values
        self._count(self.sizes.get(id(node), 1), node)
        if isinstance(node, yaml.ScalarNode):
            if found := acting(node.value):
                raise InputError(
                    f"read the character {found}",
                    file=self.file,
                    line=node.start_mark.line + 1,
                    field=dotted(path),
                    accepted="text without it",
                )
            if node.tag == "tag:yaml.org,2002:str":
                return node.value
            if node.tag in _NUMBERS and _ODD_NUMBER.match(node.value):
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
            if id(node) not in self.sizes:
                raise _wrong("a value that holds itself", node)
            return self.built[id(node)]
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            return self.loader.construct_object(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            items = self.built[id(node)] = []
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index)))
            self.sizes[id(node)] = self.values - before
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
        self.sizes[id(node)] = self.values - before
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
