"""What published models measure: bands outside of which nobody knows that a shape trains well.

A search of shapes stays inside them unless its space says `allow_extrapolation: true`; elsewhere
they are notes. No law of quality sees most of these sizes, so that a search would pay nothing for
one head, a window of one token, or a vocabulary of a hundred words.

An end, a row of bands.csv, is what the second of 136 published models has, of all or of those as
sparse or dense: what one alone has is an experiment. Of what fewer than twenty have, one is enough.
A band ends a tenth beyond, granularity at 16, where training runs beside published models end (Tian
et al. 2025). tests/unit/test_shape_rules.py finds the ends again from search_spaces/models.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from dse.blocks import KINDS
from dse.blocks.kind import Attention
from dse.blocks.moe import latent_size
from dse.data import rows_beside
from dse.rules.case import Case
from dse.rules.kinds import Finding, Flags, Found, Part, Rule, enter, rule, rule_of, said, uneven
from dse.space.candidates import Block, CandidateBatch, Floats

PUBLISHED = "search_spaces/models.csv: shapes of 136 published models, 2026-11"
BEYOND = 1.1
SMALLEST = 0.596e9  # parameters; a few bands are not asked of models smaller than any published
WHOLE = 64.0
Ends = tuple[float, float]
OPEN = -inf
# (n,) a size, and which candidates have it; True: all.
Measured = Iterator[tuple[Floats, Flags | bool]]
Measure = Callable[[Case], Measured]


class Band(NamedTuple):
    """Published ends of a measure, of dense and of sparse models. `grown`: of models no smaller
    than any published. `hybrid`: the high ends of dense and of sparse models some of whose layers
    have linear attention or a state. `trained`: where training runs beside published models end."""

    name: str
    title: str
    measure: Measure
    dense: Ends
    sparse: Ends
    grown: bool = False
    hybrid: Ends | None = None
    trained: float = OPEN

    def ends(self, case: Case) -> tuple[Floats | float, Floats | float]:
        """(n,) each, or one for all: a tenth beyond what is published."""

        def end(dense: float, sparse: float) -> Floats | float:
            return dense if dense == sparse else np.where(case.sparse, sparse, dense)

        low, high = end(self.dense[0], self.sparse[0]), end(self.dense[1], self.sparse[1])
        if self.hybrid is not None and (mixed := _hybrid(case)).any():
            high = np.where(mixed, end(*self.hybrid), high)
        return low / BEYOND, np.maximum(high * BEYOND, self.trained)

    def parts(self, case: Case) -> Found:
        """Those of which some candidate is outside."""
        low, high = self.ends(case)
        for value, used in self.measure(case):
            outside = used & ~((value >= low) & (value <= high))
            if self.grown:
                outside = outside & (case.parameters.total >= SMALLEST)
            if outside.any():
                yield Part(_beyond(value, low, high, outside), self._words(value))

    def _words(self, value: Floats) -> Callable[[int], str]:
        return lambda i: f"{self.title} {_number(value[i])}"

    def says(self) -> str:
        kinds = {"dense": self.dense, "sparse": self.sparse}
        bound = {kind: ends for kind, ends in kinds.items() if ends != (OPEN, inf)}
        if len(set(bound.values())) == 1:
            return f"{self.title} {_between(*next(iter(bound.values())))}, as published models have"
        each = ", ".join(f"{_between(*ends)} in {kind} ones" for kind, ends in bound.items())
        return f"{self.title} as published models have: {each}"


def _beyond(value: Floats, low: Floats | float, high: Floats | float, outside: Flags) -> Floats:
    """(n,) how far beyond its end a size is: used / limit - 1, 0 where it is not `outside`."""
    value, low, high = (np.broadcast_to(one, len(outside))[outside] for one in (value, low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        under = np.where(low > 0.0, low / np.maximum(value, 1e-300), 0.0)
        amount = np.maximum(under, value / high) - 1.0
    found = np.zeros(len(outside))
    found[outside] = np.maximum(amount, 0.0)
    return found


def _between(low: float, high: float) -> str:
    if high == inf:
        return f"of {_number(low)} or more"
    if low == OPEN:
        return f"of {_number(high)} or less"
    return f"of {_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= value < 1e6 else f"{value:.4g}"


def _whole(of: Callable[[Case], Floats]) -> Measure:
    def measure(case: Case) -> Measured:
        yield of(case), True

    return measure


def _each(
    needs: tuple[str, ...], of: Callable[[Case, Block], Floats], present: str = ""
) -> Measure:
    """Of each block with the sizes `needs`; where `present` is above 0, if one is named."""

    def measure(case: Case) -> Measured:
        for block, used in case.having(*needs):
            yield of(case, block), used & (block[present] > 0.0) if present else used

    return measure


def _tokens(case: Case) -> Measured:
    if case.models is not None:
        tokens = case.models.tokens
        yield tokens / case.parameters.active, ~np.isnan(tokens)


def _over_hidden(width: Callable[[Block], Floats]) -> Callable[[Case, Block], Floats]:
    return lambda case, block: width(block) / case.batch.hidden_size


def _shared(block: Block) -> Floats:
    return block["shared_intermediate_size"] / np.maximum(block["expert_intermediate_size"], 1.0)


_HEADS = ("heads", "kv_heads", "head_dim")
_LATENT = ("kv_lora_rank", "q_lora_rank", "v_head_dim")
_LINEAR = ("value_heads", "value_head_dim")
_MOE = ("experts", "experts_per_token", "expert_intermediate_size", "shared_intermediate_size")
_DENSE = ("intermediate_size",)
# How a band of bands.csv is measured, by its name.
MEASURES: Mapping[str, Measure] = {
    "layers": _whole(lambda c: c.batch.layers),
    "width_per_layer": _whole(lambda c: c.batch.hidden_size / c.batch.layers),
    "attention_share": _whole(lambda c: c.parameters.attention / c.parameters.active_non_embedding),
    "heads_over_hidden": _each(_HEADS, _over_hidden(lambda b: b["heads"] * b["head_dim"])),
    "head_dim": _each(_HEADS, lambda c, b: b["head_dim"]),
    "query_heads_per_kv_head": _each(
        _HEADS, lambda c, b: b["heads"] / np.maximum(b["kv_heads"], 1.0)
    ),
    "window": _each(("window",), lambda c, b: b["window"], "window"),
    "chunk": _each(("chunk",), lambda c, b: b["chunk"], "chunk"),
    "index_topk": _each(("index_topk",), lambda c, b: b["index_topk"], "index_topk"),
    "latent_rank": _each(_LATENT, lambda c, b: b["kv_lora_rank"]),
    "query_rank": _each(_LATENT, lambda c, b: b["q_lora_rank"], "q_lora_rank"),
    "latent_head_dim": _each(
        (*_LATENT, "qk_nope_head_dim"),
        lambda c, b: np.minimum(b["qk_nope_head_dim"], b["v_head_dim"]),
    ),
    "latent_heads_over_hidden": _each(
        _LATENT, _over_hidden(lambda b: b["heads"] * b["v_head_dim"])
    ),
    "linear_head_dim": _each(
        (*_LINEAR, "key_head_dim"),
        lambda c, b: np.minimum(b["key_head_dim"], b["value_head_dim"]),
    ),
    "linear_over_hidden": _each(
        _LINEAR, _over_hidden(lambda b: b["value_heads"] * b["value_head_dim"])
    ),
    "state_over_hidden": _each(
        ("state_size", "inner_size"), _over_hidden(lambda b: b["inner_size"])
    ),
    "state_size": _each(("state_size",), lambda c, b: b["state_size"]),
    "full_attention_share": _whole(lambda c: _reaching(c.batch) / c.batch.layers),
    "feed_forward_over_hidden": _each(_DENSE, _over_hidden(lambda b: b["intermediate_size"])),
    "experts": _each(_MOE, lambda c, b: b["experts"]),
    "experts_per_token": _each(_MOE, lambda c, b: b["experts_per_token"]),
    "granularity": _each(
        _MOE,
        lambda c, b: (
            2.0
            * latent_size(b, c.batch.hidden_size)
            / np.maximum(b["expert_intermediate_size"], 1.0)
        ),
    ),
    "activation_ratio": _each(
        _MOE,
        lambda c, b: (
            (b["experts_per_token"] + _shared(b)) / np.maximum(b["experts"] + _shared(b), 1.0)
        ),
    ),
    "shared_over_expert": _each(_MOE, lambda c, b: _shared(b)),
    "vocabulary": _whole(lambda c: c.batch.vocab_size),
    "tables_over_total": _whole(
        lambda c: (c.parameters.embedding + c.parameters.head) / c.parameters.total
    ),
    "total_parameters": _whole(lambda c: c.parameters.total),
    "tokens_per_active_parameter": _tokens,
}


def _band(row: Mapping[str, str]) -> Band:
    def end(name: str, none: float) -> float:
        return float(row[name]) if row[name] else none

    dense, sparse = (
        (end(f"{kind}_least", OPEN), end(f"{kind}_most", inf)) for kind in ("dense", "sparse")
    )
    hybrid = (
        (float(row["hybrid_dense"]), float(row["hybrid_sparse"])) if row["hybrid_dense"] else None
    )
    name, trained = row["name"], end("trained", OPEN)
    return Band(
        name, row["title"], MEASURES[name], dense, sparse, bool(row["grown"]), hybrid, trained
    )


BANDS = tuple(map(_band, rows_beside(__file__, "bands.csv")))


def _reaching(batch: CandidateBatch) -> Floats:
    """(n,) layers in which a token may attend to all before it, through a compressed cache or
    not."""
    return batch.total(lambda block: KINDS[block.kind].reaching_layers(block))


def _hybrid(case: Case) -> Flags:
    """(n,) whether some layers have linear attention or a state."""
    found = np.zeros(len(case.batch), dtype=bool)
    for block, used in case.blocks:
        kind = KINDS[block.kind]
        if kind.recomputed_as == "mixer" and not isinstance(kind, Attention):
            found = found | used
    return found


RULES = tuple(
    enter(
        Rule(
            f"published_{band.name}",
            "note",
            band.says(),
            PUBLISHED,
            "derived",
            phases=("shapes",),
            find=band.parts,
        )
    )
    for band in BANDS
)


@rule("published_widths")
def WIDTHS(case: Case) -> Found:
    yield _multiple("hidden size", case.batch.hidden_size, True)
    for block, used in case.blocks:
        sizes = block.sizes
        if "kv_heads" in sizes and "head_dim" in sizes:
            yield _multiple("width of all heads", block["heads"] * block["head_dim"], used)
        for size in ("intermediate_size", "expert_intermediate_size", "shared_intermediate_size"):
            if size in sizes:
                yield _multiple(size.replace("_", " "), block[size], used)


def _multiple(title: str, value: Floats, used: Flags | bool) -> Part:
    return Part(used & uneven(value, WHOLE), said(f"{title} {{}}", value))


@rule("unique_tokens")
def TOKENS(case: Case) -> Found:
    if case.models is not None:
        tokens = case.models.tokens
        known = np.where(np.isnan(tokens), 0.0, tokens)
        yield Part(np.maximum(known / case.unique_tokens - 1.0, 0.0))


@rule("requests_on_every_rank")
def RANKS(case: Case) -> Found:
    if case.performance is not None and case.performance.arrivals is None:
        batch = case.batch
        least = batch.replicas * np.maximum(batch.pipeline_parallel, batch.data_parallel)
        yield Part(batch.concurrency < least, said("{} for {}", batch.concurrency, least))


HEAD_DIM = rule_of("head_dimension")
USUAL_HEADS = (64.0, 128.0, 192.0, 256.0)


def bands(batch: CandidateBatch) -> Iterator[Finding]:
    """Every band on n shapes, as notes."""
    case = Case(batch)
    for one in (*RULES, WIDTHS):
        for part in one.parts(case):
            yield Finding(one, part.amount > 0.0, part.say)
    for size, used in _each(_HEADS, lambda _, block: block["head_dim"])(case):
        odd = used & ~np.isin(size, USUAL_HEADS)
        yield Finding(HEAD_DIM, odd, lambda i, size=size: f"head dimension {size[i]:g}")
