"""dse claims: what people claim of models and hardware, judged by numbers.

Examples:

    dse claims check                 all shipped claims, a line for each part
    dse claims check 3               one of them: its parts, rules and numbers
    dse claims check mine.yaml       one of your own (docs/claims.md)
"""

from __future__ import annotations

import click

from dse.cli.signature import verb
from dse.questions.claims import claims


@click.group("claims")
def command() -> None:
    """Judge what people claim of models and hardware, and what you do."""


command.add_command(verb(claims, name="check", examples=__doc__))
