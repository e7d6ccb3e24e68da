"""Real graphics cards: how fast they compute, how fast they read memory, and the cost of reaching them.

Peak and bandwidth bound every kernel from above (the roofline; Williams, Waterman and Patterson, "Roofline: an
insightful visual performance model for multicore architectures", CACM 52(4), 2009): a kernel that does I operations per
byte moved runs at no more than min(peak, I * bandwidth).
"""

from __future__ import annotations

from typing import NamedTuple

# Seconds from one launch of a kernel to the next when kernels are shorter than that; from Python rather more.
#
# A. Gray (2019), Getting started with CUDA graphs, NVIDIA technical blog, measures 3.8 microseconds from C on a V100.
LAUNCH = 5e-6


class Card(NamedTuple):
    """A graphics card, or another processor described by the same numbers (`lab05.measure_cpu`)."""

    name: str
    peak: float  # float32 operations per second of the ordinary cores (a fused multiply-add is 2), no tensor cores
    bandwidth: float  # bytes per second between the card's memory and its processors
    source: str  # where NVIDIA states the two
    l2_bandwidth: float | None = None  # bytes per second of the second-level cache; None where NVIDIA does not state it
    # Bytes per second from the host's memory to the card, one way; None where the generation of the bus is not known,
    # infinite for a processor that works in the host's memory.
    link: float | None = None
    overhead: float = LAUNCH  # seconds that starting an operation costs, however small it is

    @property
    def ridge(self) -> float:
        """Operations per byte at which compute becomes the limit (the ridge point)."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """Return the most operations per second that a kernel of this arithmetic intensity can reach."""
        return min(self.peak, intensity * self.bandwidth)

    def attainable_from_l2(self, intensity: float) -> float | None:
        """Return the same if the second-level cache held all data; None where its bandwidth is unknown."""
        return None if self.l2_bandwidth is None else min(self.peak, intensity * self.l2_bandwidth)

    def least_time(self, flops: float, nbytes: float) -> float:
        """Return the fewest seconds in which a kernel can do its operations and move its bytes."""
        return max(flops / self.peak, nbytes / self.bandwidth)


# NVIDIA A100 architecture whitepaper: bytes that L2 delivers in a clock, times the boost clock
_V100_L2, _A100_L2 = 2048 * 1.53e9, 5120 * 1.41e9

# PCI Express, 16 lanes, one way: transfers per second and lane, 128 of 130 bits payload (PCI-SIG, generations 3 to 5)
_PCIE3, _PCIE4, _PCIE5 = (16 * rate * 128 / 130 / 8 for rate in (8e9, 16e9, 32e9))

CARDS = {
    card.name: card
    for card in (
        Card("T4", 8.1e12, 320e9, "NVIDIA T4 product brief, PB-09256", link=_PCIE3),
        Card("V100", 15.7e12, 900e9, "NVIDIA V100 datasheet, SXM2", _V100_L2, link=_PCIE3),
        Card("A100", 19.5e12, 1555e9, "NVIDIA A100 datasheet, SXM4 40 GB", _A100_L2, link=_PCIE4),
        Card("A100 80GB", 19.5e12, 2039e9, "NVIDIA A100 datasheet, SXM4 80 GB", _A100_L2, link=_PCIE4),
        Card("RTX 3090", 35.6e12, 936e9, "NVIDIA Ampere GA102 architecture whitepaper", link=_PCIE4),
        Card("RTX 4090", 82.6e12, 1008e9, "NVIDIA Ada architecture whitepaper", link=_PCIE4),
        Card("L4", 30.3e12, 300e9, "NVIDIA L4 datasheet", link=_PCIE4),
        Card("H100", 67e12, 3350e9, "NVIDIA H100 datasheet, SXM5", link=_PCIE5),
        Card("H200", 67e12, 4800e9, "NVIDIA H200 datasheet, SXM", link=_PCIE5),
        Card("B200", 80e12, 8000e9, "NVIDIA Blackwell architecture technical brief, HGX B200"),
    )
}


def card(name: str | Card) -> Card:
    """Return a card by its name."""
    if isinstance(name, Card):
        return name
    if not isinstance(name, str) or name not in CARDS:
        raise ValueError(f"card is {name!r}, expected a Card or one of {', '.join(CARDS)}")
    return CARDS[name]
