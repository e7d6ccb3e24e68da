"""The sandbox of our own: what a program in it sees, may do, and leaves behind."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from distlearn.lab.author import sandbox
from distlearn.lab.judge import namespaces

pytestmark = pytest.mark.skipif(bool(sandbox.why_not("namespaces")), reason=sandbox.why_not("namespaces"))


def run(text, mounts=None, **more):
    """Run lines of a shell; return the exit status and what was printed."""
    mounts = namespaces.everything() if mounts is None else mounts
    command = namespaces.command(mounts, ["/bin/sh", "-c", text], **more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def system():
    """The mounts that programs need."""
    own = [("ro", path, path) for path in sandbox.readable()]
    return [("proc", "", "/proc"), ("dev", "", "/dev"), ("tmpfs", str(2**20), "/home/student"), *own]


def test_a_program_sees_its_mounts_and_nothing_else(tmp_path):
    (tmp_path / "given").write_text("yes", encoding="utf-8")
    (tmp_path / "kept").write_text("secret", encoding="utf-8")
    mounts = [*system(), ("ro", str(tmp_path / "given"), "/opt/given")]
    text = "cat /opt/given; ls /; cat /proc/net/dev; env; hostname"
    status, said = run(text, mounts, environment={"PATH": "/usr/bin:/bin", "A": "b"}, folder="/home/student")
    assert status == 0, said
    assert said.startswith("yes")
    assert "grading" in said
    assert {"A=b", "opt", "home"} <= set(said.split())
    assert "etc" not in said.split()
    assert "eth" not in said
    assert "HOME=" not in said
    assert run(f"cat {tmp_path}/kept", mounts, folder="/")[0] != 0


@pytest.mark.parametrize(
    "text",
    [
        "touch {here}/new",
        "touch /new",
        "mount -o remount,rw,bind {top}",
        "umount -l {top}",
        "unshare -Urm sh -c 'mount -o remount,rw,bind {top} && touch {here}/new'",
        "echo spoiled > /proc/sys/kernel/core_pattern",
        "kill -9 1",
        "nsenter -t 1 -m touch {here}/new",
        "mknod /home/student/disk b 8 0",
    ],
)
def test_a_program_changes_nothing_outside(text, tmp_path):
    top, core = "/" + tmp_path.parts[1], Path("/proc/sys/kernel/core_pattern")
    before = core.read_text(encoding="ascii")
    mounts = [*system(), ("ro", str(tmp_path), str(tmp_path))]
    run(text.format(here=tmp_path, top=top), mounts, folder="/")
    assert not list(tmp_path.iterdir())
    assert core.read_text(encoding="ascii") == before
    assert run(f"touch {tmp_path}/new", [*system(), ("bind", str(tmp_path), str(tmp_path))], folder="/")[0] == 0
    assert (tmp_path / "new").exists(), "where it may write, it does"


def test_a_program_sees_no_process_of_the_machine():
    status, said = run("ls /proc", system(), folder="/")
    assert status == 0
    assert 2 <= sum(word.isdigit() for word in said.split()) <= 4


def test_a_program_has_no_capability_and_gets_none():
    status, said = run("grep -E 'Cap|NoNewPrivs' /proc/self/status; id -u", system(), folder="/")
    assert status == 0
    numbers = [line.split()[1] for line in said.splitlines() if line.startswith("Cap")]
    assert set(numbers) == {"0" * 16}
    assert "NoNewPrivs:\t1" in said
    assert said.splitlines()[-1] == "1000"


NOBODY = 65534
"""A user and a group that own nothing."""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests have run it as a user without rights")
def test_a_user_without_rights_gets_the_same_sandbox():
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}

    def runs(command):
        try:
            return subprocess.run(command, capture_output=True, check=False, **other).returncode == 0
        except OSError:  # a folder above it is closed to others
            return False

    pythons = [sys.executable, *filter(None, [shutil.which("python3", path="/usr/bin:/usr/local/bin")])]
    python = next((path for path in pythons if runs([path, "-I", "-S", "-c", "import ctypes, json"])), None)
    if python is None:
        pytest.skip("another user may run no Python of this machine")
    if not runs(["unshare", "--user", "true"]):
        pytest.skip("users may not make namespaces on this machine")
    text = "id -u; grep CapEff /proc/self/status; cat /proc/net/dev; ls /proc; touch /usr/new /new; cat /etc/shadow"
    folders = [("ro", path, path) for path in sandbox.SYSTEM if Path(path).exists()]
    mounts = [("proc", "", "/proc"), ("dev", "", "/dev"), ("tmpfs", str(2**20), "/home/student"), *folders]
    _, _, _, _, *plan = namespaces.command(mounts, ["/bin/sh", "-c", text], folder="/home/student")
    # the file itself may lie where the other user may not read
    command = [python, "-I", "-S", "-c", Path(namespaces.__file__).read_text(encoding="utf-8"), *plan]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **other)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["1000", "CapEff:\t" + "0" * 16], done.stderr
    assert "eth" not in done.stdout
    assert sum(line.isdigit() for line in lines[2:]) <= 4, "processes of the machine"
    assert done.stderr.count("Read-only file system") == 2
    assert "/etc/shadow" in done.stderr
    assert not Path("/usr/new").exists()


def test_memory_for_files_is_limited():
    status, said = run("head -c 3000000 /dev/zero > /home/student/x", system(), folder="/")
    assert status != 0
    assert "No space left" in said


@pytest.mark.parametrize("text", ["exit 3", "kill -9 $$", "python3 -c 'import os; os.abort()'; exit $?"])
def test_the_exit_status_comes_back(text):
    assert run(text)[0] == {"exit 3": 3, "kill -9 $$": 137}.get(text, 134)


def alive(word):
    """Whether a process with this word on its command line runs."""
    return [p for p in psutil.process_iter(["cmdline"]) if word in (p.info["cmdline"] or ())]


def until(condition):
    """Wait until something holds; return whether it does."""
    give_up = time.monotonic() + 20
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("how", ["its program ends", "it is killed", "its parent is killed"])
def test_what_a_program_starts_ends_with_it(how):
    number = f"7070{['its program ends', 'it is killed', 'its parent is killed'].index(how)}"
    text = f"setsid sleep {number} & echo started; " + ("" if how == "its program ends" else "sleep 50")
    command = namespaces.command(namespaces.everything(), ["/bin/sh", "-c", text])
    if how == "its parent is killed":
        command = [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"started\n"
        if how != "its program ends":
            assert until(lambda: alive(number))
            process.kill()
    assert until(lambda: not alive(number))
