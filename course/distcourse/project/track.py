"""What every track gives the board: a result, whose cost is an integer on every machine, and its physical floor."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Result:
    """What became of one submission; costs are whole numbers, and less is better."""

    state: str  # "scored", "refused" (cannot be read), "wrong" (breaks a rule), or "impossible" (below the floor)
    cost: int | None = None  # of the private half, where there is one
    floor: int | None = None
    public: int | None = None  # cost of the public half
    cases: list[int] = field(default_factory=list)  # the cost of each private case: what the ladder compares
    reason: str = ""
    notes: list[str] = field(default_factory=list)  # unscored: bits lost, bubble, memory


def judged(cost: int, floor: int, **more) -> Result:
    """Return the result of a cost, which nothing can make smaller than its floor."""
    if cost < floor:
        told = f"impossible: below the physical floor ({cost:,} < {floor:,})"
        return Result("impossible", cost, floor, reason=told, **more)
    return Result("scored", cost, floor, **more)


def mean(costs) -> int:
    """Return the mean of the costs of several cases, rounded up."""
    return -(-sum(costs) // len(costs))


def refused(reason, state: str = "refused", **more) -> Result:
    return Result(state, reason=str(reason), **more)


class Draws:
    """Numbers that follow from a seed and from what they are for: the same on every machine, in any order."""

    def __init__(self, seed: str):
        self.seed = seed

    def _number(self, *what) -> int:
        message = "/".join(map(str, what)).encode()
        return int.from_bytes(hmac.new(self.seed.encode(), message, hashlib.sha256).digest(), "big")

    def __call__(self, low: int, high: int, *what) -> int:
        """Return a whole number from low to high, both included."""
        return low + self._number(*what) % (high - low + 1)

    def of(self, *what) -> Draws:
        """Return the draws of one team, or of one half."""
        return Draws(f"{self._number(*what):064x}")

    def order(self, n: int, *what) -> np.ndarray:
        return np.array(sorted(range(n), key=lambda i: self._number(*what, i)))

    def heavy_tailed(self, n: int, *what) -> np.ndarray:
        """Return float32 numbers of either sign, whose sizes differ by up to 2^16: half of them for each doubling."""
        raw = np.random.PCG64(self._number(*what)).random_raw(n)  # the one stream that NumPy promises to keep
        mantissa = ((raw >> np.uint64(41)).astype(np.int64) | 2**22).astype(np.float64) * np.where(raw & 1, 1, -1)
        low = (raw >> np.uint64(1)).astype(np.int64) & 2**32 - 1 | 2**16
        doublings = np.frexp((low & -low).astype(np.float64))[1] - 1  # zeros at its end
        return np.ldexp(mantissa, doublings - 31).astype(np.float32)
