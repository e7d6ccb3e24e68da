"""Norms, sums and dropout on 1 / p of the positions beside sharded heads: equal to serial training, as many bytes."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.comm import RankError
from distlearn.data import Batch
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import TensorParallel, parallelize
from distlearn.parallel.tensor import cut_positions
from distlearn.sim import SimWorld

from ..programs import assert_same_params, parts, serial

WIDTH, LENGTH = 12, 24
X = np.random.default_rng(0).integers(WIDTH, size=(6, LENGTH + 1))
OPTIONS = {"dtype": "float64"}


def gpt(heads=6):
    return nn.GPT(WIDTH, width=WIDTH, heads=heads, n_blocks=2, **OPTIONS)


def tied():
    """The embedding's vectors are the weights of the scores, and both blocks have the same dense layers."""
    layers = gpt().layers
    head = layers[-1]
    head.W = layers[0].W
    head.params = [head.W, head.b]
    return nn.Sequential(*layers[:3], layers[3], layers[2], *layers[5:])


def with_dropout():
    layers, rng = gpt().layers, np.random.default_rng(5)
    bodies = [layer.layers[0].layers for layer in layers[1:-2]]
    blocks = [nn.Residual(nn.Sequential(*body, nn.Dropout(0.2, rng))) for body in bodies]
    return nn.Sequential(layers[0], nn.Dropout(0.1, rng), *blocks, *layers[-2:])


def with_layer_norm():
    """One norm is frozen, a block is recomputed, and some layers are the same on every rank."""
    frozen = nn.LayerNorm(WIDTH, **OPTIONS)
    frozen.gamma.frozen = True
    few = nn.Sequential(nn.Linear(WIDTH, 1, 1, **OPTIONS), nn.Tanh(), nn.Linear(1, WIDTH, 2, **OPTIONS))
    many = nn.Sequential(frozen, nn.Linear(WIDTH, 18, 3, **OPTIONS), nn.ReLU(), nn.Linear(18, WIDTH, 4, **OPTIONS))
    attention = nn.Sequential(nn.LayerNorm(WIDTH, **OPTIONS), nn.MultiHeadAttention(WIDTH, 6, range(4), **OPTIONS))
    return nn.Sequential(
        nn.Embedding(WIDTH, WIDTH, 0, **OPTIONS),
        nn.MultiHeadAttention(WIDTH, 6, range(4), **OPTIONS),
        nn.Residual(few),
        nn.Recompute(nn.Residual(many)),
        nn.Residual(attention),
    )


MODELS = {
    "gpt": gpt,
    "three heads": lambda: gpt(3),  # on four ranks attention is on every rank
    "tied": tied,
    "dropout": with_dropout,
    "layer norm": with_layer_norm,
}


def train(comm, make, kind):
    model = MODELS[kind]()
    strategy = make(comm, model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.01, clip_norm=0.5))
    losses = [strategy.step(Batch(X[i : i + 3, :-1], X[i : i + 3, 1:], 3)) for i in range(3)]
    return strategy.gather_params(), losses, strategy.predict(X[:2, :12])


def sharded(*args):
    return TensorParallel(*args, sequence=True)


