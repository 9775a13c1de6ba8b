"""A point in the words of another tool: config.json, launch flags, Megatron-LM arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from dse import __version__
from dse.answer.answer import Answer, Notes
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.files import write_files
from dse.options import CHIP, Opt
from dse.physics.parameters import parameters
from dse.problem.mix import loads_of, whole
from dse.questions.estimate.again import estimate_again
from dse.questions.estimate.estimate import (
    DEFAULTS,
    POINT,
    SUBJECT,
    Finished,
    check_needed,
    estimate,
    option,
)
from dse.questions.estimate.estimate import SETTINGS as ESTIMATE_SETTINGS
from dse.questions.estimate.point import Estimate
from dse.questions.export import megatron
from dse.questions.export.files import argument_list, config_text, flags_of, nested, script, stated
from dse.questions.export.server import (
    DECODE,
    PREFILL,
    STACKS,
    Point,
    as_published,
    class_notes,
    point_of,
    refuse_illegal,
    refuse_pools,
)
from dse.record import record
from dse.rules.case import Case
from dse.rules.kinds import MEGATRON
from dse.rules.registry import broken_rows, judge
from dse.schema.huggingface import TRANSFORMERS, Written, write_config
from dse.schema.model import Model, model_of
from dse.schema.model_catalog import load_model
from dse.schema.reader import Field, Text
from dse.schema.reader import Table as Fields
from dse.space.batches import batch_of_models, one_of
from dse.study.folder import FRONT, item_of, read_study, study_folder

CONFIG, ARGUMENTS = "config.json", "megatron.sh"


@record
class Export(Answer):
    """`files` by name, the first one first; `notes` what a reader has to know besides."""

    files: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def save(self, out: Path) -> list[Path]:
        """Writes the files into the folder `out`, all or none; as `out` itself where there is one
        file and `out` has its ending. Raises StorageError where they cannot be written."""
        made = {name: text.encode("utf-8") for name, text in self.files.items()}
        first, *more = made
        if not more and out.suffix == Path(first).suffix and not out.is_dir():
            out, made = out.parent, {out.name: made[first]}
        write_files(out, made)
        return [out / name for name in made]


def _exported(
    name: str, tool: str, facts: Mapping[str, Any], files: Mapping[str, str], notes: Iterable[str]
) -> Export:
    """The answer of the format `name`, with the notes and the files; `tool` with its version."""
    document = {"format": name, "checked_with": tool, **facts}
    notes, lines = list(dict.fromkeys(notes)), []
    if counts := document.get("parameters"):
        lines = [f"{document['architecture']}: {counts['of_the_class']:,} parameters."]
        parts = ", ".join(f"{number:+,} {what}" for what, number in counts["beyond"].items())
        same, counted = "The count of dse is the same.", counts["counted"]
        more = f"The count of dse is {counted:,}; the class has {parts}."
        lines.append(more if parts else same)
        if names := ", ".join(document["other_architectures"]):
            lines.append(f"The shape is also that of {names} (--set architecture=NAME).")
    return Export(
        question="export",
        title=f"{document['model']}: files for {name}",
        headline=f"Checked against {tool}.",
        sentences=lines,
        blocks=(Notes("What to know", notes),) if notes else (),
        document={**document, "notes": notes, "files": dict(files)},
        files=files,
        notes=tuple(notes),
    )


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
            "config.json has no training tokens: --set training_tokens="
            f"{tokens} gives `dse estimate` the loss again"
        )
    facts, files = _class_words(model, written), {CONFIG: config_text(written.config)}
    return _exported("hf", f"transformers {TRANSFORMERS}", facts, files, notes)


def export_arguments(
    model: Model, degrees: Mapping[str, int], sequence: int, *, served: bool = False
) -> Export:
    """The shape as Megatron-LM arguments; `degrees` as in `dse.questions.export.megatron`, those of
    a deployment where it is `served`. Raises InputError for what Megatron-LM refuses."""
    axes = {f"{name}_parallel": degree for name, degree in degrees.items()}
    batch = one_of(model, axes, kv_dtype="bf16")
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
    tool = f"megatron-core {megatron.MEGATRON}"
    comments = (f"{model.name}: arguments of Megatron-LM ({tool})", *notes)
    facts = {
        "model": model.name,
        "padded_vocab_size": rows,
        "arguments": [part for flag in flags for part in flag if part is not None],
    }
    files = {ARGUMENTS: argument_list(comments, "MODEL_ARGS", flags)}
    return _exported("megatron", tool, facts, files, notes)


def export_command(
    answer: Estimate,
    format_: str,
    catalog: Catalog,
    *,
    checkpoint: str | None = None,
    architecture: str | None = None,
) -> Export:
    """The point as the command of a server, or as those of the workers of two pools and of their
    router, beside the `config.json` of the class it runs."""
    stack = STACKS[format_]
    asked = (stack, catalog, architecture, checkpoint)
    if answer.prefill is None:
        points = [point_of(answer, *asked)]
    else:
        decode = point_of(answer, *asked, pool=DECODE)
        drafted = decode.facts["drafted"]  # the modules keep a cache, which prefill hands over, too
        points = [point_of(answer.prefill, *asked, pool=PREFILL, drafted=drafted), decode]
        refuse_pools(*points)
    written, files = points[-1].written, dict[str, str]()
    facts = _class_words(answer.model, written)
    notes = [note for point in points for note in _worker(point, facts, files)]
    if answer.prefill is not None:
        facts["router"] = {"command": _router(points, files)}
        notes.append(ROUTED)
    files[CONFIG] = config_text(written.config)
    return _exported(format_, f"{stack.title} {stack.version}", facts, files, notes)


ROUTED = (
    "prefill-1, decode-1 and so on are the first hosts of the workers, on any network that joins "
    "them; workers that share a host take other ports (behind the script: --port N) and chips of "
    "their own"
)


def _worker(point: Point, document: dict[str, Any], files: dict[str, str]) -> list[str]:
    """Adds the server of one instance, or of a worker of a pool, to the document and its files;
    what a reader has to know of it."""
    stack, facts = point.stack, point.facts
    pool, chips, instances = (facts[name] for name in ("pool", "chips", "instances"))
    program, others = [word % facts for word in stack.program], ()
    if facts["hosts"] > 1:
        program, others = [*(word % facts for word in stack.launcher), *program], stack.others
    flags = flags_of(stack.file_flags or stack.flags, facts)
    notes = list(point.notes)
    if instances > 1:
        unit = f"{pool} workers" if pool else "instances"
        notes.insert(
            0,
            f"{instances} {unit}: run the command once for each, every one on "
            f"{chips} chips and a port of its own",
        )
    if facts["hosts"] > 1:
        notes.insert(0, _hosts_words(point, others))
    worker = f"{pool} worker" if pool else "instance"
    comments = (
        f"{point.model.name} on {chips} x {facts['chip']}, one {worker} of {instances}",
        f"flags of {stack.title} {stack.version}, written by dse {__version__}; "
        f"the shape as {point.written.architecture}",
        *notes,
    )
    needs = stack.router.get("needs", {}) if pool else None
    files[f"{pool or 'serve'}.sh"] = script(comments, program, flags, others, needs)
    if stack.file_flags:
        options = nested(stated(stack.flags, facts))
        files[facts["options_file"]] = yaml.safe_dump(options, sort_keys=False)
    described = {
        "chip": facts["chip"],
        "instances": instances,
        "chips_per_instance": chips,
        "hosts_per_instance": facts["hosts"],
        "command": [*program, *(part for flag in flags for part in flag if part)],
    }
    document |= {f"{pool}_pool": described} if pool else described
    return notes


def _router(points: Sequence[Point], files: dict[str, str]) -> list[str]:
    """The command that joins the workers of two pools, whose files are added."""
    stack, router = points[0].stack, points[0].stack.router
    flags, options = [], router.get("options", {})
    for point in points:
        pool, count = point.facts["pool"], point.facts["instances"]
        of_worker, *more = router[pool]
        urls = [f"{pool}-{k}:{router['port']}" for k in range(1, count + 1)]
        if options:
            options = {**options, of_worker: {"num_instances": len(urls), "urls": urls}}
            continue
        for url in urls:
            flags += [(of_worker, f"http://{url}"), *((word, None) for word in more)]
    flags += router["flags"].items()
    title = f"hands requests to the workers of both pools, for {stack.title} {stack.version}"
    files["router.sh"] = script((title, ROUTED), router["program"], flags)
    if options:
        files["router.yaml"] = yaml.safe_dump(options, sort_keys=False)
    return [*router["program"], *(part for flag in flags for part in flag if part)]


def _hosts_words(point: Point, others: Sequence[str]) -> str:
    """What is started where, of an instance on several hosts."""
    hosts, each = point.facts["hosts"], point.facts["chips_per_host"]
    spans = f"an instance spans {hosts} hosts of {each} chips"
    if point.stack.launcher:
        return (
            f"{spans}: run the script once, in a Slurm allocation of them that sees the same files "
            f"(without Slurm, mpirun -np {hosts * each} --hostfile HOSTS takes the place of srun)"
        )
    add = f"; the hosts after the first add {' '.join(others)}" if others else ""
    return (
        f"{spans}: run the script on each, NODE_RANK=0 on the first to {hosts - 1} on the "
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
    return int(parameters(batch_of_models([model])).total[0])


# `dse.export`: a shape or a point in the words of another tool.

SHAPES = ("hf", "megatron")
DEGREES = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}
OWN_SETTINGS = (
    Field("architecture", Text(), None),
    Field("checkpoint", Text(), None),
)
# What `--set` takes: a class of transformers as `architecture` (else the one that fits best), where
# a server finds the weights as `checkpoint` (else the model's id), and what it does of an estimate.
SETTINGS = Fields(*OWN_SETTINGS, *ESTIMATE_SETTINGS.fields)


def export(
    model: Annotated[str | Path | Mapping[str, Any] | Model | Finished | None, SUBJECT] = None,
    point: Annotated[str | int | None, POINT] = None,
    *,
    format: Annotated[
        Literal["hf", "vllm", "sglang", "trtllm", "megatron"],
        Opt(
            "hf: config.json of transformers; vllm, sglang, trtllm: the command of a server; "
            "megatron: arguments of Megatron-LM."
        ),
    ],
    chip: Annotated[str | None, CHIP] = None,
    context: Annotated[
        int | None,
        Opt("Longest sequence of a shape (default: the workload's).", least=1, most=100_000_000),
    ] = None,
    catalog: Catalog | None = None,
    **options: Any,
) -> Export:
    """A shape or a point as files that another tool reads.

        dse.export("llama-3-70b", format="hf").files["config.json"]
        dse.export(study, "knee", format="vllm").files["serve.sh"]

    With a `point`, `model` is what `dse.run` returned or a folder of it; else a model as in
    `dse.estimate`, on `chip` and with that function's arguments as `options` (of a shape, hf or
    megatron, tp, pp, dp and ep alone), beside `architecture` and `checkpoint` (SETTINGS). Of
    prefill and decode on pools of their own, the workers of both and their router are written.
    `files` of the answer has them by name. Raises InputError for what cannot be read, and for what
    the tool refuses.
    """
    if format not in (*SHAPES, *STACKS):
        accepted = ", ".join((*SHAPES, *STACKS))
        raise InputError(f"read {format!r}", field="--format", accepted=accepted)
    catalog = catalog or load_catalog()
    architecture, checkpoint = options.pop("architecture", None), options.pop("checkpoint", None)
    options = {name: value for name, value in options.items() if value != DEFAULTS.get(name)}
    refused = {}
    if format in SHAPES:
        refused["checkpoint"] = checkpoint, "no server is started"
        kept = DEGREES if format == "megatron" else {}
        more = {"chip": chip, **options} if point is None else {}
        holds = "which holds a shape"
        refused |= {name: (value, holds) for name, value in more.items() if name not in kept}
    else:
        refused["context"] = context, "the workload says how long a request is"
    if format == "megatron":
        refused["architecture"] = architecture, "which has classes of its own"
    if point is not None:
        refused |= {name: (value, "STUDY POINT") for name, value in options.items()}
    for name, (value, why) in refused.items():
        if value is not None:
            message = f"{option(name)} does not go with --format {format}: {why}"
            raise InputError(message, accepted="one of the two")
    if not model:
        raise InputError("--model is missing", accepted="--model M, or STUDY POINT")
    folder = None if point is None else Path(str(getattr(model, "folder", model)))
    if folder is None and study_folder(model) is not None:
        raise InputError("which point?", field="POINT", accepted="dse export STUDY POINT")
    if format in STACKS:
        if folder is not None:
            catalog = catalog.over(read_study(folder)[0])
            answer = estimate_again(folder, str(point), catalog)
        else:
            check_needed(model, chip)
            catalog, chip = catalog.with_chip(str(chip))
            options = {"backend": format, **options}
            answer = estimate(model, chip, catalog=catalog, **options).point
            assert answer is not None
        return export_command(
            answer, format, catalog, checkpoint=checkpoint, architecture=architecture
        )
    longest = None
    subject: Any = model
    if folder is not None:
        study, items = read_study(folder)
        item = item_of(items, str(point), folder)
        subject = model_of(item["model"], f"{folder / FRONT}")
        loads = loads_of(study)
        longest = int(max(load["prompt_tokens"] + load["output_tokens"] for load in loads))
        axes = item["deployment"]
        options = {flag: int(axes[f"{name}_parallel"]) for flag, name in DEGREES.items()}
    shape, context = load_model(subject), context or longest
    if format == "hf":
        return export_config(shape, architecture=architecture, context=context)
    if context is None:
        raise InputError("--context is missing", accepted="the sequence length of training")
    degrees = {name: options.get(flag, 1) for flag, name in DEGREES.items()}
    return export_arguments(shape, degrees, context, served=folder is not None)
