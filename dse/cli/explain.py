"""dse explain: where time, memory, money and energy of one point go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    POINT_FLAGS,
    TOKENS,
    estimate_flags,
    json_option,
    point_options,
    print_json,
    print_table,
    print_workloads,
    refuse,
    say,
)


@click.command("explain")
@click.argument("study", required=False)
@click.argument("point", required=False)
@click.option(
    "--why-not",
    "why_not",
    metavar="STUDY",
    help="A study: why is this configuration not on its front?",
)
@point_options
@json_option
def command(
    study: str | None, point: str | None, why_not: str | None, as_json: bool, **flags: Any
) -> None:
    """Where time, memory, money and energy of one point go, operator by operator.

    \b
    dse explain studies/quickstart knee
    dse explain --model deepseek-v3 --chip h200_sxm --tp 8 --concurrency 64
    dse explain --why-not studies/deploy-llama-3-70b --model llama-3-70b --chip h100_sxm --tp 4

    POINT is a number of front.csv or one of cheapest, fastest, best, knee.
    """
    from dse.errors import InputError

    if study is not None:
        from dse.study.again import estimate_again

        refuse((*POINT_FLAGS, "why_not"), "STUDY POINT")
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse explain STUDY POINT")
        answer = estimate_again(Path(study), point, keep=True)
    elif why_not is not None:
        from dse.specs.workloads import DETAILS
        from dse.study.folder import STUDY, read_json
        from dse.study.loads import held, loads_of
        from dse.study.why_not import why_not as reasons

        study_document = read_json(Path(why_not), STUDY)
        taken = ("price_basis", *TOKENS, "workloads", "serving", "backend", *DETAILS)
        taken = (*taken, "jitter", "jitter_distribution")
        loads = loads_of(study_document)
        if not held(loads):
            taken = (*taken, "concurrency")
        refuse(taken, f"--why-not, which takes it from {why_not}")
        asked = {key: study_document.get(key) for key in ("price_basis", "purchase")}
        document = reasons(Path(why_not), estimate_flags(flags | asked, loads=loads))
        if as_json:
            print_json(document)
        else:
            for line in document["reasons"]:
                say(line, "  ")
        return
    else:
        answer = estimate_flags(flags, keep=True)
    _explain(answer, as_json)


def _explain(answer: Any, as_json: bool) -> None:
    from dse.study.breakdown import breakdown
    from dse.study.words import heading, show, verdict

    document = answer.as_json()
    where = breakdown(answer.metrics, 0)
    if as_json:
        print_json({**document, **where})
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
    click.echo(f"Joules per output token: {show('joules', document['joules_per_output_token'])}.")
    for line in verdict(document):
        say(line, "  ")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"
