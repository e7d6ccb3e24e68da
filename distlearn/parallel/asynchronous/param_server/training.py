"""`ParameterServer`: the one object that every rank makes, server or worker."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

from ....backend import get_xp, to_numpy, views_like
from ....bounds import check_number, check_positive
from ....comm.base import CommError, CutOffError
from ....data import Batches
from ....data.batches import rows_of
from ....nn.container import check_unique_names
from ....nn.layer import Statistic
from ....nn.metrics import make_metric
from ....optim.momentum import Nesterov
from ....optim.optimizer import check_rule
from ....optim.schedules import as_schedule
from ...checks import check_model, checked
from ...data.bucket import Bucket
from ...strategy import update
from .policy import BSP, check_policy, constant
from .server import Leave, Push, Server, make_reply

if TYPE_CHECKING:
    from ....comm.base import Communicator
    from ....data.batches import Batch
    from ....data.dataset import Dataset
    from ....nn.container import Sequential
    from ....nn.loss import Loss
    from ....optim.optimizer import Optimizer, Rule
    from .policy import ASP


class FlatModel:
    """A model whose learned parameters are stored in one array, in the order of construction."""

    def __init__(self, model):
        check_unique_names(model.params)
        check_model(model)
        self.model = model
        learned = [p for p in model.params if not p.frozen]
        for p in model.params:
            if isinstance(p, Statistic):
                raise ValueError(f"parameter server: {p.name!r} is a running statistic, which workers do not share")
        if not learned:
            raise ValueError(f"parameter server: {model!r} has no parameters to learn")
        dtypes = {str(p.data.dtype) for p in learned}
        if len(dtypes) > 1:
            raise ValueError(f"parameter server: parameters are {', '.join(sorted(dtypes))}, expected one dtype")
        self._bucket = Bucket(learned)
        self.grad = self._bucket.flat
        self.data = get_xp(self.grad).concatenate([p.data.reshape(-1) for p in learned])
        self._views = views_like(self.data, [p.data for p in learned])
        for p, view in zip(learned, self._views, strict=True):
            p.data = view

    def gradient(self, x, y, loss) -> float:
        """Compute the mean gradient over the rows of `x` into `grad`; return their mean loss. No rows: zeros."""
        for p, view in zip(self._bucket.params, self._views, strict=True):
            if p.frozen or p.data is not view:
                what = "was frozen" if p.frozen else "was given other data"
                raise ValueError(f"parameter server: {p.name!r} {what} after the server was made; change it before")
        self._bucket.clear()
        value = 0.0
        if len(x):
            logits, saved = self.model.forward(x)
            value, dy = loss(logits, y, len(x))
            self.model.backward(dy, saved)
        self._bucket.flush()
        return float(value)

    def flops(self, shape) -> float:
        return self.model.flops(shape) + self.model.backward_flops(shape) if shape[0] else 0

    def load(self, values) -> None:
        """Overwrite the learned parameters with a flat array."""
        self.data[...] = get_xp(self.data).asarray(values)

    def named(self, values) -> dict[str, np.ndarray]:
        """Return copies of all parameters by name; of the learned ones those in the flat array `values`."""
        learned, found = iter(views_like(values, self._views)), {}
        for p in self.model.params:
            found[p.name] = (to_numpy(p.data) if p.frozen else next(learned)).copy()
        return found


class ParameterServer:
    r"""Training in which a server holds the parameters, and workers push gradients and pull parameters.

    rank 0: the server; rank 1 .. p - 1: workers, each with a copy of the model and a part of every batch.

    Parameters
    ----------
    model : Sequential
        A worker's may be on a GPU, with its data, while the server keeps its own on the CPU. One with running
        statistics (`BatchNorm`), which no gradient changes, is refused.
    rule : Rule
        Such as `SGD()` or `Momentum(0.9)`; its velocities are kept on the server.
    lr : float or callable
        Of an update, or a schedule: a function of the number of the update (from 0).
    policy : ASP, optional
        `bsp()` by default.
    rate : callable, optional
        Factor on the learning rate by staleness, such as `inverse`.
    pace : callable, optional
        `pace(worker, step) -> seconds` that the step takes longer: a straggler. Virtual on simulated ranks, slept on
        real ones. `Speeds` has laws to choose from.
    every : int
        Number of updates between two copies of the parameters, for the curve; 0 for none.

    Notes
    -----
    Messages per gradient, with n bytes of parameters: an array of n bytes and its announcement from the worker, and an
    array of n bytes back. A worker's gradient is the mean over its rows; an update of several weighs them by their
    rows, so that BSP equals serial SGD on the whole batch however uneven the parts are. (Production servers are
    several, with a share of the parameters each, so that no single network card carries all of this.)

    Where workers can be lost (`SimWorld(failures=...)`) training survives it: a lost one is treated as if it had left,
    so no worker waits for it, and the rows it would have trained on are left out. The loss of the server ends the run.

    References
    ----------
    M. Li et al. (2014), Scaling distributed machine learning with the parameter server, OSDI, section 3.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        rule: Rule,
        lr: Any,
        policy: ASP | None = None,
        *,
        rate: Callable[..., Any] = constant,
        pace: Callable[..., Any] | None = None,
        every: int = 0,
    ):
        if comm.size < 2:
            raise ValueError("ParameterServer: runs on one rank, expected a server and one worker or more")
        check_rule("ParameterServer", rule)
        self.comm, self.clock, self.loss, self.pace = comm, comm.clock, checked(loss), pace
        policy = BSP() if policy is None else policy
        check_policy("ParameterServer", policy)
        if not callable(rate):
            raise TypeError(f"ParameterServer: rate is {rate!r}, expected a function of staleness and step")
        check_number("ParameterServer", whole=True, least=0, every=every)
        self.flat = FlatModel(model)
        self._trained = False
        values = to_numpy(self.flat.data)  # a worker's model may be on a GPU; messages are not
        comm.broadcast(values)
        self.flat.load(values)
        for p in model.params:
            if p.frozen:
                held = to_numpy(p.data)
                comm.broadcast(held)
                p.data[...] = get_xp(p.data).asarray(held)
        self.is_server, self.size, self.rank = comm.rank == 0, comm.size - 1, max(0, comm.rank - 1)
        lr = as_schedule(lr, "ParameterServer")
        if self.is_server:
            self._server = Server(comm, values.copy(), rule, lr, policy, rate, every)
        else:
            self._version, self._steps, self._go = 0, 0, True
            self._reply = make_reply(values.size, values.dtype)

    def train(
        self, dataset: Dataset, *, batch_size: int, steps: int | None = None, seconds: float = math.inf, seed: int = 0
    ) -> Run | None:
        """Train; return the run on rank 0, and None elsewhere. Every rank calls it, once.

        Parameters
        ----------
        batch_size : int
            Samples of a global batch, of which each worker takes its part: an update of BSP uses all of them, as do n
            updates of ASP.
        steps : int, optional
            Gradients that each worker computes, on average: faster ones compute more under ASP.
        seconds : float, optional
            Begin no step later than that [s].
        """
        if steps is None and seconds == math.inf:
            raise ValueError("ParameterServer.train: give steps, seconds, or both; else training would never end")
        check_positive("ParameterServer.train", steps=1 if steps is None else steps)
        if self._trained:
            raise ValueError("ParameterServer.train: this one has trained, and workers end at different versions")
        self._trained = True
        try:
            if not self.is_server:
                mine = {"rank": self.rank, "size": self.size, "seed": seed}
                self._work(Batches(dataset.x_train, dataset.y_train, batch_size, **mine))
                return None
            self._server.serve(math.inf if steps is None else steps * self.size, seconds)
        except CutOffError:  # the others declared this rank lost
            return None
        if self._server.lost == self.size:  # it ended, but not because the run was over
            done = f"after {self._server.policy_state.version} updates"
            raise CommError(f"ParameterServer: all {self.size} workers are lost, {done}; none is left to train")
        return make_run(self._server, self.flat, dataset, self.loss)

    def _work(self, batches: Batches) -> None:
        """Push a gradient, wait for new parameters, and so on, until the server has no further step."""
        batches_forever = chain.from_iterable(map(batches.epoch, count()))
        while self._go:
            self.step(next(batches_forever))
        self.comm.send_obj(Leave(self.rank), 0)

    def step(self, batch: Batch) -> None:
        """Push the gradient of this worker's rows, and wait until it may continue."""
        self._exchange(len(batch.x), self._gradient(batch))

    def _gradient(self, batch) -> float:
        """Compute the gradient of this worker's rows; return their loss."""
        with self.clock.span("gradient", flops=self.flat.flops(batch.x.shape)):
            loss = self.flat.gradient(batch.x, batch.y, self.loss)
            if self.pace is not None:
                self.clock.sleep(self.pace(self.rank, self._steps))
        return loss

    def _exchange(self, rows: int, loss: float) -> None:
        """Push `flat.grad`, a mean over `rows`, and load the parameters of the reply."""
        comm, reply = self.comm, self._reply
        with self.clock.span("exchange", lane="comm"):
            # the receive is posted before the server is asked: it never waits for a worker
            received = comm.irecv(reply.view(np.uint8), 0)
            sent = comm.isend(to_numpy(self.flat.grad), 0)
            comm.send_obj(Push(self.rank, self._steps, self._version, rows, loss), 0)
            sent.wait()
            received.wait()
        self.flat.load(reply["params"][0])
        self._steps += 1
        self._version, self._go = int(reply["version"][0]), bool(reply["go"][0])


