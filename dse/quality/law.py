"""What a quality law reads, a shape and its tokens, and what it is: its formula, its sources, where
it was fitted, what it does not see.

Every array has shape (n,): parameters, tokens and FLOP are counts, loss is in nats per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.record import record

if TYPE_CHECKING:
    from dse.quality.own_runs import Doubt


Floats = NDArray[np.float64]

# Text on the web after filtering, the public part of it that anyone has trained on in one pass:
# Llama 4 Scout 40T and Qwen3 36T tokens are the most that a published model has seen.
UNIQUE_TOKENS = 40e12
# A vocabulary of 32,000 words for every model, so that a large one earns nothing (assumed).
VOCABULARY = 32_000
REPEATS = 15.387756  # R*_D
REPEATS_SOURCE = (
    "Tokens that are read again: Muennighoff et al. 2023, arXiv 2305.16264 (fitted on up to 900B "
    "tokens and 1,500 epochs); 40T unique tokens unless the space says otherwise (assumed)."
)


@record
class Shape:
    """n shapes, (n,) each; a dense one has `experts` 0, and its other expert fields are not read.

    `active_non_embedding` counts what a token meets between the two tables of the vocabulary.
    `shared_width_ratio` is the shared experts' total width over one routed expert's.
    `embedding_parameters` counts both tables (a tied one once). `unique_tokens` is the text there
    is: what is trained on beyond it is read again.
    """

    hidden_size: Floats
    layers: Floats
    active_non_embedding: Floats
    experts: Floats
    experts_per_token: Floats
    shared_width_ratio: Floats
    expert_intermediate_size: Floats
    training_tokens: Floats
    total_parameters: Floats
    embedding_parameters: Floats
    unique_tokens: float = UNIQUE_TOKENS

    @property
    def sparse(self) -> NDArray[np.bool_]:
        return self.experts > 0

    @property
    def activation_ratio(self) -> Floats:
        """(n,) (k + s) / (E + s) for k of E routed experts and a shared width of s; dense: 1."""
        shared = np.where(self.sparse, self.shared_width_ratio, 0.0)
        return np.where(self.sparse, self.experts_per_token + shared, 1.0) / np.where(
            self.sparse, self.experts + shared, 1.0
        )

    @property
    def granularity(self) -> Floats:
        """(n,) 2 hidden_size / width of an expert; dense: 2."""
        width = np.where(self.sparse, self.expert_intermediate_size, self.hidden_size)
        return 2.0 * self.hidden_size / width

    @property
    def training_flops(self) -> Floats:
        """(n,) 6 N D without embeddings."""
        return training_flops(self.active_non_embedding, self.training_tokens)

    @property
    def expert_parameters(self) -> Floats:
        """(n,) of the active parameters, those in routed and shared experts; dense: 0. All experts
        are alike, so that those that a token does not meet say how large one is."""
        idle = np.where(self.sparse, self.experts - self.experts_per_token, 0.0)
        unmet = self.total_parameters - self.embedding_parameters - self.active_non_embedding
        met = self.experts_per_token + self.shared_width_ratio
        found = np.maximum(unmet, 0.0) / np.where(idle > 0.0, idle, 1.0) * met
        return np.where(idle > 0.0, np.minimum(found, self.active_non_embedding), 0.0)

    @property
    def effective_tokens(self) -> Floats:
        """(n,) tokens that would teach as much if none were read twice.

        D' = U + U R (1 - exp(-(D / U - 1) / R)) beyond U unique tokens, R = 15.39 (Muennighoff et
        al. 2023, arXiv 2305.16264, equation 5 and section 6: the value of a repeat decays).
        """
        unique = self.unique_tokens
        again = np.maximum(self.training_tokens / unique - 1.0, 0.0)
        repeated = unique * REPEATS * -np.expm1(-again / REPEATS)
        return np.where(again > 0.0, unique + repeated, self.training_tokens)


# The arrays of a shape, as files of examples name their columns.
SIZES = Shape.__match_args__[:-1]


def training_flops(active_parameters: Floats, training_tokens: Floats) -> Floats:
    """(n,) FLOP of training, C = 6 N D (Kaplan et al. 2020, arXiv 2001.08361)."""
    return 6.0 * active_parameters * training_tokens


def tokens_at_compute(training_flops: Floats, active_parameters: Floats) -> Floats:
    """(n,) training tokens that a compute budget pays for, D = C / (6 N)."""
    return training_flops / (6.0 * active_parameters)


Flags = NDArray[np.bool_]


@record
class Range:
    """A closed interval; `source` says who stated it."""

    low: float
    high: float
    source: str

    def excludes(self, value: Floats) -> Flags:
        """(n,) True outside the interval; NaN counts as inside."""
        return (value < self.low) | (value > self.high)


@record
class Terms:
    """A loss in three parts, each (n,) nats: `floor`, what no size and no data removes;
    `parameters`, terms that fall as (size)^-exponent when a whole model grows in proportion;
    `tokens`, a term that falls as (training tokens)^-exponent. Parts are (nats, exponent)."""

    floor: Floats | float
    parameters: tuple[tuple[Floats, Floats | float], ...]
    tokens: tuple[Floats, Floats | float]

    @property
    def loss(self) -> Floats:
        """(n,) the sum, in the order of the fields."""
        total: Floats | float = self.floor
        for nats, _ in self.parameters:
            total = total + nats
        return total + self.tokens[0]

    def row(self, i: int) -> Terms:
        """The same of one candidate, (1,) each."""

        def at(value: Floats | float) -> Floats | float:
            return value[i : i + 1] if isinstance(value, np.ndarray) else value

        nats, exponent = self.tokens
        return Terms(
            at(self.floor),
            tuple((size[i : i + 1], at(falls)) for size, falls in self.parameters),
            (nats[i : i + 1], at(exponent)),
        )


# What a law without a guard of its own is held at.
WHOLE: Mapping[str, Range] = {
    "equivalent_over_total": Range(0.0, 1.0, "a model is worth no more than all of it")
}
Dense = Callable[[Floats, Floats], Terms]  # parameters and training tokens, (n,) each


def chinchilla(E: float, A: float, a: float, B: float, b: float) -> Dense:
    """E + A / N^a + B / D^b: the form of Hoffmann et al. 2022, approach 3."""

    def dense(parameters: Floats, training_tokens: Floats) -> Terms:
        return Terms(E, ((A * parameters**-a, a),), (B * training_tokens**-b, b))

    return dense


@record
class Quality:
    """Predictions of n candidates under the law named `law`, and how far each stands from the data
    behind it.

    `dense_equivalent_parameters`: the dense model of equal loss and equal tokens under the law,
    never more than all parameters of the model. `efficiency_leverage`: that over the active
    parameters, without the term of depth; 1 for a dense model. `quantised_parameters`: the size
    that `quantisation_penalty` asks for.
    `at_bound[name]` is True where the law holds that quantity at the end of its range
    (`Law.bounds`), `extrapolates[name]` where it lies outside what it was fitted on (`Law.fit`).
    `doubt` is that of a law rescaled by runs of one's own (`dse.quality.own_runs`).
    """

    law: str
    terms: Terms
    dense_equivalent_parameters: Floats
    efficiency_leverage: Floats
    quantised_parameters: Floats
    at_bound: Mapping[str, Flags]
    extrapolates: Mapping[str, Flags]
    predicted_loss: Floats
    doubt: Doubt | None = None


@record
class Coefficient:
    """A row of the table of coefficients; `kind` as of hardware figures (fitted, assumed, ...)."""

    name: str
    value: str
    source: str
    date: str
    kind: str


@record
class Law:
    """One law: `name` is what `--law` and `quality_law:` take, `title` and the tuples of sentences
    are what reports print.

    `predict` takes shapes to their quality. `dense` is the law's own dense form: parameters (as the
    law counts them) and training tokens, (n,) each, to the parts of the loss. `fit` says where the
    law has seen data, `bounds` what it holds at an end of its range.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    fit_range: tuple[str, ...]
    not_seen: tuple[str, ...]
    coefficients: tuple[Coefficient, ...]
    fit: Mapping[str, Range]
    bounds: Mapping[str, Range]
    predict: Callable[[Shape], Quality]
    dense: Dense


