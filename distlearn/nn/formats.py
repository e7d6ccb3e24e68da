"""Numbers of 4 and 8 bits in blocks that share a scale, emulated exactly; and a dense layer that trains with them.

Values are rounded to those of a format and held in float32, as NumPy has no such types: the numbers are right, and
`nbytes` says what they would take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..backend import Array, column_sums, get_xp, matmul
from ..bounds import check_positive
from .layer import check_input
from .linear import Linear


@dataclass(frozen=True)
class Format:
    r"""A floating-point format of few bits.

    .. math:: x = \pm\, k \cdot 2^{e - m}, \qquad e \ge 2 - 2^{E - 1}, \quad 0 \le k < 2^{m + 1}

    with E bits of exponent and m of mantissa: 1 + E + m in all.

    Parameters
    ----------
    exponent, mantissa : int
        Bits, E and m.
    largest : float
        Larger values saturate.

    References
    ----------
    Open Compute Project (2023), OCP Microscaling formats (MX) specification v1.0, section 5.3: E4M3 and E2M1.

    Examples
    --------
    >>> E2M1.round(np.array([0.2, 0.3, 2.5, 3.5, 100], "float32"))
    array([0. , 0.5, 2. , 4. , 6. ], dtype=float32)
    """

    name: str
    exponent: int
    mantissa: int
    largest: float

    def __post_init__(self):
        if not (2 <= self.exponent <= 8 and 1 <= self.mantissa <= 23):
            what = f"{self.name} has {self.exponent} bits of exponent and {self.mantissa} of mantissa"
            raise ValueError(f"Format: {what}, expected 2 to 8 and 1 to 23, as float32 holds them")

    def round(self, x: Array, rng: np.random.Generator | None = None, axis: int | None = None) -> Array:
        """Round to the format's values, ties to the even one.

        Parameters
        ----------
        x : array
            Float32; others are converted to it first, and back.
        rng : numpy.random.Generator, optional
            Round up or down at random, so that the mean is `x`: 2.2 of E2M1 becomes 2 or, with probability 0.2, 3.
        axis : optional
            For blocks; a format without a scale ignores it.
        """
        y = get_xp(x).atleast_1d(_single(self.name, x))
        return self._round_in_place(y, rng).reshape(x.shape).astype(x.dtype, copy=False)

    def _round_in_place(self, y, rng):
        """Round an array of float32 that nobody else has."""
        xp = get_xp(y)
        xp.maximum(xp.minimum(y, self.largest, out=y), -self.largest, out=y)
        with np.errstate(over="ignore", invalid="ignore"):
            # the distance of neighbours; 2^127 is there for infinity and NaN, which have a larger "power of two"
            unit = _power(y)
            xp.maximum(unit, 2.0 ** (2 - 2 ** (self.exponent - 1)), out=unit)
            xp.minimum(unit, 2.0**127, out=unit)
            unit *= 2.0**-self.mantissa
            y /= unit
            if rng is None:
                xp.rint(y, out=y)
            else:
                low = xp.floor(y)
                y -= low
                y = xp.add(low, xp.asarray(rng.random(y.shape, np.float32)) < y, out=low)
            y *= unit
        return y

    def nbytes(self, shape: tuple[int, ...], axis: int | None = None) -> int:
        return -(-math.prod(shape) * (1 + self.exponent + self.mantissa) // 8)


E4M3, E2M1 = Format("E4M3", 4, 3, 448.0), Format("E2M1", 2, 1, 6.0)


def _single(what, x):
    if x.dtype.kind != "f":
        raise TypeError(f"{what}: the array is {x.dtype}, expected floating-point numbers")
    return x.astype(np.float32)


def _power(x):
    """The largest power of two that is not above abs(x), of float32; 0 for subnormal numbers."""
    return (x.view(np.int32) & np.int32(0x7F800000)).view(np.float32)


@dataclass(frozen=True)
class BlockFormat:
    r"""Blocks of numbers of few bits, each with a scale of 8 bits: `x` is rounded to s times the element's values.

    .. math:: s = 2^{\lfloor \log_2 \max |x| \rfloor - \lfloor \log_2 M \rfloor} \quad \text{(MX)}, \qquad
              s = t \cdot \operatorname{E4M3}\!\left(\frac{\max |x|}{M\, t}\right), \quad
              t = \frac{\max_{\text{tensor}} |x|}{448\, M} \quad \text{(NVFP4)}

    M is the largest value of an element, t a float32 for the whole array. MX's powers of two leave up to half of the
    range unused, or saturate the largest values: of E2M1, those above 6 s. A block with a NaN or infinity becomes NaN.

    Parameters
    ----------
    block : int
        Values that share a scale.
    scale : Format, optional
        That of the scale; None: a power of two, from 2^-127 to 2^127 (E8M0).

    References
    ----------
    OCP Microscaling formats (MX) specification v1.0, section 6.3. NVIDIA (2025), Pretraining large language models with
    NVFP4, arXiv:2509.25149, appendix C.

    Examples
    --------
    >>> x = np.array([1, 3, 8, 14, 15], "float32")
    >>> MXFP4.round(x), NVFP4.round(x)
    (array([ 1.,  3.,  8., 12., 12.], dtype=float32), array([ 1.25,  2.5 ,  7.5 , 15.  , 15.  ], dtype=float32))
    >>> MXFP4.nbytes((64, 64)), NVFP4.nbytes((64, 64))
    (2176, 2308)
    """

    name: str
    element: Format
    block: int
    scale: Format | None = None

    def __post_init__(self):
        check_positive(self.name, block=self.block)

    def round(self, x: Array, rng: np.random.Generator | None = None, axis: int = -1) -> Array:
        """Round each block to multiples of its scale.

        Parameters
        ----------
        rng : numpy.random.Generator, optional
            As for `Format.round`: unbiased for values that do not saturate.
        axis : int
            Blocks are cut along it, the last one of a row may be smaller.
        """
        xp, axis = get_xp(x), normalize_axis_index(axis, x.ndim)
        y = _single(self.name, x)
        if x.shape[axis] % self.block:
            y = xp.pad(y, [(0, -n % self.block * (a == axis)) for a, n in enumerate(x.shape)])
        # a block's values on the first axis: NumPy is slow at the maximum of few adjacent values
        blocks = y.reshape(*x.shape[:axis], -1, self.block, *x.shape[axis + 1 :])
        blocks = xp.ascontiguousarray(xp.moveaxis(blocks, axis + 1, 0))
        scale = self._scale(abs(blocks).max(axis=0))
        blocks /= xp.where(scale == 0, 1, scale)
        blocks = self.element._round_in_place(blocks, rng)
        blocks *= scale
        y = xp.moveaxis(blocks, 0, axis + 1).reshape(y.shape)
        return y[tuple(map(slice, x.shape))].astype(x.dtype, copy=False)

    def _scale(self, largest):
        xp, M = get_xp(largest), self.element.largest
        if self.scale is None:
            top = 2.0 ** math.floor(math.log2(M))
            scale = xp.maximum(_power(largest), 2.0**-127 * top) / top
            return xp.where(xp.isfinite(largest), scale, np.nan)
        tensor = xp.maximum(largest.max() / (self.scale.largest * M), np.finfo(np.float32).tiny)
        return self.scale.round(largest / M / tensor) * tensor

    def nbytes(self, shape: tuple[int, ...], axis: int = -1) -> int:
        """Bytes of the elements and scales of an array of `shape`."""
        axis = normalize_axis_index(axis, len(shape))
        blocks = math.prod(-(-n // self.block) if a == axis else n for a, n in enumerate(shape))
        return self.element.nbytes(shape) + blocks + 4 * (self.scale is not None)


MXFP8, MXFP4 = BlockFormat("MXFP8", E4M3, 32), BlockFormat("MXFP4", E2M1, 32)
NVFP4 = BlockFormat("NVFP4", E2M1, 16, E4M3)


class LowPrecisionLinear(Linear):
    """A `Linear` layer that rounds the factors of its three products; weights, sums and bias stay in float32.

    Parameters
    ----------
    fmt : BlockFormat or Format
        Blocks lie along the axis over which a product sums.
    stochastic : bool
        Round the gradient `dy` at random.
    seed : int
        Of the random rounding.
    **options
        As for `Linear`.

    References
    ----------
    NVIDIA (2025), Pretraining large language models with NVFP4, arXiv:2509.25149, section 4.
    """

    splits = False

    def __init__(
        self,
        d_in: int,
        d_out: int,
        rng: np.random.Generator | int | None = None,
        *,
        fmt: Any,
        stochastic: bool = True,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__(d_in, d_out, rng, **options)
        if not isinstance(fmt, Format | BlockFormat):
            raise TypeError(f"LowPrecisionLinear: fmt is {fmt!r}, expected a format such as NVFP4")
        self.fmt, self.stochastic, self.rng = fmt, stochastic, np.random.default_rng(seed)

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_input(self, x)
        y = matmul(*self._rounded(x.reshape(-1, self.d_in), self.W.data))
        return (y + self.b.data).reshape(*x.shape[:-1], self.d_out), x

    def backward(self, dy: Array, saved: Any) -> Array | None:
        x, dy, rng = saved.reshape(-1, self.d_in), dy.reshape(-1, self.d_out), self.rng if self.stochastic else None
        self.W.add_product(*self._rounded(x.T, dy, rng_b=rng))
        self.b.add(column_sums(dy))
        if self.input_gradient:
            return matmul(*self._rounded(dy, self.W.data.T, rng_a=rng)).reshape(saved.shape)
        return None

    def _rounded(self, a, b, rng_a=None, rng_b=None):
        """Return the factors of a product as they are multiplied."""
        if a.device == "meta":  # there is nothing to round
            return a, b
        return self.fmt.round(a, rng_a, 1), self.fmt.round(b, rng_b, 0)
