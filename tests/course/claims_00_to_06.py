"""Claims of labs 00, 01, 02, 04, 05 and 06."""

import numpy as np
from distcourse import lab06
from distcourse.author.exercise import Solved

import distlearn as dl

from .claims import Claim
from .conftest import COURSE

MESSAGES = Solved(COURSE / "source" / "lab06_messages")


# -- lab 06 ------------------------------------------------------------------------------------------------------------


def fastest_all_reduces():
    """By ranks, sizes from 8 bytes to 1 GB: the names of the fastest all-reduces, where one is alone."""
    seconds, net, found = MESSAGES.answers("seconds")[1], dl.Network.preset("ethernet-10g"), {}
    for p in range(2, 65):
        for n in 2.0 ** np.arange(3, 31):
            times = {name: seconds(name, n, p, net.alpha, net.beta) for name in lab06.NAMES}
            best = [name for name, t in times.items() if t < min(times.values()) * (1 + 1e-9)]
            found.setdefault(p, []).append(best)
    return found


def fastest_hold(found):
    powers = {2**k for k in range(1, 7)}
    return (
        all("halving" in best for p in powers for best in found[p])
        and all(found[p][-1] == ["ring"] for p in found if p not in powers)
        and not any(best == ["tree"] for rows in found.values() for best in rows)
        and [p for p, rows in found.items() if ["star"] in rows] == [3, 5]
        and all(rows.count(["star"]) == 0 or rows[0] == ["star"] for rows in found.values())
    )


def busiest():
    """Arrays through the busiest rank, by number of ranks, where that is no power of two: halving's and the ring's."""
    ring, halving = (MESSAGES.answers(name)[0] for name in ("ring", "halving"))
    found = {}
    for p in (3, 5, 6, 7, 9, 12, 13):
        found[p] = lab06.counted(halving, p, 16 * p).busiest, lab06.counted(ring, p, 16 * p).busiest
    return found


def orders():
    """Orders of `ledger` on four ranks, and those of `relay` that fail, without what is buffered."""
    *_, relay, ledger = MESSAGES.answers("network")
    failures = dl.sim.explore(relay, 3).failures
    return dl.sim.explore(ledger, 4).n_orders, [[d for d in run.order if "buffer" not in d] for run in failures]


def interleavings():
    ring = MESSAGES.answers("ring")[0]
    return dl.sim.explore(lambda comm: ring(comm, np.ones(8)), 4).first.n_interleavings


CLAIMS = [
    Claim("06", "On a power of two nothing beats halving", fastest_all_reduces, fastest_hold),
    Claim(
        "06",
        "its busiest rank moves more bytes than in a ring",
        busiest,
        lambda found: all(halving > ring for halving, ring in found.values()),
    ),
    Claim(
        "06",
        "in the two failures of `relay` the same messages arrive in the same order",
        orders,
        lambda found: found[0] == 90 and len(found[1]) == 2 and found[1][0] == found[1][1],
    ),
    Claim("06", "some $10^{22}$ different sequences", interleavings, lambda found: round(found, -21) == 10**22),
]
