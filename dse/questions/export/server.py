"""The command of a server: its software as data (flags.yaml), one point of a study or of flags that
it runs, and its rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dse.blocks import KINDS
from dse.blocks.kind import State
from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.phases import drafts_of
from dse.physics.workload import POISSON, Workload
from dse.problem.describe import violations
from dse.questions.check.subject import nearest_degrees
from dse.questions.estimate.point import Estimate, cap_of
from dse.questions.export.files import TOOLS
from dse.record import record
from dse.rules.case import servers_on
from dse.rules.kinds import UNKNOWN, family_of
from dse.rules.registry import RULES, rebind, row_words
from dse.schema.axes import DEGREES
from dse.schema.backend import Backend
from dse.schema.chip import GENERIC, Chip
from dse.schema.huggingface import ARCHITECTURES, TRANSFORMERS, Written, note_of, write_config
from dse.schema.model import Model
from dse.schema.model_catalog import load_models
from dse.space.candidates import CandidateBatch

PREFILL, DECODE = "prefill", "decode"  # the pool of a worker; "" of one pool for both phases
# Chips of a host: a box has those of its scale-up domain; one of a rack is a tray of it, four chips
# in GB200 NVL72 (assumed of the others).
LARGEST_HOST, TRAY = 8, 4
MTP = "mtp"  # `Model.drafted_by` of its own modules


@record
class Stack:
    """Serving software of one version, as flags.yaml has it.

    `lacks` are classes of `dse.schema.huggingface` that it has no model for. `windows` are those
    in which it has sliding windows: "all" of the layers alone, "turns" with full layers (a windowed
    one first), or "any". `caches` are its names of formats of the KV cache, `loads_as` those of
    formats that it brings 16-bit weights into while it loads them, `converter` what converts the
    checkpoint otherwise. `others` are flags that hosts other than the first add, `launcher` starts
    the program on several hosts. With `file_flags`, `flags` are written to a file, and the command
    has these. `spread_note` is said with attention data parallelism.

    `router` hands requests to the workers of two pools: its `program` and `flags` and those of a
    worker of `prefill` and of `decode`, or `options`, a file in place of these. Workers listen on
    `port`; `needs` are variables that the script of a worker takes, with their meaning.
    """

    id: str
    title: str
    version: str
    lacks: Sequence[str]
    windows: Mapping[str, str]
    program: Sequence[str]
    flags: Mapping[str, Any]
    caches: Mapping[str, str]
    router: Mapping[str, Any]
    spread_note: str
    loads_as: Mapping[str, str] = field(default_factory=dict)
    converter: str = ""
    others: Sequence[str] = ()
    launcher: Sequence[str] = ()
    file_flags: Mapping[str, Any] = field(default_factory=dict)


STACKS: Mapping[str, Stack] = {
    name: Stack(id=name, **said) for name, said in TOOLS["servers"].items()
}


@record
class Point:
    """One instance of a deployment on chips, or a worker of a pool of its own. `facts` are what its
    flags and scripts say, under the names of flags.yaml; `notes` what a reader has to know of
    them."""

    stack: Stack
    model: Model
    written: Written
    facts: Mapping[str, Any]
    notes: tuple[str, ...]


def point_of(
    answer: Estimate,
    stack: Stack,
    catalog: Catalog,
    architecture: str | None = None,
    checkpoint: str | None = None,
    *,
    pool: str = "",
    drafted: int | None = None,
) -> Point:
    """The point as `stack` would serve it; of a worker of a `pool`, drafts of the other pool may be
    given. Raises InputError, with the reason, for a point that breaks a rule and for what the stack
    cannot run or this export does not write."""
    document = answer.as_json()
    deployment = document["deployment"]
    chip = catalog.chip(deployment["chip"])
    of_chip = _of_chip(chip, stack)
    batch, metrics = answer.batch, answer.metrics
    case = metrics.case.under(stack.title)
    named = replace(metrics, case=case, violations=rebind(case, metrics.violations))
    refuse_illegal(violations(named, 0), batch, stack.title, stack.version)
    if deployment.get("offload_tier") is not None:
        raise refused(stack, "is not given weights or cache in a memory tier here", "offload")
    loads, model = [share.workload for share in answer.mix], as_published(answer.model)
    backend = loads[0].backend
    notes = (*of_chip, *_notes(loads, stack, answer))
    if backend.id != stack.id and not backend.id.startswith(f"{stack.id}-"):
        notes += (f"predicted with backend {backend.id}, not with {stack.id}",)
        backend = catalog.backends[stack.id]
    longest = max(math.ceil(load.prompt_tokens[0] + load.output_tokens[0]) for load in loads)
    prompt = max(math.ceil(load.prompt_tokens[0]) for load in loads)
    hosts, said = _hosts(batch, catalog.systems[chip.system].levels[0].size)
    drafted = _drafted(answer, model, loads, stack) if drafted is None else drafted
    written = _class_of(model, stack, architecture, longest)
    tensor, pipeline, data, expert = (
        int(getattr(batch, f"{axis}_parallel")[0])
        for axis in ("tensor", "pipeline", "data", "expert")
    )
    prefills = pool == PREFILL and written.architecture.startswith(("Deepseek", "GlmMoeDsa"))
    if stack.id == "sglang" and drafted and pipeline > 1 and not prefills:
        reason = "drafts in pipeline stages for prefill workers of DeepSeek's and GLM's class alone"
        raise refused(stack, reason, chip.id)
    group, chips, chunk = tensor * data, tensor * data * pipeline, int(backend.chunk_tokens)
    # Requests are of each rank of attention data parallelism; a step has a chunk of prefill, or as
    # many tokens as it has sequences.
    requests = math.ceil(_running(answer, loads, backend, pool) / data)
    copies = int(deployment.get("redundant_experts", 0))
    # A deployment has the checkpoint's parts or one format of all of them, into which some stacks
    # bring 16-bit weights while they load them.
    own, dtypes, cache = model.weight_dtypes, deployment["weight_dtypes"], deployment["kv_dtype"]
    converted = None if dtypes == dict(own) else dtypes["attention"]
    loaded_as = stack.loads_as.get(converted or "") if set(own.values()) == {"bf16"} else None
    if data > 1:
        notes = (stack.spread_note, *class_notes(written), *notes, *said)
    else:
        notes = (*class_notes(written), *notes, *said)
    if converted is not None and loaded_as is None:
        how = f"converted to {converted} first{stack.converter}"
        notes = (f"the checkpoint has to be {how}", *notes)
    facts = {
        "checkpoint": checkpoint or answer.model.id,
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "expert": expert,
        "group": group,  # chips over which experts are divided
        "experts_tensor": group // expert,
        "chip": chip.id,
        "chips": chips,
        "instances": int(batch.replicas[0]),
        "hosts": hosts,
        "chips_per_host": chips // hosts,
        "several_hosts": hosts > 1,
        "sparse": bool(model.experts),
        "spread": data > 1,
        "experts_spread": expert > 1,
        "redundant_experts": copies,
        "expert_slots": max(model.experts) + copies if copies else None,
        "loaded_as": loaded_as,
        "cache": None if cache == "bf16" else stack.caches[cache],
        "memory_fraction": backend.memory_fraction,
        "longest": longest,
        "prompt": prompt,
        "requests_per_rank": requests,
        "requests_of_ranks": requests * data,
        "chunk_of_ranks": chunk * data,
        "tokens_per_step": max(chunk, requests),
        "chunked": prompt > max(chunk, requests),
        "drafted": drafted,
        "verified": drafted + 1,
        "pool": pool,
        "prefills": pool == PREFILL,
        "kv_role": "kv_producer" if pool == PREFILL else "kv_consumer",
        "options_file": f"{pool or 'options'}.yaml",
    }
    return Point(
        stack=stack,
        model=answer.model,
        written=written,
        facts=facts,
        notes=notes,
    )


def refuse_pools(prefill: Point, decode: Point) -> None:
    """Raises InputError for workers that the stack cannot join."""
    if prefill.stack.id != "vllm":
        return
    one, other = prefill.facts, decode.facts
    reason = ""
    if max(one["pipeline"], other["pipeline"]) > 1:
        reason = "hands over no cache of pipeline stages (NixlConnector)"
    elif one["tensor"] != other["tensor"] and any(
        isinstance(KINDS[block.kind], State) for block in prefill.model.blocks
    ):
        reason = "hands over a recurrent state between equal tensor parallelism alone"
    if reason:
        raise refused(prefill.stack, reason, "prefill and decode on pools of their own")


def _hosts(batch: CandidateBatch, domain: int | None) -> tuple[int, tuple[str, ...]]:
    """Hosts of one instance, all with as many chips, and what is assumed of them. A host has the
    chips of a scale-up domain, of a rack's TRAY; data-parallel ranks lie whole on it, or cover
    whole ones."""
    chips = int(batch.chips_per_instance[0])
    rank = int(batch.tensor_parallel[0] * batch.pipeline_parallel[0])
    most = TRAY if domain is None or domain > LARGEST_HOST else domain
    hosts = next(
        n
        for n in range(1, chips + 1)
        if chips % n == 0
        and chips // n <= most
        and ((chips // n) % rank == 0 or rank % (chips // n) == 0)
    )
    said = f"a host of a rack is taken to have {TRAY} chips (assumed)"
    return hosts, (said,) if hosts > 1 and most != domain else ()


def _running(answer: Estimate, loads: Sequence[Workload], backend: Backend, pool: str) -> int:
    """Requests that an instance has to admit at once, the most of its workloads: those of the
    closed loop, or all that it can where arrivals come at random. Of a prefill worker: prompts that
    fill a chunk on each rank."""
    if pool == PREFILL:
        prompts = math.ceil(backend.chunk_tokens / min(load.prompt_tokens[0] for load in loads))
        return prompts * int(answer.batch.data_parallel[0])
    if answer.held is not None:
        return math.ceil(answer.held)
    members = answer.metrics.members
    each = [member.metrics for member in members] if members else [answer.metrics]
    found = [1]
    for metrics, load in zip(each, loads, strict=True):
        served, own = metrics.performance, metrics.case.batch
        if load.serving == POISSON:  # bursts: all that memory and the backend admit
            cap = cap_of(own, load) * own.data_parallel[0]
            found.append(int(min(served.memory.admitted[0], cap)))
        else:
            found.append(math.ceil(served.running_per_instance[0]))
    return max(found)


def _drafted(answer: Estimate, model: Model, loads: Sequence[Workload], stack: Stack) -> int:
    """Tokens that the model's own modules draft a step. Raises InputError for another drafter."""
    drafts = [drafts_of(answer.batch, load.speculation) for load in loads]
    tokens = max((int(one.tokens[0]) for one in drafts if one is not None), default=0)
    own = model.prediction_layers or model.drafted_by == MTP
    if tokens and not own:
        reason = "needs the draft model of speculative decoding, which no point names"
        raise refused(stack, reason, "--draft-tokens")
    return tokens


