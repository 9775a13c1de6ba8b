"""dse export: a shape or a point as files of transformers, vLLM, SGLang, TensorRT-LLM, Megatron."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import LOAD, NoModel, Sectioned, json_option, read_catalog, refuse
from dse.cli.point import (
    OF_POINT,
    POINT_FLAGS,
    POOL_FLAGS,
    check_load,
    point_options,
    pool_options,
)
from dse.cli.printing import print_json, say, width

if TYPE_CHECKING:
    from dse.questions.export import Export

SHAPES, DEGREES = ("hf", "megatron"), ("tp", "pp", "dp", "ep")
FORMATS = ("hf", "vllm", "sglang", "trtllm", "megatron")


@click.command("export", cls=Sectioned, sections=OF_POINT, brief=OF_POINT)
@click.argument("study", required=False, type=NoModel())
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
@pool_options
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

    Of prefill and decode on pools of their own, the workers of both and their router are written.
    POINT is a number of front.csv or one of start, cheapest, fastest, best, knee.
    """
    from dse.errors import InputError
    from dse.questions.export import export

    if out == "":
        raise InputError("read ''", field="--out", accepted="a folder, or the name of the file")
    if study is not None:
        refuse((*POINT_FLAGS, *POOL_FLAGS), "STUDY POINT")
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse export STUDY POINT")
    own: dict[str, Any] = {"architecture": architecture}
    if format_ in SHAPES:
        refuse(["checkpoint"], f"--format {format_}: no server is started")
        own["context"] = context
    else:
        refuse(["context"], f"--format {format_}: the workload says how long a request is")
        own["checkpoint"] = checkpoint
    if format_ == "megatron":
        refuse(["architecture"], "--format megatron, which has classes of its own")
    if study is None:
        own |= _options(format_, flags)
    catalog = read_catalog(flags["chip_files"])
    subject = study or flags["model"]
    _deliver(export(subject, point, format=format_, catalog=catalog, **own), out, as_json)


def _options(format_: str, flags: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a point: of a shape its degrees alone."""
    from dse.errors import InputError

    if format_ in SHAPES:
        used = {"model", *DEGREES} if format_ == "megatron" else {"model"}
        refuse({*POINT_FLAGS, *POOL_FLAGS} - used, f"--format {format_}, which holds a shape")
    if not flags["model"]:
        raise InputError("--model is missing", accepted="--model M, or STUDY POINT")
    if format_ in SHAPES:
        return {name: flags[name] for name in DEGREES}
    check_load(flags, pools=True)
    options = {name: value for name, value in flags.items() if name not in ("model", "chip_files")}
    if flags["backend"] is None:
        del options["backend"]
    return options


def _deliver(made: Export, out: str | None, as_json: bool) -> None:
    """Writes the files, or prints them; notes beside."""
    written = [] if out is None else [str(path) for path in made.save(Path(out))]
    if as_json:
        document = dict(made.document)
        if written:
            del document["files"]
        print_json({**document, "written": written})
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
    click.echo(made.to_text(width()))
