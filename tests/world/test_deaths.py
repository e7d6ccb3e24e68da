import resource
import subprocess
import sys
import threading
import time

import pytest

from distlearn.world.deaths import DeathWatch, exit_statuses, first_to_die, how_it_ended


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


HOLDS = """
import sys, time
from distlearn.world.deaths import hold_connection
hold_connection(sys.argv[1], int(sys.argv[2]))
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def processes():
    """A `DeathWatch` that has not started, and a function that makes processes that hold a connection to it."""
    deaths, made = DeathWatch(), []

    def make(size):
        made.extend(
            subprocess.Popen([sys.executable, "-c", HOLDS, deaths.address, str(rank)], stdout=subprocess.PIPE)
            for rank in range(size)
        )
        for process in made:
            assert process.stdout.readline() == b"\n"
        return made

    yield deaths, make
    deaths.close()
    deaths.close()  # twice does no harm
    for process in made:
        process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the order")
def test_order_of_deaths(processes):
    deaths, make = processes
    sleeps = make(3)
    deaths.start(3)
    for rank in (2, 0):
        sleeps[rank].kill()
        assert wait_for(lambda r=rank: r in deaths.order)
    assert deaths.order == [2, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the order")
def test_who_looks_late_still_sees_the_order(processes, monkeypatch):
    """On a busy machine all ranks are dead before the thread gets a core."""
    late, look = threading.Event(), DeathWatch._watch
    monkeypatch.setattr(DeathWatch, "_watch", lambda self: (late.wait(), look(self)))
    deaths, make = processes
    sleeps, order = make(5), [3, 0, 4, 2, 1]
    deaths.start(5)
    for rank in order:
        sleeps[rank].kill()
        sleeps[rank].wait()
    late.set()
    assert wait_for(lambda: len(deaths.order) == 5)
    assert deaths.order == order


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the order")
def test_few_open_files_are_no_death(processes):
    """A limit of 256, as some clusters set it, is below the descriptor that is asked for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        deaths, make = processes
        first, _ = make(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    deaths.start(2)
    first.kill()
    assert wait_for(lambda: deaths.order)
    assert deaths.order == [0]


def test_process_without_a_connection(processes):
    """As an engine in another network namespace: its death is known from ipyparallel alone."""
    deaths, make = processes
    (process,) = make(1)
    deaths.start(2)
    process.kill()
    assert wait_for(lambda: deaths.order == [0]) or sys.platform != "linux"


@pytest.mark.parametrize(
    ("seen", "reported", "statuses", "first"),
    [
        ([2, 0, 1], [0, 1, 2], [9, 9, 9], 2),  # the kernel's word counts before the network's
        ([], [1, 0, 2], [], 1),
        ([0, 1, 2], [0, 1, 2], [9, 11, 9], 1),  # who crashed was not killed by mpiexec
        ([0], [0, 1], [256, 0], 0),
        ([1], [0, 1], [256, 256], 1),
    ],
)
def test_first(seen, reported, statuses, first):
    assert first_to_die(seen, reported, statuses) == first


def test_statuses_from_mpiexec():
    text = "noise 12\n[mpiexec@node-7] Exit codes: [node-7] 9,0,768,9\nYOUR APPLICATION TERMINATED (signal 9)"
    assert exit_statuses(text, 4) == [9, 0, 768, 9]
    assert exit_statuses(text, 3) == []
    assert exit_statuses("[mpiexec@a] Exit codes: [a] 0,0 [b] 9,9", 4) == [0, 0, 9, 9]
    assert exit_statuses("", 2) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit code 0"),
        (768, "ended with exit code 3"),
        (9, r"was killed \(SIGKILL\): by kill -9, or because the machine ran out of memory"),
        (11, r"crashed in compiled code \(SIGSEGV\)"),
        (15, "was ended by SIGTERM"),
        (None, "died"),
    ],
)
def test_words(status, words):
    import re

    assert re.fullmatch(words, how_it_ended(status))
