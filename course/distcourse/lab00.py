"""What the checks of lab 00's exercises look at."""

import numpy as np

from distlearn.sim import SimWorld


def run_mean_over_ranks(mean_over_ranks, ranks, shape, seed=0):
    xs = 10 * np.random.default_rng(seed).normal(size=(ranks, *shape))
    means = SimWorld(ranks).run(lambda comm: mean_over_ranks(comm, xs[comm.rank].copy()))
    return {f"mean on rank {rank}": mean for rank, mean in enumerate(means)}


def run_share(share, n, size):
    return {"shares of all ranks": [share(n, rank, size) for rank in range(size)]}


def run_swap(swap, shape, dtype="float64", times=1, seed=0):
    """Swap two arrays, of which the second is `times` as large."""
    arrays = (100 * np.random.default_rng(seed).normal(size=(2, *shape))).astype(dtype)
    arrays[1] *= times
    got = SimWorld(2).run(lambda comm: swap(comm, arrays[comm.rank].copy()))
    found = {f"result of rank {rank}": array for rank, array in enumerate(got)}
    return found | {"dtypes": [str(getattr(array, "dtype", type(array).__name__)) for array in got]}
