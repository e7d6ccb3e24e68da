"""`python -m distlearn.cli`: the same command, of this very Python (what `mpiexec` starts)."""

from . import main

main(prog_name="distlearn")
