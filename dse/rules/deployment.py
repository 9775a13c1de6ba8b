"""What a deployment's chips, load, memory tier and rack allow, and what software refuses of it.

Low-precision weights come in blocks that share a scale: a rank's share of a width has to be
whole blocks.

    fp8_block   128 x 128 (DeepSeek-V3, Qwen3-FP8)      refused
    int4        128 along the input (AWQ, GPTQ)         refused
    nvfp4        16 along the input                     refused
    mxfp4        32 along the input                     the last block of a rank is shared out whole
    fp8, int8    16 (tensor cores take 16 bytes)        refused

Split widths alone are looked at: heads, feed-forwards and experts of grouped-query and latent
attention. Linear attention and state-space layers are not. A width that does not divide over its
ranks at all is left to `dse.rules.divide`.

Sources of what the servers take, read in 2026-11: vLLM 0.33.0 config/parallel.py; TensorRT-LLM 1.3
llmapi/llm_args.py and documentation, quantization; SGLang 0.5.23 documentation, quantized KV cache.

Of a training plan, beside how the shape divides: divisions as Megatron-Core asks for them; context
parallelism splits each sequence in two chunks a rank.
"""

from __future__ import annotations

import numpy as np

from dse.blocks import WEIGHT_PARTS
from dse.physics.alignment import MX_BLOCK
from dse.physics.racks import BOUNDS
from dse.physics.training.plan import SCHEDULES
from dse.rules.case import Case, Training, Width, servers_on
from dse.rules.kinds import SERVERS, Found, Part, Rule, rule, rule_of, said, uneven, whole
from dse.schema.chip import GENERIC
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.space.candidates import Floats


@rule("chips_divide_into_instances")
def INSTANCES(case: Case) -> Found:
    batch = case.batch
    words = said("{} chips in instances of {}", batch.chips, batch.chips_per_instance)
    yield Part(uneven(batch.replicas, 1.0) | (batch.replicas < 1.0), words)


# Families that software runs on which no chip file needs to name: Neuron's, and the GPUs of which
# llama.cpp has a backend (its documentation: CUDA, HIP, Metal, SYCL).
RUNS_ON = {
    "neuron": ("trainium", "inferentia"),
    "llama-cpp": (
        *("volta", "ampere", "ada", "hopper", "blackwell", "rubin", "apple_silicon", "xe"),
        *("cdna2", "cdna3", "cdna4", "cdna5"),
    ),
}


@rule("backend_serves_chip")
def BACKEND(case: Case) -> Found:
    machines, chip = case.machines, case.batch.chip
    if machines is None or not case.backend or case.backend == GENERIC:
        return
    own = np.array([case.backend == one for one in machines.own_backends])
    if case.named is None:  # software that no stack is, of the chips that name it or of families
        families = RUNS_ON.get(case.backend, ())
        runs = own | np.array([family in families for family in case.families])
    else:
        known = [servers_on(family) for family in case.families]
        runs = own | np.array(
            [
                case.named in stacks or (not stacks and other == GENERIC)  # nobody knows
                for stacks, other in zip(known, machines.own_backends, strict=True)
            ]
        )
    yield Part(~runs[chip], lambda i: f"{case.backend} on {machines.ids[chip[i]]}")


@rule("requests_for_every_replica")
def IDLE(case: Case) -> Found:
    queued = case.serving == "offline"  # more wait than any number of replicas takes
    if case.performance is not None and case.performance.arrivals is None and not queued:
        requests, replicas = case.batch.concurrency, case.batch.replicas
        yield Part(requests < replicas, said("{} for {}", requests, replicas))


@rule("encoders_write_nothing")
def ENCODERS(case: Case) -> Found:
    both = [one for one in case.batch.blocks if "bidirectional" in one.sizes]
    if case.performance is not None and both:
        reads = np.any([one["bidirectional"] * one.count > 0.0 for one in both], axis=0)
        requests = np.maximum(case.performance.requests_per_s, np.finfo(float).tiny)
        tokens = case.performance.output_tokens_per_s / requests
        yield Part(reads & (tokens > 1.0), said("{}", tokens))


@rule("arrivals_within_capacity")
def ARRIVALS(case: Case) -> Found:
    if case.performance is not None and case.performance.arrivals is not None:
        yield Part(case.performance.arrivals.utilisation - 1.0)


@rule("offload_tier_exists")
def TIER(case: Case) -> Found:
    tier = None if case.performance is None else case.performance.memory.tier
    if tier is not None:
        used = tier.used(case.requests) > 0.0
        yield Part(used & ~(tier.capacity > 0.0), said("it has none"))


@rule("offload_tier_capacity")
def TIER_MEMORY(case: Case) -> Found:
    tier = None if case.performance is None else case.performance.memory.tier
    if tier is not None:
        has = tier.capacity > 0.0
        over = tier.used(case.requests) / np.where(has, tier.capacity, 1.0) - 1.0
        yield Part(np.where(has, over, -1.0))


