"""Stages: how a model is cut, who holds which parameters, and the messages between neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from ...bounds import check_positive
from ...nn import Sequential
from ...nn.container import gives_gradient
from .schedule import Action, Schedule

# -- stages ------------------------------------------------------------------------------------------------------------
# Cut a model into stages of consecutive layers, so that the slowest stage is as fast as it can be.


def balance(costs: Sequence[float], n_stages: int, *, together: int = 1) -> list[slice]:
    """Cut layers into stages of consecutive layers; no other cut has a cheaper slowest stage.

    A pipeline is as slow as its slowest stage. Among equally good cuts, it takes the one whose stages differ least (sum
    of squares).

    Parameters
    ----------
    costs : sequence of float
        Of each layer, 0 or more; only their ratios matter.
    together : int
        Number of first layers that must stay on one stage.

    Notes
    -----
    Dynamic programming over (number of stages, layers before the cut), O(n_stages n_layers^2): exact.

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, section 3.1.

    Examples
    --------
    >>> balance([1, 1, 1, 1, 4], 2)
    [slice(0, 4, None), slice(4, 5, None)]
    """
    costs = [float(c) for c in costs]
    most = len(costs) - together + 1
    check_positive("balance", n_stages=n_stages)
    if n_stages > most:
        which = f", of which the first {together} stay together" if together > 1 else ""
        raise ValueError(f"balance: {n_stages} stages of {len(costs)} layers{which}, expected 1 to {most} stages")
    if not all(0 <= c < float("inf") for c in costs):
        raise ValueError(f"balance: costs are {costs}, expected 0 or more for each layer")
    costs = [sum(costs[:together]), *costs[together:]]
    before = [0.0, *accumulate(costs)]
    slowest, _ = _best(before, n_stages, lambda total, stage: max(total, stage))
    room = slowest * (1 + 1e-12)  # sums of the same costs in another order may differ in the last bit
    _, cuts = _best(before, n_stages, lambda total, stage: total + stage * stage if stage <= room else float("inf"))
    return [slice(a, b) for a, b in pairwise([0, *(c + together - 1 for c in cuts[1:])])]


def _best(before: list[float], n_stages: int, join) -> tuple[float, list[int]]:
    """Find the cuts that minimize `join(value of the stages before, cost of a stage)`."""
    n = len(before) - 1
    worth = [[0.0] + [float("inf")] * n]
    origin = []
    for k in range(1, n_stages + 1):
        row, at = [float("inf")] * (n + 1), [0] * (n + 1)
        for end in range(k, n + 1):
            row[end], at[end] = min(
                (join(worth[-1][start], before[end] - before[start]), start) for start in range(k - 1, end)
            )
        worth.append(row)
        origin.append(at)
    cuts = [n]
    for at in reversed(origin):
        cuts.append(at[cuts[-1]])
    return worth[-1][n], cuts[::-1]


def layer_costs(model: Sequential, shape: tuple[int, ...] | None = None) -> list[int]:
    """Return the operations of each layer, forward and backward, for an input of a shape, the batch included.

    Without a shape, return the number of each layer's parameters.

    Examples
    --------
    >>> from distlearn.nn import MLP
    >>> layer_costs(MLP((784, 100, 10)), (1, 784))
    [313600, 300, 6000]
    """
    if shape is None:
        return [sum(p.size for p in layer.params) for layer in model.layers]
    return [layer.flops(s) + layer.backward_flops(s) for layer, s in model.parts(tuple(shape))]


def inseparable(model: Sequential) -> int:
    """Return how many layers must be on the first stage: up to the last without a gradient of its input."""
    return max((i + 1 for i, layer in enumerate(model.layers) if not gives_gradient(layer)), default=1)


def as_stages(stages, model: Sequential, n_stages: int, shape=None) -> list[slice]:
    """Convert a choice of stages to slices of a model's layers; balanced by default."""
    if not isinstance(model, Sequential):
        raise TypeError(f"stages: expected a Sequential, whose layers can be cut apart, got a {type(model).__name__}")
    n = len(model.layers)
    stages = layer_costs(model, shape) if stages is None else stages
    if isinstance(stages, str) or not hasattr(stages, "__len__") or not len(stages):
        raise ValueError(f"stages: {stages!r}, expected a list: slices of the layers, or a cost for each layer")
    stages = list(stages)
    if not isinstance(stages[0], slice):
        if len(stages) != n:
            raise ValueError(f"stages: {len(stages)} costs for the {n} layers of the model, expected one for each")
        return balance(stages, n_stages, together=inseparable(model))
    if len(stages) != n_stages:
        raise ValueError(f"stages: {len(stages)} slices, but the schedule has {n_stages} stages")
    covered = [i for s in stages for i in range(*s.indices(n))]
    if covered != list(range(n)) or any(not range(*s.indices(n)) for s in stages):
        raise ValueError(f"stages: {stages}, expected slices that hold the layers 0 to {n - 1} once, in order")
    return [slice(*s.indices(n)[:2]) for s in stages]


# -- stage params ------------------------------------------------------------------------------------------------------
# Which ranks hold which parameter of a model that is cut into stages, and the sums for those that stages share.


