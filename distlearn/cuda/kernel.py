"""One CUDA C source: on a GPU through CuPy, on any other machine through the emulator."""

from __future__ import annotations

import functools
import itertools
import math
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from distlearn.backend import get_xp, to_numpy
from distlearn.cuda import arguments
from distlearn.cuda.emulator import launch, translate
from distlearn.cuda.emulator.build import Build, build, preprocessor
from distlearn.cuda.emulator.compilers import find_compiler
from distlearn.cuda.emulator.device_code import DeviceCode, device_code, for_card, scope
from distlearn.cuda.emulator.source import KernelError
from distlearn.cuda.nvrtc import card_error
from distlearn.cuda.report import Report, complete

RACES_CHECKED = 65_536  # threads; a larger launch is not checked for races, which would about double its time


class RawKernel:
    """A kernel in CUDA C that runs where its arrays are: on a GPU, or on the CPU.

    The signature and the call are those of `cupy.RawKernel`. With CuPy arrays the source goes to CuPy. With NumPy
    arrays it is built by a C++ compiler and emulated: every access to memory is checked against the arrays,
    in launches of up to 65,536 threads also for races, and a faulty kernel raises `KernelError` instead of
    crashing Python.

    Parameters
    ----------
    code : str
        CUDA C: a kernel, or a whole .cu file as it is, with host functions, `main` and launches, which are ignored.
    name : str
        The `__global__` function, for a template with its arguments: "sgd<float, 4>".
    options : tuple of str
        Options of NVRTC, e.g. ("-DTILE=16",). The emulated kernel has the macros of -D and -U, and the headers that the
        source includes in the folders that -I names; other options have no effect on it.
    compiler : "gcc", "clang", "zig" or None
        Which compiler builds the emulated kernel; None takes the first that is found.

    Raises
    ------
    UnsupportedFeature
        If the source uses what the emulator does not have (inline PTX, textures, ...), with the line. Raised at the
        first emulated launch: on a GPU such a source runs.

    Examples
    --------
    >>> code = '''extern "C" __global__ void add_one(float* x, int n) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) x[i] += 1.0f;
    ... }'''
    >>> kernel = RawKernel(code, "add_one")
    >>> x = np.zeros(100, np.float32)
    >>> kernel((4,), (32,), (x, np.int32(100)))
    >>> float(x.sum())
    100.0
    """

    def __init__(self, code: str, name: str, options: Sequence[str] = (), *, compiler: str | None = None):
        if not isinstance(code, str) or not isinstance(name, str):
            raise TypeError(f"RawKernel(code, name): strings; got {type(code).__name__}, {type(name).__name__}")
        for before, option in itertools.pairwise(("", *options)):
            # The word after "-D" is its value. A macro that the compiler is not given changes the result unsaid.
            if not re.match(r"\s*-", str(option)) and not re.match(r"\s*-[^=]+$", before):
                raise TypeError(f"RawKernel: options is {options!r}, expected a tuple such as ('-DN=16',)")
        self.code, self.name, self.options = code, name, tuple(options)
        self._compiler = compiler
        self._constants: dict[str, np.ndarray] = {}
        self._on_gpu: dict[tuple, tuple] = {}

    def __repr__(self):
        return f"RawKernel({self.name!r}, {len(self.code.splitlines())} lines)"

    @functools.cached_property
    def compiler(self):
        return find_compiler(self._compiler)

    @functools.cached_property
    def device(self) -> DeviceCode:
        """The part of the source that the emulated kernel needs."""
        asked = preprocessor(self.options, self._compiler)
        return device_code(self.code, self.name, self.options, asked)

    @property
    def parameters(self) -> list[str]:
        return self.device.parameters

    @functools.cached_property
    def _built(self) -> Build:
        return build(self.device, self.name, self.compiler, options=self.options)

    def compile(self) -> RawKernel:
        self._built  # noqa: B018
        return self

    def set_constant(self, name: str, value: np.ndarray) -> None:
        """Set a `__constant__` (or `__device__`) variable for later launches."""
        # Type and size are checked at the launch.
        declared = set(translate.global_names(self.device.text))
        if name not in declared:
            raise KernelError(f"no __constant__ or __device__ variable {name!r}, only {sorted(declared)}")
        self._constants[name] = np.ascontiguousarray(value)

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None:
        args = arguments.as_tuple(self.name, args)
        held = [a for arg in args if arguments.holds_pointers(arg) for *_, a in arguments.pointers(arg)]
        xp = get_xp(*args, *held)
        if xp is not np:
            return self._launch_on_gpu(xp, grid, block, args, shared_mem)
        report = self._emulate(grid, block, args, shared_mem, counted=False, time_limit=600.0)
        if report.errors:
            raise KernelError("\n".join(["the kernel went wrong:", *(f"  {e}" for e in report.errors)]), report)
        for finding in report.warnings:
            if finding.kind == "exited-threads":
                warnings.warn(f"{self.name}: {finding}", stacklevel=2)
        return None

    def check(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
        time_limit: float = 20.0,
        record: Any = None,
    ) -> Report:
        """Run the kernel in the emulator with every check, wherever the arrays are, and report the findings.

        The arrays are changed as by a launch. Nothing that the kernel does can crash Python or run forever:
        `time_limit` are the seconds after which it counts as an infinite loop. `record` names a block (blockIdx) whose
        first accesses are kept.
        """
        args = arguments.as_tuple(self.name, args)
        host = tuple(to_numpy(a) if hasattr(a, "get") and hasattr(a, "__cuda_array_interface__") else a for a in args)
        report = self._emulate(grid, block, host, shared_mem, counted=True, time_limit=time_limit, record=record)
        for given, copy in zip(args, host, strict=True):
            if given is not copy:
                given.set(copy)
        return report

    def _emulate(self, grid, block, args, shared_mem, *, counted, time_limit, record=None) -> Report:
        grid, block, shared_mem = arguments.geometry(grid, block, shared_mem, self.device.most_threads)
        made, names = self._built, self.parameters
        if len(names) != len(made.signature):  # macros hide some from the text
            names = [f"argument {i}" for i in range(len(made.signature))]
        bound = arguments.bind(self.name, made.signature, names, args)
        for name, value in self._constants.items():
            arguments.check_constant(name, *made.variables[name], value)
        races = counted or math.prod((*grid, *block)) <= RACES_CHECKED
        recorded_block = -1 if record is None else arguments.block_number(record, grid)
        raw, printed, code = launch.run(
            made.path, grid, block, shared_mem, bound, self._constants, statistics=counted, races=races,
            time_limit=time_limit, recorded_block=recorded_block,
        )  # fmt: skip
        if printed and raw is not None:
            sys.stdout.write(printed)
        report = Report(self.name, self.compiler.name, grid, block, source=self.device.flat.text, printed=printed)
        return complete(report, raw, made, self.device, shared_mem, code)

    def _launch_on_gpu(self, xp, grid, block, args, shared_mem):
        *geometry, shared_mem = arguments.geometry(grid, block, shared_mem)
        args = list(args)
        strangers = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.ndim and not a.dtype.hasobject]
        if strangers:
            raise TypeError(f"{self.name}: arguments {strangers} are NumPy arrays, others on the GPU; move them")
        if not hasattr(xp, "RawModule"):
            raise TypeError(f"{self.name}: arrays of {getattr(xp, '__name__', xp)}, expected NumPy or CuPy arrays")
        for i, a in enumerate(args):
            if arguments.holds_pointers(a):
                packed = arguments.with_addresses(a, lambda array: array.data.ptr)
                args[i] = packed if isinstance(a, np.generic) or not a.ndim else xp.asarray(packed)  # by value
        module, kernel, symbols = self._compiled_by(xp)
        for name, value in self._constants.items():
            module.get_global(symbols[name]).copy_from_host(value.ctypes.data, value.nbytes)
        return kernel(*geometry, tuple(args), shared_mem=shared_mem)

    def _compiled_by(self, xp):
        """Return the array module's RawModule, function and the variables' symbols, compiled at the first launch."""
        key = id(xp), *self._constants
        if key not in self._on_gpu:
            code = for_card(self.code, self.options, [self.name])
            # NVRTC returns the linker's name: outside `extern "C"` it depends on scope and parameters.
            variables = {name: f"&{scope(code.flat.text, name)}{name}" for name in self._constants}
            names = (self.name, *variables.values())
            module = xp.RawModule(code=code.text, options=code.options, name_expressions=names)
            try:
                kernel = module.get_function(self.name)
            except Exception as error:
                if not hasattr(error, "get_message"):  # CuPy's CompileException
                    raise
                raise card_error(self.name, error.get_message(), code) from None
            symbols = {name: module.module.mapping[expression] for name, expression in variables.items()}
            self._on_gpu[key] = module, kernel, symbols
        return self._on_gpu[key]
