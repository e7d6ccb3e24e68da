import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distlearn.world import launching, reaper
from distlearn.world.launching import kill_tree, launch, thread_settings

from .conftest import living


def test_mpiexec_is_the_one_beside_the_interpreter(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert Path(launching.find_mpiexec()).parent == Path(sys.prefix) / "bin"


def test_missing_mpiexec_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match=r"pip install 'distlearn\[mpi\]'"):
        launching.find_mpiexec()


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(launching, "count_cores", lambda: 8)
    assert set(thread_settings(2).values()) == {"4"}
    assert set(thread_settings(3).values()) == {"2"}
    assert set(thread_settings(16).values()) == {"1"}
    assert set(thread_settings(4, threads=5).values()) == {"5"}


def test_users_choice_of_threads_is_left_alone(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert thread_settings(2) == {}
    assert thread_settings(2, threads=1)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_bad_threads(threads):
    with pytest.raises(ValueError, match="threads is"):
        thread_settings(2, threads)


def test_root_may_run_open_mpi(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OMPI", "PRTE")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert set(launching.mpi_settings()) == {
        "PRTE_MCA_rmaps_default_mapping_policy",
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    }
    monkeypatch.setenv("PRTE_MCA_rmaps_default_mapping_policy", "slot")
    assert "PRTE_MCA_rmaps_default_mapping_policy" not in launching.mpi_settings()


@pytest.mark.parametrize("n", [0, -1, 1.5, "2"])
def test_bad_number_of_ranks(n):
    with pytest.raises(ValueError, match=r"launch: n is .*, expected a whole number of 1 or more"):
        launch(n, ["python"])


@pytest.mark.mpi
def test_ranks_run_and_report_failure(tmp_path):
    # each rank writes a file of its own: what two ranks print at the same moment may come out in each other's lines
    code = f"import os, sys, time; os.chdir({str(tmp_path)!r}); print('#', flush=True); "
    code += "out = open(str(os.getpid()), 'w'); out.write(os.environ['OMP_NUM_THREADS'] + os.environ['MINE']); "
    code += "out.close(); [time.sleep(0.01) for _ in range(6000) if len(os.listdir('.')) < 2]; "
    code += "time.sleep(0.5); sys.exit(3)"  # the first to fail ends the other
    done = launch(2, ["python", "-c", code], threads=7, env={"MINE": "x"}, timeout=90, capture=True)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["7x", "7x"]
    assert done.stdout.count("#") == 2
    assert done.returncode != 0


PROXY = """
import sys, time
file = open(sys.argv[1], "w")
print("open", flush=True)
time.sleep(60)
"""
"""Holds a file open, as MPICH's proxy does, and cannot remove it when it is killed."""


@pytest.mark.parametrize("grace", [None, 0.0, 0.3])
def test_a_killed_proxys_topology_is_removed_and_nobody_elses(tmp_path, grace):
    mine, other, log = (tmp_path / name for name in ("hydra_hwloc_xmlfile_a", "hydra_hwloc_xmlfile_b", "log"))
    other.touch()
    environment = os.environ | {reaper.MARK: str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", PROXY, str(path)], env=environment, stdout=subprocess.PIPE)
        for path in (mine, log)
    ]
    for process in processes:
        process.stdout.readline()
    if grace is None:
        for process in processes:
            kill_tree(process.pid)
    else:
        reaper.kill_marked(tmp_path, grace)
    for process in processes:
        process.communicate(timeout=10)
    assert [path.exists() for path in (mine, other, log)] == [False, True, True]


@pytest.mark.mpi
def test_hung_ranks_are_killed(tmp_path):
    code = f"import os, time; open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w'); time.sleep(60)"
    for timeout in (2.0, 20.0):
        for path in tmp_path.iterdir():
            path.unlink()
        start = time.perf_counter()
        with pytest.raises(subprocess.TimeoutExpired, match=f"timed out after {timeout} seconds"):
            launch(2, ["python", "-c", code], timeout=timeout)
        assert time.perf_counter() - start < 50, "the ranks sleep for a minute"
        pids = [int(path.name) for path in tmp_path.iterdir()]
        assert not living(pids)
        if len(pids) == 2:  # on a slow machine they may not have begun
            break
    assert len(pids) == 2
