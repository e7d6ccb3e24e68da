"""Ranks share nothing: what one of them is given, or refers to, is its own, as on engines."""

import dataclasses
import pickle
import threading
import types
import warnings

import numpy as np
import psutil
import pytest

import distlearn as dl
from distlearn import data, nn, optim
from distlearn.sim import SimWorld, explore
from distlearn.sim.copies import LARGE

MODEL, SEEN, CONFIG = nn.MLP((64, 32, 10), seed=3), [0], {"lr": 0.1}
DIGITS = data.load("digits")
WORLDS = [SimWorld(1), SimWorld(2), SimWorld(4), SimWorld(4, collectives="formula"), dl.world.LocalWorld()]


def trained(comm, model, make=dl.DataParallel, optimizer=None):
    optimizer = optimizer or optim.Optimizer(model.params, optim.Momentum(), lr=0.05)
    return dl.fit(make(comm, model, nn.SoftmaxCrossEntropy(), optimizer), DIGITS, epochs=1, batch_size=64).losses[-1]


@pytest.fixture(scope="module")
def serial():
    """The loss that one rank ends with, whose model nobody else has."""
    return SimWorld(1).run(lambda comm: trained(comm, nn.MLP((64, 32, 10), seed=3)))[0]


@pytest.mark.parametrize("make", [dl.DataParallel, dl.TensorParallel, dl.Pipeline])
def test_a_model_of_the_caller_trains_as_one_of_the_rank(make, serial):
    given, optimizer = nn.MLP((64, 32, 10), seed=3), None
    before = [p.data.copy() for p in given.params]
    optimizer = optim.Optimizer(given.params, optim.Momentum(), lr=0.05)
    programs = {
        "argument": (trained, given, make),
        "closure": (lambda comm: trained(comm, given, make),),
        "global": (lambda comm: trained(comm, MODEL, make),),
        "with its optimizer": (trained, given, make, optimizer),
        "in a dict": (lambda comm, made: trained(comm, made["model"], make), {"model": given}),
    }
    for name, (fn, *args) in programs.items():
        assert SimWorld(2).run(fn, *args) == pytest.approx([serial] * 2, rel=1e-5), name
    for p, q, old in zip(given.params, MODEL.params, before, strict=True):
        np.testing.assert_array_equal(p.data, old)
        np.testing.assert_array_equal(q.data, old)


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_what_a_rank_changes_is_its_own(world):
    x, drawn, local = np.ones(2), np.random.default_rng(0), [0]
    large, state, shared = np.zeros(LARGE), drawn.bit_generator.state, np.zeros(3)
    part = large[10:20]

    def program(comm, x, drawn, large, part, pair):
        for log in (SEEN, local):
            log[0] += 1
        CONFIG["lr"] *= comm.size
        comm.all_reduce(x)
        x /= comm.size
        large += comm.rank
        part -= 1
        pair[0][0] = 5
        return x.tolist(), drawn.random(), SEEN[0], local[0], CONFIG["lr"], large[0], pair[1][0], large.flags.writeable

    drawn_first = np.random.default_rng(0).random()
    for _ in range(2):  # nothing is left of a run
        results = world.run(program, x, drawn, large, part, (shared, shared))
        for rank, found in enumerate(results):
            assert found == ([1, 1], drawn_first, 1, 1, 0.1 * world.size, rank, 5, True)
    assert (SEEN, local, CONFIG, x.tolist(), large.any()) == ([0], [0], {"lr": 0.1}, [1, 1], False)
    assert drawn.bit_generator.state == state
    assert not shared.any()


counter = 0


def counted(comm):
    global counter
    counter += 1
    return counter, helper(comm)


def helper(comm):
    SEEN.append(comm.rank)
    return SEEN


def test_a_module_of_the_user_has_its_globals_on_each_rank():
    assert SimWorld(3).run(counted) == [(1, [0, rank]) for rank in range(3)]
    assert (counter, SEEN) == (0, [0])


def test_every_run_of_an_exploration_starts_anew():
    found = []

    def program(comm, seen):
        if comm.rank:
            return comm.send_obj(comm.rank, 0)
        seen += [comm.recv_obj() for _ in range(comm.size - 1)]
        found.append(1)
        return len(seen) + len(found)

    result = explore(program, 3, [])
    assert result.ok
    assert {run.results[0] for run in result.runs} == {3}


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (
            threading.Lock(),
            r"program refers to, or is given, an object that cannot be copied for each rank: cannot pickle '_thread",
        ),
        ((i for i in range(3)), "cannot pickle 'generator' object; make it inside program"),
    ],
    ids=["lock", "generator"],
)
@pytest.mark.parametrize("given", ["argument", "closure"])
def test_what_cannot_be_copied_is_named_before_anything_runs(what, told, given):
    def program(comm, *args):
        return what if given == "closure" else args

    with pytest.raises(TypeError, match=f"SimWorld.run: .*{told}"):
        SimWorld(2).run(program, *([what] if given == "argument" else []))
    assert SimWorld(2).run(lambda comm: threading.Lock() is not None) == [True, True]  # made inside


def test_what_is_not_a_function_is_refused():
    with pytest.raises(TypeError, match=r"SimWorld.run: 3 is not a function"):
        SimWorld(2).run(3)


class Counted:
    """A class of a user's, with state of its own."""

    calls, log = 0, []

    def __init__(self):
        super().__init__()
        self.mine = 0

    def __call__(self, comm):
        Counted.calls += 1
        Counted.log.append(comm.rank)
        self.mine += 1
        SEEN.append(comm.rank)
        return Counted.calls, list(Counted.log), self.mine, list(SEEN), self


def test_a_class_with_state_is_each_ranks_own():
    for rank, found in enumerate(SimWorld(3).run(Counted())):
        assert found[:4] == (1, [rank], 1, [0, rank])
        assert isinstance(found[4], Counted)
    assert (Counted.calls, Counted.log, SEEN) == (0, [], [0])


@dataclasses.dataclass
class Point:
    x: int = 1

    def moved(self):
        return Point(helper_of_points(self.x))


def helper_of_points(x):
    return x + 1


def test_a_class_without_state_is_shared():
    assert SimWorld(2).run(lambda comm, p: p.moved(), Point(2)) == [Point(3)] * 2


def test_a_program_may_look_at_its_world():
    world = SimWorld(2)
    assert world.run(lambda comm: (comm.barrier(), len(world.trace.spans))[1] > 0) == [True, True]
    with pytest.raises(TypeError, match="a SimWorld cannot be sent to another process; make one there"):
        pickle.dumps(world)


def test_more_than_half_of_the_memory_is_not_copied(monkeypatch):
    zeros = np.zeros(1 << 28)  # takes no memory until it is read
    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(available=3e9))
    with pytest.raises(MemoryError, match=r"2\.1 GB of arrays would be copied, and 3\.0 GB of memory are free; give"):
        SimWorld(2).run(lambda comm: zeros.size)


def test_who_draws_from_the_processes_own_generator_is_warned():
    """Ranks that each seed it would draw from one sequence here, and from their own on engines."""

    def program(comm):
        np.random.seed(comm.rank)  # noqa: NPY002
        comm.barrier()
        return np.random.rand()  # noqa: NPY002

    with pytest.warns(UserWarning, match="share here and not on engines: use rng = np.random.default_rng"):
        SimWorld(2).run(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SimWorld(2).run(lambda comm: np.random.default_rng(comm.rank).random())
        SimWorld(1).run(program)
