"""What the layers of a model cost: seconds of computing by a compute model, seconds of sending by a network."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

from ...comm.network.formulas import sent_bytes
from ...nn.container import Sequential, cost
from ...nn.layer import Layer, Param
from ..tensor import ColumnParallelLinear, Gather, StackParallel, TensorLayer, Traffic, parallelize


class RankSpec:
    """A rank without a world: enough of a communicator to shard a model for rank 0."""

    def __init__(self, size: int):
        self.rank, self.size, self.clock = 0, size, None


def first_shard(model: Sequential, tp: int) -> Sequential:
    """Return what rank 0 of tp has of a copy of a model; its part is the largest."""
    model = copy.deepcopy(model)
    return parallelize(model, RankSpec(tp)) if tp > 1 else model


class LayerTime(NamedTuple):
    """Time of one layer on one rank [s]."""

    params: list[Param]
    forward: float
    backward: float
    sending_forward: float = 0.0
    """Nothing overlaps with it."""
    sending_backward: float = 0.0
    hiding: float = 0.0
    """Seconds of `backward` that remain when the backward pass starts to send."""
    nbytes: float = 0.0
    """Sent by this rank, in both directions."""

    @property
    def exposed_backward(self) -> float:
        """Seconds of sending in the backward pass that computing does not hide."""
        return max(0.0, self.sending_backward - self.hiding)

    def plus(self, other: LayerTime) -> LayerTime:
        """Return both, one after another."""
        return LayerTime([*self.params, *other.params], *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


@dataclass(frozen=True)
class Rates:
    """What computing and sending cost.

    Parameters
    ----------
    compute : ComputeModel
    network : Network
    """

    compute: object
    network: object

    def span(self, flops: float, nbytes: float) -> float:
        """Seconds of a span."""
        return self.compute.seconds(flops, nbytes, 0.0)

    def collective(self, traffic: Traffic, ranks: list[int]) -> float:
        """Seconds of a collective or a message among ranks of the world."""
        if len(ranks) < 2:
            return 0.0
        if traffic.name == "send":
            return sum(self.route(traffic.nbytes, *ranks[:2]))
        return self.network.collective(traffic.name, traffic.nbytes, ranks)

    def route(self, nbytes: float, source: int, dest: int) -> tuple[float, float]:
        """Latency of a message between two ranks of the world, and how long it keeps the sender's card busy [s]."""
        return self.network.route(nbytes, source, dest)[:2]

    def layers(self, model: Sequential, shape: tuple[int, ...], ranks: list[int]) -> list[LayerTime]:
        """Compute the time of every layer of a model.

        Parameters
        ----------
        model : Sequential
            Serial, or what `parallelize` made of it.
        shape : tuple of int
            Of its input.
        ranks : list of int
            Of the world, among which its layers are sharded.
        """
        itemsize = next((p.data.dtype.itemsize for p in model.params), 4)
        return [self._layer(layer, s, itemsize, ranks) for layer, s in model.parts(shape)]

    def _layer(self, layer: Layer, shape, itemsize, ranks) -> LayerTime:
        """Time one layer, or the layers inside one that writes no span of its own."""
        if layer.spans_itself and not isinstance(layer, TensorLayer):
            inside = [self._layer(child, s, itemsize, ranks) for child, s in layer.parts(shape)]
            total = LayerTime([], 0.0, 0.0)
            for part in inside:
                total = total.plus(part)
            return total
        computing = [0.0, 0.0]
        if not isinstance(layer, Gather):
            computing = [self.span(*cost(layer, way, shape, itemsize)) for way in ("forward", "backward")]
        if not isinstance(layer, TensorLayer):
            return LayerTime(layer.params, *computing)
        there, back = layer.traffic(shape, itemsize)
        sending = [sum(self.collective(t, ranks) for t in way) for way in (there, back)]
        if isinstance(layer, StackParallel) and len(ranks) > 1:
            computing, sending = self._wavefront(layer, shape, computing, (there, back), ranks)
        hiding = computing[1] / 2 if isinstance(layer, ColumnParallelLinear) else 0.0  # the weights' gradient
        p = len(ranks)
        nbytes = sum(t.nbytes if t.name == "send" else sent_bytes(t.name, t.nbytes, p) for t in there + back)
        return LayerTime(layer.params, *computing, *sending, hiding, nbytes)

    def _wavefront(self, layer: StackParallel, shape, computing, traffic, ranks) -> tuple[list[float], list[float]]:
        """Stretch a stack's times: blocks go from rank to rank, no faster than the slower of computing and sending."""
        p, m = len(ranks), min(layer.n_blocks, shape[1])
        stretched, sending = [], []
        for work, way in zip(computing, traffic, strict=True):
            block = work / m
            latency, long = self.route(max((t.nbytes for t in way if t.name == "send"), default=0), *ranks[:2])
            others = sum(self.collective(t, ranks) for t in way if t.name != "send")
            whole = m * max(block, long) + (p - 1) * (block + latency + long)
            stretched.append((m + p - 1) * block)
            sending.append(max(0.0, whole - stretched[-1]) + others)
        return stretched, sending
