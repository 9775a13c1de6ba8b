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
    NoModel,
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
OPTION = "_option"  # ends the name of an option that says the same as an argument


class Verb(click.Command):
    """`settings` are the fields that --set takes."""

    settings: tuple[str, ...] = ()


def verb(
    function: Callable[..., Any],
    *,
    fields: Table[Any] | None = None,
    examples: Sequence[str] = (),
    name: str = "",
    stem: str = "",
    check: Callable[[dict[str, Any]], None] = lambda given: None,
    others: str = "",
    space: str = "",
    also: str = "",
) -> Verb:
    """The command that calls `function` and delivers its Answer. `fields` are those of `--set`,
    `others` the argument that takes what else it says, as texts by name (`also` tells of it).
    `check` raises InputError for arguments that do not go together. `space` is the argument whose
    chip files --prices may price, `stem` the name of the files of --out, where that is not `name`.
    """
    name = name or function.__name__
    parameters = inspect.signature(function, eval_str=True).parameters
    own = [
        made
        for parameter in parameters.values()
        if parameter.name not in (*OWN, others) and parameter.kind is not parameter.VAR_KEYWORD
        for made in _parameters(parameter)
    ]
    either = [one.name.removesuffix(OPTION) for one in own if (one.name or "").endswith(OPTION)]

    def run(
        as_json: bool, out: Any, detail: bool, chip_files: Sequence[str] = (), **given: Any
    ) -> None:
        for argument in either:
            given[argument] = _one_of(given[argument], given.pop(argument + OPTION), argument)
        check(given)
        given |= read_settings(given.pop("set", ()), fields, others)
        if "progress" in parameters:
            given["progress"] = Progress()
        if given.get(space):
            from dse.schema.study import chip_files_of

            chip_files = (*chip_files, *chip_files_of(given[space]))
        if "catalog" in parameters:
            given["catalog"] = read_catalog(chip_files)
        deliver(function(**given), out=out, as_json=as_json, detail=detail)

    words = inspect.getdoc(function) or ""
    text = words.partition("\n\n")[0]
    if examples:
        text += "\n\n\b\n" + "\n".join(examples)
    files = (chip_files_option, efficiency_option, price_options) * ("catalog" in parameters)
    shared = options((*files, out_option(stem or name), json_option, detail))
    command = Verb(name, params=own, callback=run, help=text)
    command.params += _params_of(shared)
    if fields is not None:
        command.settings = fields.names
        names = ", ".join(fields.names)
        setting = click.Option(
            ["--set"],
            multiple=True,
            metavar="FIELD=VALUE",
            help=f"{also}Set one more field, as in the files: {names}.",
        )
        command.params.insert(len(own), setting)
    return command


detail = click.option("--detail", is_flag=True, help="Print every table and what it rests on.")


def _params_of(decorate: Callable[[Any], Any]) -> list[click.Parameter]:
    def holder() -> None: ...

    decorate(holder)
    return list(reversed(getattr(holder, "__click_params__", ())))


def _one_of(argument: Any, option: Any, flag: str) -> Any:
    """What is given as an argument or as an option. Raises InputError for both."""
    if argument and option:
        from dse.errors import InputError

        raise InputError(f"read {argument!r} and --{flag} {option}", accepted="one of the two")
    return argument or option


def _parameters(parameter: inspect.Parameter) -> list[click.Parameter]:
    """The option, or argument, of a parameter of a function; or both for one value."""
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
        nargs, metavar = (-1 if several else 1), opt.metavar or None
        kind = NoModel() if parameter.name in ("study", "plan") else None
        made: list[click.Parameter] = [
            click.Argument(
                [parameter.name], required=required, nargs=nargs, metavar=metavar, type=kind
            )
        ]
        if opt.flag:
            flag, said = f"--{opt.flag}", "The same as the argument."
            made.append(click.Option([flag, parameter.name + OPTION], help=said, metavar="TEXT"))
        return made
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
    named = opt.flag or (parameter.name.removesuffix("s") if several else parameter.name)
    flag = f"--{named.replace('_', '-')}"
    return [click.Option([flag, parameter.name], **more)]


def _value(text: str) -> str | float | bool:
    """A text as a file would have it: a flag, a number, or itself."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text) if text.isascii() and "_" not in text else text
    return FLAGS.get(text.strip(), text.strip())


def read_settings(
    written: Sequence[str], fields: Table[Any] | None, others: str = ""
) -> Mapping[str, Any]:
    """The values of `--set FIELD=VALUE`, read as they are in a file; under `others` the texts of
    names that are no field. Raises InputError."""
    from dse.errors import InputError
    from dse.schema.loader import did_you_mean
    from dse.schema.reader import Listed

    lists = [one.name for one in fields.fields if isinstance(one.kind, Listed)] if fields else []
    found: dict[str, Any] = {}
    rest: dict[str, str] = {}
    for text in written:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            known = ", ".join(fields.names) if fields else ""
            raise InputError(f"read {text!r}", field="--set", accepted=f"FIELD=VALUE, of {known}")
        if name in found or name in rest:
            raise InputError(f"{name} is set twice", field="--set", accepted="each field once")
        if others and fields is not None and name not in fields.names:
            if "." not in name and (hint := did_you_mean(name, fields.names)):
                raise InputError(f"unknown field {name!r}{hint}", field="--set")
            rest[name] = value
            continue
        found[name] = [_value(v) for v in value.split(",")] if name in lists else _value(value)
    if not found or fields is None:
        return found | ({others: rest} if rest else {})
    try:
        return {**fields.of(found), **({others: rest} if rest else {})}
    except InputError as error:
        place = f"--set {error.field}" if error.field else "--set"
        raise InputError(error.message, field=place, accepted=error.accepted) from None
