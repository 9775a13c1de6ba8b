"""One point from flags: a model, a chip, a deployment and a workload."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.answer.sentences import never_measured
from dse.blocks.moe import ROUTING_SKEW
from dse.catalog import Catalog
from dse.economics.prices import evidence_rows, price_assumptions
from dse.economics.tco import load_share, price_by_parts
from dse.economics.tokens import PRICES, load_at
from dse.errors import InputError
from dse.physics.disaggregated import Disaggregated
from dse.physics.ledger import Ledger
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import POISSON, Workload
from dse.problem.describe import (
    check_domain,
    describe_deployment,
    describe_metrics,
    describe_workloads,
    domain_assumptions,
    fit_ranges,
)
from dse.problem.evaluate import Metrics
from dse.problem.mix import Mix, alone, evaluate_mix, load_row, one_load, served_by
from dse.problem.models import describe_own_law, own_law
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS, find_law
from dse.record import record
from dse.schema.axes import CHIP_DEGREES
from dse.schema.backend import KINDS, find_backend
from dse.schema.chip import GENERIC, Chip
from dse.schema.constants import tiers_of
from dse.schema.costs import BASIS as OWNED
from dse.schema.efficiency import NOISY, Efficiency
from dse.schema.metrics import Limit
from dse.schema.model import Model, config_of, layers_in_words
from dse.schema.traffic import Demand, check_idle_once
from dse.space.batches import DOMAIN_AXIS, one_of
from dse.space.candidates import CandidateBatch
from dse.units import format as written

if TYPE_CHECKING:
    from dse.problem.training import Trained
    from dse.schema.loss_runs import LossRuns
    from dse.schema.system import Rack

OVERLAP = (
    "offloaded weights are fetched while the layer before computes, routed experts and cache on "
    "demand, while the device waits (docs/tiers.md)"
)
TIER_ENERGY = "joules leave out what the tier and the link to it draw for these bytes"


@record
class Estimate:
    """A batch of one, its metrics, and what it took to get them."""

    model: Model
    batch: CandidateBatch
    mix: Mix
    machines: Machines
    metrics: Metrics
    price_basis: str
    limits: tuple[Limit, ...]
    assumed: tuple[str, ...]
    conditions: Mapping[str, Any]  # what the chips were held to, where something was asked
    prefill: Estimate | None = None  # the prefill pool, where this is the decode pool alone
    held: float | None = None  # requests that a worker of it decodes at once, of a point of a study
    own_law: Mapping[str, Any] | None = None  # `dse.problem.models.describe_own_law`
    running: tuple[str, ...] = ()  # how the requests of one pool run
    priced: tuple[Mapping[str, Any], ...] = ()  # `dse.economics.prices.evidence_rows`
    names: Mapping[str, str] = field(default_factory=dict)  # the makers' names of chips

    def as_json(self, objectives: tuple[str, ...] = ()) -> dict[str, Any]:
        """The document of `dse estimate --json`: the metrics, the `objectives` of a study among
        them, then what was asked."""
        workloads = describe_workloads(self.metrics, 0)
        layers = layers_in_words(config_of(self.model))
        described = describe_metrics(self.metrics, 0, self.limits, objectives)
        return {
            **described,
            **({"workloads": workloads} if workloads else {}),
            "assumed": [*self.running, *self.assumed],
            "model": self.model.name,
            **({"layers": layers} if layers else {}),
            "deployment": describe_deployment(self.batch, 0, self.machines),
            "workload": one_load([load_row(share) for share in self.mix]),
            "price_basis": self.price_basis,
            "price_evidence": list(self.priced),
            "quality_law_fit": fit_ranges(
                self.metrics.quality.law, quantised=bool(described["quantisation_loss"])
            ),
            **({"loss_runs": self.own_law} if self.own_law else {}),
            **self.conditions,
        }


def estimate(
    catalog: Catalog,
    model: Model,
    chip: str,
    workload: Workload | Mix,
    deployment: Mapping[str, float],
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    price_basis: str = "rental_3yr",
    limits: tuple[Limit, ...] = (),
    power_cap_w: float | None = None,
    keep: bool = False,
    jitter: float | None = None,
    backend_default: bool = False,
    rack: Rack | None = None,
    law: str = DEFAULT,
    runs: LossRuns | None = None,
    unique_tokens: float = UNIQUE_TOKENS,
    trained: Trained | None = None,
    demand: Demand | None = None,
) -> Estimate:
    """Evaluates one point under a workload or a mix of several; `jitter`, mean seconds
    of delay, takes the place of what the chip's system states. `backend_default`: nobody asked
    for the backend, the chip's own was taken. A hypothetical scale-up domain is held to the bounds
    of `rack` where one is given, and chips to `power_cap_w` watts (None: their rated power);
    `law` names the quality law, which `runs` of one's own move (`dse.problem.models`); of its
    text `unique_tokens` are not read twice; with
    `trained` the metrics are also those of training and life;
    `demand` asks for the prices at its average load. Raises InputError for an unknown chip, dtype,
    price basis or law, and for a chip without a figure that the point needs."""
    named = find_law(law).name
    own = None if runs is None else own_law(named, runs)
    used = law if own is None else own.law
    if demand is not None and price_basis == OWNED:
        check_idle_once(catalog.costs.value("utilisation"))
    catalog.require(chip, math.prod(float(deployment.get(axis, 1.0)) for axis in CHIP_DEGREES))
    if DOMAIN_AXIS in deployment:
        check_domain(catalog, chip)
    machines = compile_machines(catalog, [chip], price_basis, rack, power_cap_w)
    if jitter is not None:
        from dse.physics.machines import with_jitter

        machines = with_jitter(machines, jitter)
    batch = one_of(model, deployment, weight_dtype, kv_dtype)
    mix = alone(workload) if isinstance(workload, Workload) else workload
    if isinstance(software := deployment.get("backend"), str):
        mix = served_by(mix, find_backend(catalog.backends, software))
    metrics = evaluate_mix(batch, mix, machines, keep=keep, law=used, unique_tokens=unique_tokens)
    if trained is not None:
        metrics = trained.complete(metrics, batch)
    described = describe_deployment(batch, 0, machines)
    assumed: list[str] = []
    if backend_default and catalog.chip(chip).backend != GENERIC:
        name = catalog.chip(chip).backend
        assumed.append(f"backend {name}, the default of {chip}: no --backend was given")
    if jitter is not None:
        assumed.insert(0, f"exponential delays of {jitter * 1e6:g} us in collectives, as given")
    running = running_words(
        batch, mix, metrics, lambda other, load: evaluate_mix(other, load, machines, law=used)
    )
    known = int(metrics.provenance[0])
    assumed += assumptions(catalog, model, described, mix, known, price_basis, rack, power_cap_w)
    assumed += () if trained is None else trained.assumed
    priced = chip in catalog.prices.select(price_basis)
    price = price_by_parts(catalog, chip, price_basis) if price_basis == OWNED and priced else None
    conditions = {
        "price": price,
        "at_average_load": None if demand is None else average_load(demand, metrics, 0, price),
        "power_cap_w": power_cap_w,
        "jitter_s": jitter,
    }
    return Estimate(
        model,
        batch,
        mix,
        machines,
        metrics,
        price_basis,
        tuple(limits),
        tuple(assumed),
        {name: value for name, value in conditions.items() if value is not None},
        own_law=None if own is None else describe_own_law(own),
        running=tuple(running),
        priced=tuple(evidence_rows(catalog, [(chip, price_basis)])),
        names=catalog.names,
    )


def average_load(
    demand: Demand, metrics: Metrics, row: int, price: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The prices of candidate `row` at the average of a demand; `price` is its chip's by parts,
    None where the chip is rented. Raises InputError for a chip without a price, and where the
    deployment serves nothing."""
    names = ("chip_usd_per_hour", "chips", *PRICES)
    values = {name: metrics.values[name][row : row + 1] for name in names}
    if np.isnan(values["chip_usd_per_hour"][0]):
        raise InputError(
            "no price at average load: the chip has no price on this basis",
            field="demand",
            accepted="another price basis, or --prices FILE",
        )
    found = load_at(demand, values, 0.0 if price is None else load_share(price)).as_json()
    if found["deployment_tokens_per_s"] is None:
        raise InputError("this deployment serves no tokens", accepted="one that is feasible")
    return found


