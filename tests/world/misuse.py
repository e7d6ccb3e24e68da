"""Programs with a student's mistake each, for three ranks: every world must say which rank, on which line.

The lines that an error may name are marked by a comment that begins with an arrow. `MISUSES` is the table; run as a
script under mpiexec, this file calls one of them.
"""

from __future__ import annotations

import inspect
import sys
from typing import NamedTuple

import numpy as np

SIZE = 3


class Misuse(NamedTuple):
    """A program, which ranks an error may name, and what it says."""

    program: object
    ranks: tuple[int, ...]
    text: str = ""
    """A regular expression that the error must match, in every world."""
    worlds: tuple[str, ...] = ("sim", "engines", "mpiexec")

    @property
    def name(self) -> str:
        """Of the program."""
        return self.program.__name__

    @property
    def lines(self) -> list[int]:
        """Numbers of the lines that an error may name."""
        source, first = inspect.getsourcelines(self.program)
        return [first + i for i, line in enumerate(source) if "# <-" in line]


# -- collectives that differ -------------------------------------------------------------------------------------------


def returns_early(comm):
    if comm.rank == 1:
        return "early"
    return comm.all_reduce(np.ones(3))  # <-


def calls_once_more(comm):
    comm.all_reduce(np.ones(3))
    if comm.rank == 2:
        comm.all_reduce(np.ones(3))  # <-


def leaves_one_out(comm):
    for step in range(3):
        if (comm.rank, step) != (1, 1):
            comm.all_reduce(np.ones(3))  # <-


def another_order(comm):
    x = np.ones(3)
    if comm.rank == 0:
        comm.all_reduce(x)  # <-
        comm.broadcast(x)
    else:
        comm.broadcast(x)  # <-
        comm.all_reduce(x)


def another_call(comm):
    if comm.rank == 0:
        return comm.all_gather(np.ones(3))  # <-
    return comm.all_reduce(np.ones(3))  # <-


def another_size(comm):
    return comm.all_reduce(np.ones(3 + (comm.rank == 1)))  # <-


def another_large_size(comm):
    return comm.all_reduce(np.ones(100_000 + (comm.rank == 1)))  # <-


def another_shape(comm):
    return comm.all_gather(np.ones((2, 3) if comm.rank == 1 else (3, 2)))  # <-


def another_dtype(comm):
    return comm.all_reduce(np.ones(3, np.float32 if comm.rank == 1 else np.float64))  # <-


def another_dtype_of_as_many_bytes(comm):
    return comm.all_reduce(np.ones(4, np.int64 if comm.rank == 1 else np.float64))  # <-


def another_op(comm):
    return comm.all_reduce(np.ones(3), "max" if comm.rank == 1 else "sum")  # <-


def another_root(comm):
    return comm.broadcast(np.full(3, comm.rank), root=comm.rank % 2)  # <-


def another_root_of_objects(comm):
    return comm.broadcast_obj("hello", root=comm.rank % 2)  # <-


def broadcast_of_another_size(comm):
    return comm.broadcast(np.ones(2 + comm.rank))  # <-


def only_some_ranks(comm):
    if comm.rank < 2:
        comm.barrier()  # <-


def split_without_one(comm):
    if comm.rank != 1:
        comm.split(0)  # <-


def differs_in_a_part(comm):
    part = comm.split(0 if comm.rank < 2 else 1)
    return part.all_reduce(np.ones(2 + comm.rank))  # <-


def leaves_out_a_call_of_a_part(comm):
    part = comm.split(0 if comm.rank < 2 else 1)
    if comm.rank == 0:
        part.barrier()  # <-


# -- messages ----------------------------------------------------------------------------------------------------------


def never_received(comm):
    if comm.rank == 0:
        comm.isend(np.ones(3), 1).wait()  # <-


def never_sent(comm):
    if comm.rank == 0:
        comm.recv(np.zeros(3), 1)  # <-


def all_receive_first(comm):
    comm.recv(np.zeros(3), (comm.rank - 1) % SIZE)  # <-
    comm.send(np.ones(3), (comm.rank + 1) % SIZE)


def all_send_first(comm):
    comm.send(np.ones(3), (comm.rank + 1) % SIZE)  # <-
    comm.recv(np.zeros(3), (comm.rank - 1) % SIZE)


