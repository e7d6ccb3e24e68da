"""A program of somebody else's that uses every package: `mypy --strict` accepts it, and it runs (test_types.py)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import distlearn as dl
from distlearn.backend import Array, get_xp


class Scale(dl.nn.Layer):
    """A layer of the program's own: y = g x."""

    def __init__(self, d: int) -> None:
        self.g = dl.nn.Param(np.ones(d), "g")
        self.params = [self.g]

    def forward(self, x: Array) -> tuple[Array, Array]:
        y: Array = x * self.g.data
        return y, x

    def backward(self, dy: Array, saved: Array) -> Array:
        self.g.add((dy * saved).sum(axis=0))
        dx: Array = dy * self.g.data
        return dx

    def flops(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape)


class Halved(dl.optim.Rule):
    """An optimizer of the program's own: half a step of gradient descent."""

    def update(self, data: Array, grad: Array, state: object, lr: float, step: int) -> None:
        data -= lr / 2 * grad


class Gossip(dl.parallel.Replicated):
    """A strategy of the program's own: a step each, then the mean with the previous rank."""

    def step(self, batch: dl.data.Batch) -> float:
        self.optimizer.zero_grad()
        output, saved = self.model.forward(batch.x)
        loss, gradient = self.loss(output, batch.y, batch.n)
        self.model.backward(gradient, saved)
        self.optimizer.step()
        for p in self.model.params:
            theirs = np.empty_like(p.data)
            rank, size = self.comm.rank, self.comm.size
            p.data[...] = (p.data + self.comm.send_recv(p.data, (rank + 1) % size, theirs, (rank - 1) % size)) / 2
        return float(self.comm.all_reduce(np.array([loss]))[0])

    def own_state(self) -> dict[str, Array]:
        return dl.parallel.named_arrays(self.model.params, self.optimizer)


def train(comm: dl.comm.Communicator, epochs: int, folder: Path | None = None) -> dl.train.History:
    data = dl.data.load("digits", dtype="float64").take(200)
    model = dl.nn.Sequential(
        dl.nn.Linear(64, 16, 0, dtype="float64"), Scale(16), dl.nn.Linear(16, 10, 1, dtype="float64")
    )
    optimizer = dl.optim.Optimizer(model.params, Halved(), dl.optim.Cosine(0.2, 100))
    strategy = Gossip(comm, model, dl.nn.SoftmaxCrossEntropy(), optimizer)
    checkpoints = dl.CheckpointStore(folder) if folder is not None else None
    history = dl.fit(strategy, data, epochs=epochs, batch_size=50, checkpoints=checkpoints)
    score: float = dl.evaluate(strategy, data.x_test, data.y_test)
    comm.report(epochs, epochs, accuracy=score)
    return history


def main() -> None:
    dl.testing.check_layer(Scale(5), np.random.default_rng(0).normal(size=(4, 5)))
    world = dl.SimWorld(4, network=dl.Network.preset("ethernet-10g"), compute=dl.Roofline.of("A100"))
    histories: list[dl.train.History] = world.run(train, 2)
    losses: list[float] = [history.last.loss for history in histories]
    slowest: float = max(span.end - span.start for span in world.trace.spans)
    print(f"{min(losses):.3f}, {slowest:.2e} s, {len(world.trace.messages)} messages, {get_xp(np.zeros(1)).__name__}")
    for run in dl.sim.explore(lambda comm: comm.all_reduce(np.ones(1)), 2).runs:
        print(run)
    plan: dl.parallel.Plan = dl.plan("alexnet", "ethernet-10g", 8, batch_size=64)
    print(plan.best)
    kernel = dl.cuda.RawKernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] *= 2; }', "f")
    report: dl.cuda.Report = kernel.check((1,), (32,), (np.ones(32, "float32"),))
    print(report.ok, dl.viz.plot_timeline(world.trace).get_title(), dl.viz.plot_history(histories[0]))
    with dl.LocalWorld() as one:
        print(one.run(lambda comm: 1 / comm.size)[0] + 1)


if __name__ == "__main__":
    main()
