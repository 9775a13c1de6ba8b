"""Forward and backward of one micro-batch through all layers, on the chips of one rank.

The operators are those of serving a prompt (`dse.blocks`): `Pass` stands where a `Step` stands and
adds to every forward operator what its backward takes.

    product (rows, K) x (K, N)   forward; the gradient of the rows, which has its sizes and takes as
                                 long; that of the weight, (K, rows) x (rows, N), which reads and
                                 writes a gradient of K N numbers and does not pad its rows
    attention                    backward has 2.5 times the operations: scores again, and four
                                 products for two (Dao 2023, arXiv 2307.08691, section 3.1.2)
    element-wise kernels         backward moves 1.5 times the bytes (assumed: of a norm it reads
                                 gradient and input and writes a gradient)

It also counts the bytes that stay on the chip until the backward pass: the input of every product,
queries, keys, values and output of attention (FlashAttention keeps no scores), the inputs of norms
and activations. With dropout and the scores of plain attention this is the count of Korthikanti et
al. 2022 (arXiv 2205.05198, equations 1 to 4).

Groups of chips that talk to each other (`TrainingDeployed`). With tensor-parallel ranks next to
each other, then context, data and pipeline (`plan`), the ranks of a group are a stride apart: as
many as fit a scale-up domain lie inside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dse.blocks import KINDS, WEIGHT_PARTS
from dse.blocks.operators import ACTIVATION_BYTES, Exchange, Experts, Mixing, Product, Role
from dse.physics.collectives import Cost, Group
from dse.physics.deployed import Deployed, Law
from dse.physics.ledger import busy_s
from dse.physics.machines import Machines
from dse.physics.step import computed_rows
from dse.physics.training.plan import PRECISIONS, TASKS, TrainingBatch
from dse.record import record
from dse.schema.training import TrainingStack
from dse.space.candidates import Block, Floats


class TrainingDeployed(Deployed):
    """Gathers of n training runs. `group` counts the chips of a pipeline stage; the experts of a
    layer are spread over `expert_parallel` of them, each whole on one chip."""

    def __init__(self, runs: TrainingBatch, machines: Machines, stack: TrainingStack) -> None:
        super().__init__(runs.candidates, machines)
        self.runs, self.stack = runs, stack
        self.group = self.tensor_parallel * runs.context_parallel * self.data_parallel
        self.experts_tensor_parallel = np.ones(self.n)
        clocks = np.array([stack.clocks.get(chip, 1.0) for chip in machines.ids])
        self.clock = clocks[self.batch.chip]

    def _strided(self, size: Floats, stride: Floats) -> Group:
        return Group(self.machines.fabric, self.batch.chip, size, self.domain, stride)

    @cached_property
    def zero_stage(self) -> Floats:
        """(n,) as it works: with pipeline stages, gradients are whole on every rank until the last
        micro-batch, which makes stage 2 stage 1 (PyTorch's pipeline schedules put off FSDP's
        reduction until then)."""
        stage = self.runs.zero_stage
        return np.where((stage == 2.0) & (self.pipeline_parallel > 1.0), 1.0, stage)

    @cached_property
    def tensor_group(self) -> Group:
        return self._strided(self.tensor_parallel, np.ones(self.n))

    @cached_property
    def context_group(self) -> Group:
        return self._strided(self.runs.context_parallel, self.tensor_parallel)

    @cached_property
    def expert_group(self) -> Group:
        return self._strided(self.expert_parallel, np.ones(self.n))

    @cached_property
    def data_ranks(self) -> Floats:
        """(n,) ranks that hold the same dense weights: context and data parallel."""
        return self.runs.context_parallel * self.data_parallel

    @cached_property
    def data_group(self) -> Group:
        return self._strided(self.data_ranks, self.tensor_parallel)

    @cached_property
    def expert_data_ranks(self) -> Floats:
        """(n,) ranks that hold the same experts."""
        return np.maximum(self.group / self.expert_parallel, 1.0)

    @cached_property
    def expert_data_group(self) -> Group:
        return self._strided(self.expert_data_ranks, self.expert_parallel)


@record
class Elements:
    """Weights on one chip, (n,): `dense` and `experts` of the mean layer, `table` of the embedding
    or the output head, `tied` where they are one, `positions` on the first stage."""

    dense: Floats
    experts: Floats
    table: Floats
    tied: Floats
    positions: Floats


def elements_of(deployed: TrainingDeployed) -> Elements:
    """Layers are as the mean of all, so that a stage of many has its share of each kind."""
    batch = deployed.batch
    dense, experts, positions = (np.zeros(deployed.n) for _ in range(3))
    for block in batch.blocks:
        kind = KINDS[block.kind]
        for part, each in kind.weight_elements(deployed, block).items():
            if part == "experts":
                experts = experts + block.count * each
            elif part == "positions":
                positions = positions + block.count * each
            else:
                dense = dense + block.count * each
        dense = dense + block.count * kind.norm_elements(batch.hidden_size, block)
    layers = np.maximum(batch.layers, 1.0)
    table = deployed.vocabulary * batch.hidden_size
    return Elements(dense / layers, experts / layers, table, batch.tied_embeddings, positions)


class Sums:
    """Arrays (n,) that start at 0, by the names that a class declares."""

    def __init__(self, n: int) -> None:
        for name in self.__annotations__:
            setattr(self, name, np.zeros(n))

    def __iadd__(self, other: Sums):
        for name in self.__annotations__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class Work(Sums):
    """Seconds of device work, communication left out, (n,) each: `forward`, `backward` and its
    `weight_gradient`; of both, `elementwise`, `attention`, `higher_precision` (what arithmetic in a
    format with a lower peak takes more, at that peak) and `uneven` (the busiest experts over the
    mean); `cheap`: what selective recomputation does again. For energy, of the mean chip: seconds
    of arithmetic at the dense peak of its own format, and bytes through memory, forward and
    backward.
    """

    attention: Floats
    backward: Floats
    backward_bytes: Floats
    backward_peak: Floats
    cheap: Floats
    elementwise: Floats
    forward: Floats
    forward_bytes: Floats
    forward_peak: Floats
    higher_precision: Floats
    uneven: Floats
    weight_gradient: Floats

    @property
    def seconds(self) -> Floats:
        """(n,) forward and backward."""
        return self.forward + self.backward


class Kept(Sums):
    """Bytes that one micro-batch keeps on a chip for the backward pass, (n,) each. `residual` is as
    wide as the hidden state, whole on every tensor-parallel rank unless the sequence is divided;
    `droppable_` is what selective recomputation does not keep: outputs of norms and activations."""

    droppable_residual: Floats
    droppable_sharded: Floats
    residual: Floats
    sharded: Floats


class Sends(Sums):
    """Collectives: seconds, and bytes that a chip sends inside and outside its domain, (n,)."""

    link_bytes: Floats
    network_bytes: Floats
    seconds: Floats

    def add(self, count: Floats | float, cost: Cost, factor: float = 1.0) -> None:
        """`count` collectives of one cost, whose seconds are multiplied by `factor`."""
        self.seconds = self.seconds + (cost.latency_s + cost.transfer_s) * (count * factor)
        self.link_bytes = self.link_bytes + count * cost.sent.inside_bytes()
        self.network_bytes = self.network_bytes + count * cost.sent.outside_bytes()

    def times(self, count: Floats | float) -> Sends:
        """So many of all of them."""
        more = Sends(len(self.seconds))
        for name in self.__annotations__:
            setattr(more, name, getattr(self, name) * count)
        return more


ATTENTION_BACKWARD = 2.5
OTHER_BACKWARD = 2.0  # indexers and states: two products for one
ATTENTION_BACKWARD_BYTES = 2.0  # reads q, k, v, out and its gradient, writes three gradients
ELEMENTWISE_BACKWARD = 1.5
# Of a number that grouped products give where experts have biases, for which these have no
# epilogue (github:NVIDIA/TransformerEngine issue 2766): added by a kernel, summed by another.
BIAS_BYTES, BIAS_BACKWARD_BYTES = 4.0, 2.0
LAW_HEAD = 128.0
CAST_BYTES = 4.0  # of a 16-bit number that is read and written by rows and by columns in 8 bits
LOGIT_BYTES = 4.0
# Bytes of a linear layer's input that is kept, by precision: 8-bit recipes keep what they cast.
KEPT_INPUT_BYTES = np.array([2.0, 1.0, 1.0 + 4 / 128, 1.0 + 1 / 32, 0.5 + 1 / 16, 1.0])

LINEAR = tuple(part for part in WEIGHT_PARTS if part != "embedding")
GROUPS = ("mixer", "mlp", "moe")
ACTIVATIONS = (Role.ACTIVATION, Role.EXPERT_ACTIVATION)
OF_EXPERTS = (Role.EXPERT_ORDER, Role.EXPERT_ACTIVATION)


def law_seconds(law: Law, flops: Floats, bytes_: Floats, reached: Floats | None = None) -> Floats:
    """(n,) seconds of one kernel by its law (`dse.physics.ledger`); `reached`: the share of its
    speed that misaligned sizes leave it."""
    busy = busy_s(law, flops * law.s_per_flop, bytes_ * law.s_per_byte)
    return (busy if reached is None else busy / reached) + law.fixed_s


def narrow_heads(law: Law, head: Floats, exponential_s: Floats) -> Floats:
    """(n,) seconds of attention an operation with heads of `head` numbers over those with heads of
    128, at which its law was measured. A score takes 4 `head` operations of the matrix units and
    one exponential, `exponential_s` seconds of other units, whatever the size of its head: the
    share s of that in a score's time at 128 does not shrink with narrower heads,

        1 + s (128 / head - 1).

    Wider heads were measured to be no faster (FlashAttention-3, arXiv 2407.08608, figure 5)."""
    share = np.minimum(exponential_s / (4.0 * LAW_HEAD * law.s_per_flop), 1.0)
    return 1.0 + share * np.maximum(LAW_HEAD / np.maximum(head, 1.0) - 1.0, 0.0)


class Pass:
    """One micro-batch; every array (n,). `rows` are the tokens of a micro-batch on one context
    rank, `own_rows` those of one chip where tensor-parallel ranks divide them.

    `of[group]` and `kept[group]` hold the Work and what is kept of all layers by GROUPS, `layers`
    their sum, `ends` the Work of embedding and output head; `dispatched` one all-to-all of every
    sparse layer; `tensor_collectives` how often a layer's output is summed over the tensor-parallel
    ranks, in the forward pass of all layers; `mixing_flops` the forward arithmetic of attention and
    states on one chip; `adapter_elements` the weights of low-rank adapters on one chip, all layers.
    """

    backward = True

    def __init__(self, deployed: TrainingDeployed) -> None:
        runs, stack, n = deployed.runs, deployed.stack, deployed.n
        self.deployed, self.stack = deployed, stack
        self.hidden_size = deployed.batch.hidden_size
        self.prefill_rows = runs.micro_batch * runs.sequence_length / runs.context_parallel
        self.rows = self.prefill_rows
        self.prompt_tokens = runs.sequence_length
        self.tensor_split = np.where(runs.sequence_parallel > 0.0, deployed.tensor_parallel, 1.0)
        self.mean_rows = self.rows
        self.own_rows: Floats = self.rows / deployed.tensor_parallel
        self.computed_rows = computed_rows(self.rows)
        # Nothing decodes.
        self.decode_rows = self.verified_rows = self.context = np.zeros(n)
        self.verified: Floats | float = 1.0
        self.routing_skew: Floats | float = stack.routing_skew
        self.slots_sent = stack.slots_sent

        self.low = runs.precision > 0
        self._place = -1  # of the product that was added last
        self.lora = runs.task == TASKS.index("lora")
        self.trains = np.where(self.lora, 0.0, 1.0)
        self.kept_input = KEPT_INPUT_BYTES[runs.precision]
        self.bf16 = deployed.law("gemm", "bf16")
        self.peak_s_per_flop = _peak(deployed.law("gemm", "mlp"))
        self.fp4 = fp4 = runs.precision == PRECISIONS.index("nvfp4")
        self.in_bf16 = np.where(fp4, runs.bf16_share, 0.0) if fp4.any() else None
        self.slower = {operator: self._slower(operator) for operator in ("gemm", "experts")}

        self.of = {group: Work(n) for group in GROUPS}
        self.kept = {group: Kept(n) for group in GROUPS}
        self.ends, self.keeps = Work(n), Kept(n)
        self.work = self.ends
        self.tensor_collectives = np.zeros(n)
        self.dispatched = Sends(n)
        self.mixing_flops, self.adapter_elements = np.zeros(n), np.zeros(n)
        for block in deployed.batch.blocks:
            if block.count.any():
                self._add(block)
        self.layers = Work(n)
        for group in GROUPS:
            self.layers += self.of[group]
        self.work, self.keeps = self.ends, Kept(n)  # the head's are counted with the logits
        self._tables()

    def _slower(self, operator: str) -> Floats:
        """(n,) the stack's factor on products in the format of the run; where nobody measured the
        format on the chip, no less than the factor of 16 bits, whose share of the peak it inherits
        (`Machines.inherits`)."""
        stack, deployed = self.stack, self.deployed
        slower = np.where(self.low, stack.gemm_fp8, stack.gemm_bf16)
        slower = np.where(self.fp4, stack.gemm_fp4, slower)
        inherits = deployed.machines.inherits[operator]
        unmeasured = inherits[deployed.batch.chip, deployed.batch.weight_dtype["mlp"]]
        return np.where(unmeasured, np.maximum(slower, stack.gemm_bf16), slower)

    def _add(self, block: Block) -> None:
        kind = KINDS[block.kind]
        if kind.recomputed_as in self.of:
            self.work, self.keeps = self.of[kind.recomputed_as], self.kept[kind.recomputed_as]
        else:
            self.work, self.keeps = self.ends, Kept(self.deployed.n)
        kind.add(self, block)

    def _tables(self) -> None:
        """Embedding, output head and loss, whole on the first and the last stage."""
        one, hidden = np.ones(self.deployed.n), self.hidden_size
        vocabulary = self.deployed.vocabulary
        self.elementwise(Role.EMBEDDING, "embedding", one, 2.0 * self.rows * hidden)
        last = 3.0 * self.rows * hidden / self.tensor_split
        self.elementwise(Role.ELEMENTWISE, "last norm", one, last)
        label = "output head"
        self.gemm(Product(Role.HEAD, label, one, "embedding", self.rows, vocabulary, hidden))
        # Read in 16 bits, probabilities in 32 (Megatron-Core's vocabulary-parallel cross entropy).
        self.elementwise(Role.ELEMENTWISE, "loss", one, 3.0 * self.rows * vocabulary)

    def gemm_law(self, part: str) -> Law:
        return self.deployed.law("gemm", part)

    @property
    def expert_domains(self) -> Sequence[Floats]:
        return self.deployed.expert_group.domains

    def gemm(self, one: Product) -> None:
        """The products, their gradients, their casts and their adapters."""
        role, _, count, part, rows, out, inner = one
        deployed, work = self.deployed, self.work
        if role is Role.ROUTER:  # on the chip's own tokens
            rows = rows / self.tensor_split
        linear, useful = part in LINEAR, 2.0 * rows * (inner * out) * count
        self._place += 1
        fit, reached = deployed.alignment.product(self._place, one), None
        weight = held = inner * out
        sides = inner + out
        if fit is not None:
            weight, held, sides, reached = fit.weight, fit.read, fit.sides, fit.reached
        moved = rows * sides * ACTIVATION_BYTES
        read = held * deployed.weight_bytes.get(part, ACTIVATION_BYTES) + moved
        flops = 2.0 * weight * (self.computed_rows if rows is self.rows else computed_rows(rows))
        gradient = moved + 2.0 * held * deployed.runs.gradient_bytes
        forward = self._product(part, linear, flops, read, reached)
        weights = self._product(part, linear, 2.0 * rows * weight, gradient, reached)
        weights = weights * (self.stack.weight_gradient * self.trains * count)
        forward = forward * count
        self._add_work(forward, forward + weights)
        work.weight_gradient += weights
        if role is Role.LATENT_UP:
            work.cheap += forward
        self._higher(part, useful, 2.0 + self.trains)
        self._spent(_peak(self.gemm_law(part)) * useful, count * read, count * gradient)
        if linear:
            self._cast(count, rows, inner, out)
            self._adapt(count, rows, inner, out)
        if work is not self.ends:
            self._keep_input(role, count, linear, rows, inner, out)

    def _product(
        self, part: str, linear: bool, flops: Floats, bytes_: Floats, reached: Floats | None
    ) -> Floats:
        if linear:
            return self._linear("gemm", part, flops, bytes_, reached)
        return law_seconds(self.gemm_law(part), flops, bytes_, reached) * self.stack.gemm_bf16

    def _linear(
        self, operator: str, part: str, flops: Floats, bytes_: Floats, reached: Floats | None
    ) -> Floats:
        """(n,) seconds in the format of the run, but for what its recipe leaves in bf16."""
        law = self.deployed.law(operator, part)
        seconds = law_seconds(law, flops, bytes_, reached) * self.slower[operator]
        seconds = np.maximum(seconds, flops * _peak(law))
        if self.in_bf16 is None:
            return seconds
        plain = law_seconds(self.deployed.law(operator, "bf16"), flops, bytes_, reached)
        plain = plain * self.stack.gemm_bf16
        blend = (1.0 - self.in_bf16) * seconds + self.in_bf16 * plain
        return np.where(self.in_bf16 > 0.0, blend, seconds)

    def _add_work(self, forward: Floats, backward: Floats) -> None:
        self.work.forward += forward
        self.work.backward += backward

    def _spent(self, peak: Floats, forward: Floats, gradient: Floats) -> None:
        """For energy: `peak` seconds of useful arithmetic forward, and bytes forward, as many for
        the gradient of the rows, and those of the weight gradient."""
        work = self.work
        work.forward_peak += peak
        work.backward_peak += peak * (1.0 + self.trains)
        work.forward_bytes += forward
        work.backward_bytes += forward + gradient * self.trains

    def _higher(self, part: str, flops: Floats, passes: Floats | float) -> None:
        """What `passes` times these useful operations take more at the peak of their own format
        than at that of the run."""
        own = _peak(self.deployed.law("gemm", part))
        if part in LINEAR and self.in_bf16 is not None:
            own = (1.0 - self.in_bf16) * own + self.in_bf16 * _peak(self.bf16)
        self.work.higher_precision += flops * passes * self._beyond(own)

    def _beyond(self, own: Floats) -> Floats:
        return np.maximum(own - self.peak_s_per_flop, 0.0)

    def _stream(
        self, count: Floats, forward: Floats, backward: Floats, factor: float = 1.0
    ) -> Floats:
        """`count` element-wise kernels that move so many bytes forward and backward; returns the
        seconds of forward, (n,)."""
        work, rate = self.work, self.bf16.s_per_byte
        times = count * (self.stack.elementwise * factor)
        fixed = self.deployed.stream_fixed_s
        seconds = (forward * rate + fixed) * times
        later = (backward * rate + fixed) * times
        self._add_work(seconds, later)
        work.elementwise += seconds + later
        work.forward_bytes += count * forward
        work.backward_bytes += count * backward
        return seconds

    def _cast(self, count: Floats, rows: Floats, inner: Floats, out: Floats) -> None:
        """Inputs and gradients to the low format, where the run has one."""
        if self.low.any():
            forward, backward = rows * inner * CAST_BYTES, rows * out * CAST_BYTES
            self._stream(count * self.low, forward, backward)

    def _adapt(self, count: Floats, rows: Floats, inner: Floats, out: Floats) -> None:
        """Two narrow products beside each frozen one, bound by reading and writing the rows."""
        if self.lora.any():
            times = count * self.lora
            moved = rows * (inner + out) * ACTIVATION_BYTES
            self._stream(times, moved, 2.0 * moved)
            rank = self.deployed.runs.lora_rank
            self.adapter_elements += times * rank * (inner + out)

    def _keep_input(
        self, role: Role, count: Floats, linear: bool, rows: Floats, inner: Floats, out: Floats
    ) -> None:
        if role in (Role.UP, Role.SIDE_UP):
            self.keeps.sharded += count * rows * out * ACTIVATION_BYTES
        if role in (Role.SIDE, Role.SIDE_UP):
            return
        each = self.kept_input if linear else np.full(len(rows), ACTIVATION_BYTES)
        if role is Role.OUTPUT:  # attention keeps its output in 16 bits
            self.keeps.sharded += count * rows * inner * np.where(self.low, each, 0.0)
        elif inner is self.hidden_size:
            whole = rows * self.tensor_split if role is Role.ROUTER else rows
            self.keeps.droppable_residual += count * whole * inner * each
        else:
            self.keeps.droppable_sharded += count * rows * inner * each

    def elementwise(self, role: Role, label: str, count: Floats, elements: Floats) -> None:
        """The kernels, and backward."""
        split = elements / self.tensor_split if role is Role.NORM else elements
        factor = self.stack.moe_elementwise if role in OF_EXPERTS else 1.0
        moved = split * ACTIVATION_BYTES
        forward = self._stream(count, moved, moved * ELEMENTWISE_BACKWARD, factor)
        if role is Role.NORM or role in ACTIVATIONS:
            self.work.cheap += forward
        if role is Role.LATENT_NORM:  # reads and writes latents twice
            self.keeps.sharded += count * elements / 4.0 * ACTIVATION_BYTES
        if role is Role.NORM:
            self.keeps.residual += count * self.rows * self.hidden_size * ACTIVATION_BYTES

    def over_cache(self, one: Mixing) -> None:
        """Nothing decodes."""

    def over_prompt(self, one: Mixing) -> None:
        """Attention over the sequence, a state or an indexer, and backward."""
        stack, role, count, flops, bytes_ = self.stack, one.role, one.times, one.flops, one.bytes_
        law = self.deployed.law(one.law, one.part)
        again = ATTENTION_BACKWARD if role is Role.ATTENTION else OTHER_BACKWARD
        slower: Floats | float = stack.states if role is Role.STATE else stack.attention
        if one.head is not None:
            own = self.deployed.machines.exponential_s[self.deployed.batch.chip]
            slower = slower * narrow_heads(law, one.head, own)
        forward = law_seconds(law, flops, bytes_) * (slower * count)
        backward = law_seconds(law, flops * again, bytes_ * ATTENTION_BACKWARD_BYTES)
        backward = backward * (slower * stack.attention_backward * count)
        self._add_work(forward, backward)
        self.work.attention += forward + backward
        filled = 1.0 if one.filled is None else one.filled
        total = flops * filled * count
        self.mixing_flops += total
        work = self.work
        work.forward_peak += total * _peak(law)
        work.backward_peak += total * again * _peak(law)
        work.forward_bytes += count * bytes_
        work.backward_bytes += count * bytes_ * ATTENTION_BACKWARD_BYTES
        self.work.higher_precision += total * 3.0 * self._beyond(_peak(law))
        all_ = bytes_ * filled
        kept = all_ if one.output_bytes is None else one.output_bytes
        self.keeps.sharded += count * kept
        if one.output_bytes is not None:
            self.keeps.droppable_sharded += count * (all_ - kept)

    def experts(self, one: Experts) -> None:
        """The products of routed experts, forward and backward; tokens to the order of their
        experts and back, and the activation between the products."""
        self._place += 1
        fit = self.deployed.alignment.experts(self._place, one)
        run, reached, count, held = one, None, one.block.count, one.distinct * one.weight
        if fit is not None:
            run, reached = one.sized(fit.weight, fit.sides), fit.reached
            held = one.distinct * fit.read
        bytes_ = held * self.deployed.weight_bytes["experts"] + run.moved
        gradient_bytes = 2.0 * held * self.deployed.runs.gradient_bytes + run.moved
        factor, of = self.stack.experts * count, ("experts", "experts")
        forward = self._linear(*of, run.flops, bytes_, reached) * factor
        weights = self._linear(*of, run.flops, gradient_bytes, reached) * (factor * self.trains)
        self._add_work(forward, forward + weights)
        self.work.weight_gradient += weights
        self.work.uneven += (2.0 * forward + weights) * one.uneven
        useful = 2.0 * one.mean * one.weight
        self._higher("experts", useful * count, 2.0 + self.trains)
        peak = _peak(self.gemm_law("experts")) * useful * count
        self._spent(peak, count * bytes_, count * gradient_bytes)
        order, between = 4.0 * one.busiest * one.latent, one.block["matrices"] * one.busiest
        self.elementwise(Role.EXPERT_ORDER, "expert permutation", count, order)
        between = between * one.width
        self.elementwise(Role.EXPERT_ACTIVATION, "expert activation", count, between)
        self._biases(one)
        self._keep_experts(one)

    def _biases(self, one: Experts) -> None:
        """Passes over the rows of both grouped products, where experts have biases."""
        if "expert_bias" not in one.block.sizes:
            return
        both = one.busiest * ((one.block["matrices"] - 1.0) * one.width + one.latent)
        further = one.busiest * one.latent * self.stack.expert_bias_bytes / 2.0
        forward, backward = BIAS_BYTES * both + further, BIAS_BACKWARD_BYTES * both + further
        self._stream(one.block.count * one.block["expert_bias"], forward, backward)

    def _keep_experts(self, one: Experts) -> None:
        """Keeps the inputs of the two grouped products, and of the activation, until the backward
        pass; adds the casts of the inputs, where the run has a low format."""
        count, tokens, latent, width = one.block.count, one.mean, one.latent, one.width
        matrices = one.block["matrices"]
        each = count * tokens
        self.keeps.sharded += each * (latent * self.kept_input + (matrices - 1.0) * width * 2.0)
        self.keeps.droppable_sharded += each * width * self.kept_input
        if self.low.any():
            forward = tokens * (latent + width) * CAST_BYTES
            backward = tokens * ((matrices - 1.0) * width + latent) * CAST_BYTES
            self._stream(count * self.low, forward, backward, self.stack.moe_elementwise)

    def exchange(self, one: Exchange) -> None:
        self.dispatched.add(one.times, self.deployed.cost(one), self.stack.dispatch)

    def tensor_all_reduce(self, label: str, count: Floats) -> None:
        self.tensor_collectives += count


def _peak(law: Law) -> Floats:
    """(n,) seconds of an operation at the dense peak of the law's arithmetic."""
    return law.s_per_flop * law.floor_of_compute
