"""Helpers of checks of CUDA kernels."""

import linecache
from types import SimpleNamespace

import pytest
from distcourse import at_cell_lines, in_parallel, kernels, launched

from distlearn.cuda import Finding, Report, Site

CELL = """def add():
    '''A kernel.'''
    return PREFIX + r'''__global__ void add(float* c) {
    c[0] = 1.0f;
}'''
"""


def define(prefix, name="<a cell>"):
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    space = {"PREFIX": prefix}
    exec(compile(CELL, name, "exec"), space)
    return space["add"]


def test_a_kernel_has_the_line_numbers_of_its_cell():
    add = define("")
    assert at_cell_lines(add, add()).splitlines()[3] == "    c[0] = 1.0f;"


def test_what_is_put_before_it_counts():
    add = define("// helper\n")
    assert at_cell_lines(add, add()).splitlines()[3] == "    c[0] = 1.0f;"
    add = define("// helper\n" * 9)
    assert at_cell_lines(add, add()) == add(), "there is no room above"


@pytest.mark.parametrize("answer", [None, 3, "", "not in the cell"])
def test_anything_else_is_left_alone(answer):
    assert at_cell_lines(define(""), answer) == answer
    assert at_cell_lines(print, answer) == answer


def found(monkeypatch, *findings, answer=lambda: "a text"):
    """What an answer's launch gives if the emulator finds this."""
    findings = [Finding(kind, 4, 1, "c", (0, 0, 0), (0, 0, 0), "something") for kind in findings]
    warnings = [f for f in findings if f.is_warning]
    report = Report("add", "gcc", (1, 1, 1), (1, 1, 1), [f for f in findings if not f.is_warning], warnings)
    monkeypatch.setattr(kernels, "_built", lambda *given: SimpleNamespace(check=lambda *args, **options: report))
    return launched(answer, "add", (1,), (1,), ())


def test_errors_and_warnings_are_one_text_whose_first_line_is_their_kind(monkeypatch):
    results, report = found(monkeypatch)
    assert results == {"kernel": "no errors"}
    assert report is not None
    for kind in ("race", "same-value"):
        assert found(monkeypatch, kind) == ({"kernel": f"{kind}\nline 4: something"}, None)
    assert found(monkeypatch, answer=lambda: None) == ({"kernel": "a NoneType, not a text"}, None)
    with pytest.raises(TimeoutError, match="does every loop end"):
        found(monkeypatch, "infinite-loop")


def test_a_barrier_that_not_all_reach_comes_before_what_follows_from_it(monkeypatch):
    said = found(monkeypatch, "uninitialised", "exited-threads")[0]["kernel"]
    assert said.startswith("exited-threads\n")
    assert "all threads of a block must reach each barrier" in said
    assert "uninitialised" not in said


def reading(lanes, access="read", block=(64, 1, 1)):
    sites = [Site(1, 1, "read", "x", "global", 4, requests=10, lanes=10 * lanes)]
    sites += [Site(2, 1, access, "s", "shared", 4, requests=1, lanes=1)]
    return Report("add", "gcc", (1, 1, 1), block, sites=sites)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (reading(1), "few threads read together\n1.0 of 32"),
        (reading(15), "15.0 of 32"),
        (reading(32, "atomic"), "atomics\nmake the threads queue"),
        (reading(32), "their threads read together"),
        (reading(20), "their threads read together"),
        (reading(2, block=(2, 1, 1)), "their threads read together"),
    ],
)
def test_work_is_parallel_or_not(report, said):
    assert said in in_parallel(report)
