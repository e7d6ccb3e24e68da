"""Mistakes of students in every world: an error that names rank and line, no number, no wait beyond the patience."""

import re
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distlearn.comm import CommError
from distlearn.sim import SimWorld
from distlearn.world import EngineWorld, launch

from .misuse import MISUSES, SIZE

PATIENCE, TIMEOUT = 1.0, 4.0


def cases(world) -> list:
    """All on the simulator; of the others, whose checks are the same code, every fourth and what ends a rank."""
    return [
        m
        for i, m in enumerate(m for m in MISUSES if world in m.worlds)
        if world == "sim" or i % 4 == 0 or m.file == "endings.py"
    ]


def of(world):
    chosen = cases(world)
    return pytest.mark.parametrize("case", chosen, ids=[m.name for m in chosen])


def check(case, text: str):
    """The error says what is wrong, and names a rank and a line that have to do with it."""
    assert re.search(case.text, text), text
    assert {int(rank) for rank in re.findall(r"\brank (\d)\b", text)} & set(case.ranks), text
    lines = {int(n) for n in re.findall(rf"{case.file}\W+line (\d+)", text)}
    assert lines & set(case.lines), f"names lines {sorted(lines)}, not {case.lines}: {text}"


def test_the_table_has_kinds_enough():
    assert len({m.name for m in MISUSES}) == len(MISUSES)
    assert all(m.lines for m in MISUSES)
    assert len(MISUSES) >= 20


@of("sim")
@pytest.mark.parametrize("kind", ["messages", "formula"])
def test_simulator(case, kind):
    with pytest.raises((CommError, KeyboardInterrupt)) as caught:
        SimWorld(SIZE, collectives=kind).run(case.program)
    check(case, "".join(traceback.format_exception(caught.value)))


@pytest.fixture(scope="module")
def world():
    with EngineWorld(SIZE, progress=False, patience=PATIENCE, timeout=TIMEOUT) as made:
        yield made


@pytest.mark.engines
@of("engines")
def test_engines(case, world):
    pids = world.pids
    with pytest.raises(CommError) as caught:
        world.run(case.program)
    check(case, str(caught.value))
    assert world.pids == pids, "the engines are the same"


@pytest.fixture(scope="module")
def launched():
    """What mpiexec said of every program: each ends its ranks, so that each is a job of its own."""

    def run(name):
        command = ["python", "-m", "tests.world.misuse", name, str(PATIENCE), str(TIMEOUT)]
        env = {"PYTHONPATH": str(Path(__file__).parents[2])}
        return launch(SIZE, command, threads=1, env=env, timeout=60, capture=True)

    with ThreadPoolExecutor(4) as pool:
        names = [m.name for m in cases("mpiexec")]
        return dict(zip(names, pool.map(run, names), strict=True))


@pytest.mark.nightly
@pytest.mark.mpi
@of("mpiexec")
def test_mpiexec(case, launched):
    done = launched[case.name]
    assert done.returncode != 0
    assert done.stdout == ""
    check(case, done.stderr)
