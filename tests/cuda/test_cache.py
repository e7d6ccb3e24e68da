"""Where built kernels are kept, when the ordinary place will not do."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from distlearn.cuda import CompilerNotFound, RawKernel
from distlearn.cuda.emulator import build, compilers

SCRIPT = """
import numpy as np
from distlearn.cuda import RawKernel
x = np.zeros(32, np.float32)
RawKernel('extern "C" __global__ void k(float* x) { x[threadIdx.x] = 7; }', "k")((1,), (32,), (x,))
print(x.sum())
"""


@pytest.mark.parametrize("why", ["not a directory", "not writable"])
def test_a_temporary_place_stands_in(monkeypatch, fresh_cache, tmp_path, why):
    place = tmp_path / "given"
    if why == "not a directory":
        place.touch()
    else:
        monkeypatch.setattr(os, "access", lambda *a: False)
    monkeypatch.setenv("DISTLEARN_CACHE", str(place))
    assert build.cache_directory() == tmp_path / f"distlearn-cuda-{os.getuid()}"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files")
def test_a_directory_of_somebody_else_is_not_used(monkeypatch, fresh_cache, tmp_path):
    monkeypatch.setenv("DISTLEARN_CACHE", os.devnull)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # a number that no name belongs to
    assert build.cache_directory() != tmp_path / "distlearn-cuda-54321"
    assert build.cache_directory().is_dir()


def test_what_killed_builds_left_is_swept_up(monkeypatch, fresh_cache, tmp_path):
    monkeypatch.setenv("DISTLEARN_CACHE", str(tmp_path))
    old, young = build.cache_directory() / "building-old", build.cache_directory() / "building-young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    with build.scratch_directory() as scratch:
        assert scratch.is_dir()
    assert [p.name for p in build.cache_directory().iterdir()] == ["building-young"]


@pytest.mark.nightly
def test_processes_that_build_at_the_same_time(tmp_path):
    environment = os.environ | {"DISTLEARN_CACHE": str(tmp_path)}
    several = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        assert [p.communicate(timeout=120)[0] for p in several] == ["224.0\n"] * 2
    finally:
        for process in several:
            process.kill()
            process.wait()
    kept = sorted(p.name.partition("-")[0].partition(".")[0] for p in (tmp_path / "cuda").iterdir())
    assert kept == ["k", "k", "parts", "probe", "probe"]  # programs and their data, and a folder of what both share
    (shared,) = (tmp_path / "cuda").glob("parts-*")
    headers = {"cuda_emu.h.gch"} if compilers.find_compiler().kind == "gcc" else set()
    assert {p.name for p in shared.iterdir()} == {"checker.o", "examined", "lock"} | headers


def test_a_compiler_that_was_named_but_does_not_run(monkeypatch):
    monkeypatch.setenv("DISTLEARN_CXX", "/nowhere/c++ -O1")
    compilers.find_compilers.cache_clear()
    try:
        with pytest.raises(CompilerNotFound, match="DISTLEARN_CXX names '/nowhere/c\\+\\+ -O1', which does not run"):
            compilers.find_compiler()
    finally:
        monkeypatch.undo()
        compilers.find_compilers.cache_clear()


def test_an_edited_header_is_built_anew(tmp_path):
    inner, outer = tmp_path / "inner.h", tmp_path / "outer.h"
    outer.write_text('#include "inner.h"\n')
    source = '#include "outer.h"\nextern "C" __global__ void k(float* x) { x[threadIdx.x] = VALUE; }'
    for value in (3, 4, 3):
        inner.write_text(f"#define VALUE {value}\n")
        x = np.zeros(4, np.float32)
        RawKernel(source, "k", (f"-I{tmp_path}",))((1,), (4,), (x,))
        assert (x == value).all()
