"""CUDA C kernels from one source: on a GPU through CuPy, on any machine in a checked emulator.

>>> k = RawKernel(source, "saxpy")                       # doctest: +SKIP
>>> k((4,), (256,), (np.float32(2), x, y, np.int32(n)))  # doctest: +SKIP
>>> k.check((4,), (256,), (np.float32(2), x, y, n))      # doctest: +SKIP

The source may be a whole .cu file: its host code is ignored. A call runs where the arrays are: CuPy arrays on their
GPU, NumPy arrays on the CPU, with every access to memory checked. `check` runs in the emulator anywhere and returns
a `Report`: out-of-bounds accesses, races in a block and between blocks, uninitialised shared memory, barriers that not
all threads reach, shuffles with missing lanes and more, each with line, thread and block; by line the sectors of
global memory and the bank conflicts of shared memory; in total the operations and bytes that place
the kernel below a card's roofline (`CARDS`, `distlearn.viz.plot_roofline`); and for one block, every
thread's accesses. `compile_check` compiles the source for real cards
with NVIDIA's own compiler, without a GPU.

`kernels` has the library's own, which layers, losses and optimizers launch on a GPU.

Limits of the emulator: it has no caches, no clocks and no scheduler, so it says nothing about the time a card would
take. Blocks run one after another, so waiting for another block never ends. Races are found on the paths that the given
input takes; barriers, __syncwarp, fences with atomics, and so locks, order accesses. The last bits of expf and similar
functions differ from a card's. Inline PTX, textures, launches from kernels and barriers over the whole
grid are rejected with an explanation.

To read the source, begin with `kernel.py`, then `emulator/README.md`.
"""

from distlearn.cuda.cards import CARDS, Card
from distlearn.cuda.emulator.source import CompileError, CompilerNotFound, KernelError, UnsupportedFeature
from distlearn.cuda.kernel import RawKernel
from distlearn.cuda.nvrtc import CompileCheck, compile_check, has_nvrtc
from distlearn.cuda.report import Finding, Report, Site

__all__ = sorted(name for name, value in globals().items() if callable(value) or name.isupper())
