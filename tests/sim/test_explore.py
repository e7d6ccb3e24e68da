"""Every order that a network may show: against an interpreter that tries every interleaving, and on known mistakes."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import CommError, DeadlockError
from distlearn.comm.collectives import ring_all_reduce
from distlearn.sim import explore, run_in_order

ANY = -1


# -- an interpreter of small programs: one list of operations for each rank --------------------------------------------


def outcomes(program) -> set:
    """Try every interleaving, and every choice of what is buffered; return the ends that are possible.

    An end is "deadlock", "lost", or what every rank has received. A program is stuck when nothing but a buffer would
    help: a network need not have one.
    """
    size = len(program)
    found, seen = set(), set()
    # by rank: next operation, whether its message is on the way, what it got; and messages in flight, (source, dest)
    todo = [(((0, False, ()),) * size, ())]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        ranks, flight = state
        steps, buffers = [], []
        for r, (at, posted, got) in enumerate(ranks):
            if at == len(program[r]):
                continue
            kind, peer = program[r][at]
            if kind == "send" and not posted:
                steps.append((put(ranks, r, (at, True, got)), (*flight, (r, peer, at))))
            elif kind == "send" and (r, peer, at) in flight:
                buffers.append((put(ranks, r, (at + 1, False, got)), flight))
            elif kind == "recv":
                firsts = {}
                for source, dest, number in flight:
                    if dest == r and peer in (ANY, source):
                        firsts.setdefault(source, number)
                for source, number in firsts.items():
                    after = put(ranks, r, (at + 1, False, (*got, (source, number))))
                    if after[source][0] == number and after[source][1]:
                        after = put(after, source, (number + 1, False, after[source][2]))
                    left = tuple(m for m in flight if m != (source, r, number))
                    steps.append((after, left))
        waiting = [at < len(program[r]) and program[r][at][0] == "barrier" for r, (at, _, _) in enumerate(ranks)]
        if all(waiting):
            steps.append((tuple((at + 1, False, got) for at, _, got in ranks), flight))
        if steps:
            todo += steps + buffers
        elif all(at == len(program[r]) for r, (at, _, _) in enumerate(ranks)):
            found.add("lost" if flight else tuple(got for _, _, got in ranks))
        else:
            found.add("deadlock")
    return found


def put(items, i, value):
    return (*items[:i], value, *items[i + 1 :])


def interpreted(comm, program):
    """The same program on a communicator; messages are the numbers of the operations that sent them."""
    got = []
    for at, (kind, peer) in enumerate(program[comm.rank]):
        if kind == "send":
            comm.send_obj((comm.rank, at), peer)
        elif kind == "recv":
            got.append(comm.recv_obj() if peer == ANY else comm.recv_obj(peer))
        else:
            comm.barrier()
    return tuple(got)


@st.composite
def programs(draw):
    """Mostly programs whose sends and receives match in number, or no order would end."""
    size = draw(st.integers(2, 3))
    ops = [[] for _ in range(size)]
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 5)) == 0:
            for rank in range(size):
                ops[rank].append(("barrier", None))
            continue
        source = draw(st.integers(0, size - 1))
        dest = draw(st.sampled_from([r for r in range(size) if r != source]))
        ops[source].append(("send", dest))
        ops[dest].append(("recv", draw(st.sampled_from([ANY, source]))))
    for rank in range(size):  # swap two neighbours here and there: some programs deadlock, some lose messages
        if len(ops[rank]) > 1 and draw(st.integers(0, 3)) == 0:
            i = draw(st.integers(0, len(ops[rank]) - 2))
            ops[rank][i], ops[rank][i + 1] = ops[rank][i + 1], ops[rank][i]
    return ops


@given(programs())
@settings(max_examples=300, deadline=None)
def test_it_finds_what_every_interleaving_finds(program):
    want, found = outcomes(program), explore(interpreted, len(program), program)
    assert found.complete
    told = {type(run.error).__name__ for run in found.failures}
    assert ("deadlock" in want) == ("DeadlockError" in told)
    if "deadlock" in want:  # what happens where a network saves the program is of no interest
        return
    assert ("lost" in want) == ("CommError" in told)
    ends = {tuple(run.results) for run in found.runs if run.results is not None}
    assert ends == want - {"lost"}
    assert found.n_orders >= len(want)


# -- known mistakes ----------------------------------------------------------------------------------------------------


def head_to_head(comm):
    x, other = np.zeros(3), 1 - comm.rank
    comm.send(x, other)
    comm.recv(x, other)


def first_come(comm):
    if comm.rank == 0:
        return [comm.recv_obj() for _ in range(comm.size - 1)]
    return comm.send_obj(comm.rank, 0)


def added(comm):
    if comm.rank == 0:
        return sum(comm.recv_obj() for _ in range(comm.size - 1))
    return comm.send_obj(0.1 * comm.rank, 0)


def two_phases(comm, barrier):
    """Rank 0 collects two rounds; without a barrier, a rank's second message may be taken for one of the first."""
    if comm.rank == 0:
        first = [comm.recv_obj() for _ in range(comm.size - 1)]
        if barrier:
            comm.barrier()
        second = [comm.recv_obj() for _ in range(comm.size - 1)]
        assert (set(first), set(second)) == ({1}, {2}), "rounds are mixed"
        return
    comm.send_obj(1, 0)
    if barrier:
        comm.barrier()
    comm.send_obj(2, 0)


