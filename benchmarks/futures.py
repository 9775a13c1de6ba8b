"""Does an order at a service level serve that share of futures? Counted apart from its solver:
futures are drawn and served here by code of its own, with whole servers and instances throughout.

    python -m benchmarks.futures [--level 80] [--draws 10000]

For each shipped plan: the share asked for, the share that the answer states, the share counted
here, and the seconds that the answer took. What the count relies on of a plan is checked: rents
outlast it, no budgets, and either no limit at all, or off-site rents without limit, or one class
under a cap of power.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

import dse
from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.schema.plan import Plan
from dse.schema.plan_reader import find_plan, load_plan, shipped_plans

Floats = NDArray[np.float64]
NEAR = 0.12  # of more than 100 chips: a margin of split instances at which whole ones serve
KIN = 0.5  # of the variance that a chip's rows share: of its family


class Simulation:
    """Futures of a plan, and whether servers ordered now serve one."""

    def __init__(self, plan: Plan, options: list[Mapping[str, Any]], order: Mapping[str, int]):
        self.plan, self.options = plan, options
        self.chips = [chip.chip for chip in plan.chips]
        self.classes = [one.name for one in plan.demand]
        servers = [chip.stock // chip.server for chip in plan.chips]
        for label, count in order.items():
            offer = plan.offer(label)
            if offer.lead_quarters == 0:
                servers[self.chips.index(offer.chip)] += count
        self.servers = np.array(servers, dtype=float)
        self.catalog = load_catalog()
        path = hardware_dir() / "efficiency/serving/calibration.yaml"
        self.fitted = yaml.safe_load(path.read_text())
        self.large = sum(n * chip.server for n, chip in zip(servers, plan.chips, strict=True)) > 100
        offers = plan.offers
        limits = plan.limits
        assert all(o.way == "buy" or o.term_quarters >= plan.quarters for o in offers)
        assert all(np.isinf(o.chips_per_quarter) for o in offers)
        assert np.isinf([limits.usd_total, limits.usd_per_hour, limits.usd_per_quarter]).all()
        assert np.isinf([limits.racks, limits.chips]).all()
        free = [o for o in offers if o.lead_quarters == 0]
        off_site = any(not o.on_site for o in free)
        self.capped = bool(np.isfinite(limits.watts)) and not off_site
        assert not self.capped or (len(self.classes) == 1 and not any(o.stock for o in plan.chips))

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Demand (classes, quarters) in requests per second, and rates (options,)."""
        walk = np.cumsum(rng.normal(0.0, np.log(1.2) / 1.2815515594, self.plan.quarters))
        peaks = [[one.peak_per_s(q) for q in range(self.plan.quarters)] for one in self.plan.demand]
        return np.array(peaks) * np.exp(walk), self.rates(rng)

    def rates(self, rng: np.random.Generator) -> Floats:
        catalog, fitted, of_kin, of_chip, own = self.catalog, self.fitted, {}, {}, {}
        for chip in self.chips:
            one = catalog.chips[chip]
            family = catalog.chips.get(one.efficiency.partition(":")[0])
            name = family.family if family else one.vendor + "?"
            kin = of_kin.setdefault(name, rng.normal())
            of_chip[chip] = np.sqrt(KIN) * kin + np.sqrt(1.0 - KIN) * rng.normal()
        found = []
        for option in self.options:
            pools = option["bound"] == "pools"
            same = (option["class"], option["model"], tuple(sorted(option["chips"])), pools)
            kinds = option["known"].split(", ")
            kind = max(kinds, key=["fitted", "derived", "assumed"].index)
            low, high = np.log(fitted["spread"]["throughput"][kind])
            factors = []
            for chip in option["chips"]:
                mine = own.setdefault((same, chip), rng.normal())
                part = fitted["shared"]
                z = (np.sqrt(part) * of_chip[chip] + np.sqrt(1.0 - part) * mine) / 1.2815515594
                factors.append(low * z if z > 0 else -high * z)
            found.append(option["requests_per_s"] * np.exp(min(factors)))
        return np.array(found)

    def served(self, demand: Floats, rates: Floats) -> bool:
        """Whether the first quarter is served by what is there, and all others by what can be
        added: without a cap, or off the site, anything; under the cap whole servers, which stay, so
        that the busiest quarter decides."""
        if not self.serves(demand[:, 0], rates, more=False):
            return False
        return not self.capped or self.serves(demand[:, 1:].max(axis=1), rates, more=True)

    def serves(self, needed: Floats, rates: Floats, *, more: bool) -> bool:
        most = self._split(needed, rates, more)
        if most < 1.0:
            return False
        if most > 1.0 + NEAR and self.large:
            return True
        problem = self._program(needed, rates, more)
        upper: Any = [np.inf if high is None else high for _, high in problem["bounds"]]
        whole = np.ones(len(problem["c"]))
        whole[-1] = 0
        found = milp(
            problem["c"],
            constraints=LinearConstraint(problem["A_ub"], -np.inf, problem["b_ub"]),
            integrality=whole,
            bounds=Bounds(0.0, upper),
            options={"mip_rel_gap": 1e-3, "node_limit": 500},
        )
        return found.x is not None and -found.fun >= 1.0 - 1e-9

    def _split(self, needed: Floats, rates: Floats, more: bool) -> float:
        """The largest multiple with split instances."""
        if more or len(self.classes) > 1 or any(len(o["chips"]) > 1 for o in self.options):
            found = linprog(**self._program(needed, rates, more))
            return 0.0 if found.x is None else -found.fun
        total = 0.0
        for chip, servers in zip(self.plan.chips, self.servers, strict=True):
            each = [
                rate / option["chips"][chip.chip]
                for rate, option in zip(rates, self.options, strict=True)
                if chip.chip in option["chips"]
            ]
            spare = self.plan.spare_servers
            chips = chip.server * max(servers - spare, 0.0) / (1.0 + self.plan.spare_share)
            total += chips * max(each, default=0.0)
        return total / needed[0]

    def _program(self, needed: Floats, rates: Floats, more: bool) -> dict[str, Any]:
        """The largest multiple of what is needed: instances, added servers, the multiple."""
        plan, n, c = self.plan, len(rates), len(self.chips)
        rows, most = [], []
        for k, name in enumerate(self.classes):
            row = np.zeros(n + c + 1)
            row[:n] = [
                -r if o["class"] == name else 0.0 for r, o in zip(rates, self.options, strict=True)
            ]
            row[-1] = needed[k]
            rows.append(row)
            most.append(0.0)
        for k, chip in enumerate(plan.chips):
            row = np.zeros(n + c + 1)
            row[:n] = [
                (1.0 + plan.spare_share) * o["chips"].get(chip.chip, 0) for o in self.options
            ]
            row[n + k] = -chip.server
            rows.append(row)
            most.append(chip.server * max(self.servers[k] - plan.spare_servers, 0.0))
        if self.capped:
            row = np.zeros(n + c + 1)
            row[n : n + c] = [chip.watts * chip.server for chip in plan.chips]
            rows.append(row)
            most.append(plan.limits.watts - float(row[n : n + c] @ self.servers))
        bounds = [(0, None)] * n + [(0, None if more else 0)] * c + [(0, 3.0)]
        cost = np.zeros(n + c + 1)
        cost[-1] = -1.0
        return {"c": cost, "A_ub": np.array(rows), "b_ub": np.array(most), "bounds": bounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", type=float, default=80.0)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--plan", action="append")
    given = parser.parse_args()
    for name in given.plan or shipped_plans():
        start = time.perf_counter()
        found = dse.fleet(name, service_level=given.level / 100.0).document
        seconds = time.perf_counter() - start
        plan = load_plan(find_plan(name), load_catalog())
        one = Simulation(plan, found["options"], found["futures"]["servers_now"])
        rng = np.random.default_rng(20)
        share = np.mean([one.served(*one.draw(rng)) for _ in range(given.draws)])
        print(
            f"{name}: asked {given.level:g}%, stated {found['futures']['share']:.1%}, "
            f"counted {share:.1%} of {given.draws:,}; {found['futures']['servers_now']}; "
            f"{seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
