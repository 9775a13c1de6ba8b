"""dse check: a shape on a chip: what refuses it, what it wastes, shapes near it.

Examples:

    dse check qwen2.5-7b --chip h200_sxm --tp 8
    dse check path/to/config.json --chip mi300x --tp 4
    dse check qwen3-30b-a3b --chip h100_sxm --tp 4 --weight-dtype fp8_block
    dse check studies/quickstart knee
"""

from dse.cli.signature import verb
from dse.questions.check.check import check

command = verb(check, examples=__doc__)
