"""Formats of 4 and 8 bits: equal to `ml_dtypes` and to a slow reference; and a layer that trains with them."""

import math

import ml_dtypes
import numpy as np
import pytest

from distlearn import nn
from distlearn.sim import MetaArray

THEIRS = {
    nn.E4M3: ml_dtypes.float8_e4m3fn,
    nn.E2M1: ml_dtypes.float4_e2m1fn,
}
EXACT = nn.Format("float32", 8, 23, math.inf)


def theirs(fmt, x):
    """Saturated and rounded by `ml_dtypes`, which would make NaN of what is too large."""
    with np.errstate(over="ignore"):
        return np.clip(x, -fmt.largest, fmt.largest).astype(THEIRS[fmt]).astype(x.dtype)


@pytest.mark.parametrize("fmt", THEIRS, ids=lambda fmt: fmt.name)
def test_elements_are_those_of_ml_dtypes(fmt):
    """All values, all ties and their neighbours in float32, a million random bit patterns; signs of 0 too."""
    bits = 1 + fmt.exponent + fmt.mantissa
    values = np.arange(2**bits, dtype=np.uint8).view(THEIRS[fmt]).astype("float32")
    values = np.sort(values[np.isfinite(values)])
    np.testing.assert_array_equal(fmt.round(values), values)
    assert values[-1] == fmt.largest
    ties = (values[1:] / 2 + values[:-1] / 2).astype("float32")
    inf = np.array([np.inf], "float32")
    random = np.random.default_rng(0).integers(2**32, size=10**6, dtype=np.uint32).view("float32")
    x = np.concatenate([ties, np.nextafter(ties, inf), np.nextafter(ties, -inf), random[~np.isnan(random)], inf, -inf])
    got, want = fmt.round(x), theirs(fmt, x)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    assert np.isnan(fmt.round(np.array([np.nan]))).all()


def reference(fmt, rows):
    """Block by block, as the specifications say it, with the types of `ml_dtypes`."""
    f32, largest = np.float32, [float(abs(row).max()) for row in rows]
    if fmt.scale is None:
        top = math.frexp(fmt.element.largest)[1]
        scales = np.array([2.0 ** max(math.frexp(m)[1] - top, -127) if m else 1.0 for m in largest])
    else:
        tensor = f32(max(largest)) / f32(448 * 6)
        scales = np.array([theirs(nn.E4M3, f32(m) / f32(6) / tensor) * tensor for m in largest])
    scales, kept = scales[:, None], scales[:, None] > 0
    return theirs(fmt.element, rows * kept / np.where(kept, scales, 1)) * scales


@pytest.mark.parametrize("fmt", [nn.MXFP8, nn.MXFP4, nn.NVFP4], ids=lambda fmt: fmt.name)
def test_random_blocks(fmt, request):
    """10,000 (--thorough: 100,000) of all magnitudes of float32, with large ones, subnormal numbers and zeros."""
    rng, n = np.random.default_rng(1), 100_000 if request.config.getoption("--thorough") else 10_000
    rows = rng.normal(size=(n, fmt.block)) * 10.0 ** rng.uniform(-3, 1, (n, fmt.block))
    rows *= 10.0 ** (rng.uniform(-46, 36, (n, 1)) if fmt.scale is None else rng.uniform(-12, 1, (n, 1)))
    rows[::1000] = 0
    rows = rows.astype("float32")
    got = fmt.round(rows)
    np.testing.assert_array_equal(got, reference(fmt, rows))
    np.testing.assert_array_equal(fmt.round(rows.T, axis=0), got.T)
    np.testing.assert_array_equal(fmt.round(nn.MockDeviceArray(rows[:100]), axis=1).get(), fmt.round(rows[:100]))


def test_blocks_end_with_the_row():
    x = np.random.default_rng(0).normal(size=(20, 37)).astype("float32")
    rows = np.empty_like(x)
    for j in range(0, 37, 32):
        rows[:, j : j + 32] = nn.MXFP4.round(x[:, j : j + 32])
    np.testing.assert_array_equal(nn.MXFP4.round(x), rows)
    assert nn.MXFP4.nbytes((20, 37)) == 20 * 37 // 2 + 20 * 2
    assert nn.NVFP4.nbytes((20, 37), 0) == 20 * 37 // 2 + 2 * 37 + 4
    assert nn.MXFP8.nbytes((3, 5)) == 3 * 5 + 3
    assert nn.E2M1.nbytes((3, 5)) == 8


