"""Steps of real ranks behind a limited link, taken apart into computing, moving bytes and latencies."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from ...comm import ring_all_reduce
from ...comm.waiting import count_cores
from ...nn import MLP, SoftmaxCrossEntropy
from ...sim import Roofline
from .phases import PhaseDiagram, PhasePoint, phase_diagram, simulate_points

FEW = 4
"""Small all-reduces in a row: how long one takes depends on when the ranks look."""


def timed_steps(comm, p: int, widths, batch: int, repeats: int):
    """Train some steps on the first p ranks; return the seconds of computing and of two all-reduces, step by step.

    Returns
    -------
    seconds : (repeats, 3) array or None
        Of forward and backward, of the ring all-reduce of all gradients, of one of a number for each rank. None on
        ranks that have nothing to do.
    """
    part = comm.split(0 if comm.rank < p else None)
    if part is None:
        return None
    model, loss, rng = MLP(widths), SoftmaxCrossEntropy(), np.random.default_rng(comm.rank)
    mine = batch // p
    x = rng.normal(size=(mine, widths[0])).astype(np.float32)
    y = rng.integers(widths[-1], size=mine)
    gradients = np.zeros(sum(param.size for param in model.params), np.float32)
    few, seconds, now = np.zeros(p, np.float32), [], comm.clock.now
    with threadpool_limits(1):
        for _ in range(repeats + 1):
            part.barrier()
            began = now()
            logits, saved = model.forward(x)
            model.backward(loss(logits, y, batch)[1], saved)
            computed = now()
            part.barrier()
            ready = now()
            ring_all_reduce(part, gradients)
            reduced = now()
            part.barrier()
            again = now()
            for _ in range(FEW):
                ring_all_reduce(part, few)
            seconds.append((computed - began, reduced - ready, (now() - again) / FEW))
    return np.array(seconds[1:])  # the first makes connections


def measure_points(world, widths, batch: int, *, ranks=(2, 4), limits=(400e6, 100e6, 25e6), repeats: int = 4):
    """Measure data-parallel steps of a small network behind links of several bandwidths.

    Parameters
    ----------
    world : LimitedWorld
    widths : tuple of int
        Of the network's layers.
    batch : int
        Samples of all ranks together.
    ranks : sequence of int
    limits : sequence of float
        Bandwidths [bit/s].
    repeats : int
        Steps that are timed; the median counts, for latencies the mean.

    Returns
    -------
    alone : float
        Seconds of a step of one rank.
    points : list of PhasePoint
        Latency is an all-reduce of one number for each rank, bandwidth what the one of all gradients takes longer.
    """

    def median(p):
        found = [seconds for seconds in world.run(timed_steps, p, widths, batch, repeats) if seconds is not None]
        slowest = np.max(found, axis=0)
        return *np.median(slowest[:, :2], axis=0), slowest[:, 2].mean()  # a rank looks for messages now and then

    points = []
    for limit in limits:
        world.limit(limit)
        for p in ranks:
            computing, full, late = median(p)
            points.append(PhasePoint(p, limit / 8, (computing, max(full - late, 0.0), late), "measured"))
    world.limit(None)
    return float(median(1)[0]), points


def machine_diagram(formula, widths, batch: int, alone: float, points, simulated=(8, 32)) -> PhaseDiagram:
    """Draw up the map of this machine from two measured numbers, with the measured points and simulated ones.

    Parameters
    ----------
    formula : callable
        `formula(ranks, bandwidth, seconds, nbytes, alpha)` returns the three parts of a step.
    widths, batch
        As for `measure_points`.
    alone : float
        Seconds of a step of one rank.
    points : list of PhasePoint
        The measured ones; the latency of a message is their mean.
    simulated : sequence of int
        Ranks to simulate, at the lowest and at the highest bandwidth of `points`.

    Returns
    -------
    diagram : PhaseDiagram
        Ranks that share a core take turns.
    """
    cores, model = count_cores(), MLP(widths)
    alpha = float(np.mean([point.parts[2] / (2 * point.ranks - 2) for point in points]))
    work = model.flops((batch, widths[0])) + model.backward_flops((batch, widths[0]))
    ends = min(point.bandwidth for point in points), max(point.bandwidth for point in points)
    more = []
    for p in simulated:
        card = Roofline(work / alone * min(1, cores / p))
        more += simulate_points(model, (p,), ends, alpha=alpha, batch=batch, sample=(widths[0],), compute=card)

    def parts(p, beta):
        return formula(p, beta, alone * max(1, p / cores), sum(param.nbytes for param in model.params), alpha)

    return phase_diagram(parts, ranks=(1, 64), bandwidths=(1e5, 1e9), points=[*points, *more])
