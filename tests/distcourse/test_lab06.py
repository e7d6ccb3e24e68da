"""Lab 06's experiments: collectives counted and judged, links that are slow, a given all-reduce in training."""

import contextlib
import io

import numpy as np
import pytest
from distcourse import lab06 as messages
from distcourse.check import Check, CheckFailed
from distcourse.lab06 import NAMES

import distlearn as dl
from distlearn.comm import Network, collectives
from distlearn.comm.network import cost
from distlearn.comm.network.fit import line

ALGORITHMS = {name: getattr(collectives, function) for name, function in NAMES.items()}


def judged(judge, *args, **kwargs) -> str:
    """Return what a check says."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(CheckFailed), Check("answer") as check:
        judge(check, *args, **kwargs)
    return out.getvalue()


def mine(function):
    """The library's function as an answer."""
    return lambda comm, *args: function(comm, *args)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, 3, 6, 8])
def test_the_counts_are_the_formulas(name, size):
    found = messages.counted(ALGORITHMS[name], size, 1000)
    assert found.messages == cost.messages(NAMES[name], 8000, size)
    assert found.nbytes == cost.nbytes(NAMES[name], 8000, size)
    assert found.rounds <= cost.seconds(NAMES[name], 8000, size, Network(1.0))


def test_a_star_sends_everything_through_one_rank():
    star, ring = (messages.counted(ALGORITHMS[name], 8, 1000) for name in ("star", "ring"))
    assert star.nbytes == ring.nbytes == 2 * 8000 * 7
    assert star.busiest == star.nbytes
    assert ring.busiest == ring.nbytes / 4


def own_only(comm, x):
    return x


def everyone_to_everyone(comm, x):
    total = x.copy()
    for step in range(1, comm.size):
        got = np.empty_like(x)
        comm.send_recv(x, (comm.rank + step) % comm.size, got, (comm.rank - step) % comm.size)
        total += got
    x[...] = total


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_pass_and_wrong_ones_are_named(name):
    assert "✗" not in judged(messages.check_all_reduce, mine(ALGORITHMS[name]), name, 5, (2, 3), "float32")
    assert "nothing was changed" in judged(messages.check_all_reduce, own_only, name, 3)
    found = judged(messages.check_all_reduce, everyone_to_everyone, name, 4)
    assert "✗ messages" in found or "✗ bytes" in found, "the sum is right, but it costs more"


def test_a_broadcast_from_rank_to_rank_is_no_tree():
    assert "✗" not in judged(messages.check_broadcast, mine(collectives.tree_broadcast), 6, 2)
    found = judged(messages.check_broadcast, mine(collectives.flat_broadcast), 6, 2)
    assert "5 messages wait for each other, 3 suffice" in found


def test_rows_in_the_wrong_order_are_named():
    pair = [mine(collectives.flat_scatter), mine(collectives.flat_gather)]
    assert "✗" not in judged(messages.check_scatter_gather, *pair, 4, 1)

    def backwards(comm, x, root):
        rows = collectives.flat_gather(comm, x, root)
        return None if rows is None else rows[::-1].copy()

    assert "order of ranks" in judged(messages.check_scatter_gather, pair[0], backwards, 4, 1)


def test_a_formula_with_whole_messages_is_no_ring():
    def seconds(name, n, p, alpha, beta):
        return 2 * (p - 1) * (alpha + n / beta)

    assert "n / p bytes" in judged(messages.check_seconds, seconds, "ring", 1e6, 4, 1e-3, 1e8)

    def right(name, n, p, alpha, beta):
        return cost.seconds(NAMES[name], n, p, Network(alpha, beta))

    for name in NAMES:
        assert "✗" not in judged(messages.check_seconds, right, name, 1e6, 6, 1e-3, 1e8)


