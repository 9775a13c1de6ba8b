"""What one's own training runs say of the law, and which to do next (`loss_runs` of study.json)."""

from __future__ import annotations

from dse.answer.answer import Column, Section, Table
from dse.answer.numbers import large, significant
from dse.problem.own_law import own_law_words
from dse.questions.study.chosen import Json, StudyFolder

SETTLED = 1e-5  # nats of expected regret
NEXT = (
    "Runs that tell most about that choice, at the compute of the largest run of yours and a "
    "quarter of it. Each is a small model of one of the two shapes, as many experts as it has; its "
    "config is in study.json"
)


def loss_runs_section(folder: StudyFolder) -> list[Section]:
    """One section; nothing where the study has no runs."""
    runs = folder.study.get("loss_runs")
    if not runs:
        return []
    blocks = [_next_table(runs["next"])] if runs["next"]["runs"] else []
    said = [*own_law_words(folder.study), *next_words(runs["next"])]
    return [Section("Your own training runs", [*blocks, _runs_table(runs)], said, "loss-runs")]


def next_words(found: Json) -> list[str]:
    """Which choice is in doubt, and the run that tells most about it."""
    choice, runs = found["choice"], found["runs"]
    if choice is None:
        return [f"No run to do next: {found['why']}."]
    rival = f"point {choice['rival']} would be the better compromise than point {choice['point']}"
    said = [
        f"Most in doubt: {rival}, were its loss {choice['gap']:.4f} nats lower against it than "
        f"predicted; the error of that difference is {choice['sd']:.4f} nats (one standard "
        f"deviation). Expected regret: {_nats(choice['expected_regret'])}."
    ]
    if choice["expected_regret"] < SETTLED:
        said.append("The runs settle the choice: no further one is worth its compute for it.")
    elif runs:
        one = runs[0]
        said.append(
            f"Run next: {_shape(one)} on {large(one['training_tokens'])} tokens "
            f"({_flop(one['training_flops'])}); it saves {_nats(one['regret_saved'])} of that "
            f"regret and leaves {one['sd_after']:.4f} nats of the error."
        )
    else:
        said.append(f"No run to do next: {found['why']}.")
    return said


def _next_table(found: Json) -> Table:
    return Table.of(
        "next-runs",
        NEXT,
        found["runs"],
        (
            Column("shape", "shape", of=_shape),
            Column("training_tokens", "tokens", "training_tokens"),
            Column("training_flops", "training", right=True, of=_training),
            Column("predicted_loss", "loss expected", "predicted_loss"),
            Column("regret_saved", "saves", right=True, of=lambda one: _nats(one["regret_saved"])),
            Column("sd_after", "error left", right=True, of=lambda one: f"{one['sd_after']:.4f}"),
        ),
    )


def _runs_table(runs: Json) -> Table:
    def off(one: Json) -> str:
        return f"{one['loss'] - one['predicted_loss']:+.4f}"

    return Table.of(
        "loss-runs",
        "Runs of yours, nats per token",
        runs["runs"],
        (
            Column("name", "run"),
            Column("training_tokens", "tokens", "training_tokens"),
            Column("training_flops", "training", right=True, of=_training),
            Column("loss", "loss", "predicted_loss"),
            Column("published_loss", "law as published", "predicted_loss"),
            Column("predicted_loss", "law moved", "predicted_loss"),
            Column("off", "off by", right=True, of=off),
        ),
        on_console=False,
    )


def _training(one: Json) -> str:
    return _flop(one["training_flops"])


def _shape(one: Json) -> str:
    model = one["model"]
    said = f"hidden {model['hidden_size']:,} x {model['num_hidden_layers']} layers"
    if "num_experts" in model:
        said += (
            f", {model['num_experts']} experts of width {model['moe_intermediate_size']:,}, "
            f"{model['num_experts_per_tok']} a token"
        )
    return f"{said} ({large(one['active_parameters'])} active)"


def _flop(flops: float) -> str:
    return f"{flops:.1e} FLOP".replace("e+", "e")


def _nats(value: float) -> str:
    return f"{significant(value, 2)} nats" if value >= 1e-6 else "below 0.000001 nats"
