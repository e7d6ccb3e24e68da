"""Arguments that no call accepts."""

from __future__ import annotations

import numpy as np

from .table import SIZE, expect


@expect("takes an array, got list")
def passes_a_list(comm):
    comm.all_reduce([1.0, 2.0])  # <-


@expect("takes an array, got float")
def passes_a_number(comm):
    comm.all_reduce(2.0)  # <-


@expect("float64")
def passes_a_scalar_of_numpy(comm):
    comm.all_reduce(np.float64(2.0))  # <-


@expect("takes an array, got list", (1,))
def passes_a_list_on_one_rank(comm):
    comm.all_reduce([1.0] if comm.rank == 1 else np.ones(1))  # <-


@expect("contiguous")
def passes_a_column(comm):
    comm.all_reduce(np.ones((4, 4))[:, 1])  # <-


@expect("read-only")
def passes_what_is_read_only(comm):
    x = np.ones(3)
    x.flags.writeable = False
    comm.all_reduce(x)  # <-


@expect("object")
def passes_objects(comm):
    comm.all_gather(np.array([None, "text"]))  # <-


@expect("mean")
def passes_an_unknown_op(comm):
    comm.all_reduce(np.ones(3), "mean")  # <-


@expect("root=3")
def passes_an_unknown_root(comm):
    comm.broadcast(np.ones(3), root=SIZE)  # <-


@expect("scatter", (0,))
def scatters_too_few_rows(comm):
    comm.scatter(np.ones((2, 4)) if comm.rank == 0 else None, np.empty(4))  # <-


@expect("all_to_all")
def gives_too_few_rows_to_all(comm):
    comm.all_to_all(np.ones((2, 4)))  # <-


@expect("pickle")
def sends_what_cannot_be_pickled(comm):
    comm.gather_obj(i for i in range(3))  # <-
