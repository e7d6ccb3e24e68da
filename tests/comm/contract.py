"""The communicator contract: what every communicator must do, as plain functions of a communicator.

Each `contract_*` runs on every rank at once. They run on LocalComm, on the simulator and on MPI, with 1 to 4 ranks; a
new communicator is right when it passes all of them. A function may not depend on what another left behind.
"""

from __future__ import annotations

import numpy as np
import pytest

from distlearn.comm.base import Communicator
from distlearn.comm.calls import ANY, REDUCTIONS
from distlearn.comm.collectives import shares

DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool", "complex64", "complex128")
LENGTHS = (0, 1, 2, 3, 7, 1000)


def pattern(rank: int, n: int, dtype) -> np.ndarray:
    """Small whole numbers that differ by rank and place: every dtype adds them without rounding."""
    return ((np.arange(n) * 3 + rank * 5 + 1) % 4).astype(dtype)


def expected(size, n, dtype, op="sum"):
    """What reducing the patterns of all ranks gives."""
    total = pattern(0, n, dtype)
    for rank in range(1, size):
        total = REDUCTIONS[op](total, pattern(rank, n, dtype))
    return total


def same(found, wanted):
    """Equal in dtype, shape and every element."""
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


def others(comm):
    return [r for r in range(comm.size) if r != comm.rank]


def contract_is_a_communicator(comm):
    assert isinstance(comm, Communicator)
    assert isinstance(comm.rank, int)
    assert 0 <= comm.rank < comm.size


def contract_clock_runs_forward(comm):
    before = comm.clock.now()
    comm.clock.sleep(0.002)
    with comm.clock.span("work", flops=1e3, nbytes=8):
        pass
    assert comm.clock.now() - before >= 0.002


# -- reductions ------------------------------------------------------------------------------------------------------


def contract_all_reduce_every_dtype_and_op(comm):
    for dtype in DTYPES:
        for op in REDUCTIONS:
            if dtype.startswith("complex") and op in ("min", "max"):
                continue
            x = pattern(comm.rank, 7, dtype)
            assert comm.all_reduce(x, op) is x
            same(x, expected(comm.size, 7, dtype, op))


def contract_max_and_min_of_nan_are_nan_everywhere(comm):
    """As NumPy's: a gradient that has overflowed on one rank, whichever it is, is seen by all."""
    for dtype in ("float16", "float32", "float64"):
        for op in ("min", "max"):
            for n in (4, 30_000):
                x = pattern(comm.rank, n, dtype)
                x[comm.rank % n] = np.nan
                wanted = expected(comm.size, n, dtype, op)
                wanted[: comm.size] = np.nan
                same(comm.reduce_scatter(x, op), wanted[shares(n, comm.size)[comm.rank]])
                same(comm.all_reduce(x, op), wanted)


def halves(rank: int, n: int = 4_000) -> np.ndarray:
    """Halves of all magnitudes, whose sum depends on where it is rounded; the first three overflow on the way."""
    rng = np.random.default_rng(rank)
    x = rng.normal(size=n) * 2.0 ** rng.integers(-20, 12, n)
    x[:3] = [2048 if rank == 0 else 1, 6e4 * (-1) ** rank, 6e4]
    return x.astype(np.float16)


def contract_halves_are_added_exactly_and_rounded_once(comm):
    """So they give the same number in every world, on every rank, in every order."""
    with np.errstate(over="ignore"):
        wanted = sum(halves(rank).astype(np.float64) for rank in range(comm.size)).astype(np.float16)
    for start in (comm.all_reduce, lambda x: comm.iall_reduce(x).wait()):
        same(start(halves(comm.rank)), wanted)
    for start in (comm.reduce_scatter, lambda x: comm.ireduce_scatter(x).wait()):
        same(start(halves(comm.rank)), np.array_split(wanted, comm.size)[comm.rank])