def _of_rack(name: str) -> Rule:
    """A bound of the rack that a hypothetical scale-up domain stands in."""

    @rule(name)
    def bound(case: Case) -> Found:
        if name in case.rack:
            yield Part(case.rack[name])

    return bound


RACK: tuple[Rule, ...] = tuple(map(_of_rack, BOUNDS))


@rule("training_fits")
def TRAINING_FITS(_: Case) -> Found:
    """Its amount is that of the best plan, which `dse.problem.training` adds."""
    yield from ()


FOUR_BITS = np.array([int(bits) == 4 for bits in BITS.values()])


def _whole_blocks(name: str, dtype: str, size: float) -> None:
    """Enters the rule of a format: widths in `dtype` that are no multiple of a block of `size`, a
    power of two; of a format of 4 bits only the input of a product counts."""
    code = CODE[dtype]
    inner_only = bool(FOUR_BITS[code])

    @rule(name)
    def entered(case: Case) -> Found:
        if not any(code in codes for codes in case.dtypes.values()):
            return
        for width in case.widths:
            if code not in case.dtypes[width.part] or (inner_only and not width.inner):
                continue
            share, mine = width.value / size, case.batch.weight_dtype[width.part] == code
            even = width.used & mine & (width.value == np.floor(width.value))

            def words(i: int, w: Width = width) -> str:
                of = f"{w.title}: {whole(w.total[i])} over {whole(w.ranks[i])} ranks"
                return f"{of} is {whole(w.value[i])}, no multiple of {whole(size)}"

            yield Part(even & (share != np.floor(share)), words)


_whole_blocks("fp8_blocks_whole", "fp8_block", 128.0)
_whole_blocks("int4_groups_whole", "int4", 128.0)
_whole_blocks("nvfp4_blocks_whole", "nvfp4", 16.0)
_whole_blocks("fp8_widths", "fp8", 16.0)
_whole_blocks("int8_widths", "int8", 16.0)


MX = rule_of("mxfp4_blocks_whole")


def mx_padding(width: Width) -> Floats:
    """(n,) columns that the fullest rank holds over an even share: whole blocks of 32."""
    blocks = np.ceil(np.ceil(width.total / MX_BLOCK) / width.ranks)
    return blocks * MX_BLOCK * width.ranks / np.maximum(width.total, 1.0)


def _no_kernel(case: Case, formats: dict[str, tuple[str, ...]]) -> Found:
    """Weights in a format on families of chips for which there is neither a kernel that multiplies
    in it nor one that unpacks it (`dse.physics.kernels`)."""
    for dtype, families in formats.items():
        code, lacks = CODE[dtype], np.array([family in families for family in case.families])
        for part, codes in case.dtypes.items():
            if code not in codes or not lacks.any():
                continue
            mine = (case.batch.weight_dtype[part] == code) & lacks[case.batch.chip]

            def words(i: int, of: str = f"{part} weights in {dtype}") -> str:
                return f"{of} on {case.families[case.batch.chip[i]]}"

            yield Part(mine, words)


@rule("trtllm_format_kernels")
def TRTLLM_KERNELS(case: Case) -> Found:
    old = ("volta", "ampere")
    return _no_kernel(case, {"fp8": old, "fp8_block": old, "nvfp4": (*old, "ada", "hopper")})


@rule("sglang_format_kernels")
def SGLANG_KERNELS(case: Case) -> Found:
    return _no_kernel(case, {"nvfp4": ("cdna2", "cdna3", "cdna4", "cdna5")})


@rule("cache_format")
def CACHE(case: Case) -> Found:
    cache = case.batch.kv_dtype
    if case.machines is None or not (narrow := FOUR_BITS[cache]).any():
        return
    computed = case.machines.native_dtype[case.batch.chip, cache]
    yield Part(
        narrow & ~computed,
        lambda i: (
            f"a cache in {DTYPES[cache[i]]} on {case.machines.ids[case.batch.chip[i]]}"
            if case.machines
            else ""
        ),
    )


# Formats of the KV cache that each of the three has a name for, beside 16 bits.
CACHES = ("fp8", "nvfp4")


@rule("server_names_cache_format")
def SERVER_CACHE(case: Case) -> Found:
    if case.named in SERVERS:
        known = np.array([name in ("bf16", *CACHES) for name in DTYPES])
        cache = case.batch.kv_dtype
        yield Part(~known[cache], lambda i: f"a cache in {DTYPES[cache[i]]}")


@rule("experts_over_all_ranks_or_none")
def ALL_RANKS(case: Case) -> Found:
    ep, group = case.batch.expert_parallel, case.group
    words = said("expert parallelism {} in a group of {} chips", ep, group)
    yield Part((ep > 1.0) & (ep != group), words)


@rule("attention_tensor_or_data_parallel")
def EITHER(case: Case) -> Found:
    tp, dp = case.batch.tensor_parallel, case.batch.data_parallel
    words = said("tensor parallelism {} with data parallelism {}", tp, dp)
    yield Part((tp > 1.0) & (dp > 1.0), words)


