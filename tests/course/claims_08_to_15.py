"""Claims of labs 08, 09, 10, 11 and 15."""

import numpy as np
from distcourse import lab11

from distlearn.parallel.asynchronous import param_server as ps

from .claims import Claim

# -- lab 11 ------------------------------------------------------------------------------------------------------------


def floors():
    """By method, seed and rate: the loss at the end."""
    rates = (0.0125, 0.025, 0.05, 0.1, 0.2)
    return {
        method: np.array([[end["loss"] for end in lab11.floors(seed, method, rates).values()] for seed in range(15)])
        for method in lab11.METHODS
    }


def floors_hold(found):
    one, fresh, stale, damped, warm = found.values()
    best = [np.median(method[seeds], axis=0).min() for method in found.values() for seeds in (range(5), range(5, 15))]
    return (
        (fresh > one)[:, 1:3].all()
        and [(a > b)[:, 2].sum() for a, b in ((stale, fresh), (damped, stale))] == [14, 14]
        and abs(np.median(warm[:, 2] - stale[:, 2])) < 0.03
        and all(0.04 < best[k + 4] - best[k] < 0.07 for k in (0, 1))
        and all(min(best[k + 6], best[k + 8]) > best[k + 4] - 0.02 for k in (0, 1))
    )


def at_the_rate_of_one():
    """By seed: whether 16 synchronous and 16 asynchronous workers learn nothing at a rate that suits one."""
    return [
        [lab11.train(way, ps.Speeds(16, seed=s), 0.2).losses[-80:].mean() > 2.2 for way in (ps.bsp(), ps.asp())]
        for s in range(10)
    ]


def seconds_to(policy):
    found = []
    for seed in range(5):
        run = lab11.train(policy, ps.Speeds(8, law="pareto", seed=seed), 0.05, 3200, batch=4, wrong=lab11.WRONG)
        at = np.linspace(0, len(run.versions) - 1, 41).astype(int)
        found.append(next(run.times[v] for v in at if lab11.expected_loss(run.versions[v]) <= 1.5))
    return min(found), max(found)


def best_shares():
    """Of workers that are waited for, if late ones finish; by seed."""
    shares = [0.5, 0.6, 0.65, 0.7, 0.8]
    speeds = [ps.Speeds(100, 1.45, law="occasional", seed=seed) for seed in range(10)]
    return [max(shares, key=lambda x, s=s: x * lab11.simulate(ps.backup(x), s, 50).throughput) for s in speeds]


CLAIMS = [
    Claim("11", "end above the one on all 15 seeds", floors, floors_hold, slow=True),
    Claim("11", "It is the same on ten seeds out of ten", at_the_rate_of_one, np.all, slow=True),
    Claim("11", "BSP needs 208 to 321 s to reach 1.5, ASP 75 to 108",
          lambda: [*seconds_to(ps.bsp()), *seconds_to(ps.asp())],
          lambda found: np.allclose(found, (208, 321, 75, 108), rtol=0.02), slow=True),
    Claim("11", "the best share is about two thirds", best_shares, lambda x: 0.6 <= min(x) <= max(x) <= 0.7, slow=True),
]  # fmt: skip
