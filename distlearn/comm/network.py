"""The cost of a message: Hockney's alpha-beta model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    r"""A network on which a message of n bytes takes alpha + n / beta seconds.

    Parameters
    ----------
    alpha : float
        Latency of a message [s].
    beta : float
        Bandwidth [bytes/s].

    References
    ----------
    R. W. Hockney (1994), The communication challenge for MPP, Parallel Computing 20(3), section 2.

    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), sections 4.1 to 4.5, for the collectives.
    """

    alpha: float = 0.0
    beta: float = float("inf")

    def __post_init__(self):
        if not self.alpha >= 0:
            raise ValueError(f"Network: alpha is {self.alpha!r}, expected a latency of 0 seconds or more")
        if not self.beta > 0:
            raise ValueError(f"Network: beta is {self.beta!r}, expected a bandwidth above 0 bytes/s")

    def message(self, nbytes: float) -> float:
        """Seconds that one message of `nbytes` takes."""
        return self.alpha + nbytes / self.beta

    def all_reduce(self, nbytes: float, size: int) -> float:
        """Ring: 2 (p - 1) messages of n / p bytes, one after another."""
        return 2 * (size - 1) * self.message(nbytes / size)

    def reduce_scatter(self, nbytes: float, size: int) -> float:
        """Ring: p - 1 messages of n / p bytes."""
        return (size - 1) * self.message(nbytes / size)

    def all_gather(self, nbytes: float, size: int) -> float:
        """Ring: p - 1 messages of n / p bytes, where n bytes are what every rank ends up with."""
        return (size - 1) * self.message(nbytes / size)

    def broadcast(self, nbytes: float, size: int) -> float:
        """Binomial tree: ceil(log2 p) messages of n bytes, one after another."""
        return (size - 1).bit_length() * self.message(nbytes)

    def scatter(self, nbytes: float, size: int) -> float:
        """Binomial tree: ceil(log2 p) latencies, and all but the root's own share of n bytes leaves the root."""
        return (size - 1).bit_length() * self.alpha + nbytes * (size - 1) / size / self.beta

    gather = scatter

    def all_to_all(self, nbytes: float, size: int) -> float:
        """Pairwise: p - 1 messages of n / p bytes, where n bytes are what every rank sends in all."""
        return (size - 1) * self.message(nbytes / size)

    def barrier(self, nbytes: float, size: int) -> float:
        """Dissemination: ceil(log2 p) empty messages."""
        return (size - 1).bit_length() * self.alpha
