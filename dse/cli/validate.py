"""dse validate: predictions against measurements.

Examples:

    dse validate                     the measurements that come with dse
    dse validate --data rows.csv     your own rows, in the same format
    dse validate --out accuracy      also writes accuracy/validate.html
"""

from dse.accuracy.validate import validate
from dse.cli.signature import verb

command = verb(validate, examples=__doc__)
