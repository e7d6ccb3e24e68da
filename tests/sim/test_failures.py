"""Failures on the simulator: who notices what, and when."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import (
    CutOffError,
    Network,
    PeerLostError,
    RankError,
)
from distlearn.sim import Failure, Roofline, SimWorld
from distlearn.sim.failures import FailureTimeline

NETWORK = Network(1e-3, 1e9)


def world(size, *failures, **options):
    return SimWorld(size, NETWORK, Roofline(1e9), failures=failures, **{"detection": 1.0, **options})


def work(comm, seconds=1.0):
    with comm.clock.span("work", flops=seconds * 1e9):
        pass


def count_up(comm, steps=10):
    """All-reduce a one every second, until ranks are lost."""
    sums = []
    while len(sums) < steps:
        try:
            work(comm)
            sums.append(int(comm.all_reduce(np.ones(1))[0]))
        except PeerLostError as error:
            return sums, error.ranks, comm.clock.now()
    return sums, (), 0.0


def test_a_rank_alone_that_only_reports_is_lost_too():
    def program(comm):
        for step in range(1, 11):
            work(comm)
            comm.report(step, 10)

    assert world(1, Failure(0, 3.5, "kill")).run(program) == [None]
    with pytest.raises(RankError, match="rank 0 was cut off"):
        world(1, Failure(0, 3.5, "cut")).run(program)


@pytest.mark.parametrize("kind", ["kill", "hang", "cut"])
def test_a_lost_rank_is_noticed_after_the_detection_time(kind):
    def program(comm):
        try:
            return count_up(comm)
        except CutOffError as error:
            return str(error)

    w = world(4, Failure(1, 3.5, kind, until=9.0 if kind == "hang" else math.inf))
    results = w.run(program)
    for rank in (0, 2, 3):
        sums, ranks, when = results[rank]
        assert sums == [4] * 3
        assert ranks == (1,)
        assert when == pytest.approx(4.5, abs=0.01)
    story = {"hang": "rank 1 hung at 3.5 s", "cut": "rank 1 was cut off at 3.5 s"}
    if kind == "kill":
        assert results[1] is None
    else:
        assert results[1] == f"{story[kind]}: the others have continued without it since 4.5 s"
    assert [(loss.rank, loss.kind, loss.at, loss.noticed) for loss in w.losses] == [(1, kind, 3.5, 4.5)]
    (span,) = w.trace.select(lane="failure")
    assert (span.rank, span.name, span.start, span.end) == (1, kind, 3.5, 4.5)


def test_what_ends_before_the_detection_time_is_a_delay_that_nobody_notices():
    undisturbed = world(3, Failure(0, 1e9)).run(count_up)
    for kind in ("hang", "cut"):
        w = world(3, Failure(1, 2.5, kind, until=3.3))
        assert w.run(count_up) == undisturbed
        assert w.losses == []
    assert undisturbed[0] == ([3] * 10, (), 0.0)


def test_a_hang_costs_its_time():
    base = world(2, Failure(0, 1e9))
    base.run(count_up)
    hang = world(2, Failure(1, 2.5, "hang", until=3.0))
    hang.run(count_up)
    assert hang.makespan - base.makespan == pytest.approx(0.5)


def test_two_runs_are_the_same_bit_for_bit():
    def run():
        w = world(5, Failure(1, 2.2), Failure(4, 1.1, "cut"), Failure(0, 2.25, "hang", until=3.0))
        return w.run(survive), w.trace, w.makespan

    def survive(comm):
        try:
            return count_up(comm)
        except CutOffError:
            return "out"

    first, second = run(), run()
    assert first == second
    assert first[0][4] == "out"


def test_without_recovery_the_run_fails_and_names_the_lost_rank():
    with pytest.raises(RankError, match=r"rank \d: PeerLostError: .*rank 2 was killed at 1\.5 s") as caught:
        world(3, Failure(2, 1.5)).run(lambda comm: [comm.barrier() or work(comm) for _ in range(5)])
    assert isinstance(caught.value.original, PeerLostError)
    assert caught.value.original.ranks == (2,)


@pytest.mark.parametrize("nbytes", [8, 80_000])
def test_a_send_to_a_lost_rank_raises_and_what_was_sent_before_still_arrives(nbytes):
    def program(comm):
        x = np.ones(nbytes // 8)
        if comm.rank == 0:
            comm.send(x, 1)
            comm.clock.sleep(2.0)
            return None
        out = np.empty_like(x)
        comm.recv(out, 0)
        comm.clock.sleep(1.0)
        seen = [float(out.sum())]
        for call in (lambda: comm.send(x, 0), lambda: comm.recv(out, 0), lambda: comm.send_obj("x" * nbytes, 0)):
            try:
                call()
            except PeerLostError:
                seen.append(comm.clock.now())
        return seen

    w = world(2, Failure(0, 1.5))
    total, *times = w.run(program)[1]
    assert total == nbytes // 8
    assert times == [pytest.approx(2.5, abs=0.01)] * 3


def test_recv_obj_from_anyone_tells_of_every_loss_once_and_then_goes_on():
    """What a parameter server needs: a dead worker is reported, the others' messages keep coming."""

    def program(comm):
        if comm.rank:
            for i in range(4):
                work(comm, comm.rank / 2)
                comm.send_obj((comm.rank, i), 0)
            return None
        got, lost = [], []
        while len(got) < 4 + 4 * (2 - len(lost)):
            try:
                got.append(comm.recv_obj())
            except PeerLostError as error:
                lost.append((error.ranks, round(comm.clock.now(), 2)))
                got = [item for item in got if item[0] not in error.ranks]
        return got, lost

    got, lost = world(4, Failure(2, 2.5)).run(program)[0]
    assert lost == [((2,), 3.5)]
    assert sorted(got) == [(rank, i) for rank in (1, 3) for i in range(4)]