def contract_all_reduce_every_length_and_shape(comm):
    for n in (*LENGTHS, 300_001):
        same(comm.all_reduce(pattern(comm.rank, n, "float64")), expected(comm.size, n, "float64"))
    same(comm.all_reduce(pattern(comm.rank, 6, "f4").reshape(2, 3)), expected(comm.size, 6, "f4").reshape(2, 3))
    same(comm.all_reduce(np.array(comm.rank + 1.0)), np.array(sum(range(1, comm.size + 1)) + 0.0))


def contract_all_reduce_gives_every_rank_the_same_bits(comm):
    x = np.random.default_rng(comm.rank).normal(size=999)
    everyone = comm.all_gather(comm.all_reduce(x))
    for row in everyone:
        assert row.tobytes() == everyone[0].tobytes()


def contract_zeros_have_one_sign_on_all_ranks(comm):
    """The maximum of 0 and -0 is the first or the second, and ranks have the operands in orders of their own."""
    for op in ("max", "min"):
        for n in (1, 70_000):
            everyone = comm.all_gather(comm.all_reduce(np.full(n, -0.0 if comm.rank % 2 else 0.0), op))
            assert {row.tobytes() for row in everyone} == {everyone[0].tobytes()}


def _several_under_way(comm, start, dtype="float64"):
    """Wait for operations on several arrays in another order, twice, which does no harm: arrays, results, works."""
    xs = [pattern(comm.rank, n, dtype) for n in (5, 0, 70_000, 3)]
    works = [start(x) for x in xs]
    for x, work in zip(reversed(xs), reversed(works), strict=True):
        found = work.wait()
        assert work.done()
        same(work.wait(), found)
        yield x, found, work


def contract_iall_reduce_several_under_way(comm):
    for x, found, work in _several_under_way(comm, comm.iall_reduce):
        assert found is work.wait() is x
        same(x, expected(comm.size, x.size, "float64"))


def contract_ireduce_scatter_several_under_way(comm):
    for dtype in ("float64", "float16"):  # half precision travels as a copy, which nothing may free meanwhile
        for x, part, _ in _several_under_way(comm, comm.ireduce_scatter, dtype):
            same(part, np.array_split(expected(comm.size, x.size, dtype), comm.size)[comm.rank])
    same(
        comm.ireduce_scatter(pattern(comm.rank, 5, "i8"), "max").wait(),
        np.array_split(expected(comm.size, 5, "i8", "max"), comm.size)[comm.rank],
    )


def contract_iall_gather_several_under_way(comm):
    for x, rows, _ in _several_under_way(comm, comm.iall_gather):
        same(rows, np.stack([pattern(r, x.size, "float64") for r in range(comm.size)]))
        rows[...] = comm.rank  # it is the rank's own
        comm.barrier()
        assert (rows == comm.rank).all()
        same(x, pattern(comm.rank, x.size, "float64"))


def contract_work_done_becomes_true(comm):
    x = pattern(comm.rank, 10, "float32")
    work = comm.iall_reduce(x, "max")
    while not work.done():
        pass
    same(work.wait(), expected(comm.size, 10, "float32", "max"))


def contract_reduce_scatter_uneven(comm):
    for dtype in DTYPES:
        for n in LENGTHS:
            x = pattern(comm.rank, n, dtype)
            part = comm.reduce_scatter(x)
            same(part, expected(comm.size, n, dtype)[shares(n, comm.size)[comm.rank]])
            same(x, pattern(comm.rank, n, dtype))  # the input stays
    same(
        comm.reduce_scatter(pattern(comm.rank, 5, "i8"), "max"),
        np.array_split(expected(comm.size, 5, "i8", "max"), comm.size)[comm.rank],
    )


# -- moving data -----------------------------------------------------------------------------------------------------


def contract_all_gather(comm):
    for dtype in (*DTYPES, "datetime64[s]", [("a", "i4"), ("b", "f8")]):
        for shape in ((0,), (3,), (2, 2), ()):
            n = int(np.prod(shape))
            make = lambda r: (np.arange(n, dtype="i4") + r).astype(dtype).reshape(shape)  # noqa: E731, B023
            same(comm.all_gather(make(comm.rank)), np.stack([make(r) for r in range(comm.size)]))


