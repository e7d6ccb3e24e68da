"""Training with a model that is sharded over ranks."""

from __future__ import annotations

import numpy as np

from ...nn.fused import unfuse
from ...optim import Optimizer
from ...optim.optimizer import state_arrays
from ..checkpoint.state import named_arrays, param_name
from ..data.bucket import make_buckets
from ..sharding import Sharded, ShardSpec
from ..strategy import Strategy, check_whole, require_scope, summed_norm, update
from .layer import shard_specs
from .positions import check_positions, cut_positions, partial_params
from .rewrite import parallelize


class TensorParallel(Strategy):
    r"""Tensor parallelism: every rank sees the whole batch and holds a part of (nearly) every layer.

    What each layer does and sends is decided by `parallelize` and listed by `planning.account`: for an MLP one
    all-reduce of batch x width for every second layer, forward and backward. Nothing is sent for the parameters: a rank
    computes the whole gradient of its own part, and its optimizer holds the memory for that part only.

    Parameters
    ----------
    sequence : bool
        Sequence parallelism of what is not sharded: norms, residual sums and dropout work on 1 / p of the positions
        of (batch, length, width) activations, whose length is a multiple of the ranks. For models of attention, dense
        layers, an embedding and layers that treat every position by itself.

    Notes
    -----
    Per step: `account`'s bytes, plus one all-reduce of one number if gradients are clipped. Saves time where layers are
    wide and the network is fast; saves memory, 1 / p of the parameters, gradients and optimizer state of sharded
    layers.

    With `sequence`, an all-reduce becomes a reduce-scatter and an all-gather: as many bytes in a ring. Sent besides:
    one all-reduce of the norms' gradients, of which each rank has those of its positions, and one all-gather of the
    gradient of the embedding's output, as the embedding is on every rank. Activations between the sharded layers take
    1 / p of the memory; the inputs of column-parallel layers are saved whole. (Korthikanti et al. save a part of these,
    too, and gather it once more in backward.)

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM: training multi-billion parameter language models using model parallelism,
    section 3. V. Korthikanti et al. (2022), Reducing activation recomputation in large transformer models,
    arXiv:2205.05198, section 4.2.2 (`sequence`).
    """

    def __init__(self, comm, model, loss, optimizer: Optimizer, *, sequence: bool = False):
        if sequence:
            check_positions(unfuse(model))
        super().__init__(comm, model, loss, optimizer)
        self.model, self.partial_buckets = parallelize(model, comm), []
        if sequence and comm.size > 1:
            self.model = cut_positions(self.model, comm)
            self.partial_buckets = make_buckets(partial_params(self.model))
        self.optimizer = sub_optimizer("TensorParallel", optimizer, self.model, comm)

    def step(self, batch) -> float:
        """Train on a batch, which every rank has as a whole; return its loss."""
        check_whole(self, batch, self.comm)
        self.optimizer.zero_grad()
        for bucket in self.partial_buckets:
            bucket.clear()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        self.sum_partial_gradients()
        update(self.optimizer, self.clock)
        return loss

    def sum_partial_gradients(self) -> None:
        """Sum the gradients of which every rank has a summand, those of norms on its positions, over the ranks."""
        for bucket in self.partial_buckets:
            bucket.settle()
            self.comm.all_reduce(bucket.flat)

    def state_dict(self):
        return sharded_state(self, shard_specs(self.model), self.comm.rank == 0)


def sharded_state(strategy, specs: dict, counts: bool) -> dict[str, Sharded]:
    """Return a state whose arrays are sharded like their parameters."""
    arrays, found = named_arrays(strategy.model.params, strategy.optimizer), {}
    for name, array in arrays.items():
        spec = specs.get(param_name(name)) or ShardSpec(tuple(array.shape), counts=counts)
        found[name] = Sharded(array, spec)
    return found


def sub_optimizer(what: str, optimizer: Optimizer, model, comm) -> Optimizer:
    """Make an optimizer like another one for the parameters that this rank has of a parallelized model."""
    specs, here = shard_specs(model), {p.name: p for p in model.params}
    if comm.size == 1:
        scope, held = "model", ""
    elif sharded := [p.name for p in optimizer.params if p.name in specs and specs[p.name].is_sharded]:
        scope, held = "element", f"{sharded[0]} is sharded over {comm.size} ranks"
    else:
        scope, held = "parameter", "a rank holds some of the parameters"
    require_scope(what, optimizer, scope, held)
    made = optimizer.rebind([[here[p.name] for p in group.params if p.name in here] for group in optimizer.groups])
    serial = {p.name: (p, state) for p, state in zip(optimizer.params, optimizer.states, strict=True)}
    for p, state in zip(made.params, made.states, strict=True):
        param, old = serial[p.name]
        if p is not param:
            _take_state(what, param, old, state, specs.get(p.name))

    def norm(params):
        mine = [p for p in params if comm.rank == 0 or p.name in specs]  # what is on every rank counts once
        return summed_norm(mine, [comm], model.params[0].data if model.params else np.zeros(0))

    made.norm = norm
    return made


def _take_state(what, param, old_state, state, spec) -> None:
    """Write the part of the optimizer's state of a serial parameter that a rank needs into a new state."""
    for old, new in zip(state_arrays(old_state), state_arrays(state), strict=True):
        if old.shape != param.data.shape:
            raise ValueError(
                f"{what}: the optimizer's state of {param.name!r} has shape {old.shape}, expected the parameter's "
                f"{param.data.shape}: other shapes cannot be sharded with it"
            )
        new[...] = old if spec is None else spec.take(old)
