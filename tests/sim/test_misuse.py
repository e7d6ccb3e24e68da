"""What students do wrong with a communicator: every mistake is an error that names rank and line."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distlearn import ZeRO, nn
from distlearn.comm import CommError, DeadlockError, RankError
from distlearn.optim import SGD, Optimizer
from distlearn.sim import SimWorld

HERE = r"\(test_misuse.py, line \d+, in \S+\)"


def on_rank_1(other, usual=lambda c: c.all_reduce(np.ones(3))):
    """A program in which rank 1 does something else."""
    return lambda c: (other if c.rank == 1 else usual)(c)


MISUSE = {  # what `tests/world/misuse` does not hold, and one text to the letter
    "non-blocking, another size": (
        on_rank_1(lambda c: c.iall_reduce(np.ones(2)).wait(), lambda c: c.iall_reduce(np.ones(3)).wait()),
        rf"rank 1 calls all_reduce\(op='sum', \(2,\), float64\) {HERE}",
    ),
    "scatter": (
        on_rank_1(lambda c: c.scatter(None, np.ones(2)), lambda c: c.scatter(np.ones((c.size, 3)), np.ones(3))),
        rf"rank 1 calls scatter\(root=0, \(2,\), float64\) {HERE}",
    ),
    "returns early, others under way": (
        on_rank_1(lambda c: None, lambda c: c.iall_reduce(np.ones(3)).wait()),
        rf"rank 0 waits for all_reduce \(. of . ranks are there\) {HERE}.*rank 1 returned already",
    ),
    "receive never waited for": (
        on_rank_1(lambda c: c.irecv(np.ones(3), 0) and None, lambda c: c.send(np.ones(3), 1) if c.rank == 0 else None),
        rf"rank 1: recv\(source=0, tag=0\) of 24 bytes was started and never waited for {HERE}",
    ),
}


@pytest.mark.parametrize("kind", ["messages", "formula"])
@pytest.mark.parametrize("what", MISUSE)
def test_is_named(what, kind):
    program, message = MISUSE[what]
    with pytest.raises((RankError, DeadlockError, CommError), match=message):
        SimWorld(3, collectives=kind).run(program)


def test_a_strategy_that_one_rank_calls_names_the_line_of_the_call():
    def program(comm):
        model = nn.Sequential(nn.Linear(2, 2, 0))
        strategy = ZeRO(comm, model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.1))
        if comm.rank == 0:
            strategy.gather_params()

    with pytest.raises(DeadlockError, match=rf"rank 0 waits for gather_obj .*{HERE}; rank 1 returned already"):
        SimWorld(2).run(program)


# -- a communicator is for the function that `run` calls ---------------------------------------------------------------

USES = {
    "all_reduce": lambda c: c.all_reduce(np.ones(2)),
    "iall_reduce": lambda c: c.iall_reduce(np.ones(2)).wait(),
    "send": lambda c: c.send(np.ones(2), 1 - c.rank),
    "recv": lambda c: c.recv(np.ones(2), 1 - c.rank),
    "send_obj": lambda c: c.send_obj(1, 1 - c.rank),
    "recv_obj": lambda c: c.recv_obj(),
    "split": lambda c: c.split(0),
}


@pytest.mark.parametrize("kind", ["messages", "formula"])
@pytest.mark.parametrize("use", USES)
def test_a_communicator_in_another_place_is_named(use, kind):
    def in_a_thread(comm):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(USES[use], comm).result()

    def in_another_world(comm):
        SimWorld(2).run(lambda _: USES[use](comm))

    used = r"rank 0.* communicator is used by another thread, rank or world; only its own"
    given = r"rank 0.* <lambda> refers to, or is given, .*: a communicator is used by its own rank alone"
    for program, told in ((in_a_thread, used), (in_another_world, given)):
        with pytest.raises(RankError, match=told):
            SimWorld(2, collectives=kind).run(program)


@pytest.mark.parametrize("use", USES)
def test_a_communicator_after_its_run_is_named(use):
    def before(comm):  # channels that are open already
        x = np.ones(2)
        comm.send_recv(x, 1 - comm.rank, x.copy(), 1 - comm.rank)
        return comm

    for program in (before, lambda comm: comm):
        comm = SimWorld(2).run(program)[0]
        with pytest.raises(CommError, match="rank 0: its communicator is used after the run has ended"):
            USES[use](comm)


def test_a_world_within_a_world():
    def outer(comm):
        inner = SimWorld(3).run(lambda c: c.all_reduce(np.ones(1))[0])
        return sum(inner) + comm.all_reduce(np.ones(1))[0]

    assert SimWorld(2).run(outer) == [11, 11]