def test_split_communicators_know_of_their_own_losses_alone():
    def program(comm):
        part = comm.split(comm.rank % 2)
        sums = []
        try:
            for _ in range(6):
                work(comm)
                sums.append(int(part.all_reduce(np.ones(1))[0]))
        except PeerLostError as error:
            return sums, error.ranks
        return sums, ()

    results = world(4, Failure(3, 2.5)).run(program)
    assert results[0] == results[2] == ([2] * 6, ())
    assert results[1] == ([2, 2], (1,))


def test_a_collective_that_a_rank_is_lost_in_may_succeed_on_some_ranks_and_fail_on_others():
    outcomes = set()
    for seed in range(12):

        def program(comm):
            try:
                comm.all_reduce(np.ones(1_000_000))
            except PeerLostError:
                return "failed"
            return "succeeded"

        outcomes.add(tuple(world(4, Failure(2, 0.005), seed=seed).run(program)))
    assert {o[2] for o in outcomes} == {None}
    assert len(outcomes) > 4
    assert any({"failed", "succeeded"} <= set(o) for o in outcomes)


def test_a_failing_world_that_does_not_fail_counts_the_same_seconds_as_a_sound_one():
    def program(comm):
        x = np.full(1000, comm.rank, float)
        for _ in range(3):
            work(comm, 0.001 * (comm.rank + 1))
            comm.send_recv(x, (comm.rank + 1) % comm.size, np.empty_like(x), (comm.rank - 1) % comm.size)
            comm.all_reduce(x)
            comm.broadcast_obj("hello")
        if comm.rank:
            comm.send_obj(comm.rank, 0)
            return None
        return sorted(comm.recv_obj() for _ in range(comm.size - 1)), float(x.sum())

    sound = SimWorld(4, NETWORK, Roofline(1e9), collectives="formula")
    failing = world(4, Failure(0, 1e9))
    assert sound.run(program) == failing.run(program)
    assert failing.makespan == pytest.approx(sound.makespan, rel=1e-12)
    assert sorted(sound.trace.messages) == sorted(failing.trace.messages)


# -- what a failure is ------------------------------------------------------------------------------------------------


@given(
    start=st.floats(0, 10),
    seconds=st.floats(0, 10),
    at=st.floats(0, 10),
    length=st.floats(0.1, 5),
)
@settings(max_examples=60, deadline=None)
def test_work_is_later_by_the_part_of_a_hang_that_it_meets(start, seconds, at, length):
    end = FailureTimeline(0, [Failure(0, at, "hang", at + length)]).finish(start, seconds)
    met = at + length - max(at, start) if at < start + seconds and start < at + length else 0
    assert end == pytest.approx(start + seconds + met)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "explode"}, "kind is 'explode', expected one of kill, hang, cut"),
        ({"at": -1.0}, "at is -1.0"),
        ({"until": 1.0}, "until is 1.0, expected a number above 2.0"),
    ],
)
def test_a_wrong_failure_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Failure(**{"rank": 0, "at": 2.0, **options})


def test_a_failure_of_a_rank_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match=r"expected a Failure of a rank from 0 to 2"):
        SimWorld(3, failures=[Failure(3, 1.0)])
    with pytest.raises(ValueError, match="detection is 0"):
        SimWorld(3, detection=0)
