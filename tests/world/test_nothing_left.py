"""However the process that owns engines ends, nothing of them stays."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from distlearn.world import reaper
from distlearn.world.launching import find_mpiexec, is_hydra

from .conftest import living

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]

CLIENT = """
import json, os, sys, time
from distlearn.world import EngineWorld
world = EngineWorld(2)
pids = world.run(lambda comm: os.getpid())
cluster = world._cluster
print(json.dumps({"folder": str(cluster.folder), "pids": pids, "reaper": cluster._reaper.pid}), flush=True)
sys.stdin.readline()
"""
"""A process that starts engines, says so, and ends without closing them when its input ends."""


@pytest.fixture(scope="module", autouse=True)
def _place_of_their_own():
    """Or clusters of somebody else who tests on this machine would be swept here, and these there."""
    with tempfile.TemporaryDirectory(prefix="dl-") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", place)
        patch.setattr(tempfile, "tempdir", place)
        yield


@pytest.fixture(scope="module")
def clients():
    """Three of them, started at once."""
    started = [
        subprocess.Popen([sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        said = [json.loads(process.stdout.readline()) for process in started]
        for words in said:
            words["files"] = sorted(reaper.hydra_files(reaper.marked(words["folder"])))
        yield list(zip(started, said, strict=True))
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
        reaper.end_ownerless()


def gone(said, seconds=15.0) -> bool:
    """Whether all processes of a cluster, its reaper, its folder and its MPI's files disappear within some seconds."""
    deadline = time.monotonic() + seconds
    pids = [*said["pids"], said["reaper"]]
    while reaper.marked(said["folder"]) or living(pids) or any(map(os.path.exists, [said["folder"], *said["files"]])):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.nightly
def test_everything_carries_the_mark(clients):
    for _, said in clients:
        found = {p.pid for p in reaper.marked(said["folder"])}
        assert set(said["pids"]) <= found
        assert len(found) > 10  # a controller of several processes, mpiexec, engines
        assert len(said["files"]) == is_hydra(find_mpiexec())


def test_after_an_ordinary_end(clients):
    process, said = clients[0]
    process.stdin.close()
    assert process.wait(20) == 0
    assert gone(said, 1.0)


def test_after_a_kill(clients):
    process, said = clients[1]
    process.kill()
    process.wait()
    assert gone(said)


def test_next_cluster_sweeps_up_when_the_reaper_was_killed_too(clients):
    process, said = clients[2]
    os.kill(said["reaper"], signal.SIGKILL)
    process.kill()
    process.wait()
    assert set(said["pids"]) <= {p.pid for p in reaper.marked(said["folder"])}
    assert Path(said["folder"]) in reaper.end_ownerless()
    assert gone(said, 1.0)


def test_living_clusters_are_not_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(reaper, "clusters_folder", lambda: tmp_path)
    folder = reaper.new_folder()
    assert reaper.end_ownerless() == []
    assert folder.exists()
    other = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
    for change in ({"where": "another machine", "pid": 1}, {"created": other["created"] - 100}):
        (folder / "owner.json").write_text(json.dumps(other | change), encoding="utf-8")
        assert reaper.end_ownerless() == ([] if "where" in change else [folder])


def test_a_folder_without_an_owner_is_left_for_a_minute_and_swept_then(tmp_path, monkeypatch):
    monkeypatch.setattr(reaper, "clusters_folder", lambda: tmp_path)
    folder = tmp_path / "cluster-half-removed"
    folder.mkdir()
    assert reaper.end_ownerless() == []
    os.utime(folder, (0, 0))
    assert reaper.end_ownerless() == [folder]
    assert not folder.exists()


def test_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reaper.tempfile, "gettempdir", lambda: str(tmp_path))
    reaper.clusters_folder()
    assert (reaper.clusters_folder().stat().st_mode & 0o777) == 0o700
    real = os.getuid()
    (tmp_path / f"distlearn-{real + 1}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: real + 1)
    with pytest.raises(RuntimeError, match="belongs to another user"):
        reaper.clusters_folder()


def test_a_folder_that_disappears_meanwhile_is_nobodys_trouble(tmp_path, monkeypatch):
    """Two owners may sweep at once: what one has listed, the other has removed."""
    listed = type("Listed", (), {"glob": lambda self, pattern: [tmp_path / "cluster-just-removed"]})()
    monkeypatch.setattr(reaper, "clusters_folder", lambda: listed)
    assert reaper.end_ownerless() == []
