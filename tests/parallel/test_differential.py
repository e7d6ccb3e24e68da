"""Random models x strategies x optimizers x dtypes x worlds train to what serial training gives.

`DISTLEARN_COMBINATIONS=5000 pytest tests/parallel/test_differential.py -k simulator` compares as many, chosen anew, and
looks for the smallest that differs.
"""

import os
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlearn.cuda.emulator.compilers import find_compilers
from distlearn.nn import MockDeviceArray
from distlearn.parallel import hybrid, sharding, strategy
from distlearn.parallel.checkpoint import state
from distlearn.parallel.data import replicas
from distlearn.sim import SimWorld
from distlearn.world import launch
from tests.comm.on_device import off_strict
from tests.emulated import launched

from .combinations import choose, compare, make_model, make_optimizer, train

__all__ = ["launched"]  # a fixture

# a BLAS loads whole registers, also past an array's end, and flags what it found there; results are compared anyway
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
ASKED = int(os.environ.get("DISTLEARN_COMBINATIONS", 0))


def check(c):
    model = make_model(c)
    given = (model, make_optimizer(c, model)) if c.extra["given"] else None  # which ranks must not share
    compare(c, lambda c: SimWorld(c.size).run(train, c, False, given))


@pytest.mark.timeout(3600 if ASKED else 300)
def test_on_the_simulator(request):
    """100 (--thorough: 1,500), the same ones every time; hypothesis would make many of them from one another."""
    n = 1500 if request.config.getoption("--thorough") else 100
    if ASKED:

        @settings(max_examples=ASKED, database=None, suppress_health_check=list(HealthCheck))
        @given(st.data())
        def anew(data):
            check(choose(lambda options: data.draw(st.sampled_from(options))))

        anew()
    for seed in range(0 if ASKED else n):
        c = choose(random.Random(seed).choice)
        try:
            check(c)
        except Exception as error:
            error.add_note(f"seed {seed}: {c}")
            raise


def on_device(comm, c):
    there, back = (lambda a: MockDeviceArray(np.array(a))), (lambda a: a.get())
    return train(off_strict(comm), c, False, there=there, back=back)


@pytest.mark.parametrize("portion", range(6))
def test_on_a_device(portion, monkeypatch, request):
    """Some of 100 (--thorough: 1,500) on arrays that refuse implicit conversion; kernels update the last buckets."""
    thorough, kernels = request.config.getoption("--thorough"), portion == 5
    n, step = (1500, 5) if thorough else (100, 20)
    if kernels and find_compilers():
        request.getfixturevalue("launched")
    for module in (hybrid, replicas, sharding, state, strategy):  # where copying to the host is meant
        monkeypatch.setattr(module, "to_numpy", lambda x: x.get() if isinstance(x, MockDeviceArray) else np.asarray(x))
    for seed in range(n) if kernels else range(portion, n, step):
        c = choose(random.Random(seed).choice)
        if any(name == "dropout" for name, _ in c.layers) or (kernels and c.strategy != "data"):
            continue  # a dropout's mask is drawn on the device
        try:
            compare(c, lambda c: SimWorld(c.size).run(on_device, c))
        except Exception as error:
            error.add_note(f"seed {seed}: {c}")
            raise


@pytest.mark.mpi
def test_under_mpiexec():
    """With sends that block until the receiver has come."""
    done = launch(4, ["python", "-m", "tests.parallel.combinations", 15], timeout=250, capture=True)
    assert done.returncode == 0, done.stderr