# -- the record of a run -----------------------------------------------------------------------------------------------


GRADIENT = np.dtype(
    [("worker", "i4"), ("step", "i4"), ("used", "i8"), ("version", "i8"), ("staleness", "i8"), ("rows", "i4"),
     ("arrived", "f8"), ("time", "f8"), ("loss", "f8"), ("factor", "f8")]
)  # fmt: skip
"""One gradient: who computed it, in which of its steps, at which version; which version it made (0: dropped); its
staleness; samples; when it arrived and when it was applied or dropped [s]; its loss; its factor on the learning rate.
"""

PROBE = 1000
"""Training samples on which the curve's loss is measured."""


@dataclass
class Run:
    """The record of one run of a parameter server.

    Attributes
    ----------
    gradients : (n,) record array of `GRADIENT`
        In the order in which they were applied or dropped.
    seconds : float
        From the start to the last update.
    curve : (k,) record array: version, time [s], loss on fixed training samples, metric on the test set
        At snapshots of the parameters; measured after the training, which it does not slow down. The metric's column
        is named after it, such as "test_accuracy".
    """

    policy: str
    workers: int
    gradients: np.ndarray
    seconds: float
    params: dict[str, np.ndarray]
    curve: np.ndarray
    diverged: bool

    @property
    def applied(self) -> np.ndarray:
        return self.gradients[self.gradients["version"] > 0]

    @property
    def updates(self) -> int:
        return int(self.gradients["version"].max(initial=0))

    @property
    def dropped(self) -> int:
        return int((self.gradients["version"] == 0).sum())

    @property
    def staleness(self) -> np.ndarray:
        return self.applied["staleness"]

    def histogram(self) -> np.ndarray:
        """Return how many applied gradients had staleness 0, 1, 2, ..."""
        return np.bincount(self.staleness)

    @property
    def times(self) -> np.ndarray:
        """Time of every update [s]."""
        return self.applied["time"][self._first()]

    @property
    def losses(self) -> np.ndarray:
        """Training loss of every update: the mean over the samples that it used, at the parameters they were given."""
        applied, first = self.applied, self._first()
        if not len(applied):
            return np.zeros(0)
        weight = np.add.reduceat(applied["rows"].astype(float), first)
        total = np.add.reduceat(applied["rows"] * applied["loss"], first)
        return np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0)

    def _first(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self.applied["version"], prepend=0))

    @property
    def throughput(self) -> float:
        return self.updates / self.seconds if self.seconds > 0 else np.inf

    def __repr__(self) -> str:
        mean = f"{self.staleness.mean():.3g}" if len(self.staleness) else "none"
        return (
            f"Run({self.policy}, {self.workers} workers: {self.updates} updates in {self.seconds:.3g} s, "
            f"mean staleness {mean}, {self.dropped} dropped{', diverged' if self.diverged else ''})"
        )


