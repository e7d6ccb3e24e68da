"""Real engines with a straggler: not waiting pays, and the simulator knows by how much."""

import pytest

from distlearn.parallel.asynchronous.param_server import Speeds, asp, bsp, ssp
from distlearn.world import EngineWorld

from ..benchmarks.real import digits_task, real_beside_simulated

pytestmark = pytest.mark.engines


STEP_SECONDS = (0.02, 0.08, 0.32)
"""Slept in a step, by attempt: what a busy machine spoils is done again so slowly that sleep is nearly all there is."""


def claims(pair) -> dict[str, bool]:
    """What real times must show, and whether they do."""
    bulk, bounded, free = (pair.real[name] for name in ("BSP", "SSP(4)", "ASP"))
    lags = [(run.staleness.mean(), pair.simulated[name].staleness.mean()) for name, run in pair.real.items()]
    return {
        "ASP makes twice the updates of BSP": free.throughput >= 2 * bulk.throughput,
        "ASP uses twice the samples of BSP": free.samples_per_second >= 2 * bulk.samples_per_second,
        "SSP lies between": bulk.throughput < bounded.throughput < free.throughput,
        "the straggler is found": pair.speeds.slow[0] == pytest.approx(4, rel=0.25),
        "staleness is simulated": all(real == pytest.approx(simulated, abs=0.4) for real, simulated in lags),
        "times are simulated": all(0.7 < ratio < 1.4 for ratio in pair.ratios().values()),
    }


@pytest.mark.nightly
def test_asynchrony_pays_on_engines():
    """Most of the time is slept (four times as long on the slow worker), so the ratios do not hang on the machine."""
    with EngineWorld(5, progress=False, timeout=100) as world:
        for seconds in STEP_SECONDS:
            pace = Speeds(4, seconds, slow={0: 4.0})
            pair = real_beside_simulated(world, digits_task(), pace=pace, steps=16, policies=(bsp(), ssp(4), asp()))
            assert {n: run.updates for n, run in pair.real.items()} == {n: r.updates for n, r in pair.simulated.items()}
            shown = claims(pair)
            if all(shown.values()):
                break
    assert all(shown.values()), (shown, pair.real, pair.ratios())
