"""A verb from the signature of its library function: one declaration of each option.

Every verb made here shares --out, --json, --set, --prices, --as-of, --costs, --chip-file,
--efficiency-file and --detail. Its other options are the function's arguments, with their types,
defaults and `Opt`s (`dse.options`); what `**fields` takes is `--set FIELD=VALUE`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click

from dse.cli.options import (
    Between,
    Whole,
    chip_files_option,
    efficiency_option,
    json_option,
    options,
    out_option,
    price_options,
    read_catalog,
)
from dse.cli.printing import Progress, deliver
from dse.options import Opt
from dse.vocabulary import find

if TYPE_CHECKING:
    from dse.schema.reader import Table

FLAGS = {"true": True, "false": False}
OWN = ("catalog", "progress")  # arguments that the command line makes itself


class Verb(click.Command):
    """`settings` are the fields that --set takes."""

    settings: tuple[str, ...] = ()


def verb(
    function: Callable[..., Any],
    *,
    fields: Table[Any] | None = None,
    examples: Sequence[str] = (),
    name: str = "",
    check: Callable[[dict[str, Any]], None] = lambda given: None,
) -> Verb:
    """The command that calls `function` and delivers its Answer. `fields` are those of `--set`;
    `check` raises InputError for arguments that do not go together."""
    name = name or function.__name__
    parameters = inspect.signature(function, eval_str=True).parameters
    own = [
        _parameter(parameter)
        for parameter in parameters.values()
        if parameter.name not in OWN and parameter.kind is not parameter.VAR_KEYWORD
    ]

    def run(as_json: bool, out: Any, detail: bool, chip_files: Sequence[str], **given: Any) -> None:
        check(given)
        given |= read_settings(given.pop("set", ()), fields)
        if "progress" in parameters:
            given["progress"] = Progress()
        answer = function(**given, catalog=read_catalog(chip_files))
        deliver(answer, out=out, as_json=as_json, detail=detail)

    words = inspect.getdoc(function) or ""
    text = words.partition("\n\n")[0]
    if examples:
        text += "\n\n\b\n" + "\n".join(examples)
    files = (chip_files_option, efficiency_option, price_options)
    shared = options((*files, out_option(name), json_option, detail))
    command = Verb(name, params=own, callback=run, help=text)
    command.params += _params_of(shared)
    if fields is not None:
        command.settings = fields.names
        names = ", ".join(fields.names)
        setting = click.Option(
            ["--set"],
            multiple=True,
            metavar="FIELD=VALUE",
            help=f"Set one more field, as in the files: {names}.",
        )
        command.params.insert(len(own), setting)
    return command


detail = click.option("--detail", is_flag=True, help="Print every table and what it rests on.")


def _params_of(decorate: Callable[[Any], Any]) -> list[click.Parameter]:
    def holder() -> None: ...

    decorate(holder)
    return list(reversed(getattr(holder, "__click_params__", ())))


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """The option, or argument, of a parameter of a function."""
    kind, opt = parameter.annotation, Opt()
    if get_origin(kind) is Annotated:
        opt = next(one for one in kind.__metadata__ if isinstance(one, Opt))
        kind = kind.__origin__
    several = get_origin(kind) is tuple
    kind = get_args(kind)[0] if several else kind
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    required = parameter.default is inspect.Parameter.empty
    if opt.positional:
        nargs = -1 if several else 1
        metavar = opt.metavar or None
        return click.Argument([parameter.name], required=required, nargs=nargs, metavar=metavar)
    row = find(parameter.name)
    said = opt.help or (f"{row.meaning[0].upper()}{row.meaning[1:]}." if row else "")
    more: dict[str, Any] = {"help": said, "multiple": several, "metavar": opt.metavar or None}
    if kind is bool:
        more |= {"is_flag": True, "metavar": None}
    elif get_origin(kind) is Literal:
        more["type"] = click.Choice(list(get_args(kind)))
    elif kind in (int, float) and opt.most is not None:
        bounds = (opt.least or 0, opt.most)
        more["type"] = Whole(*bounds) if kind is int else Between(*bounds)
    elif kind in (int, float):
        more["type"] = kind
    if not required:
        more |= {"default": parameter.default}
        more |= {"show_default": parameter.default not in (None, False, ())}
    flag = f"--{(opt.flag or parameter.name).replace('_', '-')}"
    return click.Option([flag, parameter.name], **more)


def _value(text: str) -> str | float | bool:
    """A text as a file would have it: a flag, a number, or itself."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text) if text.isascii() and "_" not in text else text
    return FLAGS.get(text.strip(), text.strip())


def read_settings(written: Sequence[str], fields: Table[Any] | None) -> Mapping[str, Any]:
    """The values of `--set FIELD=VALUE`, read as they are in a file. Raises InputError."""
    from dse.errors import InputError
    from dse.schema.reader import Listed

    lists = [one.name for one in fields.fields if isinstance(one.kind, Listed)] if fields else []
    found: dict[str, Any] = {}
    for text in written:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            known = ", ".join(fields.names) if fields else ""
            raise InputError(f"read {text!r}", field="--set", accepted=f"FIELD=VALUE, of {known}")
        if name in found:
            raise InputError(f"{name} is given twice", field="--set", accepted="each field once")
        found[name] = [_value(v) for v in value.split(",")] if name in lists else _value(value)
    if not found or fields is None:
        return found
    try:
        return fields.of(found)
    except InputError as error:
        place = f"--set {error.field}" if error.field else "--set"
        raise InputError(error.message, field=place, accepted=error.accepted) from None
