"""Compression: exact where it says so, right on average or in the long run where not, and the bytes that it says."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import Network
from distlearn.comm.collectives import shares
from distlearn.parallel import FP16, CompressedAllReduce, DataParallel, Int8, OneBit, TopK
from distlearn.sim import SimWorld

from .programs import assert_same_params, run, serial

CODECS = [FP16(), Int8(), OneBit(), TopK(0.1), TopK(1.0)]


def there_and_back(codec, x, seed=0):
    code = codec.encode(x, np.random.default_rng(seed))
    assert code.dtype == np.uint8
    assert code.shape == (codec.nbytes(x.size, x.dtype),)
    out = np.full_like(x, np.nan)
    codec.decode(code, out)
    return out


def all_reduce(size, codec, data, rounds=1):
    """Reduce data[rank] `rounds` times; return the results of each round, by rank, and the world."""

    def program(comm):
        reducer, found = CompressedAllReduce(comm, data.shape[1], codec), []
        for _ in range(rounds):
            x = data[comm.rank].copy()
            work = reducer.start(x)
            assert work.wait() is work.wait() is x
            found.append(x)
        assert codec.error_feedback or not reducer.errors
        return np.array(found)

    world = SimWorld(size, Network(1e-6, 1e9), collectives="formula")  # the messages are those of the strategy itself
    return np.array(world.run(program)), world


# -- codecs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS, ids=str)
@given(n=st.integers(0, 40), dtype=st.sampled_from(["f4", "f8"]))
@settings(max_examples=25, deadline=None)
def test_codes_have_the_size_they_say_and_zeros_stay_zero(codec, n, dtype):
    there_and_back(codec, np.random.default_rng(n).normal(size=n).astype(dtype))
    np.testing.assert_array_equal(there_and_back(codec, np.zeros(n, dtype)), np.zeros(n))


def test_half_precision_is_numpys():
    x = np.array([1.0, 1 / 3, 1e6, -1e6, 1e-9])
    np.testing.assert_array_equal(there_and_back(FP16(), x), [1.0, np.float16(1 / 3), 65504, -65504, 0])


def test_stochastic_rounding_is_right_on_average():
    x = np.random.default_rng(1).normal(size=50)
    tries = np.array([there_and_back(Int8(), x, seed) for seed in range(4000)])
    step = abs(x).max() / 127
    assert abs(tries - x).max() <= step * (1 + 1e-6)
    assert abs(tries.mean(0) - x).max() < 5 * step / np.sqrt(4 * 4000)  # the deviation of one try is step / 2 at most
    assert len(np.unique(tries[:, 0])) == 2


def test_one_bit_keeps_the_means():
    x = np.array([3.0, 1.0, -2.0, 0.0, -4.0])
    np.testing.assert_allclose(there_and_back(OneBit(), x), [4 / 3, 4 / 3, -3, 4 / 3, -3], rtol=1e-6)
    assert there_and_back(OneBit(), x).sum() == pytest.approx(x.sum())


def test_top_k_keeps_the_largest():
    x = np.array([0.1, -5.0, 0.2, 3.0, -0.3])
    np.testing.assert_array_equal(there_and_back(TopK(0.4), x), [0, -5.0, 0, 3.0, 0])
    np.testing.assert_array_equal(there_and_back(TopK(1e-9), x), [0, -5.0, 0, 0, 0])
    with pytest.raises(ValueError, match="ratio is 0, expected a number above 0 and up to 1"):
        TopK(0)


def test_what_is_broken_stays_visible():
    for codec in CODECS:
        if codec != TopK(0.1):
            assert np.isnan(there_and_back(codec, np.array([1.0, np.nan, 2.0]))).any(), codec


# -- all-reduce ------------------------------------------------------------------------------------------------------


@given(size=st.integers(1, 6), n=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_exact_where_nothing_is_lost(size, n):
    """Everything with k = n; small whole numbers in half precision; eight bits with values 0 and one size."""
    data = np.random.default_rng([size, n]).integers(-9, 9, (size, n)).astype("f8")
    for codec in (TopK(1.0), FP16()):
        results, _ = all_reduce(size, codec, data)
        for found in results:
            np.testing.assert_array_equal(found[0], data.sum(0))


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize(("size", "n"), [(2, 100), (3, 50), (4, 3), (5, 0)])
def test_every_rank_gets_the_same_bits_and_the_trace_counts_the_codes(codec, size, n):
    data = np.random.default_rng(0).normal(size=(size, n)).astype("f4")
    results, world = all_reduce(size, codec, data, rounds=3)
    assert {r.tobytes() for r in results} == {results[0].tobytes()}
    if codec.sparse:
        wanted, phases = size * (size - 1) * codec.nbytes(n, "f4"), 1
    else:
        parts = [codec.nbytes(s.stop - s.start, "f4") for s in shares(n, size)]
        wanted, phases = 2 * (size - 1) * sum(parts), 2
    assert world.trace.bytes_sent == 3 * wanted
    assert len(world.trace.messages) == 3 * phases * size * (size - 1)


@pytest.mark.parametrize("codec", [c for c in CODECS if c.error_feedback], ids=str)
def test_error_feedback_loses_nothing_in_the_long_run(codec):
    """The sum over rounds is off by what is still kept: bounded, so the mean of T rounds is off by O(1 / T)."""
    data = np.random.default_rng(3).normal(size=(4, 60))
    results, _ = all_reduce(4, codec, data, rounds=400)
    error = abs(results[0].mean(0) - data.sum(0))
    assert error.max() < 0.15
    assert error.max() > 0 or codec == TopK(1.0)
    early = abs(results[0][:40].mean(0) - data.sum(0))
    assert error.max() < 0.5 * early.max() + 1e-12


# -- training --------------------------------------------------------------------------------------------------------


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "overlap"), [(1, True), (3, True), (4, False)])
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_replicas_stay_equal_the_loss_is_exact_and_sending_everything_is_serial_training(codec, size, overlap):
    if codec == TopK(0.1):  # of so few steps and so small a share some parameter would not change at all
        codec = TopK(0.7)
    want = SimWorld(1).run(run, serial, rule="momentum", steps=3)[0]
    make = partial(DataParallel, compress=codec, cap_bytes=300, overlap=overlap)
    results = SimWorld(size).run(run, make, rule="momentum", steps=3, uneven=True)
    first = results[0]
    for result in results:
        for p, q in zip(first.strategy.model.params, result.strategy.model.params, strict=True):
            assert p.data.tobytes() == q.data.tobytes()
        assert result.losses == first.losses
    exact = 3 if codec == TopK(1.0) else 1
    np.testing.assert_allclose(first.losses[:exact], want.losses[:exact], atol=1e-12)
    if codec == TopK(1.0):
        assert_same_params(first.params, want.params)
