"""Writes docs/rediscovery.md: every shipped case with what was found.

python -m tools.rediscovery_page docs/rediscovery.md [CASE ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dse.catalog import load_catalog
from dse.questions.rediscovery import rediscover
from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.present import cause_table, summary
from dse.questions.rediscovery.words import changes_words, law_words, of_all
from dse.render.markdown import escape, table
from dse.schema.rediscovery import load_case, resolve_case, shipped_cases

COMMAND = "python -m tools.rediscovery_page docs/rediscovery.md"
INTRO = """\
How far does the front land from designs that experts published, given only what was known when they
were chosen: the chip, the workload, the corpus, the compute and the parameters? Each case is a file
in `search_spaces/rediscovery/`, with a source for everything given, and a space beside it. Training
tokens, vocabulary, number formats, latency limits and allowed deployments are the same for every
shape. Each shape, the expert's included, is served on its cheapest deployment within the limits.

- *Front*: the shapes that no other beats in both predicted loss and price. Between two of them the
  logarithm of the price is linear in the loss.
- *Cost at equal quality*: the design's price over the front's at the design's predicted loss. Above
  1 the front is cheaper; within 5% counts as level.
- *Loss at equal cost*: the design's predicted loss less the front's at the design's price, in nats
  a token. Above 0 the front is better. By the default law, doubling a dense 70B model on 15T tokens
  is worth 0.0175.
- *Dense equal* (dense-equivalent): the dense model of equal predicted loss.
- *One assumption less*: each case is run again with one assumption changed at a time. The table
  names the change that brings the design nearest to the front. `sparsity`, `granularity`,
  `attention`, `depth`: no rival goes further than the design in that term; `routing`: experts are
  chosen equally often; `law NAME`: another quality law.

A design behind the front is not thereby shown to be poor. Its rivals exist on paper only, no law
sees the data, the stability of training or the kind of attention, and the laws extrapolate by
orders of magnitude ([quality.md](quality.md)). *Granularity* is twice the hidden size over the
width of an expert.
"""
RUN = """\
```bash
dse compare rediscovery/llama-3-70b
```

That prints everything about one case: what was known, the design beside the nearest shapes of the
front, the way there one parameter at a time, and what each assumption is worth.
`dse compare rediscovery/NAME --law LAW` answers under another quality law.
`dse compare my-case.yaml` takes a case of your own: copy a shipped one with its space.
`dse compare SPACE MODEL` holds a published model against the front of a space of one chip.
"""


CHANGES = """\
From the expert's design to the cheapest shape of the front that is as good, in the order in which
the way there is taken."""


CAUSES = """\
What each choice of that shape saves at equal quality: the price on its best deployment, with the
difference in loss at what the front pays for it. What a choice is worth depends on those made
before it; the mean over all orders is shown, and the choices multiply to the whole. Below 1 a
choice costs more and pays for another one. Head size, vocabulary, number formats, window and the
workload are the same for all shapes; how many requests run at once follows from the cache, and so
is counted with the choice that makes it."""


def changed(found: Rediscovery) -> str:
    """One case: what that shape does otherwise."""
    steps = "; ".join(changes_words(step) for step in found.to_cheaper)
    return escape(f"{found.case.title}: {steps or 'no shape is as good'}.")


def page(answers: Sequence[Rediscovery]) -> str:
    """The page; the same answers give the same bytes."""
    lines = [f"<!-- {COMMAND} -->", "", "# Rediscovery", "", INTRO, law_words(answers[0]), ""]
    distances = summary(answers)
    lines += table(distances.titles, distances.texts(), distances.right)
    lines += [f"- {text}" for text in of_all(answers)]
    lines += ["", RUN]
    lines += ["## What the front changes", "", CHANGES, ""]
    lines += [f"- {changed(found)}" for found in answers]
    saved = cause_table(answers)
    lines += ["", "## What remains, by cause", "", CAUSES, ""]
    lines += table(saved.titles, saved.texts(), saved.right)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str]) -> None:
    file, *names = arguments
    catalog = load_catalog()
    paths = [resolve_case(name) for name in names] or list(shipped_cases().values())
    cases = [load_case(path, None, catalog) for path in paths]
    Path(file).write_text(page([rediscover(case, catalog) for case in cases]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
