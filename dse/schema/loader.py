"""YAML at the edge: safe, no duplicate keys, and every mistake with its file, line and field."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from dse import units
from dse.errors import InputError, InputErrors

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)

# Of every model of a file. Numbers become text where text is read, so that `dse.units` can say
# that the unit is missing.
STRICT = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, defer_build=True)


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as the text that was written."""


# No file nests deeper than its brackets and the longest run of marks that a line begins with.
_DEEP = 300
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


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its content and the 1-based line of every key path. A mapping that a program
    gives has no lines (None)."""

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
        return InputError(
            message, file=self.file, line=self.line(path), field=dotted(path), accepted=accepted
        )

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
    return "".join(f"; did you mean {near}?" for near in _near(name, known))


def _near(name: object, known: Iterable[str]) -> list[str]:
    """The nearest known name, or nothing."""
    return difflib.get_close_matches(str(name), list(known), n=1)


def reject(message: str, accepted: str) -> PydanticCustomError:
    """The error that a pydantic validator raises so that `validate` can say what is accepted."""
    return PydanticCustomError("rejected", "{message}", {"message": message, "accepted": accepted})


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
    except yaml.YAMLError as error:
        raise _syntax_error(error, file) from None
    except RecursionError:
        raise InputError("nested too deep", file=file) from None
    if not isinstance(node, yaml.MappingNode):
        raise InputError(
            "not a mapping", file=file, line=1, accepted="lines of the form `field: value`"
        )
    lines: dict[KeyPath, int] = {}
    try:
        _walk(node, (), lines, set(), file)
        data = loader.construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        raise _syntax_error(error, file) from None
    except RecursionError:
        raise InputError("nested too deep", file=file) from None
    return Document(file, data, lines)


def _syntax_error(error: Exception, file: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return InputError(
        f"not YAML: {problem}", file=file, line=mark.line + 1 if mark else None, accepted="YAML"
    )


def _walk(
    node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], seen: set[int], file: str
) -> None:
    """Notes the line of every key and item; an aliased node is walked once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            _walk(item, (*path, index), lines, seen, file)
    if isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            child, line = (*path, str(key.value)), key.start_mark.line + 1
            if child in lines:
                raise InputError(
                    f"written twice, first on line {lines[child]}",
                    file=file, line=line, field=dotted(child), accepted="each field once",
                )  # fmt: skip
            lines[child] = line
            _walk(item, child, lines, seen, file)


def validate(model_class: type[Model], document: Document) -> Model:
    """The document as an instance of `model_class`.

    Raises InputError, or InputErrors for several mistakes, each with file, line, field, what was
    read and what is accepted.
    """
    try:
        return model_class.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    misspelt = {
        (*path[:-1], near)
        for path in (d["loc"] for d in details if d["type"] == "extra_forbidden")
        for near in _near(path[-1], _fields_at(model_class, path[:-1]))
    }  # its unknown field says it all, so that the one it stands for is not missing as well
    errors = [
        _explain(model_class, document, detail)
        for detail in details
        if not (detail["type"] == "missing" and detail["loc"] in misspelt)
    ]
    raise errors[0] if len(errors) == 1 else InputErrors(errors)


def _explain(model_class: type[BaseModel], document: Document, detail: ErrorDetails) -> InputError:
    path, kind, read = tuple(detail["loc"]), detail["type"], detail["input"]
    if kind == "extra_forbidden":
        known = _fields_at(model_class, path[:-1])
        message = f"unknown field {path[-1]!r}{did_you_mean(path[-1], known)}"
        return document.error(path, message, ", ".join(known))
    if kind == "missing":
        known = _fields_at(model_class, path[:-1])
        return document.error(path, "missing field", f"{path[-1]!r}, among {', '.join(known)}")
    context = detail.get("ctx", {})
    if kind == "rejected":
        return document.error(path, f"read {_short(read)}: {context['message']}",
                              context["accepted"])  # fmt: skip
    expected = detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    hint = ""
    if kind == "literal_error":
        hint = did_you_mean(read, _quoted(str(context["expected"])))
    return document.error(path, f"read {_short(read)}{hint}", expected)


def _quoted(text: str) -> list[str]:
    """The words between single quotes."""
    return text.split("'")[1::2]


def _short(value: object) -> str:
    if isinstance(value, dict):
        return f"a mapping of {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(model_class: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """Names of the fields that the model at `path` has; list positions and map keys are passed."""
    models = [model_class]
    for part in path:
        nested = [
            inner
            for model in models
            if part in model.model_fields
            for inner in _models_in(model.model_fields[str(part)].annotation)
        ]
        models = nested or models
    return tuple(dict.fromkeys(name for model in models for name in model.model_fields))


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
