"""`python -m mue`, which `torchrun` needs."""

from mue.cli import main

main()
