"""A machine in the numbers of a card: peak, bandwidth, what starting an operation costs, and the link to the host."""

from __future__ import annotations

import functools

import numpy as np

from ...backend import get_xp, to_device
from ...cuda.cards import Card
from ...nn.costs.profile import fewest_seconds
from .steps import step_times, step_work


def measure_cpu(*, elements: int = 2**25, width: int = 1024, repeats: int = 15) -> Card:
    """Measure one core of this machine.

    The peak is that of large matrix products, the bandwidth that of reading two long vectors for their scalar
    product, and the overhead of an operation the time of a training step with one sample and one neuron, divided by its
    operations. Peak and bandwidth are the best of several measurements, since bounds are made of them; the overhead is
    a median.

    Parameters
    ----------
    elements : int
        Of each vector; both together must be several times as large as the last cache. 2 x 128 MiB by default.
    width : int
        Of the matrices.
    repeats : int

    Returns
    -------
    card : Card
        With an infinite `link`: nothing needs to be copied.
    """
    a, b = np.ones((2, width, width), np.float32)
    out = np.empty_like(a)
    x, y = np.ones((2, elements), np.float32)
    seconds = fewest_seconds(lambda: np.matmul(a, b, out=out), repeats=repeats)
    reading = fewest_seconds(lambda: x.dot(y), repeats=repeats)
    small = step_times([1], batch=1, sizes=(1, 1), repeats=50)[0] / step_work(1, 1, sizes=(1, 1)).calls
    return Card(
        "this CPU", 0, 0, 2 * width**3 / seconds, 2 * x.nbytes / reading, "measured, one core",
        link=float("inf"), overhead=small,
    )  # fmt: skip


def measure_gpu(*, xp=None, elements: int = 2**26, width: int = 4096, repeats: int = 7) -> Card:
    """Measure a GPU as `measure_cpu` measures a core, and its link to the host's memory.

    Parameters
    ----------
    xp : module, optional
        CuPy, unless something stands in for it.
    elements, width, repeats : int
        Of the vectors that are added and copied, and of the matrices.

    Returns
    -------
    card : Card
        The link with ordinary memory of the host; page-locked memory is faster.
    """
    if xp is None:
        xp = get_xp(to_device(np.zeros(1), "gpu"))

    host = np.ones(elements, np.float32)
    a, x, tiny = xp.ones((width, width), "float32"), xp.asarray(host), xp.ones(1, "float32")
    out, y = xp.empty_like(a), xp.empty_like(x)

    def many():
        for _ in range(1000):
            xp.add(tiny, 1, out=tiny)

    timed = functools.partial(fewest_seconds, repeats=repeats, xp=xp)
    seconds, moving = timed(lambda: xp.matmul(a, a, out=out)), timed(lambda: xp.add(x, 1, out=y))
    copying, launching = timed(lambda: xp.asarray(host.copy())) - timed(host.copy), timed(many) / 1000
    return Card(
        "this GPU", 0, 0, 2 * width**3 / seconds, 2 * x.nbytes / moving, "measured",
        link=host.nbytes / max(copying, 1e-9), overhead=launching,
    )  # fmt: skip
