"""What a study compares beside its front: systems at each speed, the values of an axis at equal
predicted loss (`views`), quality laws, runs of one's own, and demands over a model's life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dse.answer.answer import Block, Section
from dse.answer.frames import across, lines, of_rows
from dse.answer.numbers import label, show, significant
from dse.answer.sentences import listed
from dse.problem.mix import loads_of
from dse.problem.models import own_law_words
from dse.problem.words import axis_words
from dse.questions.study.points import QUALITY, Json, StudyFolder

OF_OUTPUT = ("output_tokens_per_s", "output_tokens_per_s_per_chip")
SOFT = ("assumed", "estimated")
USER = "output_tokens_per_s_per_user"
NEAR = 1.1  # of the least price
SYSTEMS = (
    "Of every design of a system that meets the limits, the least {0} at which each user gets at "
    "least the tokens a second of the row. Every system is priced per token at its own chip-hour. "
    "Differences may be smaller than the errors: dse whatif {1} --uncertain draws these."
)
VIEWS = (
    "Of every design of the space that meets the limits, the least {0} whose predicted loss is at "
    "most that of the row, whether it is on the front or not."
)
DESIGN = ("predicted_loss", "tpot_s", "active_parameters", "total_parameters", "training_tokens")
REGRET = (
    "Regret of the points of the answer under each law: the mean of a design's objectives, each "
    "scaled from 0 at the best to 1 at the worst of that law's front, less the least of any design"
)
OWN_FRONTS = (
    "Each law's own front, and the design that it would choose; point: its number here. Losses of "
    "different laws do not compare."
)


# Systems.


def software_words(study: Mapping[str, Any]) -> str:
    """`backend vllm`, or that each chip has its own."""
    backend = loads_of(study)[0]["backend"]
    axis = (study.get("definition") or {}).get("axis backend")
    if axis is None:
        return f"backend {backend}"
    values = axis if isinstance(axis, list) else axis["values"]
    by_chip = isinstance(axis, Mapping) and any(key.startswith("on ") for key in axis)
    return f"backend by {'chip' if by_chip else 'design'} ({', '.join(values)})"


def system_answers(study: Json) -> list[str]:
    """Which system is cheapest at which speed, or else at which predicted loss, then what of a
    winner nobody measured or paid, and what was left out; empty without systems."""
    found = study.get("systems")
    if not found:
        return []
    view = next((one for one in study.get("views") or () if one["by"] == "chip"), None)
    said, won = list[str](), {row["system"] for row in found["rows"]}
    if found["designs"]:
        cheapest, won = _cheapest_by(found["designs"], USER, "system", found["cost"])
        said = [f"Cheapest per token, by tokens a second that each user gets: {cheapest}."]
        if never := [row["system"] for row in found["rows"] if row["system"] not in won]:
            said[0] += f" Never the cheapest, or hardly: {listed(never)}."
    elif view and view["designs"]:
        level = "predicted_loss_at_most"
        cheapest, _ = _cheapest_by(view["designs"], level, "case", view["cost"])
        said = [f"Cheapest per token, by predicted loss: {cheapest}."]
    soft = []
    for row in found["rows"]:
        lacks = [f"an {row['price_kind']} price"] * (row["price_kind"] in SOFT)
        lacks += [f"{row['efficiency']} kernel times"] * (row["efficiency"] in SOFT)
        if lacks and row["system"] in won:
            soft.append(f"{row['system']}: {' and '.join(lacks)}")
    if soft:
        said.append(f"These rest on what nobody published or measured: {'; '.join(soft)}.")
    if found["left_out"]:
        parts = [f"{row['name']}, {row['why']}" for row in found["left_out"]]
        said.append(f"Left out: {'; '.join(parts)}.")
    return said


def _cheapest_by(rows: Sequence[Json], level: str, by: str, cost: str) -> tuple[str, set[str]]:
    """`8 B200 at 5 to 75 ($0.1 to $0.4, 8 MI355X within 10% of it) and ...`: who is the cheapest at
    which levels; and all that are the cheapest or near it somewhere."""
    close: dict[float, list[str]] = {}
    for row in rows:
        if row["over_cheapest"] <= NEAR:
            close.setdefault(row[level], []).append(row[by])
    first = [row for row in rows if row["over_cheapest"] == 1.0]
    parts, won = [], set[str]()
    for name, run in groupby(first, key=lambda row: row[by]):
        ends = list(run)
        near = Counter(other for row in ends for other in close[row[level]] if other != name)
        mostly = [other for other, n in near.items() if 2 * n > len(ends)]
        won |= {name, *mostly}
        pair = ends[0], ends[-1]
        levels = dict.fromkeys(f"{end[level]:,.6g}" for end in pair)
        prices = dict.fromkeys(show(cost, end[cost]) for end in pair)
        others = f", {listed(mostly)} within 10% of it" if mostly else ""
        parts.append(f"{name} at {' to '.join(levels)} ({' to '.join(prices)}{others})")
    return listed(parts), won


def unpriced(study: Mapping[str, Any]) -> list[str]:
    """That chips of different prices are compared by their output alone, where they are."""
    wanted = [row["metric"] for row in study["objectives"]]
    rates = {row["chip"]: row["usd_per_chip_hour"] for row in study["price"]["rows"]}
    by_output = [name for name in wanted if name in OF_OUTPUT]
    if not by_output or any("usd" in name for name in wanted) or len(set(rates.values())) < 2:
        return []
    low, high = (of(rates, key=lambda chip: rates[chip]) for of in (min, max))
    return [
        f"No price is an objective: {label(by_output[0]).text} counts a chip of {high} as one of "
        f"{low}, whose hour costs {significant(rates[high] / rates[low], 2)} times less."
    ]


def system_sections(study: Json) -> list[Section]:
    """What the systems are, their cheapest designs at a few speeds, and a line for each."""
    found = study.get("systems")
    if not found:
        return []
    keys = "system chip software weight_dtype kv_dtype usd_per_chip_hour price_rule efficiency"
    what = of_rows("systems", "What is compared", found["rows"], keys)
    if not found["designs"]:
        return [Section("The systems", [what], [], "systems")]
    cost, designs = found["cost"], found["designs"]
    keys = f"{USER} system {cost} over_cheapest tpot_s ttft_s output_tokens_per_s_per_chip "
    keys += "usd_per_hour efficiency deployed"
    table = of_rows("system-designs", "The designs", designs, keys, on_console=False)
    caption = f"Least {label(cost).text} at each speed"
    prices = across(
        "system-speeds", caption, designs, USER, "system", lambda row: show(cost, row[cost])
    )
    curves = of_rows("curves", "", found["curves"], ("system", USER, cost))
    shows = "The least price of each system at each speed: down and to the right is better."
    figure = lines("systems-plot", "", curves, USER, cost, "system", shows)
    about = [SYSTEMS.format(label(cost).text, study["space"])]
    return [Section("Which system", [figure, prices, what, table], about, "systems")]


# Views.


def _cheapest(view: Json, name: str) -> str:
    """`the cheapest dense design`, `the cheapest design on h200_sxm`."""
    if view["by"] == "sparse":
        return f"the cheapest {name} design"
    where = "on" if view["by"] == "chip" else f"with {axis_words(view['by'])}"
    return f"the cheapest design {where} {name}"


def _told(view: Json) -> list[Json]:
    """The designs at the level that most values reach: the lowest, of a map the one in the middle;
    empty where no two values reach one. Cheapest first."""
    levels: dict[float, list[Json]] = {}
    for row in view["designs"]:
        levels.setdefault(row["predicted_loss_at_most"], []).append(row)
    most = max(map(len, levels.values()), default=0)
    if most < 2:
        return []
    full = [rows for rows in levels.values() if len(rows) == most]
    rows = full[(len(full) - 1) // 2 if view["map"] else 0]
    return sorted(rows, key=lambda row: (row[view["cost"]], row["case"]))


def view_answer(view: Json) -> str:
    """What a view says, in a sentence or two."""
    rows, cost = _told(view), view["cost"]
    if not rows:
        return f"No level of predicted loss has designs of two values of {axis_words(view['by'])}."
    level = f"At a predicted loss of {rows[0]['predicted_loss_at_most']:g}"
    if view["map"]:
        places: dict[str, list[str]] = {}
        for row in rows:
            place = " × ".join(row[axis] for axis in view["map"])
            places.setdefault(place, []).append(f"{row['case']} ({show(cost, row[cost])})")
        said = "; ".join(f"{place} for {', '.join(names)}" for place, names in places.items())
        over = " × ".join(axis_words(name) for name in view["map"])
        return f"{level} the cheapest {over} is {said}."
    first, last = rows[0], rows[-1]
    said = (
        f"{level} {_cheapest(view, first['case'])} costs {show(cost, first[cost])} per million "
        f"tokens and {_cheapest(view, last['case'])} {show(cost, last[cost])}, "
        f"{significant(last[cost] / first[cost])} times as much."
    )
    return said + _law_sentence(view)


def _law_sentence(view: Json) -> str:
    """How far the ratio of two values moves with the law; empty where it was not asked."""
    if len(view["values"]) != 2 or not view["laws"]:
        return ""
    costs, (a, b) = [row[view["cost"]] for row in view["laws"]], view["values"]
    ratios = [first / second for first, second in zip(costs[::2], costs[1::2], strict=True)]
    low, high = min(ratios), max(ratios)
    verdict = "which is cheaper depends on the law"
    if low > 1.0 or high < 1.0:
        verdict = f"{b if low > 1.0 else a} is cheaper under every law"
    return (
        f" Over all laws {_cheapest(view, a)} costs {significant(low)} to {significant(high)} "
        f"times as much as {_cheapest(view, b)}: {verdict}."
    )


def view_section(k: int, view: Json) -> Section:
    """The cheapest designs of the `k`th view, its map at the level of the answer, a line for each
    value, and the same under each quality law where that was asked."""
    cost, by, told = view["cost"], axis_words(view["by"]), _told(view)
    keys = ("predicted_loss_at_most", "case", cost, "over_cheapest", *DESIGN)
    keys += ("memory_bytes", "shape", "deployed")
    blocks: list[Block] = [of_rows(f"levels-{k}", "", view["designs"], keys, on_console=False)]
    for j, name in enumerate(view["values"] if view["map"] and told else ()):
        level = told[0]["predicted_loss_at_most"]
        here = (name, level)
        rows = [r for r in view["cells"] if (r["case"], r["predicted_loss_at_most"]) == here]
        caption = f"{name}: least {label(cost).text} at a predicted loss of {level:g}"
        down, along = view["map"]
        priced = across(f"map-{k}-{j}", caption, rows, down, along, lambda r: show(cost, r[cost]))
        blocks.append(priced)
    if view["curves"]:
        table = of_rows("curves", "", view["curves"], ("case", cost, QUALITY))
        shows = "The least price for each predicted loss, a line for each value."
        blocks.append(lines(f"view-{k}", "", table, cost, QUALITY, "case", shows))
    if view["laws"]:
        keys, title = f"law at predicted_loss_at_most case {cost}", "Under each quality law"
        blocks.append(of_rows(f"view-laws-{k}", title, view["laws"], keys, on_console=False))
    names = view["values"]
    heading = (
        f"At equal predicted loss: {' against '.join(names) if len(names) == 2 else f'each {by}'}"
    )
    if view["map"]:
        heading = f"Which {' and '.join(map(axis_words, view['map']))} suit each {by}"
    about = [VIEWS.format(label(cost).text)]
    return Section(heading, blocks, about, f"views-{k}", on_console=False)


# Quality laws.


def laws_section(folder: StudyFolder) -> list[Section]:
    """Whether the answer depends on the quality law; nothing where the laws were not compared."""
    laws = folder.study.get("laws")
    if not laws:
        return []
    title = "Does the answer depend on the law?"
    if not laws["depends"]:
        return [Section(title, [], [f"No: {laws['why']}."], "laws")]
    rows = [
        {"chosen": f"{label(row['name']).text} ({row['point']})", "law": law, "regret": regret}
        | {"on_front": law in row["on_fronts"]}
        for row in laws["chosen"]
        for law, regret in row["regret"].items()
    ]
    metrics = tuple(dict.fromkeys((*folder.wanted, "dense_equivalent_parameters")))
    keys = ("law", "front_size", "shared", "point", "shape", "deployed", *metrics)
    regrets = across("regret", REGRET, rows, "chosen", "law", _regret, "*: on that law's front.")
    fronts = of_rows("laws", OWN_FRONTS, laws["compared"], keys, on_console=False)
    return [Section(title, [regrets, fronts], _law_sentences(laws, len(folder.items)), "laws")]


def _regret(row: Json) -> str:
    if row["regret"] is None:
        return "infeasible"
    return f"{row['regret']:.3f}{'*' * row['on_front']}"


def _law_sentences(laws: Json, size: int) -> list[str]:
    everywhere = laws["on_every_front"]
    count = sum(row["front_size"] > 0 for row in laws["compared"])
    said = [
        f"{everywhere:,} of the {size:,} designs of this front are on the front under each of "
        f"{count} law{'s' * (count > 1)}."
    ]
    if empty := [row["law"] for row in laws["compared"] if not row["front_size"]]:
        said.append(f"Under {', '.join(empty)} no design meets the limits.")
    robust = {row["name"]: row for row in laws["chosen"]}.get("robust")
    if robust is None:
        return [*said, "No design of this front meets the limits under every law."]
    return [
        *said,
        f"The robust choice is point {robust['point']}: under its worst law "
        f"({robust['worst_law']}) it gives away {robust['worst_regret']:.3f} of the front's range.",
    ]


def loss_runs_section(folder: StudyFolder) -> list[Section]:
    """Runs of one's own against the law, as published and moved; nothing without runs."""
    runs = folder.study.get("loss_runs")
    if not runs:
        return []
    keys = "name training_tokens training_flops measured_loss=loss published_loss predicted_loss"
    caption = "Runs of yours, nats per token"
    table = of_rows("loss-runs", caption, runs["runs"], keys, on_console=False)
    return [Section("Your own training runs", [table], own_law_words(folder.study), "loss-runs")]


