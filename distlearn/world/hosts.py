"""Engines on several machines: where they are, and how a command gets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Hosts:
    """Machines on which `EngineWorld` starts its engines.

    They have this Python and the library at the same paths (a shared disk), and let this user in without a password.
    Ranks are dealt to them in blocks: with two hosts and four engines ranks 0 and 1 are on the first.

    Parameters
    ----------
    addresses : sequence of str
        Addresses or names.
    here : str
        The address of this machine, as the others see it.
    rsh : str
        The program that runs a command elsewhere: it is called as `rsh ADDRESS COMMAND...`.
    environment : dict of str to str
        More environment variables for the engines.
    one_machine : bool
        The hosts are parts of this machine (network namespaces, containers that share its processes): their processes
        can be watched and killed from here. Those of other machines are signalled through ipyparallel, and end when
        mpiexec here does.

    Examples
    --------
    >>> Hosts(["10.0.0.2", "10.0.0.3"], here="10.0.0.1").share(5)
    [3, 2]
    """

    addresses: Sequence[str]
    here: str
    rsh: str = "ssh"
    environment: Mapping[str, str] = field(default_factory=dict)
    one_machine: bool = False

    def __post_init__(self):
        if isinstance(self.addresses, str) or not self.addresses:
            raise ValueError(f"Hosts: addresses are {self.addresses!r}, expected a list with one or more")

    def share(self, n: int) -> list[int]:
        """Return how many of n engines each host gets, as even as it goes."""
        if n < len(self.addresses):
            raise ValueError(f"Hosts: {n} engines for {len(self.addresses)} hosts, expected one for each, or more")
        return [n // len(self.addresses) + (i < n % len(self.addresses)) for i in range(len(self.addresses))]

    def mpiexec_arguments(self, n: int) -> list[str]:
        """Return what MPICH's mpiexec must be told to start n ranks there."""
        slots = ",".join(f"{a}:{k}" for a, k in zip(self.addresses, self.share(n), strict=True))
        return ["-launcher", "ssh", "-launcher-exec", self.rsh, "-localhost", self.here, "-hosts", slots]
