"""What a study says of training and of a model's whole life, and how demand moves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.numbers import show, significant
from dse.answer.palette import PALETTE
from dse.render.folder import Json

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


LEVEL_HEAD = (
    "from tokens served", "parameters", "active", "trained on", "tokens per active parameter",
    "training", "per million served tokens",
)  # fmt: skip
DEMAND_HEAD = (
    "forecast", "tokens served", "design", "lifetime", "of it serving", "FLOP, serving : training",
    "chip-hours, serving : training", "dense model of least FLOP",
)  # fmt: skip
DENSE_HEAD = "cheapest dense design"  # where the space has sparse ones too


def demand_head(study: Json) -> tuple[str, ...]:
    return (*DEMAND_HEAD, DENSE_HEAD) if _has_dense(study) else DEMAND_HEAD


def _has_dense(study: Json) -> bool:
    found = demand(study)
    rows = [row for level in (found or {}).get("levels", ()) for row in level["demands"]]
    return any(row["dense_lifetime_usd"] is not None for row in rows)


def levels(study: Json) -> list[dict[str, Any]]:
    """For each level of loss: its title, the designs as demand grows, and the demands."""
    found = demand(study)
    return [] if not found else [_level(level, _has_dense(study)) for level in found["levels"]]


def _least_flop(row: Json) -> str:
    """The dense model of least FLOP; a dash under a law that gives none in closed form."""
    size = row["least_flop_parameters"]
    if size is None:
        return "–"
    return f"{show('total_parameters', size)}, {tokens(row['least_flop_training_tokens'])}"


def _level(level: Json, dense: bool) -> dict[str, Any]:
    designs = [
        (
            tokens(row["from_tokens"]) if row["from_tokens"] >= 1e6 else "the start",
            show("total_parameters", row["total_parameters"]),
            show("active_parameters", row["active_parameters"]),
            tokens(row["training_tokens"]),
            significant(row["tokens_per_active_parameter"]),
            dollars(row["training_usd"]),
            show("usd_per_million_total_tokens", row["usd_per_million_served_tokens"]),
        )
        for row in level["designs"]
    ]
    demands = [
        (
            f"{row['factor']:g} ×",
            tokens(row["tokens"]),
            show("total_parameters", level["designs"][row["design"]]["total_parameters"])
            + ", "
            + tokens(level["designs"][row["design"]]["training_tokens"]),
            dollars(row["lifetime_usd"]),
            f"{row['serving_usd'] / row['lifetime_usd']:.0%}",
            significant(row["serving_flops"] / row["training_flops"]),
            significant(row["serving_chip_hours"] / row["training_chip_hours"]),
            _least_flop(row),
            *([_dense(row["dense_lifetime_usd"], row["lifetime_usd"])] if dense else []),
        )
        for row in level["demands"]
    ]
    return {
        "title": f"Loss of {show('predicted_loss', level['loss'])} or less",
        "designs": designs,
        "demands": demands,
    }


def _dense(usd: float | None, least: float) -> str:
    """`$2.1M, 3.2 ×`: dollars of the cheapest dense design, and over those of the cheapest."""
    return "–" if usd is None else f"{dollars(usd)}, {significant(usd / least)} ×"


def demand_figure(study: Json) -> dict[str, dict[str, Any]]:
    """Fronts of loss against lifetime dollars, one line a demand; empty without a forecast."""
    found = demand(study)
    if not found:
        return {}
    traces = [
        {
            "type": "scatter", "mode": "lines+markers",
            "x": front["usd"], "y": front["loss"],
            "name": f"{front['factor']:g} × ({tokens(front['tokens'])})",
            "line": {"color": PALETTE[k % len(PALETTE)], "dash": DASHES[k % len(DASHES)]},
            "marker": {"size": 5},
            "hoverinfo": "text",
            "hovertext": _hover(front),
        }
        for k, front in enumerate(found["fronts"])
    ]  # fmt: skip
    return {
        "demand-plot": {
            "data": traces,
            "layout": {
                "height": 420,
                "xaxis": {"title": {"text": "lifetime cost (USD)"}, "type": "log"},
                "yaxis": {"title": {"text": "predicted loss (nats per token)"}},
            },
        }
    }


def _hover(front: Json) -> Sequence[str]:
    return [
        f"{tokens(front['tokens'])} tokens served<br>{dollars(usd)}, loss "
        f"{show('predicted_loss', loss)}"
        for usd, loss in zip(front["usd"], front["loss"], strict=True)
    ]
