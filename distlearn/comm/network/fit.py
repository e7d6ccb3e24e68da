"""Measure messages and all-reduces, and fit alpha and beta to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..collectives import ALL_REDUCES

# -- measure -----------------------------------------------------------------------------------------------------------
# Measuring a world's network from inside: ping-pong and all-reduces, as SPMD functions that run on any ranks.

MESSAGE_SIZES = (0, 64, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22)  # Bytes of the messages of a ping-pong.

ARRAY_SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22)  # Bytes of the arrays of an all-reduce sweep.


def ping_pong(comm, sizes=MESSAGE_SIZES, repeats: int = 11) -> list[list[float]]:
    """Send messages from rank 0 to rank 1 and back; return seconds one way, a list of `repeats` for each size."""
    # Only rank 0's times count. Other ranks wait at the end.
    if comm.size < 2:
        raise ValueError("ping_pong needs 2 ranks or more, got 1")
    times: list[list[float]] = [[] for _ in sizes]
    for turn in range(repeats + 1):
        # all sizes in every round, so that a temporary disturbance affects all of them equally
        for i, n in enumerate(sizes):
            x, began = np.zeros(n, np.uint8), comm.clock.now()
            if comm.rank == 0:
                comm.send(x, 1)
                comm.recv(x, 1)
            elif comm.rank == 1:
                comm.recv(x, 0)
                comm.send(x, 0)
            if turn:  # the first warms up
                times[i].append((comm.clock.now() - began) / 2)
    comm.barrier()
    return times


def all_reduce_sweep(comm, algorithms=("ring",), sizes=ARRAY_SIZES, repeats: int = 7) -> dict[str, list[list[float]]]:
    """Time all-reduces of float32 arrays, all algorithms in every round."""
    if isinstance(algorithms, dict):
        calls = algorithms
    else:
        calls = {name: comm.__class__.all_reduce if name == "native" else ALL_REDUCES[name] for name in algorithms}
    times: dict[str, list[list[float]]] = {name: [[] for _ in sizes] for name in algorithms}
    for turn in range(repeats + 1):
        for i, nbytes in enumerate(sizes):
            x = np.zeros(nbytes // 4, np.float32)
            for name, call in calls.items():
                comm.barrier()
                began = comm.clock.now()
                call(comm, x)
                seconds = comm.all_reduce(np.array([comm.clock.now() - began]), "max")[0]
                if turn:
                    times[name][i].append(float(seconds))
    return times


def fastest(times) -> np.ndarray:
    """Return the shortest of each list of seconds: other programs make a measurement longer, never shorter."""
    # W. Gropp, E. Lusk (1999), Reproducible measurements of MPI performance characteristics, EuroPVM/MPI 1999, LNCS
    # 1697.
    return np.array([min(t) for t in times])


# -- line --------------------------------------------------------------------------------------------------------------
# A network model from measurements: the alpha and beta that best explain the times of messages.


class Sweep(NamedTuple):
    """Measured and predicted seconds, by size; `nbytes` is that of a message or of an array to reduce."""

    nbytes: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray

    @property
    def error(self) -> float:
        """Median of |predicted / measured - 1|: the model's typical error, as a fraction of the measured time."""
        if not len(self.nbytes):
            return 0.0
        wrong = np.where(self.predicted == self.measured, 0.0, np.inf)  # used where the measured time is 0
        np.divide(abs(self.predicted - self.measured), self.measured, out=wrong, where=self.measured > 0)
        return float(np.median(wrong))


def line(nbytes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    r"""Fit seconds = alpha + nbytes / beta with equal relative errors; return (alpha, beta), neither below 0.

    They minimise :math:`\sum_n \left((\alpha + n / \beta) / t_n - 1\right)^2`, so that every size counts equally; t_n
    is the shortest time of a message of n bytes.

    References
    ----------
    R. W. Hockney (1994), The communication challenge for MPP, Parallel Computing 20(3), section 2 (ping-pong, r_inf).

    Examples
    --------
    >>> line(np.array([0.0, 100.0, 1000.0]), np.array([1.0, 2.0, 11.0]))
    (1.0, 100.0)
    """
    if not (seconds >= 0).all():  # NaN
        raise ValueError(f"fit: seconds are {seconds.tolist()}, expected numbers of 0 or more")
    if len(nbytes) < 2 or np.ptp(nbytes) == 0:
        raise ValueError(f"fit: message sizes are {nbytes.tolist()}, expected two different ones or more")
    took_time = seconds > 0
    if not took_time.all():  # some messages are free: there is no latency
        return 0.0, through_origin(nbytes[took_time], seconds[took_time])
    # two scaled columns, so that the small one is not lost in rounding
    scale = nbytes.max()
    columns = np.stack([1 / seconds, nbytes / scale / seconds], axis=1)
    (alpha, slope), *_ = np.linalg.lstsq(columns, np.ones(len(nbytes)), rcond=None)
    if alpha < 0:  # bandwidth alone explains it better than any latency
        return 0.0, through_origin(nbytes, seconds)
    if slope <= 1e-9 * seconds.min():  # latency alone; any slope is rounding
        return round_off(1 / np.mean(1 / seconds)), float("inf")
    return round_off(alpha), round_off(scale / slope)


def through_origin(nbytes: np.ndarray, seconds: np.ndarray) -> float:
    """Fit seconds = nbytes / beta with equal relative errors; return beta, infinite if nothing takes time."""
    share = nbytes / seconds
    return round_off((share**2).sum() / share.sum()) if share.any() else float("inf")


def round_off(x: float) -> float:
    """Drop the last digits, which are rounding errors of the fit."""
    return float(f"{x:.10g}")
