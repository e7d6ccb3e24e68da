"""The same training by PyTorch: our layers' peers with our weights, gradients averaged by DistributedDataParallel.

model --> torch.nn.Sequential, weights by to_torch_state --> DDP over gloo --> step, predict as of any strategy
"""

from __future__ import annotations

import numpy as np

from .. import nn
from ..nn.torch_state import load_torch_state, to_torch_state
from ..optim import SGD, Adam, AdamW, Momentum, Nesterov
from ..parallel import Replicated
from ..sim.communicator import SimComm


class TorchDDP(Replicated):
    """Data-parallel training by PyTorch, from the same weights: what `DataParallel` is compared with.

    Parameters
    ----------
    model : Sequential
        Of dense layers, convolutions, poolings and activations; it is given the trained weights at the end.
    optimizer : Optimizer
        SGD, Momentum, Nesterov, Adam or AdamW, without clipping.
    shape : tuple of int
        Of the inputs of a batch.

    Notes
    -----
    Ranks are processes of one machine (engines, MPI); each has PyTorch installed.

    References
    ----------
    S. Li et al. (2020), PyTorch distributed: experiences on accelerating data parallel training, PVLDB 13(12).
    """

    checkpointable = False

    def __init__(self, comm, model, loss, optimizer, shape):
        try:
            import torch
        except ImportError:
            raise ValueError('trainer is "torch", but PyTorch is not installed here: pip install torch') from None
        if isinstance(comm, SimComm):
            raise ValueError('trainer is "torch": its ranks are processes, not simulated ones; use --world engines')
        super().__init__(comm, model, loss, optimizer)
        self.torch, self.sample = torch, shape[1:]
        self.module = torch_model(model, self.sample)
        self.replica = self.module if comm.size == 1 else self._together()
        self.rule = _rule(torch, optimizer, self.module.parameters())

    def _together(self):
        torch, comm = self.torch, self.comm
        first = comm.rank == 0
        store = torch.distributed.TCPStore("127.0.0.1", 0, comm.size, True, wait_for_workers=False) if first else None
        port = comm.broadcast_obj(store.port if first else None)
        store = store or torch.distributed.TCPStore("127.0.0.1", port, comm.size, False)
        torch.distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        return torch.nn.parallel.DistributedDataParallel(self.module)

    def step(self, batch) -> float:
        torch, clock = self.torch, self.clock
        for group in self.rule.param_groups:
            group["lr"] = self.optimizer.lr(self.optimizer.steps)
        self.optimizer.steps += 1
        self.rule.zero_grad()
        with clock.span("forward"):
            y = self.replica(torch.from_numpy(batch.x))
            loss = torch.nn.functional.cross_entropy(y, torch.from_numpy(batch.y), reduction="sum") / batch.n
        with clock.span("backward"):  # with what DDP sends meanwhile; it takes means of gradients, we sums of shares
            (loss * self.size).backward()
        with clock.span("update"):
            self.rule.step()
        return float(self.total(np.array([loss.item()]))[0])

    def predict(self, x):
        with self.torch.no_grad():
            return self.module(self.torch.tensor(x)).numpy()

    def finish(self) -> None:
        load_torch_state(self.model, {k: v.numpy() for k, v in self.module.state_dict().items()}, self.sample)
        if self.size > 1:
            self.replica = self.module  # DDP goes before the group that it stands on
            self.torch.distributed.destroy_process_group()


def torch_model(model, sample):
    """Build the same network in PyTorch, with the same weights; it takes flat samples, as ours."""
    import torch

    dtype = getattr(torch, model.params[0].data.dtype.name)
    module = torch.nn.Sequential(*(_peer(torch, layer) for layer in model.layers)).to(dtype)
    state = to_torch_state(model, sample)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    return module


def _peer(torch, layer):
    """Return the layer of PyTorch that computes the same."""
    match layer:
        case nn.Linear():
            return torch.nn.Linear(layer.d_in, layer.d_out)
        case nn.Conv2d():
            size, stride, padding = layer.geometry.size, layer.geometry.stride, layer.geometry.padding
            return torch.nn.Conv2d(layer.c_in, layer.c_out, size, stride, padding)
        case nn.MaxPool():
            return torch.nn.MaxPool2d(layer.size, layer.stride)
        case nn.Reshape(shape=(h, w, 1)):  # there images are channels-first, which for one channel is the same
            return torch.nn.Unflatten(1, (1, h, w))
    kinds = {nn.ReLU: "ReLU", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid", nn.Flatten: "Flatten"}
    if type(layer) not in kinds:
        raise ValueError(f'trainer is "torch": it has no peer for {layer!r}; use the models mlp, lenet or cnn')
    return getattr(torch.nn, kinds[type(layer)])()


def _rule(torch, optimizer, params):
    """Return PyTorch's optimizer of the same rule; its learning rate is set before every step."""
    rule = optimizer.rule
    options = {"lr": 1.0, "weight_decay": getattr(rule, "weight_decay", 0.0)}
    if type(rule) in (SGD, Momentum, Nesterov) and optimizer.clip_norm is None:
        momentum, nesterov = getattr(rule, "momentum", 0.0), isinstance(rule, Nesterov)
        return torch.optim.SGD(params, momentum=momentum, nesterov=nesterov, **options)
    if type(rule) in (Adam, AdamW) and optimizer.clip_norm is None:
        kind = getattr(torch.optim, type(rule).__name__)
        return kind(params, betas=(rule.beta1, rule.beta2), eps=rule.eps, **options)
    known = "SGD, Momentum, Nesterov, Adam and AdamW, without clipping"
    found = rule if optimizer.clip_norm is None else f"with clip_norm {optimizer.clip_norm}"
    raise ValueError(f'trainer is "torch": it runs {known}, not {found}')
