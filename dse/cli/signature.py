"""A verb from the signature of its library function: one declaration of each option.

Every verb made here shares --out, --json, --set, --prices, --as-of, --costs, --chip-file,
--efficiency-file and --detail. Its other options are the function's arguments, with their types,
defaults and `Opt`s (`dse.options`); what `**fields` takes is `--set FIELD=VALUE`.

    command = verb(estimate, fields=SETTINGS, instead={"fit": Instead(fewest_chips, FIT, Opt(...))})
    command = verb(export, like=estimate, fields=SETTINGS)  # its **options are those of estimate
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click
from click.core import ParameterSource

from dse.cli.options import (
    Between,
    NoModel,
    Whole,
    as_of_option,
    chip_files_option,
    costs_option,
    detail_option,
    efficiency_option,
    json_option,
    out_option,
    prices_option,
    read_catalog,
    refuse,
)
from dse.cli.printing import Progress, deliver
from dse.options import Opt
from dse.record import record
from dse.vocabulary import find

if TYPE_CHECKING:
    from dse.schema.reader import Table

FLAGS = {"true": True, "false": False}
OWN = ("catalog", "progress", "detail", "out")  # arguments that the command line makes itself
FILES = (".csv", ".json", ".html", ".xlsx", ".md")  # what --out writes into a folder
# Of these options the last value does not take the place of the others, where one is taken: several
# are meant.
TWICE = {"chip": "`dse compare CHIP CHIP --model MODEL` sets chips side by side"}
OPTION = "_option"  # ends the name of an option that says the same as an argument


class Verb(click.Command):
    """`settings` are the fields that --set takes."""

    settings: tuple[str, ...] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Tells of a field that is written as an option how it is set, and of several values of
        which one is taken what takes them all."""
        try:
            *_, given = self.make_parser(ctx).parse_args(list(args))
            for one in given:
                if one.name in TWICE and not one.multiple and given.count(one) > 1:
                    ctx.fail(f"{one.opts[0]} is given twice: {TWICE[one.name]}")
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            field = error.option_name.lstrip("-").replace("-", "_")
            found = [name for name in self.settings if field in name]
            if not found:
                raise
            fields = " or ".join(f"--set {name}=VALUE" for name in found)
            ctx.fail(f"{error.option_name} is a field: {fields}")


@record
class Instead:
    """Another function that an option asks, with those options of the verb that it takes, and
    `fields` of its own. The option is its argument of the same name; without one, a flag."""

    function: Callable[..., Any]
    fields: Table[Any] | None
    opt: Opt


