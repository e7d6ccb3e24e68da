"""One call of a rank: its line in the user's code, and checks of its arguments."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from ..backend import has_values, rounded, share_memory

ANY = -1  # As `source` of `recv_obj`: take the object that arrives first, from any rank.

# Modules whose frames are not the user's: errors name the line of the user's code that called them.
OWN = ("distlearn.comm", "distlearn.sim")


class CallSite(NamedTuple):
    """File, line and function of a call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        folder, _, name = self.file.replace("\\", "/").rpartition("/")
        in_cell = "ipykernel_" in folder or name.startswith("<ipython-input")  # such names mean nothing to the user
        where = "" if in_cell else f"{name}, "
        return f"{where}line {self.line}, in {self.function}"


def call_site(frame=None, own=OWN) -> CallSite | None:
    """Return the innermost frame outside this package's communication code, or `own`; None if all are inside it."""
    frame = sys._getframe(1) if frame is None else frame
    while frame is not None and frame.f_globals.get("__name__", "").startswith(own):
        frame = frame.f_back
    return None if frame is None else CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Call(NamedTuple):
    """One rank's call of a collective; `name` and `arguments` must be the same on all ranks.

    Attributes
    ----------
    arguments : tuple
        Operator or root, shape, dtype.
    site : CallSite or None
        The user's line.
    """

    name: str
    arguments: tuple[Any, ...]
    site: CallSite | None = None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    @property
    def located(self) -> str:
        return f"{self} ({self.site})" if self.site else str(self)


# -- checks of arguments -----------------------------------------------------------------------------------------------
# The operators of `all_reduce` and `reduce_scatter`, by name.
REDUCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def reduced(arrays, op: str):
    """Reduce arrays, in their order; halves in double precision, in which their sums are exact, and rounded once."""
    dtype, combine = arrays[0].dtype, REDUCTIONS[op]
    wide = dtype == np.float16 and has_values(arrays[0])  # arrays without data would seem to take memory
    total = arrays[0].astype(np.float64) if wide else arrays[0].copy()
    for x in arrays[1:]:
        combine(total, x, out=total)
    return rounded(total, dtype)


N_TAGS = 1 << 20  # in every world; an MPI library may have fewer

WITH_OBJECTS = ("send", "recv", "broadcast", "gather", "all_gather")  # Operations with a form for objects, `*_obj`.


def same_calls(call, other) -> str:
    """Return the rule that two different calls break, and a way out."""
    both = all(str(one).startswith(("gather(", "all_gather(")) for one in (call, other))
    hint = "; arrays of different shapes go by gather_obj or all_gather_obj" if both else ""
    return f"every rank must make the same collective calls in the same order{hint}"


COPIES = {
    False: "pass np.ascontiguousarray(x)",
    True: "pass y = np.ascontiguousarray(x), and when y has the result, copy it back: x[...] = y",
}


def check_buffer(what: str, x, rank: int, written: bool = False) -> None:
    """Raise unless `x` is an array that can be sent without a copy, or into which can be received."""
    hint = f"; use {what}_obj for other objects" if what in WITH_OBJECTS else ""
    if not hasattr(x, "dtype") or not hasattr(x, "flags"):
        raise TypeError(f"rank {rank}: {what} takes an array, got {type(x).__name__}{hint}")
    if x.dtype.hasobject:
        raise TypeError(f"rank {rank}: {what} cannot move an array of dtype {x.dtype}{hint}")
    if not x.flags.c_contiguous:
        raise ValueError(f"rank {rank}: {what} needs a contiguous array: {COPIES[written]}")
    if type(x) is not np.ndarray and isinstance(x, np.ndarray) and hasattr(x, "filled"):
        raise TypeError(
            f"rank {rank}: {what} would move what is masked, too: pass x.filled(value), or x.data and x.mask"
        )


