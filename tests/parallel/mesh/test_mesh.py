"""Arrays on a mesh: every change of layout keeps the values, every operation is NumPy's or an error that says why."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import RankError
from distlearn.comm.network import Network
from distlearn.parallel.mesh import LayoutError, Mesh, Partial, Replicate, Shard, to_whole
from distlearn.sim import SimWorld

MESHES = [(1,), (2,), (3,), (4,), (2, 2), (2, 3), (3, 1, 2)]


def layouts(mesh, ndim):
    kinds = [Replicate(), Partial(), *map(Shard, range(ndim))]
    for chosen in itertools.product(kinds, repeat=len(mesh)):
        axes = [p.axis for p in chosen if isinstance(p, Shard)]
        if len(set(axes)) == len(axes):
            yield chosen


def on(mesh, fn, *args):
    return SimWorld(int(np.prod(mesh))).run(lambda comm: fn(Mesh(comm, mesh), *args))


@pytest.mark.parametrize("mesh", MESHES[:6])
@pytest.mark.parametrize("shape", [(4, 6), (5, 7), (1, 2)])
def test_every_layout_leads_to_every_other(mesh, shape):
    """Also where shares are unequal, or empty."""
    whole = np.random.default_rng(0).normal(size=shape)

    def program(mesh):
        for first, second in itertools.product(layouts(mesh.shape, 2), repeat=2):
            x = mesh.distribute(whole, *first).redistribute(*second)
            assert x.placements == second
            np.testing.assert_allclose(to_whole(x), whole, atol=1e-12, err_msg=f"{first} to {second}")

    on(mesh, program)


@st.composite
def products(draw):
    mesh = draw(st.sampled_from(MESHES))
    n, k, m = (draw(st.integers(1, 7)) for _ in range(3))
    lead = draw(st.sampled_from([(), (2,)]))
    x = draw(st.sampled_from(list(layouts(mesh, 2 + len(lead)))))
    w = draw(st.sampled_from(list(layouts(mesh, 2))))
    return mesh, (*lead, n, k), (k, m), x, w


@given(products())
@settings(max_examples=150, deadline=None)
def test_a_product_is_numpys_or_an_error(case):
    """It is an error exactly where the sum over ranks' products is not what the placements of the result say."""
    mesh, x_shape, w_shape, x_layout, w_layout = case
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=x_shape), rng.normal(size=w_shape)

    def program(mesh):
        a, b = mesh.distribute(x, *x_layout), mesh.distribute(w, *w_layout)
        try:
            y = a @ b
        except LayoutError as error:
            return str(error)
        np.testing.assert_allclose(to_whole(y), x @ w, atol=1e-12)
        return None

    told = on(mesh, program)[0]
    last = len(x_shape) - 1
    allowed = {("R", "R"), ("R", "P"), ("P", "R"), ("R", "S1"), ("last", "S0"), ("lead", "R")}
    fits = all((_kind(a, last), _kind(b, None)) in allowed for a, b in zip(x_layout, w_layout, strict=True))
    assert (told is None) == fits, told
    if told:
        assert repr(x_layout[0]) in told
        assert repr(w_layout[0]) in told
        assert re.search("all_reduce|all_gather|all_to_all|no collective|reduce_scatter", told)


def _kind(placement, last):
    if isinstance(placement, Shard):
        return f"S{placement.axis}" if last is None else "last" if placement.axis == last else "lead"
    return "R" if isinstance(placement, Replicate) else "P"


REMEDY = re.compile(r"the (first|second) to (Shard\(\d\)|Replicate\(\)) \((all_\w+|reduce_scatter|no collective)\)")


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2), (2, 3)])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_what_an_error_of_a_product_recommends_leads_to_the_product(mesh, lead):
    """Whatever the two layouts: one of the ways that the text names, in the dimension that it names, goes on."""
    rng, last = np.random.default_rng(6), 1 + len(lead)
    x, w = rng.normal(size=(*lead, 5, 6)), rng.normal(size=(6, 7))

    def follow(a, b, told=()):
        """Follow recommendations until the product fits; whether one of the ways leads there."""
        try:
            y = a @ b
        except LayoutError as error:
            text = str(error)
        else:
            np.testing.assert_allclose(to_whole(y), x @ w, atol=1e-12)
            return True
        dim = int(re.search(r"over dimension (\d)", text)[1])
        ways = REMEDY.findall(text)
        assert ways, text
        assert repr(a) in text
        assert repr(b) in text
        assert len(told) < 4, told
        for which, new, name in ways:
            old = a if which == "first" else b
            placements = list(old.placements)
            placements[dim] = Replicate() if new == "Replicate()" else Shard(int(new[6:-1]))
            try:
                listed = old.collectives(*placements)
            except LayoutError:  # the other dimension shards that axis already
                continue
            assert name in [c for d, c, _ in listed if d == dim] or name == "no collective", (text, listed)
            made = old.redistribute(*placements)
            if follow(*((made, b) if which == "first" else (a, made)), (*told, text)):
                return True
        return False

    def program(mesh):
        for x_layout, w_layout in itertools.product(layouts(mesh.shape, last + 1), layouts(mesh.shape, 2)):
            assert follow(mesh.distribute(x, *x_layout), mesh.distribute(w, *w_layout)), (x_layout, w_layout)

    on(mesh, program)


