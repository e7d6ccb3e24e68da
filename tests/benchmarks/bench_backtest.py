"""The planner against published clusters: skill on the sealed rows of every table, beside a constant's errors.

To what lab 14 predicts it adds ZeRO alone, other cards, and the speed of fused attention. Not simulated: ZeRO's gathers
where tensor or pipeline parallelism splits the model, too.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from distcourse.backtest import (
    NODE,
    Published,
    Run,
    Step,
    blocks_of,
    errors,
    loss_on,
    published,
    skill,
    step_of,
    tensor_pass,
    update_seconds,
)

from distlearn.comm import HierarchicalNetwork, Network
from distlearn.cuda.cards import card
from distlearn.nn.container import Residual, Sequential
from distlearn.nn.layer import walk
from distlearn.nn.models import GPT
from distlearn.nn.recompute import Recompute
from distlearn.optim import Adam, Optimizer
from distlearn.parallel.meta import meta_batch, meta_copy
from distlearn.parallel.planning.search import Layout, ReplicatedNetwork
from distlearn.parallel.zero import ZeRO
from distlearn.sim import Roofline, SimWorld

from . import quick, record


def measured(table: Published, run: Run) -> float:
    """Operations per second of one GPU, without those that are computed again [TFLOP/s]."""
    if table.unit == "% of peak":
        return run.measured / 100 * table.peak / 1e12
    if table.unit == "tokens/s":
        return run.measured * run.flops(False) / (run.batch * run.length) / 1e12
    return run.measured * run.flops(False) / run.flops(run.recompute)


def predicted(table: Published, run: Run, **constants: float) -> float:
    """The same, predicted; the constants are those of `predict_step`."""
    return run.flops(False) / run.gpus / predict_step(run, table, **constants).seconds / 1e12


def predict_step(run: Run, table: Published, efficiency: float, links: float = 8.0, memory: float = 1.0) -> Step:
    """Predict a step; `memory` is the share of the card's memory bandwidth that is reached."""
    generation = ("nvlink-4", "infiniband-ndr") if table.card == "H100" else ("nvlink-3", "infiniband-hdr")
    inside, link = map(Network.preset, generation)
    network = HierarchicalNetwork(inside, Network(link.alpha, link.beta * links), NODE)
    compute = Roofline(table.peak * efficiency, card(table.card).bandwidth * memory)
    zero_alone = run.zero > 0 and run.tensor == run.pipeline == 1
    simulate = functools.partial(zero_pass, run._replace(batch=0, measured=0, part="")) if zero_alone else tensor_pass
    block, around = blocks_of(run, network, compute, simulate)
    if table.attention:  # the simulator computed the scores at the speed of other products
        scores = 4 * run.microbatch * run.length**2 * run.width / run.tensor
        slower = scores * (1 / table.attention - 1 / compute.peak)
        block = block + slower * np.array([4, 0, 0] if zero_alone and run.recompute else [3, 1, 0])
    return step_of(run, network, link, block, around)


@functools.lru_cache(maxsize=4096)
def zero_pass(layout: Run, few: Run, network, compute) -> np.ndarray:
    """Seconds of one micro-batch of ZeRO's ranks, of which two are simulated, with as many blocks as `few` has."""
    model = GPT(few.symbols, few.width, few.heads, few.blocks, seed=None, dtype="float16")
    if layout.recompute:
        embedding, *halves, norm, head = model.layers
        blocks = [Recompute(Sequential(*halves[i : i + 2])) for i in range(0, len(halves), 2)]
        model = Sequential(embedding, *blocks, norm, head)
    outline = meta_copy(model)

    def program(comm):
        model = meta_copy(outline)
        for layer in walk(model):  # spans by the layers inside: what waits for memory is not hidden behind products
            if isinstance(layer, (Residual, Recompute, Sequential)):
                layer.spans_itself, layer.clock = True, comm.clock
        optimizer = Optimizer(model.params, Adam(), 0.01)
        strategy = ZeRO(comm, model, loss_on(comm), optimizer, stage=layout.zero, cap_bytes=25e6)
        strategy.step(meta_batch(few.microbatch * comm.size, (few.length,), comm.rank, comm.size, np.int64))
        return comm.clock.now()

    ranks = min(2, layout.replicas)
    world = SimWorld(ranks, ReplicatedNetwork(network, Layout(layout.replicas), ranks), compute, collectives="formula")
    total, updating = world.run(program)[0], update_seconds(world)
    # of the parameters that a simulated rank updates
    return np.array([total - updating, 0.0, updating * ranks / layout.replicas])


