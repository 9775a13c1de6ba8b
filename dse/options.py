"""What the command line says of an argument of a library function, beside its type.

    def scale(
        model: Annotated[str | None, MODEL] = None,
        *,
        chips_up_to: Annotated[int, Opt("Largest instance to look at.", least=1, most=4096)] = 512,
        prompt_tokens: int = 2048,  # help: its meaning in the vocabulary
        **fields: Any,  # those of `--set FIELD=VALUE`
    ) -> Answer: ...

`dse.cli.signature` makes the options of a verb from it.
"""

from __future__ import annotations

from typing import Annotated

from dse.record import record


@record
class Opt:
    """One option: `help` is a sentence that stands alone, empty for the meaning of the argument in
    the vocabulary. `least` and `most` bound a number. `flag` is the option's name where it is not
    the argument's, `positional` makes it an argument of the command; with both, the option takes
    the same value."""

    help: str = ""
    least: float | None = None
    most: float | None = None
    metavar: str = ""
    flag: str = ""
    positional: bool = False


MODEL = Opt("Model: catalog id (dse catalog models list), or the path of a config.json.")
CHIP = Opt("Chip: catalog id (dse catalog chips list), or the path of a chip file.")
Tokens = Annotated[int, Opt(least=1, most=100_000_000)]
