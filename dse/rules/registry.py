"""The rules of legality as one table, asked by the search and by every question.

`judge(case)` gives each rule's amount, (n,), positive where it is broken and binds; `broken(...)`
the rows of one candidate, with the one message that every command prints.

A rule of a format or a backend binds where every stack that may be meant refuses the candidate:
the one that is named, or, where none is, all that serve models on the chip. An assumed rule is no
evidence that all do: it binds where its stack is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Their order is that of the constraints of a study.
from dse.rules import divide, deployment, bands  # noqa: F401  isort: skip
from dse.rules.case import Case, Searched, servers_on
from dse.rules.deployment import RACK, TRAINING_FITS
from dse.rules.kinds import REGISTRY, SERVERS, Finding, Flags, Phase, Rule, by_how_much, message
from dse.space.alike import Shared
from dse.space.candidates import Floats

RULES: Mapping[str, Rule] = {rule.name: rule for rule in REGISTRY}
MEANINGS: Mapping[str, str] = {name: rule.says for name, rule in RULES.items()}


def _of(phase: Phase) -> tuple[Rule, ...]:
    return tuple(rule for rule in REGISTRY if phase in rule.phases)


_TRAINING = _of("training")
_IN_RACK = tuple(rule for rule in _of("serving") if rule is not TRAINING_FITS)
_SERVING = tuple(rule for rule in _IN_RACK if rule not in RACK)
# What a search is held to beside them, by what it chooses.
_SEARCHED: Mapping[Searched, tuple[Rule, ...]] = {
    "nothing": (),
    "deployments": _of("load"),
    "shapes": (*_of("load"), *_of("shapes")),
}


def names(
    *, rack: bool = False, trained: bool = False, searched: Searched = "nothing"
) -> tuple[str, ...]:
    """Names of the rules that candidates of serving are held to, in order: those of a rack where
    one bounds the scale-up domain, those of a search, that of training where a study trains its
    shapes."""
    rules = (*(_IN_RACK if rack else _SERVING), *_SEARCHED[searched])
    rules = (*rules, *((TRAINING_FITS,) if trained else ()))
    return tuple(rule.name for rule in rules)


# Rules that no figure of a chip, of a workload or of a tier mends.
STRUCTURAL = tuple(
    name
    for name in names()
    if name not in ("memory_capacity", "arrivals_within_capacity")
    and RULES[name].binds != "hardware"
)


def rules_of(case: Case) -> tuple[Rule, ...]:
    if case.training is not None:
        return _TRAINING
    return (*(_IN_RACK if case.rack else _SERVING), *_SEARCHED[case.searched])


def judge(case: Case, shared: Shared | None = None) -> dict[str, Floats]:
    """(n,) by rule: used / limit - 1 of a quantity, else 1 where it is broken and 0 elsewhere. Of
    what is `shared`, rules of shapes are asked once for each model, and those that ask of no load
    once for each deployment."""
    rules = rules_of(case)
    if shared is None:
        return _judged(case, rules)
    shapes = {rule for rule in rules if "shapes" in rule.phases}
    loaded = {rule for rule in rules if rule.loaded}
    found = _judged(case, [rule for rule in rules if rule in loaded])
    for alike, own in ((shared.models, shapes), (shared.deployments, {*rules} - shapes - loaded)):
        one = case.of(alike.few)
        for name, amount in _judged(one, [rule for rule in rules if rule in own]).items():
            found[name] = case.kept if amount is one.kept else alike.gathered(amount)
    return {rule.name: found[rule.name] for rule in rules}


def _judged(case: Case, rules: Sequence[Rule]) -> dict[str, Floats]:
    found = {rule.name: _amount(rule, case) for rule in rules}
    return _bind(case, [rule for rule in rules if rule.by_stack], found)


def rebind(case: Case, amounts: Mapping[str, Floats]) -> dict[str, Floats]:
    """`amounts` where the stack that `case` names is meant: those of rules that bind by stack are
    found anew."""
    rules = [rule for rule in rules_of(case) if rule.by_stack]
    found = {**amounts, **{rule.name: _amount(rule, case) for rule in rules}}
    return _bind(case, rules, found)


def _amount(rule: Rule, case: Case) -> Floats:
    total: Flags | Floats | None = None
    for part in rule.parts(case):
        total = part.amount if total is None else np.maximum(total, part.amount)
    if total is None or (total.dtype == bool and not total.any()):
        return case.kept
    return np.asarray(total, dtype=np.float64)


def _bind(case: Case, rules: list[Rule], found: dict[str, Floats]) -> dict[str, Floats]:
    """Lifts rules where a stack that may be meant takes the candidate."""
    broken = [rule for rule in rules if found[rule.name].any()]
    if case.named is not None:
        return found | {rule.name: case.kept for rule in broken if case.named not in rule.stacks}
    if not broken:
        return found
    refused = {stack: np.zeros(len(case.batch)) for stack in SERVERS}
    for rule in broken:
        for stack in rule.stacks if rule.known != "assumed" else ():
            refused[stack] = np.maximum(refused[stack], found[rule.name])
    binding = {rule.name: np.zeros(len(case.batch)) for rule in broken}
    for family in set(case.families):
        if not (stacks := servers_on(family)):
            continue
        here = np.array([one == family for one in case.families])[case.batch.chip]
        all_refuse = np.minimum.reduce([refused[stack] for stack in stacks]) * here
        for rule in broken:
            if not set(rule.stacks).isdisjoint(stacks):
                amount = found[rule.name] * all_refuse
                binding[rule.name] = np.maximum(binding[rule.name], amount)
    return found | binding


def findings(case: Case) -> list[Finding]:
    """What is broken of n candidates, a finding for each size of each rule, whomever it binds."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return [
            Finding(rule, part.amount > 0.0, part.say)
            for rule in rules_of(case)
            for part in rule.parts(case)
        ]


def words_of(case: Case, name: str, i: int, amount: float) -> str:
    """What of candidate `i` breaks a rule; of a quantity, by how much."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        parts = [part for part in RULES[name].parts(case) if part.words and part.amount[i] > 0.0]
    return "; ".join(dict.fromkeys(part.say(i) for part in parts)) or (
        "" if amount == 1.0 else by_how_much(amount)
    )


def row(case: Case, name: str, i: int, amount: float) -> dict[str, Any]:
    """A broken rule as every document has it."""
    return {
        "constraint": name,
        "amount": amount if np.isfinite(amount) else None,
        "meaning": MEANINGS[name],
        "found": words_of(case, name, i, amount),
    }


def broken_rows(case: Case, amounts: Mapping[str, Floats], i: int) -> list[dict[str, Any]]:
    """Every rule that candidate `i` breaks."""
    return [row(case, name, i, float(a[i])) for name, a in amounts.items() if a[i] > 0.0]


def row_words(of: Mapping[str, Any]) -> str:
    """The one message of a broken rule."""
    return message(of["constraint"], of["meaning"], of.get("found", ""))
