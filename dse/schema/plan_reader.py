"""Reads a fleet plan: `search_spaces/plans/*.yaml` and files of the user's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import units
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.schema.backend import find_backend
from dse.schema.catalog import Catalog
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import (
    HOUR,
    LARGEST_DOMAIN,
    Cost,
    Costs,
    Owning,
    check_chips,
    lacks_for_owning,
    lacks_power,
    owning,
    power_at_meter,
    rack_of,
    read_costs,
    server_of,
)
from dse.schema.loader import Document, KeyPath, load_yaml, named_file, unknown
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import (
    BUY,
    FROM_TRACE,
    QUARTER_HOURS,
    RENT,
    TERMS,
    Buy,
    DemandClass,
    FleetChip,
    Offer,
    Ordered,
    Plan,
    Rent,
)
from dse.schema.prices import COMPUTED
from dse.schema.reader import read
from dse.schema.traffic import GROUPS, read_trace, traffic_of
from dse.schema.workloads import CURRENT_BACKEND

GIVEN = "the plan given"  # what messages call a plan that is no file
LEAST_PER_S = 1e-3  # what is far less the program would round to no instance at all


def shipped_plans() -> dict[str, Path]:
    """The shipped plans by name."""
    folder = search_spaces_dir() / "plans"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_plan(text: str) -> Path:
    """A shipped name or the path of a file. Raises InputError with near names."""
    return named_file(text, "plan", shipped_plans())


def load_plan(plan: Path | str | Mapping[str, Any], catalog: Catalog) -> Plan:
    """Reads and checks one plan: a file, or what such a file says. Raises InputError with file,
    line and field."""
    document = Document(GIVEN, plan, None) if isinstance(plan, Mapping) else load_yaml(plan)
    written = document.data.get("currency")
    rates = {}
    for name, one in written.items() if isinstance(written, Mapping) else ():
        usd = one.get("usd") if isinstance(one, Mapping) else None
        if isinstance(usd, int | float) and not isinstance(usd, bool):
            rates[str(name)] = float(usd)
    document = replace(document, data=_in_dollars(document.data, rates))
    return _Resolved(document, read(Plan, document), catalog).plan()


def _in_dollars(written: Any, rates: Mapping[str, float]) -> Any:
    """What a plan says, its prices in dollars: `2 EUR/h` at 1.16 is `2.32 USD/h`."""
    if isinstance(written, Mapping):
        return {key: _in_dollars(one, rates) for key, one in written.items()}
    if isinstance(written, list):
        return [_in_dollars(one, rates) for one in written]
    for name, usd in rates.items() if isinstance(written, str) else ():
        price = re.fullmatch(rf"\s*(\d+(?:\.\d*)?)\s*{re.escape(name)}(/.*)?\s*", written)
        if price:
            return f"{float(price[1]) * usd:.10g} USD{price[2] or ''}"
    return written


def _source(cost: Cost) -> str:
    """Kind, source and date of a figure."""
    return ", ".join(part for part in (cost.kind, cost.source, cost.date) if part)


class _Resolved:
    """A plan as it is `written` with what the catalog says of its chips and prices. Its methods
    raise InputError where the two do not go together."""

    def __init__(self, document: Document, written: Plan, catalog: Catalog) -> None:
        self.document, self.written, self.catalog = document, written, catalog
        self.assumed: list[str] = [
            f"1 {name} is {one.usd:g} USD ({', '.join(filter(None, (one.date, one.source)))})"
            for name, one in written.currency.items()
        ]
        self.costs = self._costs()

    def plan(self) -> Plan:
        one = self.written
        backend = CURRENT_BACKEND if one.backend == "current" else one.backend
        with self._at(("backend",)):
            find_backend(self.catalog.backends, backend)
        owned = {row.chip for row in one.stock} | {row.chip for row in one.chips if row.buy}
        rents = any(row.rent or row.chip not in owned for row in one.chips)
        if rents or one.price_basis not in COMPUTED:
            self._rent_basis(("price_basis",), one.price_basis)
        if one.discount_rate is None:
            one = replace(one, discount_rate=self.costs.value("cost_of_capital"))
        plan = replace(
            one,
            **one.spares,
            description=one.description.strip(),
            file=self.document.file,
            backend=backend,
            costs=self.costs,
            demand=tuple(self._class(("demand", k), row) for k, row in enumerate(one.demand)),
            chips=tuple(self._chip(("chips", k), row) for k, row in enumerate(one.chips)),
            own=self.catalog.source,
        )
        self._smallest_server(plan)
        return replace(plan, assumed=tuple(dict.fromkeys(self.assumed)))

    def _wrong(self, path: KeyPath, message: str, accepted: str | None) -> InputError:
        return self.document.error(path, message, accepted)

    @contextmanager
    def _at(self, path: KeyPath) -> Iterator[None]:
        """What is refused within stands at `path`."""
        try:
            yield
        except InputError as error:
            raise self._wrong(path, error.message, error.accepted) from None

    def _costs(self) -> Costs:
        """What owning costs: the plan's own lines before those of the catalog. The share of the
        hours that carry the cost is all of them: the plan counts what is idle."""
        costs, written = self.catalog.costs, self.document.data.get("costs")
        if written is not None:
            costs = read_costs(self.document, ("costs",), written, costs)
            check_chips(costs, self.catalog.chips, self.document.file)
        if costs.value("utilisation") == 1.0:
            return costs
        if "utilisation" in (written or {}):
            message = "a fleet counts what is idle itself"
            accepted = "`peak_over_average` and `spares`"
            raise self._wrong(("costs", "utilisation"), message, accepted)
        self.assumed.append("utilisation of the costs is not used: the fleet counts what is idle")
        return costs.changed({"utilisation": 1.0})

    def _rent_basis(self, path: KeyPath, basis: str) -> None:
        """Refuses a basis that is none of rents."""
        bases = self.catalog.prices.bases()
        if basis in COMPUTED:
            message = (
                f"{basis} is no price of a rent: what is owned is `buy:` or `stock:` of the plan, "
                "at the costs of owned_tco"
            )
            raise self._wrong(path, message, ", ".join(bases))
        if basis not in bases:
            error = unknown("unknown price basis", basis, bases)
            raise self._wrong(path, error.message, error.accepted)

    def _class(self, at: KeyPath, row: DemandClass) -> DemandClass:
        copies = self.document.data["demand"][at[1]].get("redundant_experts") is not None
        for name in row.models:
            with self._at((*at, "model" if row.model else "models")):
                model = resolve_model(name)
            if any(row.draft_tokens) and "acceptance" not in row.details and not model.drafts:
                message = f"no figure for {name}: what share of drafted tokens is accepted"
                raise self._wrong((*at, "draft_tokens"), message, "acceptance, too")
            of_experts = [
                (pool, "expert_parallel")
                for pool, axes in row.pools.items()
                if max(axes.get("expert_parallel", (1,))) > 1
            ]
            of_experts += [("redundant_experts",)] if copies else []
            if of_experts and not model.experts:
                path = (*at, *of_experts[0])
                raise self._wrong(path, f"{name} has no experts", "no such line")
        if "trace" in row.stated:
            row = self._trace(at, row)
        least = min(row.mean_per_s(q) for q in (0, self.written.quarters - 1))
        if least < LEAST_PER_S:
            raise self._wrong(
                at,
                f"a demand of {least:.3g} requests/s is too little for a fleet",
                f"{LEAST_PER_S:g} requests/s or more in every quarter; 2B tokens are two billion",
            )
        return row

    def _trace(self, at: KeyPath, row: DemandClass) -> DemandClass:
        """The class with what a trace says of it: the peak is its busiest window. Lengths are kept
        apart for a percentile, which the longest prompts decide."""
        twice = {*FROM_TRACE} & {*self.document.data["demand"][at[1]]}
        if twice:
            raise self._wrong((*at, min(twice)), "a trace says it", "one of the two")
        file, share, (window_s, window) = (row.stated[n] for n in ("trace", "windows", "window"))
        groups = row.stated.get("lengths") or GROUPS[row.percentile or 50]
        path = Path(self.document.file).parent / file
        trace = read_trace(path)
        with self._at((*at, "window")):
            row = replace(row, **traffic_of(trace, window_s, share, groups))
        sized = f"busiest {window} of it"
        if share < 1.0:
            busy = row.peak_over_average * row.requests_per_s
            sized = f"{busy:.4g} in the {window} that {share:.4g} do not exceed"
        source = f"{file}: {row.requests_per_s:.4g} requests/s, {sized}"
        return replace(row, source=source)

    def _chip(self, at: KeyPath, row: FleetChip) -> FleetChip:
        with self._at((*at, "chip")):
            self.catalog.require(row.chip)
        server = row.server or server_of(self.catalog, row.chip)
        if not row.server and server > LARGEST_DOMAIN:
            message = f"{row.chip} stands in a domain of {server} chips, which is not bought whole"
            raise self._wrong(at, message, "`server: N`, the fewest chips that are had at once")
        mine = [(one.chips, one.sale) for one in self.written.stock if one.chip == row.chip]
        stock, sale = mine[0] if mine else (0, None)
        if stock % server:
            message = f"{stock} chips are no whole servers of {server}"
            raise self._wrong(("stock",), message, f"{server} x n")
        if (lack := lacks_power(self.catalog, row.chip, self.costs)) is not None:
            raise self._wrong(at, lack, f"`costs: {{chips: {{{row.chip}: {{power: 1.2 kW}}}}}}`")
        power, server_w, watts = power_at_meter(self.catalog, row.chip, self.costs)
        words = power.text
        if watts != power.value:
            words += f" x {server_w / power.value:g} (server)" if server_w != power.value else ""
            words += f" x {watts / server_w:g} (facility)"
        owned = None
        if stock or row.buy:
            if (lack := lacks_for_owning(self.catalog, row.chip, self.costs)) is not None:
                accepted = "`costs:` of the plan with it, or --costs FILE"
                raise self._wrong(("stock",) if stock else (*at, "buy"), lack, accepted)
            owned = owning(self.catalog, row.chip, self.costs)
        per_rack, rack = row.chips_per_rack, "of the plan"
        if not per_rack:
            per_rack, rack = rack_of(server)
        if per_rack % server:
            accepted = f"whole servers of {server} chips"
            raise self._wrong((*at, "chips_per_rack"), f"read {per_rack}", accepted)
        return replace(
            row,
            server=server,
            watts=watts,
            power_words=f"{words}, {_source(power)}",
            chips_per_rack=per_rack,
            rack_words=rack,
            stock=stock,
            offers=self._offers(at, row, owned, stock),
            owning=owned,
            sale_usd=sale,
        )

    def _offers(
        self, at: KeyPath, row: FleetChip, owned: Owning | None, stock: int
    ) -> tuple[Offer, ...]:
        listed = isinstance(self.document.data["chips"][at[1]].get("rent"), list)
        rents, path, basis = row.rent or (), (*at, "rent"), self.written.price_basis
        if not rents and row.buy is None and not stock:
            rents, path = (Rent(),), at
        elif row.rent is None and basis not in COMPUTED:
            price = self.catalog.prices.select(basis).get(row.chip)
            if price is not None:
                self.assumed.append(
                    f"{row.chip} is owned or bought alone: rent: {{}} of its line offers it at "
                    f"{price.usd_per_chip_hour:.4g} USD/h, too"
                )
        offers = []
        for i, one in enumerate(rents):
            offers += self._rent((*path, i) if listed else path, row.chip, one)
        if row.buy is not None and owned is not None:
            offers.append(self._buy((*at, "buy"), row.chip, row.buy, owned))
        labels = [offer.label for offer in offers]
        for i, label in enumerate(labels):
            if label in labels[:i]:
                raise self._wrong((*path, i), f"{label} is offered twice", "each basis once")
        return tuple(offers)

    def _rent(self, at: KeyPath, chip: str, one: Rent) -> list[Offer]:
        """A rent and, where it may be broken, the same for each shorter time that the plan may hold
        it, the fee spread over that time."""
        basis, quarters = one.basis or self.written.price_basis, self.written.quarters
        if one.price is not None:
            usd, text = one.price
            words = f"{text} (the plan's own{f': {one.source}' if one.source else ''})"
            label = f"{chip}, rent on {one.basis}" if one.basis else f"{chip}, rent"
        else:
            self._rent_basis((*at, "basis"), basis)
            price = self.catalog.prices.select(basis).get(chip)
            if price is None:
                has = sorted({row.basis for row in self.catalog.prices.rows if row.chip == chip})
                accepted = "`rent: {price: 2 USD/h}` of your own"
                accepted += f"; it has {', '.join(has)}" if has else ""
                raise self._wrong(at, f"{chip} has no price on the basis {basis}", accepted)
            usd = price.usd_per_chip_hour
            words = f"{usd:.4g} USD/h ({basis}, {price.rule})"
            label = f"{chip}, rent on {basis}"
        term = one.term_quarters or TERMS.get(basis)
        if term is None:
            raise self._wrong(at, f"the term of {basis} is not known", "`term_quarters: N`")
        offer = Offer(
            *(chip, RENT, label, usd, words),
            term_quarters=term,
            basis="" if one.price is not None else basis,
            on_site=one.site == "own",
            **self._terms(at, one),
        )
        if one.back is None:
            return [offer]
        after, fee = one.back.after_quarters, one.back.fee_quarters
        if one.chips_per_quarter < math.inf:
            message = "beside chips_per_quarter, which counts each alone"
            raise self._wrong((*at, "break"), message, "one of the two")
        if after >= term:
            message = f"read {after}: the term is {term} quarters"
            raise self._wrong((*at, "break", "after_quarters"), message, "fewer than the term")
        return [
            offer,
            *(
                replace(
                    offer,
                    label=f"{label}, back after {time} quarter{'s' * (time != 1)}",
                    usd=usd * (1.0 + fee / time),
                    words=f"{words}, and {fee:g} quarters of it to break",
                    term_quarters=time,
                    breaks=label,
                )
                for time in range(after, min(term, max(quarters, after) + 1))
            ),
        ]

    def _buy(self, at: KeyPath, chip: str, one: Buy, owned: Owning) -> Offer:
        life, price = self.costs.inputs["life"], owned.price
        if life.value < HOUR * QUARTER_HOURS:
            accepted = "`life` of a quarter or more in the costs"
            raise self._wrong(at, f"what is bought lives {life.text}", accepted)
        server = owned.server_usd / price.value
        words = (
            f"{owned.capital_usd:,.0f} USD a chip: {price.text}"
            + (f" x {server:g} (server)" if abs(server - 1.0) > 1e-9 else "")
            + f" x {owned.capital_usd / owned.server_usd:g} (network), {_source(price)}"
        )
        return Offer(
            *(chip, BUY, f"{chip}, bought", owned.capital_usd, words),
            life_quarters=life.value / HOUR / QUARTER_HOURS,
            basis=OWNED,
            **self._terms(at, one),
        )

    def _terms(self, at: KeyPath, one: Ordered) -> dict[str, Any]:
        """What rents and purchases say alike."""
        lead, quarters = one.from_quarter - 1 + one.lead_quarters, self.written.quarters
        if lead >= quarters:
            line = "lead_quarters" if one.lead_quarters else "from_quarter"
            message = f"read {getattr(one, line)}: nothing arrives within the {quarters} quarters"
            accepted = f"at most {getattr(one, line) - 1 - lead + quarters}, or more `quarters`"
            raise self._wrong((*at, line), message, accepted)
        return {line.to: getattr(one, line.to) for line in Ordered.table.fields}

    def _smallest_server(self, plan: Plan) -> None:
        """Refuses a cap that not even one server of any chip meets."""
        limits = plan.limits
        here = all(offer.on_site for offer in plan.offers)
        power = {c.chip: c.watts * c.server for c in plan.chips if c.stock or c.offers}
        usd = {
            chip.chip: min((o.usd * chip.server for o in chip.offers if o.way == RENT), default=0.0)
            for chip in plan.chips
        }
        servers = {chip.chip: float(chip.server) for chip in plan.chips}
        for name, limit, needs, dimension in (
            ("power", limits.watts, power if here else {}, "W"),
            ("chips", limits.chips, servers, "count"),
            ("budget_per_hour", limits.usd_per_hour, usd, "usd/h"),
        ):
            chip = min(needs, key=needs.__getitem__, default=None)
            if chip is not None and limit < needs[chip]:
                need = units.format(needs[chip], dimension, 4)
                raise self._wrong(
                    ("limits", name),
                    f"read {self.document.data['limits'][name]!r}: below the smallest server, "
                    f"{plan.chip(chip).server} x {chip}, which needs {need}",
                    f"{need} or more",
                )
