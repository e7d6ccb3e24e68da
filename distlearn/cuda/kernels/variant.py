"""A kernel of the library: its source, and how it is launched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

import numpy as np

from distlearn.cuda.kernel import RawKernel
from distlearn.cuda.report import Report

i32, f32 = np.int32, np.float32


class Launch(NamedTuple):
    """The grid, block and arguments of a launch."""

    grid: tuple
    block: tuple
    args: tuple
    shared_mem: int = 0


@functools.cache
def source(file: str) -> str:
    """Return the text of one of the library's `.cu` files."""
    return (resources.files("distlearn.cuda.kernels") / file).read_text(encoding="utf-8")


def per_element(n: int, args: tuple, most: int = 65535) -> Launch:
    """Return a launch with a thread for each of `n` elements, or `most` blocks: the kernel's loop takes the rest."""
    return Launch((max(1, min(-(-n // 256), most)),), (256,), args)


def aligned(*arrays) -> bool:
    """Say whether every array begins at a multiple of 16 bytes, as a float4 requires; a view into a bucket may not."""
    return all((a.ctypes.data if isinstance(a, np.ndarray) else a.data.ptr) % 16 == 0 for a in arrays)


@dataclass(frozen=True)
class Variant:
    """One way to compute something on a card. Calling it launches the kernel on the arrays' device."""

    file: str
    kernel: str
    launch: Callable[..., Launch]

    def __str__(self):
        return f"{self.file}:{self.kernel}"

    @functools.cached_property
    def raw(self) -> RawKernel:
        return RawKernel(source(self.file), self.kernel)

    def __call__(self, *args):
        """Launch the kernel; results are written into the arrays passed."""
        for i, a in enumerate(args):
            if getattr(a, "size", 0) >= 2**31:
                raise ValueError(f"{self}: argument {i} has {a.size} elements, the kernel can number 2**31 - 1")
        *launch, shared_mem = self.launch(*args)
        if 0 not in launch[0]:  # nothing to compute, as for an empty shard; a card rejects such a launch
            self.raw(*launch, shared_mem=shared_mem)

    def check(self, *args, compiler=None) -> Report:
        *launch, shared_mem = self.launch(*args)
        return RawKernel(source(self.file), self.kernel, compiler=compiler).check(*launch, shared_mem=shared_mem)
