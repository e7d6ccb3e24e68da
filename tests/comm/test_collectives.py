"""Collectives on send and receive: any size, any length, exactly the messages, bytes and seconds of the formulas."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import Network, RankError, collectives
from distlearn.comm.base import REDUCTIONS
from distlearn.comm.collectives import Group, shares
from distlearn.comm.network import cost
from distlearn.comm.network.formulas import ALGORITHMS
from distlearn.sim import SimWorld

SIZES, LENGTHS = st.integers(1, 9), st.integers(0, 40)
OPS = st.sampled_from(sorted(REDUCTIONS))
ALL_REDUCES = [name for name in collectives.__all__ if name.endswith("all_reduce")]
LEVELS = ["hierarchical_all_reduce", "torus_all_reduce"]


def data_of(size, n, dtype="f8"):
    """One row per rank; small whole numbers, so that every order of adding gives the same bits."""
    return np.random.default_rng([size, n]).integers(1, 4, (size, n)).astype(dtype)


def run(size, program, network=None):
    world = SimWorld(size, network)
    return world.run(program), world


def assert_cost(name, world, n, size, **options):
    assert len(world.trace.messages) == cost.messages(name, n, size, **options)
    assert world.trace.bytes_sent == cost.nbytes(name, n, size, **options)


@pytest.mark.parametrize("name", [name for name in ALL_REDUCES if name not in LEVELS])
@given(size=SIZES, n=LENGTHS, op=OPS)
@settings(max_examples=40, deadline=None)
def test_all_reduce_equals_numpy(name, size, n, op):
    data, function = data_of(size, n), getattr(collectives, name)

    def program(comm):
        x = data[comm.rank].copy()
        assert function(comm, x, op) is x
        return x

    results, world = run(size, program)
    for result in results:
        np.testing.assert_array_equal(result, REDUCTIONS[op].reduce(data, 0))
    assert_cost(name, world, 8 * n, size)


@given(nodes=st.integers(1, 4), ranks_per_node=st.integers(1, 4), missing=st.integers(0, 3), n=LENGTHS, op=OPS)
@settings(max_examples=60, deadline=None)
def test_hierarchical_all_reduce_equals_numpy(nodes, ranks_per_node, missing, n, op):
    size = max(1, nodes * ranks_per_node - min(missing, ranks_per_node - 1))
    data = data_of(size, n)
    names = LEVELS if size % ranks_per_node == 0 else LEVELS[:1]
    for name in names:
        results, world = run(
            size,
            lambda comm: getattr(collectives, name)(comm, data[comm.rank].copy(), ranks_per_node, op),  # noqa: B023
        )
        for result in results:
            np.testing.assert_array_equal(result, REDUCTIONS[op].reduce(data, 0))
        assert_cost(name, world, 8 * n, size, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_every_rank_gets_the_same_bits_of_any_shape(name):
    options = {"ranks_per_node": 2} if name in LEVELS else {}

    def program(comm):
        x = np.random.default_rng(comm.rank).normal(size=(3, 5)).astype("float32")
        y = getattr(collectives, name)(comm, x, **options)
        assert y is x
        return y

    results, _ = run(6, program)
    assert {r.tobytes() for r in results} == {results[0].tobytes()}
    assert results[0].shape == (3, 5)
    want = sum(np.random.default_rng(r).normal(size=(3, 5)).astype("float32") for r in range(6))
    np.testing.assert_allclose(results[0], want, rtol=1e-5)


@pytest.mark.parametrize("name", ["flat_broadcast", "tree_broadcast"])
@given(size=SIZES, n=LENGTHS, root=st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_broadcast(name, size, n, root):
    data, root = data_of(size, n), root % size
    results, world = run(size, lambda comm: getattr(collectives, name)(comm, data[comm.rank].copy(), root))
    for result in results:
        np.testing.assert_array_equal(result, data[root])
    assert_cost(name, world, 8 * n, size)


@pytest.mark.parametrize("name", ["flat_reduce", "tree_reduce"])
@given(size=SIZES, n=LENGTHS, root=st.integers(0, 8), op=OPS)
@settings(max_examples=30, deadline=None)
def test_reduce(name, size, n, root, op):
    data, root = data_of(size, n), root % size
    results, world = run(size, lambda comm: getattr(collectives, name)(comm, data[comm.rank].copy(), op, root))
    np.testing.assert_array_equal(results[root], REDUCTIONS[op].reduce(data, 0))
    assert all(r is None for i, r in enumerate(results) if i != root)
    assert_cost(name, world, 8 * n, size)


@pytest.mark.parametrize("name", ["flat_scatter", "tree_scatter"])
@given(size=SIZES, shape=st.sampled_from([(), (0,), (3,), (2, 2)]), root=st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_scatter(name, size, shape, root):
    rows, root = np.random.default_rng(size).normal(size=(size, *shape)), root % size

    def program(comm):
        out = np.full(shape, np.nan)
        assert getattr(collectives, name)(comm, rows if comm.rank == root else None, out, root) is out
        return out

    results, world = run(size, program)
    np.testing.assert_array_equal(results, rows)
    assert_cost(name, world, rows[0].nbytes, size)


@pytest.mark.parametrize("name", ["flat_gather", "tree_gather", "ring_all_gather", "bruck_all_gather"])
@given(size=SIZES, shape=st.sampled_from([(), (0,), (3,), (2, 2)]), root=st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_gather(name, size, shape, root):
    rows, root = np.random.default_rng(size).normal(size=(size, *shape)), root % size
    options = () if "all" in name else (root,)
    results, world = run(size, lambda comm: getattr(collectives, name)(comm, rows[comm.rank].copy(), *options))
    for rank, result in enumerate(results):
        if options and rank != root:
            assert result is None
        else:
            np.testing.assert_array_equal(result, rows)
            assert (result.shape, result.dtype) == (rows.shape, rows.dtype)
    assert_cost(name, world, rows[0].nbytes, size)


@given(size=SIZES, n=LENGTHS, op=OPS)
@settings(max_examples=40, deadline=None)
def test_reduce_scatter(size, n, op):
    data = data_of(size, n)

    def program(comm):
        x = data[comm.rank].copy()
        share = collectives.ring_reduce_scatter(comm, x, op)
        np.testing.assert_array_equal(x, data[comm.rank])  # the input stays
        return share

    results, world = run(size, program)
    for result, want in zip(results, np.array_split(REDUCTIONS[op].reduce(data, 0), size), strict=True):
        np.testing.assert_array_equal(result, want)
    assert_cost("ring_reduce_scatter", world, 8 * n, size)


@given(nodes=st.integers(1, 4), ranks_per_node=st.integers(1, 4), n=LENGTHS, op=OPS)
@settings(max_examples=60, deadline=None)
def test_the_halves_of_the_torus(nodes, ranks_per_node, n, op):
    size = nodes * ranks_per_node
    data, options = data_of(size, n), {"ranks_per_node": ranks_per_node}

    def scatter(comm):
        x = data[comm.rank].copy()
        share = collectives.torus_reduce_scatter(comm, x, ranks_per_node, op)
        np.testing.assert_array_equal(x, data[comm.rank])  # the input stays
        return share

    results, world = run(size, scatter)
    for result, want in zip(results, np.array_split(REDUCTIONS[op].reduce(data, 0), size), strict=True):
        np.testing.assert_array_equal(result, want)
    assert_cost("torus_reduce_scatter", world, 8 * n, size, **options)
    results, world = run(size, lambda comm: collectives.torus_all_gather(comm, data[comm.rank].copy(), ranks_per_node))
    for result in results:
        np.testing.assert_array_equal(result, data)
    assert_cost("torus_all_gather", world, 8 * n, size, **options)


@given(size=SIZES, shape=st.sampled_from([(), (0,), (3,), (2, 2)]))
@settings(max_examples=30, deadline=None)
def test_all_to_all(size, shape):
    data = np.random.default_rng(size).normal(size=(size, size, *shape))
    results, world = run(size, lambda comm: collectives.pairwise_all_to_all(comm, data[comm.rank].copy()))
    np.testing.assert_array_equal(np.array(results), data.swapaxes(0, 1))
    assert_cost("pairwise_all_to_all", world, data[0].nbytes, size)


@pytest.mark.parametrize("size", range(1, 10))
def test_barrier_holds_everyone_for_the_last(size):
    def program(comm):
        if comm.rank == size // 2:
            comm.clock.sleep(5.0)
        collectives.dissemination_barrier(comm)
        return comm.clock.now()

    results, world = run(size, program, Network(1e-3))
    assert min(results) >= 5.0
    assert_cost("dissemination_barrier", world, 0, size)


# -- seconds ---------------------------------------------------------------------------------------------------------

CALLS = {
    "broadcast": lambda f, comm, n: f(comm, np.ones(n)),
    "reduce": lambda f, comm, n: f(comm, np.ones(n)),
    "scatter": lambda f, comm, n: f(comm, np.ones((comm.size, n)), np.ones(n)),
    "gather": lambda f, comm, n: f(comm, np.ones(n)),
    "to_all": lambda f, comm, n: f(comm, np.ones((comm.size, n // comm.size))),
    "barrier": lambda f, comm, n: f(comm),
}


def simulated(name, size, n, network):
    call = next(call for kind, call in CALLS.items() if name.endswith(kind))
    if name == "ring_reduce_scatter":
        call = CALLS["reduce"]
    world = SimWorld(size, network)
    world.run(lambda comm: call(getattr(collectives, name), comm, n))
    return world.makespan


@pytest.mark.parametrize("name", cost.FORMULAS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 8, 16])
def test_simulated_time_equals_the_formula(name, size):
    """Where all shares are equally long; for the trees that merge, at powers of two."""
    many_to_one = name in ("flat_gather", "flat_reduce", "naive_all_reduce")
    network = Network(1e-5, 1e8, contention="ports" if many_to_one else "sender")
    n = 1680  # its halves, quarters, ... and all shares are whole
    found, wanted = simulated(name, size, n, network), cost.seconds(name, 8 * n, size, network)
    merges = name in ("tree_reduce", "tree_all_reduce", "tree_scatter", "tree_gather")
    if merges and size & (size - 1):
        assert found <= wanted * (1 + 1e-12)
    else:
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_the_native_collectives_cost_the_same_formulas(size):
    network, n = Network(1e-5, 1e8), 800.0 * size
    for name, algorithm in ALGORITHMS.items():
        found = network.collective(name, n, range(size))
        rows = size if name in ("all_gather", "scatter", "gather") else 1  # the formulas count one row
        assert cost.seconds(algorithm, n / rows, size, network) == pytest.approx(found)
        assert network.algorithm(name, n, range(size)) == algorithm


def test_every_collective_has_a_formula_and_says_it():
    functions = {name for name in collectives.__all__ if inspect.isfunction(getattr(collectives, name))} - {"shares"}
    assert functions == set(cost.FORMULAS) | set(cost.LEVELS)
    for name in functions:
        doc = getattr(collectives, name).__doc__
        assert ".. math::" in doc, name
        assert "bytes" in doc, name


def test_unknown_algorithms_are_named():
    with pytest.raises(ValueError, match="'star', expected one of flat_broadcast"):
        cost.messages("star", 1, 2)
    with pytest.raises(ValueError, match="needs ranks_per_node"):
        cost.seconds("torus", 1, 4, Network())
    with pytest.raises(ValueError, match="p is 0"):
        cost.nbytes("ring", 1, 0)


# -- parts -----------------------------------------------------------------------------------------------------------


@given(n=st.integers(0, 100), size=st.integers(1, 12))
def test_shares_are_those_of_array_split(n, size):
    cut = shares(n, size)
    assert [s.stop - s.start for s in cut] == [len(a) for a in np.array_split(np.zeros(n), size)]
    assert cut[0].start == 0
    assert cut[-1].stop == n


def test_a_group_needs_this_rank():
    with pytest.raises(RankError, match=r"rank 2: .*Group of ranks \[0, 1\]"):
        SimWorld(3).run(lambda comm: Group(comm, [0, 1]))


def test_bad_calls_are_refused_before_anything_is_sent():
    x = np.zeros(4)
    for call, match in [
        (
            lambda comm: collectives.torus_all_reduce(comm, x.copy(), 2),
            "3 ranks are not a multiple of ranks_per_node=2",
        ),
        (lambda comm: collectives.hierarchical_all_reduce(comm, x.copy(), 0), "ranks_per_node=0, expected 1 or more"),
        (lambda comm: collectives.tree_all_reduce(comm, x.copy(), "mean"), "op='mean'"),
        (lambda comm: collectives.tree_broadcast(comm, x.copy(), root=3), "root=3"),
        (lambda comm: collectives.tree_scatter(comm, np.zeros((2, 4)), x.copy()), "one row per rank"),
        (lambda comm: collectives.flat_scatter(comm, np.zeros((3, 5)), x.copy()), "sends rows of shape"),
        (lambda comm: collectives.bruck_all_gather(comm, [1]), "takes an array, got list"),
    ]:
        world = SimWorld(3)
        with pytest.raises(RankError, match=match):
            world.run(call)
        assert world.trace.messages == []