def a_ring(comm, x, first=1, passes=True, add=False, new=False):
    """A ring all-reduce, or one with a mistake."""
    p, r = comm.size, comm.rank
    parts, right, left = np.array_split(x.reshape(-1), p), (r + 1) % p, (r - 1) % p
    for s in range(p - 1):
        k = (r - s - 1) % p
        got = np.empty_like(parts[k])
        comm.send_recv(parts[(r - s) % p], right, got, left)
        if new:
            parts[k] = parts[k] + got
        else:
            parts[k] += got
    for s in range(p - 1 if passes else 0):
        k = (r + first - s - 1) % p
        got = np.empty_like(parts[k])
        comm.send_recv(parts[(r + first - s) % p], right, got, left)
        parts[k][...] = parts[k] + got if add else got


def whole_arrays(comm, x):
    """Recursive doubling: whole arrays in every round."""
    d = 1
    while d < comm.size:
        got = np.empty_like(x)
        comm.send_recv(x, comm.rank ^ d, got, comm.rank ^ d)
        x += got
        d *= 2


def around(comm, x):
    """Whole arrays around a ring."""
    mine = x.copy()
    for _ in range(comm.size - 1):
        got = np.empty_like(x)
        comm.send_recv(mine, (comm.rank + 1) % comm.size, got, (comm.rank - 1) % comm.size)
        x += got
        mine = got


def only_up(comm, x):
    """A tree without its way down."""
    d = 1
    while d < comm.size:
        if comm.rank % (2 * d) == d:
            return comm.send(x, comm.rank - d)
        if comm.rank + d < comm.size:
            got = np.empty_like(x)
            comm.recv(got, comm.rank + d)
            x += got
        d *= 2
    return None


RING = {
    "": {},
    "the first phase adds": {"first": 0},
    "it replaces the part, and is not added": {"add": True},
    "puts a new array into the list": {"new": True},
    "half of the steps": {"passes": False},
}


@pytest.mark.parametrize("told", RING)
@pytest.mark.parametrize("size", [3, 4, 5])
def test_mistakes_of_a_ring_are_named(told, size):
    found = judged(messages.check_all_reduce, lambda comm, x: a_ring(comm, x, **RING[told]), "ring", size, (10,))
    assert told in found
    assert ("✗" in found) == bool(told)
    assert [text for text in RING if text and text in found] == [told] * bool(told)


def test_what_sends_whole_arrays_has_not_forgotten_half():
    for name, function in (("ring", around), ("halving", whole_arrays)):
        found = judged(messages.check_all_reduce, function, name, 4)
        assert "half of the" not in found
        assert "every message is a whole array" in found
    assert "exchange halves of what is left" in judged(messages.check_all_reduce, whole_arrays, "halving", 8)
    assert "must come down again" in judged(messages.check_all_reduce, only_up, "tree", 6)


def test_a_fit_is_of_relative_errors_with_alpha_first():
    def right(nbytes, times):
        a = np.stack([1 / times, nbytes / times], axis=1)
        alpha, slope = np.linalg.lstsq(a, np.ones(len(times)), rcond=None)[0]
        return alpha, 1 / slope

    def absolute(nbytes, times):
        slope, alpha = np.polyfit(nbytes, times, 1)
        return alpha, 1 / slope

    def judge(fit, noise=0.1):
        return judged(messages.check_fit, fit, 2e-5, 1e9, noise)

    assert "✗" not in judge(right)
    assert "divide each equation by its t" in judge(absolute)
    assert "alpha comes first" in judge(lambda n, t: right(n, t)[::-1])
    slope = judge(lambda n, t: (right(n, t)[0], 1 / right(n, t)[1]))
    assert "the slope is seconds per byte" in slope
    assert "alpha comes first" not in slope


def test_formulas_of_one_rank_and_of_whole_arrays_beyond():
    def free(name, n, p, alpha, beta):
        return 3.0 if p == 1 else 2 * 2 * alpha + 2 * 3 / 4 * n / beta + alpha + n / beta

    assert "on one rank nothing is sent" in judged(messages.check_seconds, free, "star", 1e6, 1, 1e-3, 1e8)
    assert "two of them" in judged(messages.check_seconds, free, "halving", 1e6, 6, 1e-3, 1e8)


