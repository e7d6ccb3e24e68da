"""The simulator: time, order, strictness, errors, cleanliness."""

import gc
import threading

import greenlet
import numpy as np
import pytest

from distlearn.comm import ANY, DeadlockError, Network, RankError
from distlearn.sim import Free, Measured, MetaArray, Roofline, SimWorld

SLOW = Network(alpha=1e-3, beta=1e6)  # 1 ms, 1 MB/s: numbers that are easy to follow


def test_a_message_takes_alpha_plus_n_over_beta():
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(125), 1)  # 1000 bytes: 1 ms + 1 ms
        else:
            comm.recv(np.empty(125), 0)
        return comm.clock.now()

    world = SimWorld(2, SLOW)
    assert world.run(program) == pytest.approx([2e-3, 2e-3])
    (message,) = world.trace.messages
    assert (message.source, message.dest, message.nbytes) == (0, 1, 1000)
    assert (message.sent, message.arrived) == pytest.approx((0.0, 2e-3))


@pytest.mark.parametrize("number", [int, np.float32, np.float64])
def test_clocks_run_on_any_kind_of_number(number):
    """Times that NumPy computed come into the clock through `sleep` and through the work of a span."""

    def program(comm):
        comm.clock.sleep(number(comm.rank))
        with comm.clock.span("work", flops=number(1)):
            pass
        out = np.empty(1)
        comm.send_recv(np.array([1.0 * comm.rank]), (comm.rank + 1) % 3, out, (comm.rank - 1) % 3)
        comm.send(out, 2) if comm.rank == 0 else comm.recv(out, 0) if comm.rank == 2 else None
        work = comm.iall_reduce(out)
        return work.wait()[0], float(comm.clock.now())

    world = SimWorld(3, Network(number(1), number(1000)), Roofline(number(2)))
    assert world.run(program) == SimWorld(3, Network(1.0, 1e3), Roofline(2.0)).run(program)


def test_a_late_receiver_holds_the_sender_up():
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(125), 1)
        else:
            comm.clock.sleep(0.5)
            comm.recv(np.empty(125), 0)
        return comm.clock.now()

    assert SimWorld(2, SLOW).run(program) == pytest.approx([0.5, 0.5])


def test_sends_of_one_rank_share_its_network_card():
    def program(comm):
        if comm.rank == 0:
            works = [comm.isend(np.zeros(125), dest) for dest in (1, 2, 3)]
            for work in works:
                work.wait()
        else:
            comm.recv(np.empty(125), 0)
        return comm.clock.now()

    assert SimWorld(4, SLOW).run(program)[1:] == pytest.approx([2e-3, 3e-3, 4e-3])


@pytest.mark.parametrize("collectives", ["messages", "formula"])
def test_an_exchange_is_a_span_until_both_halves_are_done(collectives):
    def program(comm):
        comm.clock.sleep(3e-3 * comm.rank)
        comm.send_recv(np.zeros(125), 1 - comm.rank, np.empty(125), 1 - comm.rank)
        comm.all_reduce(np.zeros(125))

    world = SimWorld(2, SLOW, collectives=collectives)
    world.run(program)
    found = {s.rank: s for s in world.trace.select(name="send_recv")}
    assert len(world.trace.select(name="send_recv")) == 2, "one on each rank: none for the messages of a collective"
    assert [(s.lane, s.nbytes) for s in found.values()] == [("comm", 1000)] * 2
    assert (found[0].start, found[0].end) == pytest.approx((0, 5e-3)), "rank 0 waits for rank 1"
    assert (found[1].start, found[1].end) == pytest.approx((3e-3, 5e-3))


def test_spans_stand_in_the_order_of_their_ends_whenever_the_trace_is_read():
    def program(comm):
        other, x = 1 - comm.rank, np.zeros(2)
        for step in range(2):
            with comm.clock.span(f"compute {step}"):
                comm.clock.sleep(1.0)
            comm.send_recv(x, other, np.empty(2), other)
        comm.barrier()

    world = SimWorld(2, Network(1e-6, 1e9))
    world.run(program)
    names = [s.name for s in world.trace.spans if s.rank == 1]
    assert names == ["compute 0", "send_recv", "compute 1", "send_recv", "barrier"]
    assert len(world.trace.spans) == 10


def test_meta_arrays_and_arrays_of_their_own_are_not_compared(monkeypatch):
    import distlearn.sim.communicator as module

    monkeypatch.setattr(module, "check_apart", lambda *given: pytest.fail("a comparison for every message"))
    x = MetaArray(4)
    SimWorld(2).run(lambda comm: comm.send_recv(x[:2], 1 - comm.rank, x[2:], 1 - comm.rank))
    SimWorld(2).run(lambda comm: comm.send_recv(np.ones(2), 1 - comm.rank, np.ones(2), 1 - comm.rank))


