"""Collectives on send and receive: any size, any length, exactly the messages, bytes and seconds of the formulas."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.backend import get_xp
from distlearn.comm import Network, RankError, collectives
from distlearn.comm.calls import REDUCTIONS
from distlearn.comm.collectives import ALGORITHMS
from distlearn.comm.network import cost
from distlearn.sim import MetaArray, SimWorld
from distlearn.testing import check_collective

NAMES = list(cost.FORMULAS)


def kind_of(name):
    kinds = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "reduce", "broadcast", "scatter", "gather")
    return next((kind for kind in kinds if name.endswith(kind)), "barrier")


def call(name, comm, n, op="sum", root=0, make=np.ones):
    """Call a collective; `make(shape)` gives this rank's array, or one row for each rank."""
    function, kind = getattr(collectives, name), kind_of(name)
    if kind in ("all_reduce", "reduce_scatter"):
        return function(comm, make(n), op)
    if kind == "reduce":
        return function(comm, make(n), op, root)
    if kind == "scatter":
        return function(comm, make((comm.size, n)) if comm.rank == root else None, make(n), root)
    if kind == "all_to_all":
        return function(comm, make((comm.size, n)))
    if kind == "barrier":
        return function(comm)
    return function(comm, make(n)) if kind == "all_gather" else function(comm, make(n), root)


def wanted(kind, data, rank, op, root):
    """What a rank gets, where rank i passes `data[i]`."""
    size, first = len(data), data
    total = REDUCTIONS[op].reduce(first, 0)
    return {
        "all_reduce": total,
        "reduce_scatter": np.array_split(total, size)[rank],
        "all_gather": first,
        "all_to_all": data[:, rank] if kind == "all_to_all" else None,
        "reduce": total if rank == root else None,
        "broadcast": first[root],
        "scatter": data[root, rank] if kind == "scatter" else None,
        "gather": first if rank == root else None,
        "barrier": None,
    }[kind]


@pytest.mark.parametrize("name", NAMES)
@given(size=st.integers(1, 9), n=st.integers(0, 40), op=st.sampled_from(sorted(REDUCTIONS)), root=st.integers(0, 8))
@settings(max_examples=40, deadline=None)
def test_numpys_result_by_the_formulas_messages_with_and_without_data(name, size, n, op, root):
    """One statement of all: data = NumPy, messages = formula, meta arrays = the same messages."""
    kind, root = kind_of(name), root % size
    rows = (size,) if kind in ("scatter", "all_to_all") else ()

    def on_rank(comm, x):
        found = call(name, comm, n, op, root, lambda shape: get_xp(x).empty(n, x.dtype) if rows and shape == n else x)
        assert kind not in ("all_reduce", "broadcast") or found is x, "in place"
        return found

    (world,) = check_collective(
        on_rank, lambda xs, rank: wanted(kind, xs, rank, op, root), sizes=[size], shape=lambda size: (*rows, n)
    )
    nbytes = 8 * n * (size if kind == "all_to_all" else 1)
    assert len(world.trace.messages) == cost.messages(name, nbytes, size)
    assert world.trace.bytes_sent == cost.nbytes(name, nbytes, size)


def leaves_one_out(comm, x):
    return collectives.ring_all_gather(comm, x)[: comm.size - 1]


def adds_to_its_input(comm, x):
    x += 1
    return collectives.ring_all_gather(comm, x - 1)


def sends_what_is_not_zero(comm, x):
    if isinstance(x, MetaArray):
        x = np.concatenate([x, x])
    return collectives.ring_all_gather(comm, x)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (leaves_one_out, r"'result': rank 0 of 1 got \(0, 5\)"),
        (adds_to_its_input, "'inputs are left alone'"),
        (sends_what_is_not_zero, "'meta arrays': on 2 ranks other messages"),
    ],
)
def test_a_broken_collective_is_told_which_rule_it_breaks(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_collective(broken, lambda xs, rank: xs)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("all_reduce")])
def test_every_rank_gets_the_same_bits_of_any_shape(name):
    def program(comm):
        x = np.random.default_rng(comm.rank).normal(size=(3, 5)).astype("float32")
        assert call(name, comm, 0, make=lambda _: x) is x
        return x

    results = SimWorld(6).run(program)
    assert {r.tobytes() for r in results} == {results[0].tobytes()}
    want = sum(np.random.default_rng(r).normal(size=(3, 5)).astype("float32") for r in range(6))
    np.testing.assert_allclose(results[0], want, rtol=1e-5)


@pytest.mark.parametrize("name", cost.FORMULAS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 8, 16])
def test_simulated_time_equals_the_formula(name, size):
    """Where all shares are equally long; for the trees that merge, at powers of two."""
    many_to_one = name in ("flat_reduce", "naive_all_reduce")
    network = Network(1e-5, 1e8, contention="ports" if many_to_one else "sender")
    world, n = SimWorld(size, network), 1680  # its halves, quarters, ... and all shares are whole
    world.run(lambda comm: call(name, comm, n // comm.size if "to_all" in name else n) is None)
    wanted = cost.seconds(name, 8 * n, size, network)
    merges = name in ("tree_reduce", "tree_all_reduce", "tree_scatter", "tree_gather")
    if merges and size & (size - 1):
        assert world.makespan <= wanted * (1 + 1e-12)
    else:
        assert world.makespan == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_the_native_collectives_cost_the_same_formulas(size):
    network, n = Network(1e-5, 1e8), 800.0 * size
    for name, algorithm in ALGORITHMS.items():
        found = network.collective(name, n, range(size))
        rows = size if name in ("all_gather", "scatter", "gather") else 1  # the formulas count one row
        assert cost.seconds(algorithm, n / rows, size, network) == pytest.approx(found)


def test_every_collective_has_a_formula_and_says_it():
    functions = {name for name in collectives.__all__ if inspect.isfunction(getattr(collectives, name))} - {"shares"}
    assert functions == set(NAMES)
    for name in functions:
        doc = getattr(collectives, name).__doc__
        assert ".. math::" in doc, name
        assert "bytes" in doc, name


def test_the_formula_of_a_collective_of_ones_own():
    own = cost.Formula(messages=lambda p: p, nbytes=lambda n, p: n * p, seconds=lambda n, p, time: p * time(n))
    assert cost.seconds(own, 1e6, 3, Network(alpha=0.5, beta=1e6)) == pytest.approx(4.5)
    assert (cost.messages(own, 8, 3), cost.nbytes(own, 8, 3)) == (3, 24)


def test_unknown_algorithms_are_named():
    with pytest.raises(ValueError, match="'star', expected one of flat_broadcast"):
        cost.messages("star", 1, 2)
    with pytest.raises(ValueError, match="p is 0"):
        cost.nbytes("ring", 1, 0)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (lambda c, x: collectives.tree_all_reduce(c, x, "mean"), "op='mean'"),
        (lambda c, x: collectives.tree_broadcast(c, x, root=3), "root=3"),
        (lambda c, x: collectives.tree_scatter(c, np.zeros((2, 4)), x), "one row per rank"),
        (lambda c, x: collectives.tree_scatter(c, np.zeros((3, 5)), x), "sends rows of shape"),
        (lambda c, x: collectives.ring_all_gather(c, [1]), "takes an array, got list"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_sent(bad, match):
    world = SimWorld(3)
    with pytest.raises(RankError, match=match):
        world.run(lambda comm: bad(comm, np.zeros(4)))
    assert world.trace.messages == []
