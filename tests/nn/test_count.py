"""Counted arrays: code that is written with NumPy's own functions is counted as the library's is."""

import numpy as np
import pytest

from distlearn.nn import conv_cost, count_operations

X, W = np.ones((2, 10, 9, 3)), np.ones((3, 3, 3, 5))
OUTPUT = (2, 8, 7, 5)


def loop(x, W):
    y = np.zeros(OUTPUT)
    for u, v in np.ndindex(3, 3):
        y += x[:, u : u + 8, v : v + 7] @ W[u, v]
    return y


def windows(x, W):
    rows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    return rows.reshape(-1, 27) @ W.reshape(27, 5)


def stacked(x, W):
    parts = [x[:, u : u + 8, v : v + 7] for u in range(3) for v in range(3)]
    return np.concatenate(parts, axis=-1) @ np.reshape(W, (27, 5))


def indexed(x, W):
    rows = np.arange(8)[:, None, None, None] + np.arange(3)[:, None]
    columns = np.arange(7)[:, None, None] + np.arange(3)
    return x[:, rows, columns].reshape(-1, 27) @ W.reshape(27, 5)


def filled(x, W):
    y = np.zeros_like(x, shape=OUTPUT)
    y[...] = x[:, :8, :7] @ W[0, 0]
    return y


def spectra(x, W, options):
    images = np.fft.rfft2(x, **options[0]).transpose(1, 2, 0, 3)
    kernels = np.fft.rfft2(W, (10, 9), axes=(0, 1))
    return np.fft.irfft2(images @ np.conj(kernels), **options[1])


@pytest.mark.parametrize("way", [loop, windows, stacked, indexed])
def test_every_way_to_write_it_is_as_much_work(way):
    assert count_operations(way, X, W).multiply_adds == np.prod(OUTPUT) * 27
    assert way(X, W).size == np.prod(OUTPUT)


def test_an_order_of_additions_is_seen_in_the_depth():
    assert count_operations(windows, X, W).depth == conv_cost("im2col", 2, 3, 5, 8, 7).depth == 1 + 5
    assert count_operations(loop, X, W).depth == 1 + 2 + 9  # one sum after the other
    assert count_operations(filled, X, W).depth == 1 + 2


@pytest.mark.parametrize(
    "options",
    [
        ({"axes": (1, 2)}, {"s": (10, 9), "axes": (0, 1)}),
        ({"s": (10, 9), "axes": (1, 2)}, {"s": (10, 9), "axes": (0, 1)}),
        ({"s": (10, 9), "axes": (1, 2)}, {"axes": (0, 1)}),
    ],
)
def test_transforms_are_counted_with_and_without_their_size(options):
    counted = count_operations(lambda x, W: spectra(x, W, options), X, W)
    last = 90 if "s" in options[1] else 80  # without a size, the last axis of the result is even
    assert counted.transforms == pytest.approx(90 * np.log2(90) * (6 + 15) + last * np.log2(last) * 10)
    assert counted.multiply_adds == 4 * 10 * 5 * 2 * 3 * 5


def test_numpy_arrays_may_be_mixed_in():
    counted = count_operations(lambda x: (np.eye(3) @ (x + np.ones(3))) * 2, np.ones((3, 3)))
    assert counted == (27, 0, 18, 5)


def leave(x):
    np.zeros(x.shape)[...] = x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.einsum("ijkl->l", x), "einsum computes is not counted; write products with @"),
        (lambda x: x[0, 0].dot(W[0, 0]), "dot computes is not counted; write products with @"),
        (leave, r"copied into a NumPy array.*np.zeros_like"),
        (lambda x: 1.0, "returned float, expected a counted array"),
        (lambda x: np.zeros(3), "returned ndarray, expected a counted array"),
    ],
)
def test_what_cannot_be_counted_is_refused(function, message):
    with pytest.raises(TypeError, match=message):
        count_operations(function, X)