# Training and a model's whole life.


def training_words(study: Json) -> str:
    """How every shape is trained; empty where the study does not say."""
    terms = study.get("training")
    if not terms:
        return ""
    held = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in terms["degrees"].items())
    sites = f" in {terms['sites']} sites" if terms["sites"] > 1 else ""
    return (
        f"{terms['chips']:,} × {terms['chip']}{sites} ({terms['task']} in {terms['precision']}, "
        f"sequences of {terms['sequence_length']:,}, prices {terms['price_basis']}), each shape by "
        f"the best of its plans{f' with {held}' if held else ''}"
    )


def life_words(study: Json) -> str:
    """The forecast; empty without one."""
    life = study.get("lifetime")
    if not life:
        return ""
    terms = life["terms"]
    words = f"{_tokens(life['served_tokens'])} tokens served after training"
    if terms["tokens"] is None:
        grows = f", {terms['growth']:+.0%} a year" if terms["growth"] else ""
        words += f" ({_tokens(terms['tokens_per_year'])} in the first of {terms['years']:g} years"
        words += f"{grows})"
    prompts = terms["input_share"]
    if prompts is None:
        return f"{words}, prompt and output as in the workload"
    return f"{words}, {prompts:.0%} prompts"


def _tokens(count: float) -> str:
    return show("training_tokens", count)


