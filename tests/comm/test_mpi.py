"""MPIComm under mpiexec: the contract on 1 to 4 ranks, and what it promises beyond."""

from pathlib import Path

import pytest

from distlearn.comm.waiting import poll
from distlearn.world.launching import launch

from .contract import CONTRACT

ROOT = Path(__file__).parents[2]


def run(n, what):
    done = launch(
        n, ["python", "-m", "tests.comm.run_mpi", what], env={"PYTHONPATH": str(ROOT)}, timeout=120, capture=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


NIGHTLY = [pytest.param(*case, marks=pytest.mark.nightly) for case in ((1, "contract"), (3, "direct"), (4, "contract"))]


@pytest.mark.mpi
@pytest.mark.parametrize(("n", "what"), [(2, "staged"), (3, "strict"), *NIGHTLY])
def test_contract(n, what):
    """Also of arrays on a device: staged in host memory, and directly where MPI reads it."""
    assert run(n, what) == f"passed {len(CONTRACT)} on {n} ranks\n"


@pytest.mark.mpi
def test_beyond_the_contract():
    assert "on 2 ranks" in run(2, "checks")


def test_poll_says_whether_it_came_in_time():
    assert poll(lambda: True)
    assert not poll(lambda: False, timeout=0.01)
    looks = iter([False] * 50 + [True])
    assert poll(lambda: next(looks), timeout=10)
    assert next(looks, "none left") == "none left"
