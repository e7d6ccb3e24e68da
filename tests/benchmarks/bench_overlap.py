"""Overlap: how much communication is left exposed when it starts while layers run: all-reduces, and ZeRO 3's gathers.

A small CNN with dense layers behind it, 6.4 MB of parameters, two ranks. Backward reaches the dense layers first, which
hold nearly all parameters, and then has the convolutions to compute, which take nearly all time: the shape of AlexNet,
in which overlap pays most. Once on the simulator, and once on engines in two network namespaces (hosts with addresses
of their own on this machine) whose link is slowed down to 400 Mb/s: real messages over TCP.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np

from distlearn import nn
from distlearn.comm import Network
from distlearn.data import Batch
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import DataParallel, ZeRO
from distlearn.sim import Roofline, SimWorld

from . import load_note, quick, record

PART = 1024
"""Samples of a rank: so many that backward is long enough to hide the messages behind."""
STEPS = 3
GOAL = "ratio < 0.5"
WAYS = {"data parallelism": DataParallel, "ZeRO 3": partial(ZeRO, stage=3)}


def small_alexnet():
    """Two convolutions on 28 x 28 images, then three dense layers of 512 and one of 10."""
    conv = [nn.Conv2d(1, 16, 3, 0, padding="same", input_gradient=False), nn.ReLU(), nn.MaxPool(2)]
    conv += [nn.Conv2d(16, 32, 3, 1, padding="same"), nn.ReLU(), nn.MaxPool(2), nn.Flatten()]
    dense = []
    for i, d_in in enumerate((1568, 512, 512)):
        dense += [nn.Linear(d_in, 512, 2 + i), nn.ReLU()]
    return nn.Sequential(nn.Reshape(28, 28, 1), *conv, *dense, nn.Linear(512, 10, 5, gain=1.0))


def steps(comm, way, overlap: bool, n: int = STEPS) -> float:
    """Train some steps; return when the first one that counts began."""
    model = small_alexnet()
    optimizer = Optimizer(model.params, SGD(), 0.01)
    strategy = way(comm, model, nn.SoftmaxCrossEntropy(), optimizer, overlap=overlap)
    rng = np.random.default_rng(comm.rank)
    batch = Batch(rng.random((PART, 784), np.float32), rng.integers(0, 10, PART), PART * comm.size)
    strategy.step(batch)  # buffers and connections are made here
    comm.barrier()
    began = comm.clock.now()
    for _ in range(n):
        strategy.step(batch)
    return began


def exposed(world, way, overlap: bool) -> float:
    """Seconds of a step in which a rank communicated and computed nothing, the mean over ranks and steps."""
    began = max(world.run(steps, way, overlap))
    trace = world.trace.window(began)  # of this run
    return sum(trace.exposed(rank) for rank in range(world.size)) / world.size / STEPS


def simulated(name) -> dict:
    """Two ranks of 20 Gflop/s on a link of 400 Mb/s, in virtual time: the same in every run."""
    with_overlap, without = (
        exposed(SimWorld(2, Network(50e-6, 50e6), Roofline(20e9)), WAYS[name], o) for o in (True, False)
    )
    what = f"exposed communication of {name} with overlap against without, simulated, 400 Mb/s"
    return record(what, "ms", with_overlap * 1e3, without * 1e3, goal=GOAL)


def measured(name) -> dict:
    """Two engines on hosts of their own, and a link slowed down to 400 Mb/s."""
    from distlearn.world import EngineWorld

    from ..world.netns import Net, why_not

    what = f"exposed communication of {name} with overlap against without, 2 engines on 2 hosts, TCP at 400 Mb/s"
    reason = why_not()
    if reason:
        return record(what, "ms", None, goal=GOAL, note=f"not measured: {reason}")
    note, pairs = load_note(), []
    with Net(2) as net, EngineWorld(2, hosts=net.for_engines(), threads=1, progress=False, timeout=120) as world:
        for host in net.hosts:
            net.shape(host, "400mbit")
        for i in range(3 if quick() else 9):
            order = (True, False) if i % 2 else (False, True)
            found = {overlap: exposed(world, WAYS[name], overlap) for overlap in order}
            pairs.append((found[True], found[False]))
    ratio = median(a / b for a, b in pairs)
    ours, peer = (median(side) * 1e3 for side in zip(*pairs, strict=True))
    return record(what, "ms", ours, peer, ratio=ratio, goal=GOAL, note=note)


def records():
    """Both ways, simulated and real."""
    return [measure(name) for name in WAYS for measure in (simulated, measured)]
