"""What a reader of the report sees."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel

from .corpus import fresh
from .textbook import CASES

BY_TITLE = {case.title: case for case in CASES}


def report_of(title):
    case = BY_TITLE[title]
    return RawKernel(case.source, case.name).check(case.grid, case.block, fresh(case.args), time_limit=case.time_limit)


def test_text():
    text = str(report_of("naive matmul, threads along columns"))
    assert text.startswith("matmul, grid (2, 8, 1), block (32, 8, 1): no errors")
    assert "524,288 flop, 8.78 MB moved for 2.11 MB requested, 0.06 flop/byte, 100% of lanes active" in text
    assert "32.00 sectors (ideal 4.00), not coalesced" in text
    assert "8,192  " in text


def test_an_error_in_words():
    (error,) = report_of("guard missing").errors
    assert error.message == (
        "thread (232, 0, 0) of block (3, 0, 0) reads a[1000], byte offset 4000, but it has 1000 elements (4000 bytes)"
    )
    assert (error.count, error.offset, error.thread, error.block) == (24, 4000, (232, 0, 0), (3, 0, 0))
    assert "c[i] = a[i] + b[i];" in str(error)


def test_both_sides_of_a_race():
    (error,) = report_of("barrier missing in a reduction").errors
    assert error.line == error.other_line == 7
    assert error.thread != error.other_thread
    assert "reads s[1], written later by thread (1, 0, 0), line 7: no barrier lies between" in error.message


def test_who_waits_for_whom():
    (error,) = report_of("shuffle that half a warp never reaches").errors
    assert "lanes 16-31 of its mask never arrive; others wait at line 6" in error.message


def test_html_escapes_the_source():
    html = report_of("guard with <=")._repr_html_()
    assert "if (i &lt;= n) out[i] = 1;" in html
    assert "<b>out-of-bounds</b>, line 3" in html
    assert html.count("<tr>") == 2


def test_find_says_what_there_is():
    report = report_of("tiled matmul")
    assert report.arithmetic_intensity == pytest.approx(2 * 64**3 / 147456)
    assert report.bytes_requested == report.bytes_moved
    assert report.find("A", "read").line == 8
    with pytest.raises(LookupError, match=r"0 sites match array 'Z'.*read A line 8"):
        report.find("Z")


def test_diverged_lanes_meet_again(compiler):
    """Lanes that skip turns of a loop are paired with the turn they are in, not with the n-th they made."""
    source = """extern "C" __global__ void skip(const float* x, float* y, int n) {
        int t = threadIdx.x;
        float s = 0;
        for (int k = 0; k < n; k++) {
            if ((t + k) % 4 == 0) continue;
            s += x[k * 32 + t];
        }
        y[t] = s;
    }"""
    args = np.ones(320, np.float32), np.zeros(32, np.float32), np.int32(10)
    report = RawKernel(source, "skip", compiler=compiler).check((1,), (32,), args)
    site = report.find("x")
    assert (site.requests, site.lanes, site.sectors) == (10, 240, 40), str(report)


def test_lanes_leave_a_loop_one_after_another():
    source = """extern "C" __global__ void triangle(const float* x, float* y) {
        int t = threadIdx.x;
        float s = 0;
        for (int k = 0; k <= t; k++) s += x[k * 32];
        y[t] = s;
    }"""
    report = RawKernel(source, "triangle").check((1,), (32,), (np.ones(1024, np.float32), np.zeros(32, np.float32)))
    reads, writes = report.find("x"), report.find("y")
    assert (reads.requests, reads.lanes, reads.sectors) == (32, 32 * 33 // 2, 32)
    assert (writes.requests, writes.lanes) == (1, 32)
