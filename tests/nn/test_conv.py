"""Convolution: the algorithms agree with each other and with the definition, and cost what they say."""

import numpy as np
import pytest

from distlearn.nn import ALGORITHMS, Conv2d, choose_algorithm, conv_cost, count_operations, fuse, printed_conv_cost
from distlearn.nn.conv import direct, fft, im2col, winograd
from distlearn.nn.conv.geometry import Geometry, input_gradient
from distlearn.nn.fused import rows


def by_definition(x, W, b, stride, padding, groups):
    """The sum as it stands in the docstring, one output value at a time."""
    (n, h, w, _), (kh, kw, c, k) = x.shape, W.shape
    oh = (h + 2 * padding - kh) // stride + 1
    ow = (w + 2 * padding - kw) // stride + 1
    y = np.zeros((n, oh, ow, k))
    for place in np.ndindex(*y.shape):
        s, i, j, f = place
        first = f // (k // groups) * c
        y[place] = b[f]
        for u, v in np.ndindex(kh, kw):
            row, column = stride * i + u - padding, stride * j + v - padding
            if 0 <= row < h and 0 <= column < w:
                y[place] += x[s, row, column, first : first + c] @ W[u, v, :, f]
    return y


GEOMETRIES = [(1, 0, 1), (1, 1, 2), (2, 1, 1), (1, 2, 1), (3, 2, 2), (2, 0, 1)]


def convolution(*args, algorithm, **options):
    """A layer with one of the algorithms, or the fused one with "rows"."""
    return fuse(Conv2d(*args, **options)) if algorithm == "rows" else Conv2d(*args, algorithm=algorithm, **options)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "rows"])