def make_run(server: Server, flat, dataset, loss) -> Run:
    """Put a run's record together."""
    gradients, state, began = np.array(server.log, GRADIENT), server.policy_state, server.began
    for name in ("arrived", "time"):
        gradients[name] -= began
    points, metric = [], make_metric(None, loss)
    model, y = flat.model.eval(), dataset.y_train[:PROBE]
    x, x_test = *rows_of(dataset.x_train, [slice(PROBE)]), *rows_of(dataset.x_test, [slice(None)])
    params = flat.named(server.params)
    for version, time, values in server.snapshots if len(server.snapshots) > 1 else ():
        flat.load(values)
        with np.errstate(all="ignore"):  # parameters of a run that diverged
            value, _ = loss(model.forward(x)[0], y, len(x))
            score = metric.value(metric.counted(model.forward(x_test)[0], dataset.y_test))
        points.append((version, time - began, value, score))
    return Run(
        policy=str(state.policy),
        workers=len(state.clocks),
        gradients=gradients,
        seconds=float(gradients["time"].max(initial=0.0)),
        params=params,
        curve=np.array(points, [("version", "i8"), ("time", "f8"), ("loss", "f8"), (f"test_{metric.name}", "f8")]),
        diverged=server.diverged,
    )


# -- DiLoCo with a quorum ----------------------------------------------------------------------------------------------
# learner:   H steps of its own --> start minus end, tokens --------> syncer
# syncer:    once `quorum` of them are in: mean by tokens --> one step of the outer rule --> to those it came from


