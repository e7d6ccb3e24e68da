"""Collective calls that differ between ranks."""

from __future__ import annotations

import numpy as np

from .table import expect


@expect("all_reduce")
def returns_early(comm):
    if comm.rank == 1:
        return "early"
    return comm.all_reduce(np.ones(3))  # <-


@expect("all_reduce")
def calls_once_more(comm):
    comm.all_reduce(np.ones(3))
    if comm.rank == 2:
        comm.all_reduce(np.ones(3))  # <-


@expect("all_reduce")
def leaves_one_out(comm):
    for step in range(3):
        if (comm.rank, step) != (1, 1):
            comm.all_reduce(np.ones(3))  # <-


@expect("(?s)(all_reduce.*broadcast|broadcast.*all_reduce)")
def another_order(comm):
    x = np.ones(3)
    if comm.rank == 0:
        comm.all_reduce(x)  # <-
        comm.broadcast(x)
    else:
        comm.broadcast(x)  # <-
        comm.all_reduce(x)


@expect("(?s)(all_reduce.*all_gather|all_gather.*all_reduce)")
def another_call(comm):
    if comm.rank == 0:
        return comm.all_gather(np.ones(3))  # <-
    return comm.all_reduce(np.ones(3))  # <-


@expect("4")
def another_size(comm):
    return comm.all_reduce(np.ones(3 + (comm.rank == 1)))  # <-


@expect("100001")
def another_large_size(comm):
    return comm.all_reduce(np.ones(100_000 + (comm.rank == 1)))  # <-


@expect(r"(?s)(2, 3).*(3, 2)|(3, 2).*(2, 3)")
def another_shape(comm):
    return comm.all_gather(np.ones((2, 3) if comm.rank == 1 else (3, 2)))  # <-


@expect("float32")
def another_dtype(comm):
    return comm.all_reduce(np.ones(3, np.float32 if comm.rank == 1 else np.float64))  # <-


@expect("int64")
def another_dtype_of_as_many_bytes(comm):
    return comm.all_reduce(np.ones(4, np.int64 if comm.rank == 1 else np.float64))  # <-


@expect("(?s)(uint8.*float32|float32.*uint8)")
def another_dtype_of_one_byte(comm):
    return comm.all_reduce(np.ones(3, np.uint8 if comm.rank == 1 else np.float32))  # <-


@expect("(?s)(int16.*float32|float32.*int16)")
def another_dtype_of_two_bytes(comm):
    return comm.all_reduce(np.ones(3, np.int16 if comm.rank == 1 else np.float32))  # <-


@expect("all_gather")
def another_call_of_odd_bytes(comm):
    if comm.rank == 1:
        return comm.all_gather(np.ones(5, np.uint8))  # <-
    return comm.all_reduce(np.ones(3, np.float32))  # <-


@expect("max")
def another_op(comm):
    return comm.all_reduce(np.ones(3), "max" if comm.rank == 1 else "sum")  # <-


@expect("root")
def another_root(comm):
    return comm.broadcast(np.full(3, comm.rank), root=comm.rank % 2)  # <-


@expect("root")
def another_root_of_objects(comm):
    return comm.broadcast_obj("hello", root=comm.rank % 2)  # <-


@expect("broadcast")
def broadcast_of_another_size(comm):
    return comm.broadcast(np.ones(2 + comm.rank))  # <-


@expect("barrier")
def only_some_ranks(comm):
    if comm.rank < 2:
        comm.barrier()  # <-


@expect("split")
def split_without_one(comm):
    if comm.rank != 1:
        comm.split(0)  # <-


@expect("all_reduce", (0, 1))
def differs_in_a_part(comm):
    part = comm.split(0 if comm.rank < 2 else 1)
    return part.all_reduce(np.ones(2 + comm.rank))  # <-


@expect("barrier", (0, 1))
def leaves_out_a_call_of_a_part(comm):
    part = comm.split(0 if comm.rank < 2 else 1)
    if comm.rank == 0:
        part.barrier()  # <-
