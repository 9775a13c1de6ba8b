"""What metrics are called, the unit they are shown in, and the words a reader may not know."""

from __future__ import annotations

from dataclasses import dataclass

from dse.answer.numbers import significant


@dataclass(frozen=True, slots=True)
class Label:
    """How a metric is shown: `unit` and `scale` in tables and axes (shown = SI * scale)."""

    text: str
    kind: str
    unit: str = ""
    scale: float = 1.0
    meaning: str = ""


_S = ("s", "ms", 1e3)
LABELS: dict[str, Label] = {
    "predicted_loss": Label(
        "predicted loss", "nats", "nats per token",
        meaning="how badly the trained model guesses the next token, from a scaling law; "
        "a few hundredths separate generations of models",
    ),
    "usd_per_million_total_tokens": Label(
        "cost per million tokens", "usd", "USD", meaning="prompt and output tokens together"
    ),
    "usd_per_million_output_tokens": Label(
        "cost per million output tokens", "usd", "USD",
        meaning="the chip time of decoding alone, spread over the output tokens",
    ),
    "usd_per_million_input_tokens": Label(
        "cost per million input tokens", "usd", "USD",
        meaning="the chip time of prefill alone, spread over the prompt tokens",
    ),
    "usd_per_million_output_tokens_all_in": Label(
        "all cost put on output tokens, per million", "usd", "USD",
        meaning="prefill and decoding both, spread over the output tokens",
    ),
    "tpot_s": Label("time per output token", *_S, meaning="median gap between tokens of an answer"),
    "ttft_s": Label(
        "time to first token", *_S, meaning="median wait from a request to its first token"
    ),
    "prefill_s": Label("prefill", *_S, meaning="reading the prompt, one request alone"),
    "decode_step_s": Label(
        "decode step", *_S, meaning="one new token for every request in the batch"
    ),
    "e2e_s": Label("request time", "s", "s", meaning="from the request to its last token"),
    "latency_floor_s": Label(
        "floor of the decode step", *_S,
        meaning="at the chip's peak arithmetic and bandwidth with no loss at all",
    ),
    "output_tokens_per_s": Label("output tokens per second", "rate", "tokens/s"),
    "output_tokens_per_s_per_chip": Label("output tokens per second and chip", "rate", "tokens/s"),
    "output_tokens_per_s_per_user": Label(
        "output tokens per second and user", "rate", "tokens/s", meaning="1 / time per output token"
    ),
    "running_requests": Label(
        "running requests", "count", meaning="requests that memory admits at one time"
    ),
    "joules_per_output_token": Label("energy per output token", "joules", "J"),
    "tokens_per_joule": Label("output tokens per joule", "rate", "tokens/J"),
    "watts_per_chip": Label(
        "mean power of a chip", "rate", "W", meaning="while it serves, what stands idle included"
    ),
    "energy_data_movement_share": Label(
        "energy that moves data", "fraction", "%", 100.0,
        "inside the chip, to its memory, over links and network, of all its energy",
    ),
    "training_days": Label("days of training", "rate", "days"),
    "training_usd": Label("cost of training", "dollars", "USD"),
    "training_kwh": Label("energy of training", "rate", "kWh"),
    "training_chip_hours": Label("chip-hours of training", "count"),
    "training_mfu": Label(
        "MFU of training", "fraction", "%", 100.0, "share of the peak arithmetic used in training"
    ),
    "lifetime_usd": Label(
        "lifetime cost", "dollars", "USD",
        meaning="to train the model and to serve all the tokens of the forecast",
    ),
    "lifetime_serving_share": Label("serving's share of lifetime cost", "fraction", "%", 100.0),
    "lifetime_flops": Label("FLOP of training and serving", "rate"),
    "lifetime_chip_hours": Label("chip-hours of training and serving", "count"),
    "memory_bytes_per_chip": Label("memory used per chip", "bytes", "GB", 1e-9),
    "memory_capacity_bytes_per_chip": Label("memory of a chip", "bytes", "GB", 1e-9),
    "kv_bytes_per_token": Label("KV cache per token", "bytes", "kB", 1e-3),
    "mfu": Label(
        "MFU", "fraction", "%", 100.0, "model FLOP utilisation: share of the peak arithmetic used"
    ),
    "mbu": Label(
        "MBU", "fraction", "%", 100.0, "memory bandwidth utilisation: share of the bandwidth used"
    ),
    "dense_equivalent_parameters": Label(
        "dense-equivalent parameters", "parameters", "B", 1e-9,
        "size of the dense model of equal predicted quality",
    ),
    "total_parameters": Label("total parameters", "parameters", "B", 1e-9),
    "active_parameters": Label(
        "active parameters", "parameters", "B", 1e-9, "those that one token passes through"
    ),
    "training_tokens": Label("training tokens", "parameters", "B", 1e-9),
    "training_flops": Label(
        "training compute", "flop", "FLOP", meaning="6 × active parameters × training tokens"
    ),
    "num_attention_heads": Label("query heads", "count"),
    "num_key_value_heads": Label("KV heads", "count"),
    "query_heads_per_kv_head": Label("query heads for each KV head", "rate"),
    "full_attention_layers": Label("full attention layers", "count"),
    "full_attention_share": Label(
        "share of full attention layers", "fraction", "%", 100.0,
        "those in which a token may attend to every token before it",
    ),
    "overtraining_ratio": Label(
        "training tokens over compute-optimal", "rate",
        meaning="above 1 the model is smaller and longer trained than is best for its loss alone",
    ),
    "chips": Label("chips", "count"),
    "chip_usd_per_hour": Label("price of the chips", "usd", "USD per hour"),
}  # fmt: skip