def buffered_matters(comm):
    """Rank 2's second message can only be in the race if its first is buffered."""
    if comm.rank == 0:
        first = comm.recv_obj()
        comm.recv_obj()
        comm.send_obj("go", 1)
        return first
    if comm.rank == 1:
        comm.recv_obj(0)
        comm.recv_obj(2)
        return None
    if comm.rank == 2:
        comm.send_obj("to 1", 1)
        comm.send_obj("from 2", 0)
        return None
    comm.send_obj("from 3", 0)
    return None


def test_head_to_head_sends_are_a_deadlock():
    found = explore(head_to_head, 2)
    assert isinstance(found.failure.error, DeadlockError)
    assert found.failure.waiting == {0: "send(dest=1, tag=0) of 24 bytes", 1: "send(dest=0, tag=0) of 24 bytes"}
    assert str(found).startswith("the only order fails; the shortest:")


def test_a_race_of_receives_is_found_and_can_be_repeated():
    found = explore(first_come, 3)
    assert not found.ok
    assert found.failure is None
    assert found.n_orders == 2
    assert run_in_order(first_come, 3, found.other.order).results == found.other.results == [[2, 1], None, None]
    assert found.first.results == [[1, 2], None, None]


def test_a_sum_is_the_same_in_every_order():
    found = explore(added, 4)
    assert found.ok
    assert found.complete
    assert found.n_orders == 6
    assert str(found) == "no deadlock, no lost message, the same result in all 6 orders"


def test_a_skipped_barrier_is_found():
    assert explore(two_phases, 3, True).ok
    found = explore(two_phases, 3, False)
    assert "rounds are mixed" in str(found.failure.error)
    assert "rounds are mixed" in str(run_in_order(two_phases, 3, found.failure.order, False).error)


def test_a_buffered_send_brings_another_message_into_the_race():
    found = explore(buffered_matters, 4)
    firsts = {run.results[0] for run in found.runs if run.results}
    order = next(run.order for run in found.runs if run.results and run.results[0] == "from 2")
    assert firsts == {"from 3", "from 2"}
    assert "buffer 2" in order


