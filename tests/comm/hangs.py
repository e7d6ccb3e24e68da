"""Kinds of hang, each with who is to blame."""

import functools

import numpy as np

from distlearn.comm.calls import ANY

LARGE = np.zeros(1 << 17)
"""A message that a send cannot leave behind: it waits for its receiver."""


def skips(comm, call, rank, number):
    """One rank does not make the last of some calls."""
    for _ in range(number - (comm.rank == rank)):
        call(comm)


def once_more(comm, call):
    """Rank 1 makes one call more than the others."""
    for _ in range(3 + (comm.rank == 1)):
        call(comm)


def waits(comm, rank, peer, call):
    """One rank waits for another, which has returned."""
    if comm.rank == rank:
        getattr(comm, call)(*([np.empty(1)] if call == "recv" else []), peer)


def chain(comm):
    """Rank 0 waits for 1, which waits for 2, which has returned: 2 is to blame, though 0 does not wait for it."""
    if comm.rank < 2:
        comm.recv(np.empty(1), comm.rank + 1)


def circle(comm):
    comm.recv(np.empty(1), (comm.rank - 1) % comm.size)
    comm.send(np.ones(1), (comm.rank + 1) % comm.size)


def pair(comm):
    if comm.rank < 2:
        comm.recv(np.empty(1), 1 - comm.rank)


def inside_and_outside(comm):
    """Two ranks wait in a collective, the third in a message from one of them."""
    comm.recv(np.empty(1), 0) if comm.rank == 2 else comm.barrier()


def sends_to_nobody(comm):
    if comm.rank == 0:
        comm.send(LARGE, 2)


def both_send(comm):
    if comm.rank < 2:
        comm.send(LARGE, 1 - comm.rank)
        comm.recv(np.empty_like(LARGE), 1 - comm.rank)


def wrong_tag(comm):
    if comm.rank == 1:
        comm.send(LARGE, 0, 5)
    elif comm.rank == 0:
        comm.recv(np.empty_like(LARGE), 1, 6)


def waits_for_work(comm):
    if comm.rank != 1:
        comm.iall_reduce(np.ones(4)).wait()


def skips_a_part(comm):
    """Ranks 0 and 2 are a group of their own, and 2 leaves it early."""
    part = comm.split(comm.rank % 2)
    part.barrier()
    if comm.rank == 0:
        part.barrier()


def skips_after_a_part(comm):
    part = comm.split(comm.rank // 2)
    part.barrier()
    if comm.rank != 2:
        comm.barrier()


def waits_for_an_object(comm, source=2):
    """The barrier and the array are done: what rank 0 waits for is the object."""
    comm.barrier()
    if comm.rank == 1:
        comm.send(np.ones(1), 0)
    elif comm.rank == 0:
        comm.recv(np.empty(1), 1)
        comm.recv_obj(source)


COLLECTIVES = {
    "all_reduce": lambda comm: comm.all_reduce(np.ones(4)),
    "reduce_scatter": lambda comm: comm.reduce_scatter(np.ones(9)),
    "all_gather": lambda comm: comm.all_gather(np.ones(2)),
    "all_to_all": lambda comm: comm.all_to_all(np.ones((comm.size, 2))),
    "barrier": lambda comm: comm.barrier(),
}
"""Collectives in which every rank waits for every other."""

HANGS = {
    "rank 0 does not come": (functools.partial(skips, call=COLLECTIVES["barrier"], rank=0, number=2), "missing", (0,)),
    **{f"{name}, once more": (functools.partial(once_more, call=COLLECTIVES[name]), "missing", (0, 2))
       for name in ("barrier", "all_reduce")},
    "broadcast without root": (
        functools.partial(skips, call=lambda comm: comm.broadcast(np.ones(2), 1), rank=1, number=2), "missing", (1,)),
    "broadcast_obj without root": (
        functools.partial(skips, call=lambda comm: comm.broadcast_obj("x", 2), rank=2, number=1), "missing", (2,)),
    "gather without one": (
        functools.partial(skips, call=lambda comm: comm.gather(np.ones(2), 0), rank=2, number=2), "missing", (2,)),
    "recv from one that returned": (functools.partial(waits, rank=0, peer=1, call="recv"), "missing", (1,)),
    "recv_obj from one that returned": (functools.partial(waits, rank=2, peer=0, call="recv_obj"), "missing", (0,)),
    "recv_obj from anyone": (functools.partial(waits, rank=0, peer=ANY, call="recv_obj"), "missing", (1, 2)),
    "chain": (chain, "missing", (2,)),
    "circle": (circle, "deadlock", (0, 1, 2)),
    "pair": (pair, "deadlock", (0, 1)),
    "inside and outside": (inside_and_outside, "deadlock", (0, 2)),
    "a send that nobody receives": (sends_to_nobody, "missing", (2,)),
    "both send first": (both_send, "deadlock", (0, 1)),
    "wrong tag": (wrong_tag, "deadlock", (0, 1)),
    "work that is waited for": (waits_for_work, "missing", (1,)),
    "a part, left early": (skips_a_part, "missing", (2,)),
    "after a part": (skips_after_a_part, "missing", (2,)),
    "an object": (waits_for_an_object, "missing", (2,)),
}  # fmt: skip
"""By name: program of three ranks, kind of verdict, ranks."""
