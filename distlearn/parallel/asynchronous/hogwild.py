"""Hogwild: all ranks of one machine write into the same parameters, at any time, without any lock.

No messages, no server, no waiting: a rank reads the shared array while others write into it, and subtracts its gradient
while others do the same. An addition of another rank can be lost, a read can be half old and half new. Where gradients
are sparse, ranks rarely touch the same numbers, and it hardly matters.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import platform
import tempfile
from typing import NamedTuple

import numpy as np

from ...optim.schedules import as_schedule
from .param_server.run import CURVE, GRADIENT, Run, measure_curve
from .param_server.server import Snapshot
from .param_server.training import check_end
from .param_server.worker import FlatModel, endless_batches


def share_array(comm, n: int, dtype) -> np.ndarray:
    """Return an array of n zeros in memory that all ranks of the communicator share. Every rank calls it.

    It is freed when the last rank releases it: nothing is left behind, however the ranks end.

    Parameters
    ----------
    comm : Communicator
        All of one machine.
    n : int
    dtype : dtype

    Raises
    ------
    ValueError
        If ranks run on different machines.
    OSError
        If there is not enough space.
    """
    nodes = comm.broadcast_obj(comm.gather_obj(platform.node()))
    if len(set(nodes)) > 1:
        raise ValueError(
            f"Hogwild: ranks run on {', '.join(sorted(set(nodes)))}, but only one machine can share memory"
        )
    path = comm.broadcast_obj(_reserve(max(1, n * np.dtype(dtype).itemsize)) if comm.rank == 0 else None)
    array = np.memmap(path, dtype, "r+", shape=(n,))
    comm.barrier()
    if comm.rank == 0:
        with contextlib.suppress(OSError):  # Windows keeps the name while the file is in use
            os.unlink(path)
    return array


def _reserve(nbytes: int) -> str:
    """Make a file of zeros where there is room: in memory, or if that is small (as in containers), on a disk."""
    folders = [folder for folder in ("/dev/shm", tempfile.gettempdir()) if os.path.isdir(folder)]
    for folder in folders:
        handle, path = tempfile.mkstemp(prefix="distlearn-hogwild-", dir=folder)
        try:
            if hasattr(os, "posix_fallocate"):  # else the first write beyond the free space kills the process
                os.posix_fallocate(handle, 0, nbytes)
            else:
                os.truncate(handle, nbytes)
            return path
        except OSError as error:
            os.unlink(path)
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(handle)
    raise OSError(errno.ENOSPC, f"Hogwild: no room for {nbytes} bytes that all ranks share in {' or '.join(folders)}")


class Hogwild:
    """Lock-free SGD on shared memory.

    Parameters
    ----------
    comm : Communicator
        Ranks of one machine; all of them train. On simulated ranks the writes come in the order of virtual time.
    model : Sequential
        The same on every rank; rank 0's parameters count. Its learned parameters become views of the shared memory.
    loss : callable
    lr : float or callable
        Learning rate, or a schedule: a function of the rank's step (from 0).
    sparse : bool
        Write only where the gradient is not zero; else the whole array.
    pace : callable, optional
        `pace(rank, step) -> seconds` between reading and writing: a straggler, with an old gradient.
    every : int
        Rank 0 copies the parameters every so many of its steps, and at the end, for the curve; 0 for never.

    Notes
    -----
    No messages. Rules other than plain SGD would have to share their memory, too, with races on it.

    References
    ----------
    B. Recht, C. Re, S. Wright, F. Niu (2011), Hogwild!: a lock-free approach to parallelizing stochastic gradient
    descent, NeurIPS, algorithm 1.
    """

    def __init__(self, comm, model, loss, lr, *, sparse=False, pace=None, every=0):
        self.comm, self.clock, self.loss, self.sparse, self.pace, self.every = (
            comm, comm.clock, loss, sparse, pace, every,
        )  # fmt: skip
        self.lr = as_schedule(lr, "Hogwild")
        self.rank, self.size = comm.rank, comm.size
        self.flat = FlatModel(model)
        shared = share_array(comm, self.flat.data.size, self.flat.data.dtype)
        if comm.rank == 0:
            shared[:] = self.flat.data
        self.flat.rebind(shared)
        self._done = share_array(comm, comm.size, np.int64)  # steps of each rank: each writes its own
        comm.barrier()

    def train(self, dataset, *, batch_size: int, steps=None, seconds=math.inf, seed=0, probe: int = 1000) -> Run | None:
        """Train; return the run on rank 0, and None elsewhere. Every rank calls it.

        Parameters
        ----------
        dataset, batch_size, seconds, seed, probe
            See `ParameterServer.train`.
        steps : int, optional
            Gradients that each rank computes, on average: faster ranks compute more.

        Returns
        -------
        run : Run
            Staleness is the number of others' steps between reading and writing, as far as a rank could see.
        """
        check_end("Hogwild.train", steps, seconds)
        snapshots = [Snapshot(0, 0.0, self.flat.data.copy())] if self.every else []
        self.comm.barrier()  # no rank may write before the first snapshot is taken
        began, total_steps = self.clock.now(), math.inf if steps is None else steps * self.size
        rows: list[tuple] = []
        for step, batch in enumerate(endless_batches(dataset, batch_size, self.rank, self.size, seed)):
            if self._done.sum() >= total_steps or self.clock.now() - began >= seconds:
                break
            rows.append(self._step(batch, step, began))
            if not math.isfinite(rows[-1][8]):
                break
            if self.every and self.rank == 0 and (step + 1) % self.every == 0:
                snapshots.append(Snapshot(rows[-1][3], self.clock.now() - began, self.flat.data.copy()))
        return self._run(rows, snapshots, dataset, probe)

    def _step(self, batch, step: int, began: float) -> tuple:
        """Read, compute, write; return a row of the record."""
        flat, used = self.flat, int(self._done.sum())
        with self.clock.span("gradient", flops=flat.flops(batch.x.shape)):
            loss = flat.gradient(batch.x, batch.y, self.loss)
            # even for 0 s: on simulated ranks, the others read and write here
            self.clock.sleep(0.0 if self.pace is None else self.pace(self.rank, step))
        staleness = int(self._done.sum()) - used
        self._write(self.lr(step))
        self._done[self.rank] += 1
        now = self.clock.now() - began
        return (self.rank, step, used, used + staleness + 1, staleness, len(batch.x), now, now, loss, 1.0)

    def _write(self, lr: float) -> None:
        """Subtract the gradient from the shared parameters."""
        data, grad = self.flat.data, self.flat.grad
        if not self.sparse:
            data -= data.dtype.type(lr) * grad
            return
        touched = np.flatnonzero(grad)
        data[touched] -= data.dtype.type(lr) * grad[touched]

    def _run(self, rows, snapshots, dataset, probe) -> Run | None:
        """Gather all ranks' records on rank 0."""
        found = self.comm.gather_obj(rows)
        if found is None:
            return None
        gradients = np.array([row for part in found for row in part], GRADIENT)
        gradients = gradients[np.lexsort((gradients["worker"], gradients["time"]))]
        gradients["version"] = np.arange(1, len(gradients) + 1)  # what ranks saw of one another can have gaps
        gradients["used"] = np.maximum(0, gradients["version"] - 1 - gradients["staleness"])
        params, curve = self.flat.named(), np.zeros(0, CURVE)
        seconds = float(gradients["time"].max(initial=0.0))
        if self.every:
            if snapshots[-1].version < len(gradients):  # the others may have gone on after rank 0's last step
                snapshots.append(Snapshot(len(gradients), seconds, self.flat.data.copy()))
            self.flat.rebind(self.flat.data.copy())  # measuring must not change the shared array
            curve = measure_curve(self.flat, snapshots, dataset, self.loss, probe)
        return Run(
            policy="Hogwild, sparse" if self.sparse else "Hogwild",
            workers=self.size,
            gradients=gradients,
            seconds=seconds,
            params=params,
            curve=curve,
            diverged=not np.isfinite(gradients["loss"]).all(),
        )


class Sparsity(NamedTuple):
    """How often gradients collide: the smaller, the better Hogwild works."""

    omega: int
    """Most numbers that one gradient touches."""
    delta: float
    """Largest share of gradients that touch the same number."""
    rho: float
    """Largest share of gradients that have a number in common with one of them."""


def sparsity(touches) -> Sparsity:
    """Measure the sparsity of a problem.

    Parameters
    ----------
    touches : (n, d) array of bool
        Which of d parameters each of n gradients touches.

    References
    ----------
    B. Recht, C. Re, S. Wright, F. Niu (2011), Hogwild!, NeurIPS, section 2.

    Examples
    --------
    >>> sparsity(np.eye(4, dtype=bool))
    Sparsity(omega=1, delta=0.25, rho=0.25)
    """
    touches = np.asarray(touches, np.float32)
    overlap = (touches @ touches.T) > 0
    return Sparsity(
        int(touches.sum(axis=1).max()), float(touches.mean(axis=0).max()), float(overlap.mean(axis=1).max())
    )
