"""dse export: a shape or a point as files of transformers, vLLM, SGLang, TensorRT-LLM, Megatron.

Examples:

    dse export studies/quickstart best --format hf --out shape
    dse export studies/quickstart best --format vllm
    dse export --model deepseek-v3 --format megatron --tp 2 --ep 16 --dp 8 --context 4096
    dse export --model deepseek-v3 --chip h200_sxm --dp 8 --ep 8 --format sglang
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.estimate import FIGURES, only_a_point
from dse.cli.printing import print_json, say, width
from dse.cli.signature import verb
from dse.errors import InputError
from dse.questions.estimate.estimate import estimate
from dse.questions.export import SETTINGS, Export, export


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value == "":
        accepted = "a folder, or the name of the file"
        raise InputError("read ''", field="--out", accepted=accepted)
    return None if value is None else Path(value)


def _delivered(made: Export, *, out: Path | None, as_json: bool, **_: Any) -> None:
    """Writes the files, or prints them; notes beside."""
    written = [] if out is None else [str(path) for path in made.save(out)]
    if as_json:
        document = dict(made.document)
        if written:
            del document["files"]
        print_json({**document, "written": written})
    elif out is not None:
        say(f"Wrote {', '.join(written)}.")
        click.echo(made.to_text(width()))
    else:
        for k, (name, text) in enumerate(made.files.items()):
            if k and name == "config.json":
                continue  # beside a command only where files are written
            click.echo((f"# {name}\n" if k else "") + text, nl=False)
        for note in made.notes:
            click.echo(f"note: {note}", err=True)


command = verb(
    export,
    like=estimate,
    without=("why_not",),
    fields=SETTINGS,
    others="settings",
    also="Change a figure of the chip: hbm_bandwidth=2x. ",
    also_known=FIGURES,
    check=only_a_point,
    out=click.Option(
        ["--out"],
        metavar="DIR",
        callback=_folder,
        help="Write the files there (or one file); else print them.",
    ),
    delivered=_delivered,
    examples=__doc__,
)
