"""Compute models: how many seconds of virtual time a span of work takes on a simulated rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ComputeModel(Protocol):
    """Turns a span's work into seconds."""

    measures: bool
    """Whether `seconds` reads its `wall` argument."""

    def seconds(self, flops: float, nbytes: float, wall: float) -> float:
        """Seconds for `flops` operations on `nbytes` bytes that took `wall` seconds on this machine."""


@dataclass(frozen=True)
class Free:
    """Computing takes no time: for tests of what is computed, and for counting messages alone."""

    measures = False

    def seconds(self, flops, nbytes, wall):
        """Return 0."""
        return 0.0


@dataclass(frozen=True)
class Roofline:
    r"""A span takes max(flops / peak, nbytes / bandwidth) seconds: the same in every run.

    Parameters
    ----------
    peak : float
        Arithmetic speed [flop/s].
    bandwidth : float
        Memory bandwidth [bytes/s].

    References
    ----------
    S. Williams, A. Waterman, D. Patterson (2009), Roofline: an insightful visual performance model for multicore
    architectures, CACM 52(4).
    """

    peak: float
    bandwidth: float = float("inf")
    measures = False

    def __post_init__(self):
        for name in ("peak", "bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Roofline: {name} is {getattr(self, name)!r}, expected a rate above 0")

    @classmethod
    def of(cls, card, share: float = 1.0) -> Roofline:
        """Make the roofline of a real graphics card, by its name in `distlearn.cuda.cards`.

        Parameters
        ----------
        card : str or Card
        share : float
            Share of its peak and of its bandwidth that a program achieves, above 0 and up to 1.

        Examples
        --------
        >>> Roofline.of("V100")
        Roofline(peak=15700000000000.0, bandwidth=900000000000.0)
        """
        from ..cuda.cards import card as find

        if not 0 < share <= 1:
            raise ValueError(f"Roofline.of: share is {share!r}, expected a share above 0 and up to 1")
        found = find(card)
        return cls(share * found.peak, share * found.bandwidth)

    def seconds(self, flops, nbytes, wall):
        """Return the longer of the time to compute and the time to move."""
        return max(flops / self.peak, nbytes / self.bandwidth)


@dataclass(frozen=True)
class Measured:
    """A span takes as long as its block really took here, times `scale`.

    The measurement is undisturbed, as no other simulated rank runs meanwhile; it differs from run to run.
    """

    scale: float = 1.0
    measures = True

    def __post_init__(self):
        if not self.scale >= 0:
            raise ValueError(f"Measured: scale is {self.scale!r}, expected a factor of 0 or more")

    def seconds(self, flops, nbytes, wall):
        """Return the measured time, scaled."""
        return wall * self.scale
