r"""Gradient compression: fewer bytes on the wire, and how training stays correct.

A `Codec` turns an array into bytes and back; `compress.CompressedAllReduce` sums arrays over ranks by sending nothing
but such bytes. Error feedback makes up for what rounding loses: each rank adds the error of its last message
to its next one.

=========  =======================  ==================================  =========================================
codec      bytes for n values       what arrives                        all-reduce
=========  =======================  ==================================  =========================================
`FP16`     2 n                      half precision                      two phases, 2 (p - 1) / p of the bytes
`Int8`     4 + n                    one of 255 levels, at random        two phases
`OneBit`   8 + n / 8                the mean of its sign                two phases
`TopK`     k (4 + size of a value)  the k largest, zero for the others  all to all, (p - 1) times
=========  =======================  ==================================  =========================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...backend import get_xp


class Codec(Protocol):
    """Turns an array into bytes and back."""

    sparse: bool
    """Whether sums of codes are no longer small: then every rank sends to all others."""
    error_feedback: bool

    def nbytes(self, n: int, dtype) -> int:
        """Bytes for n values of a dtype."""

    def encode(self, x, rng):
        """Return the (nbytes,) bytes of the flat array `x`."""

    def decode(self, code, out) -> None:
        """Decode `code` into the flat array `out`."""


@dataclass(frozen=True)
class FP16:
    """Half precision: half of float32's bytes, 11 bits of accuracy, nothing beyond 65,504.

    Parameters
    ----------
    error_feedback : bool
        Add the error of a message to the next one.

    References
    ----------
    P. Micikevicius et al. (2018), Mixed precision training, ICLR 2018, section 3.
    """

    error_feedback: bool = False
    sparse = False

    def nbytes(self, n, dtype):
        """2 n."""
        return 2 * n

    def encode(self, x, rng):
        """Round; values that are too large become the largest."""
        xp = get_xp(x)
        return xp.clip(x, -65504.0, 65504.0).astype(np.float16).view(np.uint8)

    def decode(self, code, out):
        """Widen."""
        out[...] = code.view(np.float16)


@dataclass(frozen=True)
class Int8:
    r"""255 levels from -max to max, with stochastic rounding: a quarter of float32's bytes, right on average.

    .. math:: q = \left\lfloor \frac{127 x}{\max |x|} + u \right\rfloor, \quad u \sim U[0, 1), \quad E[q] \propto x

    Parameters
    ----------
    error_feedback : bool
        Add the error of a message to the next one.

    References
    ----------
    D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic (2017), QSGD: communication-efficient SGD via gradient
    quantization and encoding, NIPS 2017, section 3.1 (here with the maximum instead of the 2-norm).

    T. Dettmers (2016), 8-bit approximations for parallelism in deep learning, ICLR 2016.
    """

    error_feedback: bool = False
    sparse = False

    def nbytes(self, n, dtype):
        """4 + n: the scale as float32, then a byte per value."""
        return 4 + n if n else 0

    def encode(self, x, rng):
        """Scale, round at random."""
        xp = get_xp(x)
        if not x.size:
            return xp.empty(0, np.uint8)
        code = xp.zeros(4 + x.size, np.uint8)
        scale = np.float32(abs(x).max())
        code[:4].view(np.float32)[0] = scale
        if 0 < scale < math.inf:  # else: all zero, or not finite, which the scale tells the receiver
            levels = xp.floor(x * (127.0 / float(scale)) + xp.asarray(rng.random(x.size)))
            code[4:].view(np.int8)[...] = xp.clip(levels, -127, 127)
        return code

    def decode(self, code, out):
        """Scale back; NaN or infinity on the way in gives NaN."""
        if out.size:
            scale = float(code[:4].view(np.float32)[0])
            out[...] = code[4:].view(np.int8) * (scale / 127.0 if math.isfinite(scale) else math.nan)


@dataclass(frozen=True)
class OneBit:
    """The sign of each value, and the mean of the positive and of the negative ones: a 32nd of float32's bytes.

    Useless without error feedback, and surprisingly good with it.

    Parameters
    ----------
    error_feedback : bool
        Add the error of a message to the next one.

    References
    ----------
    F. Seide, H. Fu, J. Droppo, G. Li, D. Yu (2014), 1-bit stochastic gradient descent and its application to
    data-parallel distributed training of speech DNNs, Interspeech 2014, section 3.
    """

    error_feedback: bool = True
    sparse = False

    def nbytes(self, n, dtype):
        """8 + n / 8: two means as float32, then a bit per value."""
        return 8 + -(-n // 8) if n else 0

    def encode(self, x, rng):
        """Take signs and means."""
        xp = get_xp(x)
        if not x.size:
            return xp.empty(0, np.uint8)
        code = xp.empty(self.nbytes(x.size, x.dtype), np.uint8)
        positive = x >= 0
        count, total = int(positive.sum()), x[positive].sum()
        means = code[:8].view(np.float32)
        means[0] = total / max(count, 1)
        means[1] = (x.sum() - total) / max(x.size - count, 1)
        code[8:] = xp.packbits(positive)
        return code

    def decode(self, code, out):
        """Replace each sign by its mean."""
        if out.size:
            xp = get_xp(out)
            means = code[:8].view(np.float32)
            out[...] = xp.where(xp.unpackbits(code[8:])[: out.size].astype(bool), means[0], means[1])


@dataclass(frozen=True)
class TopK:
    """The largest values and where they are; the rest accumulates in the error feedback.

    Parameters
    ----------
    ratio : float
        Share of the values that are sent, above 0 and up to 1; at least one value of every array.
    error_feedback : bool
        Add what was not sent to the next message.

    References
    ----------
    A. F. Aji, K. Heafield (2017), Sparse communication for distributed gradient descent, EMNLP 2017.

    Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally (2018), Deep gradient compression: reducing the communication bandwidth
    for distributed training, ICLR 2018, section 3.1.
    """

    ratio: float = 0.01
    error_feedback: bool = True
    sparse = True

    def __post_init__(self):
        if not 0 < self.ratio <= 1:
            raise ValueError(f"TopK: ratio is {self.ratio!r}, expected a share above 0 and up to 1")

    def count(self, n: int) -> int:
        """Values that are sent of n."""
        return min(n, max(1, round(self.ratio * n)))

    def nbytes(self, n, dtype):
        """An index of 4 bytes and a value of full precision, k times."""
        return self.count(n) * (4 + np.dtype(dtype).itemsize)

    def encode(self, x, rng):
        """Pick the largest; among equal ones any."""
        xp, k = get_xp(x), self.count(x.size)
        code = xp.empty(self.nbytes(x.size, x.dtype), np.uint8)
        if k:
            places = xp.sort(xp.argpartition(abs(x), x.size - k)[x.size - k :])
            code[: 4 * k].view(np.uint32)[...] = places
            code[4 * k :] = x[places].view(np.uint8)
        return code

    def decode(self, code, out):
        """Put the values where they belong, and zero elsewhere."""
        k = self.count(out.size)
        out[...] = 0
        if k:
            out[code[: 4 * k].view(np.uint32)] = code[4 * k :].copy().view(out.dtype)  # copied: to be aligned