@given(st.sampled_from(MESHES), st.data(), st.sampled_from(["+", "-", "*"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_sums_and_elementwise_products_are_numpys_or_an_error(mesh, data, sign, vector):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(4, 5)), rng.normal(size=(5,) if vector else (4, 5))
    a = data.draw(st.sampled_from(list(layouts(mesh, 2))))
    b = data.draw(st.sampled_from(list(layouts(mesh, y.ndim))))
    f = {"+": lambda p, q: p + q, "-": lambda p, q: p - q, "*": lambda p, q: p * q}[sign]

    def program(mesh):
        p, q = mesh.distribute(x, *a), mesh.distribute(y, *b)
        try:
            made = f(p, q)
        except LayoutError:
            return False
        np.testing.assert_allclose(to_whole(made), f(x, y), atol=1e-12)
        return True

    done = on(mesh, program)[0]
    if a == b and not vector and not (sign == "*" and Partial() in a):
        assert done
    if Partial() in a and all(isinstance(p, Replicate) for p in b) and (sign != "*" or Shard not in map(type, a)):
        assert done == (sign == "*")


@pytest.mark.parametrize("mesh", [(3,), (2, 2)])
def test_totals_and_transposes(mesh):
    whole = np.random.default_rng(3).normal(size=(4, 6))

    def program(mesh):
        for layout in layouts(mesh.shape, 2):
            x = mesh.distribute(whole, *layout)
            for axis in (None, 0, 1, -1):
                np.testing.assert_allclose(to_whole(x.sum(axis)), whole.sum(axis), atol=1e-12)
            np.testing.assert_allclose(to_whole(x.T), whole.T)
            np.testing.assert_allclose(to_whole(x * 2.0), 2 * whole)

    on(mesh, program)


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_functions_are_applied_where_that_is_right():
    whole = np.random.default_rng(4).normal(size=(4, 6))

    def program(mesh):
        for layout in layouts(mesh.shape, 2):
            x = mesh.distribute(whole, *layout)
            for f, axis in ((relu, None), (softmax, -1)):
                wrong = Partial() in layout or (axis is not None and Shard(1) in layout)
                if wrong:
                    with pytest.raises(LayoutError, match=f.__name__):
                        x.apply(f, axis=axis)
                else:
                    np.testing.assert_allclose(to_whole(x.apply(f, axis=axis)), f(whole))
            np.testing.assert_allclose(to_whole(x.apply(np.negative, linear=True)), -whole)

    on((2,), program)
    on((2, 2), program)


def mlp(mesh, x, first, second, bias, reduce=True):
    """Column-parallel, then row-parallel."""
    h = (x @ first).apply(relu)
    y = h @ second
    if reduce:
        y = y.redistribute(Replicate())
    return y + bias


def test_column_and_row_parallel_layers_follow_from_the_types():
    rng = np.random.default_rng(5)
    x, a, b, c = rng.normal(size=(3, 4)), rng.normal(size=(4, 6)), rng.normal(size=(6, 5)), rng.normal(size=5)

    def program(mesh):
        args = mesh.distribute(x, Replicate()), mesh.distribute(a, Shard(1)), mesh.distribute(b, Shard(0))
        y = mlp(mesh, *args, mesh.distribute(c, Replicate()))
        np.testing.assert_allclose(y.whole(), relu(x @ a) @ b + c, atol=1e-12)
        np.testing.assert_allclose(np.asarray(y), y.whole())

    on((3,), program)


class TestBugsOfRealFrameworks:
    """Rebuilt small; each runs without an error on plain arrays, and gives a wrong number."""

    def test_a_missing_all_reduce_after_a_row_parallel_layer(self):
        """The bias is added on every rank, and each goes on with its own summand."""

        def program(mesh):
            x, a = mesh.distribute(np.ones((3, 4)), Replicate()), mesh.distribute(np.ones((4, 6)), Shard(1))
            b, c = mesh.distribute(np.ones((6, 5)), Shard(0)), mesh.distribute(np.ones(5), Replicate())
            mlp(mesh, x, a, b, c, reduce=False)

        with pytest.raises(RankError, match=r"would be added once on each of the 2 ranks.*\(all_reduce\)"):
            on((2,), program)

    def test_a_gradient_that_is_reduced_twice(self):
        """Once by the layer, once more by the loop over the parameters: it is p times too large."""

        def program(mesh):
            x = mesh.distribute(np.ones((4, 3)), Shard(0))
            dy = mesh.distribute(np.ones((4, 2)), Shard(0))
            grad = (x.T @ dy).all_reduce()
            np.testing.assert_allclose(grad.whole(), np.full((3, 2), 4.0))
            grad.all_reduce()

        with pytest.raises(RankError, match="it would be multiplied by the number of ranks"):
            on((2,), program)

    def test_a_sum_of_different_parts(self):
        """Ranks that have different columns have nothing to sum."""

        def program(mesh):
            mesh.distribute(np.ones((4, 6)), Shard(1)).all_reduce()

        with pytest.raises(RankError, match="different parts of it, which are not summands"):
            on((2,), program)

    def test_a_norm_over_shards(self):
        """Every rank clips by the norm of its own part."""

        def program(mesh):
            grad = mesh.distribute(np.ones((4, 6)), Shard(1))
            squares = (grad * grad).sum()
            norm = squares.redistribute(Replicate()).apply(np.sqrt).whole()
            assert norm == pytest.approx(24**0.5)
            squares.apply(np.sqrt)

        with pytest.raises(RankError, match="sqrt of a sum is not the sum of sqrt"):
            on((3,), program)

    def test_a_shard_that_is_used_as_if_it_were_whole(self):
        def program(mesh):
            np.asarray(mesh.distribute(np.ones((4, 6)), Shard(1))).mean()

        with pytest.raises(RankError, match=r"used as if it were whole, but is Shard\(1\).*all_gather"):
            on((3,), program)


def test_collectives_are_those_that_run_and_cost_what_they_take():
    network = Network(alpha=1e-5, beta=1e8)

    def program(comm, first, second):
        mesh = Mesh(comm, (2, 2))
        x = mesh.distribute(np.ones((8, 12)), *first)
        comm.barrier()
        before = comm.clock.now()
        listed, cost = x.collectives(*second), x.cost(network, *second)
        x.redistribute(*second)
        return listed, cost, before, comm.clock.now() - before

    for first, second in itertools.product(layouts((2, 2), 2), repeat=2):
        world = SimWorld(4, network)
        listed, cost, before, took = world.run(program, first, second)[0]
        ran = [s.name for s in world.trace.select(rank=0, lane="comm") if s.start >= before]
        assert ran == [name for _, name, _ in listed]
        assert took == pytest.approx(cost, rel=0.05, abs=1e-12), (first, second)


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        ((Shard(0),), "expected 2 of Shard"),
        ((Shard(0), Shard(0)), "different axes"),
        ((Shard(2), Replicate()), "axes from 0 to 1"),
        (("rows", Replicate()), "expected 2 of Shard"),
    ],
)
def test_wrong_placements_are_named(placements, message):
    with pytest.raises(RankError, match=message):
        on((2, 2), lambda mesh: mesh.distribute(np.ones((4, 4)), *placements))


def test_local_parts_make_an_array():
    def program(mesh):
        rank = mesh.comm.rank
        x = mesh.from_local(np.full((3 - rank, 2), float(rank)), Shard(0))
        assert x.shape == (5, 2)
        np.testing.assert_array_equal(to_whole(x)[:, 0], [0, 0, 0, 1, 1])
        with pytest.raises(LayoutError, match="along axis 0, expected"):
            mesh.from_local(np.ones((2 + rank, 2)), Shard(0))

    on((2,), program)
    with pytest.raises(RankError, match=r"shape is \(2, 3\), expected a product of 4"):
        SimWorld(4).run(Mesh, (2, 3))
