"""Messages that do not fit together, and work that is not waited for."""

from __future__ import annotations

import numpy as np

from .table import SIZE, expect


@expect("send|never received", (0, 1))
def never_received(comm):
    if comm.rank == 0:
        comm.isend(np.ones(3), 1).wait()  # <-


@expect("recv", (0, 1))
def never_sent(comm):
    if comm.rank == 0:
        comm.recv(np.zeros(3), 1)  # <-


@expect("recv")
def all_receive_first(comm):
    comm.recv(np.zeros(3), (comm.rank - 1) % SIZE)  # <-
    comm.send(np.ones(3), (comm.rank + 1) % SIZE)


@expect("send")
def all_send_first(comm):
    comm.send(np.ones(3), (comm.rank + 1) % SIZE)  # <-
    comm.recv(np.zeros(3), (comm.rank - 1) % SIZE)


@expect("tag", (0, 1))
def wrong_tag(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1, tag=1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 0, tag=2)  # <-


@expect(r"source=2|dest=1", (0, 1))
def wrong_source(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 2)  # <-


@expect("recv", (1,))
def receives_into_too_little(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)
    if comm.rank == 1:
        comm.recv(np.zeros(2), 0)  # <-


@expect("recv", (1,))
def receives_into_too_much(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)
    if comm.rank == 1:
        comm.irecv(np.zeros(4), 0).wait()  # <-


@expect("float32", (1,))
def receives_another_dtype(comm):
    if comm.rank == 0:
        comm.send(np.ones(4, np.float32), 1)
    if comm.rank == 1:
        return comm.recv(np.zeros(2), 0)  # <-
    return None


@expect("i8", (1,))
def receives_another_dtype_of_a_rare_kind(comm):
    if comm.rank == 0:
        comm.send(np.ones(2, ">f8"), 1)
    if comm.rank == 1:
        return comm.irecv(np.zeros(2, ">i8"), 0).wait()  # <-
    return None


@expect("recv", (0, 1))
def receives_an_object_as_an_array(comm):
    if comm.rank == 0:
        comm.send_obj([1.0, 2.0], 1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(2), 0)  # <-


@expect("send", (0,))
def never_waits_for_a_send(comm):
    if comm.rank == 0:
        comm.isend(np.ones(3), 1)  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 0)


@expect("all_reduce")
def never_waits_for_an_all_reduce(comm):
    work = comm.iall_reduce(np.ones(3))  # <-
    if comm.rank != 1:
        work.wait()  # <-


@expect("changed", (0,))
def changes_what_is_being_sent(comm):
    x = np.ones(3)
    if comm.rank == 0:
        work = comm.isend(x, 1)
        x[:] = 2.0
        work.wait()  # <-
    if comm.rank == 1:
        comm.recv(np.zeros(3), 0)


@expect("changed")
def changes_what_is_being_reduced(comm):
    x = np.ones(3)
    work = comm.iall_reduce(x)
    x[:] = 2.0
    work.wait()  # <-
