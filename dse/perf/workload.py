"""The workload as the physics sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.candidates import Floats
from dse.specs.backend import Backend

SERVING = ("continuous", "static", "offline")


@dataclass(frozen=True, slots=True)
class Workload:
    """`prompt_tokens` and `output_tokens` have shape (1,) (one workload) or (n,).

    serving: `continuous` (a closed loop that holds `concurrency` requests in flight), `static` (one
    fixed batch of `concurrency`), `offline` (everything queued, as many running as fit). A closed
    loop is in its steady state, or, with `rounds`, a benchmark that sends `rounds` x `concurrency`
    prompts, the first `concurrency` of them at once.
    """

    prompt_tokens: Floats
    output_tokens: Floats
    serving: str
    backend: Backend
    rounds: float = np.inf

    @classmethod
    def of(cls, prompt: float, output: float, serving: str, backend: Backend) -> Workload:
        return cls(np.array([float(prompt)]), np.array([float(output)]), serving, backend)

    def rows(self, rows: slice) -> Workload:
        """The workload of a slice of the candidates."""
        if len(self.prompt_tokens) == 1:
            return self
        prompt, output = self.prompt_tokens[rows], self.output_tokens[rows]
        return Workload(prompt, output, self.serving, self.backend, self.rounds)
