"""dse compare: two studies, dates, plans or chips side by side; a space and a published model.

Examples:

    dse compare studies/june studies/now --out changes           two studies
    dse compare studies/gpu studies/tpu studies/wafer            several studies as one front
    dse compare fleets/june fleets/now                           two fleets
    dse compare dense-70b-billion-tokens my-plan.yaml            two plans
    dse compare quickstart --as-of 2026-06 --as-of 2026-11       a SPACE at two dates
    dse compare h200_sxm b200_sxm mi355x                         chips: figures and prices
    dse compare h200_sxm b200_sxm --model deepseek-v3 --tp 8     and a model on each
    dse compare h200_sxm --set hbm_bandwidth=2x                  a hypothetical chip
    dse compare basket-h200-tpu-trn2 --by chip                   one shape for several chips
    dse compare rediscovery/llama-3-70b                          a published model
    dse compare my-space.yaml llama-3-8b                         a SPACE or STUDY and a model
"""

from dse.cli.signature import verb
from dse.questions.compare.compare import compare
from dse.questions.estimate.estimate import SETTINGS, estimate
from dse.schema.derive import ALIASES, FABRIC

command = verb(
    compare,
    like=estimate,
    without=("chip", "point", "why_not"),
    fields=SETTINGS,
    others="settings",
    also="Change a figure of the first chip: hbm_bandwidth=2x. ",
    also_known=("price", *ALIASES, *FABRIC),
    examples=__doc__,
)
