"""Claim 23: training in one place, inference in many, on older and on consumer chips too."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.points import Point, predict
from dse.accuracy.claims.training_runs import run
from dse.answer.numbers import digits, percent, times
from dse.catalog import load_catalog
from dse.economics.tco import with_basis
from dse.schema.costs import BASIS as OWNED

MODEL, CHIP, CHIPS = "llama-3-70b", "h100_sxm", 1024
SITES = 4
BANDWIDTHS = ("10 Gb/s", "100 Gb/s", "400 Gb/s", "3.2 Tb/s")
LATENCY, LOCAL_STEPS = "20 ms", 100
LATENCY_S = 0.02
SERVED, NEW = "llama-3-8b", "h100_sxm"
OLDER = ("a100_80_sxm", "a100_40_sxm", "l40s", "a10", "l4", "rtx4090", "rtx5090")
REQUESTS = 16.0
LOSES, KEEPS, USEFUL = 0.2, 0.1, 2.0


def judge(training: list[float], first_token: float, dollars: list[float]) -> str:
    """`training`: share of the rate that synchronous training keeps in several sites, by bandwidth
    up to 400 Gb/s; `first_token`: how much later the first token of a request comes from a site
    that is far; `dollars`: those of a token on each older chip over those on a new one."""
    central = all(kept < 1.0 - LOSES for kept in training)
    spread = first_token < KEEPS
    useful = sum(ratio <= USEFUL for ratio in dollars) * 2 >= len(dollars)
    if central and spread and useful:
        return CONFIRMED
    return QUALIFIED if central or spread or useful else CONTRADICTED


def find() -> Finding:
    whole = run(MODEL, CHIP, CHIPS).as_json()
    rows, kept, local = [], {}, {}
    for bandwidth in BANDWIDTHS:
        terms: dict[str, Any] = {
            "sites": SITES, "site_bandwidth": bandwidth, "site_latency": LATENCY,
        }  # fmt: skip
        rates = [
            run(MODEL, CHIP, CHIPS, **{**terms, **more}).as_json()
            for more in ({}, {"site_split": "pipeline"}, {"local_steps": LOCAL_STEPS})
        ]
        shares = [found["tokens_per_s"] / whole["tokens_per_s"] for found in rates]
        kept[bandwidth], local[bandwidth] = max(shares[:2]), shares[2]
        rows.append((bandwidth, *map(percent, shares)))
    catalog = with_basis(load_catalog(), OWNED)
    chips = [chip for chip in (NEW, *OLDER) if chip in catalog.prices.select(OWNED)]
    points = [Point(SERVED, chip, concurrency=REQUESTS, weight="int8") for chip in chips]
    found = predict(points, 1024.0, 256.0, catalog=catalog, price_basis=OWNED)
    price, rate = found["usd_per_million_total_tokens"], found["output_tokens_per_s_per_chip"]
    fits = [bool(found.feasible[k]) for k in range(len(chips))]
    dollars = [float(price[k] / price[0]) for k in range(1, len(chips)) if fits[k]]
    late = LATENCY_S / float(found["e2e_s"][0])
    slow = [kept[bandwidth] for bandwidth in BANDWIDTHS[:-1]]
    figures = {
        "kept_at_100_gbps": kept["100 Gb/s"],
        "kept_at_400_gbps": kept["400 Gb/s"],
        "kept_with_local_steps_at_10_gbps": local["10 Gb/s"],
        "later_answer": late,
        "older_chips": float(len(dollars)),
        "within_twice_the_dollars": float(sum(ratio <= USEFUL for ratio in dollars)),
        "median_dollars_ratio": float(np.median(dollars)),
    }
    return Finding(
        judge(slow, late, dollars),
        f"training over {SITES} sites keeps {percent(kept['100 Gb/s'])} of its rate at 100 Gb/s "
        f"and {percent(kept['400 Gb/s'])} at 400 ({percent(local['10 Gb/s'])} at 10 Gb/s with "
        f"{LOCAL_STEPS} local steps); a request served {LATENCY} away ends {percent(late)} later; "
        f"{sum(ratio <= USEFUL for ratio in dollars)} of {len(dollars)} older or consumer chips "
        f"serve {SERVED} within {times(USEFUL)} the dollars of {NEW}",
        figures,
        f"{MODEL} on {CHIPS:,} x {CHIP} in {SITES} sites {LATENCY} apart, best plan each; {SERVED} "
        f"with 8-bit weights on one chip, {REQUESTS:g} requests, 1,024 prompt and 256 output "
        "tokens; chips owned, always busy (hardware/costs.yaml).",
        (
            Table(
                "Share of the training rate of one site that is kept, by bandwidth of a site",
                (
                    "bandwidth", "gradients every step", "pipeline across sites",
                    f"{LOCAL_STEPS} local steps",
                ),
                tuple(rows),
            ),
            Table(
                f"{SERVED} on one chip",
                ("chip", "output tokens/s", "$ per million tokens", "dollars over H100"),
                tuple(
                    (
                        chip,
                        digits(rate[k]) if fits[k] else "does not fit",
                        digits(price[k]) if fits[k] else "–",
                        times(float(price[k] / price[0])) if fits[k] else "–",
                    )
                    for k, chip in enumerate(chips)
                ),
            ),
        ),
        "Predicted; exchanges between sites are closed forms at the bandwidth that is given, "
        "nothing of them hidden behind arithmetic. Bandwidths and latency are examples.",
        "What local steps do to the loss at this size (DiLoCo reports none up to 400M parameters). "
        "Shared links, their price, and how far users are from a site.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        23,
        "Training wants centralised compute; inference can be spread out, and older or consumer "
        "GPUs hold useful capacity for it.",
        (
            "dse claims 23",
            "dse train llama-3-70b --chip h100_sxm --chips 1024 --tokens 15T --sites 4 "
            "--site-bandwidth 100Gb/s --site-latency 20ms",
        ),
        f"Confirmed where synchronous training over {SITES} sites loses more than {LOSES:.0%} at "
        f"every bandwidth up to 400 Gb/s, a far site makes an answer less than {KEEPS:.0%} later, "
        f"and half of the older and consumer chips serve within {USEFUL:g} times the dollars; "
        "qualified where some of the three hold; else contradicted.",
        find,
    ),
)