def assumptions(
    catalog: Catalog,
    model: Model,
    deployment: Mapping[str, Any],
    mix: Mix,
    provenance: int,
    price_basis: str,
    rack: Rack | None = None,
    power_cap_w: float | None = None,
) -> list[str]:
    """What the answer rests on beyond sourced figures, a sentence each, worst first. `deployment`
    as `describe_deployment` gives it; `provenance` indexes `machines.KINDS`."""
    chip = deployment["chip"]
    spec = catalog.chip(chip)
    system = catalog.systems[spec.system]
    domain = deployment.get(DOMAIN_AXIS, system.levels[0].size or math.inf)
    tier = tiers_of(spec, catalog.tiers).get(deployment.get("offload_tier") or "")
    sentences = [] if tier is None else [f"{chip}: {text}" for text in tier.assumed]
    if tier is not None:
        sentences += [catalog.tiers.reason, OVERLAP, TIER_ENERGY]
    if DOMAIN_AXIS in deployment:
        sentences += domain_assumptions(
            system,
            domain,
            rack,
            deployment["tensor_parallel"] * deployment["data_parallel"],
        )
    kind = KINDS[provenance]
    laws = catalog.efficiencies[spec.efficiency]
    if tier is not None:  # it is assumed, whatever the kernels are
        kind = _kernels(laws, deployment)
    if laws.provenance:
        sentences += measured_here(laws, chip, kind)
    elif kind != "fitted":
        sentences.append(never_measured(chip, kind, spec.efficiency))
    sentences += _unpacked(spec, deployment.get("weight_dtypes", {}).values())
    sentences += [f"{chip}: {text}" for text in spec.assumed]
    sentences += [f"{system.id}: {text}" for text in system.assumed]
    sentences += [f"{chip}: no figure for {name}" for name in spec.missing]
    sentences += [f"{system.id}: no figure for {name}" for name in system.missing]
    sentences += price_assumptions(catalog, chip, price_basis)
    drafts = any(share.workload.speculation is not None for share in mix)
    texts = _drafting(model.assumed) if drafts else model.assumed
    sentences += [f"{model.name}: {text}" for text in texts]
    if model.training_tokens is None:
        sentences.append(f"{model.name}: training tokens unknown: no loss is predicted")
    measured = max(catalog.efficiencies[spec.efficiency].all_reduce.latency_s)
    group = deployment["tensor_parallel"] * deployment["data_parallel"]
    if min(group, domain) > measured:
        sentences.append(f"{chip}: collectives between more than {measured} chips are extrapolated")
    if "routing_skew" not in deployment and model.experts:
        sentences.append(
            f"routing skew {ROUTING_SKEW:g}, that of measured kernels under a power law, not of "
            "this model"
        )
    sentences += _unmeasured(mix, model.prediction_layers)
    sentences.append(
        "80% intervals are how far held-out measured rows were off, by efficiency kind"
    )
    sentences += energy_words(catalog, spec, power_cap_w)
    return sentences