def verb(
    function: Callable[..., Any],
    *,
    fields: Table[Any] | None = None,
    examples: str | None = "",
    name: str = "",
    stem: str = "",
    check: Callable[[dict[str, Any]], None] = lambda given: None,
    others: str = "",
    space: str = "",
    also: str = "",
    also_known: Collection[str] = (),
    instead: Mapping[str, Instead] | None = None,
    like: Callable[..., Any] | None = None,
    without: Collection[str] = (),
    out: click.Option | None = None,
    delivered: Callable[..., None] = deliver,
    exit_code: Callable[[Any], int] = lambda answer: 0,
) -> Verb:
    """The command that calls `function` with what the user gave, and delivers its Answer.
    `examples` is a text, such as the docstring of the verb's module, whose indented lines they are.
    `fields` are those of `--set`, `others` the argument that takes what else it says, as texts by
    name: `also_known` are such names, `also` tells of them. `check` raises InputError for arguments
    that do not go together. `space` is the argument whose chip files --prices may price, `stem` the
    name of the files of --out, where that is not `name`. `instead` are options that ask another
    function. What the function takes by `**` are arguments `like` those of another one, whose
    options the command has, too, but for those `without`. `out` makes another option of --out,
    `delivered` writes and prints the answer, `exit_code` is that of an answer."""
    name = name or function.__name__
    modes = instead or {}
    main = Instead(function, fields, Opt())
    taken = [*_arguments(function), *(_arguments(like) if like else ())]
    for flag, mode in modes.items():
        found = _arguments(mode.function)
        valued = any(one.name == flag for one in found)
        asks = Annotated[str | None if valued else bool, mode.opt]
        only = inspect.Parameter.KEYWORD_ONLY
        default = None if valued else False
        taken.append(inspect.Parameter(flag, only, default=default, annotation=asks))
        taken += [one for one in found if one.name != flag]
    left_out = (*OWN, others, *without)
    by_name = {one.name: one for one in reversed(taken) if one.name not in left_out}
    order = dict.fromkeys(one.name for one in taken if one.name in by_name)
    own = [made for argument in order for made in _parameters(by_name[argument])]
    several = next((n for n, one in by_name.items() if one.kind is one.VAR_POSITIONAL), "")
    either = [one.name.removesuffix(OPTION) for one in own if (one.name or "").endswith(OPTION)]

    def run(
        as_json: bool, out: Any, detail: bool, chip_files: Sequence[str] = (), **every: Any
    ) -> None:
        source = click.get_current_context().get_parameter_source
        given = {k: v for k, v in every.items() if source(k) is not ParameterSource.DEFAULT}
        for argument in either:
            option = given.pop(argument + OPTION, None)
            if argument in given or option is not None:
                given[argument] = _one_of(given.get(argument), option, argument)
        asked = next((flag for flag in modes if given.get(flag)), "")
        chosen = modes.get(asked, main)
        takes = {one.name for one in _arguments(chosen.function)}
        if asked:
            strange = given.keys() - takes - {asked, "set"}
            strange |= {argument + OPTION for argument in strange}
            refuse(strange, f"--{asked.replace('_', '-')}")
            given = {key: value for key, value in given.items() if key in takes or key == "set"}
        check(given)
        more = others if asked == "" or others in takes else ""
        given |= read_settings(given.pop("set", ()), chosen.fields, more, also_known)
        if "progress" in takes:
            given["progress"] = Progress()
        if "detail" in takes:
            given["detail"] = detail
        if given.get(space):
            from dse.schema.study import chip_files_of

            chip_files = (*chip_files, *chip_files_of(given[space]))
        if asked and "out" in takes:
            given["out"], out = out, None
        elif delivered is deliver and out is not None and out.suffix in FILES:
            from dse.errors import InputError

            raise InputError(f"read {str(out)!r}", field="--out", accepted="a folder")
        if not asked and "out" in takes:
            given["out"] = out
        if "catalog" in takes:
            given["catalog"] = read_catalog(chip_files)
        first = given.pop(several, ())
        answer = chosen.function(*first, **given)
        delivered(answer, out=out, as_json=as_json, detail=detail)
        if code := exit_code(answer):
            sys.exit(code)

    words = inspect.getdoc(function) or ""
    text = words.partition("\n\n")[0]
    if shown := [line[4:] for line in (examples or "").splitlines() if line.startswith("    ")]:
        text += "\n\n\b\n" + "\n".join(shown)
    shared = [out or out_option(stem or name), json_option, detail_option]
    if any(one.name == "catalog" for one in taken):
        dated = [] if "as_of" in by_name else [as_of_option]
        files = (chip_files_option, efficiency_option, prices_option, *dated, costs_option)
        shared = [*files, *shared]
    command = Verb(name, params=own, callback=run, help=text)
    if fields is not None:
        command.settings = fields.names
        names = ", ".join(fields.names)
        setting = click.Option(
            ["--set"],
            multiple=True,
            metavar="FIELD=VALUE",
            help=f"{also}Set one more field, as in the files: {names}.",
        )
        command.params.append(setting)
    command.params += shared
    return command


def _arguments(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The named arguments of a function."""
    every = inspect.signature(function, eval_str=True).parameters.values()
    return [one for one in every if one.kind is not one.VAR_KEYWORD]


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
    several = get_origin(kind) is tuple or parameter.kind is parameter.VAR_POSITIONAL
    kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
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
            names = [f"--{opt.flag}", parameter.name + OPTION]
            made.append(click.Option(names, help=opt.help, metavar="TEXT"))
        return made
    row = find(parameter.name)
    said = opt.help or (f"{row.meaning[0].upper()}{row.meaning[1:]}." if row else "")
    more: dict[str, Any] = {"help": said, "multiple": several, "metavar": opt.metavar or None}
    more["required"] = required
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
    if kind is bool and parameter.default is None:  # neither is a third answer
        flag += f"/--no-{flag[2:]}"
    return [click.Option([flag, parameter.name], **more)]


def _value(text: str) -> str | float | bool:
    """A text as a file would have it: a flag, a number, or itself."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text) if text.isascii() and "_" not in text else text
    return FLAGS.get(text.strip(), text.strip())


def read_settings(
    written: Sequence[str],
    fields: Table[Any] | None,
    others: str = "",
    also_known: Collection[str] = (),
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
            hint = did_you_mean(name, fields.names)
            if hint and "." not in name and name.lower().replace("-", "_") not in also_known:
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
