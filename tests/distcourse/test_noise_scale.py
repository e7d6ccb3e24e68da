"""The gradient noise scale, on a quadratic problem where it is known."""

import numpy as np
import pytest
from distcourse.noise_scale import NoiseScale

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
