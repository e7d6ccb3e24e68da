"""CUDA C everywhere: one kernel source, a GPU through CuPy or a checked emulator on any machine.

>>> k = distlearn.cuda.RawKernel(source, "saxpy")  # doctest: +SKIP
>>> k(grid, block, args)                           # doctest: +SKIP
>>> k.check(grid, block, args)                     # doctest: +SKIP
"""

from distlearn.cuda.cards import CARDS, Card
from distlearn.cuda.errors import CompileError, CompilerNotFound, KernelError, UnsupportedFeature
from distlearn.cuda.findings import Finding
from distlearn.cuda.kernel import RawKernel
from distlearn.cuda.nvrtc import CompileCheck, compile_check, has_nvrtc
from distlearn.cuda.report import Report, Site

__all__ = [
    "CARDS",
    "Card",
    "CompileCheck",
    "CompileError",
    "CompilerNotFound",
    "Finding",
    "KernelError",
    "RawKernel",
    "Report",
    "Site",
    "UnsupportedFeature",
    "compile_check",
    "has_nvrtc",
]
