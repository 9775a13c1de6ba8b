"""Writes docs/rediscovery.md: every shipped case with its evidence.

python -m tools.rediscovery_page docs/rediscovery.md [CASE ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dse.catalog import load_catalog
from dse.questions.rediscovery import rediscover
from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.caveats import of_all
from dse.questions.rediscovery.present import design_section
from dse.questions.rediscovery.tables import summary
from dse.questions.rediscovery.words import law_words
from dse.render.markdown import blocks_markdown, table
from dse.schema.rediscovery import load_case, resolve_case, shipped_cases

COMMAND = "python -m tools.rediscovery_page docs/rediscovery.md"
INTRO = """\
How far does the tool's front land from designs that experts published, given only what was known
when they were chosen: the chip, the workload, the corpus, the compute and the parameters? Each case
is a file in `search_spaces/rediscovery/` with the source of every given, and a space beside it.

- *Same for all*: training tokens, vocabulary, number formats, limits on latency, the deployments
  that are allowed. Every shape of the space, and the expert's own, is served on its cheapest
  deployment within the limits, by enumeration.
- *Front*: the shapes that no other one beats in both predicted loss and price. Between two of them
  the logarithm of the price is taken to be linear in the loss.
- *Cost at equal quality*: the design's price over the front's at the design's predicted loss; above
  1 the front is cheaper.
- *Loss above the front*: the design's predicted loss less the front's at the design's price, in
  nats a token; above 0 the front is better. Doubling a dense model of 70B on 15T tokens is worth
  0.0175 by the default law.
- *Within 5%* of the front's price is called level.
- *One assumption less*: the assumption without which the design comes nearest to the front, and its
  cost at equal quality then. `sparsity`, `granularity`, `attention`, `depth`: no rival goes further
  than the design in that term; `routing`: experts are chosen equally often; `law NAME`: another
  quality law. Each case has the table of all of them.

A design that is behind the front is not thereby shown to be poor. Rivals exist on paper only, no
law sees data, stability of training or the kind of attention, and the laws extrapolate by orders of
magnitude ([quality.md](quality.md)). So each case is run again with one assumption changed at a
time; the one that moves the distance most is named. *Leverage of experts* is the compute that a
dense model would need for the same loss over the sparse one's; *granularity* is twice the hidden
size over the width of an expert; *dense-equivalent* is the dense model of equal predicted loss.
"""
RUN = """\
```bash
dse compare rediscovery/llama-3-70b
```

`dse compare rediscovery/NAME --law LAW` answers under another quality law.
`dse compare my-case.yaml` answers for a case of your own: copy a shipped one with its space.
`dse compare SPACE MODEL` holds any published model against the front of a space of one chip.
"""


def page(answers: Sequence[Rediscovery]) -> str:
    """The page; the same answers give the same bytes."""
    lines = [f"<!-- {COMMAND} -->", "", "# Rediscovery", "", INTRO, law_words(answers[0]), ""]
    distances = summary(answers)
    lines += table(distances.titles, distances.texts(), distances.right)
    lines += [f"- {text}" for text in of_all(answers)]
    lines += ["", RUN]
    lines += blocks_markdown([design_section(found) for found in answers], 2)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str]) -> None:
    file, *names = arguments
    catalog = load_catalog()
    paths = [resolve_case(name) for name in names] or list(shipped_cases().values())
    cases = [load_case(path, None, catalog) for path in paths]
    Path(file).write_text(page([rediscover(case, catalog) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
