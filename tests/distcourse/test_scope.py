"""Check cells run in a scope of their own in a notebook: answers do not see their variables."""

import pytest
from distcourse import scope
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

ANSWER = """
class Layer:
    def __init__(self): self.W = np.eye(2)
    def backward(self, dy): return dy @ {name}.T
"""
CHECK = """
import math
def helper(check):
    return check.close("dx", layer.backward(dy), dy @ W.T), math.pi
with lab.check("backward", hints=False) as check:
    layer = Layer()
    dy, W = np.ones((1, 2)), layer.W
    helper(check)
    inner = [dy @ W for _ in range(2)]
with lab.check("again", hints=False) as check:
    check.equal("seen from above", (lambda: len(inner))(), 2)
"""


@pytest.fixture
def shell():
    """A shell with a lab in it."""
    shell = InteractiveShell()
    run(shell, "import numpy as np\nimport distlearn as dl\nfrom distcourse import Check\nclass lab: check = Check")
    scope.install(shell)
    scope.install(shell)
    assert len(shell.ast_transformers) == 1
    return shell


def run(shell, text):
    """Run a cell; return its error, or None."""
    with capture_output():
        result = shell.run_cell(text)
    return result.error_before_exec or result.error_in_exec


def test_an_answer_that_finds_its_variable_in_the_check_fails(shell):
    assert run(shell, ANSWER.format(name="W")) is None
    assert "name 'W' is not defined" in str(run(shell, CHECK))
    assert run(shell, ANSWER.format(name="self.W")) is None
    assert run(shell, CHECK) is None


def test_an_answer_by_the_course_is_refused_and_a_helper_of_the_check_is_not(shell):
    check = "def want(*sizes): return lab05.least_bytes(*sizes)\nwith lab.check('b', hints=False) as check:\n"
    check += "    check.equal('b', answer(1, 2, 3), want(1, 2, 3))\n"
    assert run(shell, "from distcourse import lab05\ndef answer(a, b, c): return 4 * (a * b + b * c + a * c)") is None
    assert run(shell, check) is None
    for body in ("lab05.least_bytes(*sizes)", "[least(*sizes) for _ in sizes][0]", "(lambda: least(*sizes))()"):
        assert run(shell, f"least = lab05.least_bytes\ndef answer(*sizes): return {body}") is None
        assert "this is distcourse.lab05, or uses it" in str(run(shell, check))


def test_definitions_stay_and_variables_do_not(shell):
    run(shell, ANSWER.format(name="self.W"))
    before = set(shell.user_ns)
    assert run(shell, CHECK) is None
    assert {n for n in set(shell.user_ns) - before if not n.startswith("_")} == {"helper", "math"}


def test_other_cells_are_as_they_were(shell):
    assert run(shell, "y = 3\nwith open('/dev/null') as file:\n    z = 4") is None
    assert (shell.user_ns["y"], shell.user_ns["z"]) == (3, 4)


def test_errors_name_the_line_of_the_cell(shell):
    with capture_output() as shown:
        shell.run_cell("with lab.check('x') as check:\n    1 / 0\n")
    assert "ZeroDivisionError" in shown.stdout
    error = run(shell, "x = 1\nwith lab.check('x', hints=False) as check:\n    check.true('a', True)\n1 / 0\n")
    assert [f.tb_lineno for f in frames(error.__traceback__)][-1] == 4


def frames(tb):
    """The frames of a traceback."""
    while tb is not None:
        yield tb
        tb = tb.tb_next
