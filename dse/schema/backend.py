"""Serving software as an input: `hardware/backends/*.yaml`.

Kernel efficiency belongs to the chip; what the scheduler and the host add belongs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dse.schema.loader import unknown
from dse.schema.reader import (
    REQUIRED,
    ByName,
    Date,
    Flag,
    Listed,
    Number,
    Quantity,
    Refused,
    Schema,
    Text,
    Then,
    Whole,
    Word,
    field,
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


_COUNT = Then(Whole(above=0), float)


class Overlap(Schema):
    """Two micro-batches that take turns, where attention ranks send tokens to experts outside their
    scale-up domain, in steps of decoding of at least `decode_tokens` on a rank and of prompts of
    `prefill_tokens`; messages take a share of the chip's arithmetic, `decode_taken` or
    `prefill_taken`, from what runs beside them."""

    decode_taken: float = field(Number(0, 1))
    prefill_taken: float = field(Number(0, 1))
    decode_tokens: float = field(_COUNT)
    prefill_tokens: float = field(_COUNT)
    kind: str = field(Text())
    source: str = field(Text())


class EarlyLaunch(Schema):
    """A kernel that is launched before the one ahead of it has ended (programmatic dependent
    launch): of its fixed cost, measured kernel by kernel, the share `remaining`, on chips of
    `families`."""

    remaining: float = field(Number(0, 1))
    families: tuple[str, ...] = field(Listed(Text(), 1))
    kind: str = field(Text())
    source: str = field(Text())


class Backend(Schema, kw_only=True):
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

    id: str = field(Text())
    title: str = field(Text())
    host_s_per_step: float = field(Quantity("s"), written="host_per_step")
    gap_s_per_step: float = field(Quantity("s"), written="gap_per_step")
    host_s_per_request: float = field(Quantity("s"), written="host_per_request")
    launch_s: float = field(Quantity("s"), default=0.0, written="launch")
    first_token_s: float = field(Quantity("s"), written="first_token")
    prompt_token_s: float = field(Quantity("s"), default=0.0, written="prompt_token")
    first_token_steps: float = field(Number(0), default=0.0)
    cold_s: float = field(Quantity("s"), default=0.0, written="cold")
    poll_steps: float = field(_COUNT, default=1.0)
    handover_steps: float = field(Number(0), default=0.0)
    overlapped: bool = field(Flag(), default=False)
    chunk_tokens: float = field(_COUNT)
    memory_fraction: float = field(Number(0.1, 1))
    memory_rule: str = field(Word(("capacity", "free", "static")))
    reserved_output: float = field(Number(0, 1))
    window_cache: bool = field(Flag(), default=True)
    max_running_requests: float = field(_COUNT)
    communication_bytes: float = field(
        Quantity("bytes"), default=COMMUNICATION_BUFFERS, written="communication_buffers"
    )
    scheduler: str = field(Word(("mixed", PREFILL_FIRST)), default="mixed")
    overlap: Overlap | None = field(Overlap, default=None)
    early_launch: EarlyLaunch | None = field(EarlyLaunch, default=None)
    stock_steps: float = field(Number(1), default=STOCK_STEPS)
    calibrated_as: str = field(Text(), default="")
    kind: str = field(Text())
    source: str = field(Text())
    date: str = field(Date())


def load_backends(folder: Path) -> dict[str, Backend]:
    """Every backend file of a folder by id."""
    backends = (Backend.load(path) for path in sorted(folder.glob("*.yaml")))
    return {backend.id: backend for backend in backends}


def find_backend(backends: Mapping[str, Backend], name: str) -> Backend:
    """By id. Raises InputError with the ids that exist."""
    if name in backends:
        return backends[name]
    raise unknown("unknown backend", name, sorted(backends), field="backend")


# What measured serving says on top of the kernel laws.
#
# `hardware/efficiency/serving/calibration.yaml` holds it; `python -m tools.fits.serving` writes it.
# Two things: factors with a physical meaning, each close to 1, and how far predictions of unseen
# configurations have been off.

CALIBRATION = "serving/calibration.yaml"
EVERY = "backend"  # before the name of a field of every backend
# How far a number can be trusted, best first; the worst of what an answer used is its provenance.
KINDS = ("fitted", "derived", "assumed")


FACTOR = (0.05, 20.0)  # what is further off is no correction, but another model


def _about_one(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] <= 1.0 <= ends[1]:
        raise Refused(f"read {ends[0]:g} to {ends[1]:g}", "an interval that holds 1")
    return ends


class Calibration(Schema):
    """`factors[name]` multiplies what `dse.physics.kernels` says of the name; 1 where absent.

    `spread[metric class][kind]` is the 80% interval of measured / predicted, (low, high), for
    efficiencies of each of KINDS. `shared` is the part of the variance of an error that the rows of
    a group (model and chip) have in common. Of a stock launch both ends of an interval are taken
    to the power `stock_wider`.
    """

    factors: Mapping[str, float] = field(ByName(Number(*FACTOR)))
    spread: Mapping[str, Mapping[str, tuple[float, float]]] = field(
        ByName(ByName(Then(Listed(Number(above=0), 2, 2), _about_one))), default={}
    )
    shared: float = field(Number(0, 1), default=0.5)
    stock_wider: float = field(Number(1), default=1.0)
    title: str = field(Text(), default="", left_out=REQUIRED)
    kind: str = field(Text(), default="", left_out=REQUIRED)
    source: str = field(Text(), default="", left_out=REQUIRED)
    data_digest: str = field(Text(), default="", left_out=REQUIRED)
    date: str = field(Date(), default="", left_out=REQUIRED)

    def backend(self, backend: Backend) -> Backend:
        """The backend with the factors named "id.field", of what it is `calibrated_as`, and those
        of EVERY, applied to its fields."""
        changed: dict[str, float] = {}
        for name, factor in self.factors.items():
            owner, _, field = name.partition(".")
            if owner in (EVERY, backend.calibrated_as or backend.id):
                before: float = getattr(backend, field)
                changed[field] = changed.get(field, before) * factor
        return replace(backend, **changed) if changed else backend


UNCALIBRATED = Calibration({}, {})
