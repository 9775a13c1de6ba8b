"""What a study says of training and of a model's whole life, and how demand moves it."""

from __future__ import annotations

from dse.answer.answer import Column, Figure, Section, Table
from dse.answer.numbers import show, significant
from dse.answer.plots import PALETTE
from dse.questions.study.chosen import Json

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
    words = f"{_tokens(life['served_tokens'])} tokens served after training"
    if terms["tokens"] is None:
        grows = f", {terms['growth']:+.0%} a year" if terms["growth"] else ""
        words += f" ({_tokens(terms['tokens_per_year'])} in the first of {terms['years']:g} years"
        words += f"{grows})"
    share = terms["input_share"]
    return words + (
        ", prompt and output as in the workload" if share is None else f", {share:.0%} prompts"
    )


def lifetime_section(study: Json) -> list[Section]:
    """Training and serving together, by demand; nothing without a forecast."""
    found = (study.get("lifetime") or {}).get("demand")
    if not found:
        return []
    levels = [
        table
        for k, level in enumerate(found["levels"])
        for table in (_designs(k, level), _demands(k, level))
    ]
    return [
        Section(
            "Over the model's whole life",
            (_figure(found), *levels),
            about=(*_sentences(found), LIFE),
            name="lifetime",
            on_console=False,
        )
    ]


def _sentences(found: Json) -> list[str]:
    """What moves as demand grows, and what of the study that rests on."""
    middle = found["levels"][len(found["levels"]) // 2]
    few, many = middle["demands"][0], middle["demands"][-1]
    first, last = (_design(middle["designs"][row["design"]]) for row in (few, many))
    loss = show("predicted_loss", middle["loss"])
    if few["design"] == many["design"]:
        said = (
            f"At a loss of {loss} one design is the cheapest from {_tokens(few['tokens'])} to "
            f"{_tokens(many['tokens'])} served tokens: {first}."
        )
    else:
        said = (
            f"At a loss of {loss} the cheapest design for {_tokens(few['tokens'])} served tokens "
            f"is {first}; for {_tokens(many['tokens'])} it is {last}."
        )
    base = next(row for row in middle["demands"] if row["factor"] == 1.0)
    scope = "every point of the space" if found["from_whole_space"] else "the front alone"
    return [
        said,
        f"At the forecast itself serving takes {significant(_over(base, 'flops'))} times the FLOP "
        f"of training and {significant(_over(base, 'chip_hours'))} times its chip-hours.",
        f"From {scope}; limits hold as they stand, those on the life at the forecast only.",
    ]


def _over(row: Json, what: str) -> float:
    """Serving over training."""
    return row[f"serving_{what}"] / row[f"training_{what}"]


def _design(row: Json) -> str:
    """`8.03B parameters (sparse, 2.1B active) on 15.0T tokens, 1,870 a parameter`."""
    total, active = row["total_parameters"], row["active_parameters"]
    sparse = active < 0.7 * total
    size = f"{show('total_parameters', total)} parameters"
    size += f" ({show('active_parameters', active)} active)" if sparse else ""
    each = significant(row["tokens_per_active_parameter"])
    each += f" a{'n active' * sparse} parameter"
    return f"{size} on {_tokens(row['training_tokens'])} tokens, {each}"


def _tokens(count: float) -> str:
    return show("training_tokens", count)


def _caption(level: Json) -> str:
    return f"Loss of {show('predicted_loss', level['loss'])} or less"


def _designs(k: int, level: Json) -> Table:
    """The designs of one level of loss as demand grows."""
    return Table.of(
        f"designs-{k}",
        f"{_caption(level)}: the cheapest design from so many served tokens on",
        level["designs"],
        (
            Column(
                "from",
                "from tokens served",
                "tokens",
                of=lambda row: row["from_tokens"] if row["from_tokens"] >= 1e6 else "the start",
            ),
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
    )


def _demands(k: int, level: Json) -> Table:
    """What each demand costs at one level of loss."""

    def design(row: Json) -> str:
        chosen = level["designs"][row["design"]]
        size = show("total_parameters", chosen["total_parameters"])
        return f"{size}, {_tokens(chosen['training_tokens'])}"

    def least(row: Json) -> str | None:
        """The dense model of least FLOP; none under a law that does not give it in closed form."""
        size = row["least_flop_parameters"]
        if size is None:
            return None
        return f"{show('total_parameters', size)}, {_tokens(row['least_flop_training_tokens'])}"

    def dense_over(row: Json) -> float | None:
        dense = row["dense_lifetime_usd"]
        return None if dense is None else dense / row["lifetime_usd"]

    columns = [
        Column("factor", "forecast", right=True, of=lambda row: f"{row['factor']:g} ×"),
        Column("tokens", "tokens served", "tokens"),
        Column("design", "design", right=True, of=design),
        Column("lifetime_usd", "lifetime", "training_usd"),
        Column(
            "serving",
            "of it serving",
            "share",
            of=lambda row: row["serving_usd"] / row["lifetime_usd"],
        ),
        Column("flops", "FLOP, serving : training", "rate", of=lambda row: _over(row, "flops")),
        Column(
            "hours",
            "chip-hours, serving : training",
            "rate",
            of=lambda row: _over(row, "chip_hours"),
        ),
        Column("least", "dense model of least FLOP", right=True, of=least),
    ]
    if any(row["dense_lifetime_usd"] is not None for row in level["demands"]):
        columns += [
            Column("dense_lifetime_usd", "cheapest dense design", "training_usd"),
            Column("dense_over", "over the cheapest", "ratio", of=dense_over),
        ]
    caption = f"{_caption(level)}: what it costs at each demand"
    return Table.of(f"demands-{k}", caption, level["demands"], columns)


def _figure(found: Json) -> Figure:
    """Fronts of loss against lifetime dollars, one line a demand."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": front["usd"],
            "y": front["loss"],
            "name": f"{front['factor']:g} × ({_tokens(front['tokens'])})",
            "line": {"color": PALETTE[k % len(PALETTE)], "dash": DASHES[k % len(DASHES)]},
            "marker": {"size": 5},
            "hoverinfo": "text",
            "hovertext": [
                f"{_tokens(front['tokens'])} tokens served<br>{show('training_usd', usd)}, loss "
                f"{show('predicted_loss', loss)}"
                for usd, loss in zip(front["usd"], front["loss"], strict=True)
            ],
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
