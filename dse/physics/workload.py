"""The workload as the physics sees it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from dse.record import record
from dse.schema.backend import STOCK, TUNED, Backend
from dse.space.candidates import Floats

SERVING = ("continuous", "static", "offline")
POISSON = "poisson"


@record
class Speculation:
    """`draft_tokens` a step (None: those of each candidate), each accepted with probability
    `acceptance` (0 to 1) after the one before it: measured by the user (None: what is published of
    the model). A multi-token-prediction
    module drafts."""

    draft_tokens: int | None = None
    acceptance: float | None = None


@record
class Workload:
    """`prompt_tokens` and `output_tokens` have shape (1,) (one workload) or (n,).

    serving: `continuous` (a closed loop that holds `concurrency` requests in flight), `static` (one
    fixed batch of `concurrency`), `offline` (everything queued, as many running as fit), `poisson`
    (`requests_per_s`, (1,) or (n,), arrive at random at all chips together; no `concurrency`).

    A closed loop is in its steady state, or, with `rounds`, a benchmark that sends `rounds` x
    `concurrency` prompts, the first `concurrency` of them at once. `synchronised`, (1,) or (n,), is
    the share of requests that stay in step (`dse.physics.queueing.synchronised_share`).

    `open_loop`: requests come at random, at the rate at which `concurrency` are in flight in the
    mean (Little's law), as a benchmark with Poisson arrivals counts them afterwards; `continuous`.

    `queued`, (1,) or (n,): requests of equal length that `offline` serving starts with; 0: no end.

    `prefix_hit_rate`: share of the prompt's tokens whose keys and values are cached already. They
    are not prefilled, the others attend to them, and every request is counted with its whole cache:
    that requests may share it is not credited.

    `network_overlap`: share of the shorter of a step's network time and the rest of its device time
    that is hidden behind the other, whatever the deployment; None for what the backend does
    (`dse.physics.ledger`).

    `max_running_requests`: most requests of an attention rank, None for the backend's cap.

    `tuning`: how the software was launched, one of `dse.schema.backend.TUNINGS`.
    """

    prompt_tokens: Floats
    output_tokens: Floats
    serving: str
    backend: Backend
    rounds: float = np.inf
    synchronised: Floats = field(default_factory=lambda: np.zeros(1))
    requests_per_s: Floats = field(default_factory=lambda: np.zeros(1))
    open_loop: bool = False
    queued: Floats = field(default_factory=lambda: np.zeros(1))
    speculation: Speculation | None = None
    prefix_hit_rate: float = 0.0
    network_overlap: float | None = None
    max_running_requests: float | None = None
    tuning: str = TUNED

    @property
    def slower(self) -> float:
        """Device time of a step over that of a tuned launch."""
        return self.backend.stock_steps if self.tuning == STOCK else 1.0

    @property
    def cap(self) -> float:
        """Most requests that run at once on an attention rank."""
        given = self.max_running_requests
        return self.backend.max_running_requests if given is None else given

    @classmethod
    def of(
        cls,
        prompt: float,
        output: float,
        serving: str,
        backend: Backend,
        *,
        requests_per_second: float = 0.0,
        **more: Any,
    ) -> Workload:
        """Of one workload, with `more` fields of this class."""
        return cls(
            np.array([float(prompt)]),
            np.array([float(output)]),
            serving,
            backend,
            requests_per_s=np.array([float(requests_per_second)]),
            **more,
        )
