"""docs/claims.md: python -m tools.claims_page > docs/claims.md"""

from __future__ import annotations

from dse.accuracy.claims.engine import claim, claims
from dse.accuracy.claims.present import Found, claims_answer
from dse.render.markdown import escape, table

COMMAND = "python -m tools.claims_page > docs/claims.md"


def page(found: Found) -> str:
    """A table of all claims, with what was found."""
    answer = claims_answer(found)
    verdicts = answer.tables[0]
    lines = [
        "# Claims",
        "",
        f"Written by `{COMMAND}`. What people hold to be true about models and hardware, and what "
        "this model finds.",
        "",
        escape(answer.headline),
        "",
        "A rule decides each verdict from the numbers, so that it changes when they do. Most "
        "numbers are predictions. `dse validate --claims N` prints the rule of claim N, what it "
        "holds for, which numbers are measured, what is not known, the tables behind it, and a "
        "command to try.",
        "",
        "```bash",
        "dse validate --claims 2",
        "```",
        "",
        *table(verdicts.titles, verdicts.texts()),
    ]
    return "\n".join(lines)


def main() -> None:
    print(page([(one, one.found()) for one in map(claim, claims())]), end="")


if __name__ == "__main__":
    main()
