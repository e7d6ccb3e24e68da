"""EngineWorld: real engines under MPI. One world for all tests; each must leave it usable."""

import importlib
import os
import re
import signal
import sys
import threading
import time
import traceback

import numpy as np
import psutil
import pytest

from distlearn.cli import doctor
from distlearn.comm.base import CommError, CommTimeoutError, RankError
from distlearn.comm.collectives import ring_all_reduce
from distlearn.sim import SimWorld
from distlearn.world import EngineWorld, RankDeadlockError, RankTimeoutError, World, launching
from distlearn.world.progress import REPORT_SECONDS

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]
SIZE = 3
TIMEOUT = 60
SOON = 45
"""Seconds within which an error must come, on the slowest machine: it did not wait for the timeout."""


@pytest.fixture(scope="module")
def world():
    with EngineWorld(SIZE, progress=False, timeout=TIMEOUT) as made:
        yield made


def ranks(comm):
    return comm.all_gather(np.array([comm.rank])).ravel().tolist()


def works(world) -> bool:
    """Whether the world computes, rank by rank, on ranks that can all reach each other."""
    return world.run(lambda comm: (comm.rank, ranks(comm))) == [(r, [0, 1, 2]) for r in range(SIZE)]


def split_often(comm, n, keep):
    kept = []
    for _ in range(n):
        kept = [*kept, comm.split(comm.rank % 2)] if keep else comm.split(comm.rank % 2)
    return len(kept) if keep else kept.size


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_communicators_that_nobody_keeps_are_freed(world):
    """Too many that are kept are an error in words, after which the world starts anew."""
    assert world.run(split_often, 420, False, timeout=180) == [2, 1, 2]
    with pytest.raises(RankError, match="MPI can make no more communicators: the program keeps too many"):
        world.run(split_often, 420, True, timeout=180)
    assert works(world)


