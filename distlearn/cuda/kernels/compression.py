"""Gradient compression with error feedback: the largest elements, 8 bits, 1 bit.

References
----------
A. F. Aji, K. Heafield (2017), Sparse communication for distributed gradient descent (the largest elements).
F. Seide et al. (2014), 1-bit stochastic gradient descent and its application to data-parallel training.
"""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, f32, i32

BLOCK = 256  # elements that share a scale


def _blocks_of(x):
    padded = np.zeros(-(-x.size // BLOCK) * BLOCK, x.dtype)
    padded[: x.size] = x
    return padded.reshape(-1, BLOCK)


def top_k_reference(grad, residual, threshold, index, value, count):
    """Write indices and values of the elements of grad + residual whose size is at least `threshold`."""
    total = grad + residual
    (chosen,) = np.nonzero(np.abs(total) >= f32(threshold))
    index[: chosen.size], value[: chosen.size] = chosen, total[chosen]
    count[0] += chosen.size
    residual[:] = total
    residual[chosen] = 0


def quantise_8bit_reference(grad, residual, q, scale):
    """Write codes and scales; grad + residual is code * scale plus the new residual."""
    total = grad + residual
    scale[:] = np.abs(_blocks_of(total)).max(1) / f32(127)
    unit = np.repeat(scale, BLOCK)[: total.size]
    q[:] = np.rint(np.divide(total, unit, out=np.zeros_like(total), where=unit > 0))
    residual[:] = total - q.astype(f32) * unit


def quantise_1bit_reference(grad, residual, bits, scale):
    """Write signs, 32 to a word from the lowest bit, and each block's mean size."""
    total = grad + residual
    sizes = np.minimum(BLOCK, total.size - BLOCK * np.arange(scale.size))
    scale[:] = np.abs(_blocks_of(total)).sum(1) / sizes
    unit = np.repeat(scale, BLOCK)[: total.size]
    positive = np.zeros(bits.size * 32, bool)
    positive[: total.size] = total >= 0
    bits[:] = np.packbits(positive, bitorder="little").view(np.uint32)
    residual[:] = total - np.where(total >= 0, unit, -unit)


def _top_k(grad, residual, threshold, index, value, count):
    if min(index.size, value.size) < grad.size:
        raise ValueError(f"top_k: index and value need {grad.size} places, for the case that all elements are sent")
    args = (grad, residual, f32(threshold), index, value, count, i32(grad.size))
    return Launch(blocks(grad.size, most=2**31 - 1), (256,), args)


def _quantise(per_code):
    def launch(grad, residual, codes, scale):
        wanted = (-(-grad.size // per_code), -(-grad.size // BLOCK))
        if (codes.size, scale.size) != wanted:
            raise ValueError(f"quantise: {codes.size} codes and {scale.size} scales, expected {wanted} for {grad.size}")
        return Launch((scale.size,), (BLOCK,), (grad, residual, codes, scale, i32(grad.size)))

    return launch


def _gradient(rng, n=1000):
    return rng.normal(size=n).astype(f32), (0.1 * rng.normal(size=n)).astype(f32)


def _top_k_example(rng):
    grad, residual = _gradient(rng)
    return grad, residual, 1.5, np.zeros(1000, i32), np.zeros(1000, f32), np.zeros(1, i32)


def _8bit_example(rng):
    return *_gradient(rng), np.zeros(1000, np.int8), np.zeros(4, f32)


def _1bit_example(rng):
    return *_gradient(rng, 1024), np.zeros(32, np.uint32), np.zeros(4, f32)


TOP_K = Variant(
    "compression.cu", "top_k", _top_k, top_k_reference, _top_k_example, {("count", "atomic"): 1}, unordered=(3, 4)
)
QUANTISE_8BIT = Variant(
    "compression.cu", "quantise_8bit", _quantise(1), quantise_8bit_reference, _8bit_example,
    {("q", "write"): 1, ("largest", "read"): 1},
)  # fmt: skip
QUANTISE_1BIT = Variant(
    "compression.cu", "quantise_1bit", _quantise(32), quantise_1bit_reference, _1bit_example,
    {("grad", "read"): 4, ("bits", "write"): 1, ("part", "read"): 1},
)  # fmt: skip

VARIANTS = [TOP_K, QUANTISE_8BIT, QUANTISE_1BIT]
