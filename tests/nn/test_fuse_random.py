"""Random rows of layers, fused and one by one: the same outputs and gradients; NaN and infinity never disappear."""

import copy

import numpy as np
import pytest

from distlearn import nn
from distlearn.nn.fused import is_fused

ROUNDING = {"float32": 2e-4, "float64": 1e-10}


def draw_case(rng, dtype):
    """Return a model whose layers `fuse` replaces, and its input."""

    def of(*options):
        return options[rng.integers(len(options))]

    def pair(low, high):
        return tuple(int(n) for n in rng.integers(low, high + 1, 2))

    if of(True, False, False):
        model = nn.Sequential(nn.Linear(5, 7, 1, dtype=dtype), nn.ReLU(), nn.Linear(7, 3, 2, dtype=dtype))
        shape = (int(rng.integers(1, 5)), 5)
    else:
        groups, size, padding = of(1, 1, 2), of((3, 3), (1, 1), pair(1, 5)), pair(0, 3)
        c_in, c_out = of((1, 3), (4, 2), (6, 6), (16, 32))
        groups = groups if c_in % groups == c_out % groups == 0 else 1
        options = {"stride": of((1, 1), pair(1, 3)), "padding": padding, "groups": groups}
        conv = nn.Conv2d(c_in, c_out, size, 1, dtype=dtype, **options)
        h, w = (max(1, k - 2 * p + int(rng.integers(0, 12))) for k, p in zip(size, padding, strict=True))
        shape = (int(rng.integers(1, 4)), h, w, c_in)
        window = tuple(min(k, n) for k, n in zip(pair(1, 3), conv.output_shape(shape)[1:3], strict=True))
        rest = [nn.MaxPool(window, of(window, pair(1, 2)), ceil=of(True, False))] * of(0, 1) + [nn.ReLU()] * of(0, 1)
        model = nn.Sequential(conv, *(rest if of(True, False) else rest[::-1]))
    for p in model.params:
        p.data[...] = rng.normal(size=p.data.shape)
    return model, rng.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_same_numbers(dtype):
    for i in range(400):
        rng = np.random.default_rng([7, i])
        plain, x = draw_case(rng, dtype)
        fused = nn.fuse(copy.deepcopy(plain))
        assert is_fused(fused), plain
        found = []
        for model in (plain, fused):
            y, saved = model.forward(x.copy())
            dy = np.random.default_rng(i).normal(size=y.shape).astype(dtype)
            found.append((y, model.backward(dy, saved), *(p.grad for p in model.params)))
        for want, got in zip(*found, strict=True):
            assert got.dtype == want.dtype
            largest = max(1.0, np.abs(want).max(initial=0.0))
            np.testing.assert_allclose(got, want, rtol=0, atol=ROUNDING[dtype] * largest, err_msg=f"{i}: {plain}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinity_stay_in_their_sample_and_do_not_disappear():
    """They may spread to more outputs: neighbours are computed by one product, and 0 times NaN is NaN."""
    found = 0
    for i in range(400):
        rng = np.random.default_rng([8, i])
        plain, x = draw_case(rng, "float32")
        x.flat[rng.integers(x.size)] = (np.nan, np.inf, -np.inf)[i % 3]
        want, got = plain.forward(x.copy())[0], nn.fuse(plain).forward(x.copy())[0]
        assert not (~np.isfinite(want) & np.isfinite(got)).any(), f"{i}: {plain}"
        found += (~np.isfinite(want)).any()
        clean = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
        np.testing.assert_allclose(got[clean], want[clean], rtol=0, atol=0.02, err_msg=f"{i}: {plain}")
    assert found > 100
