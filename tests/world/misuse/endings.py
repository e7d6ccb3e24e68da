"""Ranks that fail, leave or do not end."""

from __future__ import annotations

import sys

import numpy as np

from .table import REAL, SIZE, expect


@expect("KeyError: 'no such layer'", (1,))
def raises_in_the_middle(comm):
    comm.all_reduce(np.ones(3))
    if comm.rank == 1:
        raise KeyError("no such layer")  # <-
    comm.all_reduce(np.ones(3))


@expect("KeyError: 'no such layer'", (1,))
def raises_while_a_message_is_under_way(comm):
    work = comm.isend(np.ones(3), (comm.rank + 1) % SIZE)
    if comm.rank == 1:
        raise KeyError("no such layer")  # <-
    comm.recv(np.zeros(3), (comm.rank - 1) % SIZE)
    work.wait()


@expect("SystemExit", (1,))
def exits(comm):
    if comm.rank == 1:
        sys.exit(0)  # <-
    comm.barrier()


@expect("KeyboardInterrupt", (1,))
def interrupts_itself(comm):
    if comm.rank == 1:
        raise KeyboardInterrupt  # <-
    comm.barrier()


@expect("", worlds=REAL)
def never_ends(comm):
    while comm.rank == 1:  # <-
        pass  # <-
    comm.barrier()  # <-
