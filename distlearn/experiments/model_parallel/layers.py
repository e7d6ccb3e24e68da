"""A run with column- and row-parallel layers whose arithmetic is the caller's."""

from __future__ import annotations

from ...data import load
from ...nn import MLP, SoftmaxCrossEntropy
from ...nn.container import layer_span
from ...optim import Momentum, Optimizer
from ...parallel import Serial
from ...parallel.tensor import ColumnParallelLinear, RowParallelLinear, TensorParallel
from ...train import fit


class _Column(ColumnParallelLinear):
    """The library's column-parallel layer around given functions."""

    def forward(self, x):
        with layer_span(self.comm.clock, self.local, "forward", x.shape, x.dtype.itemsize):
            return self.functions[0](self.comm, x, self.local.W.data, self.local.b.data), x

    def backward(self, dy, saved):
        return _learn(self.functions[1], self.comm, dy, saved, self.local)


class _Row(RowParallelLinear):
    """The library's row-parallel layer around given functions."""

    def forward(self, x):
        return self.functions[2](self.comm, x, self.W.data, self.b.data), x  # a span would hold the collective, too

    def backward(self, dy, saved):
        with layer_span(self.comm.clock, self, "backward", saved.shape, saved.dtype.itemsize):
            return _learn(self.functions[3], self.comm, dy, saved, self)


def _learn(function, comm, dy, x, layer):
    dx, dW, db = function(comm, dy, x, layer.W.data)
    layer.W.add(dW)
    layer.b.add(db)
    return dx


def train_layers(comm, functions=None, *, data="digits", sizes=(256, 128, 64), n_train=None, epochs=4, lr=0.05):
    """Train a network whose dense layers alternate between column- and row-parallel.

    Parameters
    ----------
    comm : Communicator
        On a single rank the serial model is trained.
    functions : tuple of callable, optional
        column_forward(comm, x, W, b), column_backward(comm, dy, x, W), row_forward, row_backward: used instead of the
        library's arithmetic. The first of each pair returns y, the second dx, dW and db.
    data : str
    sizes : tuple of int
        Hidden layers; an odd number of them, so that the last layer is row-parallel.
    n_train : int, optional
    epochs : int
    lr : float

    Returns
    -------
    history : History
    nbytes : int
        Of the parameters on this rank.
    """
    images = load(data, dtype="float64")
    if n_train is not None:
        images = images.take(n_train)
    model = MLP((images.n_features, *sizes, images.n_classes), seed=1, dtype="float64")
    loss, optimizer = SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), lr)
    if comm.size == 1:
        strategy = Serial(model, loss, optimizer, comm.clock)
    else:
        strategy = TensorParallel(comm, model, loss, optimizer)
        for layer in strategy.model.layers:
            kind = {ColumnParallelLinear: _Column, RowParallelLinear: _Row}.get(type(layer))
            if kind and functions is not None:
                layer.__class__, layer.functions = kind, functions
    history = fit(strategy, images, epochs=epochs, batch_size=64, seed=0, report=comm.report)
    return history, sum(p.nbytes for p in strategy.model.params)
