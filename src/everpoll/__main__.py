"""`python -m everpoll`: the command line."""

from everpoll.cli import main

main()
