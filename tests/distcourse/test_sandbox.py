"""The sandbox of grading: what a program in it sees, may do, and leaves behind."""

import os
import shlex
import socket
import subprocess
import sys
import time
from unittest.mock import patch

import psutil
import pytest
from distcourse.author import sandbox

pytestmark = pytest.mark.skipif(bool(sandbox.available()), reason=f"no sandbox: {sandbox.available()}")


def run(text, folder, **more):
    """Run lines of a shell; return the exit status and what was printed."""
    with patch.object(sandbox, "ROOM", 2**20):
        command = sandbox.Sandbox(folder).command(["/bin/sh", "-c", text], dict(os.environ), **more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_environment_of_who_grades_is_not_inside(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED", "the-secret")
    _, said = run("cat /proc/1/environ /proc/*/environ /proc/*/cmdline", tmp_path)
    assert "PATH=" in said
    assert "the-secret" not in said


@pytest.mark.parametrize(
    "text",
    [
        "touch {here}/new",
        "touch {library}/new.txt",
        "mount -o remount,rw,bind {top}",
        "unshare -Urm sh -c 'mount -o remount,rw,bind {top} && touch {here}/new'",
        "unshare -Urmpf sh -c 'mount -t proc proc /proc && : >> /proc/sys/kernel/core_pattern'",
        "unshare -Urm sh -c 'umount /proc/sys && : >> /proc/sys/kernel/core_pattern'",
        ": >> /proc/sys/kernel/core_pattern",
        ": >> /proc/sysrq-trigger",
        "touch /new",
        "touch /dev/new",
        "touch /etc/new",
        "kill -9 1 && sleep 1",
        "mknod /home/student/disk b 8 0",
        "for i in 1 2 3; do head -c 500000 /dev/zero > /tmp/full$i || exit 1; done",
        "head -c 3000000 /dev/zero > /dev/shm/full",
    ],
)
def test_what_a_program_may_not_do(text, tmp_path):
    shared, other = tmp_path / "shared", tmp_path / "other"
    shared.mkdir()
    other.mkdir()
    status, said = run(
        text.format(here=other, top="/" + tmp_path.parts[1], library=sandbox.PACKAGES[0]), shared, files=[other]
    )
    assert status != 0 or "kill" in text, said
    assert not list(other.iterdir())
    assert run(f"touch {shared}/new", shared)[0] == 0, "where it may write, it does"


def test_a_program_has_no_capability_and_no_other_process(tmp_path):
    _, said = run("grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status; ls /proc; cat /proc/net/dev", tmp_path)
    assert {line.split()[1] for line in said.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in said
    assert sum(word.isdigit() for word in said.partition("Inter-")[0].split("\n")) <= 4
    assert "eth" not in said


def test_a_program_reaches_nothing_that_listens_on_this_machine(tmp_path):
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        abstract.bind("\0sandbox-" + str(tcp.getsockname()[1]))
        doors = [(end.family.value, end.getsockname()) for end in (tcp, abstract)]
        for end in (tcp, abstract):
            end.listen()
        code = (
            f"import socket\nfor kind, where in {doors!r}: print(socket.socket(kind).connect_ex(where) or 'CONNECTED')"
        )
        _, said = run(f"{sys.executable} -c {shlex.quote(code)}", tmp_path)
    assert len(said.split()) == 2, said
    assert "CONNECTED" not in said


def alive(word):
    """Processes with this word on their command line."""
    return [p for p in psutil.process_iter(["cmdline"]) if word in (p.info["cmdline"] or ())]


def until(condition):
    """Wait until something holds; return whether it does."""
    give_up = time.monotonic() + 20
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("how", ["its program ends", "it is killed", "its parent is killed"])
def test_what_a_program_starts_ends_with_it(how, tmp_path):
    number = f"7070{['its program ends', 'it is killed', 'its parent is killed'].index(how)}"
    text = f"setsid sleep {number} & echo started; " + ("" if how == "its program ends" else "sleep 50")
    command = sandbox.Sandbox(tmp_path).command(["/bin/sh", "-c", text], dict(os.environ))
    if how == "its parent is killed":
        command = [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"started\n"
        if how != "its program ends":
            assert until(lambda: alive(number))
            process.kill()
    assert until(lambda: not alive(number))
