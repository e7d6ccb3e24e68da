"""`plan`: which layout trains a model fastest on n ranks, and why."""

from __future__ import annotations

import math

from ...comm.network.formulas import sent_bytes
from ...optim.optimizer import check_rule
from ...tables import Table, Tabular, format_time, quantity
from ..pipeline.stages import inseparable
from ..tensor.one_weird_trick import boundary
from .layout import layouts
from .named import model_and_sample, name_of
from .simulate import CAP_BYTES, Cost, simulate_layout


class Plan(Tabular):
    """All layouts of a model on n ranks with their costs; prints as a table, the fastest that fits first.

    Attributes
    ----------
    costs : list of Cost
        The fastest first; those that do not fit come last.
    memory : float or None
        Bytes that a rank has.
    weights : int
        Bytes of the model's learned values.
    """

    def __init__(self, costs: list[Cost], n: int, *, name: str, memory: float | None, weights: int):
        self.n, self.name, self.memory, self.weights = n, name, memory, weights
        self.costs = sorted(costs, key=lambda c: (not self.fits(c), c.seconds, c.layout.tp, c.layout.pp))

    def __getitem__(self, layout) -> Cost:
        """Return the cost of a layout, given as one or as its text."""
        for c in self.costs:
            if layout in (c.layout, str(c.layout)):
                return c
        raise KeyError(f"no layout {layout}, there are {', '.join(str(c.layout) for c in self.costs)}")

    def fits(self, cost: Cost) -> bool:
        """Say whether the ranks' memory holds what a layout needs."""
        return self.memory is None or cost.memory.total <= self.memory

    @property
    def best(self) -> Cost | None:
        """The recommended layout: the fastest one that fits; None if none does."""
        return self.costs[0] if self.costs and self.fits(self.costs[0]) else None

    def why(self) -> str:
        """Return the reasons for the recommendation, in numbers."""
        best = self.best
        if best is None:
            least = min(self.costs, key=lambda c: c.memory.total)
            return (
                f"Nothing fits into {quantity(self.memory, 'B')} a rank; {least.layout} needs the least, "
                f"{quantity(least.memory.total, 'B')}: take more ranks, or smaller micro-batches."
            )
        text = f"{best.layout}: {format_time(best.seconds)} a step"
        others = [c for c in self.costs if c is not best and self.fits(c)]
        if others and others[0].seconds < 1.05 * best.seconds:
            text += f", level with {others[0].layout} (within 5 %)"
        elif others:
            text += f", {others[0].seconds / best.seconds:.2g} times as fast as {others[0].layout}"
        return f"{text}. {self._reason(best)}{self._not_fitting()}"

    def _reason(self, best: Cost) -> str:
        """Why the layout is best: what sending the gradients would cost, and what it sends instead."""
        if not best.layout.kinds:
            return "There is one rank."
        gradients = sent_bytes("all_reduce", self.weights, self.n)
        weights, each = quantity(self.weights, "B"), quantity(gradients, "B")
        sums = f"summing its {weights} of gradients sends {each} a rank"
        against = "Against the activations of this batch its weights are"
        if best.layout.kinds != ("data",):
            mine = quantity(best.nbytes, "B")
            if best.nbytes < gradients:
                return f"{against} large: {sums}; this layout sends {mine}."
            return f"{sums[0].upper()}{sums[1:]}; this layout sends {mine}, but waits for less of it."
        sharding = min((c.nbytes for c in self.costs if "data" not in c.layout.kinds), default=math.inf)
        if gradients < sharding < math.inf:
            other = quantity(sharding, "B")
            return f"{against} small: {sums}, sharding its layers {other}."
        return f"{sums[0].upper()}{sums[1:]}, and computing hides most of it."

    def _not_fitting(self) -> str:
        """Name a faster layout that the memory rules out."""
        best = self.best
        faster = [c for c in self.costs if not self.fits(c) and c.seconds < best.seconds]
        if not faster:
            return ""
        first = min(faster, key=lambda c: c.seconds)
        need = quantity(first.memory.total, "B")
        return f" {first.layout} would be faster, but needs {need} of {quantity(self.memory, 'B')}."

    def table(self) -> Table:
        """Return all layouts as a table."""
        header = ["layout", "step", "computing", "communication", "bubble", "sent by a rank", "memory of a rank", ""]
        rows = [
            [
                str(c.layout),
                *(format_time(t) if t else "-" for t in (c.seconds, c.computing, c.communicating, c.bubble)),
                quantity(c.nbytes, "B") if c.nbytes else "-",
                quantity(c.memory.total, "B"),
                "<-" if c is self.best else "" if self.fits(c) else "does not fit",
            ]
            for c in self.costs
        ]
        return Table(header, rows, f"{self.name} on {self.n} ranks. {self.why()}")


