"""`python -m distlearn.cli`: the same command, run by this Python interpreter (what `mpiexec` starts)."""

from . import main

main(prog_name="distlearn")
