r"""The gradient noise scale: how large a batch may be before more samples buy nothing.

Ranks that train data-parallel have gradients of a small batch (each its own) and of a large one (their sum) in every
step. The two differ by noise, whose size follows from their norms:

.. math:: E|g_b|^2 = |G|^2 + \operatorname{tr}(\Sigma) / b

for a batch of b samples, with the true gradient G and the covariance :math:`\Sigma` of the samples' gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class NoiseScaleEstimate(NamedTuple):
    """What `NoiseScale.estimate` returns."""

    scale: float
    low: float
    high: float


class NoiseScale:
    r"""Estimator of the gradient noise scale :math:`B = \operatorname{tr}(\Sigma) / |G|^2`.

    With p parts of :math:`b_i` samples, n in all, their mean gradients :math:`g_i` and the mean g of all samples,

    .. math::
        a = \sum_i \frac{b_i}{n} |g_i|^2, \qquad
        \operatorname{tr}(\Sigma) = \frac{n}{p - 1} (a - |g|^2), \qquad
        |G|^2 = \frac{p |g|^2 - a}{p - 1}

    are unbiased in every step. For equal parts these are equations A.2 and A.3 of the reference. A ratio of two noisy
    numbers is biased, so both are averaged over steps first.

    Attributes
    ----------
    traces, squared_norms : list of float
        The two estimates of every step; single ones may be negative.

    References
    ----------
    S. McCandlish, J. Kaplan, D. Amodei et al. (2018), An empirical model of large-batch training, arXiv:1812.06162,
    appendix A.1. The interval: E. C. Fieller (1954), Some problems in interval estimation, J. R. Stat. Soc. B 16(2).

    Examples
    --------
    Two halves of a batch of 8 with the gradients (3, 0) and (1, 0):

    >>> noise = NoiseScale()
    >>> noise.add(part=(4 / 8) * 9 + (4 / 8) * 1, whole=4.0, n=8, parts=2)
    >>> noise.traces, noise.squared_norms
    ([8.0], [3.0])
    """

    def __init__(self):
        self.traces: list[float] = []
        self.squared_norms: list[float] = []

    def add(self, part: float, whole: float, n: int, parts: int) -> None:
        r"""Add one step.

        Parameters
        ----------
        part : float
            a, the mean of the parts' squared norms, weighted by their samples.
        whole : float
            :math:`|g|^2`, the squared norm of the gradient of the whole batch.
        n : int
            Samples in the batch.
        parts : int
            Number of parts that have samples; a step with a single part says nothing and is left out.
        """
        if parts > 1:
            self.traces.append(n * (part - whole) / (parts - 1))
            self.squared_norms.append((parts * whole - part) / (parts - 1))

    def estimate(self, blocks: int = 20) -> NoiseScaleEstimate:
        """Return the noise scale of the steps so far, with its 95 % confidence interval.

        Parameters
        ----------
        blocks : int
            Steps are averaged in so many blocks, whose spread gives the interval: neighbouring steps are correlated.
        """
        trace, square = np.array(self.traces), np.array(self.squared_norms)
        if not 2 <= blocks <= len(trace):
            raise ValueError(f"NoiseScale.estimate: {len(trace)} steps in {blocks} blocks, expected 2 blocks of steps")
        means = np.array([[part.mean() for part in np.array_split(values, blocks)] for values in (trace, square)])
        s, g = trace.mean(), square.mean()
        covariance = np.cov(means) / blocks
        return NoiseScaleEstimate(s / g if g > 0 else np.inf, *_ratio_interval(s, g, covariance))


def _ratio_interval(s: float, g: float, covariance) -> tuple[float, float]:
    """Fieller's interval for s / g: all ratios r for which s - r g is within z = 1.96 standard errors of 0."""
    z, ((ss, sg), (_, gg)) = 1.96, covariance
    # (s - r g)^2 <= z^2 (ss - 2 r sg + r^2 gg) is a quadratic inequality in r
    a, b, c = g * g - z * z * gg, s * g - z * z * sg, s * s - z * z * ss
    if a > 0 and g > 0:
        root = np.sqrt(max(b * b - a * c, 0.0))
        return max((b - root) / a, 0.0), (b + root) / a
    # a gradient of zero is within the error: there is no upper limit
    return (c / (b + np.sqrt(b * b - a * c)) if a < 0 < c else 0.0), np.inf
