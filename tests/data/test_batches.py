import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlearn.data import Batch, Batches, shard

SIZES = st.integers(1, 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 0, 4), "3 samples for 4 ranks, expected at least one"),
        ((0, 0, 1), "0 samples for 1 ranks"),
        ((10, 4, 4), "rank is 4, expected 0 to 3"),
        ((10, -1, 4), "rank is -1"),
        ((10, 0, 0), "size is 0"),
        ((10, 0, -2), "size is -2"),
        ((-1, 0, 1), "n is -1"),
        ((10, 0.5, 4), "rank is 0.5"),
        ((10, 0, "2"), "size is '2'"),
    ],
)
def test_shard_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        shard(*arguments)


def numbered(n, features=3):
    """Samples that can be told apart, with their number as the label."""
    y = np.arange(n)
    return (y[:, None] + np.linspace(0, 0.5, features)).astype(np.float32), y


@given(n=st.integers(1, 60), batch_size=st.integers(1, 70), size=SIZES, seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_ranks_together_have_exactly_the_serial_batch(n, batch_size, size, seed, epoch):
    size = min(size, n)
    x, y = numbered(n)
    serial = list(Batches(x, y, batch_size, seed=seed).epoch(epoch))
    ranks = [Batches(x, y, batch_size, rank=rank, size=size, seed=seed) for rank in range(size)]
    parts = [list(batches.epoch(epoch)) for batches in ranks]
    assert {len(batches) for batches in ranks} == {len(serial)} == {len(part) for part in parts}
    for step, whole in enumerate(serial):
        mine = [part[step] for part in parts]
        np.testing.assert_array_equal(np.concatenate([b.x for b in mine]), whole.x)
        np.testing.assert_array_equal(np.concatenate([b.y for b in mine]), whole.y)
        assert {b.n for b in mine} == {whole.n} == {len(whole.x)}
        assert max(len(b.x) for b in mine) - min(len(b.x) for b in mine) <= 1


@given(n=st.integers(1, 60), batch_size=st.integers(1, 70))
def test_an_epoch_visits_every_sample_once(n, batch_size):
    x, y = numbered(n)
    batches = Batches(x, y, batch_size)
    seen = np.concatenate([batch.y for batch in batches.epoch(0)])
    assert len(batches) == -(-n // min(batch_size, n))
    assert sorted(seen.tolist()) == list(range(n))
    for batch in batches.epoch(0):  # labels stay with their samples
        np.testing.assert_array_equal(batch.x, x[batch.y])


def test_order_depends_on_seed_and_epoch_alone():
    x, y = numbered(50)
    orders = {
        (seed, epoch): tuple(Batches(x, y, 7, rank=rank, size=3, seed=seed).order(epoch))
        for seed in (0, 1)
        for epoch in (0, 1)
        for rank in (2, 0)
    }
    assert len(set(orders.values())) == 4
    for (seed, epoch), order in orders.items():
        assert order == tuple(Batches(x, y, 50, seed=seed).order(epoch))
        assert sorted(order) == list(range(50))


def test_a_batch_with_fewer_samples_than_ranks_leaves_the_highest_ranks_empty_arrays():
    x, y = numbered(9)
    last = [list(Batches(x, y, 7, rank=rank, size=4).epoch(0))[-1] for rank in range(4)]
    assert [batch.x.shape for batch in last] == [(1, 3), (1, 3), (0, 3), (0, 3)]
    assert [batch.y.shape for batch in last] == [(1,), (1,), (0,), (0,)]
    assert {batch.n for batch in last} == {2}
    assert {batch.x.dtype for batch in last} == {np.dtype(np.float32)}


def test_batches_of_images_and_of_any_dtype_are_contiguous_and_the_receivers_own():
    x = np.arange(6 * 4 * 4, dtype=np.float64).reshape(6, 4, 4, 1)
    kept = x.copy()
    for batch in Batches(x, np.arange(6), 4).epoch(0):
        assert batch.x.flags.c_contiguous
        assert batch.x.dtype == np.float64
        batch.x[:] = -1
    np.testing.assert_array_equal(x, kept)


def test_batch_unpacks_and_batches_say_what_they_are():
    x, y = numbered(10)
    batch = next(Batches(x, y, 4).epoch(0))
    assert isinstance(batch, Batch)
    assert (batch.x, batch.y, batch.n) == tuple(batch)
    assert repr(Batches(x, y, 4, rank=1, size=2)) == "Batches(3 of 4 from (10, 3) float32, rank 1 of 2, seed 0)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.arange(9)}, "x holds 10 samples and y 9 labels"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"size": 11}, "10 samples for 11 ranks"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_batches_refuse(change, message):
    x, y = numbered(10)
    arguments = {"x": x, "y": y, "batch_size": 4} | change
    with pytest.raises(ValueError, match=message):
        Batches(**arguments)


@pytest.mark.parametrize("start", [0, 1, 3, 4, 9])
def test_an_epoch_can_begin_in_the_middle(start):
    x, y = np.arange(22.0).reshape(11, 2), np.arange(11)
    batches = Batches(x, y, 3, rank=1, size=2, seed=4)
    want, got = list(batches.epoch(2))[start:], list(batches.epoch(2, start))
    assert len(got) == len(want) == max(0, 4 - start)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)
        assert a.n == b.n
    with pytest.raises(ValueError, match="start is -1"):
        batches.epoch(2, -1)


def test_a_wrong_epoch_is_refused_at_the_call():
    with pytest.raises(ValueError, match="epoch is -1"):
        Batches(*numbered(10), 4).epoch(-1)


@pytest.mark.gpu
def test_batches_of_an_array_on_the_gpu_stay_there():
    from distlearn.backend import to_device, to_numpy

    x, y = numbered(10)
    on_gpu = Batches(to_device(x, "gpu"), to_device(y, "gpu"), 4, rank=1, size=2)
    for found, expected in zip(on_gpu.epoch(1), Batches(x, y, 4, rank=1, size=2).epoch(1), strict=True):
        assert type(found.x).__module__.startswith("cupy")
        np.testing.assert_array_equal(to_numpy(found.x), expected.x)
        np.testing.assert_array_equal(to_numpy(found.y), expected.y)


@pytest.mark.parametrize(("x", "y", "name"), [([[1.0], [2.0]], np.zeros(2, int), "x"), (np.zeros((2, 1)), [0, 1], "y")])
def test_lists_are_told_to_become_arrays(x, y, name):
    with pytest.raises(TypeError, match=f"Batches: {name} is a list, expected an array, such as np.array"):
        Batches(x, y, 1)
