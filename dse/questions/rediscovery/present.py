"""The Answer of published designs against the front of a space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dse.answer.answer import Answer, Block, Notes, Table, table_of
from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.caveats import of_all
from dse.questions.rediscovery.path import Step
from dse.questions.rediscovery.tables import (
    cause_table,
    known_table,
    shape_table,
    summary,
    variant_figure,
    variant_table,
)
from dse.questions.rediscovery.words import law_words, lead, looked_at, standing, step_words

WORDS = {
    "front": "the shapes, each on its cheapest deployment, that no other beats in both predicted "
    "loss and price",
    "leverage": "the compute that a dense model would need for the same loss over the sparse one's",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
}


def design_answer(found: Rediscovery, command: str = "") -> Answer:
    """One design: where it stands, what the front changes, and which assumption does it."""
    said, case = lead(found), found.case
    return Answer(
        question="compare",
        title=case.title,
        asked=f"{case.title}: {case.expert.name} against the front of {case.study.name}; prices: "
        f"{case.study.price_basis}",
        headline=said[0],
        sentences=[*said[1:], looked_at(found)],
        blocks=(variant_figure(found), *design_blocks(found)),
        rests=(law_words(found),),
        command=command,
        document=document(found),
        data=(_front(found),),
        words=WORDS,
    )


def designs_answer(answers: Sequence[Rediscovery], command: str = "") -> Answer:
    """Several designs: a line each, and a section of all that is said of each."""
    behind = sum((found.distance.cost_ratio or 0.0) > 1.05 for found in answers)
    return Answer(
        question="compare",
        title="Published designs and the front",
        asked=f"{len(answers)} published designs, each against the front of its space",
        headline=f"{behind} of {len(answers)} published designs cost more than 5% above the front "
        "at equal predicted quality.",
        sentences=of_all(answers),
        blocks=(
            summary(answers),
            *(Notes(found.case.title, lead(found)) for found in answers),
        ),
        rests=(law_words(answers[0]),),
        command=command,
        document={"cases": [document(found) for found in answers]},
        words=WORDS,
    )


def design_blocks(found: Rediscovery) -> list[Block]:
    """What was known, the shapes, the way to the front, and what each assumption is worth."""
    case = found.case
    known = known_table(found)
    made: list[Block] = [known] if known.rows else []
    made.append(shape_table(found))
    if case.held:
        held = " and ".join(case.held)
        made.append(Notes("What is held", [f"{held} at the expert's, because {case.why_held}."]))
    for words, steps in path_words(found):
        said = [f"{k}. {step_words(step)}." for k, step in enumerate(steps, 1)]
        made.append(Notes(words, said))
    if found.causes:
        made.append(cause_table([found]))
    return [*made, variant_table(found)]


def _front(found: Rediscovery) -> Table:
    return table_of("front", [found.table.row(int(i)) for i in found.front.rows])


def document(found: Rediscovery) -> dict[str, Any]:
    """The document of one case."""
    table, away = found.table, found.distance
    servable = found.servable
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
        "causes": found.causes,
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


def path_words(found: Rediscovery) -> list[tuple[str, list[Step]]]:
    """(heading, steps) of each way that leads to the front."""
    ways = [
        ("To the cheapest shape of the front that is as good", found.to_cheaper),
        ("To the best shape of the front that costs no more", found.to_better),
    ]
    same = found.distance.cheaper == found.distance.better
    return [
        (f"{words}, one parameter at a time, each on its cheapest deployment", steps)
        for k, (words, steps) in enumerate(ways)
        if steps and not (k and same)
    ]