def _unpacked(chip: Chip, formats: Iterable[str]) -> list[str]:
    """What is said of weights in formats that the chip does not multiply in."""
    return [
        f"{why}: the weights are unpacked to 16 bits, at the cost of kernels that do so elsewhere, "
        "and no faster than a native format as narrow (assumed)"
        for why in map(chip.not_computed, dict.fromkeys(formats))
        if why
    ]


def energy_words(catalog: Catalog, chip: Chip, power_cap_w: float | None) -> list[str]:
    """What the energy of a chip rests on."""
    if chip.tdp_w is None:
        return []
    sentences = [
        "energy is counted by operation and byte (docs/energy.md); no measured row was fitted: its "
        "interval is a factor of two, that of power 0.7 to 1.9 (both assumed)",
        *catalog.energy.assumed(chip),
    ]
    if power_cap_w is not None:
        sentences.append(
            "under a power cap dynamic power is taken to fall with the cube of the clock"
        )
    return sentences


def _kernels(efficiency: Efficiency, deployment: Mapping[str, Any]) -> str:
    """The worst kind of the GEMM laws that a deployment's weights run on."""
    laws = efficiency.operators["gemm"]
    used = {laws.get(dtype, laws["bf16"]).kind for dtype in deployment["weight_dtypes"].values()}
    return max(used, key=KINDS.index)