GLOSSARY: dict[str, str] = {
    "front": "designs that no other evaluated design beats in every objective at once",
    "knee": "the design on the front farthest below the plane through its extremes: beyond it, a "
    "gain in one objective costs much of another",
    "80% interval": "the truth is expected inside in four of five cases",
    "tensor parallel": "every matrix is split over this many chips",
    "pipeline parallel": "the layers are split over this many chips",
    "attention data-parallel": "each group of chips runs attention for its own requests",
    "expert parallel": "the experts are spread over this many chips",
    "replicas": "independent copies of the whole deployment",
    "objective": "what the search makes as low or as high as it can",
    "constraint": "a limit that a design must keep",
    "mix": "several workloads that share a deployment's time, each a part of the requests",
    "time to first token": "median wait from a request to the first token of its answer",
    "time per output token": "median gap between the tokens of an answer",
    "predicted loss": "how badly the trained model guesses the next token, from a scaling law; "
    "lower is better, a few hundredths separate generations of models",
    "scaling law": "a formula from parameters and training tokens to loss, fitted to many runs",
    "tokens": "pieces of text, about three quarters of an English word each",
    "FLOP": "one floating-point operation, an addition or a multiplication",
    "TFLOP/s": "a million million floating-point operations in a second",
    "arithmetic intensity": "floating-point operations for each byte moved to or from chip memory",
    "roofline": "the highest rate of arithmetic that peak and memory bandwidth allow at each "
    "arithmetic intensity",
    "memory bandwidth": "bytes that a chip reads from or writes to its own memory in a second",
    "requests in flight": "requests that are being answered at one time, over all chips",
    "running requests": "requests that memory admits at one time",
    "chip-hour": "one chip for one hour",
    "operator": "one step of the computation, such as a matrix product or attention",
    "attention": "the part of a layer that looks back at earlier tokens",
    "experts": "feed-forward parts of a layer, of which each token uses a few",
    "router": "the small product that picks the experts of a token",
    "feed-forward": "the part of a layer that works on each token alone",
    "projection": "a product with a weight matrix",
    "all-reduce": "chips add up their partial results and all receive the sum",
    "output head": "the product that turns the last layer into a score for each word",
    "vocabulary": "the tokens that the model knows",
    "hidden size": "numbers that stand for one token between the layers",
    "active": "parameters that one token passes through",
    "bf16": "16-bit numbers, the format of training",
    "fp8": "8-bit floating-point numbers",
    "int4": "4-bit whole numbers, one scale a group",
    "fp8_block": "8-bit floating-point numbers, one scale a block of 128 x 128",
    "nvfp4": "4-bit floating-point numbers in small scaled groups",
    "mxfp4": "4-bit floating-point numbers in small scaled groups",
    "int8": "8-bit whole numbers with a scale",
    "backend": "the serving software; generic is a current one with CUDA graphs, none by name",
    "continuous": "requests join and leave the running batch between any two steps",
    "split": "how one deployment is divided over its chips",
    "MFU": "model FLOP utilisation: share of the peak arithmetic used",
    "MBU": "memory bandwidth utilisation: share of the bandwidth used",
    "evaluated": "put through the performance model, which takes about a microsecond",
    "engine": "the method of search",
    "seed": "the number that fixes what a search draws at random",
    "trials recorded": "designs stored in the study, which optuna-dashboard can open",
    "data digest": "a fingerprint of the hardware figures that were used",
    "granularity": "how finely experts are cut: hidden size against the width of one",
    "activation ratio": "share of the experts that a token uses",
    "sparse": "a mixture of experts: each token passes through a few of the experts only",
    "dense": "every token passes through all weights",
    "KV heads": "attention heads that keep keys and values; several query heads share one",
    "KV cache": "keys and values of all earlier tokens, kept in chip memory for each request",
    "prefill": "reading the prompt, all its tokens at once",
    "decode": "writing the answer, one token per step",
    "nats": "unit of loss with natural logarithms",
    "dense-equivalent": "the dense model that the scaling law predicts to be as good",
    "floor": "the time if the chip ran at its peak arithmetic and bandwidth without any loss",
    "regret": "how much worse a design is than the best choice, had one known which law is right",
    "hypervolume": "share of the scaled objective space that the front beats: one number for how "
    "far out a front lies",
    "measured": "read off a real device or run",
    "fitted": "from a formula whose constants were fitted to measurements",
    "derived": "computed from other figures",
    "assumed": "filled in without a public figure, with a reason",
    "extrapolated": "outside the range in which the law was fitted",
    "estimated": "a reasoned guess of the cited source",
    "claimed": "stated by a vendor or third party, not checked",
}

