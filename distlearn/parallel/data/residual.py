r"""What compressed sums have left out of the gradients so far: error feedback that survives a restart.

rank r keeps   given_r    error of its own codes              as long as the gradient
               summed_r   error of the sums it sent     as long as its share of that

Of all gradients so far, everything has reached the parameters except :math:`\sum_r given_r + \sum_r summed_r`,
summed_r at its share's place. That sum is what must outlive a change of ranks; which rank holds which part affects only
rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backend import get_xp
from ..checkpoint.state import RESIDUAL, part_of_rank
from ..sharding import Partial, Sharded, ShardSpec

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

    def state_dict(self, spec_of=None) -> dict[str, Sharded]:
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
                spec = ShardSpec(tuple(p.data.shape)) if spec_of is None else spec_of(p.name)
                found[f"{RESIDUAL}{p.name}"] = Sharded(part, replace(spec, partial=Partial()))
        return found

    # -- going on ------------------------------------------------------------------------------------------------------
    def load(self, arrays: dict, rank: int, spec_of=None) -> None:
        """Take over the residuals of a state: each rank its own if nothing has changed, else an equal part."""
        self.owed = {}
        for reducer in self.reducers.values():
            reducer.errors = {}
        if not any(name.startswith(RESIDUAL) for name in arrays) or not self.buckets:
            return
        mine = part_of_rank(arrays, rank)
        as_it_was = np.array_equal(mine.pop(_LAYOUT, None), self._layout())
        verdict = get_xp(self.buckets[0].flat).array([as_it_was], np.float64)
        if self.comm.all_reduce(verdict, "min")[0]:
            self._load_own(mine)
        else:
            self._load_equal_part(arrays, spec_of)

    def _load_own(self, mine: dict) -> None:
        for name, array in mine.items():
            which, i = name.split("/")
            bucket = self.buckets[int(i)]
            kept = self.owed if which == "owed" else self.reducers[bucket].errors
            kept[bucket if which == "owed" else which] = get_xp(bucket.flat).asarray(array)

    def _load_equal_part(self, arrays: dict, spec_of) -> None:
        for bucket in self.buckets:
            xp = get_xp(bucket.flat)
            owed = xp.zeros(bucket.flat.size - bucket.extra.size, bucket.flat.dtype)
            for p, part in _parts(bucket, owed):
                if (whole := arrays.get(RESIDUAL + p.name)) is not None:
                    mine = whole if spec_of is None else spec_of(p.name).take(whole)
                    part[...] = xp.asarray(mine) / self.comm.size
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
