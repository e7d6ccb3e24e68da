"""Run one program on the ranks of mpiexec: python -m tests.world.misuse NAME PATIENCE TIMEOUT."""

import sys

from distlearn.world import MPIWorld

from . import MISUSES

(case,) = (m for m in MISUSES if m.name == sys.argv[1])
print(MPIWorld(progress=False, patience=float(sys.argv[2]), timeout=float(sys.argv[3])).run(case.program))
