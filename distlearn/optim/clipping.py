"""Gradient clipping: one bad batch must not throw the weights far away."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..nn.layer import Param


def global_norm(params: Iterable[Param]) -> float:
    """Norm of all gradients as one vector, summed in float64."""
    return sum(float((p.grad * p.grad).sum(dtype=np.float64)) for p in params) ** 0.5


def clip_by_norm(params: Iterable[Param], max_norm: float, norm: Callable[[list[Param]], float] = global_norm) -> float:
    r"""Scale the gradients, all by the same factor, to a norm of at most `max_norm`.

    .. math:: g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert}\right)

    The direction is kept. On several ranks, clip after the gradients have been summed: then all ranks clip alike.

    Parameters
    ----------
    max_norm : float
        c.
    norm : callable
        `norm(params) -> float`: the norm before clipping; over all ranks, where each has a part.

    Returns
    -------
    norm : float
        The norm before clipping.

    References
    ----------
    R. Pascanu, T. Mikolov, Y. Bengio (2013), On the difficulty of training recurrent neural networks, ICML, algorithm
    1.
    """
    if not max_norm > 0:
        raise ValueError(f"clip_by_norm: max_norm is {max_norm!r}, expected a number above 0")
    params = list(params)
    length = norm(params)
    if length > max_norm:
        for p in params:
            p.grad *= max_norm / length
    return length