def test_a_module_that_was_reloaded_is_reloaded_on_the_engines(world, tmp_path, monkeypatch):
    """And what other modules have imported from it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which knows seconds and sizes only, so sizes differ

    def write(inner, outer):
        (tmp_path / "inner_of_mine.py").write_text(f"VALUE = {inner}\n", encoding="utf-8")
        text = f"from inner_of_mine import VALUE\ndef train(comm): return {outer}, VALUE\n"
        (tmp_path / "outer_of_mine.py").write_text(text, encoding="utf-8")

    write(1, 1)
    import inner_of_mine
    import outer_of_mine

    assert world.run(outer_of_mine.train) == [(1, 1)] * SIZE
    write(1, 22)
    importlib.reload(outer_of_mine)
    assert world.run(lambda comm: outer_of_mine.train(comm)) == [(22, 1)] * SIZE
    write(333, 22)
    importlib.reload(inner_of_mine)
    importlib.reload(outer_of_mine)
    assert world.run(outer_of_mine.train) == [(22, 333)] * SIZE


@pytest.mark.nightly
def test_a_world_that_is_assigned_again_ends_and_other_files_take_no_modules_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("random", "queue", "types", "socket"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')", encoding="utf-8")
    again = EngineWorld(1, progress=False)
    processes = [psutil.Process(pid) for pid in again.pids]
    again = EngineWorld(1, progress=False)  # the cell is run again
    assert psutil.wait_procs(processes, timeout=10)[1] == []
    assert again.run(lambda comm: comm.rank) == [0]
    again.close()


def test_why_the_controller_did_not_start_is_told(tmp_path, monkeypatch):
    (tmp_path / "tornado.py").write_text("raise RuntimeError('broken on purpose')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(launching.shutil, "disk_usage", lambda path: (16 << 20, 0, 15 << 20))
    with pytest.raises(RuntimeError, match=r"did not start\. /dev/shm.* 15 of 16 MiB free.*--shm-size") as caught:
        EngineWorld(1)
    assert "RuntimeError: broken on purpose" in str(caught.value)
    monkeypatch.setattr(doctor, "find_mpiexec", lambda: "mpiexec")
    assert "docker run --shm-size" in doctor.examine("shared memory").fix


def test_parts_of_unequal_length_are_told_of_objects(world):
    with pytest.raises(RankError, match="in the same order; arrays of different shapes go by gather_obj"):
        world.run(lambda comm: comm.gather(np.arange(2.0 + comm.rank)))


def wait_for_message(comm):
    comm.report(1, 2)
    return comm.recv(np.zeros(2), (comm.rank + 1) % comm.size, tag=4)


def too_late(world, task, reached) -> RankTimeoutError:
    """Run what hangs; give it more time if that was up before the ranks came as far as they should: `reached` says."""
    for timeout in (0.5, 4.0, 20.0):
        with pytest.raises(RankTimeoutError) as caught:
            world.run(task, timeout=timeout)
        if re.search(reached, str(caught.value)):
            break
    assert f"has not returned after {timeout:g} s" in str(caught.value)
    return caught.value


def when_reported(world, what):
    """Let something happen, once, when the first report of a rank is seen."""
    left = [what]
    world.progress = lambda *report, **values: left.pop()() if left else None


@pytest.fixture(autouse=True)
def _quick(world):
    """No test takes long, and after each the world works."""
    yield
    world.progress = False
    assert works(world)


# -- what works --------------------------------------------------------------------------------------------------------


def test_results_are_by_rank(world):
    assert isinstance(world, World)
    assert world.size == SIZE
    helper = {"factor": 2}  # travels with the function

    def task(comm, plus, *, minus=0):
        return comm.rank * helper["factor"] + plus - minus

    assert world.run(task, 10, minus=3) == [7, 9, 11]


def test_same_numbers_as_simulated(world):
    def task(comm):
        x = np.random.default_rng(comm.rank).normal(size=1001)
        return ring_all_reduce(comm, x)

    for real, simulated in zip(world.run(task), SimWorld(SIZE).run(task), strict=True):
        np.testing.assert_array_equal(real, simulated)


def test_large_results_come_back(world):
    for rank, x in enumerate(world.run(lambda comm: np.full(3_000_000, comm.rank, np.float32))):
        assert x.shape == (3_000_000,)
        assert (x == rank).all()


def test_trace_of_all_ranks_on_one_axis(world):
    def task(comm):
        with comm.clock.span("work", flops=7):
            comm.clock.sleep(0.02 * comm.rank)
        comm.barrier()

    start = time.perf_counter()
    world.run(task)
    wall = time.perf_counter() - start
    assert world.trace.ranks == [0, 1, 2]
    spans = {(s.rank, s.name): s for s in world.trace}
    assert set(spans) == {(rank, name) for rank in range(SIZE) for name in ("work", "barrier")}
    last_came = max(spans[r, "barrier"].start for r in range(SIZE))
    for rank in range(SIZE):
        assert spans[rank, "work"].flops == 7
        assert 0 <= spans[rank, "work"].start <= spans[rank, "barrier"].end <= wall
        assert spans[rank, "barrier"].end >= last_came  # no rank leaves before the last one came: one axis for all
    assert world.trace.spans == sorted(world.trace.spans, key=lambda s: (s.end, s.rank))


def test_progress_is_live_and_complete(world, tmp_path):
    seen, shown = [], tmp_path / "shown"

    def show(step, total, **values):
        seen.append((step, total, values))
        shown.touch()

    def task(comm, shown):
        began = time.perf_counter()
        for step in range(1, 41):
            comm.clock.sleep(0.01)
            comm.report(step, 40, loss=np.float32(1 / step))
            while comm.rank == 0 and not os.path.exists(shown):  # the first one is seen before the second is made
                comm.clock.sleep(0.001)
        return time.perf_counter() - began

    world.progress = show
    seconds = world.run(task, str(shown))[0]
    assert seen[0][0] == 1
    assert seen[-1] == (40, 40, {"loss": pytest.approx(1 / 40)})
    assert 2 <= len({step for step, *_ in seen}) <= seconds / REPORT_SECONDS + 2


def test_progress_bar(world, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    world.progress = True
    try:
        world.run(lambda comm: [comm.report(i, 5, loss=0.5) for i in range(1, 6)] and None)
    finally:
        world.progress = False
    assert "5/5" in capsys.readouterr().err


def test_output_is_complete_and_in_order(world, capsys):
    wanted = "".join(f"[rank {r}] {line} of {r}\n" for r in range(SIZE) for line in ("first", "second"))
    for _ in range(10):
        world.run(lambda comm: print(f"first of {comm.rank}\nsecond of {comm.rank}"))
        assert capsys.readouterr().out == wanted


def test_ranks_share_the_cores(world, monkeypatch):
    from distlearn.world.launching import count_cores

    wanted = os.environ.get("OMP_NUM_THREADS", str(max(1, count_cores() // SIZE)))
    assert world.run(lambda comm: os.environ["OMP_NUM_THREADS"]) == [wanted] * SIZE


def test_relative_paths_are_the_notebooks(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert world.run(lambda comm: os.getcwd()) == [str(tmp_path)] * SIZE


@pytest.mark.nightly
def test_many_runs_do_not_use_up_communicators(world):
    for i in range(40):  # more than are kept
        assert world.run(lambda comm, i=i: i) == [i] * SIZE


# -- what fails --------------------------------------------------------------------------------------------------------


def test_rank_that_raises_is_named(world):
    def task(comm):
        if comm.rank == 1:
            raise KeyError("no such thing")
        wait_for_message(comm)

    start = time.perf_counter()
    with pytest.raises(RankError) as caught:
        world.run(task)
    assert time.perf_counter() - start < SOON
    error = caught.value
    assert error.rank == 1
    assert isinstance(error.original, KeyError)
    text = str(error)
    assert text.startswith("rank 1: KeyError: 'no such thing'\n\nOn rank 1:\n")
    assert 'raise KeyError("no such thing")' in text
    assert "rank 0 waited for recv(source=1, tag=4) of 16 bytes (test_engines.py, line " in text
    assert "rank 2 waited for recv(source=0, tag=4) of 16 bytes" in text
    assert "distlearn/" not in text  # the user's frames only
    assert world.trace.ranks == []


def test_spans_of_a_failed_run_come_back(world):
    def task(comm):
        comm.barrier()
        raise ValueError

    with pytest.raises(RankError):
        world.run(task)
    assert {s.name for s in world.trace} == {"barrier"}


def test_error_of_all_is_told_once(world):
    with pytest.raises(RankError, match=r"rank 0: ZeroDivisionError: .* \(ranks 1, 2 raised the same error\)"):
        world.run(lambda comm: 1 / 0)


def test_failed_collective_does_not_poison_the_next(world):
    for _ in range(3):
        with pytest.raises(RankError, match="rank 2: RuntimeError"):
            world.run(lambda comm: comm.all_reduce(np.ones(50_000)) if comm.rank < 2 else exec("raise RuntimeError"))
        assert world.run(lambda comm: comm.all_reduce(np.ones(3)).sum()) == [9.0] * SIZE


def test_hung_ranks_are_named_with_their_places(world):
    start = time.perf_counter()
    error = too_late(world, lambda comm: comm.rank and wait_for_message(comm), r"(?s)rank 1 waited.*rank 2 waited")
    assert time.perf_counter() - start < SOON
    assert isinstance(error, CommTimeoutError)
    lines = str(error).splitlines()
    assert re.fullmatch(r"rank 1: has not returned after [\d.]+ s, nor has rank 2; rank 0 had returned:", lines[0])
    assert re.match(
        r"  rank 1 waited for recv\(source=2, tag=4\) of 16 bytes \(test_engines.py, line \d+, in wait", lines[1]
    )
    assert re.match(r"  rank 2 waited for recv\(source=0, tag=4\)", lines[2])


@pytest.mark.parametrize("n", [1, 3, 100_000])
def test_a_rank_that_returns_early_is_no_reason_for_numbers(world, n):
    """The messages with which it waits for the others to return are none that their collectives can take."""
    task = lambda comm: "early" if comm.rank == 1 else comm.all_reduce(np.ones(n)).sum()  # noqa: E731
    error = r"rank 1 has returned where rank 0 calls all_reduce\(op='sum', .*\) \(test_engines.py, line \d+"
    with pytest.raises(RankError, match=error + r".* \(this is number 1\)"):  # of the function's own calls
        world.run(task)


def test_ranks_that_wait_for_long_are_shown(world, monkeypatch, capsys):
    def task(comm):
        if comm.rank == 1:
            comm.clock.sleep(1.5)
        return comm.all_reduce(np.ones(3)).sum()

    monkeypatch.setattr(world, "patience", 0.3)
    assert world.run(task) == [9.0] * SIZE
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "EngineWorld: ranks have been waiting for a long time:"
    for line, rank in ((lines[1], 0), (lines[3], 2)):
        assert re.fullmatch(
            rf"  rank {rank} waits for all_reduce of 24 bytes \(test_engines.py, line \d+, in task\)", line
        )
    assert re.fullmatch(r"  rank 1 is at test_engines.py, line \d+, in task", lines[2])
    assert lines[4].startswith("Ctrl-C ends the run")
    assert len(lines) == 5, "it is said once"


def test_ranks_that_all_wait_are_a_deadlock(world, monkeypatch, capsys):
    monkeypatch.setattr(world, "patience", 0.3)
    with pytest.raises(RankDeadlockError) as caught:
        world.run(wait_for_message)
    head, *lines = str(caught.value).splitlines()
    assert head == "rank 0: deadlock: all ranks wait, and have waited for 0.3 s:"
    for rank, line in enumerate(lines):
        what = rf"recv\(source={(rank + 1) % SIZE}, tag=4\) of 16 bytes"
        assert re.fullmatch(
            rf"  rank {rank} waited for {what} \(test_engines.py, line \d+, in wait_for_message\)", line
        )
    assert capsys.readouterr().err == ""


def test_a_rank_that_has_waited_for_long_and_goes_on_is_no_deadlock(world, monkeypatch):
    """When rank 1 has what it waited for, it computes for longer than the others wait."""

    def task(comm):
        if comm.rank == 0:
            comm.clock.sleep(0.6)
            comm.send(np.ones(1), 1)
        if comm.rank == 1:
            comm.recv(np.zeros(1), 0)
            comm.clock.sleep(1.0)
        return comm.all_reduce(np.ones(3)).sum()

    monkeypatch.setattr(world, "patience", 0.2)
    assert world.run(task) == [9.0] * SIZE


def test_rank_lost_in_its_own_code_is_named(world):
    def endless(comm):
        while comm.rank == 1:
            pass

    wanted = r"rank 1: has not returned.*\n  rank 1 was at test_engines.py, line"
    assert re.search(wanted, str(too_late(world, endless, wanted)))


def test_launch_that_some_ranks_never_began(world):
    """Rank 1 is busy with something else; the others' half-made communicator must meet its match later."""
    busy = world.client[world._ranks.ids[1]].apply_async(time.sleep, 30)  # it is interrupted, too
    with pytest.raises(RankTimeoutError, match="rank 0: has not returned") as caught:
        world.run(ranks, timeout=0.4)
    assert "was starting or ending" in str(caught.value)
    busy.wait(10)
    assert works(world)


