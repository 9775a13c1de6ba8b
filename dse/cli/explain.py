"""dse explain: where time, memory, money and energy of one point go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.energy import print_by_batch, print_energy
from dse.cli.options import json_option, law_option, read_catalog, refuse
from dse.cli.point import POINT_FLAGS, TOKENS, estimate_flags, point_options
from dse.cli.printing import print_json, print_table, print_workloads, say


@click.command("explain")
@click.argument("study", required=False)
@click.argument("point", required=False)
@click.option(
    "--why-not",
    "why_not",
    metavar="STUDY",
    help="A study: why is this configuration not on its front?",
)
@click.option(
    "--energy-by-batch",
    "by_batch",
    is_flag=True,
    help="Tokens per joule with 1, 2, 4, ... requests in flight, as far as memory admits them.",
)
@point_options
@law_option(
    "Quality law of the loss (docs/quality.md): leverage, hoffmann, cautious, joint, abnar."
)
@json_option
def command(
    study: str | None,
    point: str | None,
    why_not: str | None,
    by_batch: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Where time, memory, money and energy of one point go, operator by operator.

    \b
    dse explain studies/quickstart knee
    dse explain --model deepseek-v3 --chip h200_sxm --tp 8 --concurrency 64
    dse explain --model llama-3-70b --chip h100_sxm --tp 8 --energy-by-batch
    dse explain --why-not studies/deploy-llama-3-70b --model llama-3-70b --chip h100_sxm --tp 4

    POINT is a number of front.csv or one of cheapest, fastest, best, knee.
    """
    from dse.errors import InputError

    if study is not None:
        from dse.questions.estimate.again import estimate_again

        refuse((*POINT_FLAGS, "why_not"), "STUDY POINT")
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse explain STUDY POINT")
        answer = estimate_again(Path(study), point, read_catalog(), keep=True, law=flags["law"])
    elif why_not is not None:
        from dse.problem.loads import held, loads_of
        from dse.questions.estimate.why_not import why_not as reasons
        from dse.schema.workloads import DETAILS
        from dse.study.folder import STUDY, read_json

        study_document = read_json(Path(why_not), STUDY)
        taken = ("by_batch", "price_basis", *TOKENS, "workloads", "serving", "backend", *DETAILS)
        taken = (*taken, "jitter", "jitter_distribution", "law")
        loads = loads_of(study_document)
        if not held(loads):
            taken = (*taken, "concurrency")
        refuse(taken, f"--why-not, which takes it from {why_not}")
        asked = {key: study_document.get(key) for key in ("price_basis", "costs")}
        asked["law"] = study_document.get("quality_law")
        if flags["domain"] is not None and "rack" in study_document:
            refuse(["rack"], f"--why-not, which takes it from {why_not}")
            asked["rack"] = study_document["rack"]["named"]
        document = reasons(
            Path(why_not), estimate_flags(flags | asked, loads=loads, study=study_document)
        )
        if as_json:
            print_json(document)
        else:
            for line in document["reasons"]:
                say(line, "  ")
        return
    else:
        answer = estimate_flags(flags, keep=True)
    if by_batch:
        _by_batch(answer, as_json)
    else:
        _explain(answer, as_json)


def _by_batch(answer: Any, as_json: bool) -> None:
    """The same deployment with more and more requests in flight."""
    from dse.problem.words import deployment_words, heading
    from dse.questions.estimate.energy import energy_by_batch

    document, table = answer.as_json(), energy_by_batch(answer)
    if as_json:
        print_json({**document, "energy_by_batch": table})
        return
    say(f"{document['model']} on {deployment_words(document['deployment'], held=False)}")
    say(heading(document)[1])
    print_by_batch(table)


def _explain(answer: Any, as_json: bool) -> None:
    from dse.problem.quality import quality_words
    from dse.problem.words import heading, show, verdict
    from dse.questions.estimate.breakdown import breakdown
    from dse.questions.estimate.energy import energy_breakdown

    document = answer.as_json()
    where = breakdown(answer.metrics, 0)
    energy = energy_breakdown(answer.metrics, 0)
    if as_json:
        print_json({**document, **where, "energy": energy})
        return
    for line in heading(document):
        say(line)
    print_workloads(document)
    if document["workload"] is None:
        say(
            f"Operators and memory below are under {where['breakdown_of']}, which takes most of "
            "the deployment's time.",
            "  ",
        )
    prefill = sum(row["prefill_s"] for row in where["breakdown"])
    decode = sum(row["decode_s"] for row in where["breakdown"])
    print_table(
        ("operator", "prefill", "share", "decode step", "share", "bound by", "efficiency"),
        [
            (
                row["operator"],
                show("prefill_s", row["prefill_s"]),
                _share(row["prefill_s"], prefill),
                show("decode_step_s", row["decode_s"]),
                _share(row["decode_s"], decode),
                row["bound"],
                row["efficiency"],
            )
            for row in where["breakdown"]
        ]
        + [("total", show("prefill_s", prefill), "", show("decode_step_s", decode), "", "", "")],
        right=(1, 2, 3, 4),
    )
    capacity = where["capacity_bytes"]
    print_table(
        ("memory per chip", "GB", "of capacity"),
        [
            (
                row["part"].replace("_", " "),
                f"{row['bytes'] / 1e9:.2f}",
                f"{row['bytes'] / capacity:.1%}",
            )
            for row in where["memory"]
        ]
        + [("capacity", f"{capacity / 1e9:.2f}", "")],
        right=(1, 2),
    )
    say(
        "prefill: one prompt, or a chunk of it; bound by: what a decode step waits for; "
        "efficiency: how the kernel's is known; runtime: what the serving software keeps.",
        "  ",
    )
    say(
        f"A decode step takes {show('tpot_s', where['decode_step_s'])}; its floor on these chips "
        f"is {show('tpot_s', where['floor_s'])} "
        f"({where['decode_step_s'] / where['floor_s']:.2f} times the floor).",
        "  ",
    )
    say(
        f"Dollars per million tokens ({document['price_basis']}): "
        f"input {show('usd', document['usd_per_million_input_tokens'])}, "
        f"output {show('usd', document['usd_per_million_output_tokens'])}, "
        f"total {show('usd', document['usd_per_million_total_tokens'])}; "
        "with all cost put on the output "
        f"{show('usd', document['usd_per_million_output_tokens_all_in'])}.",
        "  ",
    )
    print_energy(energy)
    for line in (*quality_words(document), *verdict(document)):
        say(line, "  ")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"
