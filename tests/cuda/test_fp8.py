"""Floats of one byte, `cuda_fp8.h`: every value, and every rounding, against a table of the values themselves."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel

KERNEL = """#include <cuda_fp8.h>
__global__ void decode(const __nv_fp8_KIND* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = float(x[i]);
}
__global__ void encode(const float* x, __nv_fp8_KIND* y, unsigned char* unsaturated, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = __nv_fp8_KIND(x[i]);
    unsaturated[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, INTERPRETATION);
}
__global__ void four(const float4* x, __nv_fp8x4_KIND* packed, float4* y) {
    packed[threadIdx.x] = __nv_fp8x4_KIND(x[threadIdx.x]);
    y[threadIdx.x] = float4(packed[threadIdx.x]);
}"""


def values(kind):
    """The values of the bytes 0 to 255, from their definition."""
    wide, bias = (3, 7) if kind == "e4m3" else (2, 15)
    exponent, fraction = np.divmod(np.arange(128), 2**wide)
    found = np.where(exponent > 0, 1 + fraction / 2**wide, fraction / 2 ** (wide - 1)) * 2.0 ** (exponent - bias)
    if kind == "e4m3":
        found[127] = np.nan
    else:
        found[124:] = np.inf, np.nan, np.nan, np.nan
    return np.concatenate([found, -found])


def nearest(x, table):
    """The byte of the nearest finite value of the same sign, of two the even one."""
    finite = np.flatnonzero(np.isfinite(table[:128]))
    off = np.abs(table[finite][None] - np.minimum(np.abs(x), 1e9)[:, None])
    close = off == off.min(1, keepdims=True)
    byte = np.where(close.sum(1) > 1, (close * (finite % 2 == 0)).argmax(1), close.argmax(1))
    return (byte + 128 * np.signbit(x)).astype(np.uint8)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_value_and_every_rounding(kind, compiler):
    source = KERNEL.replace("KIND", kind).replace("INTERPRETATION", f"__NV_{kind.upper()}")
    decode, encode, four = (RawKernel(source, name, compiler=compiler) for name in ("decode", "encode", "four"))
    table, y = values(kind), np.zeros(256, np.float32)
    decode((2,), (128,), (np.arange(256, dtype=np.uint8), y, np.int32(256)))
    np.testing.assert_array_equal(y, table.astype(np.float32))
    positive = np.sort(table[:128][np.isfinite(table[:128])])
    ties = ((positive[1:] + positive[:-1]) / 2).astype(np.float32)
    x = np.concatenate([positive, ties, np.nextafter(ties, 0), np.nextafter(ties, 9e9), [1e-30, 1e5, np.inf]])
    x = np.concatenate([x, -x, np.random.default_rng(0).normal(size=500) * 100]).astype(np.float32)
    rounded, loose = np.zeros(len(x), np.uint8), np.zeros(len(x), np.uint8)
    encode((-(-len(x) // 128),), (128,), (x, rounded, loose, np.int32(len(x))))
    np.testing.assert_array_equal(rounded, nearest(x, table))
    beyond = np.abs(x) > positive[-1] + (positive[-1] - positive[-2]) / 2
    np.testing.assert_array_equal(loose[~beyond], rounded[~beyond])
    assert set(loose[beyond] & 127) == {127 if kind == "e4m3" else 124}
    assert np.isnan(table[encoded_nan(encode)])
    x4, back, packed = x[:64], np.zeros(64, np.float32), np.zeros(64, np.uint8)
    four((1,), (16,), (x4.copy(), packed, back))
    np.testing.assert_array_equal(packed, rounded[:64])
    np.testing.assert_array_equal(back, table[packed].astype(np.float32))


def encoded_nan(encode):
    rounded, loose = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
    encode((1,), (1,), (np.full(1, np.nan, np.float32), rounded, loose, np.int32(1)))
    assert rounded == loose
    return int(rounded[0])