def measured_here(laws: Efficiency, chip: str, kind: str) -> list[str]:
    """What an answer says of laws that `dse calibrate` wrote."""
    where = f"{laws.date} ({laws.file}: {laws.provenance.get('device', 'device not stated')})"
    sentences = [f"kernel efficiencies of {chip} were measured here, {where}"]
    if laws.id != chip:
        sentences = [f"kernel efficiencies of {chip} are those of {laws.title}, {where}: derived"]
    elif kind != "fitted":
        sentences.append(
            f"{chip}: what this model needs beyond them (experts, latent attention, a format) was "
            f"not measured here and is {kind}"
        )
    if laws.noise is not None and laws.noise > NOISY:
        sentences.append(
            f"the machine was not idle when {laws.file} was measured: samples of a point lie "
            f"{laws.noise:.0%} apart"
        )
    sentences.append(
        f"{chip}: no serving run was measured here: factors and intervals are those of the chips "
        "with measured serving"
    )
    return sentences


def _drafting(texts: Sequence[str]) -> list[str]:
    """What a model that drafts with such a module assumes: not that this is left out."""
    texts = [text.replace("the multi-token-prediction module and ", "") for text in texts]
    return [text for text in texts if not re.search("multi-token.prediction", text)]


def _unmeasured(mix: Mix, modules: int | None) -> list[str]:
    """What of the workloads no measured row has, so that no interval was tested on it; `modules`
    are those that the model predicts more tokens with, None where that is not said."""
    has = ", whether or not it has one" if modules is None else ""
    drafts = (
        "drafts are those of a multi-token-prediction module of one mean layer of the model, "
        f"a projection and the model's own output head{has} (assumed)"
    )
    if modules == 0:
        drafts = "the model has no multi-token-prediction module: nothing is drafted"
    loads = [share.workload for share in mix]
    asked = {
        "Poisson arrivals": any(load.serving == POISSON for load in loads),
        "speculative decoding": any(load.speculation is not None for load in loads),
        "cached prefixes": any(load.prefix_hit_rate for load in loads),
        "an overlap of network and compute": any(load.network_overlap for load in loads),
        "a mix of workloads": len(loads) > 1,
    }
    said = {
        "Poisson arrivals": (
            "below capacity the arrivals set output rate and cost: these have no interval",
        ),
        "speculative decoding": (
            "the acceptance of drafted tokens is as given: nothing predicts it",
            drafts,
        ),
        "cached prefixes": (
            "the share of cached prefixes is as given; memory that requests share is not credited",
        ),
        "an overlap of network and compute": (
            "the overlap of network and compute is as given; that each micro-batch reads the "
            "weights is not charged",
        ),
    }
    parts = [part for part, holds in asked.items() if holds]
    sentences = [text for part in parts for text in said.get(part, ())]
    if parts:
        sentences.append(
            f"no measured row has {', '.join(parts)}: intervals are those of closed loops without"
        )
    return sentences


# How the requests of a point run: overlap, the cap that holds them back, drafts.


def running_words(
    batch: CandidateBatch,
    mix: Mix,
    metrics: Metrics,
    again: Callable[[CandidateBatch, Mix], Metrics],
) -> list[str]:
    """Sentences of the first candidate; `again` evaluates another batch or workload."""
    loads = [share.workload for share in mix]
    served = [one.metrics for one in metrics.members] if metrics.members else [metrics]
    found: list[str] = []
    for load, one in zip(loads, served, strict=True):
        served_by = one.performance.detail
        found += _overlap(load, served_by.decode_ledger, served_by.prefill_ledger)
        found += _cap(batch, load, one)
        found += _launch(load)
    found += _drafts(batch, mix, metrics, again)
    return list(dict.fromkeys(found))