def lifetime_section(study: Json) -> list[Section]:
    """Training and serving together, by demand; nothing without a forecast."""
    found = (study.get("lifetime") or {}).get("demand")
    if not found:
        return []
    designs, demands = [], []
    for level in found["levels"]:
        at = {"predicted_loss_at_most": level["loss"]}
        designs += [{**at, **row} for row in level["designs"]]
        for row in level["demands"]:
            share = {"lifetime_serving_share": row["serving_usd"] / row["lifetime_usd"]}
            demands.append({**level["designs"][row["design"]], **at, **row, **share})
    of_designs = (
        *("predicted_loss_at_most", "served_tokens=from_tokens"),
        *("total_parameters", "active_parameters"),
        *("training_tokens", "tokens_per_active_parameter", "training_usd"),
        "usd_per_million_served_tokens",
    )
    of_demands = (
        *("predicted_loss_at_most", "served_tokens=tokens", "total_parameters", "training_tokens"),
        *("lifetime_usd", "lifetime_serving_share", "least_flop_parameters"),
        *("least_flop_training_tokens", "dense_lifetime_usd"),
    )
    fronts = [
        {"demand": f"{front['factor']:g} ×", "lifetime_usd": usd, "predicted_loss": loss}
        for front in found["fronts"]
        for usd, loss in zip(front["usd"], front["loss"], strict=True)
    ]
    drawn = of_rows("fronts", "", fronts, ("demand", "lifetime_usd", "predicted_loss"))
    shows = "Fronts of loss against the dollars of training and serving, a line for each demand."
    blocks = [
        lines("demand-plot", "", drawn, "lifetime_usd", "predicted_loss", "demand", shows),
        of_rows(
            "designs", "The cheapest design from so many served tokens on", designs, of_designs
        ),
        of_rows("demands", "What it costs at each demand", demands, of_demands),
    ]
    title, about = "Over the model's whole life", [_life_sentence(found)]
    return [Section(title, blocks, about, "lifetime", on_console=False)]


def _life_sentence(found: Json) -> str:
    """How the cheapest design moves as demand grows, at the middle level of loss."""
    middle = found["levels"][len(found["levels"]) // 2]
    few, many = middle["demands"][0], middle["demands"][-1]
    first, last = (_design(middle["designs"][row["design"]]) for row in (few, many))
    said = f"At a loss of {show('predicted_loss', middle['loss'])} "
    if few["design"] == many["design"]:
        return (
            f"{said}one design is the cheapest from {_tokens(few['tokens'])} to "
            f"{_tokens(many['tokens'])} served tokens: {first}."
        )
    return (
        f"{said}the cheapest design for {_tokens(few['tokens'])} served tokens is {first}; for "
        f"{_tokens(many['tokens'])} it is {last}."
    )


def _design(row: Json) -> str:
    """`8.03B parameters (sparse, 2.1B active) on 15.0T tokens`."""
    total, active = row["total_parameters"], row["active_parameters"]
    sparse = f" ({show('active_parameters', active)} active)" if active < 0.7 * total else ""
    size = f"{show('total_parameters', total)} parameters{sparse}"
    return f"{size} on {_tokens(row['training_tokens'])} tokens"
