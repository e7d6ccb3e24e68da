"""What the whole suite shares: its order, the GPU that may be missing, and nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import hypothesis
import psutil
import pytest

for _profile in ("distlearn", "random"):  # the first draws the same examples in every run
    hypothesis.settings.register_profile(
        _profile,
        deadline=None,  # a busy machine is no failure
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=_profile == "distlearn",
    )
hypothesis.settings.load_profile("distlearn")
sys.path.append(str(Path(__file__).parents[1] / "course" / "source"))  # `grey` is beside the labs, whose kernels use it
# some hundred processes import the library: where nothing is kept, each compiles it, in half a second
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# `distlearn train` in a test's own process would keep freed memory there: a large model of zeros would then be written
os.environ.setdefault("DISTLEARN_KEEP_MEMORY", "0")
os.environ.setdefault("MPLBACKEND", "Agg")  # before anything imports matplotlib: no test opens a window
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started with & by a script: tests of interrupts want them
    signal.signal(signal.SIGINT, signal.default_int_handler)

ORDER = ("mpi", "engines", "notebook")
"""The later of these marks come first, plain tests last: few long groups that start late leave a core idle."""

MARKS = ("gpu: needs an NVIDIA GPU", "engines: starts ipyparallel engines", "mpi: starts processes with mpiexec",
         "notebook: executes notebooks",
         "nightly: takes too long for every commit, or finds rarely what no other test does; `but_every=n`: "
         "every n-th of its cases is tried with every commit")  # fmt: skip

LEFTOVERS = ("ipyparallel", "hydra_pmi_proxy", "mpiexec")


def pytest_configure(config):
    for mark in MARKS:  # here, and not in pyproject.toml, which a private copy of the course does not have
        config.addinivalue_line("markers", mark)


def pytest_addoption(parser):
    parser.addoption("--thorough", action="store_true", help="what runs every night, too: an hour more")


@pytest.fixture(scope="session", autouse=True)
def _ipython_directory(tmp_path_factory):
    """Keep the files of engines and kernels out of the user's ~/.ipython."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread():
    """Arrays here are small: a second thread costs more than it brings, a multiple on a machine that is busy."""
    import numpy as np  # noqa: F401  (loads the library that is limited)
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def _figures_can_be_read_in_grey():
    """Figures that a test makes through pyplot can be read without colours, and end with it."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) and pyplot.get_fignums():
        from grey import same_in_grey

        found = [told for number in pyplot.get_fignums() for told in same_in_grey(pyplot.figure(number))]
        pyplot.close("all")
        assert not found, "\n".join(found)


def order(item) -> int:
    """Position of a test's group; the order within a group stays."""
    return max((i for i, mark in enumerate(ORDER, 1) if item.get_closest_marker(mark)), default=0)


def group_of(item) -> str:
    """Name of the tests that one worker of xdist runs, one after another.

    Engines and MPI processes of two tests would only disturb each other. Tests that run notebooks go together by module
    and lab, which is graded once for all tests of a module. (course/source/conftest.py groups the labs' cells.)
    """
    if not item.get_closest_marker("notebook"):
        return "processes"
    lab = getattr(item, "callspec", None) and item.callspec.params.get("lab")
    return f"{item.module.__name__} {lab or ''}"


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(config, items):
    items.sort(key=order, reverse=True)
    cases = Counter()
    for item in items:
        if order(item):
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
        nightly = item.get_closest_marker("nightly")
        if nightly and not config.getoption("--thorough"):
            every = nightly.kwargs.get("but_every")
            if not every or cases[item.function] % every:
                item.add_marker(pytest.mark.skip(reason="runs every night: pytest --thorough"))
            cases[item.function] += 1
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        from distlearn.backend import has_gpu

        if not has_gpu():
            for item in gpu:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_collection_finish():
    """Take what is loaded by now out of the garbage collector: each of its many runs would search all of it."""
    gc.collect()
    gc.freeze()


def left_behind() -> list[str]:
    """Command lines of engines and MPI processes that this process started and that still run."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
        except psutil.Error:  # it ended meanwhile
            continue
        if any(word in line for word in LEFTOVERS):
            found.append(f"{child.pid}: {line[:120]}")
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    deadline = time.monotonic() + 20  # what is just ending may end
    while left_behind() and time.monotonic() < deadline:
        time.sleep(0.1)
    left = session.config.stash.setdefault(_LEFT, [])
    left += left_behind()
    if hasattr(session.config, "workeroutput"):  # a worker of xdist: `pytest_testnodedown` takes it from here
        session.config.workeroutput["left_behind"] = left
    elif left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash.setdefault(_LEFT, []).extend(getattr(node, "workeroutput", {}).get("left_behind", []))


_LEFT = pytest.StashKey[list]()


def pytest_terminal_summary(terminalreporter, config):
    seconds = Counter()
    for report in (r for found in terminalreporter.stats.values() for r in found if hasattr(r, "duration")):
        *folders, _ = Path(report.nodeid.partition("::")[0]).parts
        seconds["/".join(folders[:2])] += report.duration
    if config.option.durations:  # what CONTRIBUTING.md has a table of
        terminalreporter.section("minutes by folder, of all workers together")
        for folder, n in seconds.most_common(12):
            terminalreporter.write_line(f"{n / 60:6.1f}  {folder}")
    skipped = terminalreporter.stats.get("skipped", [])
    gpu = sum("GPU" in report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple))
    if gpu:
        terminalreporter.write_line(f"{gpu} test(s) need a GPU and were skipped")
    left = config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("processes left behind: the run fails")
        for line in left:
            terminalreporter.write_line(line)