@pytest.mark.nightly(but_every=7)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("kind", MODELS)
def test_it_equals_serial_training(size, kind):
    want = SimWorld(1).run(train, serial, kind)[0]
    results = SimWorld(size).run(train, sharded, kind)
    assert_same_params(results[0][0], want[0], tol=1e-10)
    for _, losses, output in results:
        np.testing.assert_allclose(losses, want[1], rtol=1e-10)
        np.testing.assert_allclose(output, want[2], atol=1e-10)
    start = {p.name: p.data for p in MODELS[kind]().params}
    assert [name for name in want[0] if np.array_equal(want[0][name], start[name])] == (
        ["3.0.0.0.gamma"] if kind == "layer norm" else []
    )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_it_sends_as_many_bytes_as_all_reduces(size):
    """An all-reduce in a ring is a reduce-scatter and an all-gather.

    Sent besides: the norms' gradients, and the gradient of the embedding, which is on every rank, one all-gather.
    """
    sent = {}
    for sequence in (False, True):
        world = SimWorld(size, collectives="formula")

        def program(comm, sequence=sequence):
            strategy = TensorParallel(comm, *parts(gpt(), Adam(), 0.01), sequence=sequence)
            comm.barrier()
            start = comm.clock.now()
            strategy.step(Batch(X[:2, :-1], X[:2, 1:], 2))
            return start

        start = world.run(program)[0]
        calls = [s for s in world.trace.select(rank=0) if s.nbytes and s.start >= start]
        found = {
            name: sum(s.nbytes for s in calls if s.name == name)
            for name in ("all_reduce", "all_gather", "reduce_scatter")
        }
        sent[sequence] = found
        norms = 5 * WIDTH * 8 if sequence else 0
        assert found["all_reduce"] == (norms if sequence else sent[False]["all_reduce"])
    ring = {k: 2 * v["all_reduce"] + v["all_gather"] + v["reduce_scatter"] for k, v in sent.items()}
    embedding = 2 * LENGTH * WIDTH * 8
    assert ring[True] == ring[False] + embedding + 2 * 5 * WIDTH * 8
    assert ring[False] == (4 * 4 + 3) * embedding  # by block part 2 all-reduces, one for the scores and their gather


def kept(model, saved):
    """Bytes that the norms save, and bytes that all other layers save."""
    if isinstance(model, nn.Sequential):
        pairs = [kept(layer, s) for layer, (s, _) in zip(model.layers, saved, strict=True)]
        return tuple(map(sum, zip(*pairs, strict=True)))
    if isinstance(model, nn.Residual):
        return kept(model.layers[0], saved)
    n = nn.nbytes(saved)
    return (n, 0) if isinstance(model, nn.RMSNorm) else (0, n)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_activations_between_the_blocks_take_a_share_of_the_memory(size):
    def program(comm, cut):
        model = parallelize(gpt(), comm)
        model = cut_positions(model, comm) if cut else model
        shapes, x = [], X[:2, :-1]
        for layer in model.layers:
            x, _ = layer.forward(x)
            shapes += [x.shape] * isinstance(layer, nn.Residual)
        return kept(model, model.forward(X[:2, :-1])[1]), shapes

    (norms, others), whole = SimWorld(size).run(program, False)[0]
    (norms_cut, others_cut), shapes = SimWorld(size).run(program, True)[0]
    assert norms_cut * size == norms
    assert others_cut == others
    assert whole == [(2, LENGTH, WIDTH)] * 4
    assert shapes == [(2, LENGTH // size, WIDTH)] * 4


def make(comm, model, x):
    strategy = sharded(comm, *parts(model, Adam(), 0.01))
    strategy.predict(x)


FLOATS = np.zeros((2, 6, 4))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (nn.Sequential(nn.GRU(4, 4, 0, **OPTIONS)), FLOATS, r"GRU\(d_in=4.* cannot be cut along positions"),
        (nn.Sequential(nn.Residual(nn.BatchNorm(4, **OPTIONS))), FLOATS, "BatchNorm.* cannot be cut along positions"),
        (nn.Sequential(nn.Flatten(), nn.Linear(24, 4, 0, **OPTIONS)), FLOATS, "Flatten.* cannot be cut"),
    ],
)
def test_layers_that_mix_positions_are_named(size, model, x, message):
    with pytest.raises(RankError, match=message):
        SimWorld(size).run(make, model, x)


def test_lengths_and_shapes_that_do_not_fit_are_named():
    with pytest.raises(RankError, match="length is 7, expected a multiple of 2"):
        SimWorld(2).run(make, gpt(), X[:2, :7])
    flat = nn.Sequential(nn.RMSNorm(4, **OPTIONS), nn.Linear(4, 4, 0, **OPTIONS))
    with pytest.raises(RankError, match=r"expected an input of shape \(batch, length, width\), got \(6, 4\)"):
        SimWorld(2).run(make, flat, np.zeros((6, 4)))