# The choice of training tokens: the compute-optimal ones, and what is given up beside them.

_STEPS = 30


@record
class Overtraining:
    """(n,) each. `compute_optimal_tokens`: with which the same kind of shape, all of its parameters
    grown or shrunk alike, has the least loss at the same training compute (6 N D). `ratio`: tokens
    over these, above 1 over-trained. `loss_given_up`: nats above that least loss."""

    compute_optimal_tokens: Floats
    ratio: Floats
    loss_given_up: Floats


def overtraining(terms: Terms, training_tokens: Floats) -> Overtraining:
    """How far n models stand from the compute-optimal shape of their own training compute.

    `terms` are the parts of their loss. NaN tokens give NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        growth = _best_growth(terms)
        least = terms.floor + _tokens_at(terms, growth)
        for nats, exponent in terms.parameters:
            least = least + nats * growth**-exponent
        # Rounding may put a model that is at its optimum below it.
        given_up = np.maximum(terms.loss - least, 0.0)
    return Overtraining(training_tokens / growth, growth, given_up)


def compute_optimal_tokens(law: Law, training_flops: Floats) -> Floats:
    """(n,) training tokens with which a dense model of the law has the least loss for so much
    compute, C = 6 N D."""
    root = np.sqrt(training_flops / 6.0)
    return root / _best_growth(law.dense(root, root))


def _tokens_at(terms: Terms, growth: Floats) -> Floats:
    nats, exponent = terms.tokens
    return nats * growth**exponent


def _best_growth(terms: Terms) -> Floats:
    """(n,) x at which sum_j P_j x^-a_j + T x^b is least: a model x times as large on 1 / x of the
    tokens. One term in the parameters has the closed form x = (a P / (b T))^(1 / (a + b)); several
    are solved by Newton's method on the logarithm of the two sides of the first-order condition,
    which is concave and rises, in a fixed number of steps."""
    nats, exponent = terms.tokens
    rising = np.log(exponent * nats)
    if len(terms.parameters) == 1:
        size, falls = terms.parameters[0]
        return np.exp((np.log(falls * size) - rising) / (falls + exponent))
    u = np.zeros_like(nats)
    for _ in range(_STEPS):
        total = slope = np.zeros_like(nats)
        for size, falls in terms.parameters:
            part = falls * size * np.exp(-falls * u)
            total, slope = total + part, slope + falls * part
        u = u - (rising + exponent * u - np.log(total)) / (exponent + slope / total)
    return np.exp(u)


# How many parameters a too shallow or too deep model is worth. The term belongs to every law. It
# acts on the parameters and not on the loss, so that the part of the loss that no model removes is
# left alone. The runs behind it, and the fit: tools/fits/depth.py.

BEST_WIDTH_PER_LAYER, BEST_WIDTH_PER_LAYER_EXPONENT = 3.97, 0.142
DEPTH_SHALLOW, DEPTH_DEEP = 0.118, 0.059

DEPTH_RUNS = "the 76 runs of Bian et al. 2025, arXiv 2501.18107: tools/fits/depth_evidence.csv"
DEPTH_SOURCE = (
    f"Depth: own fit to {DEPTH_RUNS}; best width per layer from the dense models of the catalog "
    "(fitted)."
)
DEPTH_COEFFICIENTS = (
    Coefficient(
        "depth: k shallow, k deep",
        "0.118 (0.113 to 0.126), 0.059 (0.036 to 0.139)",
        f"own fit to {DEPTH_RUNS}; 80% bootstrap intervals",
        "2026-11",
        "fitted",
    ),
    Coefficient(
        "depth: R*",
        "3.97 N^0.142",
        "widths and depths of the dense models of search_spaces/models.csv",
        "2026-11",
        "fitted",
    ),
)


def depth_factor(
    hidden_size: Floats,
    layers: Floats,
    active_non_embedding: Floats,
    shallow: Floats | float = DEPTH_SHALLOW,
    deep: Floats | float = DEPTH_DEEP,
) -> Floats:
    """(n,) factor on the parameters for being too shallow or too deep, 1 at the best shape.

    exp(-k ln(R / R*)^2) with R = hidden_size / layers, R* = 3.97 N^0.142, and k = 0.118 where
    R > R* (shallow), 0.059 where R < R* (deep).
    """
    best = BEST_WIDTH_PER_LAYER * active_non_embedding**BEST_WIDTH_PER_LAYER_EXPONENT
    distance = np.log(hidden_size / (layers * best))
    return np.exp(-np.where(distance > 0, shallow, deep) * distance * distance)
