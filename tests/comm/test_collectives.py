"""Collectives on send and receive: any size, any length, and exactly the messages of the formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import Network, SimWorld, ring_all_reduce
from distlearn.comm.collectives import shares


@given(size=st.integers(1, 8), n=st.integers(0, 40), op=st.sampled_from(["sum", "prod", "min", "max"]))
@settings(max_examples=60, deadline=None)
def test_ring_all_reduce_equals_numpy(size, n, op):
    data = np.random.default_rng([size, n]).normal(size=(size, n))
    want = {"sum": data.sum(0), "prod": data.prod(0), "min": data.min(0), "max": data.max(0)}[op]
    world = SimWorld(size)
    for result in world.run(lambda comm: ring_all_reduce(comm, data[comm.rank].copy(), op)):
        np.testing.assert_allclose(result, want, rtol=1e-12, atol=1e-12)
    assert len(world.trace.messages) == 2 * (size - 1) * size
    assert world.trace.bytes_sent == 2 * (size - 1) * n * 8


def test_ring_all_reduce_keeps_shape_and_works_in_place():
    def program(comm):
        x = np.ones((3, 5), "float32")
        y = ring_all_reduce(comm, x)
        return y is x, x

    for same, x in SimWorld(4).run(program):
        assert same
        assert x.shape == (3, 5)
        assert (x == 4).all()


@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_simulated_time_equals_the_formula_when_shares_are_equal(size):
    network = Network(1e-5, 1e8)
    n = size * 100
    world = SimWorld(size, network)
    world.run(lambda comm: ring_all_reduce(comm, np.ones(n)))
    assert world.makespan == pytest.approx(network.all_reduce(8 * n, size))


@given(n=st.integers(0, 100), size=st.integers(1, 12))
def test_shares_are_those_of_array_split(n, size):
    cut = shares(n, size)
    assert [s.stop - s.start for s in cut] == [len(a) for a in np.array_split(np.zeros(n), size)]
    assert cut[0].start == 0
    assert cut[-1].stop == n