def wrong_tag(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1, tag=1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 0, tag=2)  # <-


def wrong_source(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 2)  # <-


def receives_into_too_little(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)
    if comm.rank == 1:
        comm.recv(np.zeros(2), 0)  # <-


def receives_into_too_much(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)
    if comm.rank == 1:
        comm.irecv(np.zeros(4), 0).wait()  # <-


def receives_another_dtype(comm):
    if comm.rank == 0:
        comm.send(np.ones(4, np.float32), 1)
    if comm.rank == 1:
        return comm.recv(np.zeros(2), 0)  # <-
    return None


def receives_an_object_as_an_array(comm):
    if comm.rank == 0:
        comm.send_obj([1.0, 2.0], 1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(2), 0)  # <-


def never_waits_for_a_send(comm):
    if comm.rank == 0:
        comm.isend(np.ones(3), 1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 0)


def never_waits_for_an_all_reduce(comm):
    work = comm.iall_reduce(np.ones(3))  # <-
    if comm.rank != 1:
        work.wait()  # <-


def changes_what_is_being_sent(comm):
    x = np.ones(3)
    if comm.rank == 0:
        work = comm.isend(x, 1)
        x[:] = 2.0
        work.wait()  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 0)


def changes_what_is_being_reduced(comm):
    x = np.ones(3)
    work = comm.iall_reduce(x)
    x[:] = 2.0
    work.wait()  # <-


def sends_to_itself(comm):
    comm.send(np.ones(3), comm.rank)  # <-


def sends_to_nobody(comm):
    comm.send(np.ones(3), comm.size)  # <-


def negative_tag(comm):
    comm.send(np.ones(3), (comm.rank + 1) % SIZE, tag=-1)  # <-


# -- arguments ---------------------------------------------------------------------------------------------------------


def passes_a_list(comm):
    comm.all_reduce([1.0, 2.0])  # <-


def passes_a_number(comm):
    comm.all_reduce(2.0)  # <-


def passes_a_scalar_of_numpy(comm):
    comm.all_reduce(np.float64(2.0))  # <-


def passes_a_list_on_one_rank(comm):
    comm.all_reduce([1.0] if comm.rank == 1 else np.ones(1))  # <-


def passes_a_column(comm):
    comm.all_reduce(np.ones((4, 4))[:, 1])  # <-


def passes_what_is_read_only(comm):
    x = np.ones(3)
    x.flags.writeable = False
    comm.all_reduce(x)  # <-


def passes_objects(comm):
    comm.all_gather(np.array([None, "text"]))  # <-


def passes_an_unknown_op(comm):
    comm.all_reduce(np.ones(3), "mean")  # <-


def passes_an_unknown_root(comm):
    comm.broadcast(np.ones(3), root=SIZE)  # <-


def scatters_too_few_rows(comm):
    comm.scatter(np.ones((2, 4)) if comm.rank == 0 else None, np.empty(4))  # <-


def gives_too_few_rows_to_all(comm):
    comm.all_to_all(np.ones((2, 4)))  # <-


def sends_what_cannot_be_pickled(comm):
    comm.gather_obj(i for i in range(3))  # <-


# -- ranks that fail, leave or do not end ------------------------------------------------------------------------------


def raises_in_the_middle(comm):
    comm.all_reduce(np.ones(3))
    if comm.rank == 1:
        raise KeyError("no such layer")  # <-
    comm.all_reduce(np.ones(3))


def raises_while_a_message_is_under_way(comm):
    work = comm.isend(np.ones(3), (comm.rank + 1) % SIZE)
    if comm.rank == 1:
        raise KeyError("no such layer")  # <-
    comm.recv(np.zeros(3), (comm.rank - 1) % SIZE)
    work.wait()


def exits(comm):
    if comm.rank == 1:
        sys.exit(0)  # <-
    comm.barrier()


def interrupts_itself(comm):
    if comm.rank == 1:
        raise KeyboardInterrupt  # <-
    comm.barrier()


def never_ends(comm):
    while comm.rank == 1:  # <-
        pass  # <-
    comm.barrier()  # <-