@rule("data_parallel_attention_has_experts")
def DENSE(case: Case) -> Found:
    dp = case.batch.data_parallel
    words = said("data parallelism {} of a dense model", dp)
    yield Part((dp > 1.0) & ~case.batch.sparse.astype(bool), words)


LEAST_GOODPUT = 0.01


def _of(case: Case) -> Training:
    assert case.training is not None
    return case.training


@rule("degrees_are_whole")
def DEGREES(case: Case) -> Found:
    deployed = _of(case).step.deployed
    runs = deployed.runs
    for title, degree in (
        ("tensor", deployed.tensor_parallel),
        ("context", runs.context_parallel),
        ("pipeline", deployed.pipeline_parallel),
        ("data", deployed.data_parallel),
        ("expert", deployed.expert_parallel),
        ("virtual stages", runs.virtual_stages),
        ("micro-batch", runs.micro_batch),
    ):
        yield Part(
            (degree % 1.0 > 0.0) | (degree < 1.0),
            lambda i, title=title, degree=degree: f"{title} {degree[i]:g}",
        )


@rule("batch_divides")
def BATCH(case: Case) -> Found:
    steps = _of(case).step.deployed.runs.micro_batches
    yield Part(
        (np.abs(steps - np.rint(steps)) > 1e-6) | (steps < 1.0 - 1e-6),
        lambda i: f"{steps[i]:.4g} micro-batches a rank",
    )


@rule("sequence_divides")
def SEQUENCE(case: Case) -> Found:
    runs = _of(case).step.deployed.runs
    cp, length = runs.context_parallel, runs.sequence_length
    words = said("{} tokens over 2 x {}", length, cp)
    yield Part((cp > 1.0) & (length % (2.0 * cp) > 0.0), words)


@rule("virtual_stages_need_pipeline")
def VIRTUAL(case: Case) -> Found:
    deployed = _of(case).step.deployed
    runs = deployed.runs
    needs = (runs.virtual_stages > 1.0) | (runs.schedule != SCHEDULES.index("1f1b"))
    yield Part(needs & (deployed.pipeline_parallel == 1.0), said("one pipeline stage"))


@rule("schedule_has_micro_batches")
def SCHEDULE(case: Case) -> Found:
    deployed = _of(case).step.deployed
    pp, runs = deployed.pipeline_parallel, deployed.runs
    steps = runs.micro_batches
    zero_bubble = (runs.schedule == SCHEDULES.index("zero_bubble")) & (steps < pp)
    dual = runs.schedule == SCHEDULES.index("dualpipe")
    yield Part(
        zero_bubble | (dual & ((pp % 2.0 > 0) | (steps < 2 * pp))),
        lambda i: f"{steps[i]:.4g} micro-batches in {whole(pp[i])} stages",
    )


@rule("sequence_parallel_experts")
def SEQUENCE_PARALLEL(case: Case) -> Found:
    deployed = _of(case).step.deployed
    tp = deployed.tensor_parallel
    split = (tp > 1.0) & (deployed.runs.sequence_parallel == 0.0)
    for _, used in case.having("experts"):
        yield Part(used & split, said("tensor parallelism {} without it", tp))


@rule("format_has_arithmetic")
def ARITHMETIC(case: Case) -> Found:
    machines, batch = _of(case).step.deployed.machines, case.batch
    for part in WEIGHT_PARTS:
        native = machines.native_dtype[batch.chip, batch.weight_dtype[part]]
        yield Part(~native, lambda i: f"{machines.ids[batch.chip[i]]} does not")


@rule("interruptions_leave_time")
def INTERRUPTIONS(case: Case) -> Found:
    run = _of(case).run
    if run is not None:
        stands = np.minimum(LEAST_GOODPUT / run.goodput.goodput - 1.0, 1.0)
        yield Part(np.maximum(stands, 0.0), lambda i: f"goodput {run.goodput.goodput[i]:.2%}")


@rule("sites_divide_ranks")
def SITES(case: Case) -> Found:
    of = _of(case)
    if of.conditions is None or of.plans is None or of.conditions.sites == 1.0:
        return
    sites, split, batch = of.conditions.sites, of.conditions.site_split, of.plans
    axis = "data_parallel" if split == "data" else "pipeline_parallel"
    ranks = getattr(batch.candidates, axis)
    words = said(f"{{}} chips, {axis.replace('_', ' ')} {{}}, {sites:g} sites", batch.chips, ranks)
    yield Part((batch.chips % sites > 0.0) | (ranks % sites > 0.0), words)


@rule("chips_divide")
def CHIPS(case: Case) -> Found:
    of = _of(case)
    if of.plans is not None and of.chips is not None:
        used = of.plans.chips
        yield Part(used != of.chips, said(f"{{}} of {of.chips:,} chips", used))
