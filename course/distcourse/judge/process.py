"""The judge's process: runs the checks of a submission, one after another, and returns what they show.

    python -m distcourse.judge.process

A request is a line of JSON on the standard input: `code` is the check as the source has it, `helpers` what has to run
before it, `names` what the submission defines, `files` those of the lab's source, `socket` where its process is going
to connect. The answer is a line on the standard output: the outputs of a notebook's cell, and `lost` if the student's
process ended.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from .. import exercise, show
from ..check import CHECK_FILE, CheckFailed
from . import objects
from .frames import Connection, ProtocolError
from .link import Link

USED = ("distcourse.lab", "distlearn.train", "distlearn.parallel", "distlearn.cuda", "matplotlib.pyplot")
"""What checks use, loaded before the first one."""
CONNECT = 30.0  # Seconds within which the student's process must connect.


def judge(request: dict) -> dict:
    """Run one check."""
    outputs, printed, lost = [], io.StringIO(), ""
    for name, content in request["files"].items():
        Path(exercise.FOLDER, name).write_bytes(base64.b64decode(content))
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as door:
        door.bind(request["socket"])
        door.listen(1)
        door.settimeout(CONNECT)
        _answer({"ready": True})
        try:
            end, _ = door.accept()
        except OSError:
            return {"outputs": [], "lost": "did not answer"}
    with contextlib.closing(end):
        end.settimeout(None)
        link = Link(Connection(end), "j", objects.of_judge, objects.judge_allows)
        show.SHOW = lambda card: outputs.append(_displayed(card))
        try:
            namespace = _namespace(request, link)
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                exec(compile(request["code"], CHECK_FILE, "exec"), namespace)  # the source's own
        except CheckFailed as error:
            outputs.append(_error("CheckFailed", str(error), error._render_traceback_()))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            text = str(error)[:2000]
            outputs.append(_error(type(error).__name__, text, [f"{type(error).__name__}: {text}", *_place(error)]))
        lost = link.broken
        if lost and not any(out["output_type"] == "error" for out in outputs):
            outputs.append(_error("AnswerLost", lost, [f"AnswerLost: {lost}"]))
        if not lost:
            with contextlib.suppress(ProtocolError):
                said = link.request("end", None)
                outputs += _streams(said if isinstance(said, str) else "")
    outputs += _streams(printed.getvalue())
    return {"outputs": outputs, "lost": lost}


def _displayed(card) -> dict:
    data = {"text/plain": card.text(), "text/html": card._repr_html_()}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _error(name: str, value: str, lines: list[str]) -> dict:
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": lines}


def _streams(text: str) -> list[dict]:
    return [{"output_type": "stream", "name": "stdout", "text": text}] if text else []


def _namespace(request, link) -> dict:
    namespace = {"__name__": "distlearn_check"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(request["helpers"], f"{CHECK_FILE} helpers", "exec"), namespace)
    for name in request["names"]:
        with contextlib.suppress(KeyError):
            namespace[name] = link.request("name", name)
    return namespace


def _place(error) -> list[str]:
    frames = getattr(error, "_distlearn_frames", [])
    return [f"  in {f.name}, line {f.lineno}: {f.line}" for f in frames if f.filename.startswith("/tmp/ipykernel")][-3:]


def _answer(answer: dict) -> None:
    sys.__stdout__.write(json.dumps(answer) + "\n")
    sys.__stdout__.flush()


def _protect() -> None:
    """Forbid other processes, such as a kernel that the emulator runs, to look into this one."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def _confine_kernels() -> None:
    """Run programs made of CUDA C in a sandbox within this one, where nothing can be written."""
    from distlearn.cuda.emulator import launch

    words = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--tmpfs", "/proc", "--dev", "/dev"]
    with contextlib.suppress(OSError):
        if subprocess.run([*words, "--", "true"], capture_output=True, check=False).returncode == 0:
            launch.WRAPPER[:] = [*words, "--"]


def main() -> None:
    """Serve requests until the input ends."""
    _protect()
    os.environ["MPLBACKEND"] = "agg"
    for name in USED:
        importlib.import_module(name)
    _confine_kernels()
    with tempfile.TemporaryDirectory(prefix="dl-lab-") as folder:
        exercise.FOLDER = Path(folder)
        for line in sys.stdin:
            try:
                answer = judge(json.loads(line))
            except Exception:
                answer = {"outputs": [], "lost": "", "broken": traceback.format_exc()}
            _answer(answer)


if __name__ == "__main__":
    main()
