"""Published training runs on clusters, and a prediction of their speed.

    published.json --> Run: a model and its layout --> simulated blocks --> seconds a step --> TFLOP/s of a GPU
                                                        ^ two constants

`python -m tests.benchmarks --only backtest` fits the constants on the open rows of each table, and predicts the others.

A thousand layers on a thousand ranks are not simulated one by one. A transformer repeats its block: steps with two
blocks and with three are simulated, and their difference is what a block costs. The pipeline adds its bubble, the data
axis its reduction at the end. What context-parallel ranks send each other is not simulated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from distlearn.comm import HierarchicalNetwork, Network
from distlearn.cuda.cards import card
from distlearn.nn.models import GPT
from distlearn.optim import Adam, Optimizer
from distlearn.parallel.meta import meta_copy, meta_loss
from distlearn.parallel.pipeline.schedule import ideal_bubble
from distlearn.parallel.strategy import update
from distlearn.parallel.tensor import parallelize
from distlearn.sim import MetaArray, Roofline, SimWorld


class Run(NamedTuple):
    """A published run: a transformer, how it was spread over the GPUs, and how fast it was."""

    model: str
    gpus: int
    length: int  # symbols of a sequence
    tensor: int
    pipeline: int
    chunks: int  # stages of each pipeline rank
    context: int  # ranks that share out the positions of a sequence
    zero: int  # ZeRO's stage, 0 for none
    batch: int  # sequences of all GPUs in a step
    microbatch: int  # sequences that a replica computes at a time
    recompute: bool  # every block's forward pass is run again in backward
    measured: float  # in the unit of the table
    part: str  # "open", or in what the row differs from the open ones
    blocks: int
    width: int
    heads: int
    symbols: int

    @property
    def replicas(self) -> int:
        return self.gpus // (self.tensor * self.pipeline * self.context)

    @property
    def microbatches(self) -> int:
        return max(1, round(self.batch / self.replicas / self.microbatch))

    @property
    def rank_weights(self) -> float:
        """Parameters of the blocks of one tensor- and pipeline-parallel rank."""
        return 12 * self.width**2 * self.blocks / self.pipeline / self.tensor

    def flops(self, recomputing: bool) -> float:
        """Operations of a step: 6 for each parameter and symbol, and all pairs of positions."""
        tokens = self.batch * self.length
        inside = tokens * self.blocks * (72 * self.width**2 + 12 * self.width * self.length)
        return inside * (4 / 3 if recomputing else 1) + 6 * tokens * self.width * self.symbols

    def __str__(self) -> str:
        ways = {"tensor": self.tensor, "pipeline": self.pipeline, "context": self.context}
        named = "".join(f", {name} {n}" for name, n in ways.items() if n > 1) + f", ZeRO-{self.zero}" * (self.zero > 0)
        return f"{self.model}, {self.gpus} GPUs{named}, batch {self.batch} x {self.length}"


@dataclass(frozen=True)
class Published:
    """A table of runs on one kind of card.

    Attributes
    ----------
    name, source, unit : str
    card : str
        Its memory's bandwidth is known by this name.
    peak : float
        What a vendor states for matrix products in the precision of the runs [flop/s].
    fitted : list of str
        The two constants of `predict_step` that the open rows decide.
    runs : list of Run
    attention : float, optional
        What fused attention reached on this card at that time [flop/s], known from the papers below and not fitted;
        None where it is taken to be as fast as other products. That rows of long sequences were predicted too fast
        without it was seen first.

    References
    ----------
    T. Dao (2023), FlashAttention-2, arXiv:2307.08691: 50 to 73 % of the A100's peak. J. Shah et al. (2024),
    FlashAttention-3, arXiv:2407.08608: its predecessor reaches 35 % of the H100's.
    """

    name: str
    source: str
    unit: str
    card: str
    peak: float
    fitted: list[str]
    runs: list[Run]
    attention: float | None = None


def published() -> dict[str, Published]:
    """Read the tables, by name.

    Examples
    --------
    >>> len(published()["Megatron-LM, table 2"].runs)
    12
    """
    data = json.loads(resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    found = {}
    for table in data["tables"]:
        runs = [Run(*row, *data["models"][row[0]]) for row in table.pop("runs")]
        found[table["name"]] = Published(**table, runs=runs)
    return found


# -- a step ------------------------------------------------------------------------------------------------------------

NODE = 8  # GPUs of a node, in all tables


class Step(NamedTuple):
    """Where the seconds of a step go, on the rank that has the most to do."""

    passes: float  # forward and backward of all micro-batches, with what their collectives add
    again: float  # forward passes that are run again
    messages: float  # between stages
    bubble: float
    reduction: float  # of the gradients, at the end of the step
    update: float

    @property
    def seconds(self) -> float:
        return sum(self)


def predict_step(run: Run, table: Published, efficiency: float, links: float) -> Step:
    """Predict a step of tensor-, pipeline- and data-parallel A100s.

    Parameters
    ----------
    efficiency : float
        Share of the peak that matrix products reach.
    links : float
        Bandwidth that a GPU gets between nodes, in network cards of 25 GB/s.
    """
    inside, link = Network.preset("nvlink-3"), Network.preset("infiniband-hdr")
    network = HierarchicalNetwork(inside, Network(link.alpha, link.beta * links), NODE)
    compute = Roofline(table.peak * efficiency, card(table.card).bandwidth)
    return step_of(run, network, link, *blocks_of(run, network, compute, tensor_pass))


def blocks_of(run: Run, network, compute, simulate) -> tuple[np.ndarray, np.ndarray]:
    """Return what a block takes, and what is around all blocks: seconds of both passes, of forward, of the update."""
    alike = run._replace(batch=0, measured=0, part="", gpus=run.tensor, pipeline=1, chunks=1, context=1, zero=0)
    two, three = (simulate(alike._replace(blocks=k), network, compute) for k in (2, 3))
    return three - two, 3 * two - 2 * three


def step_of(run: Run, network, link, block, around) -> Step:
    """Put a step together from the seconds of its blocks."""
    passes, forward, updating = around + block * (run.blocks / run.pipeline)  # of a rank's blocks [s]
    m = run.microbatches
    passes, again = m * passes / run.context, m * forward * run.recompute / run.context
    messages = bubble = reduction = 0.0
    if run.pipeline > 1:
        # every chunk sends its output on, forward and backward, with nothing to compute meanwhile
        nbytes = 2 * run.microbatch * run.length * run.width / run.tensor
        messages = m * 2 * run.chunks * link.message(nbytes)
        idle = ideal_bubble(run.pipeline, m, run.chunks)
        bubble = (passes + again + messages) * idle / (1 - idle)
    if not run.zero:
        ranks = range(0, run.gpus, run.tensor * run.pipeline)
        reduction = network.collective("all_reduce", 2 * run.rank_weights, ranks)
    return Step(passes, again, messages, bubble, reduction, updating)


@lru_cache(maxsize=4096)
def tensor_pass(run: Run, network, compute) -> np.ndarray:
    """Seconds of one micro-batch on tensor-parallel ranks: both passes, forward alone, the optimizer's update."""
    outline = meta_copy(GPT(run.symbols, run.width, run.heads, run.blocks, seed=None, dtype="float16"))

    def program(comm):
        model = meta_copy(outline) if comm.size == 1 else parallelize(meta_copy(outline), comm)
        y, saved = model.forward(MetaArray((run.microbatch, run.length), np.int64), clock=comm.clock)
        forward = comm.clock.now()
        model.backward(loss_on(comm)(y, None, 0)[1], saved, clock=comm.clock)
        update(Optimizer(model.params, Adam(), 0.01), comm.clock)
        return comm.clock.now(), forward

    world = SimWorld(run.tensor, network, compute, collectives="formula")
    total, forward = world.run(program)[0]
    updating = update_seconds(world)
    return np.array([total - updating, forward, updating])


def loss_on(comm):
    """Logits in half precision, their softmax and its gradient in float32: 28 bytes are moved for each."""

    def moved(y, labels, n):
        with comm.clock.span("loss", nbytes=28 * y.size):
            return meta_loss(y, labels, n)

    return moved


def update_seconds(world) -> float:
    """Return how long rank 0 has updated parameters."""
    return sum(span.seconds for span in world.trace.select(rank=0, name="update"))


# -- score -------------------------------------------------------------------------------------------------------------


def skill(predicted, measured, constant: float) -> float:
    r"""Return how much better a prediction is than a constant.

    .. math:: 1 - \frac{\sum |\log(\text{predicted} / \text{measured})|}
                       {\sum |\log(\text{constant} / \text{measured})|}

    1 is perfect, 0 as good as the constant.

    Examples
    --------
    >>> round(skill([100, 50], [100, 40], 80), 2)
    0.76
    """
    predicted, measured = np.asarray(predicted, float), np.asarray(measured, float)
    return float(1 - errors(predicted, measured).sum() / errors(constant, measured).sum())


def errors(predicted, measured):
    """Return by how much predictions miss, in logarithms."""
    return np.abs(np.log(predicted / measured))
