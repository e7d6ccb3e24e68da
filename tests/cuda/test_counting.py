"""Counts read from assembly: every installed compiler passes the probe, one that writes something else is refused."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from distlearn.cuda import KernelError, RawKernel
from distlearn.cuda.emulator import assembly, build, compilers
from distlearn.cuda.emulator.device_code import device_code
from distlearn.cuda.kernels.matmul import ANY_TILE
from distlearn.cuda.kernels.variant import source

from .corpus.launches import LAUNCHES

NAMES = ["g++", "clang++", *(f"g++-{n}" for n in range(11, 17)), *(f"clang++-{n}" for n in range(14, 23))]
PATHS = {str(Path(path).resolve()): path for name in NAMES if (path := shutil.which(name))}
VERSIONS = {c.version: c for path in PATHS.values() if (c := compilers._identify((path,)))}
INSTALLED = pytest.mark.parametrize(
    "compiler", [c for c in VERSIONS.values() if c.kind in ("gcc", "clang")], ids=lambda c: c.name
)


@INSTALLED
def test_every_version_passes_the_probe(compiler):
    made = build.build(device_code(build.PROBE, "probe"), "probe", compiler)
    assert build.counts(made) == build.WANTED


FOUR = """extern "C" __global__ void four(const float4* x, float4* y) {
    float4 v = x[threadIdx.x], w = x[0];
    v.x = fmaxf(v.x + w.x, 0.0f);
    v.y = fmaxf(v.y + w.y, 0.0f);
    v.z = fmaxf(v.z + w.z, 0.0f);
    v.w = fmaxf(v.w + w.w, 0.0f);
    y[threadIdx.x] = v;
}"""


@INSTALLED
def test_neighbouring_operations_are_not_merged(compiler):
    """clang made one addition of vectors of these four, which was not counted."""
    x = np.ones((32, 4), np.float32)
    report = RawKernel(FOUR, "four", compiler=compiler).check((1,), (32,), (x, np.zeros_like(x)))
    assert report.flops == 4 * 32


@pytest.mark.parametrize("number", ["x[i]", "2 * x[i]", "x[i] + x[j] * 3", "s[i]", "x[(int)x[i] % 8] / x[j]"])
@pytest.mark.parametrize("kind", ["int", "unsigned", "long long", "unsigned char"])
def test_a_number_that_is_converted_is_computed_once(number, kind, compiler):
    """gcc computes it again behind its check of the conversion, if all that it reads is constant."""
    reports = []
    for const in ("const ", ""):
        source = f"""extern "C" __global__ void k({const}float* x, int* y, int j) {{
            int i = threadIdx.x;
            __shared__ float s[32];
            s[i] = x[i];
            __syncthreads();
            {kind} v = {number};
            y[i] = v;
        }}"""
        arguments = np.arange(1, 33, dtype=np.float32), np.zeros(32, np.int32), np.int32(5)
        reports.append(RawKernel(source, "k", compiler=compiler).check((1,), (32,), arguments))
    constant, other = reports
    assert constant.flops == other.flops
    assert constant.bytes_requested == other.bytes_requested


@INSTALLED
def test_a_lane_may_pass_on_what_it_has_not_set(compiler):
    """One atomic for a warp: clang took every lane for the leader, since only the leader sets what is shuffled."""
    case = next(c for c in LAUNCHES if c.name == "filter_positive")
    grid, block, args, want = case.make()
    case.kernel(compiler=compiler)(grid, block, args)
    for which, value in want.items():
        np.testing.assert_array_equal(args[which], value)


def test_the_busiest_warp_is_the_one_that_moves_most(compiler):
    """Warp 1 of block 1 reads 16 times 4 sectors, and is the only one that passes over shared memory."""
    source = """extern "C" __global__ void k(const float* x, float* y) {
        __shared__ float s[32];
        int lane = threadIdx.x % 32, last = blockIdx.x && threadIdx.x >= 32;
        float sum = 0;
        for (int i = 0; i < (last ? 16 : 1); i++) sum += x[i * 32 + lane];
        if (last) s[lane] = sum, __syncwarp(), sum = s[31 - lane];
        if (last) y[lane] = sum;
    }"""
    arrays = np.zeros(512, np.float32), np.zeros(32, np.float32)
    report = RawKernel(source, "k", compiler=compiler).check((2,), (64,), arrays)
    assert report.busiest_warp == (17 * 4, 2)
    assert sum(site.sectors for site in report.sites) == (3 + 17) * 4


UNKNOWN = {  # what in the assembly is written differently
    "operations": ("FLOP", r"^\s*(fadd|fsub|fmul|fdiv)32\b"),
    "lines": ("KERNEL_FILE", "another.cu"),
    "jumps": ("JUMP", r"^\s*(goto)\s+(\S+)$"),
    "functions": ("MATHS", r"libm_(exp|sqrt|fma)f?$"),
}


@pytest.mark.nightly(but_every=4)
@pytest.mark.parametrize("what", UNKNOWN)
def test_a_compiler_that_is_read_wrongly_is_refused(what, monkeypatch, fresh_cache, tmp_path, compiler):
    name, pattern = UNKNOWN[what]
    monkeypatch.setattr(assembly, name, pattern if what == "lines" else re.compile(pattern))
    monkeypatch.setenv("DISTLEARN_CACHE", str(tmp_path))
    kernel = RawKernel('extern "C" __global__ void k(float* x) { x[0] = 1; }', "k", compiler=compiler)
    with pytest.raises(KernelError, match="writes assembly that the emulator does not count correctly"):
        kernel.check((1,), (1,), (np.zeros(1, np.float32),))


def test_two_stores_stay_two(compiler):
    """Both arms of a branch write: two requests, although clang would make them one."""
    source = """extern "C" __global__ void k(float* x, const float* y, int n) {
        int i = threadIdx.x;
        if (i < n) x[i] = y[i];
        else x[i] = 2.f * i;
    }"""
    x = np.zeros(32, np.float32)
    report = RawKernel(source, "k", compiler=compiler).check((2,), (32,), (x, x + 1, np.int32(20)))
    assert sum(site.requests for site in report.sites if site.access == "write") == 4


@pytest.mark.parametrize("shape", [(24, 32, 56), (40, 32, 64), (72, 8, 64), (72, 32, 32)])
def test_a_thread_that_does_not_wait_stays_with_its_warp(shape):
    """Of these shapes one thread ran at two looks for one that spins: it was put off, and its warp's requests cut."""
    m, k, n = shape
    a, b, c = (np.ones(size, np.float32) for size in ((m, k), (k, n), (m, n)))
    kernel, grid = RawKernel(source(ANY_TILE.file), ANY_TILE.kernel), (-(-n // 16), -(-m // 16))
    report = kernel.check(grid, (16, 16), (a, b, c, *np.array([m, n, k], np.int32)), shared_mem=8 * 16 * 16)
    assert report.bytes_moved == 4 * (m * k * grid[0] + k * n * grid[1] + m * n)