SIMULATED = ("sim",)  # MPI cannot tell whether an array has changed
REAL = ("engines", "mpiexec")
MISUSES = [
    Misuse(returns_early, (0, 1, 2), "all_reduce"),
    Misuse(calls_once_more, (0, 1, 2), "all_reduce"),
    Misuse(leaves_one_out, (0, 1, 2), "all_reduce"),
    Misuse(another_order, (0, 1, 2), "(?s)(all_reduce.*broadcast|broadcast.*all_reduce)"),
    Misuse(another_call, (0, 1, 2), "(?s)(all_reduce.*all_gather|all_gather.*all_reduce)"),
    Misuse(another_size, (0, 1, 2), "4"),
    Misuse(another_large_size, (0, 1, 2), "100001"),
    Misuse(another_shape, (0, 1, 2), r"(?s)(2, 3).*(3, 2)|(3, 2).*(2, 3)"),
    Misuse(another_dtype, (0, 1, 2), "float32"),
    Misuse(another_dtype_of_as_many_bytes, (0, 1, 2), "int64"),
    Misuse(another_op, (0, 1, 2), "max"),
    Misuse(another_root, (0, 1, 2), "root"),
    Misuse(another_root_of_objects, (0, 1, 2), "root"),
    Misuse(broadcast_of_another_size, (0, 1, 2), "broadcast"),
    Misuse(only_some_ranks, (0, 1, 2), "barrier"),
    Misuse(split_without_one, (0, 1, 2), "split"),
    Misuse(differs_in_a_part, (0, 1), "all_reduce"),
    Misuse(leaves_out_a_call_of_a_part, (0, 1), "barrier"),
    Misuse(never_received, (0, 1), "send|never received"),
    Misuse(never_sent, (0, 1), "recv"),
    Misuse(all_receive_first, (0, 1, 2), "recv"),
    Misuse(all_send_first, (0, 1, 2), "send"),
    Misuse(wrong_tag, (0, 1), "tag"),
    Misuse(wrong_source, (0, 1), r"source=2|dest=1"),
    Misuse(receives_into_too_little, (1,), "recv"),
    Misuse(receives_into_too_much, (1,), "recv"),
    Misuse(receives_another_dtype, (1,), "float32"),
    Misuse(receives_an_object_as_an_array, (0, 1), "recv"),
    Misuse(never_waits_for_a_send, (0,), "send"),
    Misuse(never_waits_for_an_all_reduce, (0, 1, 2), "all_reduce"),
    Misuse(changes_what_is_being_sent, (0,), "changed", SIMULATED),
    Misuse(changes_what_is_being_reduced, (0, 1, 2), "changed", SIMULATED),
    Misuse(sends_to_itself, (0, 1, 2), "itself"),
    Misuse(sends_to_nobody, (0, 1, 2), "dest=3"),
    Misuse(negative_tag, (0, 1, 2), "tag=-1"),
    Misuse(passes_a_list, (0, 1, 2), "takes an array, got list"),
    Misuse(passes_a_number, (0, 1, 2), "takes an array, got float"),
    Misuse(passes_a_scalar_of_numpy, (0, 1, 2), "float64"),
    Misuse(passes_a_list_on_one_rank, (1,), "takes an array, got list"),
    Misuse(passes_a_column, (0, 1, 2), "contiguous"),
    Misuse(passes_what_is_read_only, (0, 1, 2), "read-only"),
    Misuse(passes_objects, (0, 1, 2), "object"),
    Misuse(passes_an_unknown_op, (0, 1, 2), "mean"),
    Misuse(passes_an_unknown_root, (0, 1, 2), "root=3"),
    Misuse(scatters_too_few_rows, (0,), "scatter"),
    Misuse(gives_too_few_rows_to_all, (0, 1, 2), "all_to_all"),
    Misuse(sends_what_cannot_be_pickled, (0, 1, 2), "pickle"),
    Misuse(raises_in_the_middle, (1,), "KeyError: 'no such layer'"),
    Misuse(raises_while_a_message_is_under_way, (1,), "KeyError: 'no such layer'"),
    Misuse(exits, (1,), "SystemExit"),
    Misuse(interrupts_itself, (1,), "KeyboardInterrupt"),
    Misuse(never_ends, (0, 1, 2), "", REAL),  # nobody but the user can interrupt what runs in his own process
]


if __name__ == "__main__":
    from distlearn.world import MPIWorld

    world = MPIWorld(progress=False, patience=float(sys.argv[2]), timeout=float(sys.argv[3]))
    print(world.run(globals()[sys.argv[1]]))
