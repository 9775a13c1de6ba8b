"""What a study compares beside its front: systems at each speed, the values of an axis at equal
predicted loss (`views`), quality laws, runs of one's own, and demands over a model's life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dse.answer.answer import Block, Cell, Column, Notes, Section, Table
from dse.answer.frames import lines, of_rows
from dse.answer.labels import label
from dse.answer.numbers import show, significant
from dse.answer.sentences import listed
from dse.problem.mix import loads_of
from dse.problem.own_law import own_law_words
from dse.problem.words import axis_words
from dse.questions.study.points import Json, StudyFolder
from dse.schema.metrics import EVERY

OF_OUTPUT = ("output_tokens_per_s", "output_tokens_per_s_per_chip")
SOFT = ("assumed", "estimated")
SYSTEMS = (
    "Of every design of a system that meets the limits, the least {0} at which each user gets at "
    "least the tokens a second of the row. Every system is priced per token at its own chip-hour. "
    "Differences may be smaller than the errors: dse whatif {1} --uncertain draws these."
)
VIEWS = (
    "Of every design of the space that meets the limits, the least {0} whose predicted loss is at "
    "most that of the row, whether it is on the front or not."
)
MAPS = (
    "The same for each {0} (rows) and {1} (columns): the darker, the nearer to the least price of "
    "its table, which is framed; colourless at three times that. A dash: the loss is not reached."
)
LAW_LEVELS = ("best loss that all reach", "half-way to the cheapest")
DESIGN = ("predicted_loss", "tpot_s", "active_parameters", "total_parameters", "training_tokens")
REGRET = (
    "Regret of the points of the answer under each law: how much of the front's range a design "
    "gives away against what that law itself would choose"
)
OWN_FRONTS = (
    "Each law's own front, and the compromise that it would choose. Losses of different laws do "
    "not compare."
)


def _wide(
    name: str, caption: str, titles: Mapping[str, str], rows: Sequence[tuple[str, Sequence[Cell]]]
) -> Table:
    """Things side by side: a column for each (key: title, that of the row names first), and a row
    for each (name, its value of every thing)."""
    columns = [Column(key, title) for key, title in titles.items()]
    cells = [dict(zip(titles, (what, *of), strict=True)) for what, of in rows]
    return Table(name, caption, columns, cells)


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


def system_answers(study: Mapping[str, Any]) -> list[str]:
    """Which system is cheapest at which speed, or else at which predicted loss, then what of a
    winner nobody measured or paid, and what was left out; empty without systems."""
    found = study.get("systems")
    if not found:
        return []
    said = _by_speed(found) if found["speeds"] else _by_loss(study)
    won = {name for run in found.get("wins") or () for name in (run["name"], *run["near"])}
    named = won if found["speeds"] else {row["name"] for row in found["rows"]}
    soft = []
    for row in found["rows"]:
        lacks = [f"an {row['price_kind']} price"] * (row["price_kind"] in SOFT)
        lacks += [f"{row['kernels']} kernel times"] * (row["kernels"] in SOFT)
        if row["name"] in named and lacks:
            soft.append(f"{row['name']}: {' and '.join(lacks)}")
    if soft:
        said.append(f"These rest on what nobody published or measured: {'; '.join(soft)}.")
    if found["left_out"]:
        parts = [f"{row['name']}, {row['why']}" for row in found["left_out"]]
        said.append(f"Left out: {'; '.join(parts)}.")
    return said


def _by_speed(found: Json) -> list[str]:
    cost, parts = found["cost"], list[str]()
    for k, run in enumerate(found["wins"]):
        first, last = (significant(run[end], 2) for end in ("from", "to"))
        speeds = f"from {first} to {last}" if k else f"up to {last}"
        prices = dict.fromkeys(show(cost, run[f"cost_{end}"]) for end in ("from", "to"))
        near = f", {listed(run['near'])} within 10% of it" if run["near"] else ""
        parts.append(f"{run['name']} {speeds} ({' to '.join(prices)}{near})")
    said = f"Cheapest per token, by tokens a second that each user gets: {listed(parts)}."
    won = {name for run in found["wins"] for name in (run["name"], *run["near"])}
    never = [row["name"] for row in found["rows"] if row["name"] not in won]
    return [said + (f" Never the cheapest, or hardly: {listed(never)}." if never else "")]


def _by_loss(study: Mapping[str, Any]) -> list[str]:
    """Which system is cheapest at which predicted loss, where a view compares them."""
    nothing: Json = {"levels": ()}
    view = next((one for one in study.get("views") or () if "names" in one), nothing)
    won: list[tuple[str, float, str]] = []
    for row in view["levels"]:
        best = [(one["metrics"][view["cost"]], k) for k, one in enumerate(row["best"]) if one]
        if best:
            cost, k = min(best)
            won.append((view["names"][k], row["level"], show(view["cost"], cost)))
    parts = []
    for name, rows in groupby(won, key=lambda one: one[0]):
        mine = list(rows)
        ends = [mine[0]] if len(mine) == 1 else [mine[0], mine[-1]]
        losses, prices = (" to ".join(f"{end[j]}" for end in ends) for j in (1, 2))
        parts.append(f"{name} at {losses} ({prices})")
    return [f"Cheapest per token, by predicted loss: {listed(parts)}."] if parts else []


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


def system_sections(study: Mapping[str, Any]) -> list[Section]:
    """What the systems are, their cheapest designs at a few speeds, and a line for each."""
    found = study.get("systems")
    if not found:
        return []
    rows = [
        {
            **row,
            "software": ", ".join(row["backends"]),
            "weight_dtype": ", ".join(row["weight_dtypes"]),
            "kv_dtype": ", ".join(row["kv_dtypes"]),
        }
        for row in found["rows"]
    ]
    keys = "system=name chip software weight_dtype kv_dtype usd_per_chip_hour price_rule=price"
    what = of_rows("systems", "What is compared", rows, f"{keys} efficiency=kernels")
    if not found["speeds"]:
        return [Section("The systems", [what], [], "systems")]
    cost = found["cost"]
    designs = [
        {
            "system": one["name"],
            "tokens_per_s": row["tokens_per_s"],
            **best["metrics"],
            "usd_per_hour": best["usd_per_hour"],
            "efficiency": best["kernels"],
            "deployed": best["deployment"],
            "over_cheapest": best["metrics"][cost] / least,
        }
        for row in found["speeds"]
        if any(row["best"])
        for least in (min(best["metrics"][cost] for best in row["best"] if best),)
        for one, best in zip(found["rows"], row["best"], strict=True)
        if best is not None
    ]
    keys = f"output_tokens_per_s_per_user=tokens_per_s system {cost} over_cheapest tpot_s ttft_s "
    keys += "output_tokens_per_s_per_chip usd_per_hour efficiency deployed"
    table = of_rows("system-designs", "The designs", designs, keys, on_console=False)
    names = [row["name"] for row in found["rows"]]
    prices = _wide(
        "system-speeds",
        f"Least {label(cost).text} at each speed",
        {"speed": "tokens/s a user", **{name: name for name in names}},
        [
            (
                f"{row['tokens_per_s']:,}",
                [
                    show(cost, best["metrics"][cost]) if best else "not reached"
                    for best in row["best"]
                ],
            )
            for row in found["speeds"]
        ],
    )
    curves = [
        {"system": row["name"], "output_tokens_per_s_per_user": 1.0 / tpot_s, cost: usd}
        for row, curve in zip(found["rows"], found["curves"], strict=True)
        for tpot_s, usd in zip(curve["tpot_s"], curve["cost"], strict=True)
    ]
    columns = ("system", "output_tokens_per_s_per_user", cost)
    figure = lines(
        *("systems-plot", "", of_rows("curves", "", curves, columns)),
        *("output_tokens_per_s_per_user", cost, "system"),
        "The least price of each system at each speed: down and to the right is better.",
    )
    about = [SYSTEMS.format(label(cost).text, study["space"])]
    return [Section("Which system", [figure, prices, what, table], about, "systems")]


# Views.


def _value(axis: str, value: Any) -> str:
    """A value of an axis, as a person writes it."""
    if axis == "sparse":
        return "sparse" if value else "dense"
    if axis in EVERY:
        return show(axis, value)
    return f"{value:,}" if type(value) in (int, float) else str(value).lower()


def _names(view: Json) -> list[str]:
    """The values that a view compares."""
    return view.get("names") or [_value(view["by"], value) for value in view["values"]]


def _cheapest(view: Json, name: str) -> str:
    """`the cheapest dense design`, `the cheapest design on h200_sxm`."""
    if view["by"] == "sparse":
        return f"the cheapest {name} design"
    where = "on" if view["by"] == "chip" else f"with {axis_words(view['by'])}"
    return f"the cheapest design {where} {name}"


def _place(view: Json, best: Json) -> str:
    """`3,072 × 32`: the cell of the map that a design is in."""
    return " × ".join(_value(axis, at) for axis, at in zip(view["map"], best["at"], strict=True))


def _told(view: Json) -> Json | None:
    """Of the levels that most values reach the lowest, of a map the one in the middle; two must
    reach it."""
    counts = [sum(best is not None for best in row["best"]) for row in view["levels"]]
    most = max(counts, default=0)
    full = [row for row, n in zip(view["levels"], counts, strict=True) if n == most]
    return full[(len(full) - 1) // 2 if view["map"] else 0] if most > 1 else None


def view_answers(study: Mapping[str, Any]) -> list[str]:
    """What each view says, a sentence or two each; empty where there is none."""
    return [_view_answer(view) for view in study.get("views") or ()]


def _view_answer(view: Json) -> str:
    row, cost = _told(view), view["cost"]
    if row is None:
        return f"No level of predicted loss has designs of two values of {axis_words(view['by'])}."
    best = zip(_names(view), row["best"], strict=True)
    found = [(one["metrics"][cost], name, one) for name, one in best if one is not None]
    found.sort(key=lambda one: one[:2])
    level = f"At a predicted loss of {row['level']:g}"
    if view["map"]:
        places: dict[str, list[str]] = {}
        for usd, name, one in found:
            places.setdefault(_place(view, one), []).append(f"{name} ({show(cost, usd)})")
        said = "; ".join(f"{place} for {', '.join(names)}" for place, names in places.items())
        over = " × ".join(axis_words(name) for name in view["map"])
        return f"{level} the cheapest {over} is {said}."
    (low, first, _), (high, last, _) = found[0], found[-1]
    said = (
        f"{level} {_cheapest(view, first)} costs {show(cost, low)} per million tokens and "
        f"{_cheapest(view, last)} {show(cost, high)}, {significant(high / low)} times as much."
    )
    return " ".join([said, *_law_sentence(view)])


def _law_sentence(view: Json) -> list[str]:
    """How far the ratio of two values moves with the law; empty where it was not asked."""
    costs = [at["cost"] for row in view["laws"] for at in row["levels"] if len(at["cost"]) == 2]
    if not costs:
        return []
    ratios, (a, b) = [first / second for first, second in costs], _names(view)
    low, high = min(ratios), max(ratios)
    verdict = "which is cheaper depends on the law"
    if low > 1.0 or high < 1.0:
        verdict = f"{b if low > 1.0 else a} is cheaper under every law"
    return [
        f"Over all laws {_cheapest(view, a)} costs {significant(low)} to {significant(high)} times "
        f"as much as {_cheapest(view, b)}: {verdict}."
    ]


def view_sections(study: Mapping[str, Any]) -> list[Section]:
    """A section for each view: its cheapest designs, its maps, a line for each value, and the same
    under each quality law where that was asked."""
    return [_view_section(k, view) for k, view in enumerate(study.get("views") or ())]


def _view_section(k: int, view: Json) -> Section:
    names, cost, quality = _names(view), view["cost"], view["quality"]
    designs = [
        {
            **best["metrics"],
            "predicted_loss_at_most": row["level"],
            "case": name,
            "over_cheapest": best["metrics"][cost] / least,
            "memory_bytes": best["memory_bytes"],
            "shape": best["shape"],
            "deployed": best["deployment"],
        }
        for row in view["levels"]
        if any(row["best"])
        for least in (min(best["metrics"][cost] for best in row["best"] if best),)
        for name, best in zip(names, row["best"], strict=True)
        if best is not None
    ]
    keys = ("predicted_loss_at_most", "case", cost, "over_cheapest", *DESIGN)
    keys += ("memory_bytes", "shape", "deployed")
    blocks: list[Block] = [of_rows(f"levels-{k}", "", designs, keys, on_console=False)]
    blocks += maps(k, view)
    curves = [
        {"case": name, cost: usd, quality: loss}
        for name, curve in zip(names, view["curves"], strict=True)
        for usd, loss in zip(curve["cost"], curve["loss"], strict=True)
    ]
    if curves:
        table = of_rows("curves", "", curves, ("case", cost, quality))
        shows = "The least price for each predicted loss, a line for each value."
        blocks.append(lines(f"view-{k}", "", table, cost, quality, "case", shows))
    if view["laws"]:
        rows = [
            {"law": law["law"], "at": title, "level": at["level"], "case": name, cost: usd}
            for law in view["laws"]
            for title, at in zip(LAW_LEVELS, law["levels"], strict=False)
            for name, usd in zip(names, at["cost"], strict=True)
        ]
        keys = f"law at predicted_loss_at_most=level case {cost}"
        title = "Under each quality law"
        blocks.append(of_rows(f"view-laws-{k}", title, rows, keys, on_console=False))
    about = [VIEWS.format(label(cost).text)]
    return Section(_view_heading(view), blocks, about, f"views-{k}", on_console=False)


def _view_heading(view: Json) -> str:
    names = _names(view)
    if view["map"]:
        over = " and ".join(axis_words(name) for name in view["map"])
        return f"Which {over} suit each {axis_words(view['by'])}"
    kind = "system" if "names" in view else axis_words(view["by"])
    who = " against ".join(names) if len(names) == 2 else f"each {kind}"
    return f"At equal predicted loss: {who}"


def maps(k: int, view: Json) -> list[Section]:
    """For each level of loss a table for each value, unfolded for the level of the answer."""
    if not view["map"]:
        return []
    told = _told(view)
    about = [MAPS.format(*(axis_words(name) for name in view["map"]))]
    found = []
    for i, one in enumerate(view["cells"]):
        tables = [
            _map(f"map-{k}-{i}-{j}", view, name, cost)
            for j, (name, cost) in enumerate(zip(_names(view), one["cost"], strict=True))
        ]
        shown = told is not None and one["level"] == told["level"]
        title = f"At a predicted loss of {one['level']:g}"
        found.append(Section(title, tables, about, folded=not shown))
    return found


def _map(name: str, view: Json, caption: str, cost: list[list[float | None]]) -> Table:
    titles = [_value(view["map"][1], column) for column in view["columns"]]
    heads = [_value(view["map"][0], head) for head in view["rows"]]
    columns = [Column("at", "", right=True), *(Column(t, t, view["cost"]) for t in titles)]
    rows = [
        {"at": head, **dict(zip(titles, row, strict=True))}
        for head, row in zip(heads, cost, strict=True)
    ]
    return Table(name, caption, columns, rows, shaded=True)


# Quality laws.


def laws_section(folder: StudyFolder) -> list[Section]:
    """Whether the answer depends on the quality law; nothing where the laws were not compared."""
    laws = folder.study.get("laws")
    if not laws:
        return []
    title = "Does the answer depend on the law?"
    if not laws["depends"]:
        return [Section(title, [], [f"No: {laws['why']}."], "laws")]
    how = Section(
        "How this was worked out, and the laws",
        [
            Notes(f"Searched: {laws['searched']}.", laws["definitions"]),
            Notes("Laws", [f"{row['law']}: {row['title']}" for row in laws["compared"]]),
        ],
        folded=True,
        on_console=False,
    )
    names = [row["law"] for row in laws["compared"]]
    titles = {"name": "chosen as", **{name: name for name in names}, "fronts": "on the front of"}
    regrets = [
        (
            f"{label(row['name']).text} ({row['point']})",
            [*(_regret(row["regret"][name]) for name in names), ", ".join(row["on_fronts"])],
        )
        for row in laws["chosen"]
    ]
    fronts = []
    for row in laws["compared"]:
        knee = row["knee"] or {"shape": "nothing feasible", "metrics": {}}
        where = f"point {knee['point']}" if knee.get("point") else "not on this front"
        shape = f"{knee['shape']} ({where})" if row["knee"] else knee["shape"]
        fronts.append(
            {**knee["metrics"], **row, "shape": shape, "deployed": knee.get("deployment")}
        )
    metrics = tuple(dict.fromkeys((*folder.wanted, "dense_equivalent_parameters")))
    keys = ("law", "front_size", "shared", "shape", "deployed", *metrics)
    blocks = (
        _wide("regret", REGRET, titles, regrets),
        of_rows("laws", OWN_FRONTS, fronts, keys, on_console=False),
        how,
    )
    return [Section(title, blocks, _law_sentences(laws, len(folder.items)), "laws")]


def _regret(value: float | None) -> str:
    return "infeasible" if value is None else f"{value:.3f}"


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
        designs += [{**at, **row, "served_tokens": row["from_tokens"]} for row in level["designs"]]
        for row in level["demands"]:
            chosen = level["designs"][row["design"]]
            demands.append(
                {
                    **at,
                    **row,
                    "served_tokens": row["tokens"],
                    "total_parameters": chosen["total_parameters"],
                    "training_tokens": chosen["training_tokens"],
                    "lifetime_serving_share": row["serving_usd"] / row["lifetime_usd"],
                }
            )
    of_designs = (
        *("predicted_loss_at_most", "served_tokens", "total_parameters", "active_parameters"),
        *("training_tokens", "tokens_per_active_parameter", "training_usd"),
        "usd_per_million_served_tokens",
    )
    of_demands = (
        *("predicted_loss_at_most", "served_tokens", "total_parameters", "training_tokens"),
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
