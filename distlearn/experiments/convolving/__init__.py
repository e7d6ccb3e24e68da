"""Four ways to convolve: what they cost, and what they lose to rounding."""

from ...nn.costs.profile import fewest_seconds
from .precision import (
    bits_lost,
    deep_network,
    digits_accuracy,
    loss_of_points,
    rank_points,
    sample_layer,
    use_convolution,
)
from .ways import Way, time_ways

__all__ = [
    "Way",
    "bits_lost",
    "deep_network",
    "digits_accuracy",
    "fewest_seconds",
    "loss_of_points",
    "rank_points",
    "sample_layer",
    "time_ways",
    "use_convolution",
]
