"""Training as people ask for it: the best plan on given chips, what it takes, and what it is
unsure of."""

from dse.study.training.answer import Training, train
from dse.study.training.trainer import trainer_of

__all__ = ["Training", "train", "trainer_of"]
