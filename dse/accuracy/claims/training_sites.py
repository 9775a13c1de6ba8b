"""Training in one place, inference in many, on older and on consumer chips too."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.points import Point, predict
from dse.accuracy.claims.training_runs import run
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


def find(given: Given) -> Measured:
    whole = run(MODEL, CHIP, CHIPS).as_json()
    rows, kept, local = [], {}, {}
    for bandwidth in BANDWIDTHS:
        terms: dict[str, Any] = {
            "sites": SITES,
            "site_bandwidth": bandwidth,
            "site_latency": LATENCY,
        }
        rates = [
            run(MODEL, CHIP, CHIPS, **{**terms, **more}).as_json()
            for more in ({}, {"site_split": "pipeline"}, {"local_steps": LOCAL_STEPS})
        ]
        shares = [found["tokens_per_s"] / whole["tokens_per_s"] for found in rates]
        kept[bandwidth], local[bandwidth] = max(shares[:2]), shares[2]
        rows.append((bandwidth, *shares))
    catalog = with_basis(load_catalog(), OWNED)
    chips = [chip for chip in (NEW, *OLDER) if chip in catalog.prices.select(OWNED)]
    points = [Point(SERVED, chip, concurrency=REQUESTS, weight="int8") for chip in chips]
    found = predict(points, 1024.0, 256.0, catalog=catalog, price_basis=OWNED)
    price, rate = found["usd_per_million_total_tokens"], found["output_tokens_per_s_per_chip"]
    ratios = price / price[0]
    dollars = ratios[1:][found.feasible[1:]]
    served = [
        (chip, *((rate[k], price[k], ratios[k]) if fits else ("does not fit", None, None)))
        for k, (chip, fits) in enumerate(zip(chips, found.feasible, strict=True))
    ]
    useful = dollars <= given["useful"]
    late = LATENCY_S / float(found["e2e_s"][0])
    slow = [kept[bandwidth] for bandwidth in BANDWIDTHS[:-1]]
    figures = {
        "kept_at_100_gbps": kept["100 Gb/s"],
        "kept_at_400_gbps": kept["400 Gb/s"],
        "kept_with_local_steps_at_10_gbps": local["10 Gb/s"],
        "later_answer": late,
        "older_chips": float(len(dollars)),
        "within_twice_the_dollars": float(useful.sum()),
        "median_dollars_ratio": float(np.median(dollars)),
    }
    facts = {"training_keeps": max(slow), "useful_share": float(useful.mean())}
    return Measured(figures, (rows, served), facts)
