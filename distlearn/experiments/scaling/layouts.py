"""A training step in any layout, by simulation of the strategies' own code, to test what `plan` recommends."""

from __future__ import annotations

from typing import NamedTuple

from ...comm import Network
from ...optim import Momentum, Optimizer
from ...parallel.data.data_parallel import DataParallel
from ...parallel.hybrid import Hybrid
from ...parallel.meta import drop_arithmetic, meta_batch, meta_copy, meta_loss
from ...parallel.pipeline.strategy import Pipeline
from ...parallel.planning import Layout, Plan, plan
from ...parallel.planning.named import compute_of, model_and_sample
from ...parallel.tensor import TensorParallel
from ...parallel.tensor.one_weird_trick import OneWeirdTrick
from ...sim import SimWorld
from ...tables import Table, Tabular, format_time
from ...trace import Trace
from .stall import CAP_BYTES


class Step(NamedTuple):
    """A simulated training step."""

    layout: Layout
    seconds: float
    trace: Trace
    """Of the step alone."""


def simulate_layout(
    model,
    layout: Layout,
    network,
    *,
    batch_size: int,
    input_shape: tuple[int, ...] | None = None,
    compute="V100",
    cap_bytes: float = CAP_BYTES,
    n_microbatches: int | None = None,
) -> Step:
    """Simulate one training step in a layout; the parameters are those of `plan`.

    `DataParallel`, `TensorParallel`, `Pipeline` (1F1B), `OneWeirdTrick` or `Hybrid` runs, on meta arrays.

    Returns
    -------
    step : Step
    """
    model, sample = model_and_sample(model, input_shape)
    outline, shape = meta_copy(model), (batch_size, *sample)
    world = SimWorld(layout.size, Network.of(network), compute_of(compute), collectives="formula")

    def program(comm):
        own = meta_copy(outline)
        strategy, models = _strategy(comm, layout, own, shape, cap_bytes, n_microbatches)
        for part in models:
            drop_arithmetic(part)
        batch = meta_batch(batch_size, sample, strategy.rank, strategy.size)
        comm.barrier()
        began = comm.clock.now()
        strategy.step(batch)
        return began, comm.clock.now()

    times = world.run(program)
    began = times[0][0]
    return Step(layout, max(end for _, end in times) - began, world.trace.window(began))


def _strategy(comm, layout: Layout, model, shape, cap_bytes, m):
    """Make the strategy of a layout, and list its models that compute."""
    optimizer = Optimizer(model.params, Momentum(), 0.01)
    if layout.trick:
        strategy = OneWeirdTrick(comm, model, meta_loss, optimizer, cap_bytes=cap_bytes)
        return strategy, [strategy.model]
    if layout.size == layout.dp:
        return DataParallel(comm, model, meta_loss, optimizer, cap_bytes=cap_bytes), [model]
    if layout.size == layout.tp:
        strategy = TensorParallel(comm, model, meta_loss, optimizer)
        return strategy, [strategy.model]
    options = {"n_microbatches": m if layout.pp > 1 else 1, "shape": (-(-shape[0] // layout.dp), *shape[1:])}
    if layout.size == layout.pp:
        strategy = Pipeline(comm, model, meta_loss, optimizer, **options)
        return strategy, list(strategy.stages.values())
    axes = {"dp": layout.dp, "pp": layout.pp, "tp": layout.tp}
    strategy = Hybrid(comm, model, meta_loss, optimizer, cap_bytes=cap_bytes, **axes, **options)
    return strategy, list(strategy.pipeline.stages.values())


class Tested(Tabular):
    """A plan beside simulated steps of its layouts; prints as a table.

    Attributes
    ----------
    plan : Plan
    steps : dict of Layout to Step
        In the plan's order.
    """

    def __init__(self, planned: Plan, steps: dict[Layout, Step]):
        self.plan, self.steps = planned, steps

    @property
    def fastest(self) -> Step:
        """The fastest simulated layout."""
        return min(self.steps.values(), key=lambda step: step.seconds)

    @property
    def regret(self) -> float:
        """How many times longer the recommended layout takes than the fastest one, both simulated: 1 is perfect."""
        return self.steps[self.plan.best.layout].seconds / self.fastest.seconds

    @property
    def error(self) -> float:
        """The largest ratio between a planned and a simulated step, over all layouts."""
        ratios = [self.plan[layout].seconds / step.seconds for layout, step in self.steps.items()]
        return max(max(r, 1 / r) for r in ratios)

    def table(self) -> Table:
        """Return planned and simulated seconds of every layout."""
        rows = [
            [
                str(layout),
                format_time(planned := self.plan[layout].seconds),
                format_time(s.seconds),
                f"{planned / s.seconds:.2f}",
            ]
            for layout, s in self.steps.items()
        ]
        fastest, best = self.fastest.layout, self.plan.best.layout
        title = f"{self.plan.name} on {self.plan.n} ranks: {best} is recommended, "
        title += "and the fastest simulated" if fastest == best else f"{fastest} is {self.regret:.3g} times as fast"
        return Table(["layout", "planned", "simulated", "ratio"], rows, title)


def check_plan(model, network, n: int, *, batch_size: int, progress=None, **options) -> Tested:
    """Plan, and simulate every layout of the plan.

    Takes a second or two for 8 ranks, about ten for 16.

    Parameters
    ----------
    model : str or Sequential
    network : Network or str
    n, batch_size : int
    progress : callable, optional
        `progress(step, total, **values)` after every layout; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `plan` and `simulate_layout`: input_shape, compute, cap_bytes, n_microbatches.

    Returns
    -------
    tested : Tested
    """
    planned = plan(model, network, n, batch_size=batch_size, **options)
    steps = {}
    for i, cost in enumerate(planned.costs):
        steps[cost.layout] = simulate_layout(model, cost.layout, network, batch_size=batch_size, **options)
        if progress is not None:
            progress(i + 1, len(planned.costs), layout=str(cost.layout), seconds=steps[cost.layout].seconds)
    return Tested(planned, steps)
