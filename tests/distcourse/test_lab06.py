"""Lab 06's experiments: collectives counted and judged, links that are slow, a given all-reduce in training."""

import numpy as np
import pytest
from distcourse import lab06 as messages
from distcourse.lab06 import NAMES

import distlearn as dl
from distlearn.comm import Network, collectives
from distlearn.comm.network import cost
from distlearn.comm.network.fit import line

from ..course.submissions import answered

ALGORITHMS = {name: getattr(collectives, function) for name, function in NAMES.items()}
SOLUTIONS = answered("lab06", "seconds")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, 3, 6, 8])
def test_the_counts_are_the_formulas(name, size):
    for all_reduce in (ALGORITHMS[name], SOLUTIONS[f"{name}_all_reduce"]):
        found = messages.counted(all_reduce, size, 1000)
        assert found.messages == cost.messages(NAMES[name], 8000, size)
        assert found.nbytes == cost.nbytes(NAMES[name], 8000, size)
        assert found.rounds <= cost.seconds(NAMES[name], 8000, size, Network(1.0))
    expected = cost.seconds(NAMES[name], 1e6, size, Network(1e-3, 1e8))
    assert SOLUTIONS["seconds"](name, 1e6, size, 1e-3, 1e8) == pytest.approx(expected)


def test_a_slow_link_has_the_times_of_the_formulas():
    sizes, link = [16, 4096, 40_000], (2e-3, 1e6)
    pinged, found = dl.SimWorld(4).run(messages.measure, ALGORITHMS, sizes, 2, link)[0]
    np.testing.assert_allclose(line(np.array(sizes, float), pinged), link)
    for name, times in found.items():
        expected = [cost.seconds(NAMES[name], n, 4, Network(*link)) for n in sizes]
        np.testing.assert_allclose(times, expected, rtol=1e-9, err_msg=name)
    with pytest.raises(ValueError, match="beta is 0, expected a number above 0"):
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
        function = getattr(collectives, f"tree_{name}")
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


def wants_1_first(comm):
    if comm.rank == 0:
        return [comm.recv_obj(), comm.recv_obj(2)]
    return comm.send_obj(comm.rank, 0)


def takes_all(comm):
    return sum(comm.recv_obj() for _ in range(2)) if comm.rank == 0 else comm.send_obj(comm.rank, 0)


def test_what_comes_of_an_order():
    for program, order, said in (
        (wants_1_first, ["2->0"], "broken"),
        (wants_1_first, ["1->0"], "ends well"),
        (wants_1_first, ["0->2"], "not possible here"),
        (wants_1_first, ["2 to 0"], "is not a decision"),
        (wants_1_first, None, "an order breaks it"),
        (takes_all, None, "no order breaks it"),
        (takes_all, ["2->0"], "ends well"),
    ):
        assert said in messages.outcome(program, 3, order)
