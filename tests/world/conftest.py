"""Tests of worlds leave nothing behind: no cluster's folder, no process."""

import json
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
    children = [p for p in psutil.Process().children(recursive=True) if "reaper.py" in command(p)]
    assert not children


def owner(folder) -> int | None:
    """Process id of a cluster's owner; None for one of somebody else's that is just being made or removed."""
    try:
        return json.loads((folder / "owner.json").read_text(encoding="utf-8"))["pid"]
    except (OSError, ValueError):
        return None


def command(process) -> str:
    """The command line of a process; empty if it ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


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
