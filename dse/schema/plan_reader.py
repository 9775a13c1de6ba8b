"""Reads a fleet plan: `search_spaces/plans/*.yaml` and files of the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import units
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.schema.axes import POOL_AXES
from dse.schema.catalog import Catalog
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Cost, Costs, check_chips, read_costs
from dse.schema.loader import Document, KeyPath, did_you_mean, load_yaml
from dse.schema.model_catalog import resolve_model
from dse.schema.owning import (
    HOUR,
    LARGEST_DOMAIN,
    Owning,
    lacks_for_owning,
    lacks_power,
    owning,
    power_at_meter,
    rack_of,
    server_of,
)
from dse.schema.plan import (
    BUY,
    FROM_TRACE,
    NO_TERMS,
    PLAN,
    QUARTER_HOURS,
    RENT,
    TERMS,
    DemandClass,
    FleetChip,
    Offer,
    Plan,
)
from dse.schema.prices import COMPUTED
from dse.schema.reader import read
from dse.schema.trace import read_trace
from dse.schema.traffic import GROUPS, Traffic, traffic_of
from dse.schema.workloads import CURRENT_BACKEND

GIVEN = "the plan given"  # what messages call a plan that is no file
LEAST_PER_S = 1e-3  # what is far less the program would round to no instance at all


def shipped_plans() -> dict[str, Path]:
    """The shipped plans by name."""
    folder = search_spaces_dir() / "plans"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_plan(text: str) -> Path:
    """A shipped name or the path of a file. Raises InputError with near names."""
    known = shipped_plans()
    if text in known:
        return known[text]
    if Path(text).suffix in (".yaml", ".yml") or Path(text).exists():
        return Path(text)
    raise InputError(
        f"no plan {text!r}{did_you_mean(text, known)}",
        accepted=f"{', '.join(known)}, or the path of a .yaml file",
    )


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
    return _Reader(document, read(PLAN, document), catalog).plan()


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _source(cost: Cost) -> str:
    """Kind, source and date of a figure."""
    return ", ".join(part for part in (cost.kind, cost.source, cost.date) if part)


class _Reader:
    """Checks what a plan says against the catalog; `written` holds the values of PLAN."""

    def __init__(self, document: Document, written: Any, catalog: Catalog) -> None:
        self.document, self.written, self.catalog = document, written, catalog
        self.assumed: list[str] = [
            f"1 {name} is {one.usd:g} USD ({', '.join(filter(None, (one.date, one.source)))})"
            for name, one in written.currency.items()
        ]
        self.costs = self._costs()

    def plan(self) -> Plan:
        one, costs = self.written, self.costs
        backend = CURRENT_BACKEND if one.backend == "current" else one.backend
        if backend not in self.catalog.backends:
            near = did_you_mean(backend, self.catalog.backends)
            raise self._wrong(
                ("backend",), f"unknown backend {backend!r}{near}", ", ".join(self.catalog.backends)
            )
        owned = {row.chip for row in one.stock} | {row.chip for row in one.chips if row.buy}
        rents = any(row.rent or row.chip not in owned for row in one.chips)
        if rents or one.price_basis not in COMPUTED:
            self._rent_basis(("price_basis",), one.price_basis)
        if one.discount_rate is None:
            one.discount_rate = costs.value("cost_of_capital")
        kept = ("name", "title", "quarters", "price_basis", "discount_rate", "disaggregated")
        kept += ("largest_instance", "limits", "used_after_end", "service_level", "uncertainty")
        plan = Plan(
            **{name: getattr(one, name) for name in kept},
            **one.spares,
            description=one.description.strip(),
            file=self.document.file,
            backend=backend,
            costs=costs,
            demand=tuple(self._class(("demand", k), row) for k, row in enumerate(one.demand)),
            chips=tuple(self._chip(("chips", k), row) for k, row in enumerate(one.chips)),
            own=self.catalog.source,
            assumed=tuple(dict.fromkeys(self.assumed)),
        )
        self._smallest_server(plan)
        return plan

    def _wrong(self, path: KeyPath, message: str, accepted: str) -> InputError:
        return self.document.error(path, message, accepted)

    def _costs(self) -> Costs:
        """What owning costs: the plan's own lines before those of the catalog. The share of the
        hours that carry the cost is all of them: the plan counts what is idle."""
        costs, written = self.catalog.costs, self.written.costs
        if written is not None:
            costs = read_costs(self.document, ("costs",), written, costs)
            check_chips(costs, self.catalog.chips, self.document.file)
        if costs.value("utilisation") == 1.0:
            return costs
        if "utilisation" in (written or {}):
            raise self._wrong(
                ("costs", "utilisation"),
                "a fleet counts what is idle itself",
                "`peak_over_average` and `spares`",
            )
        self.assumed.append("`utilisation` of the costs is not used: the fleet counts what is idle")
        return costs.changed({"utilisation": 1.0})

    def _rent_basis(self, path: KeyPath, basis: str) -> None:
        """Raises InputError for a basis that is none of rents."""
        bases = self.catalog.prices.bases()
        if basis in COMPUTED:
            raise self._wrong(
                path,
                f"{basis} is no price of a rent: what is owned is `buy:` or `stock:` of the plan, "
                "at the costs of owned_tco",
                ", ".join(bases),
            )
        if basis not in bases:
            near = did_you_mean(basis, bases)
            raise self._wrong(path, f"unknown price basis {basis!r}{near}", ", ".join(bases))

    def _class(self, at: KeyPath, row: Any) -> DemandClass:
        for name in row.models:
            try:
                resolve_model(name)
            except InputError as error:
                accepted = error.accepted or "a model"
                raise self._wrong((*at, row.named_by), error.message, accepted) from None
            for pool in () if resolve_model(name).experts else POOL_AXES:
                if max(getattr(row, pool).get("expert_parallel", (1,))) > 1:
                    path = (*at, pool, "expert_parallel")
                    raise self._wrong(path, f"{name} has no experts", "no such line")
        traffic = replace(row.traffic or self._trace(at, row), growth=row.growth)
        least = min(traffic.mean_per_s(q) for q in (0, self.written.quarters - 1))
        if least < LEAST_PER_S:
            raise self._wrong(
                at,
                f"a demand of {least:.3g} requests/s is too little for a fleet",
                f"{LEAST_PER_S:g} requests/s or more in every quarter; 2B tokens are two billion",
            )
        return DemandClass(
            name=row.name,
            models=row.models,
            traffic=traffic,
            ttft_s=row.ttft,
            tpot_s=row.tpot,
            most_loss=row.predicted_loss_at_most or float("inf"),
            weight_dtypes=tuple(dict.fromkeys(row.weight_dtype or ())),
            kv_dtypes=tuple(dict.fromkeys(row.kv_dtype or ())),
            percentile=row.percentile,
            draft_tokens=self._drafts(at, row),
            redundant_experts=self._copies(at, row),
            details=row.details,
            pools={pool: getattr(row, pool) for pool in POOL_AXES},
        )

    def _drafts(self, at: KeyPath, row: Any) -> tuple[int, ...]:
        """Raises InputError where nothing says what share of drafted tokens is accepted."""
        found = tuple(dict.fromkeys(row.draft_tokens or ()))
        for name in row.models:
            if any(found) and "acceptance" not in row.details and not resolve_model(name).drafts:
                message = f"no figure for {name}: what share of drafted tokens is accepted"
                raise self._wrong((*at, "draft_tokens"), message, "acceptance, too")
        return found

    def _copies(self, at: KeyPath, row: Any) -> tuple[int, ...]:
        """Raises InputError for copies of experts of a model that has none."""
        for name in row.models if row.redundant_experts is not None else ():
            if not resolve_model(name).experts:
                field = (*at, "redundant_experts")
                raise self._wrong(field, f"{name} has no experts", "no such line")
        return tuple(dict.fromkeys(row.redundant_experts or ()))

    def _trace(self, at: KeyPath, row: Any) -> Traffic:
        """What a trace says of a class: the peak is its busiest window. Lengths are kept apart for
        a percentile, which the longest prompts decide."""
        taken = {*FROM_TRACE} & {*self.document.data["demand"][at[1]]}
        if taken:
            raise self._wrong((*at, min(taken)), "a trace says it", "one of the two")
        window_s, window = row.window
        groups = row.lengths or (1 if row.percentile is None else GROUPS[row.percentile])
        path = Path(self.document.file).parent / row.trace
        try:
            found = traffic_of(read_trace(path), window_s, row.windows, groups)
        except InputError as error:
            if error.file is not None:
                raise
            accepted = error.accepted or "a time"
            raise self._wrong((*at, "window"), error.message, accepted) from None
        sized = f"busiest {window} of it"
        if row.windows < 1.0:
            busy = found.peak_per_s(0)
            sized = f"{busy:.4g} in the {window} that {row.windows:.4g} do not exceed"
        return replace(found, source=f"{row.trace}: {found.requests_per_s:.4g} requests/s, {sized}")

    def _chip(self, at: KeyPath, row: Any) -> FleetChip:
        try:
            self.catalog.require(row.chip)
        except InputError as error:
            raise self._wrong((*at, "chip"), error.message, error.accepted or "a chip") from None
        server = self._server(at, row)
        mine = next((one for one in self.written.stock if one.chip == row.chip), None)
        stock, sale = (0, None) if mine is None else (mine.chips, mine.sale)
        if stock % server:
            raise self._wrong(
                ("stock",), f"{stock} chips are no whole servers of {server}", f"{server} x n"
            )
        watts, words = self._power(at, row.chip)
        owned = None
        if stock or row.buy:
            lack = lacks_for_owning(self.catalog, row.chip, self.costs)
            if lack is not None:
                accepted = "`costs:` of the plan with it, or --costs FILE"
                raise self._wrong(("stock",) if stock else (*at, "buy"), lack, accepted)
            owned = owning(self.catalog, row.chip, self.costs)
        per_rack, rack = row.chips_per_rack, "of the plan"
        if not per_rack:
            per_rack, rack = rack_of(server)
        if per_rack % server:
            raise self._wrong(
                (*at, "chips_per_rack"), f"read {per_rack}", f"whole servers of {server} chips"
            )
        offers = self._offers(at, row, owned, stock)
        return FleetChip(
            row.chip, server, watts, words, per_rack, rack, stock, offers, row.classes, owned, sale
        )

    def _server(self, at: KeyPath, row: Any) -> int:
        if row.server is not None:
            return row.server
        server = server_of(self.catalog, row.chip)
        if server > LARGEST_DOMAIN:
            raise self._wrong(
                at,
                f"{row.chip} stands in a domain of {server} chips, which is not bought whole",
                "`server: N`, the fewest chips that are had at once",
            )
        return server

    def _power(self, at: KeyPath, chip: str) -> tuple[float, str]:
        """Watts at the meter per chip, and what they rest on."""
        lack = lacks_power(self.catalog, chip, self.costs)
        if lack is not None:
            raise self._wrong(at, lack, f"`costs: {{chips: {{{chip}: {{power: 1.2 kW}}}}}}`")
        cost, server_w, watts = power_at_meter(self.catalog, chip, self.costs)
        words = cost.text
        if watts != cost.value:
            words += f" x {server_w / cost.value:g} (server)" if server_w != cost.value else ""
            words += f" x {watts / server_w:g} (facility)"
        return watts, f"{words}, {_source(cost)}"

    def _offers(self, at: KeyPath, row: Any, owned: Owning | None, stock: int) -> tuple[Offer, ...]:
        listed = isinstance(self.document.data["chips"][at[1]].get("rent"), list)
        rents = row.rent or ()
        path = (*at, "rent")
        if not rents and row.buy is None and not stock:
            rents, path = [NO_TERMS], at
        elif row.rent is None:
            self._no_rent(row.chip)
        offers = []
        for i, one in enumerate(rents):
            here = (*path, i) if listed else path
            offers += self._breaks(here, one, self._rent(here, row.chip, one))
        if row.buy is not None and owned is not None:
            offers.append(self._buy((*at, "buy"), row.chip, row.buy, owned))
        labels = [offer.label for offer in offers]
        for i, label in enumerate(labels):
            if label in labels[:i]:
                raise self._wrong((*path, i), f"{label} is offered twice", "each basis once")
        return tuple(offers)

    def _breaks(self, at: KeyPath, one: Any, offer: Offer) -> list[Offer]:
        """A rent and, where it may be broken, the same for each shorter time that the plan may hold
        it, the fee spread over that time."""
        if one.back is None:
            return [offer]
        if one.chips_per_quarter is not None:
            said, accepted = "beside chips_per_quarter, which counts each alone", "one of the two"
            raise self._wrong((*at, "break"), said, accepted)
        if one.back.after_quarters >= offer.term_quarters:
            said = f"read {one.back.after_quarters}: the term is {offer.term_quarters} quarters"
            raise self._wrong((*at, "break", "after_quarters"), said, "fewer than the term")
        held = range(one.back.after_quarters, offer.term_quarters)
        longest = max(self.written.quarters, one.back.after_quarters)
        return [
            offer,
            *(
                replace(
                    offer,
                    label=f"{offer.label}, back after {_count(time, 'quarter')}",
                    usd=offer.usd * (1.0 + one.back.fee_quarters / time),
                    words=f"{offer.words}, and {one.back.fee_quarters:g} quarters of it to break",
                    term_quarters=time,
                    breaks=offer.label,
                )
                for time in held
                if time <= longest
            ),
        ]

    def _no_rent(self, chip: str) -> None:
        """Says that a chip that is owned or bought is not rented beside, where it has a price."""
        basis = self.written.price_basis
        rents = {} if basis in COMPUTED else self.catalog.prices.select(basis)
        if chip in rents:
            usd = rents[chip].usd_per_chip_hour
            self.assumed.append(
                f"{chip} is owned or bought alone: `rent: {{}}` of its line offers it at "
                f"{usd:.4g} USD/h, too"
            )

    def _rent(self, at: KeyPath, chip: str, one: Any) -> Offer:
        basis = one.basis or self.written.price_basis
        if one.price is not None:
            usd, text = one.price
            words = f"{text} (the plan's own{f': {one.source}' if one.source else ''})"
            name = one.basis or "own price"
        else:
            self._rent_basis((*at, "basis"), basis)
            price = self.catalog.prices.select(basis).get(chip)
            if price is None:
                has = sorted({row.basis for row in self.catalog.prices.rows if row.chip == chip})
                raise self._wrong(
                    at,
                    f"{chip} has no price on the basis {basis}",
                    "`rent: {price: 2 USD/h}` of your own"
                    + (f"; it has {', '.join(has)}" if has else ""),
                )
            usd = price.usd_per_chip_hour
            words = f"{usd:.4g} USD/h ({basis}, {price.rule})"
            name = basis
        term = one.term_quarters or TERMS.get(basis)
        if term is None:
            raise self._wrong(at, f"the term of {basis} is not known", "`term_quarters: N`")
        return Offer(
            chip,
            RENT,
            f"{chip}, rent on {name}" if name != "own price" else f"{chip}, rent",
            usd,
            words,
            term_quarters=term,
            basis="" if one.price is not None else basis,
            on_site=one.site == "own",
            **self._terms(at, one),
        )

    def _buy(self, at: KeyPath, chip: str, one: Any, owned: Owning) -> Offer:
        life, price = self.costs.inputs["life"], owned.price
        if life.value < HOUR * QUARTER_HOURS:
            raise self._wrong(
                at, f"what is bought lives {life.text}", "`life` of a quarter or more in the costs"
            )
        server = owned.server_usd / price.value
        words = (
            f"{owned.capital_usd:,.0f} USD a chip: {price.text}"
            + (f" x {server:g} (server)" if abs(server - 1.0) > 1e-9 else "")
            + f" x {owned.capital_usd / owned.server_usd:g} (network), {_source(price)}"
        )
        return Offer(
            chip,
            BUY,
            f"{chip}, bought",
            owned.capital_usd,
            words,
            life_quarters=life.value / HOUR / QUARTER_HOURS,
            basis=OWNED,
            **self._terms(at, one),
        )

    def _terms(self, at: KeyPath, one: Any) -> dict[str, Any]:
        """What rents and purchases say alike."""
        if one.lead_quarters >= self.written.quarters:
            raise self._wrong(
                (*at, "lead_quarters"),
                f"read {one.lead_quarters}: nothing arrives within the {self.written.quarters} "
                "quarters",
                f"at most {self.written.quarters - 1}, or more `quarters`",
            )
        chips = one.chips_per_quarter
        return {
            "lead_quarters": one.lead_quarters,
            "chips_per_quarter": float("inf") if chips is None else float(chips),
            "price_change": one.price_change_per_quarter,
        }

    def _smallest_server(self, plan: Plan) -> None:
        """Raises InputError for a cap that not even one server of any chip meets."""
        limits = plan.limits
        here = all(offer.on_site for offer in plan.offers)
        power = {c.chip: c.watts * c.server for c in plan.chips if c.stock or c.offers}
        rents = {
            chip.chip: [offer.usd * chip.server for offer in chip.offers if offer.way == RENT]
            for chip in plan.chips
        }
        usd = {name: min(rents[name], default=0.0) for name in rents}
        servers = {chip.chip: float(chip.server) for chip in plan.chips}
        for field, limit, needs, dimension in (
            ("power", limits.watts, power if here else {}, "W"),
            ("chips", limits.chips, servers, "count"),
            ("budget_per_hour", limits.usd_per_hour, usd, "usd/h"),
        ):
            chip = min(needs, key=lambda name: needs[name], default=None)
            if chip is not None and limit < needs[chip]:
                need = units.format(needs[chip], dimension, 4)
                raise self._wrong(
                    ("limits", field),
                    f"read {self.document.data['limits'][field]!r}: below the smallest server, "
                    f"{plan.chip(chip).server} x {chip}, which needs {need}",
                    f"{need} or more",
                )
