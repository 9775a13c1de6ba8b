"""The report of a study as an Answer: what report.html, report.md and the console show, from
front.json and study.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.answer.answer import FULL, Answer, Block, Commands, Facts, Notes, Opening, Section, Table
from dse.answer.frames import of_rows
from dse.answer.numbers import BASES, GLOSSARY, label, show, show_as, significant
from dse.answer.sentences import listed
from dse.economics.prices import evidence_words, price_parts
from dse.problem.mix import loads_of
from dse.problem.words import (
    MIX,
    MOST_TOKENS,
    brief_shape,
    deployment_words,
    draft_words,
    given_name,
)
from dse.questions.study import comparisons, front, points
from dse.questions.study.points import QUALITY, Json, StudyFolder
from dse.schema.prices import dates_of
from dse.schema.workloads import mix_words

QUESTION = "report"  # its files are report.html and report.md
MOST_SENTENCES = 6  # the headline among them
MOST_CHIPS = 4  # that are named, of those searched
FORMATS = {"weight": "weights", "kv": "KV cache"}
YEAR = 365 * 24 * 3600.0
REMOVED = (
    "“Violated” counts every design over the limit; “alone” counts those that come back when only "
    "this limit is lifted."
)


def report(folder: Path | str) -> Answer:
    """The report of a study folder, as an Answer. Raises InputError for a folder that is no study,
    StorageError for a damaged one."""
    return study_answer(StudyFolder.read(Path(folder)))


def write_report(folder: Path | str) -> Answer:
    """Writes report.html and report.md into `folder`, each whole or not at all, and returns them as
    an Answer. Raises InputError for a folder that is no study, StorageError when it cannot be read
    or written."""
    answer = report(folder)
    answer.write(folder, ("html", "md"))
    return answer


def study_answer(folder: StudyFolder) -> Answer:
    """Everything that the folder says, the answer first and the inputs last."""
    study = folder.study
    headline, *rest = lead(folder)[:MOST_SENTENCES]
    told = points.designs(folder)
    first = [
        *told,
        Commands("Everything about one", [folder.start.item["command"]]),
        *points.turns(folder),
        *front.landmark_tables(folder),
        *points.average_loads(folder),
        *points.workloads(folder),
    ]
    removed = f"Of {study['evaluations']:,} evaluated designs. {REMOVED}"
    sure = f"How sure: {front.how_sure(folder) or found_words(folder)}"
    few, picture = told[0].beside, front.opening_figure(folder)
    decisions = [row for row in told[0].rows if row["decision"]]
    few = few and replace(few, name="opening", rows=decisions)
    return Answer(
        question=QUESTION,
        title=study.get("title") or study["space"],
        headline=headline,
        document=study,
        asked=asked(folder),
        sentences=rest,
        blocks=(
            *comparisons.system_sections(study),
            Section("The front" if study.get("systems") else "", first, name=FULL),
            *(comparisons.view_section(k, view) for k, view in enumerate(study.get("views") or ())),
            front.explorer(folder),
            *comparisons.lifetime_section(study),
            *comparisons.laws_section(folder),
            *comparisons.loss_runs_section(folder),
            *_sure(study),
            *_part("What the constraints removed", "constraints", [tallies(study)], removed),
            *_part("Certainty", "certainty", _certainty(folder)),
            *_part("What was asked", "asked", [_asked(folder)]),
            *_part("Inputs, sources, versions", "inputs", _inputs(study)),
        ),
        command=study.get("command") or "",
        words=GLOSSARY,
        opening=Opening(asked(folder), headline, picture, few, sure),
        names=study.get("chips") or {},
    )


def _part(title: str, name: str, blocks: Sequence[Block], *about: str) -> list[Section]:
    """A section of the page and of report.md; none without a block."""
    return [Section(title, blocks, about, name, on_console=False)] if blocks else []


# The answer in sentences.


def lead(folder: StudyFolder) -> list[str]:
    """The decision, how sure that is, what bounds it, and what of it is uncertain; what matters
    most to the decision first."""
    study, sure = folder.study, front.how_sure(folder)
    return [
        *comparisons.system_answers(study),
        *map(comparisons.view_answer, study.get("views") or ()),
        start_words(folder),
        *([sure] if sure else []),
        *evidence_words(study["price"].get("evidence", ())),
        *_untrained(folder),
        *comparisons.unpriced(study),
        found_words(folder),
        *([" ".join(study["rack"]["sentences"])] if "rack" in study else []),
        f"Bound by {folder.start.bottleneck}",
    ]


def start_words(folder: StudyFolder) -> str:
    """The design to start from and its objectives, the loss beside those of published models."""
    item = folder.start.item
    amounts = []
    for metric in folder.wanted:
        value = item["metrics"][metric]
        near = folder.beside(value) if metric == QUALITY else ""
        amounts.append(f"{label(metric).text} {show(metric, value)}{f' ({near})' if near else ''}")
    usd = folder.usd_per_hour(item["deployment"])
    price = "" if usd is None else f", ${significant(usd)} an hour"
    on = f"{deployment_words(item['deployment'], folder.held)}{price}"
    return f"Start with {brief_shape(item)} on {on}: {', '.join(amounts)}."


def searched_words(study: Json) -> str:
    """`Searched: 32,256 designs on h100_sxm and h200_sxm, with bf16 or fp8 weights, ...`, and that
    separate pools were not; empty of a study that does not say its axes."""
    axes = {
        line.removeprefix("axis "): said if isinstance(said, list) else said["values"]
        for line, said in (study.get("definition") or {}).items()
        if line.startswith("axis ")
    }

    def values(name: str) -> list[Any]:
        pools = [axes[one] for one in (f"prefill_{name}", name, f"decode_{name}") if one in axes]
        return list(dict.fromkeys(value for of in pools for value in of))

    if not (chips := values("chip")):
        return ""
    on = listed(chips) if len(chips) <= MOST_CHIPS else f"{len(chips)} kinds of chip"
    counts = [*values("draft_tokens"), *(load.get("draft_tokens") for load in loads_of(study))]
    counts = list(filter(None, counts))
    formats = [f"{listed(values(f'{of}_dtype'), 'or')} {what}" for of, what in FORMATS.items()]
    with_ = listed([*formats, draft_words(counts) if counts else "no drafts"])
    pooled = any(axis.startswith("prefill_") for axis in axes)
    pools = "One pool and separate pools" if "tensor_parallel" in axes else "Separate pools"
    pools = f"{pools} were searched." if pooled else "Separate pools were not searched."
    return f"Searched: {study['size']:,} designs on {on}, with {with_}. {pools}"


def _untrained(folder: StudyFolder) -> list[str]:
    """How much of a front of searched shapes asks for more training tokens than any model had."""
    tokens = [
        item["metrics"].get("training_tokens") or 0.0
        for item in folder.items
        if not given_name(item)
    ]
    count = sum(amount > MOST_TOKENS for amount in tokens)
    if not count:
        return []
    most = f"{MOST_TOKENS / 1e12:g}T"
    return [
        f"{show_as('share', count / len(tokens))} of the front asks for more training tokens than "
        f"any published model had ({most}), up to {show('training_tokens', max(tokens))}. A limit "
        f"training_tokens <= {most} in the space file leaves those designs out."
    ]


def found_words(folder: StudyFolder) -> str:
    """The size of the front, and how much of the space was evaluated for it."""
    study, count = folder.study, len(folder.items)
    evaluations, size = study["evaluations"], study["size"]
    said = f"{count:,} {'designs make' if count > 1 else 'design makes'} the front"
    if evaluations >= size:
        said += f". All {size:,} of the space were evaluated: it is the true front."
    else:
        said += f", out of {evaluations:,} evaluated ({show_as('share', evaluations / size)} of "
        said += f"the space's {size:,})."
        if (share := study.get("true_hypervolume_share")) is not None:
            said += f" Against an enumeration of the space the search reaches {percent(share)} of "
            said += "the hypervolume of the true front."
    if study.get("evaluator"):
        said += f" Objectives and limits were evaluated by {study['evaluator']}; everything else "
        said += "on this page is the prediction of the model."
    return said


def asked(folder: StudyFolder) -> str:
    """The price basis first, then the workload and the limits, on one line."""
    many = "Workloads" if folder.study["workload"] is None else "Workload"
    limited = ", ".join(map(_limit, folder.study["constraints"]))
    return (
        f"Prices: {price_basis(folder.study)}. {many}: {workload(folder.study).removesuffix('.')}. "
        f"Limits: {limited or 'none'}. {searched_words(folder.study)}"
    ).strip()


def _limit(one: Json) -> str:
    """`time to first token of chat at most 2 s`"""
    if one["limit"] is None:
        return one["text"]
    of = f" of {one['workload']}" if one.get("workload") else ""
    side = "at least" if one["sign"] < 0 else "at most"
    return f"{label(one['metric']).text}{of} {side} {show(one['metric'], one['limit'])}"


def price_basis(study: Json) -> str:
    """`rental_3yr (chips rented on a three-year contract), US dollars; newest price of ...`"""
    price, costs = study["price"], study.get("costs")
    said = price["basis"]
    if said in BASES:
        said += f" ({BASES[said]})"
    if costs:
        life, busy, usd = (
            costs["inputs"][name]["value"] for name in ("life", "utilisation", "electricity")
        )
        said += f", over {life / YEAR:.3g} years of which they serve {busy:.0%}, at ${usd:.3g} per "
        said += "kWh"
    dates = [end for row in price["rows"] if row.get("date") for end in row["date"].split(" to ")]
    return f"{said}, US dollars{f'; prices of {dates_of(dates)}' if dates else ''}"


def workload(study: Json) -> str:
    """The workload on one line, tokens first; of several, what is meant by their mix."""
    if study["workload"] is None:
        software = comparisons.software_words(study)
        return f"{mix_words(study['workloads'])}; {software}. {MIX}"
    rest = dict(study["workload"])
    software = comparisons.software_words({**study, "workload": {"backend": rest.pop("backend")}})
    parts = [f"{rest.pop(f'{name}_tokens'):,} {name} tokens" for name in ("prompt", "output")]
    parts += [f"{key.replace('_', ' ')} {value}" for key, value in rest.items()]
    return ", ".join([*parts, software])


# How sure the front is.


def _sure(study: Json) -> list[Section]:
    """How near the front is to the true one; the answer itself says where it is that."""
    proof = study.get("proof")
    if study["evaluations"] >= study["size"] or proof is None:
        return []
    share, whole = study.get("true_hypervolume_share"), proof.get("enumerated")
    if study.get("evaluator"):
        about = f"Each evaluation is a call of {study['evaluator']}, so none was spent on proof."
        return [] if share is not None else [Section("How sure is this front", [], [about], "sure")]
    about = "The space was not enumerated: what follows is evidence, not proof."
    if whole:
        about = f"Against all {whole['evaluations']:,} points of the space, evaluated afterwards, "
        about += f"the search found {percent(whole['true_hypervolume_share'])} of the true "
        about += f"hypervolume and {whole['found']:,} of {whole['true_front_size']:,} true points."
    rows: list[Json] = []

    def add(evidence: str, evaluations: int | None, finding: str) -> None:
        rows.append({"evidence": evidence, "evaluations": evaluations, "finding": finding})

    if local := proof.get("local"):
        better = f"{local['better']:,} improve" if local["better"] else "none improves"
        found = f"{better} the front ({local['feasible']:,} are feasible)"
        add("one parameter away from the front", local["neighbours"], found)
    if runs := proof.get("restarts"):
        own, *others = (run["share"] for run in runs)
        least, most = percent(min(others)), percent(max(others))
        found = f"{least} to {most} of the hypervolume of all, this one {percent(own)}"
        add(f"{len(others)} more searches that share nothing", None, found)
    if added := proof.get("added"):
        add("designs met on the way", added, "added to the front")
    tables = [of_rows("evidence", "", rows, "evidence evaluations finding")] if rows else []
    return [Section("How sure is this front", tables, [about], "sure")]


def percent(share: float) -> str:
    """A share with as many nines as it has, never rounded up to 100%."""
    if share >= 1.0:
        return "100%"
    for digits in (2, 3, 4, 5, 6):
        text = f"{100 * share:.{digits}f}"
        if not text.startswith("100"):
            return f"{text}%"
    return "over 99.999999%"


def tallies(study: Json) -> Table:
    """Constraints by how many evaluated designs they ruled out, most first."""
    evaluations = max(1, study["evaluations"])
    found = sorted(study["constraint_tallies"], key=lambda row: -row["violated"])
    rows = [
        {"meaning": "", **row, "share": min(1.0, row["violated"] / evaluations)}
        for row in found
        if row["violated"]
    ]
    never = ", ".join(row["constraint"] for row in found if not row["violated"])
    notes = [f"Never violated: {never}."] if never else []
    keys = "constraint meaning violated violated_alone=only violated_share=share"
    return of_rows("constraints", "", rows, keys, *notes)


def _certainty(folder: StudyFolder) -> list[Block]:
    """What was assumed of the designs that are told, and how far the quality law reaches."""
    assumed: dict[str, list[str]] = {}
    for one in folder.marks:
        for text in one.metrics.get("assumed", ()):
            assumed.setdefault(text, []).append(one.label)
    told = {"Assumed": [f"{text} ({'; '.join(of)})" for text, of in assumed.items()]}
    if law := folder.study.get("law"):
        outside = [
            f"{row['quantity'].replace('_', ' ')} {row['share']:.0%}"
            for row in law["extrapolated"]
            if row["share"]
        ]
        told["The quality law"] = [
            f"{law['name']}. {law['extrapolated_share']:.0%} of the front lies outside the range "
            "in which the law was fitted; there its loss is extrapolated"
            + (f" ({', '.join(outside)})." if outside else "."),
        ]
        told["The law was fitted on"] = law["fit_range"]
        told["The law does not see"] = law["not_seen"]
        told["Points of the front at the end of a range; a wider range may hold better ones"] = [
            f"{row['points']:,}: {row['bound'].replace('_', ' ')}"
            for row in law["at_bounds"]
            if row["points"]
        ]
        told["Sources of the law"] = law["sources"]
    return [Notes(title, texts) for title, texts in told.items() if texts]


# What was asked, and the inputs.


def _asked(folder: StudyFolder) -> Facts:
    study = folder.study
    wanted = []
    for objective in folder.objectives:
        known = label(objective["metric"])
        side = "lowest" if objective["direction"] == "minimize" else "highest"
        wanted.append(f"{side} {known.text}{f' ({known.meaning})' if known.meaning else ''}")
    compute, tokens = study.get("training_compute"), study.get("training_tokens")
    training = f"{show('training_tokens', tokens)} tokens for every shape" if tokens else ""
    if compute:
        training = f"{compute:.3g} FLOP for every shape: tokens = FLOP / (6 × active parameters)"
    rows = (
        ("The study", study.get("description") or ""),
        ("Training", training),
        ("Trained on", comparisons.training_words(study)),
        ("Forecast", comparisons.life_words(study)),
        ("Wanted", "; ".join(wanted)),
        ("Left out", "; ".join(study.get("left_out") or ())),
    )
    return Facts("The study", [row for row in rows if row[1]], on_console=False)


def _inputs(study: Json) -> list[Block]:
    basis, rows = study["price"]["basis"], study["price"]["rows"]
    keys = ("chip", "usd_per_chip_hour", "date", "price_rule=rule", "note", "source")
    of_figure = ("figure_name=figure", "kind", "date", "source")
    return [
        of_rows("prices", f"Prices on the basis {basis}", rows, keys),
        *_owned(study),
        of_rows("sources", "Figures", study["sources"], of_figure),
        Facts("The run", run_facts(study), on_console=False),
    ]


def _owned(study: Json) -> list[Table]:
    """What an hour of each chip is made of, and the inputs; none where chips are rented."""
    found = study["price"].get("breakdowns") or []
    if not found:
        return []
    inputs = {
        (name, row["text"]): {**row, "input": name}
        for one in found
        for row in one["inputs"]
        for name in (f"{one['chip']} {row['name']}" if row["of"] == "chip" else row["name"],)
    }
    keys = ("input", "given=text", "kind", "date", "note", "source")
    return [
        price_parts(found, "What an hour of a chip costs, by parts"),
        of_rows("price-inputs", "What it rests on", list(inputs.values()), keys),
    ]


def run_facts(study: Json) -> list[tuple[str, str]]:
    """What ran: space, engine, seed, versions, digest."""
    facts = [
        ("space", f"{study['space']}, {study['size']:,} designs"),
        ("engine", " – ".join(str(study[k]) for k in ("engine", "why_engine") if study.get(k))),
        ("evaluations", f"{study['evaluations']:,}"),
        ("trials recorded", f"{study['trials']:,}"),
        ("seed", str(study["seed"])),
        ("data digest", study["data_digest"]),
    ]
    if study.get("hypervolume") is not None:
        reference = ", ".join(f"{value:g}" for value in study.get("reference_point") or ())
        facts.append(("hypervolume", f"{study['hypervolume']:.6g}, reference point ({reference})"))
    facts.append(("versions", ", ".join(f"{k} {v}" for k, v in study["versions"].items())))
    return facts
