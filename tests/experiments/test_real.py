"""Real engines with a straggler: not waiting pays, and the simulator knows by how much."""

import pytest

from distlearn.experiments import digits_task, real_beside_simulated
from distlearn.parallel.param_server import asp, bsp, ssp
from distlearn.world import EngineWorld

pytestmark = pytest.mark.engines


def test_asynchrony_pays_on_engines():
    """Most of the time is slept (20 ms a step, 80 ms on the slow worker), so the ratios do not hang on the machine."""
    with EngineWorld(5, progress=False, timeout=100) as world:
        pair = real_beside_simulated(world, digits_task(), steps=16, policies=(bsp(), ssp(4), asp()))
    bulk, bounded, free = (pair.real[name] for name in ("BSP", "SSP(4)", "ASP"))
    assert free.throughput >= 2 * bulk.throughput
    assert free.samples_per_second >= 2 * bulk.samples_per_second
    assert bulk.throughput < bounded.throughput < free.throughput
    assert pair.speeds.slow[0] == pytest.approx(4, rel=0.25)
    for name, run in pair.real.items():
        assert run.updates == pair.simulated[name].updates
        assert run.staleness.mean() == pytest.approx(pair.simulated[name].staleness.mean(), abs=0.4)
    assert all(0.7 < ratio < 1.4 for ratio in pair.ratios().values())
