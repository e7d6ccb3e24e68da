"""Measuring a network: the simulator gives back what it was made of; the rest is arithmetic."""

import numpy as np
import pytest

from distlearn.comm import HierarchicalNetwork, Network, RankError
from distlearn.comm.network import cost
from distlearn.comm.network.alpha_beta import PRESETS
from distlearn.comm.network.fit import MESSAGE_SIZES, all_reduce_sweep, fastest, line, ping_pong
from distlearn.sim import SimWorld


@pytest.mark.parametrize(
    "network",
    [Network(), Network(0.0, 1e8), Network(1e-3), Network(3e-7, 7e10), Network(5e-5, 1.25e8), Network(1e-9, 1e6)],
    ids=str,
)
def test_the_simulators_network_is_recovered(network):
    """Also one without latency, or without a limit."""
    times = SimWorld(3, network).run(ping_pong)[0]
    found = line(np.array(MESSAGE_SIZES, float), fastest(times))
    assert found == pytest.approx((network.alpha, network.beta), rel=1e-9)


def test_parameters_stay_physical():
    assert line(np.array([1.0, 10.0, 100.0]), np.array([0.5, 9.0, 110.0]))[0] == 0.0
    assert line(np.array([1.0, 10.0]), np.array([2.0, 1.0]))[1] == float("inf")
    with pytest.raises(ValueError, match="expected two different"):
        line(np.array([5.0]), np.array([1.0]))
    with pytest.raises(ValueError, match=r"seconds are \[nan, 2\.0\]"):
        line(np.array([1.0, 10.0]), np.array([np.nan, 2.0]))


def test_ping_pong_needs_two():
    with pytest.raises(RankError, match="ping_pong needs 2 ranks"):
        SimWorld(1).run(ping_pong)


def test_the_slowest_rank_counts():
    def program(comm):
        times = all_reduce_sweep(comm, ["tree", "native"], [4096], repeats=3)
        return times["tree"], times["native"]

    results = SimWorld(4, Network(1e-5, 1e8)).run(program)
    assert results[0][0] == results[3][0]
    assert results[0][0][0] == pytest.approx([cost.seconds("tree", 4096, 4, Network(1e-5, 1e8))] * 3)


def test_presets_are_networks_in_the_order_of_their_kind():
    assert all(isinstance(n, (Network, HierarchicalNetwork)) for n in PRESETS.values())
    speeds = [Network.preset(f"ethernet-{g}g").beta for g in (1, 10, 25, 100)]
    assert speeds == sorted(speeds)
    assert Network.preset("infiniband-hdr").beta < Network.preset("infiniband-ndr").beta
    assert Network.preset("nvlink-3").beta < Network.preset("nvlink-4").beta
    assert Network.preset("pcie-4").beta < Network.preset("pcie-5").beta
    with pytest.raises(ValueError, match="'carrier-pigeon', expected one of loopback"):
        Network.preset("carrier-pigeon")