def _class_of(model: Model, stack: Stack, asked: str | None, longest: int) -> Written:
    """The class of transformers that the stack runs the shape as."""
    best = write_config(model, architecture=asked, context=longest)
    windowed = sum(b.count for b in model.blocks if "kv_heads" in b.sizes and b.sizes["window"])
    layers, pattern = model.num_hidden_layers, None
    if windowed:
        turns = "turns" if layers - windowed == layers // 2 else "some"
        pattern = "all" if windowed == layers else turns
    for name in (best.architecture, *best.others):
        runs = pattern is None or stack.windows.get(name) in ("any", pattern)
        if name not in stack.lacks and runs:
            if name == best.architecture:
                return best
            return write_config(model, architecture=name, context=longest)
    names = ", ".join((best.architecture, *best.others))
    what = "no model" if pattern is None else "no model with these sliding windows"
    raise refused(stack, f"has {what} for this shape", names)


def _notes(loads: list[Workload], stack: Stack, answer: Estimate) -> tuple[str, ...]:
    """What the prediction has and the command does not say."""
    cached = f"cached prefixes depend on the requests; {stack.title} caches by default"
    said = {
        "the rate of arrivals is the client's: the command has none": any(
            load.serving == POISSON for load in loads
        ),
        "the overlap of network and compute is not set by the command": any(
            load.network_overlap for load in loads
        ),
        cached: any(load.prefix_hit_rate for load in loads),
        "the power cap is a setting of the chips, not of the server": "power_cap_w"
        in answer.conditions,
    }
    return tuple(text for text, holds in said.items() if holds)


