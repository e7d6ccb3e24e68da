"""One way to share n among p: every caller gets the same parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlearn import data
from distlearn.comm import collectives
from distlearn.parallel.meta import meta_batch
from distlearn.parallel.tensor import AxisSharding
from distlearn.shares import share, shares


@given(st.integers(0, 50), st.integers(1, 12))
def test_all_parts_are_those_of_numpy(n, size):
    want = [part.tolist() for part in np.array_split(np.arange(n), size)]
    assert [list(range(n))[part] for part in shares(n, size)] == want
    assert [share(n, rank, size) for rank in range(size)] == shares(n, size) == collectives.shares(n, size)
    assert size > n or [data.shard(n, rank, size) for rank in range(size)] == shares(n, size)
    assert [part.tolist() for part in AxisSharding.even(n, size).indices] == want
    assert [len(meta_batch(n, (3,), rank, size).x) for rank in range(size)] == [len(part) for part in want]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_end_of_the_last_part_is_the_beginning_of_one_beyond(size):
    """What recursive halving reads as the end of a range of parts."""
    assert share(10, size, size).start == 10