@pytest.mark.parametrize(("stride", "padding", "groups"), GEOMETRIES)
def test_every_algorithm_is_the_definition(algorithm, stride, padding, groups):
    if (algorithm == "fft" or algorithm.startswith("winograd")) and stride > 1:
        pytest.skip("stride 1 only")
    rng = np.random.default_rng(0)
    options = {"stride": stride, "padding": padding, "groups": groups}
    layer = convolution(4, 6, 3, 1, algorithm=algorithm, dtype="float64", **options)
    W, b = (p.data for p in layer.params)
    b[...] = rng.normal(size=6)
    x = rng.normal(size=(2, 8, 7, 4))
    want = by_definition(x, W, b, stride, padding, groups)
    np.testing.assert_allclose(layer.forward(x)[0], want, atol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "tol"),
    [("direct", 1e-6), ("im2col", 1e-6), ("rows", 1e-6), ("fft", 1e-6), ("winograd2", 1e-6), ("winograd4", 1e-5)],
)
def test_single_precision_stays_single_and_rounds_little(algorithm, tol):
    x = np.random.default_rng(0).normal(size=(2, 14, 14, 32))
    exact = Conv2d(32, 16, 3, 1, padding=1, dtype="float64").forward(x)[0]
    layer = convolution(32, 16, 3, 1, padding=1, algorithm=algorithm)
    y, saved = layer.forward(x.astype("float32"))
    assert y.dtype == np.float32
    assert np.abs(y - exact).max() < tol * np.abs(exact).max()
    assert layer.backward(np.ones_like(y), saved).dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "args"), [((3, 9, 9, 2), (2, 4, 3)), ((2, 40, 33, 20), (20, 24, 3)), ((2, 40, 40, 1), (1, 8, 5))]
)
def test_blocks_do_not_change_the_result(shape, args, monkeypatch):
    """Windows of one image at a time, of a few, of all."""
    x = np.random.default_rng(0).normal(size=shape)

    def run():
        layer = Conv2d(*args, 1, padding=1, algorithm="im2col", dtype="float64")
        y, saved = layer.forward(x)
        dx = layer.backward(y.copy(), saved)
        return y, dx, layer.W.grad

    results = []
    for size in (1, 4096, 1 << 30):
        monkeypatch.setattr("distlearn.nn.conv.im2col.WINDOW_BYTES", size)
        results.append(run())
    for one, two, three in zip(*results, strict=True):
        np.testing.assert_allclose(one, three, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(two, three, rtol=1e-10, atol=1e-10)


RUNS = {"direct": direct.forward, "im2col": im2col.forward, "fft": fft.forward, "winograd": winograd.forward}


@pytest.mark.parametrize("sizes", [(2, 3, 5, 8, 8), (1, 16, 8, 12, 10), (4, 1, 2, 7, 9)])
@pytest.mark.parametrize(
    ("algorithm", "m"), [("direct", 2), ("im2col", 2), ("fft", 2), ("winograd", 2), ("winograd", 4)]
)
def test_work_and_depth_are_what_is_counted(algorithm, m, sizes):
    n, c_in, c_out, h, w = sizes
    x, W = np.ones((n, h, w, c_in)), np.ones((3, 3, c_in, c_out))
    options = {"m": m} if algorithm == "winograd" else {}
    counted = count_operations(lambda x, W: RUNS[algorithm](x, W, Geometry((3, 3), padding=(1, 1)), **options), x, W)
    cost = conv_cost(algorithm, *sizes, m=m)
    assert counted.multiply_adds + counted.transforms == pytest.approx(cost.work, rel=1e-6)
    assert counted.depth == cost.depth
    printed = printed_conv_cost(algorithm, *sizes, m=m).depth
    if algorithm == "direct":  # as printed, and the multiplication
        assert counted.depth == printed + 1


@pytest.mark.parametrize("algorithm", ["im2col", "fft"])
def test_kernels_need_not_be_square(algorithm):
    x, W = np.ones((2, 7, 8, 3)), np.ones((5, 3, 3, 4))
    counted = count_operations(lambda x, W: RUNS[algorithm](x, W, Geometry((5, 3), padding=(2, 1))), x, W)
    cost = conv_cost(algorithm, 2, 3, 4, 7, 8, k=(5, 3))
    assert counted.multiply_adds + counted.transforms == pytest.approx(cost.work, rel=1e-6)
    assert cost != conv_cost(algorithm, 2, 3, 4, 7, 8, k=(3, 5)) or algorithm == "im2col"
    assert printed_conv_cost("direct", 2, 3, 4, 7, 8, k=(5, 3)).depth == 2 + 3 + 2  # of c_in, k_y and k_x


@pytest.mark.parametrize(
    ("sizes", "k", "message"),
    [
        ((0, 3, 4, 7, 8), 3, "n is 0"),
        ((1, 3, 4, 7.5, 8), 3, "h is 7.5"),
        ((1, 3, 4, 7, 8), (5, 0), r"k is \(5, 0\)"),
    ],
)
def test_costs_of_what_is_no_convolution(sizes, k, message):
    for cost in (conv_cost, printed_conv_cost):
        with pytest.raises(ValueError, match=f"conv_cost: {message}, expected a whole number of 1 or more"):
            cost("direct", *sizes, k=k)


@pytest.mark.parametrize("m", range(1, 7))
def test_any_tile_convolves(m):
    rng = np.random.default_rng(m)
    x, W, geometry = rng.normal(size=(2, 11, 9, 3)), rng.normal(size=(3, 3, 3, 4)), Geometry((3, 3), padding=(1, 1))
    transforms = winograd.Transforms.from_points(rng.permutation([0, 1, -1, 2, -2, 0.5, -0.5])[: m + 1], m)
    y, _ = winograd.forward(x, W, geometry, transforms=transforms)
    np.testing.assert_allclose(y, direct.forward(x, W, geometry)[0], rtol=1e-9, atol=1e-9)
    counted = count_operations(lambda x, W: winograd.forward(x, W, geometry, transforms=transforms), x, W)
    assert (counted.multiply_adds, counted.depth) == conv_cost("winograd", 2, 3, 4, 11, 9, m=m)


@pytest.mark.parametrize("points", [[0, 1], [0, 1, 1], [0, 1, np.inf], [0, 1, 2, 3]])
def test_interpolation_points_are_different_and_finite(points):
    with pytest.raises(ValueError, match="expected 3 different finite ones"):
        winograd.Transforms.from_points(points, 2)


def test_printed_formulas_differ_from_the_counts_only_where_expected():
    sizes = (32, 64, 128, 28, 28)
    for algorithm in ("direct", "im2col"):
        assert printed_conv_cost(algorithm, *sizes).work == conv_cost(algorithm, *sizes).work
    printed, counted = printed_conv_cost("winograd", *sizes, m=4), conv_cost("winograd", *sizes, m=4)
    tiles = 32 * 7 * 7
    assert printed.work == 2 * (9 + 2 * 3 + 8 + 8 + 16) + 64 * 128 * tiles  # alpha = m - r + 1 = 2
    assert counted.work > 36 * 64 * 128 * tiles  # alpha^2 = 36 products a tile, and every transform
    assert counted.work < conv_cost("direct", *sizes).work


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Conv2d(0, 4, 3), "c_in is 0"),
        (lambda: Conv2d(4, 6, 3, groups=4), "groups is 4, expected a divisor of c_in = 4 and c_out = 6"),
        (lambda: Conv2d(3, 4, 3, algorithm="gemm"), "algorithm is 'gemm', expected one of 'direct'"),
        (lambda: Conv2d(3, 4, 5, algorithm="winograd2"), "winograd2 computes 3 x 3 kernels"),
        (lambda: Conv2d(3, 4, 5, algorithm="fft", stride=2), "fft computes stride 1"),
        (lambda: Conv2d(3, 4, 3, stride=2, algorithm="winograd4"), "kernels with stride 1"),
        (lambda: Conv2d(3, 4, 3, stride=2, padding="same"), "padding 'same' needs stride 1"),
        (lambda: Conv2d(3, 4, 3, padding=-1), "padding is -1"),
        (lambda: Conv2d(3, 4, 5).forward(np.zeros((2, 4, 4, 3), "f")), "smaller than the kernel"),
        (lambda: Conv2d(3, 4, 3).forward(np.zeros((2, 3, 8, 8), "f")), r"of shape \(batch, height, width, 3\)"),
    ],
)
def test_errors_name_the_value(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_the_wrong_precision_is_refused_not_silently_widened():
    message = r"the input is float64, the parameters are float32; pass x.astype\('float32'\)"
    with pytest.raises(TypeError, match=message):
        Conv2d(3, 4, 3).forward(np.zeros((2, 8, 8, 3)))


def test_the_fused_convolution_chooses_what_can_compute_the_layer():
    assert choose_algorithm(Conv2d(16, 32, 3, padding=1, algorithm="direct"), (1, 28, 28, 16)) == "direct"
    assert choose_algorithm(Conv2d(3, 8, 3), (1, 8, 8, 3)) == "rows"
    assert choose_algorithm(Conv2d(16, 32, 3, padding=1), (1, 28, 28, 16)) == "winograd4"
    assert choose_algorithm(Conv2d(16, 16, 3, padding=1), (1, 28, 28, 16)) == "rows"
    assert choose_algorithm(Conv2d(16, 32, 3, padding=1), (1, 13, 13, 16)) == "rows"
    assert choose_algorithm(Conv2d(32, 64, 3, padding=1), (1, 13, 13, 32)) == "winograd2"
    sizes = {7: "winograd4", 14: "winograd2", 6: "winograd2", 5: "winograd2", 8: "winograd4"}
    for size, want in sizes.items():
        assert choose_algorithm(Conv2d(64, 64, 3, padding=1), (1, size, size, 64)) == want
    assert choose_algorithm(Conv2d(16, 32, 3, padding=1, groups=2), (1, 13, 13, 16)) == "rows"
    assert choose_algorithm(Conv2d(16, 32, 3, padding=1, dtype="float64"), (1, 28, 28, 16)) == "rows"
    assert choose_algorithm(Conv2d(32, 32, 11, padding="same"), (1, 28, 28, 32)) == "fft"
    assert choose_algorithm(Conv2d(32, 32, 11, stride=4), (1, 28, 28, 32)) == "rows"


@pytest.mark.parametrize(
    ("shape", "kernel", "padding"),
    [
        ((3, 10, 10, 16), (5, 5, 6, 16), (0, 0)),
        ((70, 4, 5, 3), (2, 3, 7, 3), (1, 0)),
        ((2, 7, 7, 4), (3, 3, 1, 4), (1, 1)),
        ((1, 1, 1, 2), (1, 2, 2, 2), (0, 1)),
    ],
)
def test_a_band_matrix_gives_the_input_gradient_of_narrow_images(shape, kernel, padding, monkeypatch):
    rng, geometry = np.random.default_rng(0), Geometry(kernel[:2], padding=padding)
    dy, W = rng.normal(size=shape), rng.normal(size=kernel)
    assert rows.band_matrix_is_fast(W, shape[2])
    want = input_gradient(rows.forward, dy, W, geometry)
    np.testing.assert_allclose(rows.band_matrix_gradient(dy, W, geometry), want, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr("distlearn.nn.ops.CACHE_BYTES", 1)  # one sample at a time
    np.testing.assert_allclose(rows.band_matrix_gradient(dy, W, geometry), want, rtol=1e-12, atol=1e-12)
