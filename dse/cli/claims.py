"""dse claims: what people claim of models and hardware, judged by numbers."""

from __future__ import annotations

import click

from dse.cli.options import json_option, out_option
from dse.cli.printing import Progress, deliver


@click.group("claims")
def command() -> None:
    """Judge what people claim of models and hardware, and what you do.

    \b
    dse claims check                 all shipped claims, a line for each part
    dse claims check 3               one of them: its parts, rules and numbers
    dse claims check mine.yaml       one of your own (docs/claims.md)

    A claim is a file: a statement, its parts, for each part a rule and the question behind it. A
    part is confirmed, true if a condition holds, contradicted as worded, or not decidable here.
    """


@command.command("check")
@click.argument("claims", metavar="[CLAIM]...", nargs=-1)
@out_option("claims")
@json_option
def check(claims: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """Judge each CLAIM, a number of a shipped one or a file; else all that are shipped."""
    from dse.accuracy.claims.asked import Asker
    from dse.accuracy.claims.claim import load_claim, shipped
    from dse.accuracy.claims.judge import judged
    from dse.accuracy.claims.present import claim_answer, claims_answer

    asked = [load_claim(one) for one in claims or shipped()]
    asker, progress = Asker(), Progress()
    found = [(one, judged(one, asker, progress)) for one in asked]
    answer = claim_answer(*found[0]) if len(found) == 1 else claims_answer(found)
    deliver(answer, out=out, as_json=as_json)
