"""A small bubblewrap, for machines that have none: run a program in Linux namespaces of its own.

    python -I -S namespaces.py PLAN PROGRAM ARGUMENT ...

PLAN is JSON: `mounts`, a list of [kind, source, target]; `environment`, all the variables that the program gets, or
null for those of this process; `folder`, where it starts. Kinds are `ro` and `bind` (a file or folder of this machine,
read-only or not, with what is mounted below), `tmpfs` (source is its size in bytes), `proc` and `dev`. The program
sees nothing else: a new root, no network, no other process, no capability; it ends with this process, and all that it
has started ends with it. Only the standard library is imported, so that starting takes a few hundredths of a second.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import struct
import sys

NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""CLONE_NEW: mounts, cgroups, host name, IPC, users, processes, network."""
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, SLAVE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 19
FLAGS = {"ro": RDONLY, "nosuid": NOSUID, "nodev": NODEV, "noexec": NOEXEC}
FLAGS |= {"noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
DETACH = 2
SET_DEATH_SIGNAL, DROP_CAPABILITY, NO_NEW_PRIVILEGES = 1, 24, 38
OLD = "/.old"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
FORBIDDEN = ": users may not create namespaces here (a limit of /proc/sys/user, AppArmor's or a container's rule)"
_libc = ctypes.CDLL(None, use_errno=True)


def command(mounts, program, environment=None, folder=None) -> list[str]:
    """Return the command that runs a program in this way.

    Parameters
    ----------
    mounts : list of (str, str, str)
        As in the plan.
    program : list of str
    environment : dict, optional
    folder : str, optional
    """
    plan = json.dumps({"mounts": mounts, "environment": environment, "folder": folder})
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), plan, *program]


def everything() -> list[tuple[str, str, str]]:
    """Mounts that show the machine as it is, but read-only, and with no process."""
    own = [("ro", f"/{name}", f"/{name}") for name in os.listdir("/") if name not in ("proc", "dev")]
    return [*own, ("tmpfs", str(2**20), "/proc"), ("dev", "", "/dev")]


def _call(name: str, *args) -> None:
    args = [a.encode() if isinstance(a, str) else a for a in args]
    args = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in args]
    if getattr(_libc, name)(*args) != 0:
        error = ctypes.get_errno()
        told = f"{name}{[a for a in args if isinstance(a, bytes)] or ''}"
        raise OSError(error, told + FORBIDDEN if name == "unshare" else f"{told}: {os.strerror(error)}")


def _mount(source, target, kind=None, flags=0, data=None) -> None:
    _call("mount", source, target, kind, flags, data)


def _end_with_parent() -> None:
    _libc.prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _enter() -> None:
    """Leave the namespaces of this process; its user is number 1000 in the new ones."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", NAMESPACES)
    for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {user} 1"), ("gid_map", f"1000 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _build(mounts) -> None:
    """Make the new root, and leave the old one."""
    # symbolic links may be absolute: follow them while the old root is there
    mounts = [(kind, os.path.realpath(s) if kind in ("ro", "bind") else s, t) for kind, s, t in mounts]
    _mount(None, "/", None, SLAVE | REC)
    _mount("tmpfs", "/tmp", "tmpfs", NOSUID | NODEV, "mode=0755,size=16m")
    os.mkdir("/tmp" + OLD)
    _call("pivot_root", "/tmp", "/tmp" + OLD)
    os.chdir("/")
    for kind, source, target in mounts:
        if kind in ("ro", "bind"):
            _bind(OLD + source, target, readonly=kind == "ro")
            continue
        os.makedirs(target, exist_ok=True)
        if kind == "tmpfs":
            _mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"mode=0755,size={source}")
        elif kind == "proc":
            _mount("proc", target, "proc", NOSUID | NODEV | NOEXEC)
            for name in filter(os.path.exists, (f"{target}/{part}" for part in ("sys", "sysrq-trigger", "irq", "bus"))):
                _bind(name, name, readonly=True)  # what belongs to the machine, and root may write
        else:
            _devices(target)
    _call("umount2", OLD, DETACH)
    os.rmdir(OLD)
    _mount(None, "/", None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)


def _bind(source: str, target: str, readonly: bool, devices: bool = False) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    _mount(source, target, None, BIND | REC)
    real = os.path.realpath(target)
    for place, options in _mounted():
        if place == real or place.startswith(real + "/"):
            flags = REMOUNT | BIND | NOSUID | (0 if devices else NODEV) | (RDONLY if readonly else 0)
            _mount(None, place, None, flags | sum(FLAGS.get(o, 0) for o in options if not flags & FLAGS.get(o, 0)))


def _mounted() -> list[tuple[str, list[str]]]:
    """Return (place, options) of every mount."""
    found = []
    with open(f"{OLD}/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            place = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), words[4])
            found.append((place, words[5].split(",")))
    return found


def _devices(target: str) -> None:
    _mount("tmpfs", target, "tmpfs", NOSUID, "mode=0755,size=1m")
    for name in DEVICES:
        if os.path.exists(f"{OLD}/dev/{name}"):
            _bind(f"{OLD}/dev/{name}", f"{target}/{name}", readonly=False, devices=True)
    for i, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{i}", f"{target}/{name}")
    os.symlink("/proc/self/fd", f"{target}/fd")
    os.mkdir(f"{target}/shm")
    os.mkdir(f"{target}/pts")
    _mount("devpts", f"{target}/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", f"{target}/ptmx")


def _loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        fcntl.ioctl(end, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def _drop_capabilities() -> None:
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for number in range(64):
        _libc.prctl(DROP_CAPABILITY, number, 0, 0, 0)  # it ends with an error: the kernel knows no more
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _call("capset", header, nothing)


def _status(told: int) -> int:
    code = os.waitstatus_to_exitcode(told)
    return code if code >= 0 else 128 - code


def main(plan: str, *program: str) -> None:
    """Run a program; exit with its status, or 128 and the signal's number."""
    told, here = json.loads(plan), os.getcwd()
    _end_with_parent()
    _enter()
    first = os.fork()
    if first:  # the namespace of processes begins with the child
        sys.exit(_status(os.waitpid(first, 0)[1]))
    _end_with_parent()
    _build(told["mounts"])
    _loopback()
    _call("sethostname", b"grading", 7)
    os.chdir(told["folder"] or here)
    _drop_capabilities()
    child = os.fork()
    if child == 0:
        os.setsid()
        environment = os.environ if told["environment"] is None else told["environment"]
        os.execvpe(program[0], list(program), environment)
    while True:  # the first process of a namespace inherits those that others leave behind
        ended, told = os.wait()
        if ended == child:
            os._exit(_status(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
