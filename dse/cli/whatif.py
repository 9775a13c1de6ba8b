"""dse whatif: what changes the answer, how sure it is, and what a chip would need.

Examples:

    dse whatif deploy-llama-3-70b                            the winner, the chips ranked
    dse whatif deploy-llama-3-70b --set chip.h100_sxm.price=-30%
    dse whatif studies/tiny --sweep chip.all.memory_bandwidth=0.5x..2x:7
    dse whatif --model llama-3-70b --chip h100_sxm --chip mi300x --set tp=8
    dse whatif deploy-llama-3-70b --demand 1B/day --sweep demand=1x..9x:5
    dse whatif deploy-llama-3-70b --sensitivities --equal power --out whatif
    dse whatif --chip h100_sxm --sensitivities
    dse whatif deploy-llama-3-70b --uncertain --demand 1B/day..4B/day
    dse whatif studies/llama --require mi300x
"""

from dse.cli.signature import verb
from dse.questions.whatif.whatif import SETTINGS, whatif

command = verb(
    whatif,
    fields=SETTINGS,
    others="changes",
    also="Change an input: chip.h100_sxm.price=-20%, limit.tpot_s=30ms. ",
    space="study",
    examples=__doc__,
)
