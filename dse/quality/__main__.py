"""`python -m dse.quality FILE`: the worked examples of a file as Markdown tables.

FILE is a CSV with the columns of tests/data/worked_examples.csv; docs/quality.md holds the output.
"""

from __future__ import annotations

import sys

import click
import numpy as np
import pandas as pd

from dse.errors import InputError
from dse.quality.law import Quality
from dse.quality.laws import quality
from dse.quality.laws.leverage import FIT

SHAPE = (
    "hidden_size", "layers", "active_non_embedding", "experts", "experts_per_token",
    "shared_width_ratio", "expert_intermediate_size", "training_tokens", "total_parameters",
)  # fmt: skip
ALL = ("model", *SHAPE, "known_dense_equivalent_billions", "known_kind", "known_source")


def read_examples(path: str) -> pd.DataFrame:
    """The examples of a CSV; InputError when a column is missing or a number is not one."""
    table = pd.read_csv(path)
    missing = [name for name in ALL if name not in table.columns]
    if missing:
        raise InputError(f"no column {', '.join(missing)}", file=path, accepted=", ".join(ALL))
    for name in SHAPE:
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.isna().any():
            row = int(numbers.isna().to_numpy().argmax())
            text = str(table[name].iloc[row])
            raise InputError(f"not a number: {text}", file=path, line=row + 2, field=name)
        table[name] = numbers.astype(float)
    return table


def evaluate(table: pd.DataFrame) -> Quality:
    """The law on every row, (n,) each."""
    columns = {name: table[name].to_numpy() for name in SHAPE}
    return quality(
        columns.pop("hidden_size"),
        columns.pop("layers"),
        columns.pop("active_non_embedding"),
        **columns,
    )


def examples_table(table: pd.DataFrame, result: Quality) -> str:
    """Leverage, dense equivalent and loss of each row, and in what it lies outside the fit."""
    heads = "model|active, B|tokens, T|leverage|dense-equivalent, B|loss|outside the fit in"
    lines = [f"| {heads.replace('|', ' | ')} |", "|---|---|---|---|---|---|---|"]
    outside = {name: flags.tolist() for name, flags in result.extrapolates.items()}
    for i, model in enumerate(table["model"]):
        reasons = ", ".join(name.replace("_", " ") for name in FIT if outside[name][i])
        lines.append(
            f"| {model} | {table['active_non_embedding'][i] / 1e9:.3g} "
            f"| {table['training_tokens'][i] / 1e12:g} "
            f"| {result.efficiency_leverage[i]:.2f} "
            f"| {result.dense_equivalent_parameters[i] / 1e9:.1f} "
            f"| {result.predicted_loss[i]:.3f} | {reasons} |"
        )
    return "\n".join(lines)


def known_table(table: pd.DataFrame, result: Quality) -> str:
    """Sparse models whose dense equal somebody has named, and the rms of the log errors."""
    known = table["known_dense_equivalent_billions"].to_numpy(dtype=float)
    rows = np.flatnonzero(~np.isnan(known))
    error = np.log(result.dense_equivalent_parameters[rows] / 1e9 / known[rows])
    lines = [
        "| model | predicted, B | known, B | log error | kind | source |",
        "|---|---|---|---|---|---|",
    ]
    for i, log_error in zip(rows, error, strict=True):
        lines.append(
            f"| {table['model'][i]} | {result.dense_equivalent_parameters[i] / 1e9:.1f} "
            f"| {known[i]:g} | {log_error:+.2f} | {table['known_kind'][i]} "
            f"| {table['known_source'][i]} |"
        )
    lines.append("")
    lines.append(f"Root mean square of the log errors: {np.sqrt(np.mean(error**2)):.2f}.")
    return "\n".join(lines)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def main(file: str) -> None:
    """Print the worked examples of FILE."""
    try:
        table = read_examples(file)
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    result = evaluate(table)
    click.echo(f"{examples_table(table, result)}\n\n{known_table(table, result)}")


if __name__ == "__main__":
    main()
