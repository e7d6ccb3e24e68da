"""The cost of a message, alpha + n / beta, on one level or two, and real networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ...bounds import check_number, check_positive
from .cost import collective_seconds

# -- alpha beta --------------------------------------------------------------------------------------------------------
# The cost of a message: Hockney's alpha-beta model, and networks of two levels.

CONTENTION = ("sender", "ports")


@dataclass(frozen=True, repr=False)
class Network:
    r"""A network on which a message of n bytes takes alpha + n / beta seconds.

    Parameters
    ----------
    alpha : float
        Latency of a message [s].
    beta : float
        Bandwidth [bytes/s].
    contention : {"sender", "ports"}
        Where messages wait for one another: at the network card of the sending rank; or there and at that of the rank
        that receives them, so that many senders to one rank share its bandwidth.

    References
    ----------
    R. W. Hockney (1994), The communication challenge for MPP, Parallel Computing 20(3), section 2.

    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), sections 4.1 to 4.5, for the collectives.
    """

    alpha: float = 0.0
    beta: float = float("inf")
    contention: str = field(default="sender", kw_only=True)

    def __post_init__(self):
        check_number("Network", least=0, below=float("inf"), alpha=self.alpha)
        check_number("Network", above=0, beta=self.beta)
        if self.contention not in CONTENTION:
            raise ValueError(f"Network: contention is {self.contention!r}, expected one of {', '.join(CONTENTION)}")

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if not f.kw_only or getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"

    @classmethod
    def preset(cls, name: str) -> Network:
        """Return a real network by name, such as "ethernet-10g"."""
        if name not in PRESETS:
            raise ValueError(f"the network is {name!r}, expected one of {', '.join(PRESETS)}")
        return PRESETS[name]

    @classmethod
    def of(cls, network: Any) -> Network:
        """Return a network, looked up among the presets if it is a name.

        Parameters
        ----------
        network : str or a model of costs
            A `Network`, or what has its methods: `HierarchicalNetwork`, a subclass with a `collective` of its own.

        Examples
        --------
        >>> Network.of("ethernet-10g") is Network.preset("ethernet-10g")
        True
        """
        if isinstance(network, str):
            return cls.preset(network)
        if not hasattr(network, "collective"):
            raise TypeError(f"the network is {network!r}, expected a Network or the name of one")
        return network

    # -- one message ---------------------------------------------------------------------------------------------------
    @property
    def plain(self) -> bool:
        """Whether a message costs alpha + n / beta between any two ranks."""
        return type(self) is Network and self.contention == "sender"

    @property
    def shared(self) -> bool:
        """Whether messages of different ranks can wait for one another."""
        return self.contention != "sender"

    def message(self, nbytes: float) -> float:
        """Seconds that one message of `nbytes` takes."""
        return self.alpha + nbytes / self.beta  # as in `route`, and in the simulator's transport

    def route(self, nbytes: float, source: int, dest: int) -> tuple[float, float, tuple[Any, ...]]:
        """Say how a message travels."""
        # latency, seconds: It arrives after both; it occupies its links for the second [s].
        # links: Names of the links that it needs, all of them at once.
        return self.alpha, nbytes / self.beta, self._links(source, dest)

    def _links(self, source, dest, level: str = "") -> tuple[Any, ...]:
        out = (level, "out", source)
        return (out,) if self.contention == "sender" else (out, (level, "in", dest))

    # -- collectives ---------------------------------------------------------------------------------------------------
    def collective(self, name: str, nbytes: float, ranks: Sequence[int]) -> float:
        """Seconds that the collective `name` takes among the given ranks of the world.

        Parameters
        ----------
        name : str
            Of a communicator's method, such as "all_reduce".
        nbytes : float
            Of the array; where it has a row for each rank, of all rows.
        """
        return collective_seconds(name, nbytes, len(ranks), self.message)


@dataclass(frozen=True)
class HierarchicalNetwork:
    r"""Nodes of several ranks: one network inside a node, a slower one between nodes.

    Ranks 0 .. s - 1 are on the first node, the next s on the second, and so on.

    Parameters
    ----------
    inside : Network
        Between ranks of one node (NVLink, PCIe, shared memory).
    between : Network
        Between nodes (Ethernet, InfiniBand).
    ranks_per_node : int
        s.

    Examples
    --------
    >>> cluster = HierarchicalNetwork(Network(1e-6, 300e9), Network(5e-6, 25e9), ranks_per_node=8)
    >>> seconds = [cluster.collective("all_reduce", 244e6, range(p)) for p in (8, 16)]
    >>> seconds[0] < seconds[1]
    True
    """

    inside: Network
    between: Network
    ranks_per_node: int
    plain = False

    def __post_init__(self):
        check_positive("HierarchicalNetwork", ranks_per_node=self.ranks_per_node)
        for name in ("alpha", "beta"):  # where one level is asked for, that between nodes
            object.__setattr__(self, name, getattr(self.between, name))

    @property
    def shared(self) -> bool:
        return self.inside.shared or self.between.shared

    def message(self, nbytes: float) -> float:
        return self.between.message(nbytes)

    def route(self, nbytes: float, source: int, dest: int) -> tuple[float, float, tuple[Any, ...]]:
        a, b = source // self.ranks_per_node, dest // self.ranks_per_node
        if a == b:
            inside = self.inside
            return inside.alpha, nbytes / inside.beta, inside._links(source, dest, "inside")
        return self.between.alpha, nbytes / self.between.beta, self.between._links(source, dest, "between")

    def collective(self, name: str, nbytes: float, ranks: Sequence[int]) -> float:
        """Seconds that the collective `name` takes among the given ranks of the world: see `Network.collective`.

        On several nodes, the seconds if every message went between nodes. In a ring and a barrier every round waits
        for one that does; a tree and, where the number of ranks is no power of two, an all-to-all take less than this.
        """
        nodes = {rank // self.ranks_per_node for rank in ranks}
        return collective_seconds(name, nbytes, len(ranks), (self.inside if len(nodes) == 1 else self).message)


# -- presets -----------------------------------------------------------------------------------------------------------
# Real networks as models: bandwidth from the standard or the vendor's data sheet, latency from published
# measurements.
#
# Bandwidths are those of one direction and of payload alone. They are upper bounds; programs see less.

# Share of an Ethernet link that is TCP payload: of each 1,538 bytes on the wire (IEEE 802.3: preamble 8, header 14,
# data 1,500, checksum 4, gap 12) 52 more are headers of IPv4 (20) and TCP with time stamps (RFC 9293, RFC 7323: 32).
_TCP = 1448 / 1538


def _ethernet(gigabits: float, alpha: float) -> Network:
    return Network(alpha, gigabits * 1e9 / 8 * _TCP)


def _pcie(gigatransfers: float) -> float:
    """Bytes/s of 16 lanes in one direction: 128 of 130 bits are data (PCI Express Base Specification, since 3.0)."""
    return 16 * gigatransfers * 1e9 * 128 / 130 / 8


# By name, for `Network.preset`.
PRESETS = {
    # two ranks of MPICH 5 in one machine (shared memory), a ping-pong on a virtual machine with two cores
    "loopback": Network(5e-6, 10e9),
    # IEEE 802.3ab. 40 to 300 microseconds between programs: Aspen Systems, HPC glossary, "low latency"
    "ethernet-1g": _ethernet(1, 50e-6),
    # IEEE 802.3ae. 20 microseconds between programs: J. Hurwitz, W. Feng (2003), Initial end-to-end performance
    # evaluation of 10-Gigabit Ethernet, Hot Interconnects 11. Most of it is the operating system, and stays when links
    # become faster
    "ethernet-10g": _ethernet(10, 20e-6),
    "ethernet-25g": _ethernet(25, 20e-6),  # IEEE 802.3by
    "ethernet-100g": _ethernet(100, 20e-6),  # IEEE 802.3ba, 802.3bj
    # InfiniBand Trade Association, roadmap: four lanes carry 200 and 400 Gb/s of data. Latency of MPI about 1
    # microsecond: Aspen Systems, HPC glossary
    "infiniband-hdr": Network(1e-6, 25e9),
    "infiniband-ndr": Network(1e-6, 50e9),
    # NVIDIA A100 Tensor Core GPU Architecture (2020): 12 links, 600 GB/s in both directions together. NVIDIA H100
    # Tensor Core GPU Architecture (2022): 18 links, 900 GB/s. Latency of one step of a ring: NCCL's own cost model,
    # src/graph/tuning.cc, hwLat, ring, protocol "Simple": NVLink 3.4, PCI 5.7 microseconds
    "nvlink-3": Network(3.4e-6, 300e9),
    "nvlink-4": Network(3.4e-6, 450e9),
    # PCI Express Base Specification 4.0 and 5.0: 16 and 32 GT/s per lane; 16 lanes
    "pcie-4": Network(5.7e-6, _pcie(16)),
    "pcie-5": Network(5.7e-6, _pcie(32)),
}