def _of_chip(chip: Chip, stack: Stack) -> tuple[str, ...]:
    """What is said of a server on a chip that is no GPU. Raises InputError where it does not run
    (`dse.rules.deployment`, backend_serves_chip); of some chips nobody knows."""
    family = family_of(chip.family)
    if stack.title not in servers_on(chip.family) and (
        family is not UNKNOWN or chip.backend != GENERIC
    ):
        raise refused(stack, f"does not run on chips of {chip.vendor}", chip.id)
    if family is UNKNOWN:
        return (f"whether {stack.title} runs on {chip.id} was not checked",)
    if family.tiles:
        return ()
    return (
        f"{stack.title} runs on {chip.id} by a plugin with flags of its own, which are not "
        "written; it counts devices, and a chip may be several",
    )


def refused(stack: Stack, reason: str, read: str) -> InputError:
    return InputError(
        f"{stack.title} {stack.version} {reason} ({read})",
        field="--format",
        accepted="another format or another deployment",
    )


# The class of transformers that a model is published as, and what is said where another is written.


def as_published(model: Model) -> Model:
    """The model with the class that it is published as and what drafts for it. A point of a study
    has lost these, and is the
    catalog's model where name and layers are the same."""
    if model.architecture is not None:
        return model
    for known in load_models().values():
        if known.name == model.name and known.blocks == model.blocks:
            return replace(model, architecture=known.architecture, drafted_by=known.drafted_by)
    return model


