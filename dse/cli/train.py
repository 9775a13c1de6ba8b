"""dse train: training: the usual and the best plan on given chips, memory, days, dollars.

Examples:

    dse train llama-3.1-405b --chip h100_sxm --chips 16384 --tokens 15.6T
    dse train llama-3-70b --chip h100_sxm --within 60days --tokens 15T
    dse train deepseek-v3 --chip h800_sxm --chips 2048 --precision fp8_block
    dse train llama-3-70b --chip h100_sxm --chips 2048 --observed-mfu 11%
    dse train llama-3-70b --chip h100_sxm --chips 1024 --set optimizer=adam_8bit
"""

from dse.cli.signature import verb
from dse.questions.train import SETTINGS, train

command = verb(train, fields=SETTINGS, examples=__doc__)
