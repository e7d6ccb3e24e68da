"""Memory of a training step, by use."""

from __future__ import annotations

from typing import NamedTuple

from ...tables import Table, quantity
from ..layer import Layer, nbytes


class Memory(NamedTuple):
    """Bytes in use at the end of a forward pass, the maximum of a training step."""

    parameters: int
    gradients: int
    optimizer: int
    """The optimizer's state: 0 for SGD, as much as the parameters for Momentum, twice that for Adam."""
    activations: int
    """What the layers saved for the backward pass; the only part that grows with the batch."""

    @property
    def total(self) -> int:
        """The sum."""
        return sum(self)

    def table(self) -> Table:
        """Return the parts as a table."""
        rows = [
            [name, f"{value:,}", quantity(value, "B"), f"{value / max(1, self.total):.0%}"]
            for name, value in [*self._asdict().items(), ("sum", self.total)]
        ]
        return Table(["part", "bytes", "", "share"], rows)

    def __str__(self):
        return str(self.table())

    def _repr_html_(self):
        return self.table()._repr_html_()


def memory_report(model: Layer, x, optimizer=None) -> Memory:
    """Measure the memory of a training step: run the model forward and count what it keeps.

    Parameters
    ----------
    x : (batch, ...) array
    optimizer : Optimizer, optional
        Its states are counted.

    Examples
    --------
    >>> import numpy as np
    >>> from distlearn.nn import MLP
    >>> memory_report(MLP((784, 256, 10)), np.zeros((32, 784), "float32")).activations == 4 * 32 * (784 + 256)
    True
    """
    _, saved = model.forward(x)
    return Memory(
        nbytes([p.data for p in model.params]),
        nbytes([p.grad for p in model.params]),
        nbytes([] if optimizer is None else optimizer.states),
        nbytes(saved),
    )
