"""What collectives cost on a fabric, as people read it: `dse scale --collectives`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse import units
from dse.answer.answer import Answer, Block, Column, Table
from dse.answer.numbers import time
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.questions.estimate.ask import jitter_of
from dse.questions.scale.collectives import (
    TITLES,
    Route,
    against_measured,
    collectives,
    measured_ratios,
)

SIZES = ("32 KiB", "1 MiB", "128 MiB")
FEWEST, MOST = 2, 8192
Json = Mapping[str, Any]


def collective_times(
    chip: str,
    *,
    system: str | None = None,
    chips: int = 64,
    sizes: Sequence[str] = SIZES,
    against: str | None = None,
    against_system: str | None = None,
    top_k: int = 8,
    hidden_size: int = 7168,
    jitter: str | None = None,
    distribution: str | None = None,
    catalog: Catalog | None = None,
) -> Answer:
    """Time, algorithm and bus bandwidth of every collective over a group of chips.

    Raises InputError for a chip or system that does not exist, sizes that cannot be, and a link
    that is needed and has no bandwidth."""
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    if against is not None:
        catalog, against = catalog.with_chip(against)
    if against_system is not None and against is None:
        raise InputError("--against is missing", accepted="--against CHIP --against-system ID")
    if not FEWEST <= chips <= MOST:
        message = f"read {chips}"
        raise InputError(message, field="--chips", accepted=f"{FEWEST:,} to {MOST:,}")
    sent = [_size(units.parse(text, "bytes", field="--bytes"), text) for text in sizes]
    waits = jitter_of(jitter, distribution)
    route = Route(top_k, hidden_size)
    answers = [
        collectives(catalog, name, its_system, chips, sent, route, waits)
        for name, its_system in ((chip, system), (against, against_system))
        if name is not None
    ]
    for answer in answers:
        rows = against_measured(catalog, answer["chip"], answer["system"])
        answer["measured_ratios"] = measured_ratios(rows, sent)
    first, *others = answers
    blocks: list[Block] = [_times(answer) for answer in answers]
    if others:
        blocks.append(_ratios(first, others[0]))
    blocks += [_measured_ratios(answer) for answer in answers if answer["measured_ratios"]]
    headline, *more = (_fabric(answer) for answer in answers)
    return Answer(
        question="collectives",
        title="Collectives",
        headline=headline,
        sentences=[*more, *_words(route)],
        blocks=blocks,
        document={**first, **({"against": others[0]} if others else {})},
    )


def collectives_measured(
    chip: str, *, system: str | None = None, catalog: Catalog | None = None
) -> Answer:
    """The model beside every all-reduce that was measured on a chip. Raises InputError where none
    was."""
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    rows = against_measured(catalog, chip, system or catalog.chip(chip).system)
    if not rows:
        raise InputError(f"no measured all-reduce of {chip}", accepted="without --measured")
    launch = sorted({time(row["launch_s"]) for row in rows if row["launch_s"]})
    notes = (
        f"The model has {', '.join(launch)} added for the launch from Python that this benchmark "
        "has in every message: what small messages in one box take beyond the fitted kernels, "
        "which run inside CUDA graphs.",
    )
    return Answer(
        question="collectives",
        title=f"All-reduce, measured on {chip}",
        headline=f"{len(rows):,} measured all-reduces of {chip} beside the model.",
        blocks=[
            Table.of(
                "measured",
                "All-reduce",
                rows,
                (
                    Column("chips", "chips", "count"),
                    _MESSAGE,
                    Column("seconds", "measured", "time"),
                    Column("predicted_s", "model", "time"),
                    Column("ratio", "model / measured", "ratio", of=_ratio),
                    Column("note", "software, note", of=_software),
                ),
                notes=notes if launch else (),
            )
        ],
        document=rows,
    )


def size_label(size: float) -> str:
    """Whole binary units where it is some, as message sizes are written."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        count = size / 1024**power
        if count >= 1 and count.is_integer():
            return f"{count:,.0f} {unit}"
    return units.format(size, "bytes")


def _size(value: float, text: str) -> float:
    if not 1 <= value <= 1e15:
        raise InputError(f"read {text!r}", field="--bytes", accepted="1 B to 1 PB")
    return value


def _fabric(answer: Json) -> str:
    count = answer["domains"]
    levels = "; ".join(
        f"{level['name']}: {level['topology'].replace('_', ' ')}" for level in answer["levels"]
    )
    domains = "one scale-up domain" if count == 1 else f"{count} scale-up domains"
    return (
        f"{answer['chip']} on {answer['system']}: {answer['chips']} chips in {domains} ({levels})"
    )


def _ratio(row: Json) -> float:
    return row["predicted_s"] / row["seconds"]


def _software(row: Json) -> str:
    return "; ".join(filter(None, (row["software"], row["note"])))


_MESSAGE = Column("message", "message", of=lambda row: size_label(row["bytes"]))


def _times(answer: Json) -> Table:
    """The size of a message stands on the first row of it."""
    return Table.of(
        f"times {answer['chip']}",
        f"{answer['chip']} on {answer['system']}",
        [
            {**one, "message": "" if k else size_label(message["bytes"])}
            for message in answer["messages"]
            for k, one in enumerate(message["collectives"])
        ],
        (
            Column("message", "message"),
            Column("collective", "collective", of=lambda one: TITLES[one["collective"]]),
            Column("seconds", "time", "time"),
            Column("bus", "bus", "bandwidth", of=lambda one: one["bus_bytes_per_s"]),
            Column("kind", "kind"),
            Column("algorithm", "algorithm"),
        ),
    )


def _ratios(first: Json, second: Json) -> Table:
    def over(a: Json, b: Json) -> Callable[[str], float]:
        """The ratio of a collective for one message."""
        mine, other = ({o["collective"]: o["seconds"] for o in m["collectives"]} for m in (a, b))
        return lambda name: other[name] / mine[name]

    messages = zip(first["messages"], second["messages"], strict=True)
    each = [(size_label(a["bytes"]), over(a, b)) for a, b in messages]
    return Table.of(
        "ratios",
        f"Time of {second['chip']} over that of {first['chip']}, {first['chips']} chips each",
        TITLES,
        (
            Column("collective", "collective", of=lambda name: TITLES[name]),
            *(Column(label, label, "ratio", of=of) for label, of in each),
        ),
    )


def _measured_ratios(answer: Json) -> Table:
    rows = answer["measured_ratios"]
    few, many = rows[0]["chips"]
    return Table.of(
        f"measured {answer['chip']}",
        f"Measured on {answer['chip']}, {answer['system']}: bus bandwidth of an all-reduce over "
        f"{few} chips over that of {many}",
        rows,
        (
            _MESSAGE,
            Column("measured", "measured", "ratio"),
            Column("predicted", "model", "ratio"),
            Column("note", "note"),
        ),
    )


def _words(route: Route) -> list[str]:
    return [
        "bus: what a chip sends in a ring over the time. Message: of an all-reduce what each chip "
        "has, of a gather what it ends up with, of an all-to-all what it sends.",
        "fitted: to kernels of this chip; derived: to those of another, or of another network; "
        "extrapolated: closed forms beyond the measured groups; measured: the algorithm of the "
        "kernels that were measured; as elsewhere: that of the chips that the law is taken from.",
        "Gathers were measured with NCCL, all-reduces with kernels of serving software, which take "
        "fewer steps.",
        f"Expert all-to-all: tokens of {route.hidden_size:,} 8-bit numbers to "
        f"{route.experts_per_token} experts each, from 128 tokens a chip on one copy a domain.",
    ]