def test_notebook_interrupt_interrupts_the_ranks(world):
    when_reported(world, threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start)
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt, match=r"rank 0 waited for recv\(source=1, tag=4\)") as caught:
        world.run(wait_for_message)
    assert time.perf_counter() - start < SOON
    entries = [f for f, _ in traceback.walk_tb(caught.value.__traceback__) if not f.f_locals.get("__tracebackhide__")]
    assert [f.f_code.co_name for f in entries] == ["test_notebook_interrupt_interrupts_the_ranks"]


def test_an_engine_that_is_interrupted_twice_in_a_row_answers(world):
    """The second time while it tells of the first."""

    def twice():
        from IPython import get_ipython

        kernel = get_ipython().kernel
        real = kernel.finish_metadata

        def struck_again(*args):
            kernel.finish_metadata = real
            os.kill(os.getpid(), signal.SIGINT)
            return real(*args)

        kernel.finish_metadata = struck_again
        raise KeyboardInterrupt

    call = world.client[world._ranks.ids[1]].apply_async(twice)
    call.wait(15)
    assert getattr(call.exception(0), "ename", "") == "KeyboardInterrupt"


def test_progress_that_cannot_be_shown_is_an_error_after_which_the_world_works(world):
    def show(step, total, **values):
        raise ZeroDivisionError("drawing failed")

    pids, before = world.pids, set(world.client.outstanding)
    world.progress = show
    with pytest.raises(ZeroDivisionError, match="drawing failed"):
        world.run(wait_for_message)
    assert world.client.outstanding <= before, "no engine works on"
    world.progress = False
    assert works(world)
    assert world.pids == pids, "the engines are the same"


