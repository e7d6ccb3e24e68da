"""Every kernel of the library on a GPU: time, bandwidth and share of what the card's roofline allows.

Peers are the same results by CuPy's array operations. The share is the least time that the card needs for the bytes
that must move and the operations that must be done, whichever takes longer, over the measured time; a kernel that
fetches bytes in vain has a small one.
"""

from __future__ import annotations

from statistics import median

from distlearn.backend import has_gpu
from distlearn.cuda.cards import CARDS

from . import quick, record
from .bench_gpu import NO_GPU
from .gpu_cases import LARGE, Case, cases

SHARES = {"saxpy": 70, "saxpy4": 75, "bias_relu": 58, "bias_relu4": 75, "reduce_shuffle": 33, "transpose_tiled<1>": 70,
          "matmul_blocked": 30, "softmax_xent_warp<int>": 26, "sgd_momentum<float>": 78, "sgd_momentum<double>": 80,
          "adam<float>": 75, "adam<double>": 78}  # fmt: skip
"""Per cent of the roofline that the library's best kernels reach on an H100; what teaches a mistake has no goal."""
LAUNCHES = 20
"""Between two events: enough work for the card never to wait for Python."""


def seconds(cupy, call) -> float:
    """Time on the card of one call, the median over rounds of many [s]."""
    call()  # compiles
    found = []
    for _ in range(3 if quick() else 9):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(LAUNCHES):
            call()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / LAUNCHES)
    return median(found)


def kernel_record(cupy, case: Case, card) -> dict:
    """Time one kernel, and its peer."""
    args = case.arguments(cupy, LARGE)
    nbytes, flops = case.cost(*args)
    ours = seconds(cupy, lambda: case.variant(*args))
    peer = seconds(cupy, lambda: case.peer(cupy, *args)) if case.peer else None
    note = f"{nbytes / ours / 1e9:,.0f} GB/s, {flops / ours / 1e9:,.0f} Gflop/s"
    goal = ""
    if card:
        share, bound = card.least_time(flops, nbytes) / ours, "memory" if flops / nbytes < card.ridge else "compute"
        if case.variant.kernel in SHARES:
            goal = f"ours <= {1e5 * card.least_time(flops, nbytes) / SHARES[case.variant.kernel]:.4g}"
        note += f": {share:.0%} of what {card.name}'s {bound} bound allows"
    return record(f"kernel {case.variant}", "ms", ours * 1e3, peer and peer * 1e3, goal=goal, note=note)


def card_in(device: str):
    """Return the card in the name of a device; of several that fit, the longest name."""
    words = device.replace("-", " ").split()
    named = [c for c in CARDS.values() if all(word in words for word in c.name.split())]
    return max(named, key=lambda c: len(c.name), default=None)


def records():
    """Every variant."""
    if not has_gpu():
        return [record("kernels on a GPU", "ms", None, note=NO_GPU)]
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return [kernel_record(cupy, case, card_in(name)) for case in cases()]
