"""Buckets: gradients as views into a few flat arrays, so that one call moves many of them; and their all-reduces.

A message costs alpha seconds however small it is, and a model has many small parameters; a single call for everything
could not start before the last gradient is complete. Buckets of `cap_bytes` are in between: few calls, and the first
one starts while backward still runs. Parameters go into buckets in reverse order, in which backward completes them.

    backward completes a gradient --> its bucket is full --> all-reduce starts --> ... --> wait for all --> update
"""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

import numpy as np

from ...backend import get_xp
from ...bounds import check_number
from ...cuda.flat import layout, on_gpu
from ...nn.layer import Param
from ..strategy import average_statistics, check_global_rows, statistics_of
from .compression import CompressedAllReduce


class Bucket:
    """Gradients of some parameters as views of one flat array.

    Parameters
    ----------
    params : list of Param
        Same dtype; their `grad` is replaced by views, so nothing is ever packed or unpacked.
    extra : int
        Number of free elements at the end of `flat`, for small numbers that are sent along.
    aligned : bool
        On a GPU every gradient begins where a float4 can, after up to three zeros.
    """

    def __init__(self, params: list[Param], extra: int = 0, aligned: bool = False):
        self.params = params
        begins, n = layout(params, 4 if aligned and on_gpu(params) else 1)
        self.flat = get_xp(params[0].data).zeros(n + extra, params[0].data.dtype)
        self.extra = self.flat[n:]
        self.pending = 0
        self._views = []
        for p, begin in zip(params, begins, strict=True):
            p.grad = self.flat[begin : begin + p.size].reshape(p.data.shape)
            self._views.append(p.grad)

    def clear(self) -> None:
        """Clear all gradients, and expect all of them again; `flush` writes the zeros that are needed."""
        for p, view in zip(self.params, self._views, strict=True):
            p.grad = view  # the user may have assigned another array
            p.zero_grad()
        self.pending = len(self.params)

    def flush(self) -> None:
        """Complete `flat` before it is read: zeros where no gradient was added, and arrays assigned to `p.grad`."""
        for p, view in zip(self.params, self._views, strict=True):
            if p.grad is not view:
                view[...] = p.grad
                p.grad = view


def group_params(params: list[Param], cap_bytes: float = math.inf) -> list[list[Param]]:
    """Sort parameters that are not frozen into groups of at most `cap_bytes`, in reverse order, of one dtype each."""
    check_number("group_params", above=0, cap_bytes=cap_bytes)
    groups: list[list[Param]] = []
    filled = 0
    for p in reversed([p for p in params if not p.frozen]):
        if not groups or filled + p.nbytes > cap_bytes or groups[-1][0].data.dtype != p.data.dtype:
            groups.append([])
            filled = 0
        groups[-1].append(p)
        filled += p.nbytes
    return groups


def make_buckets(
    params: list[Param], cap_bytes: float = math.inf, extra: int = 0, aligned: bool = False
) -> list[Bucket]:
    """Make the buckets of `group_params`, with some free elements at the end of the last."""
    groups = group_params(params, cap_bytes)
    return [Bucket(group, extra if i == len(groups) - 1 else 0, aligned) for i, group in enumerate(groups)]


class GradientReducer:
    """All-reduces of the gradients of some parameters, of the loss, and of the number of rows that it is of.

    Loss and rows are sent in the last bucket unless a code or half precision would round them. Statistics among the
    parameters are averaged.
    """

    def __init__(self, comm, params, *, like, cap_bytes=1 << 20, overlap=True, compress=None):
        # `like`: an array of the device, for the numbers of a stage without parameters
        if compress is not None and (isinstance(compress, type) or not hasattr(compress, "sparse")):
            raise TypeError(f"compress is {compress!r}, expected a codec, such as FP16() or TopK(0.01)")
        self.comm, self.overlap = comm, overlap
        self.buckets = make_buckets(params, cap_bytes, extra=2, aligned=compress is None)  # a code sees gradients only
        self._bucket_of = {id(p): bucket for bucket in self.buckets for p in bucket.params}
        self._works: list = []
        self._statistics = statistics_of(params)
        self._in_last_bucket = bool(self.buckets) and compress is None and self.buckets[-1].flat.dtype.itemsize >= 4
        self.sums = self.buckets[-1].extra if self._in_last_bucket else get_xp(like).zeros(2, np.float64)
        self._reducers = {}
        if compress is not None and comm.size > 1:
            for bucket in self.buckets:
                n, seed = bucket.flat.size - bucket.extra.size, crc32(bucket.params[0].name.encode())
                self._reducers[bucket] = CompressedAllReduce(comm, n, compress, seed=(seed,))

    def clear(self) -> None:
        for bucket in self.buckets:
            bucket.clear()
        self._works = []

    def on_grad(self, param: Param) -> None:
        """Count down the bucket of a parameter whose gradient is complete; start its all-reduce when it is full."""
        bucket = self._bucket_of.get(id(param))
        if bucket is None or not self.overlap:  # a frozen parameter is in no bucket
            return
        bucket.pending -= 1
        if bucket.pending == 0:
            self._start(bucket)

    def finish(self, mine: int, n: int) -> float:
        """Wait for all sums; return the loss of the global batch, whose n rows the ranks' rows must add up to."""
        if not self.overlap:
            for bucket in self.buckets:
                self._start(bucket)
        if not self._in_last_bucket and self.comm.size > 1:
            self._works.append(self.comm.iall_reduce(self.sums))
        for work in self._works:
            work.wait()
        loss, rows = map(float, self.sums)
        if rows != n:
            check_global_rows(self.comm, rows, n)
        if self._statistics:
            average_statistics(self.comm, self._statistics, mine, n)
        return loss

    def waits_for_loss(self, param: Param) -> bool:
        """Say whether a parameter's bucket carries the loss: it must not be full before the loss is known."""
        return self._in_last_bucket and self._bucket_of.get(id(param)) is self.buckets[-1]

    def _start(self, bucket: Bucket) -> None:
        bucket.flush()
        reducer = self._reducers.get(bucket)
        if reducer is not None:
            self._works.append(reducer.start(bucket.flat[: reducer.parts[-1].stop]))
        elif self.comm.size > 1:  # of one rank it is the sum, and a message would be a copy of it
            self._works.append(self.comm.iall_reduce(bucket.flat))

    # -- errors of the codes so far ------------------------------------------------------------------------------------
    @property
    def generators(self) -> list[np.random.Generator]:
        return [reducer.rng for reducer in self._reducers.values()]

    @property
    def errors(self) -> dict[str, Any]:
        """The errors that this rank keeps, by codec, number of ranks, and bucket."""
        return {place + which: e for place, reducer in self._places() for which, e in reducer.errors.items()}

    def load_errors(self, arrays: dict[str, Any]) -> None:
        """Continue with the errors of a saved run; another codec, number of ranks or bucket size starts without."""
        for place, reducer in self._places():
            mine = {name.removeprefix(place): e for name, e in arrays.items() if name.startswith(place)}
            reducer.errors = {which: get_xp(self.sums).asarray(e) for which, e in mine.items()}

    def _places(self):
        for bucket, reducer in self._reducers.items():
            yield f"{reducer.codec}/{self.comm.size}/{bucket.params[0].name}/{bucket.flat.size}/", reducer
