"""Search engines behind one protocol, and the study of record. The only place that imports
Optuna."""

from dse.search.engine import Budget, Engine, Progress
from dse.search.evaluator import Batch, Evaluator, Tally
from dse.search.record import Record, Recorded
from dse.search.run import ENGINES, Miss, Result, choose_engine, search
from dse.search.sampler import ParetoLocalSampler

__all__ = [
    "ENGINES",
    "Batch",
    "Budget",
    "Engine",
    "Evaluator",
    "Miss",
    "ParetoLocalSampler",
    "Progress",
    "Record",
    "Recorded",
    "Result",
    "Tally",
    "choose_engine",
    "search",
]
