"""Real networks as models: bandwidth from the standard or the vendor's data sheet, latency from published measurements.

Bandwidths are those of one direction and of payload alone. They are upper bounds; programs see less, and
`Network.fit` measures how much less.
"""

from __future__ import annotations

from .alpha_beta import Network

_TCP = 1448 / 1538
"""Share of an Ethernet link that is TCP payload: of each 1,538 bytes on the wire (IEEE 802.3: preamble 8, header 14,
data 1,500, checksum 4, gap 12) 52 more are headers of IPv4 (20) and TCP with time stamps (RFC 9293, RFC 7323: 32)."""


def _ethernet(gigabits: float, alpha: float) -> Network:
    return Network(alpha, gigabits * 1e9 / 8 * _TCP)


def _pcie(gigatransfers: float) -> float:
    """Bytes/s of 16 lanes in one direction: 128 of 130 bits are data (PCI Express Base Specification, since 3.0)."""
    return 16 * gigatransfers * 1e9 * 128 / 130 / 8


PRESETS = {
    # two ranks of MPICH 5 in one machine (shared memory), `Network.fit` on a virtual machine with two cores
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
"""By name, for `Network.preset`."""
