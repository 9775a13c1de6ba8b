"""The questions that a claim may ask: calls of the library by name, each giving one document."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.questions.train.ask import OPTION_OF
from dse.schema import deployed
from dse.schema.catalog import is_chip_file
from dse.schema.model_catalog import load_model
from dse.schema.training_run import TRAINING

_EVIDENCE = "dse.accuracy.claims.evidence"
# By name, the module of the function.
ASKED: Mapping[str, str] = {
    "check": "dse.questions.check.ask",
    "estimate": "dse.questions.estimate.ask",
    "fewest_chips": "dse.questions.estimate.ask",
    "rack_bounds": "dse.questions.rack",
    "scale": "dse.questions.scale",
    "train": "dse.questions.train.ask",
    "whatif": "dse.questions.whatif.whatif",
    **dict.fromkeys(("chip", "energy", "measured", "pairs", "reached"), _EVIDENCE),
}


# Arguments whose option has another name.
FLAGS = {
    "chips": "--chip",
    "jitters": "--jitter",
    "only_memory": "--memory",
    "settings": "--set",
}


def _chip(name: str) -> None:
    if not is_chip_file(name):
        load_catalog().chip(name)


# Arguments that name something of the catalog, and what raises InputError where it has none.
FINDS: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(("model",), load_model),
    **dict.fromkeys(("chip", "chips", "prefill_chip", "before", "after"), _chip),
}


class Asker:
    """Asks each question once, of one catalog."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or load_catalog()
        self._known: dict[str, Any] = {}

    def document(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What the call answers. Raises InputError for arguments that it does not have, and for
        what it refuses."""
        key = f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"
        if key not in self._known:
            self._known[key] = self._ask(name, arguments)
        return self._known[key]

    @staticmethod
    def known(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that the call has."""
        return {key: value for key, value in arguments.items() if key in parameters(name)}

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> Any:
        call = getattr(import_module(ASKED[name]), name)
        known = parameters(name)
        given = {key: value for key, value in arguments.items() if value is not None}
        if "catalog" in known:
            given["catalog"] = self.catalog
        try:
            inspect.signature(call).bind(**given)
        except TypeError as error:
            raise InputError(f"{name}: {error}", field="with", accepted=", ".join(known)) from None
        answer = call(**given)
        return getattr(answer, "document", answer)


# What a word of a type admits, and how a message says it.
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
    "Mapping[str, Any]": ((Mapping,), "a mapping"),
}


def misfit(name: str, argument: str, value: object) -> str:
    """What the argument of a call takes, where `value` is of another type; else nothing."""
    words = [word for word in parameters(name)[argument].split(" | ") if word in _TYPES]
    if value is None or not words:
        return ""
    for word in words:
        if isinstance(value, _TYPES[word][0]) and (word == "bool" or not isinstance(value, bool)):
            return ""
    return " or ".join(_TYPES[word][1] for word in words)


@cache
def parameters(name: str) -> Mapping[str, str]:
    """The arguments that a call has, with their types; those behind `**` are a type of
    `dse.schema.deployed`, or the options of a training run, which reads them itself."""
    found: dict[str, str] = {}
    module = import_module(ASKED[name])
    for key, one in inspect.signature(getattr(module, name)).parameters.items():
        behind = str(one.annotation).removeprefix("Unpack[").removesuffix("]")
        if one.kind is not one.VAR_KEYWORD:
            found[key] = str(one.annotation).removeprefix("Annotated[").split(", Opt(")[0]
        elif behind != "Any":
            types = vars(deployed)[behind].__annotations__
            found |= {key: getattr(of, "__forward_arg__", str(of)) for key, of in types.items()}
        elif settings := getattr(module, "SETTINGS", None):
            found |= dict.fromkeys(settings.names, "Any")
        else:
            found |= dict.fromkeys((OPTION_OF.get(field, field) for field in TRAINING.names), "Any")
    return found


def at(document: Any, path: str) -> Any:
    """The value at a place of a document: keys with dots between, a number for an item of a list,
    `key=value` (several with & between) for the first item that has it. None where there is
    none."""
    found = document
    for step in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list | tuple):
            found = _item(found, step)
        else:
            return None
    return found


def _item(items: Any, step: str) -> Any:
    if "=" in step:
        wanted = [pair.split("=", 1) for pair in step.split("&")]
        return next((one for one in items if all(_same(one.get(k), v) for k, v in wanted)), None)
    return items[int(step)] if step.lstrip("-").isdigit() and int(step) < len(items) else None


def _same(found: Any, written: str) -> bool:
    number = isinstance(found, int | float) and written.replace(".", "", 1).isdigit()
    return found == float(written) if number else str(found) == written


def command(name: str, arguments: Mapping[str, Any]) -> str:
    """The command line that asks the same; empty where there is none."""
    given = {key: value for key, value in arguments.items() if value is not None}
    verb = {"fewest_chips": "estimate", "rack_bounds": "scale"}.get(name, name)
    given |= {"fit": True} if name == "fewest_chips" else {}
    if name == "chip":
        settings = "".join(f" --set {one}" for one in given.get("settings", ()))
        return f"dse catalog chips {'derive' if settings else 'show'} {given['chip']}{settings}"
    if ASKED[name] == _EVIDENCE:
        return ""
    words, settings = ["dse", verb], getattr(import_module(ASKED[name]), "SETTINGS", None)
    if name in ("train", "check"):
        words.append(str(given.pop("model", "")))
    for key, value in given.items():
        if settings and key in settings.names:
            words += ["--set", f"{key}={value}"]
            continue
        flag = FLAGS.get(key, f"--{key.replace('_', '-')}")
        for one in value if isinstance(value, list) else (value,):
            words += [flag] if one is True else [flag, str(one)] if one is not False else []
    return shlex.join(words)
