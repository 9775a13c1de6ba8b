"""dse scale: one large instance against many small ones.

Examples:

    dse scale --model llama-3-70b --chip h100_sxm
    dse scale --model deepseek-v3 --chip gb200_nvl72 --against b200_sxm --out scale
    dse scale --model deepseek-v3 --chip b200_sxm --disaggregated --set prefill_tp=8
"""

from dse.cli.signature import verb
from dse.questions.scale import SETTINGS, scale

command = verb(scale, fields=SETTINGS, examples=__doc__)
