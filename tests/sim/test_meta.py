"""Arrays without data: the same messages, bytes and virtual times as real ones, and no way to read them."""

import numpy as np
import pytest

from distlearn.backend import get_xp
from distlearn.comm import Network, RankError
from distlearn.comm.point_to_point import LocalComm
from distlearn.sim import MetaArray, SimWorld


def test_it_looks_like_an_array():
    x, y = MetaArray((6, 4), "f8"), np.empty((6, 4))
    assert (x.shape, x.dtype, x.size, x.ndim, x.nbytes, len(x)) == (y.shape, y.dtype, y.size, y.ndim, y.nbytes, len(y))
    for key in (slice(1, 3), slice(-2, None), slice(9, 2), 2, (slice(None), 1), (0, 0), ..., None):
        assert x[key].shape == y[key].shape
    assert x.reshape(3, -1).shape == x.reshape((3, 8)).shape == (3, 8)
    assert x.T.shape == x.swapaxes(0, 1).shape == (4, 6)
    assert [row.shape for row in x] == [(4,)] * 6
    assert x.astype("f4").dtype == np.float32
    x[1:3] = 5.0
    with pytest.raises(ValueError, match="reshape"):
        x.reshape(5)
    with pytest.raises(ValueError, match="broadcast"):
        x[0] = np.zeros(3)


A, B = np.array([0, 2, 1]), np.array([[1], [2]])
EVERY = slice(None)


@pytest.mark.parametrize(
    "key",
    [A, (slice(1, 3), A), (..., A), (A, EVERY, A), (EVERY, A, A), (EVERY, A, None, A), (None, A), (0, A), (EVERY, 0, A),
     (B, A), (EVERY, B, A), (B, EVERY, A), (np.array(2), A), ([0, 1], [1, 2]), [], (slice(0, 0), A), A > 0],
    ids=str,
)  # fmt: skip
def test_arrays_pick_what_they_pick_of_numpys(key):
    x = np.empty((3, 5, 6, 7))
    assert MetaArray(x.shape, "f8")[key].shape == x[key].shape


def test_what_arrays_pick_takes_no_memory():
    x, rows = MetaArray((1 << 40, 8)), MetaArray((1 << 39, 2), np.int64)
    assert x[rows].shape == (1 << 39, 2, 8)
    assert x[:, A].shape == (1 << 40, 3)
    x[..., A] = 0.0


def test_arithmetic_gives_meta_arrays_of_the_right_shape_and_dtype():
    x = MetaArray((3, 1), "f4")
    assert repr(x + np.zeros(5)) == "MetaArray((3, 5), float64)"
    assert repr(2 * x) == "MetaArray((3, 1), float32)"
    assert repr(np.concatenate([x, x])) == "MetaArray((6, 1), float32)"
    assert repr(np.empty_like(x)) == "MetaArray((3, 1), float32)"
    assert np.add(x, x, out=x) is x


def test_products_have_the_shape_of_products():
    x, y = MetaArray((5, 3, 4)), MetaArray((4, 7))
    assert (x @ y).shape == (5, 3, 7)
    assert (np.ones(4, "f4") @ y).shape == (7,)
    assert np.matmul(y.T, y, out=(out := MetaArray((7, 7)))) is out
    with pytest.raises(ValueError, match=r"shapes \(7, 4\) and \(7, 4\) do not fit"):
        y.T @ y.T


def test_a_single_one_is_a_number_that_nobody_knows():
    assert np.isnan(float(MetaArray(1)))
    with pytest.raises(TypeError, match="not a single number"):
        float(MetaArray(2))


def test_its_values_cannot_be_read():
    for read in (np.asarray, lambda x: np.zeros(3) + np.array(x), lambda x: np.linalg.norm(x)):
        with pytest.raises(TypeError):
            read(MetaArray(3))
    with pytest.raises(TypeError, match=r"MetaArray\(\(3,\), float32\) has a size but no data"):
        np.asarray(MetaArray(3))
    with pytest.raises(ValueError, match="expected lengths of 0 or more"):
        MetaArray(-1)


def test_the_native_collectives_take_it():
    def program(comm, make):
        x, rows = make(6, "f4"), make((comm.size, 6), "f4")
        comm.iall_reduce(x).wait()
        sent = comm.isend(x, (comm.rank + 1) % 3)
        comm.recv(x, (comm.rank - 1) % 3)
        sent.wait()
        results = [
            comm.all_reduce(x), comm.reduce_scatter(x), comm.all_gather(x), comm.broadcast(x), comm.scatter(rows, x),
            comm.gather(x), comm.all_to_all(rows),
        ]  # fmt: skip
        return [None if r is None else (r.shape, r.dtype) for r in results]

    real, meta = SimWorld(3, Network(1e-6, 1e9)), SimWorld(3, Network(1e-6, 1e9))
    assert real.run(program, np.ones) == meta.run(program, MetaArray)
    assert real.trace == meta.trace
    assert LocalComm().all_reduce(MetaArray(3)).shape == (3,)


def test_it_does_not_mix_with_data():
    def program(comm):
        if comm.rank == 0:
            comm.send(MetaArray(3), 1)
        else:
            comm.recv(np.zeros(3, "f4"), 0)

    with pytest.raises(RankError, match="expected a ndarray, but the message holds a MetaArray"):
        SimWorld(2).run(program)


def test_views_and_copies_are_numpys():
    """Which results share the memory of an array decides what a step holds; strides decide which may."""
    x, y = MetaArray((4, 6, 2), "f8"), np.zeros((4, 6, 2))
    ways = {
        "a part": lambda a: a[1:3, ::2], "an element of rows": lambda a: a[..., 1], "transposed": lambda a: a.T,
        "swapped, then flat": lambda a: a.swapaxes(0, 1).reshape(-1), "reshaped": lambda a: a.reshape(8, -1),
        "rows of a part": lambda a: a[:, 2:4].reshape(4, -1), "an axis more": lambda a: a[:, None],
        "a part that stays whole": lambda a: a[1:3].reshape(-1), "by indices": lambda a: a[[0, 2]],
        "contiguous": lambda a: get_xp(a).ascontiguousarray(a.transpose(1, 0, 2)), "a copy": lambda a: a.copy(),
    }  # fmt: skip
    for name, way in ways.items():
        meta, real = way(x), way(y)
        assert (meta.shape, meta.flags.c_contiguous) == (real.shape, real.flags.c_contiguous), name
        assert (meta.block is x.block) == np.may_share_memory(real, y), name
