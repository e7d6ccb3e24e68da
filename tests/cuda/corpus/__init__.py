"""Kernels of the shapes and features that public ones have, written for this test, each with a reference in NumPy.

A `.cu` file holds the kernels of a topic, as a program would: with host includes, macros, templates, a `main`.
`launches.py` says how each is launched and what it must compute, and `test_corpus.py` runs them all.
"""

import copy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from distlearn.cuda import RawKernel

HERE = Path(__file__).parent
f32, f64, i32, u32 = np.float32, np.float64, np.int32, np.uint32


@dataclass
class Launch:
    """A kernel, and the function that returns its grid, block, arguments and what some of them must hold afterwards."""

    file: str
    name: str
    make: object
    shared_mem: int = 0
    options: tuple = ()
    constants: dict = field(default_factory=dict)
    warnings: list = field(default_factory=list)
    may_warn: tuple = ()  # what some compilers warn about, and others do not
    rtol: float = 2e-5
    atol: float = 1e-5

    @property
    def source(self):
        return (HERE / self.file).read_text(encoding="utf-8")

    @property
    def flags(self):
        return (f"-I{HERE}", *self.options)

    def kernel(self, source=None, **how):
        """Return the kernel, or that of a changed source, with its constants."""
        kernel = RawKernel(source or self.source, self.name, self.flags, **how)
        for name, value in self.constants.items():
            kernel.set_constant(name, value)
        return kernel


LAUNCHES: list[Launch] = []


def launch(file, name=None, **kw):
    """Register a function as the launch of a kernel, by default the one of its own name."""

    def register(make):
        LAUNCHES.append(Launch(file, name or make.__name__, make, **kw))
        return make

    return register


def fresh(args):
    """Copy arrays, also those that structs and arrays of pointers hold."""
    return tuple(copy.deepcopy(a) if isinstance(a, (np.ndarray, np.void)) else a for a in args)


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(f32)


def zeros(*shape, dtype=f32):
    return np.zeros(shape, dtype)


def blocks(n, size):
    return (-(-n // size),)
