"""What a claim is: a sentence that people hold to be true, and what the model finds of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

CONFIRMED, QUALIFIED, CONTRADICTED = "confirmed", "qualified", "contradicted"
NOT_YET = "not yet"
VERDICTS = (CONFIRMED, QUALIFIED, CONTRADICTED, NOT_YET)


@dataclass(frozen=True, slots=True)
class Table:
    """A few rows of evidence, every cell a text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """`verdict` is one of VERDICTS, made of `figures` by the rule of the claim; `number` says the
    main ones in one line; `conditions`: chips, models, loads that they hold for; `kinds`: which of
    them are measured, fitted, derived, assumed; `unknown`: what nobody published or nothing here
    models. A figure that does not apply is None."""

    verdict: str
    number: str
    figures: Mapping[str, float | None]
    conditions: str
    tables: tuple[Table, ...]
    kinds: str
    unknown: str


@dataclass(frozen=True, slots=True)
class Claim:
    """`text` is the claim; `commands` show it, the first all of it; `rule` is how the verdict
    follows from the numbers. `find` is None where the model lacks something: `needs` names it."""

    number: int
    text: str
    commands: tuple[str, ...] = ()
    rule: str = ""
    find: Callable[[], Finding] | None = None
    needs: str = ""

    def found(self) -> Finding:
        if self.find is not None:
            return self.find()
        return Finding(NOT_YET, f"needs {self.needs}", {}, "", (), "", "")


def by_share(share: float, confirmed: float, qualified: float) -> str:
    """The verdict of a share that must reach `confirmed`, or at least `qualified`."""
    if share >= confirmed:
        return CONFIRMED
    return QUALIFIED if share >= qualified else CONTRADICTED