def contract_broadcast_from_every_root(comm):
    for root in range(comm.size):
        for n in LENGTHS:
            x = pattern(comm.rank, n, "float32")
            assert comm.broadcast(x, root) is x
            same(x, pattern(root, n, "float32"))


def contract_broadcast_reads_a_read_only_root(comm):
    x = pattern(comm.rank, 4, "f8")
    if comm.rank == 0:
        x.flags.writeable = False
    same(comm.broadcast(x), pattern(0, 4, "f8"))


def contract_scatter(comm):
    for root in range(comm.size):
        for shape in ((3,), (2, 2), (0,)):
            rows = np.arange(comm.size * int(np.prod(shape)), dtype="f4").reshape(comm.size, *shape)
            out = np.full(shape, -1, "f4")
            assert comm.scatter(rows if comm.rank == root else None, out, root) is out
            same(out, rows[comm.rank])


def contract_gather(comm):
    for root in range(comm.size):
        for n in (0, 1, 5):
            y = comm.gather(pattern(comm.rank, n, "int64"), root)
            if comm.rank == root:
                same(y, np.stack([pattern(r, n, "int64") for r in range(comm.size)]))
            else:
                assert y is None


def contract_all_to_all(comm):
    for n in (0, 1, 4):
        x = np.arange(comm.size * n).reshape(comm.size, n) + 1000 * comm.rank
        wanted = np.stack([np.arange(comm.rank * n, comm.rank * n + n) + 1000 * r for r in range(comm.size)])
        same(comm.all_to_all(x), wanted.reshape(comm.size, n))


def contract_barrier_holds_everyone(comm):
    for late in range(comm.size):
        came = np.array([comm.clock.now()])
        if comm.rank == late:
            comm.clock.sleep(0.01)
            came[0] = comm.clock.now()
        comm.barrier()
        assert comm.clock.now() >= came[0]
    assert comm.barrier() is None


# -- between two ranks -----------------------------------------------------------------------------------------------


def contract_send_recv_every_dtype(comm):
    """Rank 0 with each of the others, there and back."""
    for dtype in DTYPES:
        for n in LENGTHS:
            for peer in range(1, comm.size):
                if comm.rank == 0:
                    comm.send(pattern(0, n, dtype), peer)
                    out = np.zeros(n, dtype)
                    assert comm.recv(out, peer) is out
                    same(out, pattern(peer, n, dtype))
                elif comm.rank == peer:
                    same(comm.recv(np.zeros(n, dtype), 0), pattern(0, n, dtype))
                    comm.send(pattern(peer, n, dtype), 0)


def contract_messages_are_told_apart_by_tag_and_kept_in_order(comm):
    if comm.size == 1:
        return
    if comm.rank == 0:
        works = [comm.isend(np.array([float(i), tag]), 1, tag) for i in range(3) for tag in (7, 2)]
        for work in works:
            work.wait()
    elif comm.rank == 1:
        for tag in (2, 7):
            for i in range(3):
                same(comm.recv(np.zeros(2), 0, tag), np.array([float(i), tag]))


def contract_isend_irecv(comm):
    for shape in ((0,), (3,), (100, 1000)):
        data = [pattern(r, int(np.prod(shape)), "f8").reshape(shape) for r in range(comm.size)]
        ins = {r: np.zeros(shape) for r in others(comm)}
        receives = {r: comm.irecv(ins[r], r, tag=comm.rank) for r in others(comm)}
        sends = [comm.isend(data[comm.rank], r, tag=r) for r in others(comm)]
        for r, work in receives.items():
            assert work.wait() is ins[r]
            assert work.done()
            same(ins[r], data[r])
        for work in sends:
            work.wait()


