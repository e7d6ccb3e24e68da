"""Published training runs on clusters, and a prediction of their speed.

    published.json --> Run: a model and its layout --> simulated blocks --> seconds a step --> TFLOP/s of a GPU
                                                        ^ two constants

`python -m tests.benchmarks --only backtest` fits the constants on the open rows of each table, and predicts the others.

A thousand layers on a thousand ranks are not simulated one by one. A transformer repeats its block: steps with two
blocks and with three are simulated (tensor-parallel ranks, or ZeRO's), and their difference is what a block costs. The
pipeline adds its bubble, the data axis its reduction at the end.

Not simulated: what context-parallel ranks send each other; ZeRO's gathers where tensor or pipeline parallelism splits
the model, too.
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
from distlearn.nn.container import Residual, Sequential
from distlearn.nn.layer import walk
from distlearn.nn.models import GPT
from distlearn.nn.recompute import Recompute
from distlearn.optim import Adam, Optimizer
from distlearn.parallel.meta import meta_batch, meta_copy, meta_loss
from distlearn.parallel.pipeline.schedule import ideal_bubble
from distlearn.parallel.planning.search import Layout, ReplicatedNetwork
from distlearn.parallel.strategy import update
from distlearn.parallel.tensor import parallelize
from distlearn.parallel.zero import ZeRO
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
    def zero_alone(self) -> bool:
        return self.zero > 0 and self.tensor == self.pipeline == 1

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

    def measured(self, run: Run) -> float:
        """Operations per second of one GPU, without those that are computed again [TFLOP/s]."""
        if self.unit == "% of peak":
            return run.measured / 100 * self.peak / 1e12
        if self.unit == "tokens/s":
            return run.measured * run.flops(False) / (run.batch * run.length) / 1e12
        return run.measured * run.flops(False) / run.flops(run.recompute)

    def predicted(self, run: Run, **constants: float) -> float:
        """The same, predicted; the constants are those of `predict_step`."""
        return run.flops(False) / run.gpus / predict_step(run, self, **constants).seconds / 1e12


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


def predict_step(run: Run, table: Published, efficiency: float, links: float = 8.0, memory: float = 1.0) -> Step:
    """Predict a step.

    Parameters
    ----------
    efficiency : float
        Share of the peak that matrix products reach.
    links : float
        Bandwidth that a GPU gets between nodes, in network cards of 25 GB/s (50 GB/s with H100).
    memory : float
        Share of the card's memory bandwidth that is reached.
    """
    generation = ("nvlink-4", "infiniband-ndr") if table.card == "H100" else ("nvlink-3", "infiniband-hdr")
    inside, link = map(Network.preset, generation)
    network = HierarchicalNetwork(inside, Network(link.alpha, link.beta * links), NODE)
    compute = Roofline(table.peak * efficiency, card(table.card).bandwidth * memory)
    alike = run._replace(batch=0, measured=0, part="")
    if not run.zero_alone:
        alike = alike._replace(gpus=run.tensor, pipeline=1, chunks=1, context=1, zero=0, recompute=False)
    two, three = (_simulated(alike._replace(blocks=k), network, compute) for k in (2, 3))
    block = three - two
    around = two - 2 * block
    if table.attention:  # the simulator computed the scores at the speed of other products
        scores = 4 * run.microbatch * run.length**2 * run.width / run.tensor
        slower = scores * (1 / table.attention - 1 / compute.peak)
        block = block + slower * np.array([4, 0, 0] if run.zero_alone and run.recompute else [3, 1, 0])
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
def _simulated(run: Run, network, compute) -> np.ndarray:
    """Seconds of one micro-batch: both passes, what computing blocks again would add, the optimizer's update."""
    model = GPT(run.symbols, run.width, run.heads, run.blocks, seed=None, dtype="float16")
    if run.zero_alone and run.recompute:
        embedding, *halves, norm, head = model.layers
        blocks = [Recompute(Sequential(*halves[i : i + 2])) for i in range(0, len(halves), 2)]
        model = Sequential(embedding, *blocks, norm, head)
    outline, rows = meta_copy(model), run.microbatch

    def loss(comm):
        """Logits in half precision, their softmax and its gradient in float32: 28 bytes are moved for each."""

        def moved(y, labels, n):
            with comm.clock.span("loss", nbytes=28 * y.size):
                return meta_loss(y, labels, n)

        return moved

    def zero(comm):
        model = meta_copy(outline)
        for layer in walk(model):  # spans by the layers inside: what waits for memory is not hidden behind products
            if isinstance(layer, (Residual, Recompute, Sequential)):
                layer.spans_itself, layer.clock = True, comm.clock
        optimizer = Optimizer(model.params, Adam(), 0.01)
        strategy = ZeRO(comm, model, loss(comm), optimizer, stage=run.zero, cap_bytes=25e6)
        strategy.step(meta_batch(rows * comm.size, (run.length,), comm.rank, comm.size, np.int64))
        return comm.clock.now(), 0.0

    def tensor(comm):
        model = meta_copy(outline) if comm.size == 1 else parallelize(meta_copy(outline), comm)
        y, saved = model.forward(MetaArray((rows, run.length), np.int64), clock=comm.clock)
        forward = comm.clock.now()
        model.backward(loss(comm)(y, None, 0)[1], saved, clock=comm.clock)
        update(Optimizer(model.params, Adam(), 0.01), comm.clock)
        return comm.clock.now(), forward

    ranks = min(2, run.replicas) if run.zero_alone else run.tensor
    replicated = ReplicatedNetwork(network, Layout(run.replicas), ranks) if run.zero_alone else network
    world = SimWorld(ranks, replicated, compute, collectives="formula")
    total, forward = world.run(zero if run.zero_alone else tensor)[0]
    updating = sum(span.seconds for span in world.trace.spans if span.rank == 0 and span.name == "update")
    share = ranks / run.replicas if run.zero_alone else 1  # of the parameters that a simulated rank updates
    return np.array([total - updating, forward, updating * share])


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
