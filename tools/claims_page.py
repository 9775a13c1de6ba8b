"""docs/claims.md: python -m tools.claims_page > docs/claims.md"""

from __future__ import annotations

from dse.accuracy.claims.engine import claim, claims
from dse.accuracy.claims.present import claims_answer

COMMAND = "python -m tools.claims_page > docs/claims.md"


def main() -> None:
    found = [(one, one.found()) for one in map(claim, claims())]
    print(claims_answer(found, COMMAND).to_markdown(), end="")


if __name__ == "__main__":
    main()
