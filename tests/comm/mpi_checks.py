"""What MPIComm promises beyond the contract, as functions of a communicator of two ranks."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from distlearn.comm.base import CommError, CommTimeoutError
from distlearn.comm.mpi import MPIComm
from distlearn.comm.mpi.collectives import GUARDED
from distlearn.comm.network.fit import MESSAGE_SIZES, all_reduce_sweep, fastest, line, ping_pong


def fresh(comm, **options):
    """A communicator of their own for checks that leave something unfinished on it."""
    return MPIComm(comm.raw.Dup(), comm.clock, **options)


def check_timeout_names_what_is_waited_for(comm):
    part = fresh(comm, timeout=0.1)
    if comm.rank == 0:
        with pytest.raises(CommTimeoutError, match=r"rank 0: waited 0\.1 s for recv\(source=1, tag=9\) of 24 bytes"):
            part.recv(np.zeros(3), 1, tag=9)
        with pytest.raises(CommTimeoutError, match=r"recv_obj\(source=anyone, tag=0\)"):
            part.recv_obj()
        with pytest.raises(CommTimeoutError, match="barrier"):
            part.barrier()


def check_waiting_can_be_interrupted(comm):
    part = fresh(comm)
    if comm.rank == 0:

        def interrupt():
            while part.activity.waits_for is None:
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Thread(target=interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            part.recv(np.zeros(3), 1)
        assert str(part.activity.waits_for) == "recv(source=1, tag=0) of 24 bytes"
        timer.join()


def check_buffers_live_until_mpi_is_done(comm):
    """A receive whose wait was broken off is written to when the message comes: its memory must still be there."""
    part = fresh(comm, timeout=0.05)
    if comm.rank == 0:
        with pytest.raises(CommTimeoutError):
            part.irecv(np.zeros(1000), 1).wait()
        assert len(part.activity.pending) == 1
        comm.barrier()
        comm.barrier()
        (work,) = part.activity.pending
        work.wait()
        assert not part.activity.pending
    else:
        comm.barrier()
        part.send(np.ones(1000), 0)
        comm.barrier()


def check_waiting_leaves_the_core(comm):
    """Two seconds of waiting cost little processor time."""
    part = fresh(comm, timeout=2.0)
    if comm.rank == 0:
        before = time.process_time()
        with pytest.raises(CommTimeoutError):
            part.recv(np.zeros(3), 1)
        assert time.process_time() - before < 1.0


# what rank 0 does, what rank 1 does instead, and how the error names what rank 1 calls
MISUSE = {
    "scatter": (
        lambda c: c.scatter(np.ones((2, 3)), np.ones(3)),
        lambda c: c.scatter(None, np.ones(5)),
        r"scatter\(root=0, \(5,\), float64\)",
    ),
    "under way": (
        lambda c: [w.wait() for w in [c.iall_reduce(np.ones(3)), c.iall_reduce(np.ones(2))]],
        lambda c: [w.wait() for w in [c.iall_reduce(np.ones(2)), c.iall_reduce(np.ones(3))]],
        r"all_reduce\(op='sum', \(2,\), float64\)",
    ),
}


def check_different_calls_are_named_with_their_lines(comm):
    for what, (first, second, named) in MISUSE.items():
        part = fresh(comm, timeout=20.0)
        at = r" \(mpi_checks.py, line \d+, in <lambda>\)"
        with pytest.raises(
            CommError, match=rf"rank 1 calls {named}.*{at} where rank 0 calls .*{at}: every rank"
        ) as caught:
            (second if comm.rank else first)(part)
        assert type(caught.value) is CommError, what


def check_work_that_nobody_waits_for_is_named(comm):
    for start, name in (
        (lambda c: c.iall_reduce(np.ones(3)), "all_reduce of 24 bytes"),
        (lambda c: c.isend(np.ones(3), 1 - c.rank), r"send\(dest=., tag=0\) of 24 bytes"),
    ):
        part = MPIComm.begin(comm.raw.Dup())
        work = start(part)
        if name.startswith("send"):
            part.recv(np.ones(3), 1 - comm.rank)
        with pytest.raises(CommError, match=rf"{name} was started and never waited for \(mpi_checks.py, line \d+"):
            part.end()
        work.wait()
        part.end()


def check_arrays_are_compared_in_the_first_calls_of_a_line(comm):
    comm = fresh(comm, strict=True)
    for call in range(GUARDED + 1):
        x = np.ones(8)
        work = comm.iall_reduce(x)
        x[0] = 2
        if call == GUARDED:
            work.wait()
            continue
        with pytest.raises(CommError, match="the array given to iall_reduce was changed before wait"):
            work.wait()


def check_an_array_changed_before_wait_is_named(comm):
    comm = fresh(comm, strict=True)
    for name in ("iall_reduce", "ireduce_scatter", "iall_gather"):
        x = np.full(8, np.nan)
        work = getattr(comm, name)(x)
        x[0] = -x[0]
        with pytest.raises(CommError, match=f"the array given to {name} was changed before wait.*mpi_checks.py, line"):
            work.wait()
        x = np.full(8, np.nan)  # not equal to itself, but unchanged
        work = getattr(comm, name)(x)
        assert work.wait() is work.wait()


def check_calls_that_are_not_compared(comm):
    """A communicator that is not strict makes no exchange of its own."""
    part = fresh(comm, strict=False)
    part.all_reduce(np.ones(3))
    assert part.control is None


def check_strict_send_waits_for_its_receiver(comm):
    part = fresh(comm, strict=True, timeout=0.1)
    if comm.rank == 0:
        with pytest.raises(CommTimeoutError, match=r"waited 0\.1 s for send\(dest=1, tag=0\) of 8 bytes"):
            part.send(np.zeros(1), 1)


def check_standard_send_of_little_returns_at_once(comm):
    part = fresh(comm, timeout=5.0, strict=False)
    if comm.rank == 0:
        part.send(np.zeros(1), 1)
        comm.barrier()
    else:
        comm.barrier()
        part.recv(np.zeros(1), 0)


def check_bad_dtypes_are_refused(comm):
    for dtype, op in (("datetime64[s]", "sum"), (">f8", "sum"), ("complex64", "max"), ("S3", "sum")):
        with pytest.raises(TypeError, match=f"rank {comm.rank}: all_reduce cannot form the {op} of arrays of dtype"):
            comm.all_reduce(np.zeros(2, dtype), op)


def check_operations_are_recorded(comm):
    spans = comm.clock.trace.spans
    spans.clear()
    comm.all_reduce(np.zeros(10, np.float32))
    comm.reduce_scatter(np.zeros(8))
    comm.all_gather(np.zeros(3))
    comm.send_recv(np.zeros(5), 1 - comm.rank, np.zeros(5), 1 - comm.rank)
    comm.barrier()
    found = [(s.rank, s.lane, s.name, s.nbytes) for s in spans]
    sizes = [("all_reduce", 40), ("reduce_scatter", 64), ("all_gather", 48), ("send_recv", 40), ("barrier", 0)]
    assert found == [(comm.rank, "comm", name, nbytes) for name, nbytes in sizes]
    assert all(0 <= s.start <= s.end for s in spans)


def check_spans_of_a_part_carry_the_rank_of_the_world(comm):
    part = comm.split(comm.rank)
    comm.clock.trace.spans.clear()
    part.barrier()
    assert [(s.rank, s.name) for s in comm.clock.trace.spans] == [(comm.rank, "barrier")]


def check_parts_are_freed_when_no_rank_refers_to_them(comm):
    """MPI has 2,048 numbers, and a communicator that is split off takes five; ranks let go in orders of their own."""
    part, kept, rng = MPIComm.begin(comm.raw.Dup()), [], np.random.default_rng(comm.rank)
    for i in range(500):
        made = part.split(i % 3 * comm.rank, key=-comm.rank)
        inner = made.split(0)
        kept.append(inner)
        kept.append(made)
        if i % 50 == 0:
            total = inner.all_reduce(np.array([comm.rank + 1]))[0]
            assert total == (3 if inner.size == 2 else comm.rank + 1)
        while len(kept) > 20 or (kept and rng.random() < 0.5):
            kept.pop(rng.integers(len(kept)))
    assert len(part.activity._parts) < 100
    part.end()
    part.raw.Free()


def check_overlapped_span_lasts_from_start_to_end(comm):
    spans = comm.clock.trace.spans
    spans.clear()
    comm.barrier()
    work = comm.iall_reduce(np.zeros(200_000))
    with comm.clock.span("backward"):
        time.sleep(0.02)
    work.wait()
    by_name = {s.name: s for s in spans}
    assert by_name["all_reduce"].start <= by_name["backward"].start
    assert by_name["all_reduce"].end >= by_name["backward"].end


def check_messages_move_on_between_spans(comm):
    """The end of a span gets operations on: an all-reduce of several rounds ends without anybody waiting for it."""
    work = comm.iall_reduce(np.ones(200_000))
    deadline = time.perf_counter() + 10
    while work in comm.activity.pending and time.perf_counter() < deadline:
        with comm.clock.span("layer"):
            time.sleep(0.001)
    assert work not in comm.activity.pending
    work.wait()


def check_clocks_agree(comm):
    part = MPIComm.begin(comm.raw.Dup())
    looks = [time.perf_counter() - part.clock.now() for _ in range(20)]  # too low where the core was lost in between
    zeros = part.all_gather(np.array([max(looks)]))
    assert np.ptp(zeros) < 1e-3  # the same machine: the same clock
    assert not [s for s in part.clock.trace.spans if s.start < 0]


def check_a_forgotten_message_is_noticed(comm):
    part = MPIComm.begin(comm.raw.Dup(), strict=False)
    if comm.rank == 0:
        part.send(np.zeros(3), 1, tag=4)
        part.end()
    else:
        with pytest.raises(CommError, match="rank 1 never received the message of 24 bytes from rank 0, tag 4"):
            part.end()


def check_progress_comes_from_rank_0(comm):
    seen = []
    part = MPIComm(comm.raw.Dup(), report=lambda step, total, **values: seen.append((step, total, values)))
    part.report(1, 4, loss=2.0)
    part.split(0, key=-comm.rank).report(2, 4)
    assert seen == ([(1, 4, {"loss": 2.0}), (2, 4, {})] if comm.rank == 0 else [])


def check_the_network_can_be_measured(comm):
    times, sizes = ping_pong(comm, repeats=3), np.array(MESSAGE_SIZES, float)
    alpha, beta = comm.broadcast_obj(line(sizes, fastest(times)))
    assert 0 <= alpha < 1
    assert beta > 1e5
    found = all_reduce_sweep(comm, ("native", "ring"), (1 << 10, 1 << 16), 2)
    assert all((fastest(measured) > 0).all() for measured in found.values())


def run_all(comm) -> list[str]:
    names = [name for name in globals() if name.startswith("check_")]
    for name in names:
        try:
            globals()[name](comm)
            comm.barrier()
        except BaseException as error:
            error.add_note(f"in {name}, rank {comm.rank}")
            raise
    return names
