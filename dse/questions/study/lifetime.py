"""What a study says of training and of a model's whole life, and how demand moves it."""

from __future__ import annotations

from collections.abc import Sequence

from dse.answer.answer import Column, Figure, Section, Table
from dse.answer.numbers import show, significant
from dse.answer.palette import PALETTE
from dse.questions.study.folder import Json

LIFE = (
    "Training is paid once, serving for every token. Each line is the front of loss against the "
    "dollars of both at one demand, from a tenth to a hundred times the forecast. The more is "
    "served, the more a design pays that costs less for each token, be it smaller and trained for "
    "longer or sparser."
)
DASHES = ("dot", "dash", "solid", "longdash", "dashdot")


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
    words = f"{tokens(life['served_tokens'])} tokens served after training"
    if terms["tokens"] is None:
        grows = f", {terms['growth']:+.0%} a year" if terms["growth"] else ""
        words += f" ({tokens(terms['tokens_per_year'])} in the first of {terms['years']:g} years"
        words += f"{grows})"
    share = terms["input_share"]
    return words + (
        ", prompt and output as in the workload" if share is None else f", {share:.0%} prompts"
    )


def demand(study: Json) -> Json | None:
    """The table of demands, where there is one."""
    return (study.get("lifetime") or {}).get("demand")


def demand_sentences(study: Json) -> list[str]:
    """What moves as demand grows, and what of the study that rests on."""
    found = demand(study)
    if not found:
        return []
    middle = found["levels"][len(found["levels"]) // 2]
    few, many = middle["demands"][0], middle["demands"][-1]
    first, last = (middle["designs"][row["design"]] for row in (few, many))
    loss = show("predicted_loss", middle["loss"])
    if first is last:
        said = (
            f"At a loss of {loss} one design is the cheapest from {tokens(few['tokens'])} to "
            f"{tokens(many['tokens'])} served tokens: {design(first)}."
        )
    else:
        said = (
            f"At a loss of {loss} the cheapest design for {tokens(few['tokens'])} served tokens is "
            f"{design(first)}; for {tokens(many['tokens'])} it is {design(last)}."
        )
    base = next(row for row in middle["demands"] if row["factor"] == 1.0)
    compute = base["serving_flops"] / base["training_flops"]
    hours = base["serving_chip_hours"] / base["training_chip_hours"]
    scope = "every point of the space" if found["from_whole_space"] else "the front alone"
    return [
        said,
        f"At the forecast itself serving takes {significant(compute)} times the FLOP of training "
        f"and {significant(hours)} times its chip-hours.",
        f"From {scope}; limits hold as they stand, those on the life at the forecast only.",
    ]


def design(row: Json) -> str:
    """`8.03B parameters (sparse, 2.1B active) on 15.0T tokens, 1,870 a parameter`."""
    total, active = row["total_parameters"], row["active_parameters"]
    sparse = active < 0.7 * total
    size = f"{show('total_parameters', total)} parameters"
    size += f" ({show('active_parameters', active)} active)" if sparse else ""
    each = significant(row["tokens_per_active_parameter"])
    return (
        f"{size} on {tokens(row['training_tokens'])} tokens, {each} a{'n active' * sparse} "
        "parameter"
    )


def tokens(count: float) -> str:
    return show("training_tokens", count)


def dollars(usd: float) -> str:
    return show("training_usd", usd)


def lifetime_section(study: Json) -> list[Section]:
    """Training and serving together, by demand; nothing without a forecast."""
    found = demand(study)
    if not found:
        return []
    levels = [table for k, level in enumerate(found["levels"]) for table in _level(k, level)]
    return [
        Section(
            "Over the model's whole life",
            (demand_figure(found), *levels),
            about=(*demand_sentences(study), LIFE),
            name="lifetime",
            on_console=False,
        )
    ]


def _least_flop(row: Json) -> str:
    """The dense model of least FLOP; a dash under a law that gives none in closed form."""
    size = row["least_flop_parameters"]
    if size is None:
        return "–"
    return f"{show('total_parameters', size)}, {tokens(row['least_flop_training_tokens'])}"


def _level(k: int, level: Json) -> list[Table]:
    """Of one level of loss, the designs as demand grows, and what each demand costs."""
    title = f"Loss of {show('predicted_loss', level['loss'])} or less"
    designs = [
        {**row, "from": row["from_tokens"] if row["from_tokens"] >= 1e6 else "the start"}
        for row in level["designs"]
    ]
    demands = []
    for row in level["demands"]:
        chosen, dense = level["designs"][row["design"]], row["dense_lifetime_usd"]
        size = show("total_parameters", chosen["total_parameters"])
        demands.append(
            {
                **row,
                "factor": f"{row['factor']:g} ×",
                "design": f"{size}, {tokens(chosen['training_tokens'])}",
                "serving": row["serving_usd"] / row["lifetime_usd"],
                "flops": row["serving_flops"] / row["training_flops"],
                "hours": row["serving_chip_hours"] / row["training_chip_hours"],
                "least": _least_flop(row),
                "dense_over": None if dense is None else dense / row["lifetime_usd"],
            }
        )
    dense = (
        Column("dense_lifetime_usd", "cheapest dense design", "training_usd"),
        Column("dense_over", "over the cheapest", "ratio"),
    )
    has_dense = any(row["dense_lifetime_usd"] is not None for row in demands)
    return [
        Table(
            f"designs-{k}",
            f"{title}: the cheapest design from so many served tokens on",
            (
                Column("from", "from tokens served", "tokens"),
                Column("total_parameters", "parameters", "total_parameters"),
                Column("active_parameters", "active", "active_parameters"),
                Column("training_tokens", "trained on", "training_tokens"),
                Column("tokens_per_active_parameter", "tokens per active parameter", "rate"),
                Column("training_usd", "training", "training_usd"),
                Column(
                    "usd_per_million_served_tokens",
                    "per million served tokens",
                    "usd_per_million_total_tokens",
                ),
            ),
            designs,
        ),
        Table(
            f"demands-{k}",
            f"{title}: what it costs at each demand",
            (
                Column("factor", "forecast", right=True),
                Column("tokens", "tokens served", "tokens"),
                Column("design", "design", right=True),
                Column("lifetime_usd", "lifetime", "training_usd"),
                Column("serving", "of it serving", "share"),
                Column("flops", "FLOP, serving : training", "rate"),
                Column("hours", "chip-hours, serving : training", "rate"),
                Column("least", "dense model of least FLOP", right=True),
                *(dense if has_dense else ()),
            ),
            demands,
        ),
    ]


def demand_figure(found: Json) -> Figure:
    """Fronts of loss against lifetime dollars, one line a demand."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": front["usd"],
            "y": front["loss"],
            "name": f"{front['factor']:g} × ({tokens(front['tokens'])})",
            "line": {"color": PALETTE[k % len(PALETTE)], "dash": DASHES[k % len(DASHES)]},
            "marker": {"size": 5},
            "hoverinfo": "text",
            "hovertext": _hover(front),
        }
        for k, front in enumerate(found["fronts"])
    ]
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": "lifetime cost (USD)"}, "type": "log"},
        "yaxis": {"title": {"text": "predicted loss (nats per token)"}},
    }
    shows = "Fronts of loss against the dollars of training and serving, a line for each demand."
    return Figure("demand-plot", "", {"data": traces, "layout": layout}, shows)


def _hover(front: Json) -> Sequence[str]:
    return [
        f"{tokens(front['tokens'])} tokens served<br>{dollars(usd)}, loss "
        f"{show('predicted_loss', loss)}"
        for usd, loss in zip(front["usd"], front["loss"], strict=True)
    ]