def contract_send_recv_around_a_ring(comm):
    if comm.size == 1:
        return
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for n in (0, 5, 80_000):
        out = np.zeros(n)
        assert comm.send_recv(pattern(comm.rank, n, "f8"), right, out, left) is out
        same(out, pattern(left, n, "f8"))


def contract_recv_wants_exactly_its_size(comm):
    """A longer or a shorter message is an error on the receiver; what was sent before and after arrives."""
    if comm.size == 1:
        return
    for n in (2, 5, 40_000):
        if comm.rank == 0:
            for x in (np.ones(1), np.ones(n), np.full(1, 2.0)):
                comm.send(x, 1, tag=3)
        elif comm.rank == 1:
            same(comm.recv(np.zeros(1), 0, 3), np.ones(1))
            out = np.zeros(3)
            with pytest.raises(
                ValueError, match=r"^rank 1: recv\(source=0, tag=3\) expected 3 float64, but the message holds "
            ):
                comm.recv(out, 0, 3)
            same(out, np.zeros(3))
            same(comm.recv(np.zeros(1), 0, 3), np.full(1, 2.0))


# -- objects ---------------------------------------------------------------------------------------------------------


def contract_objects_between_two(comm):
    things = [None, {"a": [1, 2.5, "x"]}, np.arange(70_000), b"x" * 150_000]
    for thing in things:
        if comm.rank == 0 and comm.size > 1:
            comm.send_obj(thing, 1, tag=4)
        elif comm.rank == 1:
            np.testing.assert_equal(comm.recv_obj(0, tag=4), thing)


def contract_objects_from_anyone(comm):
    if comm.rank == 0:
        found = sorted(comm.recv_obj(ANY) for _ in others(comm))
        assert found == [(r, "x" * r) for r in others(comm)]
    else:
        comm.send_obj((comm.rank, "x" * comm.rank), 0)


def contract_objects_and_arrays_do_not_mix(comm):
    if comm.size == 1:
        return
    if comm.rank == 0:
        work = comm.isend(np.array([3.0]), 1)
        comm.send_obj("object", 1)
        work.wait()
    elif comm.rank == 1:
        assert comm.recv_obj(0) == "object"
        same(comm.recv(np.zeros(1), 0), np.array([3.0]))


def contract_broadcast_and_gather_objects(comm):
    for root in range(comm.size):
        thing = {"root": root, "big": b"x" * 100_000} if comm.rank == root else "not read"
        assert comm.broadcast_obj(thing, root) == {"root": root, "big": b"x" * 100_000}
        found = comm.gather_obj("x" * comm.rank, root)
        assert found == (["x" * r for r in range(comm.size)] if comm.rank == root else None)
    parts = comm.all_gather_obj(np.arange(comm.rank))
    assert [part.tolist() for part in parts] == [list(range(r)) for r in range(comm.size)]


# -- split -----------------------------------------------------------------------------------------------------------


def contract_split_by_parity(comm):
    part = comm.split(comm.rank % 2)
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2]
    assert (part.size, part.rank) == (len(members), members.index(comm.rank))
    assert part.clock is comm.clock
    same(part.all_reduce(np.array([float(comm.rank)])), np.array([float(sum(members))]))
    same(comm.all_reduce(np.array([1.0])), np.array([float(comm.size)]))  # the whole still works
    if part.size > 1:
        if part.rank == 0:
            part.send(np.array([comm.rank]), 1)
        elif part.rank == 1:
            same(part.recv(np.zeros(1, int), 0), np.array([members[0]]))


def contract_split_orders_by_key(comm):
    part = comm.split(0, key=-comm.rank)
    assert part.rank == comm.size - 1 - comm.rank
    same(part.broadcast(np.array([comm.rank])), np.array([comm.size - 1]))


def contract_split_leaves_out_none(comm):
    part = comm.split(None if comm.rank == 0 else "rest")
    if comm.rank == 0:
        assert part is None
    else:
        assert part.size == comm.size - 1
        assert part.gather_obj(comm.rank) == (list(range(1, comm.size)) if part.rank == 0 else None)


