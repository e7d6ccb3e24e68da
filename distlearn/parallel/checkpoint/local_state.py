"""The state of a run with local SGD: every rank's replica for as many ranks, and their average for all others."""

from __future__ import annotations

import numpy as np

from .state import gather_by_rank, live_arrays, part_of_rank, put, serial_part

_SINCE = "since_average"


class LocalState:
    """LocalSGD's half that checkpoints need: between two averages every rank has a model of its own.

    Notes
    -----
    `gather_state` is one gather of every rank's parameters and optimizer's memory, which rank 0 holds p times for a
    moment; `put_state` sends nothing. The average is that of `LocalSGD.finish`, for the optimizer's memory, too; of
    frozen parameters (running statistics) it is rank 0's. An array in which the ranks agree is saved once.
    """

    checkpointable = True

    def gather_state(self) -> dict | None:
        """Return the average in the serial model's shapes, and each rank's own, on rank 0; None elsewhere."""
        live = live_arrays(self)
        by_rank = gather_by_rank(self.comm, live | {_SINCE: np.array([self._steps, self._samples])})
        if by_rank is None:
            return None
        replicas = [part_of_rank(by_rank, rank) for rank in range(self.size)]
        samples = np.array([replica[_SINCE][1] for replica in replicas], float)
        weights = samples if samples.any() else None  # no step yet, or right after an average
        frozen = {f"param/{p.name}" for p in self.model.params if p.frozen}
        found, agreed = {}, set()
        for name in live:
            values = [replica[name] for replica in replicas]
            if len({value.tobytes() for value in values}) == 1:
                agreed.add(name)
            first = name in frozen or name in agreed
            found[name] = values[0] if first else _mean(values, weights)
        return found | {name: array for name, array in by_rank.items() if name.split("/", 2)[2] not in agreed}

    def put_state(self, arrays: dict) -> None:
        """Take this rank's replica if as many ranks saved theirs, else the average, as if all had just averaged."""
        mine = {}
        if _SINCE in part_of_rank(arrays, self.size - 1) and not part_of_rank(arrays, self.size):
            mine = part_of_rank(arrays, self.rank)
        steps, samples = mine.pop(_SINCE, (0, 0))
        put(live_arrays(self), serial_part(arrays) | mine)
        self._steps, self._samples = int(steps), int(samples)


def _mean(values, weights):
    """Return the weighted mean of arrays, worked out in double precision, in their dtype."""
    return np.average(values, axis=0, weights=weights).astype(values[0].dtype)
