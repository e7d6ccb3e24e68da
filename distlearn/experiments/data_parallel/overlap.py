"""How much of the communication of a training step is exposed: one step of a given backward, on simulated ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from ...comm import Network
from ...nn import MLP
from ...parallel import make_buckets
from ...sim import Roofline, SimWorld
from ...trace import Trace

SLOW = Network(alpha=50e-6, beta=1e9)
"""50 microseconds to a message, and 1 GB/s."""

WIDTHS = (64, *(256,) * 10, 10)


@dataclass
class Overlap:
    """One step: forward, backward and the all-reduces of the gradients.

    Attributes
    ----------
    trace : Trace
    seconds : float
        From the beginning to the end of the last rank's step.
    communicating, exposed : float
        Time in which rank 0 communicates, and the part of it in which it computes nothing [s].
    gradients : list of list of array
        Of every rank.
    """

    trace: Trace
    seconds: float
    communicating: float
    exposed: float
    gradients: list


def backward_step(
    backward, cap_bytes: float = 2**19, *, ranks=4, widths=WIDTHS, samples=128, frozen=(), network=SLOW, peak=40e9
) -> Overlap:
    """Run forward and a given backward on simulated ranks.

    Parameters
    ----------
    backward : callable
        `backward(comm, model, dlogits, saved, buckets)`; afterwards the buckets hold sums over ranks.
    cap_bytes : float
        Largest size of a bucket; infinity for one bucket.
    ranks : int
    widths : tuple of int
        Of the network's layers.
    samples : int
        Of each rank.
    frozen : tuple of int
        Which of the model's parameters are frozen: they are in no bucket.
    network : Network
    peak : float
        How fast a rank computes [flop/s].

    Returns
    -------
    overlap : Overlap
    """

    def on_rank(comm):
        model, rng = MLP(widths, dtype="float64" if samples < 100 else "float32"), np.random.default_rng(comm.rank)
        params = [p for i, p in enumerate(model.params) if i not in frozen]
        buckets = make_buckets(params, int(min(cap_bytes, 1 << 40)))
        dtype = model.params[0].data.dtype
        logits, saved = model.forward(rng.normal(size=(samples, widths[0])).astype(dtype), clock=comm.clock)
        backward(comm, model, rng.normal(size=logits.shape).astype(dtype), saved, buckets)
        return [p.grad.copy() for p in model.params]

    world = SimWorld(ranks, network, Roofline(peak))
    with threadpool_limits(1):  # small products are slower on several cores
        gradients = world.run(on_rank)
    trace = world.trace
    return Overlap(trace, world.makespan, trace.total(rank=0, lane="comm"), trace.exposed(), gradients)


def after_backward(comm, model, dlogits, saved, buckets) -> None:
    """Communicate when backward has ended: the naive way."""
    model.backward(dlogits, saved, clock=comm.clock)
    for bucket in buckets:
        comm.all_reduce(bucket.flat)


def library_backward(comm, model, dlogits, saved, buckets) -> None:
    """Communicate each bucket as soon as it is full."""
    home = {id(p): b for b in buckets for p in b.params}
    missing, works = {id(b): len(b.params) for b in buckets}, []

    def ready(param):
        bucket = home.get(id(param))
        if bucket is not None:
            missing[id(bucket)] -= 1
            if not missing[id(bucket)]:
                works.append(comm.iall_reduce(bucket.flat))

    model.backward(dlogits, saved, on_grad=ready, clock=comm.clock)
    for work in works:
        work.wait()
