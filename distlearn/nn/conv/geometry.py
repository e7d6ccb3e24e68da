"""Positions of the windows of a convolution or a pooling."""

from __future__ import annotations

from typing import NamedTuple

from ...backend import get_xp
from ...bounds import expected_number


class Geometry(NamedTuple):
    """Size of the kernel and how it moves over the image; every pair is (vertical, horizontal)."""

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def output(self, h: int, w: int) -> tuple[int, int]:
        (kh, kw), (sy, sx), (py, px) = self
        return (h + 2 * py - kh) // sy + 1, (w + 2 * px - kw) // sx + 1

    def pad(self, x):
        (py, px) = self.padding
        return pad(x, py, py, px, px)

    def crop(self, x):
        (py, px), (_, h, w, _) = self.padding, x.shape
        return x[:, py : h - py, px : w - px]


def input_gradient(forward, dy, W, geometry: Geometry):
    r"""Gradient of a convolution of stride 1 with respect to its input: again a convolution.

    .. math:: dx_{i, j, c} = \sum_{u, v, k} dy_{i - u, j - v, k} \, W_{u, v, c, k}

    So `dy` is convolved with the kernel turned by 180 degrees and its channels swapped, with what is missing of the
    kernel's size as padding; a negative one cuts off outputs that the padding of the input led to.

    Parameters
    ----------
    forward : callable
        `forward(x, W, geometry) -> (y, saved)`: any of the algorithms.
    dy : (n, oh, ow, c_out) array
    W : (kh, kw, c_in, c_out) array
    geometry : Geometry
        Of the forward convolution.

    Returns
    -------
    dx : (n, h, w, c_in) array
    """
    (kh, kw), _, (py, px) = geometry
    turned = W[::-1, ::-1].transpose(0, 1, 3, 2)
    return forward(dy, turned, geometry._replace(padding=(kh - 1 - py, kw - 1 - px)))[0]


def pad(x, top, bottom, left, right, value=0):
    """Add a border of `value` to images (n, h, w, c); a negative border crops the image."""
    _, h, w, _ = x.shape
    x = x[:, max(0, -top) : h - max(0, -bottom), max(0, -left) : w - max(0, -right)]
    top, bottom, left, right = (max(0, side) for side in (top, bottom, left, right))
    if not (top or bottom or left or right):
        return x
    n, h, w, c = x.shape
    shape = (n, h + top + bottom, w + left + right, c)
    xp = get_xp(x)
    padded = xp.zeros(shape, x.dtype) if value == 0 else xp.full(shape, value, x.dtype)
    padded[:, top : top + h, left : left + w] = x
    return padded


def windows(x, size, stride=(1, 1)):
    """View every window of an image without copying."""
    # x: (n, h, w, c) array
    # size: (kh, kw)
    # stride: (int, int)
    # view: Read it only: its elements overlap.
    n, h, w, c = x.shape
    (kh, kw), (sy, sx) = size, stride
    oh, ow = (h - kh) // sy + 1, (w - kw) // sx + 1
    sn, sh, sw, sc = x.strides
    strides = (sn, sh * sy, sw * sx, sh, sw, sc)
    return get_xp(x).lib.stride_tricks.as_strided(x, (n, oh, ow, kh, kw, c), strides)


def pair(value, what: str, least: int = 1) -> tuple[int, int]:
    """Read one whole number or two as (vertical, horizontal)."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(values) != 2 or any(expected_number(v, whole=True, least=least) for v in values):
        raise ValueError(f"{what} is {value!r}, expected a whole number of {least} or more, or two of them")
    return int(values[0]), int(values[1])