@dataclass(frozen=True)
class Quorum(BSP):
    """An update once `least` workers have pushed, who wait for it; a late result counts in the next one."""

    least: int

    def __post_init__(self):
        check_positive("QuorumDiLoCo", quorum=self.least)

    @property
    def name(self) -> str:
        return f"quorum({self.least})"

    def quorum(self, workers):
        return min(self.least, workers)


class QuorumDiLoCo(ParameterServer):
    r"""Learners train apart for H steps; a syncer merges their results as soon as a quorum of them is in.

    .. math:: \Delta = \sum_{q \in Q} \frac{m_q}{m} (w^{(q)}_{start} - w_q), \qquad
              v \leftarrow \mu v + \Delta, \qquad w \leftarrow w - \alpha (\Delta + \mu v)

    Q are the learners whose results have arrived, :math:`m_q` the samples behind each. Those outside Q continue from
    their own start; their results count in a later merge. With a quorum of all learners this is DiLoCo. Rank 0 is the
    syncer, the others are learners; lost learners are not waited for.

    Parameters
    ----------
    comm, model, loss
        As for `ParameterServer`.
    optimizer : Optimizer
        Of a learner's own steps.
    every : int
        H.
    quorum : int
        Results that make a merge; fewer when fewer learners are left.
    outer_lr : float
        :math:`\alpha`; :math:`\mu` is 0.9.
    pace : callable, optional
        `pace(learner, merge) -> seconds` that each step takes longer.

    Notes
    -----
    `train(dataset, batch_size=..., steps=...)` counts merges per learner as steps. Messages per result are those of
    one gradient of `ParameterServer`. The original also waits some time for more results than the quorum.

    References
    ----------
    A. Douillard et al. (2023), DiLoCo: distributed low-communication training of language models, arXiv:2311.08105.
    Decoupled DiLoCo (2026), arXiv:2604.21428: independent learners, a minimum quorum, merges weighted by tokens.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        every: int = 50,
        quorum: int = 1,
        outer_lr: float = 0.7,
        pace: Callable[..., Any] | None = None,
    ):
        check_positive("QuorumDiLoCo", every=every)
        share = min(1.0, quorum / max(1, comm.size - 1))  # or the outer momentum would count absent learners
        super().__init__(comm, model, loss, Nesterov(0.9), share * outer_lr, Quorum(quorum), pace=pace, every=1)
        self.optimizer, self.inner_steps = optimizer, every
        self._begin()

    def _begin(self) -> None:
        self._start, self._apart, self._rows, self._loss_sum = self.flat.data.copy(), 0, 0, 0.0

    def step(self, batch: Batch) -> None:
        """Take a step; after H of them push where they have led, and wait for a merge."""
        self._loss_sum += len(batch.x) * self._gradient(batch)
        update(self.optimizer, self.clock)
        self._apart += 1
        self._rows += len(batch.x)
        if self._apart == self.inner_steps:
            np.subtract(self._start, self.flat.data, out=self.flat.grad)
            self._exchange(self._rows, self._loss_sum / max(1, self._rows))
            self._begin()