@pytest.mark.parametrize("n", [1, 100_000])
def test_send_before_receive_in_a_ring_is_a_deadlock_at_any_size(n):
    def ring(comm):
        x = np.ones(n)
        comm.send(x, (comm.rank + 1) % comm.size)
        x[:] = comm.rank  # sent already: what arrives is still 1
        got = np.empty(n)
        comm.recv(got, (comm.rank - 1) % comm.size)
        return got.mean()

    with pytest.raises(DeadlockError) as caught:
        SimWorld(3).run(ring)
    for rank in range(3):
        assert f"rank {rank} waits for send(dest={(rank + 1) % 3}, tag=0)" in str(caught.value)
    assert "test_world.py, line" in str(caught.value)
    assert SimWorld(3, eager_limit=8 * n).run(ring) == [1] * 3


@pytest.mark.parametrize("path", ["/tmp/ipykernel_4711/2718281828.py", "<ipython-input-3-ce50b290c0fc>"])
def test_deadlock_in_a_notebook_names_the_line_and_not_the_cells_secret_file(path):
    namespace = {"np": np}
    exec(compile("def program(comm):\n    comm.recv(np.empty(3), 1 - comm.rank)", path, "exec"), namespace)
    with pytest.raises(DeadlockError, match=r"of 24 bytes \(line 2, in program\)"):
        SimWorld(2).run(namespace["program"])


def test_arguments_in_the_wrong_order_are_named():
    for call in ("send", "recv"):
        with pytest.raises(RankError, match=r"(dest|source)=array\(\[.*expected a rank from 0 to 1"):
            SimWorld(2).run(lambda comm, call=call: getattr(comm, call)(1 - comm.rank, np.ones(2)))
    with pytest.raises(RankError, match=r"root=<ndarray of shape \(2, 50\)>, expected a rank from 0 to 1"):
        SimWorld(2).run(lambda comm: comm.gather(np.ones(50), np.empty((2, 50))))  # gather makes its result itself


class Log(list):
    """Of all ranks together."""

    shared_by_ranks = True


def test_an_error_unwinds_everybody_and_surfaces_with_its_rank():
    unwound = Log()

    def program(comm):
        try:
            if comm.rank == 2:
                comm.clock.sleep(1)
                raise KeyError("weights")
            comm.recv(np.empty(1), 2)
        finally:
            unwound.append(comm.rank)

    with pytest.raises(RankError, match="rank 2: KeyError: 'weights'") as caught:
        SimWorld(4).run(program)
    assert caught.value.rank == 2
    assert isinstance(caught.value.original, KeyError)
    assert sorted(unwound) == [0, 1, 2, 3]


def test_ranks_run_in_the_order_of_time_and_rank_whoever_was_woken_first():
    ran = Log()

    def program(comm):
        for seconds in np.random.default_rng(comm.rank).integers(1, 4, size=30):
            comm.clock.sleep(float(seconds))
            ran.append((comm.clock.now(), comm.rank))

    SimWorld(9).run(program)
    assert len(ran) == 9 * 30
    assert ran == sorted(ran)


def test_code_that_swallows_the_unwinding_is_still_ended():
    def program(comm):
        if comm.rank == 1:
            raise ValueError("enough")
        while True:
            try:
                comm.recv(np.empty(1), 1)
            except BaseException:
                comm.tries = getattr(comm, "tries", 0) + 1
                if comm.tries > 3:
                    return

    with pytest.raises(RankError, match="enough"):
        SimWorld(2).run(program)


def test_nothing_is_left_behind():
    def count():
        gc.collect()
        return sum(isinstance(o, greenlet.greenlet) and not o.dead for o in gc.get_objects())

    fibres, threads = count(), threading.active_count()
    SimWorld(50).run(lambda comm: comm.barrier())
    with pytest.raises(RankError):
        SimWorld(50).run(lambda comm: comm.barrier() if comm.rank else 1 / 0)
    assert count() == fibres
    assert threading.active_count() == threads


def test_the_callers_context_holds_on_every_rank():
    with np.errstate(divide="raise"), pytest.raises(RankError, match="rank 0: FloatingPointError"):
        SimWorld(2).run(lambda comm: np.ones(1) / np.zeros(1))
    with np.errstate(divide="ignore"):
        assert SimWorld(1).run(lambda comm: float((np.ones(1) / np.zeros(1))[0])) == [np.inf]


def asynchronous(comm, rounds=20):
    """A server that takes from anyone: the order is decided by virtual time alone."""
    if comm.rank == 0:
        order = []
        for _ in range(rounds * (comm.size - 1)):
            source, _ = comm.recv_obj(ANY)
            order.append(source)
            comm.send_obj("go on", source)
        return order
    for i in range(rounds):
        with comm.clock.span("compute", flops=1e6):
            pass
        comm.send_obj((comm.rank, i), 0)
        comm.recv_obj(0)


