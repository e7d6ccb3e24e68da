"""Work of training steps, measured machines, and the judge of shapes."""

from functools import partial

import pytest
from distcourse import lab05

from distlearn import nn
from tests.emulated import NEEDS_COMPILER

from ..course.submissions import answered

judged = partial(lab05.judge_shape, ridge=8.0)


def test_a_step_is_counted_by_hand():
    work = lab05.step_work(100, 32)
    weights = [(784, 100), (100, 100), (100, 10)]
    products = 3 * sum(2 * 32 * a * b for a, b in weights) - 2 * 32 * 784 * 100  # the data need no gradient
    assert products < work.flops < 1.05 * products
    assert work.nbytes > 6 * 4 * sum(a * b for a, b in weights)
    assert work.copied == 0
    batch, each = (lab05.step_work(100, 32, copies) for copies in ("batch", "products"))
    assert (batch.copied, batch.calls) == (32 * (784 * 4 + 8), work.calls + 2)
    sizes = [32 * (a + b) + a * b for a, b in weights]
    assert (each.copied, each.calls) == (4 * (2 * sizes[0] + 3 * sizes[1] + 3 * sizes[2]), work.calls + 3 * 8)


@pytest.mark.parametrize("sizes", [(784, 20, 20, 10), (5, 3), (4, 7, 2, 6, 3)])
def test_a_step_is_what_its_layers_say(sizes):
    model, shape = nn.MLP(sizes, "sigmoid"), (6, sizes[0])
    weights = sum(p.data.size for p in model.params)
    work = lab05.step_work(0, 6, sizes=sizes)
    assert work.flops == model.flops(shape) + model.backward_flops(shape) + 2 * weights
    assert work.nbytes == 3 * model.bytes_moved(shape) + 3 * 4 * weights


@NEEDS_COMPILER
def test_counted_bytes_are_never_fewer_than_the_least():
    for shape in ((1, 40, 8), (32, 32, 32), (70, 9, 20), (5, 16, 1)):
        report = lab05.counted(*shape)
        assert not report.errors
        assert report.bytes_moved >= lab05.least_bytes(*shape)
    assert lab05.counted(32, 32, 32).bytes_moved == lab05.least_bytes(32, 32, 32)


@NEEDS_COMPILER
@pytest.mark.parametrize(("tile", "shape"), [(8, (24, 16, 40)), (32, (40, 64, 8)), (16, (64, 64, 64))])
def test_tiles_of_any_size_fetch_what_the_solution_says(tile, shape):
    report = lab05.tiled_report(*shape, tile)
    assert not report.errors
    assert report.bytes_moved == answered("lab05", "tiled_bytes")["tiled_bytes"](*shape, tile)


@NEEDS_COMPILER
def test_shapes_are_judged_by_both_bytes():
    n = 2**15
    assert not judged((1, n, 1), n, low=0.05)
    assert not judged((32, 32, 32), n, high=0.5)
    assert "at best" in judged((1, 2**8, 2**7), n, low=0.05)
    assert "at best" in judged((1, n, 1), n, high=0.5)
    assert "wanted exactly" in judged((1, n // 2, 1), n, low=0.05)
    # few bytes at best, but the rows of 25 and 20 numbers begin amid sectors
    odd = judged((20, 25, 20), 10_000, ridge=7.0, high=0.5)
    assert "counted by the emulator" in odd


@NEEDS_COMPILER
def test_every_n_that_the_text_allows_has_both_shapes():
    two_layers = answered("lab05", "two_layers")["two_layers"]
    allowed = {8 * 2**i * 3**j * 5**k for i in range(15) for j in range(10) for k in range(7)}
    for n in sorted(n for n in allowed if 2**15 <= n <= lab05.COUNTED):
        found = lab05.run_two_layers(two_layers, n)
        assert found == {"bad": "less than 5 % of the peak", "good": "more than half of the peak"}, n


@pytest.mark.parametrize("shape", [None, (1, 2), (0, 1, 2), (1.0, 2, 3), 7])
def test_what_is_no_shape(shape):
    assert "expected three whole numbers of 1 or more" in judged(shape, 6, low=0.05)