BASES = {
    "rental_3yr": "chips rented on a three-year contract",
    "on_demand": "chips rented by the hour, without commitment",
    "owned_tco": "chips owned: server, network, capital, upkeep and power over their life",
}

BOUNDS = {
    "compute": "the chips' arithmetic is the limit",
    "memory bandwidth": "chips wait for weights and KV cache to come from their memory",
    "network": "chips wait for each other's results",
    "memory tier": "chips wait for weights and KV cache to come from a slower memory behind theirs",
    "power cap": "the clock is slowed so that the chip stays within its power cap",
    "fixed overhead": "launching kernels and scheduling on the host take the time, not the work",
}
BOUND_NAMES = {
    "compute": "compute",
    "memory": "memory bandwidth",
    "network": "network",
    "fixed": "fixed overhead",
}


def label(metric: str) -> Label:
    """The label of a metric; one that is not listed is shown under its own name."""
    if metric in LABELS:
        return LABELS[metric]
    text = metric.replace("_", " ")
    if metric.startswith("usd_"):
        return Label(text.removeprefix("usd ").join(("USD ", "")), "usd", "USD")
    if metric.endswith("_s"):
        return Label(text.removesuffix(" s"), "s", "ms", 1e3)
    if "bytes" in metric:
        return Label(text, "bytes", "GB", 1e-9)
    return Label(text, "rate")


def show(metric: str, value: float | None) -> str:
    """A metric in words with its unit; a value that does not apply is a dash."""
    if value is None:
        return "–"
    kind = label(metric).kind
    if kind == "s":
        return seconds(value)
    if kind == "usd":
        return f"${significant(value)}"
    if kind == "dollars":
        return f"${significant(value / 1e6)}M" if value >= 1e6 else f"${significant(value)}"
    if kind == "bytes":
        return bytes_(value)
    if kind == "parameters":
        scale, letter = (1e12, "T") if value >= 1e12 else (1e9, "B") if value >= 1e9 else (1e6, "M")
        return f"{significant(value / scale)}{letter}"
    if kind == "fraction":
        return f"{value:.0%}"
    if kind == "nats":
        return f"{value:.3f}"
    if kind == "joules":
        return f"{significant(value)} J"
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "flop":
        return f"{value:.3g} FLOP".replace("e+", "e")
    return significant(value)


def seconds(value: float) -> str:
    if value == 0:
        return "0"
    scale, unit = (1.0, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")
    return f"{significant(value * scale)} {unit}"


def bytes_(value: float) -> str:
    if value == 0:
        return "0"
    scale, unit = (1e9, "GB") if value >= 1e9 else (1e6, "MB") if value >= 1e6 else (1e3, "kB")
    return f"{significant(value / scale)} {unit}"


def axis_title(metric: str, direction: str | None = None) -> str:
    """`cost per million tokens (USD), lower is better`."""
    known = label(metric)
    title = f"{known.text} ({known.unit})" if known.unit else known.text
    if direction is None:
        return title
    return f"{title}, {'lower' if direction == 'minimize' else 'higher'} is better"
