"""dse export: a point in the words of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import LOAD, json_option, read_catalog, refuse
from dse.cli.point import POINT_FLAGS, estimate_flags, point_options
from dse.cli.printing import print_json, say

if TYPE_CHECKING:
    from dse.questions.export import Export

FORMATS = ("hf", "vllm", "sglang", "trtllm", "megatron")


@click.command("export")
@click.argument("study", required=False)
@click.argument("point", required=False)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    required=True,
    help="hf: config.json of transformers; vllm, sglang, trtllm: the command of a server; "
    "megatron: arguments of Megatron-LM.",
)
@click.option("--out", metavar="DIR", help="Write the files there (or one file); else print them.")
@click.option(
    "--architecture", metavar="CLASS", help="Class of transformers; else the one that fits best."
)
@click.option(
    "--context", type=LOAD, metavar="N", help="Longest sequence; else that of the workload."
)
@click.option(
    "--checkpoint", metavar="PATH", help="Where a server finds the weights; else the model's id."
)
@point_options
@json_option
def command(
    study: str | None,
    point: str | None,
    format_: str,
    out: str | None,
    architecture: str | None,
    context: int | None,
    checkpoint: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """A shape or a point as files that another tool reads.

    \b
    dse export studies/quickstart best --format hf --out shape
    dse export studies/quickstart best --format vllm
    dse export --model deepseek-v3 --format megatron --tp 2 --ep 16 --dp 8 --context 4096
    dse export --model deepseek-v3 --chip h200_sxm --dp 8 --ep 8 --format sglang

    POINT is a number of front.csv or one of cheapest, fastest, best, knee.
    """
    from dse.errors import InputError

    if out == "":
        raise InputError("read ''", field="--out", accepted="a folder, or the name of the file")
    if study is not None:
        refuse(POINT_FLAGS, "STUDY POINT")
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse export STUDY POINT")
    if format_ in ("hf", "megatron"):
        refuse(["checkpoint"], f"--format {format_}: no server is started")
        made = _shape(study, point, format_, architecture, context, flags)
    else:
        refuse(["context"], f"--format {format_}: the workload says how long a request is")
        made = _command(study, point, format_, architecture, checkpoint, flags)
    _deliver(made, out, as_json)


def _shape(
    study: str | None,
    point: str | None,
    format_: str,
    architecture: str | None,
    context: int | None,
    flags: dict[str, Any],
) -> Export:
    """hf and megatron: the shape, without a prediction."""
    from dse.errors import InputError
    from dse.questions.export.ask import DEGREES, export

    if study is None:
        used = ("model", "tp", "pp", "dp", "ep") if format_ == "megatron" else ("model",)
        refuse(set(POINT_FLAGS) - set(used), f"--format {format_}, which holds a shape")
        if not flags["model"]:
            raise InputError("--model is missing", accepted="--model M, or STUDY POINT")
    if format_ == "megatron":
        refuse(["architecture"], "--format megatron, which has classes of its own")
    options: dict[str, Any] = {} if study is not None else {name: flags[name] for name in DEGREES}
    return export(
        study or flags["model"],
        point,
        format=format_,
        context=context,
        architecture=architecture,
        **options,
    )


def _command(
    study: str | None,
    point: str | None,
    format_: str,
    architecture: str | None,
    checkpoint: str | None,
    flags: dict[str, Any],
) -> Export:
    """vllm, sglang and trtllm: the predicted point."""
    from dse.questions.export import export_command
    from dse.questions.export.ask import export

    own: dict[str, Any] = {"checkpoint": checkpoint, "architecture": architecture}
    if study is not None:
        return export(study, point, format=format_, catalog=read_catalog(), **own)
    answer = estimate_flags(flags | {"backend": flags["backend"] or format_})
    catalog, _ = read_catalog(flags["chip_files"]).with_chip(flags["chip"])
    return export_command(
        answer,
        format_,
        catalog,
        checkpoint=checkpoint,
        architecture=architecture,
    )


def _deliver(made: Export, out: str | None, as_json: bool) -> None:
    """Writes the files, or prints them; notes beside."""
    written = [] if out is None else _write(made, Path(out))
    if as_json:
        files = {} if written else {"files": dict(made.files)}
        notes = list(made.notes)
        print_json({**made.document, "notes": notes, **files, "written": written})
        return
    if out is None:
        for k, (name, text) in enumerate(made.files.items()):
            if k and name == "config.json":
                continue  # beside a command only where files are written
            click.echo((f"# {name}\n" if k else "") + text, nl=False)
        for note in made.notes:
            click.echo(f"note: {note}", err=True)
        return
    say(f"Wrote {', '.join(written)}.")
    if "parameters" in made.document:
        for line in _parameter_words(made.document):
            say(line, "  ")
    say(f"Checked against {made.document['checked_with']}.")
    for note in made.notes:
        say(f"- {note}", "  ")


def _write(made: Export, out: Path) -> list[str]:
    """Into a folder, or, where there is one file and its ending is given, as that file."""
    from dse.files import write_text

    first = next(iter(made.files))
    if len(made.files) == 1 and out.suffix == Path(first).suffix and not out.is_dir():
        write_text(out.parent, out.name, made.files[first])
        return [str(out)]
    for name, text in made.files.items():
        write_text(out, name, text)
    return [str(out / name) for name in made.files]


def _parameter_words(document: Any) -> list[str]:
    counts = document["parameters"]
    lines = [f"{document['architecture']}: {counts['of_the_class']:,} parameters."]
    if counts["beyond"]:
        parts = ", ".join(f"{number:+,} {what}" for what, number in counts["beyond"].items())
        lines.append(f"The count of dse is {counts['counted']:,}; the class has {parts}.")
    else:
        lines.append("The count of dse is the same.")
    if document["other_architectures"]:
        names = ", ".join(document["other_architectures"])
        lines.append(f"The shape is also that of {names} (--architecture).")
    return lines
