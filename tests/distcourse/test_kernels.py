"""Helpers of checks of CUDA kernels."""

import linecache

import pytest
from distcourse import Check, CheckFailed, at_cell_lines, in_parallel, no_errors

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


def test_errors_and_warnings_are_one_line(capsys):
    report = Report("add", "gcc", (1, 1, 1), (1, 1, 1))
    with Check("add") as check:
        assert no_errors(check, report)
    for kind in ("race", "exited-threads"):
        found = [Finding(kind, 4, 1, "c", (0, 0, 0), (0, 0, 0), "thread (0, 0, 0) writes c[0]")]
        which = "warnings" if found[0].is_warning else "errors"
        setattr(report, which, found)
        with pytest.raises(CheckFailed, match=f"{kind}, line 4"), Check("add") as check:
            assert not no_errors(check, report)
        setattr(report, which, [])


def test_a_barrier_that_not_all_reach_comes_before_what_follows_from_it(capsys):
    found = [
        Finding(kind, 4, 1, "c", (0, 0, 0), (0, 0, 0), "something") for kind in ("uninitialised", "exited-threads")
    ]
    report = Report("add", "gcc", (1, 1, 1), (1, 1, 1), errors=found[:1], warnings=found[1:])
    with pytest.raises(CheckFailed, match="exited-threads") as caught, Check("add") as check:
        no_errors(check, report)
    assert "all threads of a block must reach each barrier" in str(caught.value)
    assert "uninitialised" not in str(caught.value)


def reading(lanes, access="read", block=(64, 1, 1)):
    sites = [Site(1, 1, "read", "x", "global", 4, requests=10, lanes=10 * lanes)]
    sites += [Site(2, 1, access, "s", "shared", 4, requests=1, lanes=1)]
    return Report("add", "gcc", (1, 1, 1), block, sites=sites)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (reading(1), "1.0 of 32 threads of a warp read together"),
        (reading(15), "15.0 of 32"),
        (reading(32, "atomic"), "atomics make the threads queue"),
    ],
)
def test_work_that_is_not_parallel(report, said, capsys):
    with pytest.raises(CheckFailed, match=said), Check("add") as check:
        in_parallel(check, report, "all take part")


@pytest.mark.parametrize("report", [reading(32), reading(20), reading(2, block=(2, 1, 1))])
def test_work_that_is_parallel(report, capsys):
    with Check("add") as check:
        in_parallel(check, report, "all take part")
