"""What writing a collective oneself costs: all-reduces on send and receive against mpi4py's own, on two ranks."""

from __future__ import annotations

from statistics import median

from . import load_note, record, times_on_ranks

RANKS = 2


def records() -> list[dict]:
    """Measure on this machine; numbers to look at, without a goal."""
    note = load_note()
    times = times_on_ranks("comm_ring_rank", RANKS)
    rows = []
    for nbytes, sides in ((int(n), s) for n, s in times.items()):
        raw = sides.pop("mpi4py")
        for name, ours in sides.items():
            ratio = median(a / b for a, b in zip(ours, raw, strict=True))
            label = f"own {name} all-reduce {_size(nbytes)}, {RANKS} ranks, against mpi4py"
            rows.append(record(label, "ms", median(ours) * 1e3, median(raw) * 1e3, ratio=ratio, note=note))
    return rows


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KB"