def pool_words(batch: CandidateBatch, load: Workload, found: Disaggregated) -> list[str]:
    """The same of two pools, of which `batch` decodes."""
    words = [*_overlap(load, found.decode_ledger, found.prefill_ledger), *_launch(load)]
    ranks = float((batch.replicas * batch.data_parallel)[0])
    room = float(found.decode_memory.admitted[0] / batch.data_parallel[0])
    # Where all slots are taken, a mean that is just below them runs.
    if found.running_requests[0] / ranks > 0.99 * cap_of(batch, load):
        words += _cap_words(batch, load, room)
    return words + list(_published(batch, [load]))


def _overlap(load: Workload, decode: Ledger, prefill: Ledger) -> Iterator[str]:
    usual = load.backend.overlap
    if usual is None or load.network_overlap is not None:
        return
    phases = (("decode", decode), ("prefill", prefill))
    split = [name for name, ledger in phases if np.any(ledger.hidden_share)]
    if split:
        yield (
            f"{' and '.join(split)} in two micro-batches, each computing while the other exchanges "
            f"tokens, as {load.backend.id} does where experts lie outside the domain "
            f"({usual.kind}); network_overlap=0 is without"
        )


def _launch(load: Workload) -> Iterator[str]:
    if load.slower != 1.0:
        yield (
            f"a stock launch takes {load.slower:.2f} times a tuned one on the device (fitted); "
            "tuning=tuned is without"
        )


def cap_of(batch: CandidateBatch, load: Workload) -> float:
    own = batch.max_running_requests
    return load.cap if own is None or np.isnan(own[0]) else float(own[0])


def _cap(batch: CandidateBatch, load: Workload, metrics: Metrics) -> Iterator[str]:
    if load.serving == "static":
        return
    served, ranks = metrics.performance, float(batch.data_parallel[0])
    most = cap_of(batch, load) * ranks
    waiting = load.serving in (POISSON, "offline")
    waiting = waiting or float(batch.concurrency[0] / batch.replicas[0]) > most
    if waiting and served.running_per_instance[0] >= most:
        yield from _cap_words(batch, load, float(served.memory.admitted[0]) / ranks)


def _cap_words(batch: CandidateBatch, load: Workload, room: float) -> Iterator[str]:
    cap = cap_of(batch, load)
    given = load.max_running_requests is not None or batch.max_running_requests is not None
    if room > cap:
        yield (
            f"the cap of {cap:,.0f} running requests an attention rank "
            f"({'as given' if given else f'of {load.backend.id}'}) binds: memory has room for "
            f"{room:,.0f}; max_running_requests sets it"
        )


def _drafted(batch: CandidateBatch) -> float:
    return 0.0 if batch.draft_tokens is None else float(batch.draft_tokens[0])


def _published(batch: CandidateBatch, loads: Sequence[Workload]) -> Iterator[str]:
    given = [load.speculation.acceptance for load in loads if load.speculation is not None]
    if _drafted(batch) and all(acceptance is None for acceptance in given):
        assert batch.draft_gain is not None
        yield (
            f"a step gives {batch.draft_gain[0]:.3g} tokens with {_drafted(batch):g} drafted, "
            "as published of the model (search_spaces/drafts.csv)"
        )


def _drafts(
    batch: CandidateBatch,
    mix: Mix,
    metrics: Metrics,
    again: Callable[[CandidateBatch, Mix], Metrics],
) -> Iterator[str]:
    loads = [share.workload for share in mix]
    if not _drafted(batch) and all(load.speculation is None for load in loads):
        return
    yield from _published(batch, loads)
    plain = tuple(
        replace(share, workload=replace(share.workload, speculation=None)) for share in mix
    )
    none = replace(batch, draft_tokens=None, draft_gain=None)
    with_s, without_s = (float(one.values["tpot_s"][0]) for one in (metrics, again(none, plain)))
    if not np.isfinite(with_s) or not np.isfinite(without_s):
        return
    times = f"{written(with_s, 's')} a token with them, {written(without_s, 's')} without"
    if with_s < without_s:
        yield f"drafts on: they pay at this batch, {times}"
    else:
        yield f"drafts off would be faster at this batch: {times}"
