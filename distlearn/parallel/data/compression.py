"""Gradient compression: codecs, error feedback, and the all-reduce that sends nothing but codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...backend import get_xp
from ...shares import shares
from ..checkpoint.state import RESIDUAL, part_of_rank
from ..sharding import Partial, Sharded, ShardSpec, length

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
    """Whether what a message leaves out is added to the next one."""

    def nbytes(self, n: int, dtype) -> int:
        """Bytes for n values of a dtype."""

    def encode(self, x, rng):
        """Return the (nbytes,) bytes of the flat array `x`."""

    def decode(self, code, out) -> None:
        """Decode `code` into the flat array `out`."""


@dataclass(frozen=True)
class FP16:
    """Half precision: half of float32's bytes, 11 bits of accuracy, nothing beyond 65,504.

    References
    ----------
    P. Micikevicius et al. (2018), Mixed precision training, ICLR 2018, section 3.
    """

    sparse = error_feedback = False

    def nbytes(self, n, dtype):
        return 2 * n

    def encode(self, x, rng):
        xp = get_xp(x)
        return xp.clip(x, -65504.0, 65504.0).astype(np.float16).view(np.uint8)

    def decode(self, code, out):
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

    def nbytes(self, n, dtype):
        return 4 + n if n else 0  # the scale as float32, then a byte per value

    def encode(self, x, rng):
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

    def nbytes(self, n, dtype):
        return 8 + -(-n // 8) if n else 0  # two means as float32, then a bit per value

    def encode(self, x, rng):
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
        if not 0 < self.ratio <= 1:
            raise ValueError(f"TopK: ratio is {self.ratio!r}, expected a share above 0 and up to 1")

    def count(self, n: int) -> int:
        """Values that are sent of n."""
        return min(n, max(1, round(self.ratio * n)))

    def nbytes(self, n, dtype):
        return self.count(n) * (4 + np.dtype(dtype).itemsize)  # an index, and a value of full precision

    def encode(self, x, rng):
        xp, k = get_xp(x), self.count(x.size)
        code = xp.empty(self.nbytes(x.size, x.dtype), np.uint8)
        if k:
            places = xp.sort(xp.argpartition(abs(x), x.size - k)[x.size - k :])
            code[: 4 * k].view(np.uint32)[...] = places
            code[4 * k :] = x[places].view(np.uint8)
        return code

    def decode(self, code, out):
        k = self.count(out.size)
        out[...] = 0
        if k:
            out[code[: 4 * k].view(np.uint32)] = code[4 * k :].copy().view(out.dtype)  # copied: to be aligned


# -- residual ----------------------------------------------------------------------------------------------------------
# What compressed sums have left out of the gradients so far: error feedback that survives a restart.
#
# rank r keeps   given_r    error of its own codes              as long as the gradient
#                summed_r   error of the sums it sent     as long as its share of that
#
# Of all gradients so far, everything has reached the parameters except :math:`\sum_r given_r + \sum_r summed_r`,
# summed_r at its share's place. That sum is what must outlive a change of ranks; which rank holds which part affects
# only rounding.

_LAYOUT = "residual_layout"


class Residuals:
    """The errors that the buckets of one strategy keep, on all ranks together."""

    def __init__(self, comm, buckets, reducers):
        self.comm, self.buckets, self.reducers = comm, buckets, reducers
        self.owed = {}  # bucket -> residuals of a run on other ranks, for the next gradient

    def add_to(self, bucket) -> None:
        """Add to a bucket's gradients, once, this rank's residuals from another run."""
        owed = self.owed.pop(bucket, None)
        if owed is not None:
            bucket.flat[: owed.size] += owed

    # -- saving --------------------------------------------------------------------------------------------------------
    def own_state(self) -> dict:
        """Return what this rank keeps, bucket by bucket, and what that depends on; empty if nothing is kept."""
        found = {f"owed/{i}": self.owed[b] for i, b in enumerate(self.buckets) if b in self.owed}
        for i, bucket in enumerate(self.buckets):
            errors = self.reducers[bucket].errors if bucket in self.reducers else {}
            found |= {f"{which}/{i}": error for which, error in errors.items()}
        return found | {_LAYOUT: self._layout()} if found else {}

    def state_dict(self) -> dict[str, Sharded]:
        """Return this rank's summand of what all ranks keep, by parameter."""
        found, own = {}, self.own_state()
        for i, bucket in enumerate(self.buckets):
            kept = [name for name in ("owed", "given", "summed") if f"{name}/{i}" in own]
            if not kept:
                continue
            flat = get_xp(bucket.flat).zeros(bucket.flat.size - bucket.extra.size, bucket.flat.dtype)
            for name in kept:
                share = self.reducers[bucket].parts[self.comm.rank] if name == "summed" else slice(None)
                flat[share] += own[f"{name}/{i}"]
            for p, part in _parts(bucket, flat):
                found[f"{RESIDUAL}{p.name}"] = Sharded(part, ShardSpec(tuple(p.data.shape), partial=Partial()))
        return found

    # -- going on ------------------------------------------------------------------------------------------------------
    def load(self, arrays: dict) -> None:
        """Take over the residuals of a state: each rank its own if nothing has changed, else an equal part."""
        self.owed = {}
        for reducer in self.reducers.values():
            reducer.errors = {}
        if not any(name.startswith(RESIDUAL) for name in arrays) or not self.buckets:
            return
        mine = part_of_rank(arrays, self.comm.rank)
        as_it_was = np.array_equal(mine.pop(_LAYOUT, None), self._layout())
        verdict = get_xp(self.buckets[0].flat).array([as_it_was], np.float64)
        if not self.comm.all_reduce(verdict, "min")[0]:
            self._load_equal_part(arrays)
            return
        for name, array in mine.items():
            which, i = name.split("/")
            bucket = self.buckets[int(i)]
            kept = self.owed if which == "owed" else self.reducers[bucket].errors
            kept[bucket if which == "owed" else which] = get_xp(bucket.flat).asarray(array)

    def _load_equal_part(self, arrays: dict) -> None:
        for bucket in self.buckets:
            xp = get_xp(bucket.flat)
            owed = xp.zeros(bucket.flat.size - bucket.extra.size, bucket.flat.dtype)
            for p, part in _parts(bucket, owed):
                if (whole := arrays.get(RESIDUAL + p.name)) is not None:
                    part[...] = xp.asarray(whole) / self.comm.size
            self.owed[bucket] = owed

    def _layout(self):
        """Return as bytes what determines which numbers a rank keeps: ranks, codecs, buckets."""
        buckets = [[(p.name, p.data.shape, p.data.dtype.str) for p in bucket.params] for bucket in self.buckets]
        codecs = [str(reducer.codec) for reducer in self.reducers.values()]
        return np.frombuffer(repr((self.comm.size, codecs, buckets)).encode(), np.uint8)