def check_output(what: str, x, rank: int) -> None:
    """Raise unless `x` is a contiguous array that may be written."""
    check_buffer(what, x, rank, written=True)
    if isinstance(x, np.generic):
        raise TypeError(f"rank {rank}: {what} writes into an array, got {type(x).__name__}; use np.array(x)")
    if getattr(x.flags, "writeable", True) is False:
        raise ValueError(f"rank {rank}: {what} writes into its buffer, but this array is read-only")


def check_apart(what: str, x, out, rank: int) -> None:
    """Raise if an operation that sends `x` would receive into the same memory, perhaps before it is sent."""
    if share_memory(x, out):
        raise ValueError(f"rank {rank}: {what} receives into memory that it sends; `out` must not overlap with it")


SHOWN = 8  # Error messages show arrays of at most this many values.


def _shown(value) -> str:
    """Format an argument for an error message; a large array, passed instead of a number, by type and shape."""
    large = getattr(value, "size", 0) > SHOWN
    return f"<{type(value).__name__} of shape {value.shape}>" if large else repr(value)


def check_peer(what: str, peer: int, rank: int, size: int) -> None:
    """Raise unless `peer` is another rank of the communicator."""
    if not isinstance(peer, (int, np.integer)) or not 0 <= peer < size:
        raise ValueError(f"rank {rank}: {what}={_shown(peer)}, expected a rank from 0 to {size - 1}")
    if peer == rank:
        raise ValueError(f"rank {rank}: {what}={peer} is this rank itself; copy the array instead of sending it")


def check_root(root: int, rank: int, size: int) -> None:
    """Raise unless `root` is a rank of the communicator."""
    if not isinstance(root, (int, np.integer)) or not 0 <= root < size:
        raise ValueError(f"rank {rank}: root={_shown(root)}, expected a rank from 0 to {size - 1}")


def check_reduction(what: str, x, op: str, rank: int, in_place: bool = True) -> None:
    """Raise unless `op` names a reduction that every communicator can apply to an array like `x`."""
    if op not in REDUCTIONS:
        raise ValueError(f"rank {rank}: op={op!r}, expected one of {', '.join(map(repr, REDUCTIONS))}")
    (check_output if in_place else check_buffer)(what, x, rank)
    dtype = x.dtype
    if dtype.kind not in "iufcb" or not dtype.isnative or (dtype.kind == "c" and op in ("min", "max")):
        raise TypeError(f"rank {rank}: {what} cannot form the {op} of arrays of dtype {dtype.str}")


def check_report(rank: int, step, total) -> None:
    """Raise unless a report's `step` and `total` are numbers."""
    for name, value in (("step", step), ("total", total)):
        if not isinstance(value, (int, float, np.number)):
            raise TypeError(f"rank {rank}: report: {name} is {_shown(value)}, expected a number")


def check_tag(tag: int, rank: int, n_tags: int = N_TAGS) -> None:
    """Raise unless `tag` is a whole number from 0 to `n_tags` - 1."""
    if not isinstance(tag, (int, np.integer)) or not 0 <= tag < n_tags:
        raise ValueError(f"rank {rank}: tag={_shown(tag)}, expected a whole number from 0 to {n_tags - 1}")


def check_rows(what: str, x, rank: int, size: int) -> None:
    """Raise unless `x` has one row per rank."""
    check_buffer(what, x, rank)
    if x.ndim == 0 or len(x) != size:
        raise ValueError(f"rank {rank}: {what} needs one row per rank: expected shape ({size}, ...), got {x.shape}")


def check_scatter(what: str, x, out, rank: int, size: int) -> None:
    """Raise unless the rows of `x` can be scattered into the `out` of every rank."""
    check_rows(what, x, rank, size)
    if x.shape[1:] != out.shape or x.dtype != out.dtype:
        rows = f"rows of shape {x.shape[1:]} {x.dtype}, but `out` has shape {out.shape} {out.dtype}"
        raise ValueError(f"rank {rank}: {what} sends {rows}")
    check_apart(what, x, out, rank)
