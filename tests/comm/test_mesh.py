"""A mesh: every rank in one place, every axis a communicator of those that differ in it alone."""

import numpy as np
import pytest

from distlearn.comm import RankError, mesh
from distlearn.sim import SimWorld


@pytest.mark.parametrize("shape", [(2, 3, 2), (1, 1, 1), (4, 1, 1), (1, 2, 3)])
def test_axes_are_rows_of_the_box(shape):
    box = np.arange(np.prod(shape)).reshape(shape)

    def program(comm):
        m = mesh(comm, dp=shape[0], pp=shape[1], tp=shape[2])
        rows = {}
        for axis in m.axes:
            part = m[axis]
            assert part is getattr(m, axis)
            assert part.rank == m.coordinates[axis]
            rows[axis] = part.all_gather(np.array([comm.rank])).ravel().tolist()
        assert [tuple(m.where(r).values()) for r in range(comm.size)] == list(np.ndindex(shape))
        return tuple(m.coordinates.values()), rows

    for rank, (place, rows) in enumerate(SimWorld(box.size).run(program)):
        assert box[place] == rank
        d, p, t = place
        assert rows == {"dp": box[:, p, t].tolist(), "pp": box[d, :, t].tolist(), "tp": box[d, p].tolist()}


def test_one_axis_can_be_what_is_left():
    assert SimWorld(6).run(lambda comm: mesh(comm, dp=-1, tp=2).axes) == [{"dp": 3, "tp": 2}] * 6


@pytest.mark.parametrize(
    ("axes", "match"),
    [
        ({"dp": 2, "pp": 2, "tp": 1}, r"mesh\(dp=2, pp=2, tp=1\) needs 4 ranks, but the communicator has 6"),
        ({"dp": 4, "pp": -1}, "needs a multiple of 4 ranks, but the communicator has 6"),
        ({"dp": -1, "pp": -1}, "only one axis can be -1"),
        ({"dp": 0}, "dp=0, expected a length"),
        ({"dp": 6.0}, "dp=6.0, expected a length"),
        ({"comm": 6}, "cannot be called 'comm'"),
        ({}, "mesh needs an axis"),
    ],
)
def test_wrong_shapes_are_named(axes, match):
    with pytest.raises(RankError, match=match):
        SimWorld(6).run(lambda comm: mesh(comm, **axes))


def test_unknown_axes_are_named():
    def program(comm):
        m = mesh(comm, dp=2)
        for call, kind, match in [
            (lambda: m.tp, AttributeError, "no axis 'tp', it has dp"),
            (lambda: m["tp"], KeyError, "no axis 'tp'"),
        ]:
            with pytest.raises(kind, match=match):
                call()
        return repr(m)

    assert SimWorld(2).run(program) == ["Mesh(rank 0: dp 0 of 2)", "Mesh(rank 1: dp 1 of 2)"]


def test_numpys_whole_numbers_are_lengths():
    assert SimWorld(6).run(lambda comm: mesh(comm, dp=np.int64(2), pp=-1).axes)[0] == {"dp": 2, "pp": 3}
