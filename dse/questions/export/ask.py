"""`dse.export`: a shape or a point in the words of another tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.problem.loads import loads_of
from dse.questions.estimate.again import estimate_again
from dse.questions.estimate.ask import estimate
from dse.questions.export import STACKS, Export, export_arguments, export_command, export_config
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.schema.own_config import model_of
from dse.study.folder import FRONT, find_item, read_study

FORMATS = ("hf", "megatron", *STACKS)
DEGREES = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}


def export(
    subject: Any,
    point: str | int | None = None,
    *,
    format: str,
    chip: str | None = None,
    context: int | None = None,
    architecture: str | None = None,
    checkpoint: str | None = None,
    catalog: Catalog | None = None,
    **options: Any,
) -> Export:
    """The files that another tool reads, by name in `files`.

        dse.export("llama-3-70b", format="hf").files["config.json"]
        dse.export(study, "knee", format="vllm").files["serve.sh"]

    With a `point`, `subject` is what `dse.run` returned or a folder of it; else a model as in
    `dse.estimate`, on `chip` and with that function's arguments as `options` (of a shape, hf or
    megatron, tp, pp, dp and ep alone). `context` is the sequence length of a shape. Raises
    InputError for what cannot be read, and for what the tool refuses.
    """
    if format not in FORMATS:
        raise InputError(f"read {format!r}", field="--format", accepted=", ".join(FORMATS))
    catalog = catalog or load_catalog()
    folder = None if point is None else Path(getattr(subject, "folder", subject))
    if format in STACKS:
        if folder is not None:
            catalog = catalog.over(read_study(folder)[0])
            answer = estimate_again(folder, str(point), catalog)
        elif chip is None:
            raise InputError(
                "--chip is missing", accepted="an id that `dse catalog chips list` prints"
            )
        else:
            catalog, chip = catalog.with_chip(chip)
            options = {"backend": format, **options}
            answer = estimate(subject, chip, catalog=catalog, **options).point
            assert answer is not None
        return export_command(
            answer, format, catalog, checkpoint=checkpoint, architecture=architecture
        )
    return export_shape(
        *(of_study(folder, str(point)) if folder is not None else (subject, None, options)),
        format=format,
        context=context,
        architecture=architecture,
        served=folder is not None,
    )


def export_shape(
    model: str | Path | Mapping[str, Any] | Model,
    longest: int | None,
    degrees: Mapping[str, int],
    *,
    format: str,
    context: int | None,
    architecture: str | None,
    served: bool,
) -> Export:
    """hf and megatron: the shape, without a prediction. `degrees` are tp, pp, dp and ep, 1 where
    they are left out."""
    found, context = load_model(model), context or longest
    if format == "hf":
        return export_config(found, architecture=architecture, context=context)
    if context is None:
        raise InputError("--context is missing", accepted="the sequence length of training")
    named = {name: degrees.get(flag, 1) for flag, name in DEGREES.items()}
    return export_arguments(found, named, context, served=served)


def of_study(folder: Path, point: str) -> tuple[Model, int, dict[str, int]]:
    """(the shape of a point, its longest request, the degrees it is served with)."""
    study, item = read_study(folder)[0], find_item(folder, point)
    model = model_of(item["model"], f"{folder / FRONT}")
    longest = max(load["prompt_tokens"] + load["output_tokens"] for load in loads_of(study))
    degrees = {flag: int(item["deployment"][f"{name}_parallel"]) for flag, name in DEGREES.items()}
    return model, int(longest), degrees
