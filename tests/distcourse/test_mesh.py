"""Arrays that know their layout: changes keep the values, every operation is NumPy's or an error that says why."""

import itertools
import operator
import re

import numpy as np
import pytest
from distcourse.mesh import LayoutError, Mesh, Partial, Replicate, Shard

from distlearn.comm import RankError
from distlearn.sim import SimWorld


def layouts(ndim):
    return [Replicate(), Partial(), *map(Shard, range(ndim))]


def on(size, fn, *args):
    return SimWorld(size).run(lambda comm: fn(Mesh(comm), *args))


def whole_of(array):
    return array.redistribute(Replicate()).whole()


MOVES = {("Shard", "Replicate"): "all_gather", ("Shard", "Shard"): "all_to_all",
         ("Partial", "Replicate"): "all_reduce", ("Partial", "Shard"): "reduce_scatter"}  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(4, 6), (5, 7), (1, 2)])
def test_every_layout_leads_to_every_other_by_one_collective(size, shape):
    """Also where shares are unequal, or empty."""
    whole = np.random.default_rng(0).normal(size=shape)
    for first, second in itertools.product(layouts(2), repeat=2):
        world, results = SimWorld(size), []

        def program(comm, first=first, second=second, results=results):
            y = Mesh(comm).distribute(whole, first).redistribute(second)
            assert y.placement == second
            results.append(y)

        world.run(program)
        names = [s.name for s in world.trace.select(rank=0, lane="comm")]
        wanted = MOVES.get((type(first).__name__, type(second).__name__)) if first != second else None
        assert names == ([wanted] if wanted else [])
        for found in on(size, lambda mesh, a=first, b=second: whole_of(mesh.distribute(whole, a).redistribute(b))):
            np.testing.assert_allclose(found, whole, atol=1e-12)


ALLOWED = {("R", "R"), ("R", "P"), ("P", "R"), ("R", "S1"), ("last", "S0"), ("lead", "R")}
REMEDY = re.compile(r"the (first|second) to (Shard\(\d\)|Replicate\(\)) \((all_\w+|reduce_scatter|no collective)\)")


def kind(placement, last):
    if isinstance(placement, Shard):
        return f"S{placement.axis}" if last is None else "last" if placement.axis == last else "lead"
    return "R" if isinstance(placement, Replicate) else "P"


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_a_product_is_numpys_or_an_error_whose_advice_leads_to_it(size, lead):
    """An error exactly where the sum of the ranks' products is not what the placement of the result says."""
    rng, last = np.random.default_rng(6), 1 + len(lead)
    x, w = rng.normal(size=(*lead, 5, 6)), rng.normal(size=(6, 7))

    def follow(a, b, told=()):
        """Follow recommendations until the product fits; whether one of the ways leads there."""
        try:
            y = a @ b
        except LayoutError as error:
            text = str(error)
        else:
            np.testing.assert_allclose(whole_of(y), x @ w, atol=1e-12)
            return True
        ways = REMEDY.findall(text)
        assert ways, text
        assert repr(a) in text
        assert repr(b) in text
        assert len(told) < 4, told
        for which, new, name in ways:
            new = Replicate() if new == "Replicate()" else Shard(int(new[6:-1]))
            old = a if which == "first" else b
            assert name == MOVES.get((type(old.placement).__name__, type(new).__name__), "no collective")
            made = old.redistribute(new)
            if follow(*((made, b) if which == "first" else (a, made)), (*told, text)):
                return True
        return False

    def program(mesh):
        for first, second in itertools.product(layouts(last + 1), layouts(2)):
            a, b = mesh.distribute(x, first), mesh.distribute(w, second)
            if (kind(first, last), kind(second, None)) in ALLOWED:
                np.testing.assert_allclose(whole_of(a @ b), x @ w, atol=1e-12)
            else:
                with pytest.raises(LayoutError):
                    a @ b
                assert follow(a, b), (first, second)

    on(size, program)


@pytest.mark.parametrize("vector", [False, True])
def test_sums_and_elementwise_products_are_numpys_or_an_error(vector):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(4, 5)), rng.normal(size=(5,) if vector else (4, 5))
    signs = {"+": operator.add, "*": operator.mul}

    def program(mesh):
        for (sign, f), a, b in itertools.product(signs.items(), layouts(2), layouts(y.ndim)):
            p, q = mesh.distribute(x, a), mesh.distribute(y, b)
            try:
                np.testing.assert_allclose(whole_of(f(p, q)), f(x, y), atol=1e-12)
                done = True
            except LayoutError:
                done = False
            if a == b and not vector and not (sign == "*" and a == Partial()):
                assert done
            if a == Partial() and b == Replicate():
                assert done == (sign == "*")

    on(3, program)


def relu(x):
    return np.maximum(x, 0)


def test_totals_transposes_and_functions():
    whole = np.random.default_rng(3).normal(size=(4, 6))

    def program(mesh):
        for layout in layouts(2):
            x = mesh.distribute(whole, layout)
            for axis in (None, 0, 1, -1):
                np.testing.assert_allclose(whole_of(x.sum(axis)), whole.sum(axis), atol=1e-12)
            np.testing.assert_allclose(whole_of(x.T), whole.T)
            np.testing.assert_allclose(whole_of(x * 2.0), 2 * whole)
            np.testing.assert_allclose(whole_of(sum([x, x])), 2 * whole)  # begins with 0
            if layout == Partial():
                with pytest.raises(LayoutError, match="relu of a sum is not the sum of relu"):
                    x.apply(relu)
                with pytest.raises(LayoutError, match="power of a sum"):
                    x**2
            else:
                np.testing.assert_allclose(whole_of(x**2), whole**2)
                np.testing.assert_allclose(whole_of(x.apply(relu)), relu(whole))

    on(3, program)


@pytest.mark.parametrize(
    ("bug", "message"),
    [
        (lambda of: of(Partial()) + of(Replicate()), r"would be added once on each of the 2 ranks.*\(all_reduce\)"),
        (lambda of: of(Partial()).all_reduce().all_reduce(), "it would be multiplied by the number of ranks"),
        (lambda of: of(Shard(1)).all_reduce(), "different parts of it, which are not summands"),
        (lambda of: np.asarray(of(Shard(1))).mean(), r"used as if it were whole, but is Shard\(1\).*all_gather"),
    ],
)
def test_bugs_of_real_frameworks_are_errors(bug, message):
    """Each runs without an error on plain arrays, and gives a wrong number."""
    with pytest.raises(RankError, match=message):
        on(2, lambda mesh: bug(lambda kind: mesh.distribute(np.ones((4, 6)), kind)))


@pytest.mark.parametrize(
    ("placement", "message"), [(Shard(2), "an axis from 0 to 1"), ("rows", r"expected Shard\(axis\), Replicate")]
)
def test_wrong_placements_are_named(placement, message):
    with pytest.raises(RankError, match=message):
        on(2, lambda mesh: mesh.distribute(np.ones((4, 4)), placement))
