"""Gradient compression: codecs, error feedback, and the all-reduce that sends nothing but codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...backend import Array, get_xp
from ...bounds import check_number
from ...shares import shares
from ..sharding import length

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ...comm.base import Communicator

# -- codecs ------------------------------------------------------------------------------------------------------------
#
# ========  =======================  ==================================  ===========================================
# codec     bytes for n values       what arrives                        all-reduce
# ========  =======================  ==================================  ===========================================
# `FP16`    2 n                      half precision                      two phases, 2 (p - 1) / p of the bytes
# `Int8`    4 + n                    one of 255 levels, at random        two phases
# `OneBit`  8 + n / 8                the mean of its sign                two phases
# `TopK`    k (4 + size of a value)  the k largest, zero for the others  all to all, (p - 1) times
# ========  =======================  ==================================  ===========================================


class Codec(Protocol):
    """Turns an array into bytes and back."""

    sparse: bool
    """Whether sums of codes are no longer small: then every rank sends to all others."""
    error_feedback: bool
    """Whether the error of a message is added to the next one."""

    def nbytes(self, n: int, dtype: DTypeLike) -> int:
        """Bytes for n values of a dtype."""

    def encode(self, x: Array, rng: np.random.Generator) -> Any:
        """Return the (nbytes,) bytes of the flat array `x`."""

    def decode(self, code: Any, out: Array) -> None:
        """Decode `code` into the flat array `out`."""


@dataclass(frozen=True)
class FP16:
    """Half precision: half of float32's bytes, 11 bits of accuracy, nothing beyond 65,504.

    References
    ----------
    P. Micikevicius et al. (2018), Mixed precision training, ICLR 2018, section 3.
    """

    sparse = error_feedback = False

    def nbytes(self, n: int, dtype: DTypeLike) -> int:
        return 2 * n

    def encode(self, x: Array, rng: np.random.Generator) -> Any:
        xp = get_xp(x)
        return xp.clip(x, -65504.0, 65504.0).astype(np.float16).view(np.uint8)

    def decode(self, code: Any, out: Array) -> None:
        out[...] = code.view(np.float16)


@dataclass(frozen=True)
class Int8:
    r"""255 levels from -max to max, with stochastic rounding: a quarter of float32's bytes, right on average.

    .. math:: q = \left\lfloor \frac{127 x}{\max |x|} + u \right\rfloor, \quad u \sim U[0, 1), \quad E[q] \propto x

    References
    ----------
    D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic (2017), QSGD: communication-efficient SGD via gradient
    quantization and encoding, NIPS 2017, section 3.1 (here with the maximum instead of the 2-norm).

    T. Dettmers (2016), 8-bit approximations for parallelism in deep learning, ICLR 2016.
    """

    sparse = error_feedback = False

    def nbytes(self, n: int, dtype: DTypeLike) -> int:
        return 4 + n if n else 0  # the scale as float32, then a byte per value

    def encode(self, x: Array, rng: np.random.Generator) -> Any:
        xp = get_xp(x)
        if not x.size:
            return xp.empty(0, np.uint8)
        code = xp.zeros(4 + x.size, np.uint8)
        scale = np.float32(abs(x).max())
        code[:4].view(np.float32)[0] = scale
        if 0 < scale < math.inf:  # else: all zero, or not finite, which the receiver sees from the scale
            levels = xp.floor(x * (127.0 / float(scale)) + xp.asarray(rng.random(x.size)))
            code[4:].view(np.int8)[...] = xp.clip(levels, -127, 127)
        return code

    def decode(self, code: Any, out: Array) -> None:
        if out.size:
            scale = float(code[:4].view(np.float32)[0])  # NaN or infinity on the way in gives NaN
            out[...] = code[4:].view(np.int8) * (scale / 127.0 if math.isfinite(scale) else math.nan)


@dataclass(frozen=True)
class OneBit:
    """The sign of each value, and the mean of the positive and of the negative ones: a 32nd of float32's bytes.

    Useless without error feedback, and surprisingly good with it.

    References
    ----------
    F. Seide, H. Fu, J. Droppo, G. Li, D. Yu (2014), 1-bit stochastic gradient descent and its application to
    data-parallel distributed training of speech DNNs, Interspeech 2014, section 3.
    """

    sparse, error_feedback = False, True

    def nbytes(self, n: int, dtype: DTypeLike) -> int:
        return 8 + -(-n // 8) if n else 0  # two means as float32, then a bit per value

    def encode(self, x: Array, rng: np.random.Generator) -> Any:
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

    def decode(self, code: Any, out: Array) -> None:
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

    References
    ----------
    A. F. Aji, K. Heafield (2017), Sparse communication for distributed gradient descent, EMNLP 2017.

    Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally (2018), Deep gradient compression: reducing the communication bandwidth
    for distributed training, ICLR 2018, section 3.1.
    """

    ratio: float = 0.01
    sparse = error_feedback = True

    def __post_init__(self):
        check_number("TopK", above=0, most=1, ratio=self.ratio)

    def count(self, n: int) -> int:
        return min(n, max(1, round(self.ratio * n)))

    def nbytes(self, n: int, dtype: DTypeLike) -> int:
        return self.count(n) * (4 + np.dtype(dtype).itemsize)  # an index, and a value of full precision

    def encode(self, x: Array, rng: np.random.Generator) -> Any:
        xp, k = get_xp(x), self.count(x.size)
        code = xp.empty(self.nbytes(x.size, x.dtype), np.uint8)
        if k:
            places = xp.sort(xp.argpartition(abs(x), x.size - k)[x.size - k :])
            code[: 4 * k].view(np.uint32)[...] = places
            code[4 * k :] = x[places].view(np.uint8)
        return code

    def decode(self, code: Any, out: Array) -> None:
        k = self.count(out.size)
        out[...] = 0
        if k:
            out[code[: 4 * k].view(np.uint32)] = code[4 * k :].copy().view(out.dtype)  # copied: to be aligned


