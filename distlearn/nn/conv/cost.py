"""Work and depth of the four ways to convolve: how many operations, and how long the longest chain of them is.

Work divided by the number of processors, and depth, both bound the time from below. `conv_cost` counts what the
algorithms of this package compute (a test compares it with counted operations); `printed_conv_cost` gives the
formulas as a lecture prints them, misprints included, so that the two can be compared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...bounds import check_positive
from .fft import fast_length
from .geometry import pair

KERNEL = 3  # Rows and columns of Winograd's kernels, r.


class Cost(NamedTuple):
    """Cost of a convolution."""

    work: float  # Multiply-adds of real numbers.
    depth: int  # Operations on the longest chain, with sums computed as trees.


def _log2(n: float) -> int:
    return math.ceil(math.log2(n)) if n > 1 else 0


def conv_cost(
    algorithm: str, n: int, c_in: int, c_out: int, h: int, w: int, k: int | tuple[int, int] = 3, m: int = 2
) -> Cost:
    """Work and depth of one forward convolution with "same" padding and stride 1, as this package computes it.

    Parameters
    ----------
    n, c_in, c_out, h, w : int
        Batch, channels, rows and columns of the image.
    k : int or (int, int)
        Rows and columns of the kernel, k_y and k_x; 3 for Winograd.
    m : int
        Winograd's tile of outputs is m x m; this package has 2 and 4, and the formula holds for any.

    Notes
    -----
    With P = n ceil(h / m) ceil(w / m) tiles of alpha = m + r - 1 pixels a side:

    - direct: work n c_in c_out h w k_y k_x, depth 1 + ceil(log2 c_in) + ceil(log2(k_y k_x)), two trees of sums
    - im2col: the same work, depth 1 + ceil(log2(c_in k_y k_x)), one tree
    - fft: with H x W spectra of the padded image (H (W / 2 + 1) frequencies, as the image is real; a complex
      multiply-add is 4 real ones): work H W log2(H W) (n c_in + c_in c_out + n c_out)
      + 4 H (W / 2 + 1) n c_in c_out, depth 2 per level of the transforms there and back, 2 for a complex product, and
      ceil(log2 c_in)
    - winograd: work c_in c_out (alpha r^2 + alpha^2 r) + P c_in (2 alpha^3) + P c_out (alpha^2 m + alpha m^2)
      + P c_in c_out alpha^2, depth 2 (1 + ceil(log2 alpha)) twice and 1 + ceil(log2 c_in) between

    Examples
    --------
    >>> direct, fast = (conv_cost(a, 32, 64, 64, 56, 56, m=4).work for a in ("direct", "winograd"))
    >>> round(direct / fast, 2)
    3.1
    """
    ky, kx = _check(algorithm, (n, c_in, c_out, h, w), k, m)
    if algorithm in ("direct", "im2col"):
        trees = (c_in, ky * kx) if algorithm == "direct" else (c_in * ky * kx,)
        return Cost(n * c_in * c_out * h * w * ky * kx, 1 + sum(map(_log2, trees)))
    if algorithm == "fft":
        rows, columns = fast_length(h + ky - 1), fast_length(w + kx - 1)
        points, frequencies = rows * columns, rows * (columns // 2 + 1)
        transforms = n * c_in + c_in * c_out + n * c_out
        work = points * math.log2(points) * transforms + 4 * frequencies * n * c_in * c_out
        return Cost(work, 2 * 2 * (_log2(rows) + _log2(columns)) + 2 + _log2(c_in))
    alpha, tiles = m + KERNEL - 1, n * math.ceil(h / m) * math.ceil(w / m)
    work = (
        c_in * c_out * (alpha * KERNEL**2 + alpha**2 * KERNEL)
        + tiles * c_in * 2 * alpha**3
        + tiles * c_out * (alpha**2 * m + alpha * m**2)
        + tiles * c_in * c_out * alpha**2
    )
    return Cost(work, 4 * (1 + _log2(alpha)) + 1 + _log2(c_in))


def printed_conv_cost(
    algorithm: str, n: int, c_in: int, c_out: int, h: int, w: int, k: int | tuple[int, int] = 3, m: int = 2
) -> Cost:
    """Work and depth of one forward convolution by the formulas of a well-known table, exactly as it prints them.

    Parameters are those of `conv_cost`.

    Notes
    -----
    The table has, for Winograd, alpha = m - r + 1 (tiles are m + r - 1 wide: for m = 2 it would be 0), no factor
    alpha^2 on the products, and the three transforms once instead of once per kernel, per input tile and per output
    tile. Where alpha is not positive its logarithm is taken as 0.

    Its depths count the additions of the sums alone: not the multiplication before them (one more for direct and
    im2col, two for the complex one of spectra), and one operation for a level of a transform, which multiplies and
    adds. For im2col, ceil(log2 c_in) + ceil(log2 k_y) + ceil(log2 k_x) is up to 2 more than the one tree takes.
    """
    ky, kx = _check(algorithm, (n, c_in, c_out, h, w), k, m)
    if algorithm in ("direct", "im2col"):
        return Cost(n * c_out * h * w * c_in * ky * kx, _log2(c_in) + _log2(ky) + _log2(kx))
    if algorithm == "fft":
        transforms = c_out * c_in + n * c_in + n * c_out
        work = h * w * math.log2(h * w) * transforms + h * w * n * c_in * c_out
        return Cost(work, 2 * _log2(h * w) + _log2(c_in))
    r, alpha, tiles = KERNEL, m - KERNEL + 1, n * math.ceil(h / m) * math.ceil(w / m)
    work = alpha * (r**2 + alpha * r + 2 * alpha**2 + alpha * m + m**2) + c_out * c_in * tiles
    return Cost(work, 2 * _log2(r) + 4 * _log2(alpha) + _log2(c_in))


def _check(algorithm, sizes, k, m) -> tuple[int, int]:
    """Raise unless the algorithm supports the convolution; return rows and columns of the kernel."""
    if algorithm not in ("direct", "im2col", "fft", "winograd"):
        raise ValueError(f"conv_cost: algorithm is {algorithm!r}, expected 'direct', 'im2col', 'fft' or 'winograd'")
    check_positive("conv_cost", **dict(zip(("n", "c_in", "c_out", "h", "w"), sizes, strict=True)))
    kernel = pair(k, "conv_cost: k")
    check_positive("conv_cost", m=m)
    if algorithm == "winograd" and kernel != (KERNEL, KERNEL):
        raise ValueError(f"conv_cost: winograd takes k = 3, got k = {k}")
    return kernel
