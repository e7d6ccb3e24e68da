"""Tests of worlds leave nothing behind: no cluster's folder, no process."""

import os

import psutil
import pytest

from distlearn.world import reaper


@pytest.fixture(autouse=True, scope="package")
def _nothing_left():
    before = set(reaper.clusters_folder().glob("cluster-*"))
    yield
    mine = {f for f in set(reaper.clusters_folder().glob("cluster-*")) - before if owner(f) == os.getpid()}
    assert not mine
    children = [p for p in psutil.Process().children(recursive=True) if "reaper.py" in " ".join(p.cmdline())]
    assert not children


def owner(folder) -> int:
    import json

    return json.loads((folder / "owner.json").read_text(encoding="utf-8"))["pid"]


def living(pids) -> list[int]:
    """Those of the processes that still run (a zombie does not)."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.Error:
            pass
    return found
