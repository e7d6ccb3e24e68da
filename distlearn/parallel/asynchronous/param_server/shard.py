"""One server's share of the parameters: it keeps gradients until their update, applies the rule, and answers pulls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....optim.rule import apply
from .messages import Order, Reply


class Snapshot(NamedTuple):
    """A share of the parameters at some version."""

    version: int
    time: float
    share: np.ndarray


class Shard:
    """A share of the parameters, with the optimizer's memory of it: velocities live here.

    Parameters
    ----------
    share : (n,) array
        Changed in place.
    rule : Rule
        One that looks at every element by itself: not LARS.
    lr : callable
        Learning rate of an update, from 0.
    every : int
        Keep a snapshot every so many updates; 0 for never.
    """

    def __init__(self, share, rule, lr, every: int = 0):
        if getattr(rule, "whole", False):
            name = type(rule).__name__
            raise ValueError(f"parameter server: {name} looks at whole parameters, but a server has only a share")
        self.share, self.rule, self.lr, self.every = share, rule, lr, every
        self.state = rule.init(share)
        self.snapshots: list[Snapshot] = []
        self.mirror = None  # a `Mirror` that is told of every update
        self._kept: dict[tuple[int, int], np.ndarray] = {}  # (worker, step) -> gradient
        self._spare: list[np.ndarray] = []
        self._reply: tuple | None = None

    def buffer(self) -> np.ndarray:
        """Return memory to receive a gradient into."""
        return self._spare.pop() if self._spare else np.empty_like(self.share)

    def obey(self, order: Order, gradient, clock) -> None:
        """Keep or drop a gradient, and make the update if there is one."""
        if order.taken:
            lost = gradient is None  # its worker, after it had reached the first server
            self._kept[order.arrived, order.step] = np.zeros_like(self.share) if lost else gradient
        elif gradient is not None:
            self._spare.append(gradient)
        if not order.merged:
            return
        total, used = self._mean(order.merged)
        flops = 2 * len(used) * self.share.size
        with clock.span("update", flops=flops, nbytes=(len(used) + 2) * self.share.nbytes):
            step = order.version - 1
            apply(self.rule, self.share, total, self.state, self.lr(step), step)
        self._spare += used
        if self.every and order.version % self.every == 0:
            self.snap(order.version, clock.now())
        if self.mirror is not None:
            self.mirror.keep(self, order)

    def _mean(self, merged):
        """Add weighted gradients up, in the order of workers whatever the order in which they came."""
        used = [self._kept.pop((worker, step)) for worker, step, _ in sorted(merged)]
        weights = [weight for *_, weight in sorted(merged)]
        total = used[0]
        if len(used) > 1 or weights[0] != 1.0:
            total *= total.dtype.type(weights[0])
        for gradient, weight in zip(used[1:], weights[1:], strict=True):
            gradient *= gradient.dtype.type(weight)
            total += gradient
        return total, used

    def snap(self, version: int, now: float) -> None:
        """Keep a snapshot."""
        if not self.snapshots or self.snapshots[-1].version != version:
            self.snapshots.append(Snapshot(version, now, self.share.copy()))

    def reply(self, version: int, go: bool, loss: float) -> np.ndarray:
        """Return the answer to a pull, as bytes; the same array for all who get the same answer."""
        key = (version, go, loss)
        if self._reply is None or self._reply[0] != key:
            self._reply = (key, Reply.of(self.share, version, go, loss).buffer)
        return self._reply[1]
