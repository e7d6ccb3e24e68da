"""How much memory training takes besides activations, and how much of it is left on a rank with ZeRO."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ZeROMemory:
    """Bytes that one rank keeps for the model, activations left out."""

    parameters: float
    gradients: float
    optimizer: float
    """The optimizer's state, such as momentum."""
    peak: float
    """Most at any moment of a step, with whatever is gathered for a while."""

    @property
    def total(self) -> float:
        """Bytes between two steps, gradients included."""
        return self.parameters + self.gradients + self.optimizer


def model_state_bytes(
    n_params: float, size: int, stage: int, *, parameter: float = 4, gradient: float = 4, optimizer: float = 8
) -> ZeROMemory:
    r"""Return the bytes that a rank keeps at a stage of ZeRO, by the paper's formulas.

    ======  =============================================  =========================
    stage   bytes on each of p ranks                       bytes on the wire, a rank
    ======  =============================================  =========================
    0       :math:`(a + g + k) \Psi`                       :math:`2 \Psi`
    1       :math:`(a + g) \Psi + k \Psi / p`              :math:`2 \Psi`
    2       :math:`a \Psi + (g + k) \Psi / p`              :math:`2 \Psi`
    3       :math:`(a + g + k) \Psi / p`                   :math:`3 \Psi`
    ======  =============================================  =========================

    Psi is the number of parameters; a, g and k are the bytes of one parameter, of its gradient and of what the
    optimizer keeps for it. Wire bytes count values, times (p - 1) / p.

    Parameters
    ----------
    n_params : float
        Psi.
    size : int
        p.
    stage : {0, 1, 2, 3}
        0 is plain data parallelism.
    parameter, gradient, optimizer : float
        a, g and k [bytes]. The defaults are Adam in float32; the paper's are 2, 2 and 12: half precision with float32
        masters.

    Returns
    -------
    memory : ZeROMemory
        `peak` is the sum: what is gathered temporarily depends on buckets and layers.

    References
    ----------
    S. Rajbhandari, J. Rasley, O. Ruwase, Y. He (2020), ZeRO: memory optimizations toward training trillion parameter
    models, SC20, section 3.1 and figure 1.

    Examples
    --------
    The paper's figure 1, in GB:

    >>> of = dict(parameter=2, gradient=2, optimizer=12)
    >>> [round(model_state_bytes(7.5e9, 64, stage, **of).total / 1e9, 1) for stage in range(4)]
    [120.0, 31.4, 16.6, 1.9]
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"model_state_bytes: stage is {stage!r}, expected 0, 1, 2 or 3")
    parts = [
        each * n_params / (size if stage >= first else 1)
        for each, first in ((parameter, 3), (gradient, 2), (optimizer, 1))
    ]
    return ZeROMemory(*parts, peak=sum(parts))


class Ledger:
    """Counts bytes in and out, and remembers the most there have been."""

    def __init__(self):
        self.now = self.peak = 0

    def take(self, nbytes: int) -> None:
        """Count bytes as allocated."""
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def drop(self, nbytes: int) -> None:
        """Count bytes as freed."""
        self.now -= nbytes
