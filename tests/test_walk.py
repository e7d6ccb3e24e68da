"""How far a reader walks: files of the package, and functions in them, that one call goes through after a warm-up."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import distlearn as dl
from distlearn.data import Batch, load
from distlearn.parallel import NaiveDataParallel

PACKAGE = str(Path(dl.__file__).parent)


class Walk:
    """Collects the functions of the package that are called between `start` and `stop`."""

    shared_by_ranks = True

    def __init__(self, running: int = 1):
        self.functions, self.running = set(), running

    def _note(self, frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.functions.add((frame.f_code.co_filename[len(PACKAGE) + 1 :], frame.f_code.co_qualname))

    def start(self):
        sys.setprofile(self._note)

    def stop(self):
        sys.setprofile(None)

    def __str__(self):
        files = len({file for file, _ in self.functions})
        lines = [f"  {file}: {name}" for file, name in sorted(self.functions)]
        return "\n".join([f"{files} files, {len(self.functions)} functions", *lines])


def check(walk: Walk, files: int, functions: int):
    assert walk.functions  # something was walked
    assert len({file for file, _ in walk.functions}) <= files, str(walk)
    assert len(walk.functions) <= functions, str(walk)


def make(kind, comm):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 6)), rng.integers(0, 3, 8)
    mine = Batch(x[comm.rank :: comm.size], y[comm.rank :: comm.size], 8)
    model = dl.nn.MLP((6, 8, 8, 3), dtype="float64")
    loss, optimizer = dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), lr=0.1)
    if kind == "NaiveDataParallel":
        return NaiveDataParallel(comm, model, loss, optimizer), mine
    if kind == "DataParallel":
        return dl.DataParallel(comm, model, loss, optimizer), mine
    if kind == "Pipeline":
        return dl.Pipeline(comm, model, loss, optimizer, n_microbatches=2), Batch(x, y, 8)
    return dl.TensorParallel(comm, model, loss, optimizer), Batch(x, y, 8)


@pytest.mark.parametrize(
    ("kind", "files", "functions"),
    [("NaiveDataParallel", 19, 65), ("DataParallel", 20, 79), ("Pipeline", 22, 99), ("TensorParallel", 21, 97)],
)
def test_step(kind, files, functions):
    walk = Walk(running=2)

    def program(comm):
        strategy, batch = make(kind, comm)
        strategy.step(batch)
        comm.barrier()
        walk.start()
        strategy.step(batch)
        walk.running -= 1
        if not walk.running:
            walk.stop()

    try:
        dl.SimWorld(2).run(program)
    finally:
        walk.stop()
    check(walk, files, functions)


def test_parameter_server():
    """From the first gradient to the record of the run, with a server and a worker."""
    walk, digits = Walk(), load("digits")

    def program(comm, on):
        server = dl.ParameterServer(
            comm, dl.nn.MLP((64, 8, 10)), dl.nn.SoftmaxCrossEntropy(), dl.optim.SGD(), 0.1, dl.ssp(4)
        )
        comm.barrier()
        if on:
            walk.start()
        server.train(digits, batch_size=8, steps=2)
        if comm.rank == 0:
            walk.stop()

    dl.SimWorld(2).run(program, on=False)
    try:
        dl.SimWorld(2).run(program, on=True)
    finally:
        walk.stop()
    check(walk, 24, 140)


def test_convolution():
    layer = dl.nn.Conv2d(3, 4, 3)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    layer.forward(x)
    walk = Walk()
    walk.start()
    try:
        layer.forward(x)
    finally:
        walk.stop()
    check(walk, 5, 14)
