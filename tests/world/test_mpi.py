"""MPIWorld in scripts under mpiexec."""

import json
import re

import pytest

from distlearn.world import launch

pytestmark = pytest.mark.mpi

SCRIPT = """
import json, sys
import numpy as np
from distlearn.world import MPIWorld, World

world = MPIWorld(progress=False)
assert isinstance(world, World)

def task(comm, factor):
    with comm.clock.span("work"):
        pass
    return comm.rank * factor

def bad(comm, who, late=None):
    comm.barrier()
    if comm.rank == late:  # a busy machine
        comm.clock.sleep(0.45)
    if who in (comm.rank, "all"):
        raise ValueError("no good")
    comm.recv(np.zeros(1), (comm.rank + 1) % comm.size)

def leave(comm, how):
    if comm.rank == 1:
        raise {"interrupt": KeyboardInterrupt, "exit 0": SystemExit(0), "exit 3": SystemExit(3)}[how]
    comm.barrier()

def ring(comm):
    if comm.rank != 1:
        comm.recv(np.zeros(3), (comm.rank + 1) % comm.size)

def slow(comm):
    if comm.rank == 1:
        comm.clock.sleep(2.0)
    return comm.all_reduce(np.ones(3)).sum()

class Unsendable:
    def __init__(self, comm):
        pass

    def __reduce__(self):
        raise TypeError("not this")

what = json.loads(sys.argv[1])
if what is None:
    results = world.run(task, factor=10)
    again = world.run(lambda comm: len(world.trace))  # begins anew with each run
    everyone = world.run(lambda comm: [comm.rank, results, again])
    if world.rank == 0:
        print(json.dumps(everyone))
        assert world.run(task, 1) and world.trace.ranks == list(range(world.size))
    else:
        world.run(task, 1)
elif what[0] == "call":
    world.patience = 0.5
    world.run(globals()[what[1]], *what[2:])
else:
    world.run(bad, *what)
"""


def script(n, what):
    return launch(n, ["python", "-c", SCRIPT, json.dumps(what)], timeout=60, capture=True)


@pytest.mark.parametrize("n", [1, 3])
def test_every_rank_gets_all_results(n):
    done = script(n, None)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[r, [10 * k for k in range(n)], [0] * n] for r in range(n)]


@pytest.mark.parametrize("late", [None, 0])
def test_error_of_all_is_told_once(late):
    done = script(3, ["all", late])
    assert done.returncode != 0
    told = re.findall(r"RankError: (.*)", done.stderr)
    assert len(told) == 1
    assert re.fullmatch(r"rank [012]: ValueError: no good", told[0])  # 0, unless the machine keeps it waiting


def test_error_on_a_single_rank_is_an_exception():
    done = script(1, [0])
    assert "distlearn.comm.base.RankError: rank 0: ValueError: no good" in done.stderr


@pytest.mark.parametrize(
    ("how", "code", "told"),
    [("interrupt", 1, "KeyboardInterrupt"), ("exit 0", 1, "SystemExit: 0"), ("exit 3", 3, "SystemExit: 3")],
)
def test_a_rank_that_leaves_ends_all_with_a_code_that_is_not_0(how, code, told):
    done = script(3, ["call", "leave", how])
    assert done.returncode == code
    assert f"RankError: rank 1: {told}" in done.stderr


def test_a_result_that_cannot_be_sent_ends_all():
    done = script(2, ["call", "Unsendable"])
    assert done.returncode != 0
    assert "TypeError: not this" in done.stderr


def test_ranks_that_all_wait_are_a_deadlock():
    done = script(3, ["call", "ring"])
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    at = lines.index("RankDeadlockError: rank 0: deadlock: all ranks wait, and have waited for 0.5 s:")
    for rank in (0, 2):
        what = rf"recv\(source={(rank + 1) % 3}, tag=0\) of 24 bytes"
        assert re.fullmatch(rf"  rank {rank} waits for {what} \(<string>, line \d+, in ring\)", lines[at + 1 + rank])
    assert lines[at + 2] == "  rank 1 waits for all ranks to return"


def test_ranks_that_wait_for_long_say_so():
    done = script(3, ["call", "slow"])
    assert done.returncode == 0
    first, missing, third = sorted(done.stderr.splitlines())
    assert re.match(r"rank 1 is missing at all_reduce\(.*\), number 1 .*, where ranks? 0.* waits?; ", missing)
    for line, rank in zip((first, third), (0, 2), strict=True):
        what = r"waits for all_reduce of 24 bytes \(<string>, line \d+, in slow\)"
        assert re.fullmatch(rf"rank {rank} {what}, for 1 s now; Ctrl-C ends all ranks", line)
