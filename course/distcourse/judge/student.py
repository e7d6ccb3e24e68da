"""The student's end: answers the judge's calls from a notebook's namespace, each in its own greenlet."""

from __future__ import annotations

import contextlib
import io
import socket
import sys

import numpy as np
from greenlet import getcurrent, greenlet

from ..advice import advise, missing_method
from ..check import CHECK_FILE, is_library
from . import objects
from .frames import Connection, ProtocolError
from .link import ASK, ERROR, Link

LONGEST = 20_000  # Characters that answers may print while one check runs.


class Printed(io.TextIOBase):
    """Keeps what is printed, up to a length."""

    def __init__(self):
        self._texts, self._left = [], LONGEST

    def write(self, text) -> int:
        self._texts.append(text[: self._left])
        self._left = max(0, self._left - len(text))
        return len(text)

    def take(self) -> str:
        return "".join(self._texts)


class StudentLink(Link):
    """Serves each question in a greenlet, since simulated ranks wait for each other in the middle of theirs."""

    def __init__(self, connection, namespace: dict):
        super().__init__(connection, "s", objects.of_student, lambda *_: True)  # what the judge does is its affair
        self._namespace, self._hub, self._waiting = namespace, getcurrent(), {}
        self.printed = Printed()

    def run(self) -> None:
        """Serve until the judge says that the check has ended."""
        while True:
            try:
                kind, number, value = self.receive()
            except ProtocolError:
                return
            if kind == ASK and value[0] == "end":
                self._send("r", number, self.printed.take())
                return
            if kind == ASK:
                greenlet(self.serve, parent=self._hub).switch(number, value)
            else:
                self._waiting.pop(number).switch(kind, value)

    def _wait(self, number):
        here = getcurrent()
        if here is self._hub or here.parent is not self._hub:
            raise RuntimeError("an object of the check is used outside of the call that got it")
        self._waiting[number] = here
        return self._hub.switch()

    def _do(self, operation, target, *operands):
        if operation == "name":
            return self._namespace[target]
        return super()._do(operation, target, *operands)

    def _described(self, error) -> dict:
        told = super()._described(error)
        if "number" in told:
            if isinstance(error, NotImplementedError):
                told["advice"] = missing_method(error, is_library)
            else:
                told["advice"] = advise(error, CHECK_FILE, is_library)
        return told

    def serve(self, number, asked) -> None:
        """Answer one question; an interrupt is reported like any exception."""
        try:
            super().serve(number, asked)
        except (KeyboardInterrupt, SystemExit):
            return  # reported to the judge
        except ProtocolError as error:
            self._send(ERROR, number, self._described(error))


def serve(path: str, namespace: dict) -> None:
    """Connect to the judge and answer until the check has ended."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)
        sys.stdout.flush()
        link = StudentLink(Connection(end), namespace)
        # around all greenlets: each with its own would leave what another has set
        out, err = contextlib.redirect_stdout(link.printed), contextlib.redirect_stderr(link.printed)
        with out, err, np.errstate(all="ignore"):  # as in a notebook
            link.run()
