"""A point in the words of another tool: config.json, launch flags, Megatron-LM arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dse import __version__
from dse.catalog import Catalog
from dse.physics.parameters import parameters
from dse.problem.loads import whole
from dse.questions.estimate.point import Estimate
from dse.questions.export import megatron, sglang, trtllm, vllm
from dse.questions.export.classes import as_published, class_notes
from dse.questions.export.files import argument_list, config_text, script
from dse.questions.export.legal import refuse_illegal
from dse.questions.export.made import Export, exported
from dse.questions.export.point import Launch, Point, Stack, point_of
from dse.rules.case import Case
from dse.rules.kinds import MEGATRON
from dse.rules.registry import broken_rows, judge
from dse.schema.architectures import TRANSFORMERS, Written, write_config
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

CONFIG, SCRIPT, ARGUMENTS = "config.json", "serve.sh", "megatron.sh"
STACKS: Mapping[str, tuple[Stack, Callable[[Point, str], Launch]]] = {
    "vllm": (vllm.VLLM, vllm.launch),
    "sglang": (sglang.SGLANG, sglang.launch),
    "trtllm": (trtllm.TRTLLM, trtllm.launch),
}


def export_config(
    model: Model, *, architecture: str | None = None, context: int | None = None
) -> Export:
    """The shape as a `config.json` of transformers."""
    model = as_published(model)
    written = write_config(model, architecture=architecture, context=context)
    notes = [
        *class_notes(written),
        "what has no size (rotary base, activation, scale and groups of the routing) is plain or "
        "the class's default, and layers of two sorts are spread evenly",
    ]
    if model.training_tokens is not None:
        tokens = whole(model.training_tokens)
        notes.append(
            "config.json has no training tokens: --training-tokens "
            f"{tokens} gives `dse estimate` the loss again"
        )
    document = {
        "format": "hf",
        "checked_with": f"transformers {TRANSFORMERS}",
        **_class_words(model, written),
    }
    return exported(document, {CONFIG: config_text(written.config)}, tuple(notes))


def export_arguments(
    model: Model, degrees: Mapping[str, int], sequence: int, *, served: bool = False
) -> Export:
    """The shape as Megatron-LM arguments; `degrees` as in `dse.questions.export.megatron`, those of
    a deployment where it is `served`. Raises InputError for what Megatron-LM refuses."""
    axes = {f"{name}_parallel": np.array([float(degree)]) for name, degree in degrees.items()}
    batch = _batch(model, axes)
    case = Case(batch, named=MEGATRON)
    refuse_illegal(broken_rows(case, judge(case), 0), batch, MEGATRON, megatron.MEGATRON)
    flags, unsaid = megatron.arguments(as_published(model), degrees, sequence)
    rows = megatron.padded_vocabulary(model, degrees["tensor"])
    notes = (
        f"the vocabulary is padded to {rows:,} rows, {rows - model.vocab_size:,} more than the "
        "model's",
        "data, optimizer and precision arguments are the run's own",
        *unsaid,
    )
    if served:
        notes += (
            "parallel degrees are those that the point is served with: a training run has its own",
        )
    notes += megatron.stage_words(model.num_hidden_layers, degrees["pipeline"])
    title = f"{model.name}: arguments of Megatron-LM (megatron-core {megatron.MEGATRON})"
    document = {
        "format": "megatron",
        "checked_with": f"megatron-core {megatron.MEGATRON}",
        "model": model.name,
        "padded_vocab_size": rows,
        "arguments": [part for flag in flags for part in flag if part is not None],
    }
    comments = (title, *notes)
    return exported(document, {ARGUMENTS: argument_list(comments, "MODEL_ARGS", flags)}, notes)


def export_command(
    answer: Estimate,
    format_: str,
    catalog: Catalog,
    *,
    checkpoint: str | None = None,
    architecture: str | None = None,
) -> Export:
    """The point as the command of a server, beside the `config.json` of the class it runs."""
    stack, launch = STACKS[format_]
    point = point_of(answer, stack, catalog, architecture)
    model = answer.model
    command = launch(point, checkpoint or model.id)
    notes = [*command.notes, *class_notes(point.written), *point.notes]
    if point.instances > 1:
        notes.insert(
            0,
            f"{point.instances} instances: run the command once for each, every one on "
            f"{point.chips} chips and a port of its own",
        )
    if point.hosts > 1:
        notes.insert(0, _hosts_words(point, command))
    written = point.written
    program = (*command.program, *(part for flag in command.flags for part in flag if part))
    document = {
        "format": format_,
        "checked_with": f"{stack.title} {stack.version}",
        **_class_words(model, written),
        "chip": point.chip,
        "instances": point.instances,
        "chips_per_instance": point.chips,
        "hosts_per_instance": point.hosts,
        "command": list(program),
    }
    title = f"{model.name} on {point.chips} x {point.chip}, one instance of {point.instances}"
    comments = (
        title,
        f"flags of {stack.title} {stack.version}, written by dse {__version__}; "
        f"the shape as {written.architecture}",
        *notes,
    )
    text = script(comments, command.program, command.flags, command.others)
    files = {SCRIPT: text, **command.files, CONFIG: config_text(written.config)}
    return exported(document, files, tuple(notes))


def _hosts_words(point: Point, command: Launch) -> str:
    """What is started where, of an instance on several hosts."""
    spans = f"an instance spans {point.hosts} hosts of {point.chips_per_host} chips"
    if command.program[0] == "srun":
        return (
            f"{spans}: run the script once, in a Slurm allocation of them that sees the same files "
            f"(without Slurm, mpirun -np {point.chips} --hostfile HOSTS takes the place of srun)"
        )
    add = f"; the hosts after the first add {' '.join(command.others)}" if command.others else ""
    return (
        f"{spans}: run the script on each, NODE_RANK=0 on the first to {point.hosts - 1} on the "
        f"last, MASTER_ADDR the address of the first on all{add}"
    )


def _class_words(model: Model, written: Written) -> dict[str, Any]:
    counted = counted_parameters(model)
    return {
        "model": model.name,
        "architecture": written.architecture,
        "other_architectures": list(written.others),
        "parameters": {
            "counted": counted,
            "of_the_class": counted + written.parameters_beyond,
            "beyond": dict(written.beyond),
        },
    }


def counted_parameters(model: Model) -> int:
    """The project's count of all parameters."""
    return int(parameters(_batch(model, {})).total[0])


def _batch(model: Model, axes: Mapping[str, Floats]) -> CandidateBatch:
    """The shape with degrees, those that are not given 1."""
    deployment = {**{axis: np.ones(1) for axis in DEPLOYMENT_AXES}, **axes}
    return batch_of([model], np.zeros(1, dtype=np.intp), [None], ["bf16"], deployment)