# -- compression -------------------------------------------------------------------------------------------------------
# Sums of gradients over ranks that send only codes: the bytes in a trace are those that were sent.


class CompressedAllReduce:
    r"""Sums an array over ranks repeatedly, sending codes only; keeps the errors in between.

    Dense codecs take two phases, like a ring: rank r gets every rank's code of share r, sums, and sends the code of the
    sum to all. Every rank sends 2 (p - 1) messages and about 2 (p - 1) / p of a code. With error feedback both
    errors are kept: that of a rank's contribution, and that of the sums it sends. A sparse codec takes one: every
    rank sends its code of the whole array to all others, p - 1 messages of a code each.

    .. math:: c_t = C(x_t + e_t), \qquad e_{t+1} = x_t + e_t - C^{-1}(c_t)

    All ranks hold the same bits afterwards. The first phase overlaps with whatever comes before `wait`.

    References
    ----------
    Seide et al. (2014), section 3.3 (aggregation in two phases, each quantised). H. Tang et al. (2021), 1-bit Adam,
    ICML 2021, algorithm 1 (both errors). S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi (2019), Error feedback
    fixes SignSGD and other gradient compression schemes, ICML 2019 (why it converges).
    """

    def __init__(self, comm: Communicator, n: int, codec: Codec, *, seed: int | Sequence[int] = (0,)):
        self.comm, self.codec = comm, codec
        self.parts = [slice(0, n)] * comm.size if codec.sparse else shares(n, comm.size)
        self.n = length(self.parts[comm.rank])  # of the part that this rank sums
        self.rng = np.random.default_rng([*seed, comm.rank])
        self.errors = {}  # "given" and "summed": the errors of the last messages

    def start(self, x: Array) -> CompressedWork:
        """Start sending this rank's codes; the sum is in `x` after `wait`. Every rank must start in the same order."""
        parts, size = self.parts, self.comm.size
        codes = self.encode("given", x, parts[:1]) * size if self.codec.sparse else self.encode("given", x, parts)
        return CompressedWork(self, x, *self.exchange(codes, [self.codec.nbytes(self.n, x.dtype)] * size, x))

    def encode(self, which: str, x: Array, parts: Any) -> list[Any]:
        """Encode parts of `x` plus the last call's error; keep the error of this call."""
        if which in self.errors:
            x = x + self.errors[which]
        codes = [self.codec.encode(x[part], self.rng) for part in parts]
        if self.codec.error_feedback:
            arrived = get_xp(x).empty_like(x)
            for part, code in zip(parts, codes, strict=True):
                self.codec.decode(code, arrived[part])
            self.errors[which] = x - arrived
        return codes

    def exchange(self, codes: list[Any], sizes: list[int], like: Array) -> tuple[dict[str, Any], list[Any]]:
        """Start sending codes[r] to rank r and receiving sizes[r] bytes from it; return the codes, and works."""
        comm, xp = self.comm, get_xp(like)
        others = [r for r in range(comm.size) if r != comm.rank]
        arrived = {r: xp.empty(sizes[r], np.uint8) for r in others}
        works = [comm.irecv(arrived[r], r) for r in others]
        works += [comm.isend(codes[r], r) for r in others]
        return arrived | {comm.rank: codes[comm.rank]}, works


@dataclass
class CompressedWork:
    """A compressed all-reduce in progress."""

    reducer: CompressedAllReduce
    x: Any
    arrived: dict[int, Any]  # codes by rank
    works: list[Any] | None

    def wait(self):
        """Sum the received codes in rank order, and send the sums; return the array."""
        reducer, x = self.reducer, self.x
        if self.works is None:
            return x
        for work in self.works:
            work.wait()
        self.works = None
        comm, codec, xp = reducer.comm, reducer.codec, get_xp(x)
        total, one = xp.zeros(reducer.n, x.dtype), xp.empty(reducer.n, x.dtype)
        for rank in range(comm.size):
            codec.decode(self.arrived[rank], one)
            total += one
        if codec.sparse:
            x[...] = total
            return x
        code = reducer.encode("summed", total, [slice(None)])
        sizes = [codec.nbytes(length(part), x.dtype) for part in reducer.parts]
        arrived, works = reducer.exchange(code * comm.size, sizes, x)
        for work in works:
            work.wait()
        for rank, part in enumerate(reducer.parts):
            codec.decode(arrived[rank], x[part])  # our own, too, so that all ranks hold the same bits
        return x