def test_collectives_and_messages_that_are_not_waited_for():
    def sums(comm):
        work = comm.iall_reduce(np.full(3, float(comm.rank)))
        if comm.rank == 0:
            who = {comm.recv_obj() for _ in range(comm.size - 1)}
            assert who == set(range(1, comm.size))
        else:
            comm.send_obj(comm.rank, 0)
        return work.wait()

    found = explore(sums, 3)
    assert found.ok
    assert found.n_orders == 2

    def lost(comm):
        if comm.rank == 0:
            comm.isend(np.zeros(1), 1)

    assert "never" in str(explore(lost, 2).failure.error)


def test_bounds_are_kept():
    found = explore(first_come, 4, max_runs=3)
    assert not found.complete
    assert found.n_runs == 3
    assert "stopped after 3 runs" in str(found)

    def endless(comm):
        while True:
            comm.barrier()

    assert "more than 500 operations" in str(explore(endless, 2, max_steps=500).failure.error)
    with pytest.raises(ValueError, match="of 1 or more and up to 4"):
        explore(added, 5)


def test_an_order_that_cannot_be_is_named():
    refused = str(run_in_order(first_come, 3, ["2->1"]).error)
    assert '"2->1" is not possible here, expected one of 1->0, 2->0' in refused
    with pytest.raises(ValueError, match='expected for example "2->0"'):
        run_in_order(first_come, 3, ["2 to 0"])


def test_polling_is_refused():
    def polls(comm):
        if comm.rank == 0:
            work = comm.irecv(np.zeros(1), 1)
            while not work.done():
                pass
        else:
            comm.send(np.zeros(1), 0)

    assert "use wait()" in str(explore(polls, 2).failure.error)


def test_receives_that_name_their_source_leave_one_order():
    found = explore(lambda comm: ring_all_reduce(comm, np.arange(8.0) * comm.rank).tolist(), 4)
    assert (found.ok, found.complete, found.n_orders) == (True, True, 1)
    assert str(found) == "no deadlock, no lost message, the same result in the only order"
    assert found.first.n_interleavings > 10**9, "24 messages of ranks that do not wait for each other"


def test_a_replayed_order_says_what_else_was_possible():
    run = run_in_order(buffered_matters, 4, ["buffer 2", "2->0"])
    assert run.results[0] == "from 2"
    assert run.options[0] == ["3->0", "buffer 2", "buffer 3"]
    assert run.order == ["buffer 2", "2->0", "3->0"]
    assert isinstance(run_in_order(two_phases, 3, ["1->0", "1->0"], False).error, CommError)
    run = run_in_order(first_come, 3, ["1->0", "1->0"])
    assert "not possible here" in str(run.error)
    assert (run.order, run.options[1]) == (["1->0"], ["2->0", "buffer 2"])


def test_interleavings_are_counted_as_listing_them_does():
    def chain(comm):
        if comm.rank == 0:
            return [comm.recv_obj() for _ in range(2)]
        comm.send_obj(comm.rank, 0)
        return comm.recv_obj(1) if comm.rank == 2 else comm.send_obj("on", 2)

    run = run_in_order(chain, 3, ["2->0"])
    assert len(run.events) == 6
    listed = 0
    for sequence in permutations(run.events):
        at = {(e.rank, e.kind, e.message): i for i, e in enumerate(sequence)}
        own = all(
            [e for e in sequence if e.rank == rank] == [e for e in run.events if e.rank == rank] for rank in range(3)
        )
        sends_first = all(
            at[e.peer, "send", e.message] < at[e.rank, "receive", e.message] for e in run.events if e.kind == "receive"
        )
        listed += own and sends_first
    assert run.n_interleavings == listed > 1
    apart = run_in_order(lambda comm: None, 3)
    assert apart.n_interleavings == math.factorial(0)


def test_without_a_decision_messages_come_in_the_order_of_sending():
    """Rank 1's second message is sent when its first has been received: after rank 2's first."""
    assert run_in_order(two_phases, 3, (), False).error is None
    assert "rounds are mixed" in str(run_in_order(two_phases, 3, ["1->0", "1->0"], False).error)