def test_two_runs_are_the_same_bit_for_bit():
    def run():
        world = SimWorld(6, SLOW, Roofline(1e9), slowdown={3: 4.0}, jitter=0.3, seed=5)
        return world.run(asynchronous)[0], world.trace

    (order, trace), (again, trace_again) = run(), run()
    assert order == again
    assert trace == trace_again
    assert len(set(order[:10])) > 1


def test_any_source_takes_what_arrives_first_even_if_it_was_sent_later():
    def program(comm):
        if comm.rank == 0:
            return [comm.recv_obj(ANY) for _ in range(2)]
        comm.clock.sleep(10.0 if comm.rank == 1 else 1.0)
        comm.send_obj(comm.rank, 0)

    assert SimWorld(3).run(program)[0] == [2, 1]


def test_a_span_costs_what_the_compute_model_says():
    def program(comm):
        with comm.clock.span("work", flops=2e9, nbytes=1e9):
            pass
        return comm.clock.now()

    assert SimWorld(1, compute=Free()).run(program) == [0.0]
    assert SimWorld(1, compute=Roofline(1e9, 1e9)).run(program) == [2.0]
    assert SimWorld(1, compute=Roofline(1e9, 1e8)).run(program) == [10.0]
    assert SimWorld(2, compute=Roofline(1e9), slowdown={1: 4}).run(program) == [2.0, 8.0]


def test_measured_counts_only_the_ranks_own_time():
    def program(comm):
        with comm.clock.span("wait and work"):
            if comm.rank == 0:
                comm.recv(np.empty(1), 1)
            else:
                total = 0
                for i in range(300_000):
                    total += i
                comm.send(np.ones(1), 0)
        return comm.clock.now()

    waited, worked = SimWorld(2, compute=Measured()).run(program)
    assert waited < worked / 2


def span(comm, **amounts):
    with comm.clock.span("work", **amounts):
        pass


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda c: c.clock.sleep(np.inf), r"sleep\(inf\), expected 0 seconds or more, and finite"),
        (lambda c: span(c, flops=np.nan), "span .work. with flops=nan, nbytes=0 takes nan s"),
        (lambda c: span(c, flops=-1e9), "with flops=-1000000000.0, nbytes=0 takes .*, expected amounts of 0 or more"),
        (lambda c: span(c, flops=1, nbytes=-1), "with flops=1, nbytes=-1 takes"),
        (lambda c: span(c, nbytes=np.inf), "with flops=0, nbytes=inf takes inf s"),
    ],
)
def test_no_clock_stands_at_what_is_no_time(work, message):
    """Infinity in a trace is no JSON, and a clock that is NaN stays so."""
    with pytest.raises(RankError, match=message):
        SimWorld(1, compute=Roofline(1e9, 1e9)).run(work)
    with pytest.raises(ValueError, match="Network: alpha is inf, expected a number of 0 or more and finite"):
        Network(alpha=np.inf)


def test_polling_moves_the_clock():
    def program(comm):
        if comm.rank == 0:
            work, polls = comm.irecv(np.empty(1), 1), 0
            while not work.done():
                polls += 1
            return polls
        comm.clock.sleep(1e-4)
        comm.send(np.ones(1), 0)

    assert 90 <= SimWorld(2).run(program)[0] <= 110


def test_4096_ranks_meet():
    assert SimWorld(4096).run(lambda comm: float(comm.all_reduce(np.ones(1))[0])) == [4096.0] * 4096


@pytest.mark.parametrize("size", [0, -1, 1.5, "4", True])
def test_a_bad_size_is_named(size):
    with pytest.raises(ValueError, match="SimWorld: size is"):
        SimWorld(size)


def test_costs_by_name():
    world = SimWorld(2, "ethernet-10g", "V100")
    assert (world.network, world.compute) == (Network.preset("ethernet-10g"), Roofline.of("V100"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"network": "token-ring"}, ValueError, "'token-ring', expected one of"),
        ({"compute": "Voodoo"}, ValueError, "card is 'Voodoo', expected a Card or one of T4"),
        ({"network": 1e9}, TypeError, r"the network is 1000000000\.0, expected a Network or the name of one"),
        ({"compute": 1e9}, TypeError, r"compute is 1000000000\.0, expected a model of costs"),
        ({"jitter": -0.1}, ValueError, r"jitter is -0\.1, expected a number of 0 or more"),
        ({"eager_limit": -1}, ValueError, "eager_limit is -1, expected a number of 0 or more"),
        ({"jitter": np.inf}, ValueError, "jitter is inf, expected a number of 0 or more and finite"),
        ({"slowdown": {0: np.inf}}, ValueError, "slowdown: factor is inf, expected a number above 0 and finite"),
        ({"slowdown": {7: 2}}, ValueError, "slowdown: rank is 7, expected a whole number of 0 or more and below 2"),
    ],
)
def test_costs_that_are_none_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        SimWorld(2, **options)
    for make, text in ((Roofline, "peak is -1"), (Measured, "Measured: scale is -1, expected a number of 0 or more")):
        with pytest.raises(ValueError, match=text):
            make(-1)
