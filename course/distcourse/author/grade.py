"""Grade a class: several submissions at once, each by nbgrader, with progress, and to be continued where it stopped.

    python -m distcourse.author.grade COURSE LAB STUDENT

grades one submission, and writes a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import psutil
from filelock import FileLock, Timeout

from .release import config_of
from .source import Source, tests_of


class Graded(NamedTuple):
    """One submission: points by grade id, or why there are none; and what is worth a look."""

    student: str
    points: dict[str, float]
    error: str = ""
    looks: tuple[str, ...] = ()


def open_api(course, unsafe: bool = False):
    """Return nbgrader's API for a course directory."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    config = config_of(course)
    # several processes write to it: wait for each other
    config.CourseDirectory.db_url = f"sqlite:///{Path(course).resolve() / 'gradebook.db'}?timeout=120"
    if unsafe:
        config.ExecuteAll.unsafe = True
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def submitted(course, lab: str) -> list[str]:
    """Return the students that have handed in a lab, in order."""
    return sorted(path.parent.name for path in Path(course, "submitted").glob(f"*/{lab}") if path.is_dir())


def notes_of(path) -> dict:
    """Return what `Disarm` has noted in a graded notebook: the tests that it was graded by, and what to look at."""
    return json.loads(Path(path).read_bytes())["metadata"].get("distlearn", {})


def remaining(course, lab: str) -> list[str]:
    """Return the students whose submission has not been graded to its end, by the present tests, since it came."""
    found, now = [], [tests_of(Source(path)) for path in Path(course, "source", lab).glob("*.ipynb")]
    for student in submitted(course, lab):
        old = list(Path(course, "autograded", student, lab).glob("*.ipynb"))
        new = [path.stat().st_mtime for path in Path(course, "submitted", student, lab).glob("*.ipynb")]
        by = [notes_of(path).get("tests") for path in old]
        if not old or by != now or max(new, default=0) > min(p.stat().st_mtime for p in old):
            found.append(student)
    return found


def grade(course, lab: str, students, *, at_once: int | None = None, unsafe: bool = False):
    """Grade students; yield a `Graded` for each when it is done."""
    lock = FileLock(Path(course, ".grading.lock"), timeout=0)  # it ends with its process
    # all that workers leave, however they end
    scratch = tempfile.TemporaryDirectory(prefix="dl-", ignore_cleanup_errors=True)
    try:
        with lock, scratch as folder:
            yield from _grade(course, lab, students, at_once, unsafe, folder)
    except Timeout:
        raise RuntimeError(
            f"{course} is being graded by another process: wait for it, or stop it; what it has graded is kept"
        ) from None


def _grade(course, lab: str, students, at_once, unsafe, scratch):
    limit = 1.5 * config_of(course).ExecuteAll.get("budget", 1200)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TMPDIR": scratch}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    running, stop = [], threading.Event()

    def graded(student) -> Graded:
        command = [sys.executable, "-W", "ignore", "-m", __name__, str(course), lab, student, *["--unsafe"] * unsafe]
        began = time.monotonic()
        # a new session: Ctrl-C is for this process, which ends the others
        with subprocess.Popen(command, text=True, env=environment, start_new_session=True, **pipes) as process:
            running.append(process)
            if stop.is_set():
                process.kill()
            watch = threading.Timer(limit, process.kill)  # from outside: whatever holds it
            watch.start()
            try:
                told = json.loads(process.stdout.readline())
            except ValueError:
                told = {"points": {}, "error": f"stopped after {time.monotonic() - began:.0f} s: its worker was ended"}
            watch.cancel()
        return Graded(student, told["points"], told["error"], tuple(told.get("looks", ())))

    with ThreadPoolExecutor(at_once or os.cpu_count()) as pool:
        try:
            for one in as_completed([pool.submit(graded, student) for student in students]):
                yield one.result()
        finally:  # all are done, or it is interrupted
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.kill()


def _grade_one(api, lab: str, student: str) -> dict:
    from nbgrader.utils import parse_utc

    stamp = Path(api.coursedir.root, "submitted", student, lab, "timestamp.txt")
    if stamp.exists():  # nbgrader removes the grade that is there before it reads the file
        text = stamp.read_text(encoding="utf-8", errors="replace").strip()
        try:
            parse_utc(text or None)
        except (ValueError, OverflowError, TypeError):
            told = "expected a time such as 2027-01-16 08:00 UTC, 2027-01-16 08:00 Europe/Berlin or"
            return {"points": {}, "error": f"{stamp}: {text!r}, {told} 2027-01-16T08:00:00+01:00"}
    handed_in, wanted = (Path(api.coursedir.root, *part, lab) for part in (("submitted", student), ("source",)))
    found, expected = ({path.name for path in folder.glob("*.ipynb")} for folder in (handed_in, wanted))
    if not found & expected:
        names = ", ".join(map(repr, sorted(found))) or "no notebook"
        return {"points": {}, "error": f"{handed_in}: found {names}, expected {', '.join(expected)}: rename it"}
    done = api.autograde(lab, student, force=True, create=True)
    if not done["success"]:
        text = f"{done.get('log') or ''}\n{done.get('error') or ''}".strip()
        named = re.findall(
            r"^ *([\w.]+(?<!NbGrader)(?:Error|Exception): .+)", text, re.M
        )  # nbgrader's own names nothing
        return {"points": {}, "error": named[-1] if named else text[-3000:]}
    with api.gradebook as book:
        grades = [g for n in book.find_submission(lab, student).notebooks for g in n.grades]
        points = {g.name: g.score for g in grades}
    (path,) = Path(api.coursedir.root, "autograded", student, lab).glob("*.ipynb")
    return {"points": points, "error": "", "looks": notes_of(path).get("looks", [])}


def main(course: str, lab: str, student: str, *options: str) -> None:
    """Grade a student; end when the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    listener = threading.Thread(target=_listen, daemon=True)
    listener.start()
    try:
        told = _grade_one(open_api(course, unsafe="--unsafe" in options), lab, student)
    except (Exception, SystemExit) as error:
        told = {"points": {}, "error": str(error)}
    replies.write(json.dumps(told) + "\n")
    replies.flush()
    listener.join()


def _listen() -> None:
    """Wait for the end of the input: whoever asked is done or dead, and nobody waits for an answer."""
    sys.stdin.read()
    subprocess.Popen.__init__ = None  # a kernel that is killed would be started again
    for _ in range(3):  # sandboxes end with the process that has started them, but one that is just starting may not
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        time.sleep(0.1)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
