"""What a deployment's chips, its load, its memory tier and its rack allow."""

from __future__ import annotations

import numpy as np

from dse.physics.racks import BOUNDS
from dse.rules.case import Case, servers_on
from dse.rules.kinds import Found, Part, Rule, rule, said, uneven
from dse.schema.chip import GENERIC


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
