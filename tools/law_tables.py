"""The laws of loss, and what they say of the models of a file: `python -m tools.law_tables FILE`.

FILE is a CSV with the columns of tests/data/worked_examples.csv; docs/quality.md holds a part
of the output. With --write the tables of eight models and their published scores are put there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from dse.errors import InputError
from dse.quality import quantisation
from dse.quality.law import (
    DEPTH_COEFFICIENTS,
    SIZES,
    Coefficient,
    Quality,
    Shape,
    compute_optimal_tokens,
)
from dse.quality.laws import DEFAULT, LAWS, quality
from tools.written import markdown
from tools.written import write as write_page

ALL = ("model", *SIZES)
SCORES = Path(__file__).with_name("published_scores.csv")
COMMAND = "python -m tools.law_tables tests/data/worked_examples.csv --write"
BENCHMARKS = ("MMLU", "MMLU-Pro", "Pile")  # the last in bits a byte: less is better
COMPUTE = (1e21, 5.76e23, 3.8e25)  # FLOP: a small run, Chinchilla, Llama 3.1 405B


def read_examples(path: str) -> pd.DataFrame:
    """The examples of a CSV; InputError when a column is missing or a number is not one."""
    table = pd.read_csv(path)
    missing = [name for name in ALL if name not in table.columns]
    if missing:
        raise InputError(f"no column {', '.join(missing)}", file=path, accepted=", ".join(ALL))
    for name in SIZES:
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.isna().any():
            row = int(numbers.isna().to_numpy().argmax())
            text = str(table[name].iloc[row])
            raise InputError(f"not a number: {text}", file=path, line=row + 2, field=name)
        table[name] = numbers.astype(float)
    return table


def evaluate(table: pd.DataFrame, law: str = DEFAULT) -> Quality:
    """A law on every row, (n,) each."""
    return quality(Shape(**columns(table)), law)


def columns(table: pd.DataFrame) -> dict[str, Any]:
    """The columns, (n,) each, that make a `Shape`."""
    return {name: table[name].to_numpy(dtype=float) for name in SIZES}


def coefficients_table(coefficients: Iterable[Coefficient]) -> str:
    rows = [(c.name, c.value, c.source, c.date, c.kind) for c in coefficients]
    return markdown(("coefficient", "value", "source", "date", "kind"), rows)


def _published(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(the models of `published_scores.csv` with their loss under each law, best first; the scores
    of their base models, NaN where none was published)."""
    scores = pd.read_csv(SCORES)
    base = scores[scores["of"] == "base"].pivot(index="model", columns="benchmark", values="value")
    shapes = table.assign(name=table["model"].str.partition("@")[0]).drop_duplicates("name")
    known = shapes[shapes["name"].isin(set(scores["model"]))].reset_index(drop=True)
    losses = {name: evaluate(known, name).predicted_loss for name in LAWS}
    found = pd.DataFrame(losses, index=known["name"])
    found["tokens"] = known["training_tokens"].to_numpy()
    found = found.sort_values(DEFAULT)
    return found, base.reindex(index=found.index, columns=list(BENCHMARKS))


def published_table(table: pd.DataFrame) -> str:
    """Eight published models: loss and place by each law, and the scores of their base models."""
    found, base = _published(table)
    places = found[list(LAWS)].rank().astype(int)
    scores = base.map(lambda value: "–" if np.isnan(value) else f"{value:g}")
    rows = [
        (
            str(model),
            f"{found['tokens'][model] / 1e12:g}",
            *(f"{found[name][model]:.3f} ({places[name][model]})" for name in LAWS),
            *scores.loc[model],
        )
        for model in found.index
    ]
    head = ("model", "tokens, T", *(f"`{name}`" for name in LAWS), *BENCHMARKS[:2])
    return markdown((*head, "Pile, bits a byte"), rows)


def agreement_table(table: pd.DataFrame) -> str:
    """Kendall's and Spearman's correlation of each law's order with each benchmark's, over the base
    models that have the score; of two models the first says all."""
    found, base = _published(table)
    rows = []
    for name in LAWS:
        cells = [f"`{name}`"]
        for benchmark in BENCHMARKS[:2]:
            score = base[benchmark].dropna()
            loss = -found[name][score.index]
            taus = kendalltau(loss, score)[0], spearmanr(loss, score)[0]
            cells.append(", ".join(f"{value:.2f}" for value in taus))
        pile = base["Pile"].dropna()
        cells.append(f"{kendalltau(found[name][pile.index], pile)[0]:+.0f}")
        rows.append(cells)
    counts = base.notna().sum()
    head = [f"{b}, {counts[b]} models" for b in BENCHMARKS[:2]] + [f"Pile, {counts['Pile']} models"]
    return markdown(("Kendall, Spearman", *head), rows)


def disagreements(table: pd.DataFrame) -> str:
    """The pairs that the default law and MMLU of base models order otherwise, in a sentence."""
    found, base = _published(table)
    score = base["MMLU"].dropna()
    pairs = [
        f"{worse} {score[worse]:g} above {better} {score[better]:g} "
        f"({found[DEFAULT][worse]:.3f} against {found[DEFAULT][better]:.3f} nats)"
        for better, worse in combinations(score.index, 2)
        if score[worse] > score[better]
    ]
    count = len(score) * (len(score) - 1) // 2
    return f"MMLU and `{DEFAULT}` disagree on {len(pairs)} of {count} pairs: {'; '.join(pairs)}."


def optimum_table() -> str:
    """Compute-optimal training tokens of a dense model of each law."""
    rows = []
    for flops in COMPUTE:
        tokens = {n: compute_optimal_tokens(law, np.array([flops])) for n, law in LAWS.items()}
        each = (f"{t[0] / 1e12:.3g} ({6 * t[0] ** 2 / flops:.2g})" for t in tokens.values())
        rows.append((f"{flops:.3g}".replace("e+", "e"), *each))
    return markdown(("training compute, FLOP", *(f"{name}, T" for name in LAWS)), rows)


def main(file: str, *options: str) -> None:
    """Print the laws and the worked examples of FILE."""
    try:
        table = read_examples(file)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    published = [of(table) for of in (published_table, agreement_table, disagreements)]
    if "--write" in options:
        write_page("quality.md", COMMAND, "\n\n".join(published))
        return
    for law in LAWS.values():
        print(f"### `{law.name}`\n\n{law.title}.\n\n{coefficients_table(law.coefficients)}\n")
    parts = coefficients_table((*DEPTH_COEFFICIENTS, *quantisation.COEFFICIENTS))
    print(f"### Parts of every law\n\n{parts}\n")
    print("\n\n".join((optimum_table(), *published)))


if __name__ == "__main__":
    main(*sys.argv[1:])
