"""What checks of CUDA kernels share: lines numbered as in the cell, errors before anything else, work in parallel."""

from __future__ import annotations

import functools
import linecache
import math
from collections import Counter

from distlearn.cuda import RawKernel


def at_cell_lines(fn, code):
    """Put blank lines before a kernel, so that its lines have the numbers of the cell that it is written in.

    Parameters
    ----------
    fn : function
        Returns the kernel as a text between quotes; what is put before that text (`HELPER + r'''...'''`) moves nothing.
    code : str
        What it returned.

    Returns
    -------
    code : str
        As it was, where the cell is not to be found or there is no room above.
    """
    cell = linecache.getlines(getattr(getattr(fn, "__code__", None), "co_filename", ""))
    if not isinstance(code, str) or not cell:
        return code
    wanted = code.splitlines()
    shifts = Counter(i - j for i, text in enumerate(cell) for j, line in enumerate(wanted)
                     if len(line.strip()) > 1 and text.rstrip() == line.rstrip())  # fmt: skip
    shift = shifts.most_common(1)[0][0] if shifts else 0
    return "\n" * max(shift, 0) + code


BARRIERS = ("divergent-barrier", "exited-threads")
_built = functools.lru_cache(maxsize=4)(RawKernel)  # a check launches one kernel in several cases


def launched(fn, name, grid, block, args, *, record=None):
    """Launch the kernel that an answer returns, with every check.

    Returns
    -------
    results : dict
        `kernel` says what the emulator found: a line with the kind, and below it where.
    report : Report or None
        None if anything was found; then it is not worth comparing what the kernel has written.
    """
    code = at_cell_lines(fn, fn())
    if not isinstance(code, str):
        return {"kernel": f"a {type(code).__name__}, not a text"}, None
    report = _built(code, name).check(grid, block, args, time_limit=5, record=record)
    # What is legal on a card but rarely meant (a warning) counts as wrong. A barrier that not all threads reach comes
    # first: other errors follow from it.
    found = sorted([*report.errors, *report.warnings], key=lambda f: f.kind not in BARRIERS)
    if not found:
        return {"kernel": "no errors"}, report
    told = str(found[0]).removeprefix(f"{found[0].kind}, ")
    if found[0].kind in ("infinite-loop", "unfinished"):  # so it would be in the other cases
        raise TimeoutError(f"{told}\ndoes every loop end?")
    if found[0].kind in BARRIERS:
        told += "\nall threads of a block must reach each barrier: no `return` before it, and not inside an `if`"
    known = any(s.array == found[0].array and s.space == "global" for s in report.sites)  # others have any name
    return {"kernel": f"{found[0].kind}{f' in {found[0].array}' * known}\n{told}"}, None


def in_parallel(report) -> str:
    """Say whether a warp's lanes read global memory together, and whether atomics take the place of a reduction."""
    # Only for launches in which all threads of a block have something to read.
    if any(s.access == "atomic" for s in report.sites):
        return "atomics\nmake the threads queue at one address: add in steps, in shared memory"
    reads = [s for s in report.sites if s.space == "global" and s.access == "read"]
    lanes = sum(s.lanes for s in reads) / max(sum(s.requests for s in reads), 1)
    if lanes >= (width := min(32, math.prod(report.block))) / 2:
        return "their threads read together"
    return f"few threads read together\n{lanes:.1f} of {width} on average: share the elements among all threads"