def _parts(bucket, flat):
    """Yield the parameters of a bucket that have elements, and their places in an array like its gradients."""
    offset = 0
    for p in bucket.params:
        if p.size:
            yield p, flat[offset : offset + p.size].reshape(p.data.shape)
        offset += p.size


# -- compression -------------------------------------------------------------------------------------------------------
# Sums of gradients over ranks that send only codes: the bytes in a trace are those that were sent.


class CompressedAllReduce:
    r"""Sums an array over ranks repeatedly, sending codes only; keeps the errors in between.

    Dense codecs take two phases, like a ring: rank r gets every rank's code of share r, sums, and sends the code of the
    sum to all. Every rank sends 2 (p - 1) messages and about 2 (p - 1) / p of a code. With error feedback both
    errors are kept: that of what a rank contributes, and that of the sums it sends. A sparse codec takes one: every
    rank sends its code of the whole array to all others, p - 1 messages of a code each.

    .. math:: c_t = C(x_t + e_t), \qquad e_{t+1} = x_t + e_t - C^{-1}(c_t)

    All ranks hold the same bits afterwards. The first phase overlaps with whatever comes before `wait`.

    References
    ----------
    Seide et al. (2014), section 3.3 (aggregation in two phases, each quantised). H. Tang et al. (2021), 1-bit Adam,
    ICML 2021, algorithm 1 (both errors). S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi (2019), Error feedback
    fixes SignSGD and other gradient compression schemes, ICML 2019 (why it converges).
    """

    def __init__(self, comm, n: int, dtype, codec: Codec, *, seed=(0,)):
        self.comm, self.codec, self.dtype = comm, codec, np.dtype(dtype)
        self.parts = [slice(0, n)] * comm.size if codec.sparse else shares(n, comm.size)
        self.rng = np.random.default_rng([*seed, comm.rank])
        self.errors = {}  # "given" and "summed": what the last messages left out

    def start(self, x) -> CompressedWork:
        """Start sending this rank's codes; the sum is in `x` after `wait`. Every rank must start in the same order."""
        if x.size != self.parts[-1].stop or x.dtype != self.dtype or x.ndim != 1:
            wanted = f"({self.parts[-1].stop},) {self.dtype}"
            raise ValueError(f"rank {self.comm.rank}: CompressedAllReduce of {wanted} got {x.shape} {x.dtype}")
        return CompressedWork(self, x)

    def encode(self, which: str, x, parts) -> list:
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

    def exchange(self, codes: list, sizes: list[int], like) -> tuple[dict, list]:
        """Start sending codes[r] to rank r and receiving sizes[r] bytes from it; return the codes, and works."""
        comm, xp = self.comm, get_xp(like)
        others = [r for r in range(comm.size) if r != comm.rank]
        came = {r: xp.empty(sizes[r], np.uint8) for r in others}
        works = [comm.irecv(came[r], r) for r in others]
        works += [comm.isend(codes[r], r) for r in others]
        return came | {comm.rank: codes[comm.rank]}, works


class CompressedWork:
    """A compressed all-reduce in progress."""

    def __init__(self, reducer: CompressedAllReduce, x):
        self._reducer, self._x = reducer, x
        comm, codec, parts = reducer.comm, reducer.codec, reducer.parts
        self._n = length(parts[comm.rank])
        codes = reducer.encode("given", x, parts[:1]) * comm.size if codec.sparse else reducer.encode("given", x, parts)
        self._came, self._works = reducer.exchange(codes, [codec.nbytes(self._n, reducer.dtype)] * comm.size, x)

    def wait(self):
        """Sum what has arrived, in rank order, and send the sums; return the array."""
        if self._works is None:
            return self._x
        for work in self._works:
            work.wait()
        self._works = None
        reducer, x, xp = self._reducer, self._x, get_xp(self._x)
        comm, codec = reducer.comm, reducer.codec
        total, one = xp.zeros(self._n, x.dtype), xp.empty(self._n, x.dtype)
        for rank in range(comm.size):
            codec.decode(self._came[rank], one)
            total += one
        if codec.sparse:
            x[...] = total
            return x
        code = reducer.encode("summed", total, [slice(None)])
        sizes = [codec.nbytes(length(part), reducer.dtype) for part in reducer.parts]
        came, works = reducer.exchange(code * comm.size, sizes, x)
        for work in works:
            work.wait()
        for rank, part in enumerate(reducer.parts):
            codec.decode(came[rank], x[part])  # our own, too, so that all ranks hold the same bits
        return x
