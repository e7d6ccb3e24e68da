"""Engines as ranks: who they are, and that one that has just registered may miss its first message."""

import platform
from types import SimpleNamespace

import pytest

from distlearn.comm import CommError
from distlearn.world import client, remote
from distlearn.world.client import Ranks


class Call:
    """A task that is answered at once, or lost."""

    def __init__(self, answer):
        self.answer = answer

    def done(self):
        return self.answer is not None

    def wait(self, timeout):
        return self.done()

    def get(self):
        return self.answer


class Client:
    """Engines of which some lose their first so many messages."""

    def __init__(self, lost):
        self.lost, self.asked = lost, dict.fromkeys(lost, 0)

    def __getitem__(self, target):
        self.target = target
        return self

    def apply_async(self, function, *args):
        self.asked[self.target] += 1
        answered = self.asked[self.target] > self.lost[self.target]
        return Call({"rank": self.target} if answered else None)

    def direct_view(self, targets):
        return SimpleNamespace(use_cloudpickle=lambda: None)


class OtherPython(Client):
    """Engines of which the second runs another version of Python."""

    def apply_async(self, function, *args):
        assert function is remote.describe_engine, "functions may not travel there"
        theirs = {"python": "3.10.2", "executable": "/opt/old/bin/python"} if self.target else {}
        return Call(remote.describe_engine() | theirs)


def ranks_of(lost, monkeypatch):
    monkeypatch.setattr(client, "FIRST_PATIENCE", 0.01)
    monkeypatch.setattr(client, "JOIN_SECONDS", 0.1)
    some = Ranks.__new__(Ranks)
    some.client = Client(lost)
    return some


def test_an_engine_that_missed_the_question_is_asked_again(monkeypatch):
    some = ranks_of({0: 0, 1: 2, 2: 0}, monkeypatch)
    assert [who["rank"] for who in some._ask_who([0, 1, 2])] == [0, 1, 2]
    assert some.client.asked == {0: 1, 1: 3, 2: 1}


def test_an_engine_that_has_answered_is_not_asked_again_where_the_machine_stalled(monkeypatch):
    some = ranks_of({0: 0, 1: 0}, monkeypatch)
    monkeypatch.setattr(client, "FIRST_PATIENCE", 1e-9)  # over before the first check
    assert [who["rank"] for who in some._ask_who([0, 1])] == [0, 1]
    assert some.client.asked == {0: 1, 1: 1}


def test_an_engine_that_never_answers_is_named(monkeypatch):
    with pytest.raises(CommError, match="engine 1 does not answer"):
        ranks_of({0: 0, 1: 10**9}, monkeypatch)._ask_who([0, 1])


def test_engines_of_another_python_are_refused():
    """Their first function would end them without a word (shown with 3.12 and 3.13)."""
    cluster = SimpleNamespace(client=OtherPython({0: 0, 1: 0}), ids=[0, 1], is_local=True)
    wanted = rf"engine 1 runs Python 3.10.2 \(/opt/old/bin/python\), this process Python {platform.python_version()} "
    with pytest.raises(CommError, match=wanted):
        Ranks(cluster)


def test_engines_of_several_mpi_worlds_are_refused():
    with pytest.raises(CommError, match=r"are not ranks of one MPI world \(COMM_WORLD sizes \[1\], ranks \[0\]"):
        client._check_mpi([{"rank": 0, "size": 1}] * 2)
