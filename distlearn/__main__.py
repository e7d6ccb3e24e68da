"""`python -m distlearn`: the same command, run by this Python interpreter (what `mpiexec` starts)."""

from .cli import main

main(prog_name="distlearn")
