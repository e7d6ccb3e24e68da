"""Which layout for which network, by bytes: ten networks, and a rule scored against the planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...comm.network.formulas import sent_bytes
from ...nn import MLP
from ...parallel import Layout, simulate_layout
from ...parallel.pipeline.stages import cut
from ...parallel.planning.named import model_and_sample
from ...parallel.tensor.one_weird_trick import boundary
from ...tables import Table, Tabular

TRICK = "one weird trick"


class LayoutFacts(NamedTuple):
    """What is known of a network before one chooses a layout; all in bytes, but for the ranks.

    "Dense" means from the first dense layer on. Of a network without one, or with nothing before it, `tensor_dense` is
    None, and there is no one weird trick.
    """

    ranks: int
    weights: int
    """Of the whole network."""
    weights_dense: int
    boundary: int | None
    """Activations of the whole batch that enter the first dense layer."""
    tensor: float
    """What a rank sends in a step if all layers are tensor-parallel."""
    tensor_dense: float | None
    """What a rank sends for tensor-parallel dense layers, beyond what happens at the boundary."""


@dataclass(frozen=True)
class LayoutCase:
    """A network to be trained on some ranks.

    Parameters
    ----------
    name : str
    model : str or callable
        A name, or a function that builds the model.
    ranks, batch_size : int
    sample : tuple of int, optional
        Shape of a sample; known for models by name.
    network : str
    """

    name: str
    model: str | Callable
    ranks: int
    batch_size: int
    sample: tuple[int, ...] | None = None
    network: str = "ethernet-10g"


def _narrow():
    return MLP((784, 64, 32, 10), seed=None)


def _wide():
    return MLP((784, 4096, 4096, 10), seed=None)


TEN = (
    LayoutCase("narrow MLP", _narrow, 4, 512, (784,)),
    LayoutCase("wide MLP", _wide, 4, 128, (784,)),
    LayoutCase("LeNet", "lenet", 4, 256),
    LayoutCase("small CNN", "cnn", 4, 256),
    LayoutCase("AlexNet", "alexnet", 4, 128),
    LayoutCase("GoogLeNet", "googlenet", 4, 128),
    LayoutCase("SqueezeNet", "squeezenet", 4, 128),
    LayoutCase("Siamese network", "siamese", 4, 64),
    LayoutCase("GRU language model", "gru", 4, 64),
    LayoutCase("GPT", "gpt", 4, 64),
)
"""Ten networks, small and large, with few and with many weights for what they compute."""


@lru_cache
def layout_facts(case: LayoutCase) -> tuple[LayoutFacts, dict[str, float]]:
    """Return the facts of a case, and the planner's seconds for "data", "tensor" and, if it applies, the trick."""
    model = case.model if isinstance(case.model, str) else case.model()
    layouts = {"data": Layout(case.ranks), "tensor": Layout(1, case.ranks)}
    serial, sample = model_and_sample(model, case.sample)
    first = boundary(serial)
    if first is not None:
        layouts[TRICK] = Layout(case.ranks, trick=True)
    options = {"batch_size": case.batch_size, "input_shape": sample}
    costs = {name: simulate_layout(serial, layout, case.network, **options) for name, layout in layouts.items()}
    p, weights = case.ranks, sum(q.nbytes for q in serial.params)
    dense, entering, tensor_dense = 0, None, None
    if first is not None:
        features = cut(serial, slice(0, first))
        before = sum(q.nbytes for q in features.params)
        dense, itemsize = weights - before, serial.params[0].data.dtype.itemsize
        shape = features.output_shape((case.batch_size, *sample))
        entering = itemsize * int(np.prod(shape))
        twice = 2 * sent_bytes("all_gather", entering, p)
        tensor_dense = costs[TRICK].nbytes - sent_bytes("all_reduce", before, p) - twice
    facts = LayoutFacts(p, weights, dense, entering, costs["tensor"].nbytes, tensor_dense)
    return facts, {name: cost.seconds for name, cost in costs.items()}


class RuleScore(Tabular):
    """What a rule chooses for some networks, beside the planner's fastest; prints as a table.

    Attributes
    ----------
    rows : list of (LayoutCase, str, str, float)
        Case, chosen, fastest, and how many times longer a step takes than with the fastest.
    """

    def __init__(self, rows: list):
        self.rows = rows

    @property
    def agreed(self) -> int:
        """Networks for which the rule chose the planner's layout."""
        return sum(chosen == fastest for _, chosen, fastest, _ in self.rows)

    @property
    def regret(self) -> float:
        """How many times longer steps take than the fastest ones, as a geometric mean over the networks."""
        return float(np.exp(np.mean([np.log(ratio) for *_, ratio in self.rows])))

    def table(self) -> Table:
        """Return the networks as rows."""
        header = ["network", "ranks", "batch", "the rule", "the planner", "step"]
        rows = [
            [
                case.name,
                str(case.ranks),
                str(case.batch_size),
                chosen,
                fastest,
                "fastest" if ratio == 1 else f"{ratio:.2f} times",
            ]
            for case, chosen, fastest, ratio in self.rows
        ]
        title = f"{self.agreed} of {len(self.rows)} as the planner; steps take {self.regret:.2f} times as long"
        return Table(header, rows, title)


def score_rule(rule: Callable, cases=TEN) -> RuleScore:
    """Score a rule against the planner, which is given the same three layouts.

    Parameters
    ----------
    rule : callable
        rule(facts) returns "data", "tensor" or "one weird trick".
    cases : sequence of LayoutCase

    Raises
    ------
    ValueError
        If the rule names something else, or the trick for a network that has none.
    """
    rows = []
    for case in cases:
        facts, seconds = layout_facts(case)
        chosen = rule(facts)
        if chosen not in seconds:
            raise ValueError(
                f"score_rule: for {case.name} the rule chose {chosen!r}, expected {' or '.join(map(repr, seconds))}"
            )
        fastest = min(seconds, key=seconds.get)
        rows.append((case, chosen, fastest, seconds[chosen] / seconds[fastest]))
    return RuleScore(rows)