def contract_split_twice_makes_a_mesh(comm):
    columns = 2
    row = comm.split(comm.rank // columns)
    column = comm.split(comm.rank % columns)
    total = column.all_reduce(row.all_reduce(np.array([1.0])))
    sizes = [len([r for r in range(comm.size) if r // columns == c // columns]) for c in range(comm.size)]
    assert total[0] == sum(sizes[r] for r in range(comm.rank % columns, comm.size, columns))
    assert row.split(0).size == row.size


# -- bad input: an error that says where, before anything is sent ----------------------------------------------------


def _refused(comm, kind, match, call, *args, **kwargs):
    with pytest.raises(kind, match=match) as caught:
        call(*args, **kwargs)
    assert str(caught.value).startswith(f"rank {comm.rank}: ")


ADVICE = r".*pass y = np\.ascontiguousarray\(x\), .* copy it back: x\[\.\.\.\] = y"
"""For arrays that are written to: a copy of them would get the result, and nobody would see it."""


def contract_bad_buffers_are_refused(comm):
    crooked, frozen, objects = np.zeros((4, 4)).T[:, :2], np.zeros(3), np.array([None])
    frozen.flags.writeable = False
    several = comm.reduce_scatter, comm.ireduce_scatter, comm.all_gather, comm.iall_gather, comm.broadcast, comm.gather
    for call in (comm.all_reduce, comm.iall_reduce, *several):
        has_form_for_objects = call in (comm.all_gather, comm.iall_gather, comm.broadcast, comm.gather)
        writes = call in (comm.all_reduce, comm.iall_reduce) or (call == comm.broadcast and comm.rank)
        advice = ADVICE * bool(writes)
        _refused(comm, ValueError, f"needs a contiguous array{advice}", call, crooked)
        _refused(comm, TypeError, f"takes an array, got list{';' if has_form_for_objects else '$'}", call, [1.0, 2.0])
        _refused(comm, TypeError, "cannot move an array of dtype object", call, objects)
    for call in (comm.all_reduce, comm.iall_reduce):
        _refused(comm, ValueError, "this array is read-only", call, frozen)
    rows = np.zeros((comm.size, 3))
    _refused(comm, ValueError, "this array is read-only", comm.scatter, rows, frozen)
    _refused(comm, ValueError, f"needs a contiguous array{ADVICE}", comm.scatter, rows, crooked)
    _refused(comm, ValueError, "one row per rank", comm.all_to_all, np.zeros((comm.size + 1, 2)))
    _refused(comm, ValueError, "one row per rank", comm.all_to_all, np.zeros(()))
    comm.barrier()


def contract_what_cannot_be_reduced_is_refused(comm):
    for dtype, op in (("datetime64[s]", "sum"), ("complex64", "max"), ("complex128", "min")):
        for call in (comm.all_reduce, comm.iall_reduce, comm.reduce_scatter, comm.ireduce_scatter):
            _refused(comm, TypeError, f"cannot form the {op} of arrays of dtype", call, np.zeros(2, dtype), op)
    _refused(comm, TypeError, "all_reduce writes into an array, got float64", comm.all_reduce, np.float64(1))
    comm.barrier()


def contract_bad_names_are_refused(comm):
    x = np.zeros(2)
    for call in (comm.all_reduce, comm.iall_reduce, comm.reduce_scatter, comm.ireduce_scatter):
        _refused(comm, ValueError, "op='mean', expected one of 'sum'", call, x, "mean")
    for root in (-1, comm.size, 0.5, "a"):
        _refused(comm, ValueError, "root=", comm.broadcast, x, root)
        _refused(comm, ValueError, "root=", comm.gather, x, root)
        _refused(comm, ValueError, "root=", comm.broadcast_obj, x, root)
    for peer in (-1, comm.size, 0.5, comm.rank):
        _refused(comm, ValueError, f"dest={peer}", comm.send, x, peer)
        _refused(comm, ValueError, f"dest={peer}", comm.isend, x, peer)
        _refused(comm, ValueError, f"dest={peer}", comm.send_obj, x, peer)
        _refused(comm, ValueError, f"dest={peer}", comm.send_recv, x, peer, x, peer)
        _refused(comm, ValueError, f"source={peer}", comm.recv, x, peer)
        _refused(comm, ValueError, f"source={peer}", comm.irecv, x, peer)
    comm.barrier()


def contract_reports_are_of_numbers(comm):
    assert comm.report(np.int64(1), 2, loss=0.5, name="x") is None
    _refused(comm, TypeError, "report: step is 'x', expected a number", comm.report, "x", 2)
    _refused(comm, TypeError, "report: total is 'y', expected a number", comm.report, 1, "y")
    comm.barrier()


def contract_bad_messages_are_refused(comm):
    for peer in others(comm):
        _refused(comm, ValueError, "send needs a contiguous array", comm.send, np.zeros((4, 4))[:, 1], peer)
        _refused(comm, TypeError, "send takes an array, got str; use send_obj", comm.send, "text", peer)
        for recv in (comm.recv, comm.irecv):
            _refused(comm, ValueError, f"recv needs a contiguous array{ADVICE}", recv, np.zeros((4, 4))[:, 1], peer)
        for tag in (-1, 0.5, 1 << 20, 1 << 40):
            _refused(comm, ValueError, f"tag={tag}, expected a whole number", comm.isend, np.zeros(1), peer, tag)
            _refused(comm, ValueError, f"tag={tag}, expected a whole number", comm.irecv, np.zeros(1), peer, tag)
            _refused(comm, ValueError, f"tag={tag}, expected a whole number", comm.send_obj, "text", peer, tag)
            _refused(comm, ValueError, f"tag={tag}, expected a whole number", comm.recv_obj, peer, tag)
    comm.barrier()


def contract_bad_scatter_is_refused_on_the_root(comm):
    """On one rank alone: where several scatter, the others would wait for the root forever."""
    if comm.size == 1:
        _refused(comm, ValueError, "scatter needs one row per rank", comm.scatter, np.zeros((2, 3)), np.zeros(3))
        _refused(comm, ValueError, "scatter sends rows of shape", comm.scatter, np.zeros((1, 3)), np.zeros(4))
        rows = np.zeros((1, 3))
        _refused(comm, ValueError, "scatter receives into memory that it sends", comm.scatter, rows, rows[0])


def contract_an_exchange_in_one_array_is_refused(comm):
    """Whether the old or the new numbers were sent would depend on the transport."""
    x = np.arange(10.0)
    for peer in others(comm):
        for sent, out in ((x, x), (x[:6], x[4:]), (x[4:], x[:6]), (x, x.reshape(2, 5)[1])):
            _refused(
                comm, ValueError, "send_recv receives into memory that it sends", comm.send_recv, sent, peer, out, peer
            )
    if comm.size > 1:
        x = np.full(4, float(comm.rank))
        comm.send_recv(x[:2], (comm.rank + 1) % comm.size, x[2:], (comm.rank - 1) % comm.size)
        same(x, np.repeat([float(comm.rank), float((comm.rank - 1) % comm.size)], 2))
        nothing = x[1:1]  # an empty part of an array shares no byte with it
        comm.send_recv(nothing, (comm.rank + 1) % comm.size, x[:0], (comm.rank - 1) % comm.size)
    comm.barrier()


CONTRACT = {name.removeprefix("contract_"): f for name, f in list(globals().items()) if name.startswith("contract_")}
ON_GPUS = [name for name in CONTRACT if name != "halves_are_added_exactly_and_rounded_once"]  # NCCL rounds at each hop


def run_all(comm, names=None) -> list[str]:
    """Run every contract on this rank; return the names of those that were run."""
    for name in names or CONTRACT:
        try:
            CONTRACT[name](comm)
        except BaseException as error:
            error.add_note(f"in contract_{name}, rank {comm.rank} of {comm.size}")
            raise
    return list(names or CONTRACT)
