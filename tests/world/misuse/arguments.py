"""Arguments that no call accepts."""

from __future__ import annotations

import numpy as np

from .table import expect


@expect("takes an array, got list", (1,))
def passes_a_list_on_one_rank(comm):
    comm.all_reduce([1.0] if comm.rank == 1 else np.ones(1))  # <-


@expect("scatter", (0,))
def scatters_too_few_rows(comm):
    comm.scatter(np.ones((2, 4)) if comm.rank == 0 else None, np.empty(4))  # <-


@expect("pickle")
def sends_what_cannot_be_pickled(comm):
    comm.gather_obj(i for i in range(3))  # <-
