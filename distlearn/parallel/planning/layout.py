"""Layouts: over how many ranks the batch, the parameters of each layer, and the layers are split."""

from __future__ import annotations

from typing import NamedTuple


class Layout(NamedTuple):
    """A way to arrange n = dp tp pp ranks; tp changes fastest, so that its ranks are neighbours.

    Examples
    --------
    >>> str(Layout(2, 4)), str(Layout(pp=3)), str(Layout(8, trick=True)), str(Layout())
    ('data 2 x tensor 4', 'pipeline 3', 'one weird trick 8', 'serial')
    """

    dp: int = 1
    """Replicas that share out the batch."""
    tp: int = 1
    """Ranks that share out neurons and filters."""
    pp: int = 1
    """Stages of consecutive layers."""
    trick: bool = False
    """All dp ranks share out the batch up to the first dense layer, and neurons from there on."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.pp

    @property
    def kinds(self) -> tuple[str, ...]:
        """The ways of parallelism that it uses, of "data", "tensor", "pipeline"."""
        named = {"data": self.dp > 1, "tensor": self.tp > 1 or (self.trick and self.dp > 1), "pipeline": self.pp > 1}
        return tuple(name for name, used in named.items() if used)

    def ranks(self, axis: str) -> list[int]:
        """Return the ranks of the world that are together with rank 0 along "dp", "tp" or "pp"."""
        stride = {"tp": 1, "pp": self.tp, "dp": self.tp * self.pp}[axis]
        return [i * stride for i in range(getattr(self, axis))]

    def __str__(self) -> str:
        if self.trick:
            return f"one weird trick {self.dp}"
        parts = (("data", self.dp), ("tensor", self.tp), ("pipeline", self.pp))
        return " x ".join(f"{name} {k}" for name, k in parts if k > 1) or "serial"


def layouts(n: int, *, batch_size: int, n_layers: int, trick: bool = False) -> list[Layout]:
    """List the layouts of n ranks in which every rank has something to do.

    Parameters
    ----------
    batch_size : int
        Limits dp.
    n_layers : int
        Limits pp.
    trick : bool
        Whether the model has convolutions before dense layers.

    Examples
    --------
    >>> [str(layout) for layout in layouts(4, batch_size=2, n_layers=3)]
    ['data 2 x tensor 2', 'data 2 x pipeline 2', 'tensor 4', 'tensor 2 x pipeline 2']
    """
    if not hasattr(n, "__index__") or n < 1:
        raise ValueError(f"layouts: n is {n!r}, expected a number of ranks, 1 or more")
    divisors = [k for k in range(n, 0, -1) if n % k == 0]
    found = [
        Layout(dp, tp, n // dp // tp)
        for dp in divisors
        for tp in divisors
        if n % (dp * tp) == 0 and dp <= batch_size and n // dp // tp <= n_layers
    ]
    return found + ([Layout(n, trick=True)] if trick and 1 < n <= batch_size else [])
