"""A point of a study, evaluated again from what the study wrote of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.economics.tco import with_basis
from dse.problem.describe import HELD, limits_of, pools_of
from dse.problem.mix import loads_of, mix_of
from dse.problem.own_law import describe_own_law, own_law
from dse.problem.training import trained_again
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS, find_law
from dse.questions.estimate.point import Estimate, estimate
from dse.schema.costs import costs_of
from dse.schema.dtypes import DTYPES
from dse.schema.loss_runs import runs_again
from dse.schema.metrics import Limit
from dse.schema.own_config import model_of
from dse.schema.system import load_rack, resolve_rack
from dse.schema.traffic import Demand
from dse.study.folder import FRONT, item_of, read_study


def estimate_again(
    folder: Path, point: str, catalog: Catalog, *, keep: bool = False, law: str | None = None
) -> Estimate:
    """Evaluates point `point` (a number of front.csv or a chosen name) with today's model, under
    the study's quality law or another one, with what the study was made with beneath the catalog.

    Raises InputError for a folder that is no study and for a point that does not exist.
    """
    study, items = read_study(folder)
    item = item_of(items, point, folder)
    return estimate_item(study, item, f"{folder / FRONT}", catalog, keep=keep, law=law)


def estimate_item(
    study: dict,
    item: dict,
    source: str,
    catalog: Catalog,
    *,
    keep: bool = False,
    law: str | None = None,
) -> Estimate:
    """The same for an item of front.json; of separate pools, the decode pool with its `prefill`."""
    catalog = catalog.over(study)
    costs = costs_of(study["costs"]) if study.get("costs") else None
    for basis in {study["price_basis"], (study.get("training") or study)["price_basis"]}:
        catalog = with_basis(catalog, basis, costs)
    rack = study.get("rack")
    model = model_of(item["model"], source)
    limits = limits_of(study)
    runs = study.get("loss_runs")
    name = law or study.get("quality_law", DEFAULT)
    own = None if runs is None else own_law(find_law(name).name, runs_again(runs))

    def one(deployment: Mapping[str, Any], limits: tuple[Limit, ...]) -> Estimate:
        dtype = deployment["weight_dtype"]
        return estimate(
            catalog,
            model,
            deployment["chip"],
            mix_of(loads_of(study), catalog.backends),
            deployment,
            weight_dtype=None if dtype not in DTYPES else dtype,
            kv_dtype=deployment["kv_dtype"],
            price_basis=study["price_basis"],
            limits=limits,
            keep=keep,
            rack=rack and load_rack(resolve_rack(rack["named"])),
            law=name if own is None else own.law,
            unique_tokens=study.get("unique_tokens", UNIQUE_TOKENS),
            trained=trained_again(study, catalog),
            demand=Demand(**demand) if (demand := study.get("demand")) else None,
        )

    pools = pools_of(item["deployment"])
    if pools is None:
        answer = one(item["deployment"], limits)
    else:  # limits are on both together
        held = item["deployment"].get(HELD)
        answer = replace(one(pools[1], ()), prefill=one(pools[0], ()), held=held, limits=limits)
    if own is not None:
        answer = replace(answer, own_law=describe_own_law(own))
    return replace(answer, assumed=(*answer.assumed, f"from {source}, point {item['point']}"))