class StageParams:
    """The serial model's parameters, and the ranks that hold them."""

    def __init__(self, comm, model, stages, ranks):
        self.comm = comm
        users = {id(p): [] for p in model.params}
        for s, stage in enumerate(stages):
            for p in stage.params:
                users[id(p)].append(s)
        holders = {key: tuple(sorted({ranks[s] for s in used})) for key, used in users.items()}
        self.ranks_of = {p.name: holders[id(p)] for p in model.params}  # several where stages share it
        self.params = [p for p in model.params if comm.rank in holders[id(p)]]
        self.tied = [p for p in self.params if len(users[id(p)]) > 1]
        self.shared = {}  # ranks -> (their communicator, the parameters that they share)
        for group in sorted({ranks for ranks in self.ranks_of.values() if len(ranks) > 1}):
            sharing = comm.split(0 if comm.rank in group else None)  # every rank must call
            if sharing is not None:
                self.shared[group] = sharing, [p for p in self.tied if holders[id(p)] == group]

    def sum_tied(self) -> None:
        """Add up the gradients of parameters that several ranks share: one all-reduce each, among those ranks."""
        for sharing, params in self.shared.values():
            for p in params:
                if not p.frozen:
                    sharing.all_reduce(p.grad)


# -- stage comm --------------------------------------------------------------------------------------------------------
# Messages between the stages of a pipeline: activations forward, gradients backward, without deadlocks.
#
# Sends never block: `isend` starts when an array is ready, and is waited for once the array must have been received.
# Receives are posted one action ahead, in the schedule's order. So a rank waits only for data that it needs, and any
# schedule that passes `check_schedule` completes even if every send is synchronous.


class StageComm:
    """The messages of one step on one rank; each is named by the action that consumes it."""

    def __init__(self, comm, schedule: Schedule, shape_of, xp, position=None):
        self.comm, self.schedule, self.shape_of, self.xp = comm, schedule, shape_of, xp
        self.position = schedule.place.__getitem__ if position is None else position
        self._kept: dict[Action, object] = {}  # arrays that stay on this rank
        self._receives: dict[Action, object] = {}  # under way
        self._sends: dict[int, list] = {}  # peer -> [(consumer, work)]

    def _tag(self, consumer: Action) -> int:
        """A unique tag for every message: a schedule may send micro-batches in any order."""
        return 2 * (consumer.microbatch * self.schedule.n_stages + consumer.stage) + (consumer.kind != "F") + 1

    def post_recv(self, consumer: Action) -> None:
        """Start to receive the input of an action, if another rank sends it and that has not been done."""
        producer = None if consumer in self._receives else self.schedule.producer(consumer)
        source = self.comm.rank if producer is None else self.schedule.rank_of(producer.stage)
        if source != self.comm.rank:
            shape, dtype = self.shape_of(consumer)
            self._receives[consumer] = self.comm.irecv(self.xp.empty(shape, dtype), source, self._tag(consumer))

    def recv(self, consumer: Action):
        """Return the array that an action consumes."""
        if consumer in self._kept:
            return self._kept.pop(consumer)
        self.post_recv(consumer)
        x = self._receives.pop(consumer).wait()
        # The peer ran the producer after everything before it in its order, so it has received that: these
        # sends are complete, and waiting for them returns at once.
        producer = self.schedule.producer(consumer)
        peer, reached = self.schedule.rank_of(producer.stage), self.position(producer)
        under_way = []
        for sent_to, work in self._sends.get(peer, ()):
            if self.position(sent_to) <= reached:
                work.wait()
            else:
                under_way.append((sent_to, work))
        self._sends[peer] = under_way
        return x

    def keep(self, consumer: Action, x) -> None:
        self._kept[consumer] = x

    def send(self, consumer: Action, x) -> None:
        """Send an array to the rank of the action that consumes it."""
        dest = self.schedule.rank_of(consumer.stage)
        if dest == self.comm.rank:
            self._kept[consumer] = x
            return
        work = self.comm.isend(self.xp.ascontiguousarray(x), dest, self._tag(consumer))
        self._sends.setdefault(dest, []).append((consumer, work))

    def finish(self) -> None:
        for sends in self._sends.values():
            for _, work in sends:
                work.wait()
        self._sends.clear()


def agree_on_boundaries(comm, stages, rank_of: list[int], x) -> list[Any]:
    """Find shape (of a sample) and dtype of each stage's input and of the last one's output; every rank must call."""
    # A chain of small messages from the first stage to the last, and a broadcast.
    found = [(tuple(x.shape[1:]), x.dtype)]
    for s, stage in stages.items():
        if s and rank_of[s - 1] != comm.rank:
            found = comm.recv_obj(rank_of[s - 1])
        shape, dtype = found[-1]
        learned = [p.data.dtype for p in stage.params]
        found = [*found, (tuple(stage.output_shape((1, *shape))[1:]), learned[-1] if learned else dtype)]
        if s + 1 < len(rank_of) and rank_of[s + 1] != comm.rank:
            comm.send_obj(found, rank_of[s + 1])
    return comm.broadcast_obj(found, rank_of[-1])
