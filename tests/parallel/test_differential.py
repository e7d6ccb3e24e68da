"""Random models x strategies x optimizers x dtypes x worlds train to what serial training gives.

`DISTLEARN_COMBINATIONS=5000 pytest tests/parallel/test_differential.py -k simulator` compares as many, chosen anew.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlearn.sim import SimWorld
from distlearn.world import launch

from .combinations import choose, compare, train

ASKED = os.environ.get("DISTLEARN_COMBINATIONS")


@settings(
    max_examples=int(ASKED or 1000),
    derandomize=ASKED is None,  # the suite compares the same ones every time
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def check(data):
    c = choose(lambda options: data.draw(st.sampled_from(options)))
    compare(c, lambda c: SimWorld(c.size).run(train, c, False))


@pytest.mark.timeout(3600 if ASKED else 300)
def test_on_the_simulator():
    check()


@pytest.mark.mpi
def test_under_mpiexec():
    """With sends that block until the receiver has come."""
    done = launch(4, ["python", "-m", "tests.parallel.combinations", 30], timeout=100, capture=True)
    assert done.returncode == 0, done.stderr