def plan(
    model,
    network,
    n: int,
    *,
    batch_size: int,
    input_shape: tuple[int, ...] | None = None,
    compute="V100",
    memory: float | None = None,
    rule=None,
    cap_bytes: float = CAP_BYTES,
    n_microbatches: int | None = None,
    progress=None,
) -> Plan:
    """Simulate a training step in all layouts of n ranks, and recommend one.

    Each layout's strategy runs its own code on meta arrays: about a second for 4 ranks, three for 8. Small networks
    come out data-parallel, large ones model-parallel.

    Parameters
    ----------
    model : str or Sequential
        A name such as "alexnet", or any model; it is not changed.
    network : Network or str
        A name is that of a preset.
    n : int
        Number of ranks. Beyond 64, some replicas of a layout are simulated, and sums over all its replicas take
        the seconds of the network's formula.
    batch_size : int
        Samples of all ranks together.
    input_shape : tuple of int, optional
        Of one sample; known for models by name.
    compute : str, Card or ComputeModel
        A name is that of a graphics card, at its roofline.
    memory : float, optional
        Bytes that a rank has; unlimited by default.
    rule : Rule, optional
        Of the optimizer; SGD with momentum by default.
    cap_bytes : float
        Size of a bucket of gradients; what you give to the strategy, too (whose default is 1 MiB, for small networks).
    n_microbatches : int, optional
        Of pipelines; four for every stage by default.
    progress : callable, optional
        `progress(step, total, **values)` after every layout; `distlearn.world.progress.Bar()` shows a bar.

    Notes
    -----
    The layouts are data x tensor x pipeline with dp tp pp = n, and for models with convolutions before dense layers
    "one weird trick". What the simulation leaves out: that communication slows computing down, and time outside layers.

    References
    ----------
    A. Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997.
    Z. Jia, M. Zaharia, A. Aiken (2019), Beyond data and model parallelism for deep neural networks, MLSys (layouts
    compared by simulation). L. Zheng et al. (2022), Alpa, OSDI.

    Examples
    --------
    >>> str(plan("lenet", "ethernet-10g", 4, batch_size=512).best.layout)
    'data 4'
    >>> str(plan("alexnet", "ethernet-10g", 4, batch_size=128).best.layout)
    'one weird trick 4'
    """
    name = name_of(model)
    model, input_shape = model_and_sample(model, input_shape)
    _check_numbers(batch_size, memory, n_microbatches)
    if rule is not None:
        check_rule("plan", rule)
    n_layers = len(model.layers) - inseparable(model) + 1
    possible = layouts(n, batch_size=batch_size, n_layers=n_layers, trick=boundary(model) is not None)
    weights = sum(p.nbytes for p in model.params if not p.frozen)
    options = {"compute": compute, "rule": rule, "cap_bytes": cap_bytes, "n_microbatches": n_microbatches}
    costs = []
    for layout in possible:
        costs.append(simulate_layout(model, layout, network, batch_size=batch_size, input_shape=input_shape, **options))
        if progress is not None:
            progress(len(costs), len(possible), layout=str(layout), seconds=costs[-1].seconds)
    return Plan(costs, n, name=name, memory=memory, weights=weights)


def _check_numbers(batch_size, memory, n_microbatches) -> None:
    """Raise unless the numbers make sense."""
    for name, value in (
        ("batch_size", batch_size),
        ("n_microbatches", 1 if n_microbatches is None else n_microbatches),
    ):
        if not hasattr(value, "__index__") or value < 1:
            raise ValueError(f"plan: {name} is {value!r}, expected a whole number, 1 or more")
    if memory is not None and (isinstance(memory, str) or not memory > 0):
        raise ValueError(f"plan: memory is {memory!r}, expected a number of bytes, such as 16e9")