def test_message_left_lying_is_an_error(world):
    error = (
        r"rank 0: CommError: send\(dest=2, tag=0\) of 8 bytes was started and never waited for \(test_engines.py, line"
    )
    with pytest.raises(RankError, match=error):
        world.run(lambda comm: comm.isend(np.zeros(1), 2) and None if comm.rank == 0 else None)


def test_what_cannot_travel(world):
    with pytest.raises(TypeError, match=r"cannot be sent to the engines: cannot pickle '_thread.lock' object"):
        world.run(lambda comm, lock: None, threading.Lock())
    with pytest.raises(TypeError, match="an EngineWorld cannot be sent to its own ranks"):
        world.run(lambda comm: world.size)
    with pytest.raises(TypeError, match="'text' is not a function"):
        world.run("text")
    with pytest.raises(RankError, match="rank 0: TypeError: the result, a lock, cannot be sent back"):
        world.run(lambda comm: threading.Lock())


# -- what dies ---------------------------------------------------------------------------------------------------------


def test_killed_rank_is_named_and_comes_back(world, capfd):
    def task(comm):
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    start = time.perf_counter()
    with pytest.raises(RankError, match=r"rank 1: its process \(\d+\) was killed \(SIGKILL\)"):
        world.run(task)
    assert time.perf_counter() - start < SOON
    assert works(world)
    assert "EngineWorld: restarted 3 engines in" in capfd.readouterr().err


def test_rank_stuck_in_c_is_named_and_replaced(world):
    error = too_late(world, lambda comm: comm.raw.Barrier() if comm.rank else None, "could not be interrupted")
    assert re.search(r"(?s)rank 2 was at test_engines.py, line \d+, in <lambda>.*could not be interrupted", str(error))


@pytest.mark.nightly
def test_engine_that_died_between_runs(world, capfd):
    world.client[world._ranks.ids[2]].apply_async(os._exit, 3)
    deadline = time.monotonic() + 10
    while not world._ranks.problem() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert works(world)
    assert re.search(r"\(rank 2: its process \(\d+\) ended with exit code 3", capfd.readouterr().err)


@pytest.mark.nightly
def test_dead_controller_is_noticed(world, capfd):
    when_reported(world, world._cluster._controller.kill)
    with pytest.raises(CommError, match="the controller of the engines died during the run"):
        world.run(wait_for_message)
    assert works(world)


@pytest.mark.parametrize("engines", [0, -1, 2.5, "4", True, None])
def test_bad_number_of_engines(engines):
    with pytest.raises(ValueError, match=r"EngineWorld: engines is .*, expected a whole number of 1 or more"):
        EngineWorld(engines)