def test_a_slow_link_has_the_times_of_the_formulas():
    sizes, link = [16, 4096, 40_000], (2e-3, 1e6)
    pinged, found = dl.SimWorld(4).run(messages.measure, ALGORITHMS, sizes, 2, link)[0]
    np.testing.assert_allclose(line(np.array(sizes, float), pinged), link)
    for name, times in found.items():
        expected = [cost.seconds(NAMES[name], n, 4, Network(*link)) for n in sizes]
        np.testing.assert_allclose(times, expected, rtol=1e-9, err_msg=name)
    with pytest.raises(ValueError, match="above 0 bytes/s"):
        messages.measure(None, {}, sizes, 2, (1e-3, 0))


def test_measured_bare_the_simulator_gives_its_own_network():
    network = Network(1e-4, 1e8, contention="ports")
    pinged, found = dl.SimWorld(3, network).run(messages.measure, {"ring": ALGORITHMS["ring"]}, [24, 3000], 2)[0]
    np.testing.assert_allclose(pinged, [network.message(24), network.message(3000)])
    np.testing.assert_allclose(found["ring"], [4 * network.message(8), 4 * network.message(1000)])


def test_a_given_all_reduce_trains_as_the_librarys():
    used = []

    def sums(comm, x):
        used.append(x.size)
        collectives.ring_all_reduce(comm, x)

    def train(comm, all_reduce=None):
        if all_reduce:
            comm = messages.WithCollectives(comm, all_reduce=all_reduce)
        assert comm.all_reduce(np.array([float(comm.rank)]), "max")[0] == comm.size - 1
        model = dl.nn.MLP((64, 8, 10), dtype="float64")
        optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1)
        strategy = dl.DataParallel(comm, model, dl.nn.SoftmaxCrossEntropy(), optimizer)
        return dl.fit(strategy, dl.data.load("digits", dtype="float64").take(200), epochs=1, batch_size=50).losses

    np.testing.assert_allclose(dl.SimWorld(3).run(train, sums)[0], dl.SimWorld(3).run(train)[0], rtol=1e-12)
    assert max(used) > 500, "the gradients went through the given function"


def test_given_collectives_take_the_place_of_the_librarys():
    used = []

    def noting(name):
        function = getattr(collectives, f"flat_{name}")
        return lambda comm, *args: used.append(name) or function(comm, *args)

    def moves(comm, *names):
        comm = messages.WithCollectives(comm, **{name: noting(name) for name in names})
        weights = comm.broadcast(np.full(2, float(comm.rank)), 1)
        mine = comm.scatter(np.arange(6.0).reshape(3, 2) if comm.rank == 0 else None, np.empty(2))
        rows = comm.gather(weights + mine)
        return rows if rows is None else rows.tolist()

    names = ("broadcast", "scatter", "gather")
    given, own = dl.SimWorld(3).run(moves, *names), dl.SimWorld(3).run(moves)
    assert given == own == [[[1, 2], [3, 4], [5, 6]], None, None]
    assert sorted(used) == sorted(3 * names)
    with pytest.raises(dl.CommError, match="expected all_reduce, broadcast, scatter or gather"):
        dl.SimWorld(1).run(lambda comm: messages.WithCollectives(comm, reduce=None))


def wants_1_first(comm):
    if comm.rank == 0:
        return [comm.recv_obj(), comm.recv_obj(2)]
    return comm.send_obj(comm.rank, 0)


def takes_all(comm):
    return sum(comm.recv_obj() for _ in range(2)) if comm.rank == 0 else comm.send_obj(comm.rank, 0)


def test_an_order_is_judged_by_what_comes_of_it():
    def says(program, order):
        return judged(messages.check_order, "program", program, 3, order)

    assert "✓ program: broken by 1 decision" in says(wants_1_first, ["2->0"])
    assert "ends well" in says(wants_1_first, ["1->0"])
    assert "not possible here" in says(wants_1_first, ["0->2"])
    assert "is not a decision" in says(wants_1_first, ["2 to 0"])
    assert "there is an order that breaks it" in says(wants_1_first, None)
    assert "✓ program: no order breaks it" in says(takes_all, None)
    assert "ends well" in says(takes_all, ["2->0"])


def test_threads_hand_over_in_some_time():
    assert 0 < messages.thread_seconds(5) < 10
