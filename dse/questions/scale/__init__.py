"""Scale-up against scale-out: one model on one chip, from one chip to hundreds in one instance.

subject = subject_of(catalog, model, "h100_sxm", workload)
rows = instance_sizes(subject)              latency and cost by size
ceiling(rows)                               where more chips stop helping one user
replication(subject, rows, 512)             one instance of 512 chips against replicas
expert_domain(subject)                      expert parallelism inside and beyond the domain
jitter_limit(subject), evenness(...)        the same ceiling under jitter; what evenness is worth
pipeline_latency(subject)                   one request over pipeline stages
"""

from dse.questions.scale.experts import ExpertAnswer, ExpertGroup, expert_answer, expert_domain
from dse.questions.scale.pipeline import Stages, pipeline_latency
from dse.questions.scale.sizes import (
    Ceiling,
    Point,
    Replicas,
    Size,
    ceiling,
    instance_sizes,
    replica_size,
    replication,
)
from dse.questions.scale.uniform import Evenness, JitterLimit, evenness, jitter_limit

__all__ = [
    "Ceiling",
    "Evenness",
    "ExpertAnswer",
    "ExpertGroup",
    "JitterLimit",
    "Point",
    "Replicas",
    "Size",
    "Stages",
    "ceiling",
    "evenness",
    "expert_answer",
    "expert_domain",
    "instance_sizes",
    "jitter_limit",
    "pipeline_latency",
    "replica_size",
    "replication",
]
