"""Claims 4 to 7, 9 to 12, 15 and 24: what the model lacks for each."""

from __future__ import annotations

from dse.validation.claims.frame import Claim

SCALE, TIERS = "instances of every size (dse scale)", "memory tiers and SRAM machines"
ENERGY, RACKS = "energy by level", "racks"

CLAIMS = (
    Claim(
        4,
        "Larger scale-up groups cut latency, because the bandwidth of all chips is used in "
        "parallel, most of all for large sparse models.",
        needs=SCALE,
    ),
    Claim(
        5,
        "Scaling up one instance hits a ceiling; past it, scale out by replication.",
        needs=SCALE,
    ),
    Claim(
        6,
        "The all-to-all of experts is efficient inside a scale-up domain and a bottleneck between "
        "racks (about 8 times slower), so that a rack bounds the size of an expert layer.",
        needs=SCALE,
    ),
    Claim(
        7,
        "Uniform network latency (low jitter) lets one job use more chips, and matters more than "
        "peak bandwidth.",
        needs="jitter",
    ),
    Claim(
        9,
        "Commodity DRAM holds more bits at an order of magnitude less bandwidth: capacity without "
        "bandwidth starves the compute.",
        needs=TIERS,
    ),
    Claim(
        10,
        "Wafer-scale avoids the interconnect cost that thousands of small SRAM chips pay.",
        needs=TIERS,
    ),
    Claim(
        11,
        "A WSE-3 holds models of up to about 20B parameters in FP16; Groq needs many chips for a "
        "large model.",
        needs=TIERS,
    ),
    Claim(
        12,
        "The size of a scale-up domain is bounded by the physics of the rack: cables, bend radius, "
        "power, cooling, weight.",
        needs=RACKS,
    ),
    Claim(
        15,
        "Reading a parameter costs up to 1,000 times the energy of the multiply; batching "
        "amortises it.",
        needs=ENERGY,
    ),
    Claim(
        24,
        "The performance per watt of GPUs is flattening; power and cooling become the limit.",
        needs=ENERGY,
    ),
)
