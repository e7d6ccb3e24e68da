"""Kernels of the shapes and features that public ones have, written for this test, each with a reference in NumPy.

A `.cu` file holds the kernels of a topic, as a program would: with host includes, macros, templates, a `main`. The
module beside it says how each is launched and what it must compute. `test_corpus.py` runs them all.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

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


LAUNCHES: list[Launch] = []


def launch(file, name=None, **kw):
    """Register a function as the launch of a kernel, by default the one of its own name."""

    def register(make):
        LAUNCHES.append(Launch(file, name or make.__name__, make, **kw))
        return make

    return register


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(f32)


def zeros(*shape, dtype=f32):
    return np.zeros(shape, dtype)


def blocks(n, size):
    return (-(-n // size),)
