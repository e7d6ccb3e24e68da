"""Convolution and pooling of images (n, h, w, c), as layers launch them: windows to rows and back, and the maximum."""

from __future__ import annotations

from typing import NamedTuple

from distlearn.cuda.kernels.variant import Variant, i32, per_element


class Windows(NamedTuple):
    """Where windows lie in an image: sizes of the output, of a window, strides, rows above and columns left of it."""

    oh: int
    ow: int
    kh: int
    kw: int
    sy: int
    sx: int
    top: int
    left: int


def _launch(image, result):
    """Return a launch with a thread for each element of an argument, `result`, for the images that `image` is."""

    def launch(*args):
        *arrays, where = args
        sizes = (*args[image].shape[1:], *where, args[result].size)
        return per_element(args[result].size, (*arrays, *map(i32, sizes)))

    return launch


WINDOWS = Variant("images.cu", "windows", _launch(0, 1))
ADD_WINDOWS = Variant("images.cu", "add_windows", _launch(1, 1))
MAX_POOL = Variant("images.cu", "max_pool", _launch(0, 1))
MAX_POOL_BACK = Variant("images.cu", "max_pool_back", _launch(2, 2))

VARIANTS = [WINDOWS, ADD_WINDOWS, MAX_POOL, MAX_POOL_BACK]
