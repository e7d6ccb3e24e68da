"""The gradient noise scale, on a quadratic problem where it is known, and from data-parallel ranks."""

import numpy as np
import pytest

import distlearn as dl
from distlearn.comm.point_to_point import LocalComm
from distlearn.optim import NoiseScale
from distlearn.shares import shares

H = np.array([1.0, 0.5, 2.0, 0.1, 1.5])
SIGMA = np.array([2.0, 1.0, 0.5, 3.0, 1.0])
W = np.array([1.0, -2.0, 0.5, 1.0, 0.3])
TRACE, SQUARE = ((H * SIGMA) ** 2).sum(), ((H * W) ** 2).sum()


def observed(rng, steps, sizes):
    """The estimator after some steps; a sample's gradient is h (w - x), with x normal around 0."""
    noise, n = NoiseScale(), sum(sizes)
    parts = [(H * (W - SIGMA * rng.normal(size=(steps, b, len(H))))).mean(axis=1) for b in sizes]
    wholes = sum(b / n * g for b, g in zip(sizes, parts, strict=True))
    squares = sum(b / n * (g * g).sum(axis=1) for b, g in zip(sizes, parts, strict=True))
    for square, whole in zip(squares, wholes, strict=True):
        noise.add(square, whole @ whole, n, len(sizes))
    return noise


@pytest.mark.parametrize("sizes", [(4, 4), (8, 8, 8, 8), (1, 2, 7), (1, 15)])
def test_both_numbers_are_unbiased(sizes):
    noise = observed(np.random.default_rng(1), 20_000, sizes)
    for values, want in ((noise.traces, TRACE), (noise.squared_norms, SQUARE)):
        error = np.std(values) / np.sqrt(len(values))
        assert abs(np.mean(values) - want) < 4 * error
        assert error < 0.05 * want  # else the line above would accept anything


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(2)
    found = [observed(rng, 200, (4, 4, 4, 4)).estimate() for _ in range(300)]
    covered = np.mean([e.low <= TRACE / SQUARE <= e.high for e in found])
    assert 0.90 <= covered <= 0.98
    assert 0.9 < np.median([e.scale for e in found]) / (TRACE / SQUARE) < 1.1
    assert np.median([e.high / e.low for e in found]) < 2.5  # an interval without end covers everything


def test_at_the_minimum_there_is_no_upper_limit():
    noise = NoiseScale()
    rng = np.random.default_rng(3)
    for _ in range(100):
        parts = (SIGMA * rng.normal(size=(2, 8, len(H)))).mean(axis=1)
        whole = parts.mean(axis=0)
        noise.add((parts**2).sum() / 2, whole @ whole, 16, 2)
    estimate = noise.estimate()
    assert estimate.high == np.inf
    assert estimate.low > 0


def test_too_few_steps_are_an_error():
    noise = observed(np.random.default_rng(4), 5, (2, 2))
    with pytest.raises(ValueError, match="5 steps in 20 blocks"):
        noise.estimate()
    noise.add(1.0, 1.0, 4, parts=1)
    assert len(noise.traces) == 5, "one part says nothing about the noise"


@pytest.mark.parametrize(("size", "rows"), [(2, 8), (3, 7), (4, 3)])
def test_ranks_give_the_norms_of_their_gradients(size, rows):
    """Against gradients of the parts, computed one by one; also uneven parts, empty ones, and a frozen parameter."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(rows, 6)), rng.integers(3, size=rows)

    def build():
        model = dl.nn.MLP((6, 5, 3), dtype="float64")
        model.params[1].frozen = True
        return model, dl.nn.SoftmaxCrossEntropy()

    def gradient(part):
        model, loss = build()
        out, saved = model.forward(x[part])
        model.backward(loss(out, y[part])[1], saved)
        return np.concatenate([p.grad.ravel() for p in model.params if not p.frozen])

    def train(comm):
        model, loss = build()
        noise = NoiseScale()
        strategy = dl.DataParallel(
            comm, model, loss, dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1), cap_bytes=100, noise_scale=noise
        )
        part = shares(rows, size)[comm.rank]
        strategy.step(dl.data.Batch(x[part], y[part], rows))
        return noise

    parts = [part for part in shares(rows, size) if part.stop > part.start]
    want = NoiseScale()
    norms = [(part.stop - part.start) / rows * (gradient(part) @ gradient(part)) for part in parts]
    whole = gradient(slice(None))
    want.add(sum(norms), whole @ whole, rows, len(parts))
    for noise in dl.SimWorld(size).run(train):
        np.testing.assert_allclose(noise.traces, want.traces, rtol=1e-12)
        np.testing.assert_allclose(noise.squared_norms, want.squared_norms, rtol=1e-12)


def test_compressed_gradients_are_refused():
    model = dl.nn.MLP((6, 5, 3))
    optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1)
    with pytest.raises(ValueError, match="neither compressed nor scaled"):
        dl.DataParallel(
            LocalComm(),
            model,
            dl.nn.SoftmaxCrossEntropy(),
            optimizer,
            compress=dl.parallel.FP16(),
            noise_scale=NoiseScale(),
        )
