"""`python -m dse`."""

from dse.cli import main

main()