def test_what_is_not_finite_spoils_its_block_alone():
    x = np.ones((3, 32), "float32")
    x[1, 3], x[2, 4] = np.inf, np.nan
    assert np.isnan(nn.MXFP4.round(x)).all(axis=1).tolist() == [False, True, True]
    assert np.isnan(nn.NVFP4.round(x)).all()  # its scale is the array's


@pytest.mark.parametrize("fmt", [nn.MXFP8, nn.MXFP4, nn.NVFP4, nn.E4M3, nn.E2M1], ids=lambda fmt: fmt.name)
def test_stochastic_rounding_is_right_on_average(fmt):
    """The mean of 4,000 is within 5 standard errors, which rounding to nearest misses; values of the format stay."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 32).astype("float32")
    x[[0, 16]] = 0.75  # the largest of a block of 16 and of 32, which does not saturate
    x = np.clip(x, -0.75, 0.75)
    draws = fmt.round(np.tile(x, (4000, 1)), rng)
    error = draws.std(axis=0) / math.sqrt(4000) + 1e-7
    assert (abs(draws.mean(axis=0) - x) < 5 * error).all()
    assert (abs(fmt.round(x) - x) > 5 * error).any()
    np.testing.assert_array_equal(fmt.round(draws[:100], rng), draws[:100])
    assert max(len(np.unique(column)) for column in draws.T) == 2


def test_precision_is_kept_and_mistakes_are_named():
    x = np.linspace(-2, 2, 32)
    for dtype in ("float16", "float64"):
        assert nn.MXFP8.round(x.astype(dtype)).dtype == dtype
    for fmt in (nn.E2M1, nn.NVFP4):
        with pytest.raises(TypeError, match=f"{fmt.name}: the array is int64, expected floating-point numbers"):
            fmt.round(np.arange(3))
    with pytest.raises(ValueError, match="axis 2 is out of bounds for array of dimension 1"):
        nn.MXFP8.round(x, axis=2)
    with pytest.raises(ValueError, match="mine: block is 0, expected a whole number of 1 or more"):
        nn.BlockFormat("mine", nn.E2M1, 0)
    with pytest.raises(ValueError, match=r"mine has 9 bits of exponent and 2 of mantissa, expected 2 to 8 and 1 to 23"):
        nn.Format("mine", 9, 2, 1.0)
    with pytest.raises(TypeError, match="LowPrecisionLinear: fmt is 'NVFP4', expected a format such as NVFP4"):
        nn.LowPrecisionLinear(2, 2, fmt="NVFP4")


# -- the layer ---------------------------------------------------------------------------------------------------------


def passes(layer, x, dy):
    layer.W.grad[...] = 0
    y, saved = layer.forward(x)
    return y, layer.backward(dy, saved), layer.W.grad.copy()


RNG = np.random.default_rng(3)
X, DY = RNG.normal(size=(40, 48)).astype("float32"), RNG.normal(size=(40, 32)).astype("float32")


def test_with_an_exact_format_it_is_the_dense_layer():
    layer = nn.LowPrecisionLinear(48, 32, 1, fmt=EXACT, stochastic=False)
    for got, want in zip(passes(layer, X, DY), passes(nn.Linear(48, 32, 1), X, DY), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.b.grad, DY.sum(axis=0), rtol=1e-4)
    meta = layer.forward(MetaArray((40, 48)))[0]
    assert meta.shape == (40, 32)


def test_gradients_alone_are_rounded_at_random():
    plain, random = (
        passes(nn.LowPrecisionLinear(48, 32, 1, fmt=nn.NVFP4, stochastic=on), X, DY) for on in (False, True)
    )
    assert [np.array_equal(a, b) for a, b in zip(plain, random, strict=True)] == [True, False, False]
    plain_signs, random_signs = (  # gradients that the format has: nothing else is rounded at random
        passes(nn.LowPrecisionLinear(48, 32, 1, fmt=nn.MXFP4, stochastic=on), X, np.sign(DY)) for on in (False, True)
    )
    assert all(np.array_equal(a, b) for a, b in zip(plain_signs, random_signs, strict=True))
    exact = passes(nn.Linear(48, 32, 1), X, DY)
    for got, want in zip(plain, exact, strict=True):
        assert 0.02 < np.linalg.norm(got - want) / np.linalg.norm(want) < 0.2
