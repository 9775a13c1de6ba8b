"""docs/rediscovery.md, and the JSON document of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.caveats import of_all
from dse.questions.rediscovery.path import Step
from dse.questions.rediscovery.tables import (
    known_table,
    markdown_table,
    shape_table,
    summary,
    variant_table,
)
from dse.questions.rediscovery.words import law_words, lead, looked_at, standing, step_words

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
dse rediscover llama-3-70b
```

`dse rediscover --law NAME` answers under another quality law, `dse rediscover my-case.yaml` answers
for a case of your own; copy one of the shipped ones with its space.
"""


def document(answers: Sequence[Rediscovery]) -> list[dict[str, Any]]:
    """What `dse rediscover --json` prints, an item a case."""
    return [_item(found) for found in answers]


def _item(found: Rediscovery) -> dict[str, Any]:
    table, away = found.table, found.distance
    servable = bool(table.served[found.expert])
    row = table.row(found.expert)
    return {
        "case": found.case.name,
        "title": found.case.title,
        "expert": found.case.expert.id,
        "quality_law": found.case.study.quality_law,
        "price_metric": found.objective,
        "price_basis": found.case.study.price_basis,
        "known": [asdict(one) for one in found.case.known],
        "held": {name: list(values) for name, values in found.case.held.items()},
        "why_held": found.case.why_held or None,
        "shapes": found.shapes,
        "served": found.served,
        "price_interval": list(found.price_interval) if servable else None,
        "kernel_laws": found.known_as,
        "standing": standing(away, servable),
        "answer": lead(found),
        "cost_ratio": away.cost_ratio,
        "nats": away.nats,
        "dense_equivalent_ratio": away.equivalent_ratio,
        "dominating": away.dominating,
        "design": row if servable else {**row, "price": None},
        "grid": [asdict(place) | {"inside": place.inside} for place in found.places],
        "front": [table.row(int(i)) for i in found.front.rows],
        "cheaper": _to(found, away.cheaper, found.to_cheaper),
        "better": _to(found, away.better, found.to_better),
        "variants": [
            {
                "key": one.key,
                "with": one.words,
                "front_size": one.front_size,
                "cost_ratio": one.distance.cost_ratio,
                "nats": one.distance.nats,
                "dominating": one.distance.dominating,
            }
            for one in found.variants
        ],
    }


def _to(found: Rediscovery, row: int | None, steps: Sequence[Step]) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        **found.table.row(row),
        "path": [
            {
                "changes": {axis: list(ends) for axis, ends in step.changes.items()},
                "price": step.after["price"],
                "predicted_loss": step.after["predicted_loss"],
                "dense_equivalent_parameters": step.after["dense_equivalent_parameters"],
                "words": step_words(step),
            }
            for step in steps
        ],
    }


def markdown(answers: Sequence[Rediscovery], command: str) -> str:
    """The page; the same answers give the same bytes."""
    caveats = of_all(answers)
    parts = [
        f"<!-- {command} -->",
        "# Rediscovery",
        INTRO.rstrip(),
        law_words(answers[0]),
        markdown_table(summary(answers)),
        *(["\n".join(f"- {text}" for text in caveats)] if caveats else []),
        RUN.rstrip(),
    ]
    for found in answers:
        parts += _case(found)
    return "\n\n".join(parts) + "\n"


def _case(found: Rediscovery) -> list[str]:
    parts = [f"## {found.case.title}", "\n".join(f"- {sentence}" for sentence in lead(found))]
    parts += [markdown_table(known_table(found))]
    if found.case.held:
        held = " and ".join(found.case.held)
        parts.append(f"Held at the expert's: `{held}`, because {found.case.why_held}.")
    parts.append(looked_at(found))
    parts.append(markdown_table(shape_table(found)))
    for words, steps in path_words(found):
        parts += [words, "\n".join(f"{k}. {step_words(step)}." for k, step in enumerate(steps, 1))]
    parts += [f"{variant_table(found).caption}:", markdown_table(variant_table(found))]
    return parts


def path_words(found: Rediscovery) -> list[tuple[str, list[Step]]]:
    """(heading, steps) of each way that leads to the front."""
    ways = [
        ("To the cheapest shape of the front that is as good", found.to_cheaper),
        ("To the best shape of the front that costs no more", found.to_better),
    ]
    same = found.distance.cheaper == found.distance.better
    return [
        (f"{words}, one parameter at a time, each on its cheapest deployment:", steps)
        for k, (words, steps) in enumerate(ways)
        if steps and not (k and same)
    ]
