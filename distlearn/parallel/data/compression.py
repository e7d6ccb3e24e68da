"""Sums of gradients over ranks that send only codes: the bytes in a trace are those that were sent."""

from __future__ import annotations

import numpy as np

from ...backend import get_xp
from ...shares import shares
from .codecs import Codec


class CompressedAllReduce:
    r"""Sums an array over ranks repeatedly, sending codes only; keeps the errors in between.

    Dense codecs take two phases, like a ring: rank r gets every rank's code of share r, sums, and sends the code of the
    sum to all. Every rank sends 2 (p - 1) messages and about 2 (p - 1) / p of a code. With error feedback both
    errors are kept: that of what a rank contributes, and that of the sums it sends. A sparse codec takes one: every
    rank sends its code of the whole array to all others, p - 1 messages of a code each.

    .. math:: c_t = C(x_t + e_t), \qquad e_{t+1} = x_t + e_t - C^{-1}(c_t)

    All ranks hold the same bits afterwards. The first phase overlaps with whatever comes before `wait`.

    Parameters
    ----------
    n : int
        Length of the arrays.
    seed : sequence of int
        Of the random rounding; the rank is added to it.

    References
    ----------
    Seide et al. (2014), section 3.3 (aggregation in two phases, each quantised). H. Tang et al. (2021), 1-bit Adam,
    ICML 2021, algorithm 1 (both errors). S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi (2019), Error feedback
    fixes SignSGD and other gradient compression schemes, ICML 2019 (why it converges).
    """

    def __init__(self, comm, n: int, dtype, codec: Codec, *, seed=(0,), tag: int = 0):
        self.comm, self.codec, self.dtype, self.tag = comm, codec, np.dtype(dtype), tag
        self.parts = [slice(0, n)] * comm.size if codec.sparse else shares(n, comm.size)
        self.rng = np.random.default_rng([*seed, comm.rank])
        self.errors = {}  # "given" and "summed": what the last messages left out

    def start(self, x) -> CompressedWork:
        """Start sending this rank's codes; the sum is in `x` after `wait`. Every rank must start in the same order."""
        if x.size != self.parts[-1].stop or x.dtype != self.dtype or x.ndim != 1:
            wanted = f"({self.parts[-1].stop},) {self.dtype}"
            raise ValueError(f"rank {self.comm.rank}: CompressedAllReduce of {wanted} got {x.shape} {x.dtype}")
        return CompressedWork(self, x)

    def encode_all(self, x) -> list:
        """Encode each rank's part of `x`; keep what that leaves out."""
        if self.codec.sparse:
            return [self.encode("given", x)] * self.comm.size
        if self.codec.error_feedback:
            error = self.errors.get("given")
            x = x if error is None else x + error
        codes = [self.codec.encode(x[part], self.rng) for part in self.parts]
        if self.codec.error_feedback:
            arrived = get_xp(x).empty_like(x)
            for part, code in zip(self.parts, codes, strict=True):
                self.codec.decode(code, arrived[part])
            self.errors["given"] = x - arrived
        return codes

    def encode(self, which: str, x):
        """Encode `x` plus the last call's error; keep the error of this call."""
        if not self.codec.error_feedback:
            return self.codec.encode(x, self.rng)
        if which in self.errors:
            x = x + self.errors[which]
        code = self.codec.encode(x, self.rng)
        arrived = get_xp(x).empty_like(x)
        self.codec.decode(code, arrived)
        self.errors[which] = x - arrived
        return code

    def exchange(self, codes: list, sizes: list[int], like) -> tuple[dict, list]:
        """Start sending codes[r] to rank r and receiving sizes[r] bytes from it; return the codes, and works."""
        comm, xp = self.comm, get_xp(like)
        others = [r for r in range(comm.size) if r != comm.rank]
        came = {r: xp.empty(sizes[r], np.uint8) for r in others}
        works = [comm.irecv(came[r], r, self.tag) for r in others]
        works += [comm.isend(codes[r], r, self.tag) for r in others]
        return came | {comm.rank: codes[comm.rank]}, works


class CompressedWork:
    """A compressed all-reduce in progress."""

    def __init__(self, reducer: CompressedAllReduce, x):
        self._reducer, self._x = reducer, x
        rank, codec = reducer.comm.rank, reducer.codec
        mine = reducer.parts[rank]
        self._n_mine = mine.stop - mine.start
        nbytes = codec.nbytes(self._n_mine, reducer.dtype)
        self._came, self._works = reducer.exchange(reducer.encode_all(x), [nbytes] * reducer.comm.size, x)

    def done(self) -> bool:
        """Say whether the first phase is done; the second takes place in `wait`."""
        return all(work.done() for work in self._works)

    def wait(self):
        """Sum what has arrived, send the sums; return the array."""
        if self._works is None:
            return self._x
        for work in self._works:
            work.wait()
        self._works = None
        reducer, x = self._reducer, self._x
        total = self._sum()
        if reducer.codec.sparse:
            x[...] = total
            return x
        comm, codec = reducer.comm, reducer.codec
        code = reducer.encode("summed", total)
        sizes = [codec.nbytes(part.stop - part.start, reducer.dtype) for part in reducer.parts]
        came, works = reducer.exchange([code] * comm.size, sizes, x)
        for work in works:
            work.wait()
        for rank, part in enumerate(reducer.parts):
            codec.decode(came[rank], x[part])  # our own, too, so that all ranks hold the same bits
        return x

    def _sum(self):
        """Add up the codes of all ranks, in rank order."""
        xp = get_xp(self._x)
        total, one = xp.zeros(self._n_mine, self._x.dtype), xp.empty(self._n_mine, self._x.dtype)
        for rank in range(self._reducer.comm.size):
            self._reducer.codec.decode(self._came[rank], one)
            total += one
        return total
