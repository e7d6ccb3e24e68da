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

from ..course.submissions import answered

ALGORITHMS = {name: getattr(collectives, function) for name, function in NAMES.items()}
SOLUTIONS = answered("lab06", "seconds")


def judged(judge, *args, **kwargs) -> str:
    """Return what a check says."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(CheckFailed), Check("answer") as check:
        judge(check, *args, **kwargs)
    return out.getvalue()


def told(judge, exercise, name, *args, wrong="", **kwargs) -> str:
    """Return what a check says of a function of the lab's solution, or of a known wrong answer."""
    return judged(judge, answered("lab06", exercise, wrong)[name], *args, **kwargs)


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


def everyone_to_everyone(comm, x):
    total = x.copy()
    for step in range(1, comm.size):
        got = np.empty_like(x)
        comm.send_recv(x, (comm.rank + step) % comm.size, got, (comm.rank - step) % comm.size)
        total += got
    x[...] = total


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_pass_and_wrong_ones_are_named(name):
    right = SOLUTIONS[f"{name}_all_reduce"]
    assert "✗" not in judged(messages.check_all_reduce, right, name, 5, (2, 3), "float32")
    assert "nothing was changed" in judged(messages.check_all_reduce, lambda comm, x: x, name, 3)
    found = judged(messages.check_all_reduce, everyone_to_everyone, name, 4)
    assert "✗ messages" in found or "✗ bytes" in found, "the sum is right, but it costs more"


def test_a_broadcast_from_rank_to_rank_is_no_tree():
    assert "✗" not in judged(messages.check_broadcast, SOLUTIONS["broadcast"], 6, 2)
    found = told(messages.check_broadcast, "tree", "broadcast", 6, 2, wrong="one after another")
    assert "5 messages wait for each other, 3 suffice" in found


def test_rows_in_the_wrong_order_are_named():
    right, backwards = (answered("lab06", "moves", wrong) for wrong in ("", "gather: backwards"))
    assert "✗" not in judged(messages.check_scatter_gather, right["scatter"], right["gather"], 4, 1)
    found = judged(messages.check_scatter_gather, right["scatter"], backwards["gather"], 4, 1)
    assert "order of ranks" in found


def test_a_formula_with_whole_messages_is_no_ring():
    case = 1e6, 4, 1e-3, 1e8
    found = told(messages.check_seconds, "seconds", "seconds", "ring", *case, wrong="ring: whole messages")
    assert "n / p bytes" in found
    for name in NAMES:
        assert "✗" not in judged(messages.check_seconds, SOLUTIONS["seconds"], name, 1e6, 6, 1e-3, 1e8)


def whole_arrays(comm, x):
    """Recursive doubling: whole arrays in every round."""
    d = 1
    while d < comm.size:
        got = np.empty_like(x)
        comm.send_recv(x, comm.rank ^ d, got, comm.rank ^ d)
        x += got
        d *= 2


RING = {
    "": "",
    "passes on what is not complete": "the first phase adds",
    "adds in both phases": "it replaces the part, and is not added",
    "new arrays in the list": "puts a new array into the list",
    "adds only": "half of the steps",
}


@pytest.mark.parametrize("wrong", RING)
@pytest.mark.parametrize("size", [3, 4, 5])
def test_mistakes_of_a_ring_are_named(wrong, size):
    found = told(messages.check_all_reduce, "ring", "ring_all_reduce", "ring", size, (10,), wrong=wrong)
    assert ("✗" in found) == bool(wrong)
    assert [text for text in RING.values() if text and text in found] == [RING[wrong]] * bool(wrong)


def test_what_sends_whole_arrays_has_not_forgotten_half():
    ring = told(messages.check_all_reduce, "ring", "ring_all_reduce", "ring", 4, wrong="whole arrays")
    for found in (ring, judged(messages.check_all_reduce, whole_arrays, "halving", 4)):
        assert "half of the" not in found
        assert "every message is a whole array" in found
    assert "exchange halves of what is left" in judged(messages.check_all_reduce, whole_arrays, "halving", 8)
    tree = told(messages.check_all_reduce, "tree", "tree_all_reduce", "tree", 6, wrong="never down")
    assert "must come down again" in tree


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("absolute errors", "divide each equation by its t"),
        ("swapped", "alpha comes first"),
        ("slope for beta", "the slope is seconds per byte"),
    ],
)
def test_a_fit_is_of_relative_errors_with_alpha_first(wrong, text):
    assert "✗" not in judged(messages.check_fit, SOLUTIONS["fit"], 2e-5, 1e9, 0.1)
    found = told(messages.check_fit, "seconds", "fit", 2e-5, 1e9, 0.1, wrong=wrong)
    assert text in found
    assert ("alpha comes first" in found) == (wrong == "swapped")


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


class Log(list):
    shared_by_ranks = True


def test_a_given_all_reduce_trains_as_the_librarys():
    used = Log()

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
    used = Log()

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
