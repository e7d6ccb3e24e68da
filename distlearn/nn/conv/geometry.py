"""Where a convolution's windows lie."""

from __future__ import annotations

from typing import NamedTuple

from .. import ops


class Geometry(NamedTuple):
    """Size of the kernel and how it moves over the image; every pair is (vertical, horizontal)."""

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from a window's first pixel to its last."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.size, self.dilation, strict=True))

    def output(self, h: int, w: int) -> tuple[int, int]:
        """Rows and columns of the output for an image of h x w."""
        return tuple(
            (n + 2 * p - e) // s + 1 for n, p, e, s in zip((h, w), self.padding, self.extent, self.stride, strict=True)
        )

    def pad(self, x):
        """Put the border of zeros around images (n, h, w, c)."""
        (py, px) = self.padding
        return ops.pad(x, py, py, px, px)

    def crop(self, x):
        """Take the border off again."""
        (py, px), (_, h, w, _) = self.padding, x.shape
        return x[:, py : h - py, px : w - px]


def input_gradient(forward, dy, W, geometry: Geometry):
    r"""Gradient of a convolution of stride 1 with respect to its input: again a convolution.

    .. math:: dx_{i, j, c} = \sum_{u, v, k} dy_{i - u, j - v, k} \, W_{u, v, c, k}

    So `dy` is convolved with the kernel turned by 180 degrees and its channels swapped, with what is missing of the
    kernel's extent as padding; a negative one cuts off outputs that the padding of the input led to.

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
    (ey, ex), (py, px) = geometry.extent, geometry.padding
    turned = W[::-1, ::-1].transpose(0, 1, 3, 2)
    return forward(dy, turned, geometry._replace(padding=(ey - 1 - py, ex - 1 - px)))[0]
