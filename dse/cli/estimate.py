"""dse estimate: predict one point, and where its time, memory, money and energy go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import (
    DEGREE,
    NoModel,
    Sectioned,
    json_option,
    law_option,
    loss_runs_option,
    read_catalog,
    refuse,
)
from dse.cli.point import (
    POINT_FLAGS,
    POINT_SECTIONS,
    POOL_FLAGS,
    TOKENS,
    check_load,
    point_options,
    pool_options,
)
from dse.cli.printing import deliver, print_json

if TYPE_CHECKING:
    from dse.answer.answer import Answer

FILES = (".csv", ".json", ".html", ".xlsx", ".md")
NOTHING = 3  # exit code of a search with nothing feasible (`dse.errors.NothingFeasible`)
# What --fit takes of a point; it tries the degrees itself.
FIT_FLAGS = (
    "model",
    "chip",
    "weight_dtype",
    "kv_dtype",
    *TOKENS,
    "concurrency",
    "weights_offload",
    "kv_offload",
    "offload_tier",
    "backend",
    "chip_files",
)


@click.command("estimate", cls=Sectioned, sections=POINT_SECTIONS)
@click.argument("study", required=False, type=NoModel())
@click.argument("point", required=False)
@click.option("--detail", is_flag=True, help="Also time, memory, money, energy by operator.")
@click.option("--why-not", metavar="STUDY", help="Why is this point not on its front?")
@click.option("--fit", is_flag=True, help="The fewest chips that hold the model.")
@click.option("--most-chips", type=DEGREE, metavar="N", help="The largest that --fit tries.")
@point_options
@pool_options
@law_option("Quality law (docs/quality.md).")
@loss_runs_option
@click.option("--points", metavar="IN", help="A file in the measurement format.")
@click.option(
    "--out",
    metavar="OUT",
    help="What --points writes; else a folder for the answer.",
)
@json_option
def command(
    study: str | None,
    point: str | None,
    points: str | None,
    out: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Predict one point.

    \b
    dse estimate --model llama-3-70b --chip h100_sxm --tp 8 --concurrency 32
    dse estimate --model llama-3-70b --chip h200_sxm --set hbm_bandwidth=2x --tp 8 --detail
    dse estimate studies/quickstart start     a point of a study again
    dse estimate --why-not studies/deploy-llama-3-70b --model llama-3-70b --chip h100_sxm --tp 4
    dse estimate --fit --model llama-3-70b --chip groq_lpu_v1 --weight-dtype int8
    dse estimate --points IN.csv --out OUT.csv
    dse estimate --serving disaggregated --model deepseek-v3 --chip h200_sxm --dp 8 --ep 8
      --prefill-tp 8 --prefill-workers 2

    POINT is a number of front.csv or one of start, cheapest, fastest, best,
    knee. Exit code 3: --fit, and no instance holds the model.
    """
    if points is not None:
        _file(points, out, as_json)
        return
    if out is not None and (not out or Path(out).suffix in FILES):
        from dse.errors import InputError

        raise InputError(f"read {out!r}", field="--out", accepted="a folder")
    answer = _answer(study, point, flags)
    deliver(answer, out=out, as_json=as_json)
    if answer.document.get("fits") is False:
        sys.exit(NOTHING)


def _answer(study: str | None, point: str | None, flags: dict[str, Any]) -> Answer:
    from dse.questions.estimate.ask import estimate, fewest_chips

    why_not, fit = flags.pop("why_not"), flags.pop("fit")
    most = flags.pop("most_chips")
    if not fit:
        refuse(["most_chips"], "an estimate without --fit")
    if study is not None:
        refuse((*POINT_FLAGS, *POOL_FLAGS, "why_not", "fit", "loss_runs"), "STUDY POINT")
        return _again(study, point, flags)
    if why_not is not None:
        return _why_not(why_not, flags)
    if fit:
        names = {*POINT_FLAGS, *POOL_FLAGS, "law", "loss_runs", "detail"} - {*FIT_FLAGS}
        refuse(names, "--fit, which tries every split of one instance")
        given = {name: flags[name] for name in FIT_FLAGS if name != "chip_files"}
        if most is not None:
            given["most_chips"] = most
        return fewest_chips(**given, catalog=read_catalog(flags["chip_files"]))
    check_load(flags, pools=True)
    catalog = read_catalog(flags.pop("chip_files"))
    return estimate(**flags, catalog=catalog)


def _again(study: str, point: str | None, flags: dict[str, Any]) -> Answer:
    """A point of a study."""
    from dse.errors import InputError
    from dse.questions.estimate.ask import estimate
    from dse.study.folder import STUDY, read_json

    if point is None:
        raise InputError("which point?", field="POINT", accepted="dse estimate STUDY POINT")
    read_json(Path(study), STUDY)  # it is a study
    asked = {name: flags[name] for name in ("detail", "law")}
    return estimate(study, point, **asked, catalog=read_catalog())


def _why_not(study: str, flags: dict[str, Any]) -> Answer:
    """What of the point the study's limits, rules or front refuse, with the study's workload."""
    from dse.problem.mix import held, loads_of
    from dse.questions.estimate.ask import point_of
    from dse.questions.estimate.present import why_not_answer
    from dse.questions.estimate.why_not import why_not
    from dse.schema.loss_runs import runs_again
    from dse.schema.workloads import DETAILS
    from dse.study.folder import STUDY, read_json

    written = read_json(Path(study), STUDY)
    loads = loads_of(written)
    taken = {"price_basis", *TOKENS, "workloads", "serving", "backend", *DETAILS, *POOL_FLAGS}
    taken |= {"jitter", "law", "loss_runs"}
    if not held(loads):
        taken.add("concurrency")
    asked = {key: written.get(key) for key in ("price_basis", "costs", "unique_tokens")}
    asked["law"] = written.get("quality_law")
    asked["loss_runs"] = runs_again(runs) if (runs := written.get("loss_runs")) else None
    if flags["domain"] is not None and "rack" in written:
        taken.add("rack")
        asked["rack"] = written["rack"]["named"]
    refuse(taken, f"--why-not, which takes it from {study}")
    refuse(("fit", "detail"), "--why-not, which compares with a front")
    check_load(flags)
    catalog = read_catalog(flags["chip_files"]).over(written)
    found = point_of(catalog, flags | asked, loads=loads)
    return why_not_answer(why_not(Path(study), found), study)


def _file(points: str, out: str | None, as_json: bool) -> None:
    """Every row of a file in the measurement format."""
    from dse.accuracy.measurements import estimate_file
    from dse.errors import InputError

    others = (
        "study",
        "law",
        "loss_runs",
        "detail",
        "why_not",
        "fit",
        "most_chips",
    )
    refuse((*POINT_FLAGS, *POOL_FLAGS, *others), "--points")
    if out is None:
        raise InputError("--out is missing", accepted="dse estimate --points IN.csv --out OUT")
    counted = estimate_file(Path(points), Path(out), read_catalog())
    if as_json:
        print_json(counted)
    else:
        also = f", {counted['infeasible']:,} infeasible" if counted["infeasible"] else ""
        click.echo(
            f"{counted['ok']:,} of {counted['rows']:,} rows predicted{also}, written to {out}"
        )
