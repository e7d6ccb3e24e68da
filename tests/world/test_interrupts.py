"""Ctrl-C wherever it strikes: held back, let through, and at every line of a run."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import psutil
import pytest

from distlearn.trace import Trace
from distlearn.world import EngineWorld, client, interrupts, launching
from distlearn.world.interrupts import check_interrupts, defer_interrupts
from distlearn.world.launching import launch
from distlearn.world.outcome import Outcome

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX's signals")


def strike():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler_comes_back():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


# -- the tool


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []

    def work():
        with defer_interrupts():
            with defer_interrupts():
                strike()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


def test_an_interrupt_comes_where_it_is_let_through_and_only_once():
    done = []
    with defer_interrupts():
        check_interrupts()  # there is none
        strike()
        strike()
        with pytest.raises(KeyboardInterrupt):
            check_interrupts()
        check_interrupts()
        done.append("went on")
    assert done == ["went on"]
    check_interrupts()


def test_an_interrupt_that_is_under_way_already_is_not_followed_by_another():
    def work():
        with defer_interrupts():
            strike()
            raise KeyboardInterrupt("with words")

    with pytest.raises(KeyboardInterrupt, match="with words"):
        work()


def test_an_error_gives_way_to_an_interrupt_but_is_told():
    def work():
        with defer_interrupts():
            strike()
            raise ValueError("first")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


def test_who_insists_is_obeyed_on_the_spot(monkeypatch):
    done = []
    monkeypatch.setattr(interrupts, "INSIST_SECONDS", -1.0)  # seconds since the first one

    def work():
        with defer_interrupts():
            strike()
            done.append("first")
            strike()
            done.append("second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first"]


def test_a_handler_of_the_users_is_asked(monkeypatch):
    calls = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: calls.append(signum))
    try:
        with defer_interrupts():
            strike()
            assert calls == []
            check_interrupts()
            strike()
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [signal.SIGINT] * 2


def test_an_ignored_interrupt_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_threads_hold_nothing_back():
    def hold():
        with defer_interrupts():
            check_interrupts()
            seen.append(signal.getsignal(signal.SIGINT))

    seen = []
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


# -- at every line of what uses it


class StrikeAtLine:
    """Interrupts this process when so many lines of some functions have run.

    Parameters
    ----------
    number : int
    files : tuple of str
        Parts of names: lines of other files do not count.
    """

    def __init__(self, number, *files):
        self.left, self.files, self.struck = number, files, False

    def trace(self, frame, event, arg):
        if not any(name in frame.f_code.co_filename for name in self.files):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.struck = True
                strike()
        return self.trace

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *exc):
        sys.settrace(self._before)


class Handle(Future):
    """What ipyparallel gives for a task."""

    def __init__(self):
        super().__init__()
        self.metadata = {"data": {}, "stdout": "", "stderr": ""}

    def wait_for_output(self, timeout):
        return True


class FakeRanks:
    """Ranks that end when they are interrupted, or (`endless` False) by themselves."""

    cluster, size = SimpleNamespace(has_controller=lambda: True), 2

    def __init__(self, endless):
        self.endless, self.handles = endless, []

    def problem(self):
        return ""

    def died(self):
        return []

    def submit(self, payload, **options):
        handles = [Handle() for _ in range(self.size)]
        self.handles += enumerate(handles)
        if not self.endless:
            self.end("returned", range(self.size))
        return handles

    def end(self, status, ranks):
        for rank, handle in self.handles:
            if rank in ranks and not handle.done():
                handle.set_result((pickle.dumps(Outcome(rank, status)), pickle.dumps(rank)))

    def interrupt(self, ranks):
        self.end("interrupted", ranks)

    def mark_completed(self):
        pass

    def is_alive(self, rank):
        return False


def world_of(group):
    world = EngineWorld.__new__(EngineWorld)
    world.timeout, world.patience, world.progress, world.strict = 30, 10, False, False
    world._restart_reason, world._closed, world._cluster, world._ranks, world.trace = "", False, None, group, Trace()
    return world


@pytest.mark.parametrize("endless", [False, True])
def test_a_run_that_is_interrupted_at_any_line_leaves_no_rank_at_work(endless, monkeypatch):
    monkeypatch.setattr(client, "TICK", 0.001)
    monkeypatch.setattr(client, "PAUSE", 0.001)
    for number in range(1, 150 if endless else 10_000):
        group = FakeRanks(endless)
        world = world_of(group)
        striker = StrikeAtLine(number, *(f"distlearn/world/{name}.py" for name in ("engines", "client", "interrupts")))
        results = None
        try:
            with striker:
                results = world.run(len, "x")
        except KeyboardInterrupt as error:
            results = error
        assert isinstance(results, KeyboardInterrupt) == striker.struck, number
        assert all(handle.done() for _, handle in group.handles), f"a rank works on, interrupted at line {number}"
        assert world._restart_reason == "", number
        if not striker.struck:
            break
    assert number > 100


def test_mpiexec_that_was_just_started_does_not_outlive_an_interrupt(tmp_path, monkeypatch):
    """At any line (here at every eleventh): from the fork on there is a process, of which Python may not know yet."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    mpiexec.chmod(0o755)
    monkeypatch.setattr(launching, "find_mpiexec", lambda: str(mpiexec))
    before = set(psutil.Process().children())
    left = []
    for number in range(1, 10_000, 11):
        striker = StrikeAtLine(number, "world/launching.py", "subprocess.py")
        with pytest.raises((KeyboardInterrupt, subprocess.TimeoutExpired)), striker:
            launch(1, ["python"], timeout=0.01)
        left += [(number, p.pid) for p in set(psutil.Process().children()) - before]
        for _, pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert not left, "(line, process)"
        if not striker.struck:
            break
    assert number > 100
