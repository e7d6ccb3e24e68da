"""Every exception of the library reaches another process whole: a pool waits for ever for one that cannot be read."""

import importlib
import inspect
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import distlearn as dl

ARGUMENTS = {"rank": 2, "ranks": (1, 3), "drifts": [(1, "0.W")]}


def exceptions():
    modules = [m.name for m in pkgutil.walk_packages(dl.__path__, "distlearn.") if not m.name.endswith("__main__")]
    found = [c for name in modules for c in vars(importlib.import_module(name)).values() if isinstance(c, type)]
    return sorted({c for c in found if issubclass(c, Exception) and c.__module__.startswith("distlearn.")}, key=repr)


@pytest.mark.parametrize("kind", exceptions(), ids=lambda kind: kind.__name__)
def test_an_exception_survives_a_pickle(kind):
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = inspect.signature(kind).parameters.values() if inspect.isfunction(kind.__init__) else ()
    wanted = [p for p in own if p.default is p.empty and p.kind is named]
    error = kind(*([ARGUMENTS.get(p.name, "text") for p in wanted] or ["text"]))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (kind, str(error))
    assert vars(again).keys() == vars(error).keys()


class Unreadable(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def fails(comm):
    if comm.rank == 1:
        raise Unreadable("boom", 2)


def sweep(seed):
    return dl.SimWorld(2).run(fails)


def test_a_pool_of_seeds_ends_with_the_error_of_a_rank():
    said = pytest.raises(dl.RankError, match="rank 1: Unreadable: boom")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, said:
        list(pool.map(sweep, [0]))