class Score(NamedTuple):
    """How well the rows of one part were predicted."""

    part: str
    rows: int
    skill: float
    error: float  # median of |log(predicted / measured)|
    constant: float  # the same of the constant
    ranks: float  # Spearman's correlation of predicted and measured


@dataclass(frozen=True)
class Backtest:
    """A table predicted: two constants fitted on its open rows.

    Attributes
    ----------
    fitted : dict of str to float
        Constants of `predict_step`.
    constant : float
        What is predicted for every row by one who knows only the open ones: their median [TFLOP/s].
    predicted : list of float
        By run [TFLOP/s].
    """

    table_of: Published
    fitted: dict[str, float]
    constant: float
    predicted: list[float]

    def scores(self) -> list[Score]:
        """Score every part of the sealed rows, and all of them."""
        from scipy.stats import spearmanr

        runs, found = self.table_of.runs, []
        found_there = np.array([measured(self.table_of, run) for run in runs])
        expected = np.array(self.predicted)
        sealed = [run.part for run in runs if run.part != "open"]
        for part in [*dict.fromkeys(sealed), "sealed"]:
            mine = np.array([run.part == part or (part == "sealed" and run.part != "open") for run in runs])
            p, m = expected[mine], found_there[mine]
            medians = (float(np.median(errors(x, m))) for x in (p, self.constant))
            ranks = float(spearmanr(p, m).statistic) if len(m) > 2 else math.nan
            found.append(Score(part, len(m), skill(p, m, self.constant), *medians, ranks))
        return found

    def worst(self) -> Run:
        """Return the sealed run that was predicted worst."""
        pairs = zip(self.table_of.runs, self.predicted, strict=True)
        sealed = (pair for pair in pairs if pair[0].part != "open")
        return max(sealed, key=lambda pair: errors(pair[1], measured(self.table_of, pair[0])))[0]


START = {"efficiency": (0.5, 0.8), "links": (1.0, 4.0), "memory": (1.0, 0.4)}
"""Where fitting the constants of `predict_step` begins, and how far its first steps go."""


def backtest(table: Published) -> Backtest:
    """Fit two constants on the open rows of a table, and predict all of them."""
    from scipy.optimize import minimize

    opened = [run for run in table.runs if run.part == "open"]
    seen = np.array([measured(table, run) for run in opened])

    def constants(logs):
        return dict(zip(table.fitted, np.exp(logs).tolist(), strict=True))

    def error(logs):
        return errors([predicted(table, run, **constants(logs)) for run in opened], seen).sum()

    (a, b), (c, d) = (np.log(START[name]) for name in table.fitted)
    simplex = [[a, c], [b, c], [a, d]]
    found = minimize(error, simplex[0], method="Nelder-Mead", options={"maxfev": 30, "initial_simplex": simplex})
    fitted = constants(found.x)
    return Backtest(table, fitted, float(np.median(seen)), [predicted(table, run, **fitted) for run in table.runs])


def records():
    """A record for each part of each table; the peer's number is the median error of the best constant."""
    tables = list(published().values())
    rows = []
    for table in tables[:3] if quick() else tables:
        found = backtest(table)
        fitted = ", ".join(f"{name} {value:.2f}" for name, value in found.fitted.items())
        opened = sum(run.part == "open" for run in table.runs)
        for score in found.scores():
            note = f"skill {score.skill:.2f}, rank correlation {score.ranks:.2f}"
            if score.part == "sealed":
                note += f"; {fitted} from {opened} open rows; worst: {found.worst()}"
            what = f"{table.name}: {score.part}, {score.rows} rows, median error"
            goal = "ratio <= 1" if score.part == "sealed" else ""
            medians = 100 * score.error, 100 * score.constant
            rows.append(record(what, "%", *medians, goal=goal, note=note))
    return rows
