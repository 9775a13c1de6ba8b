"""Serving software as an input: `hardware/backends/*.yaml`.

Kernel efficiency belongs to the chip; what the scheduler and the host add belongs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dse.errors import InputError
from dse.record import record
from dse.schema.loader import did_you_mean, load_yaml
from dse.schema.reader import (
    Date,
    Field,
    Flag,
    Listed,
    Number,
    Quantity,
    Table,
    Text,
    Then,
    Whole,
    Word,
    read,
)

# Bytes that a collective library takes on a chip that has peers: assumed.
COMMUNICATION_BUFFERS = 0.4e9
# How it is launched: with the settings that its makers or submitters tuned for the model and chip,
# or by its defaults.
TUNED, STOCK = "tuned", "stock"
TUNINGS = (TUNED, STOCK)
# Time of a launch by default over a tuned one, before `backend.stock_steps` is fitted: the median
# of eight published comparisons of sparse models in one format. Seven are GPUStack's pages, each
# the median of its loads, a GPU, the best server by default against the best launch
# (docs.gpustack.ai/latest/performance-lab, read 2026-11-23): gpt-oss-20b 1.03 on H100 and 1.04 on
# A100, Qwen3.5-35B-A3B on H200 1.06, DeepSeek-R1 on H200 1.08, gpt-oss-120b 1.09 on A100 and 1.19
# on H100, GLM-4.5-Air on A100 1.31. One is Moreh's claim over SGLang on MI300X, 1.47.
STOCK_STEPS = 1.09
PREFILL_FIRST = "prefill_first"  # the scheduler that gives prompts steps of their own


@record
class Overlap:
    """Two micro-batches that take turns, where attention ranks send tokens to experts outside their
    scale-up domain, in steps of decoding of at least `decode_tokens` on a rank and of prompts of
    `prefill_tokens`; messages take a share of the chip's arithmetic, `decode_taken` or
    `prefill_taken`, from what runs beside them."""

    decode_taken: float
    prefill_taken: float
    decode_tokens: float
    prefill_tokens: float
    kind: str
    source: str


@record
class EarlyLaunch:
    """A kernel that is launched before the one ahead of it has ended (programmatic dependent
    launch): of its fixed cost, measured kernel by kernel, the share `remaining`, on chips of
    `families`."""

    remaining: float
    families: tuple[str, ...]
    kind: str
    source: str


@record
class Backend:
    """One serving backend of one age.

    `host_s_per_step` runs beside the device (a step is the larger of the two); `gap_s_per_step`
    and `host_s_per_request` (for each running request) are serial time between two steps, but
    for a backend that is `overlapped`, whose work on requests runs beside the device too;
    `first_token_s`, `prompt_token_s` for each token of the prompt and `first_token_steps` decode
    steps are added once to the time to first token;
    `cold_s` is what the first burst takes longer on a server that has served nothing yet;
    it looks for new requests every `poll_steps` decode steps, and after every step with prompts;
    `handover_steps` pass between pools of their own, from a cache that has arrived to its request's
    first decode step;
    `chunk_tokens` bounds the prompt tokens of one step; `max_running_requests` is its cap per
    attention rank. `scheduler` is "mixed"
    (prompts ride beside decodes) or "prefill_first" (they get steps of their own, before decodes).

    `memory_fraction` is what the backend takes, by `memory_rule` of the whole chip ("capacity"), of
    what weights and buffers leave ("free"), or of the chip for weights and cache alone ("static").
    It admits a request with the cache of its prompt and `reserved_output` of its output;
    without `window_cache`, layers with a window or chunks keep the whole length too. Collectives
    keep `communication_bytes` of a chip that has peers. A stock launch takes `stock_steps` times
    the device time of a tuned one. The fitted factors are those of `calibrated_as`, else its own.
    """

    id: str
    title: str
    host_s_per_step: float
    gap_s_per_step: float
    host_s_per_request: float
    launch_s: float
    first_token_s: float
    prompt_token_s: float
    first_token_steps: float
    cold_s: float
    poll_steps: float
    handover_steps: float
    overlapped: bool
    chunk_tokens: float
    memory_fraction: float
    memory_rule: str
    reserved_output: float
    window_cache: bool
    max_running_requests: float
    communication_bytes: float
    scheduler: str
    overlap: Overlap | None
    early_launch: EarlyLaunch | None
    stock_steps: float
    calibrated_as: str
    kind: str
    source: str
    date: str


OVERLAP = Table(
    Field("decode_taken", Number(0, 1), meaning="share of the arithmetic that messages take"),
    Field("prefill_taken", Number(0, 1), meaning="the same in steps of prompts"),
    Field("decode_tokens", Then(Whole(above=0), float), meaning="of a rank, from which it is on"),
    Field("prefill_tokens", Then(Whole(above=0), float), meaning="the same of prompts"),
    Field("kind", Text()),
    Field("source", Text()),
    make=Overlap,
)
EARLY_LAUNCH = Table(
    Field("remaining", Number(0, 1), meaning="share of a kernel's fixed cost that is left"),
    Field("families", Listed(Text(), 1), meaning="of chips with such kernels"),
    Field("kind", Text()),
    Field("source", Text()),
    make=EarlyLaunch,
)
BACKEND = Table(
    Field("id", Text(), meaning="what commands call it"),
    Field("title", Text()),
    Field("host_per_step", Quantity("s"), to="host_s_per_step", meaning="beside the device"),
    Field("gap_per_step", Quantity("s"), to="gap_s_per_step", meaning="between two steps"),
    Field(
        "host_per_request",
        Quantity("s"),
        to="host_s_per_request",
        meaning="for each running request, between two steps",
    ),
    Field(
        "launch",
        Quantity("s"),
        0.0,
        to="launch_s",
        meaning="of one operator by the host, in steps that no CUDA graph replays",
    ),
    Field(
        "first_token",
        Quantity("s"),
        to="first_token_s",
        meaning="added once to the time to first token",
    ),
    Field(
        "prompt_token",
        Quantity("s"),
        0.0,
        to="prompt_token_s",
        meaning="of the host for each token of a prompt, added to it",
    ),
    Field("first_token_steps", Number(0), 0.0, meaning="decode steps added to it"),
    Field(
        "cold", Quantity("s"), 0.0, to="cold_s", meaning="added to a first burst without warm-up"
    ),
    Field(
        "poll_steps",
        Then(Whole(above=0), float),
        1.0,
        meaning="decode steps between two looks for new requests",
    ),
    Field(
        "handover_steps",
        Number(0),
        0.0,
        meaning="decode steps from a cache that a pool sent to its request's first",
    ),
    Field("overlapped", Flag(), False, meaning="work on requests runs beside the device too"),
    Field("chunk_tokens", Then(Whole(above=0), float), meaning="most prompt tokens of a step"),
    Field("memory_fraction", Number(0.1, 1), meaning="what the backend takes"),
    Field("memory_rule", Word(("capacity", "free", "static")), meaning="of what it takes that"),
    Field("reserved_output", Number(0, 1), meaning="share of the output that is reserved"),
    Field("window_cache", Flag(), True, meaning="layers with a window keep the window alone"),
    Field("max_running_requests", Then(Whole(above=0), float), meaning="per attention rank"),
    Field(
        "communication_buffers",
        Quantity("bytes"),
        COMMUNICATION_BUFFERS,
        to="communication_bytes",
        meaning="that collectives keep of a chip with peers",
    ),
    Field("scheduler", Word(("mixed", PREFILL_FIRST)), "mixed"),
    Field("overlap", OVERLAP, None, meaning="of network and arithmetic, where experts lie outside"),
    Field("early_launch", EARLY_LAUNCH, None, meaning="of kernels before the last has ended"),
    Field(
        "stock_steps",
        Number(1),
        STOCK_STEPS,
        meaning="device time of a stock launch over a tuned one",
    ),
    Field("calibrated_as", Text(), "", meaning="the backend whose fitted factors hold for it"),
    Field("kind", Text()),
    Field("source", Text()),
    Field("date", Date()),
    make=Backend,
)


def load_backend(path: Path) -> Backend:
    """Raises InputError with the line and field of every mistake."""
    return read(BACKEND, load_yaml(path))


def load_backends(folder: Path) -> dict[str, Backend]:
    """Every backend file of a folder by id."""
    backends = (load_backend(path) for path in sorted(folder.glob("*.yaml")))
    return {backend.id: backend for backend in backends}


def find_backend(backends: Mapping[str, Backend], name: str) -> Backend:
    """By id. Raises InputError with the ids that exist."""
    if name in backends:
        return backends[name]
    raise InputError(
        f"unknown backend {name!r}{did_you_mean(name, backends)}",
        field="backend",
        accepted=", ".join(sorted(backends)),
    )
