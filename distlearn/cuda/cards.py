"""Real graphics cards: how fast they compute and how fast they read memory.

The two numbers bound every kernel from above (the roofline; Williams, Waterman and Patterson, "Roofline: an insightful
visual performance model for multicore architectures", CACM 52(4), 2009): a kernel that does I operations per byte moved
runs at no more than min(peak, I * bandwidth).
"""

from __future__ import annotations

from typing import NamedTuple


class Card(NamedTuple):
    """A graphics card.

    Attributes
    ----------
    name : str
    arch : int
        Compute capability: 90 is sm_90.
    year : int
        Of its release.
    peak : float
        Single-precision operations per second of the ordinary cores (a fused multiply-add counts two), without tensor
        cores.
    bandwidth : float
        Bytes per second between the card's memory and its processors.
    source : str
        Where NVIDIA states the two numbers.
    """

    name: str
    arch: int
    year: int
    peak: float
    bandwidth: float
    source: str

    @property
    def ridge(self) -> float:
        """Operations per byte at which compute becomes the limit (the ridge point)."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """Return the most operations per second that a kernel of this arithmetic intensity can reach."""
        return min(self.peak, intensity * self.bandwidth)

    def bound(self, intensity: float) -> str:
        """Return what limits a kernel: "memory" or "compute"."""
        return "memory" if intensity < self.ridge else "compute"

    def least_time(self, flops: float, nbytes: float) -> float:
        """Return the fewest seconds in which a kernel can do its operations and move its bytes."""
        return max(flops / self.peak, nbytes / self.bandwidth)


CARDS = {
    card.name: card
    for card in (
        Card("T4", 75, 2018, 8.1e12, 320e9, "NVIDIA T4 product brief, PB-09256"),
        Card("V100", 70, 2017, 15.7e12, 900e9, "NVIDIA V100 datasheet, SXM2"),
        Card("A100", 80, 2020, 19.5e12, 1555e9, "NVIDIA A100 datasheet, SXM4 40 GB"),
        Card("A100 80GB", 80, 2020, 19.5e12, 2039e9, "NVIDIA A100 datasheet, SXM4 80 GB"),
        Card("RTX 3090", 86, 2020, 35.6e12, 936e9, "NVIDIA Ampere GA102 architecture whitepaper"),
        Card("RTX 4090", 89, 2022, 82.6e12, 1008e9, "NVIDIA Ada architecture whitepaper"),
        Card("L4", 89, 2023, 30.3e12, 300e9, "NVIDIA L4 datasheet"),
        Card("H100", 90, 2022, 67e12, 3350e9, "NVIDIA H100 datasheet, SXM5"),
        Card("H200", 90, 2023, 67e12, 4800e9, "NVIDIA H200 datasheet, SXM"),
        Card("B200", 100, 2024, 80e12, 8000e9, "NVIDIA Blackwell architecture technical brief, HGX B200"),
    )
}


def card_in(device: str) -> Card | None:
    """Return the card that a device's name contains ("NVIDIA A100-SXM4-80GB"), or None if the table has none."""
    words = device.replace("-", " ").split()
    named = [c for c in CARDS.values() if all(word in words for word in c.name.split())]
    return max(named, key=lambda c: len(c.name), default=None)


def card(name: str | Card) -> Card:
    """Return a card by its name.

    Raises
    ------
    ValueError
        If there is no such card.
    """
    if isinstance(name, Card):
        return name
    if not isinstance(name, str) or name not in CARDS:
        raise ValueError(f"card is {name!r}, expected a Card or one of {', '.join(CARDS)}")
    return CARDS[name]
