"""What a notebook does to the tools of checks is undone; what it does to its own names is not."""

import ast
import os
import sys
import types

import numpy as np
import pytest
from distcourse import intact
from distcourse.check import Check, CheckFailed

import distlearn as dl


@pytest.fixture
def remembered():
    """Tools as they are, and again afterwards."""
    intact.remember()
    yield
    intact.restore()


def test_nothing_to_restore(remembered):
    assert intact.restore() == []


def test_changed_functions_methods_and_classes_are_put_back(remembered):
    kept = np.allclose, Check.__exit__, dl.nn.Linear, dl.nn.Linear.forward, np.random.default_rng
    np.allclose = np.random.default_rng = lambda *a, **k: True
    Check.__exit__ = lambda *a: True
    dl.nn.Linear.forward = None
    del dl.nn.Linear
    found = intact.restore()
    assert (np.allclose, Check.__exit__, dl.nn.Linear, dl.nn.Linear.forward, np.random.default_rng) == kept
    assert {"numpy.allclose", "numpy.random.default_rng", "distcourse.check.Check.__exit__"} <= set(found)
    with pytest.raises(CheckFailed), Check("one") as check:
        check.close("one", 1.0, 2.0)


def test_variables_that_hide_builtins_and_hooks_of_the_notebook_are_removed(remembered):
    class Hook(ast.NodeTransformer):
        __module__ = "__main__"

    def theirs():
        pass

    def hers():
        pass

    hers.__module__ = "__main__"
    events = types.SimpleNamespace(callbacks={"pre_execute": [theirs, hers], "post_execute": []})
    shell = types.SimpleNamespace(user_ns={"list": [1], "max": 3, "mine": 4}, ast_transformers=[Hook()], events=events)
    assert intact.restore(shell, ["list", "mine", "sum"]) == ["list", "get_ipython.Hook", "get_ipython.hers"]
    assert shell.user_ns == {"max": 3, "mine": 4}, "only what the check reads"
    assert events.callbacks["pre_execute"] == [theirs]


def test_exit_ends_a_cell_alone():
    hooks = {}
    shell = types.SimpleNamespace(events=types.SimpleNamespace(register=hooks.__setitem__))
    intact.remember(shell)
    with pytest.raises(SystemExit, match="the kernel goes on"):
        shell.ask_exit()
    kept, sys.stdout = sys.stdout, None
    hooks["post_run_cell"](None)
    assert sys.stdout is kept, "a kernel without it answers no more"


def test_surroundings_are_where_they_began(remembered, tmp_path):
    began = os.getcwd(), list(sys.path), os.environ["PATH"], np.geterr()
    os.chdir(tmp_path)
    sys.path.clear()
    sys.path.append("theirs")
    os.environ["PATH"] = ""
    np.seterr(all="raise")
    intact.restore()
    assert (os.getcwd(), sys.path[:-1], os.environ["PATH"], np.geterr()) == began
    assert sys.path.pop() == "theirs"