def class_notes(written: Written) -> tuple[str, ...]:
    """What a reader has to know of the class that is written."""
    name, published = written.architecture, written.published
    if published is None:
        return ()
    if published == name:
        note = note_of(name)
        return (note,) if note else ()
    why = "is not taken here"
    if published not in ARCHITECTURES:
        why = f"is not written here (transformers {TRANSFORMERS})"
    return (
        f"published as {published}, which {why}: {name} has the same layers and sizes, not its "
        "norms, biases, activation or weights' names; its checkpoint keeps its own config.json",
    )


# What a stack refuses is not exported: the rules of `dse.rules`, with the message of each.

FLAGS = {axis: f"--{flag}" for flag, axis in DEGREES.items()}


def refuse_illegal(
    broken: Sequence[Mapping[str, Any]], batch: CandidateBatch, stack: str, version: str
) -> None:
    """Raises InputError, with the messages of the rules that the one candidate of `batch` breaks
    where `stack` (a name of `dse.rules.kinds`) is named, and with the degrees nearest by that it
    takes. `broken` are rows of `dse.rules.registry`."""
    if not broken:
        return
    near: list[str] = []
    if any(RULES[row["constraint"]].stacks for row in broken):
        near = [
            " ".join(f"{FLAGS[axis]} {degree}" for axis, degree in change.items())
            for change in nearest_degrees(batch, stack)
            if any(getattr(batch, axis)[0] != degree for axis, degree in change.items())
        ]
    raise InputError(
        f"{stack} {version} refuses it: it {'; '.join(map(row_words, broken))}",
        field="deployment",
        accepted=f"nearest: {', or '.join(near)}" if near else "another shape or deployment",
    )
