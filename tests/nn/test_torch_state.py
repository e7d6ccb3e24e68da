"""Weights to and from PyTorch: names, shapes and layouts, and the same outputs where PyTorch is installed."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.nn import load_torch_state, to_torch_state


def every_kind(seed=0):
    """One of every layer with parameters on the way from images to classes, and the shape of its sample."""
    rng = np.random.default_rng(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), 1, groups=2, dtype="float64"),
        nn.BatchNorm(4, dtype="float64"),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(4, 3, 1, 2, dtype="float64"), nn.MaxPool(2)),
        nn.Flatten(),
        nn.Tanh(),
        nn.Linear(12, 5, 3, dtype="float64"),
        nn.LayerNorm(5, dtype="float64"),
        nn.Linear(5, 3, 4, dtype="float64"),
        nn.RMSNorm(3, dtype="float64"),
    )
    for p in model.params:
        p.data[...] = rng.uniform(0.5, 1.5, p.data.shape)
    return model, (6, 5, 2)


SHAPES = {
    "0.weight": (4, 1, 3, 2),
    "0.bias": (4,),
    "1.weight": (4,),
    "1.bias": (4,),
    "1.running_mean": (4,),
    "1.running_var": (4,),
    "1.num_batches_tracked": (),
    "3.0.weight": (3, 4, 1, 1),
    "3.0.bias": (3,),
    "6.weight": (5, 12),
    "6.bias": (5,),
    "7.weight": (5,),
    "7.bias": (5,),
    "8.weight": (3, 5),
    "8.bias": (3,),
    "9.weight": (3,),
}
"""What `state_dict` of the same model has in PyTorch 2.13."""


def sequence_model(seed=0):
    """An embedding, a stack of two GRUs, an RNN and a dense layer."""
    rng = np.random.default_rng(seed)
    model = nn.Sequential(
        nn.Embedding(7, 3, 1, dtype="float64"),
        nn.GRU(3, 4, 2, dtype="float64"),
        nn.GRU(4, 4, 3, dtype="float64"),
        nn.RNN(4, 5, 4, dtype="float64"),
        nn.Linear(5, 7, 5, dtype="float64"),
    )
    for p in model.params:
        p.data[...] = rng.uniform(-0.7, 0.7, p.data.shape)
    return model


KEYS = {
    "1.weight_ih_l0": (12, 3),
    "1.weight_hh_l0": (12, 4),
    "1.bias_ih_l0": (12,),
    "1.bias_hh_l0": (12,),
    "2.weight_ih_l0": (12, 4),
    "2.weight_hh_l0": (12, 4),
    "2.bias_ih_l0": (12,),
    "2.bias_hh_l0": (12,),
}
"""Of the GRUs."""


def test_names_and_shapes_are_pytorchs():
    model, sample = every_kind()
    state = to_torch_state(model, sample)
    assert {key: array.shape for key, array in state.items()} == SHAPES
    state = to_torch_state(sequence_model())
    assert {key: array.shape for key, array in state.items() if key[0] in "12"} == KEYS
    assert [key for key in state if key[0] not in "12"] == [
        "0.weight",
        *(f"3.{kind}_l0" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        "4.weight",
        "4.bias",
    ]


def test_layouts():
    """Where single values lie, independently of PyTorch."""
    model, sample = every_kind()
    state, W = to_torch_state(model, sample), model.layers[6].W.data
    assert state["0.weight"][3, 0, 2, 1] == model.layers[0].W.data[2, 1, 0, 3]
    image = np.arange(2 * 2 * 3).reshape(2, 2, 3)  # rows, columns, channels behind the pooling
    for place in ((0, 0, 0), (1, 0, 2), (0, 1, 1)):
        there = int(np.flatnonzero(image.transpose(2, 0, 1).reshape(-1) == image[place])[0])
        assert state["6.weight"][4, there] == W[image[place], 4]
    gru, state = sequence_model().layers[1], to_torch_state(sequence_model())
    np.testing.assert_array_equal(state["1.weight_hh_l0"][4:8], gru.U.data[:, 4:8].T)  # the gates: r, z, n
    np.testing.assert_array_equal(state["1.bias_hh_l0"], [0] * 8 + list(gru.c.data))


@pytest.mark.parametrize(
    ("make", "options"), [(lambda s: every_kind(s)[0], {"sample": (6, 5, 2)}), (sequence_model, {})]
)
def test_there_and_back(make, options):
    model, other = make(0), make(1)
    load_torch_state(other, to_torch_state(model, **options), **options)
    for p, q in zip(model.params, other.params, strict=True):
        np.testing.assert_array_equal(p.data, q.data)


@pytest.mark.parametrize("state", ["module", "named_parameters", "bfloat16", "int8", "quantized"])
def test_states_of_pytorch_of_any_kind(state):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3))
    model, want = nn.Sequential(nn.Linear(4, 3)), module[0].weight.detach().numpy().T
    given = {
        "module": module,
        "named_parameters": dict(module.named_parameters()),
        "bfloat16": {name: p.to(torch.bfloat16) for name, p in module.state_dict().items()},
        "int8": {name: p.to(torch.int8) for name, p in module.state_dict().items()},
        "quantized": {n: torch.quantize_per_tensor(p, 0.1, 0, torch.qint8) for n, p in module.state_dict().items()},
    }[state]
    if state in ("int8", "quantized"):
        with pytest.raises(ValueError, match=r"load_torch_state: 0\.weight .* expected floating-point numbers"):
            load_torch_state(model, given)
        return
    load_torch_state(model, given)
    np.testing.assert_allclose(model.layers[0].params[0].data, want, rtol=2.0**-8 if state == "bfloat16" else 0)


def test_two_biases_of_pytorch_become_one():
    model = sequence_model()
    state = to_torch_state(model)
    for key in ("1.bias_hh_l0", "3.bias_hh_l0"):
        state[key] = state[key] + 0.25
    b, c, rnn = (p.data.copy() for p in (model.layers[1].b, model.layers[1].c, model.layers[3].b))
    load_torch_state(model, state)
    np.testing.assert_allclose(model.layers[1].b.data, b + np.repeat([0.25, 0], [8, 4]))
    np.testing.assert_allclose(model.layers[1].c.data, c + 0.25)
    np.testing.assert_allclose(model.layers[3].b.data, rnn + 0.25)


def test_a_shared_parameter_has_two_keys_and_one_value():
    first, second = nn.Linear(3, 3, 0), nn.Linear(3, 3, 1)
    second.W, second.params[0] = first.W, first.W
    model = nn.Sequential(first, second)
    state = to_torch_state(model)
    np.testing.assert_array_equal(state["0.weight"], state["1.weight"])
    load_torch_state(model, state)
    state["1.weight"] = state["1.weight"] + 1
    with pytest.raises(ValueError, match=r"0.weight and 1.weight share 0.W, but"):
        load_torch_state(model, state)


def test_what_does_not_fit_is_named_and_changes_nothing():
    model, sample = every_kind()
    state, before = to_torch_state(model, sample), [p.data.copy() for p in model.params]
    wrong = {k: v for k, v in state.items() if k != "8.bias"} | {"9.bias": state["8.bias"]}
    with pytest.raises(ValueError, match=r"lacks 8.bias, and it has 9.bias for which"):
        load_torch_state(model, wrong, sample)
    with pytest.raises(ValueError, match=r"8.weight has shape \(5, 3\), expected \(3, 5\)"):
        load_torch_state(model, {k: v * 0 for k, v in state.items()} | {"8.weight": state["8.weight"].T}, sample)
    with pytest.raises(ValueError, match=r"give sample, the input"):
        to_torch_state(model)
    for p, data in zip(model.params, before, strict=True):
        np.testing.assert_array_equal(p.data, data)


def test_what_would_be_mixed_up_is_refused():
    """Orders of values that differ from PyTorch's where no parameter can make good for it."""
    norm = nn.Sequential(nn.Flatten(), nn.BatchNorm(12), nn.Linear(12, 2))
    with pytest.raises(ValueError, match=r"BatchNorm\(.*\) \(layer 1.BatchNorm\) stands between a Flatten and"):
        to_torch_state(norm, (2, 2, 3))
    joined = nn.Sequential(nn.Parallel(nn.Flatten(), nn.Sequential(nn.Flatten())), nn.Linear(24, 2))
    with pytest.raises(ValueError, match=r"joins images that are flattened; flatten after it"):
        to_torch_state(joined, (2, 2, 3))

    class Own(nn.Layer):
        def __init__(self):
            self.params = [nn.Param(np.zeros(1), "w")]

    with pytest.raises(TypeError, match=r"Own\(\) has parameters, and no counterpart"):
        to_torch_state(Own())

    class Known(Own):
        def torch_ways(self):
            return ["scale"], lambda arrays: [arrays[0][None]], lambda arrays: [arrays[0][0]]

    class Negative(nn.Linear):
        def torch_ways(self):
            return ["w", "b"], lambda arrays: [-a for a in arrays], lambda arrays: [-a for a in arrays]

    negative = Negative(1, 2)
    np.testing.assert_array_equal(to_torch_state(negative)["w"], -negative.W.data)
    model = nn.Sequential(Known(), nn.Linear(1, 2))
    state = to_torch_state(model) | {"0.scale": np.full((1, 1), 3.0)}
    load_torch_state(model, state)
    assert (list(state), model.params[0].data) == (["0.scale", "1.weight", "1.bias"], [3])


class TestAgainstTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch", reason="torch is not installed (the extra 'bench')")

    def test_images(self, torch):
        t = torch.nn
        peer = t.Sequential(
            t.Conv2d(2, 4, (3, 2), groups=2),
            t.BatchNorm2d(4),
            t.ReLU(),
            t.Sequential(t.Conv2d(4, 3, 1), t.MaxPool2d(2)),
            t.Flatten(),
            t.Tanh(),
            t.Linear(12, 5),
            t.LayerNorm(5),
            t.Linear(5, 3),
            t.RMSNorm(3, eps=1e-5),
        ).double()
        (model, sample), x = every_kind(), np.random.default_rng(3).normal(size=(4, 6, 5, 2))
        peer.load_state_dict({k: torch.from_numpy(v) for k, v in to_torch_state(model, sample).items()})
        images = torch.from_numpy(x.transpose(0, 3, 1, 2).copy())
        np.testing.assert_allclose(model.eval().forward(x)[0], peer.eval()(images).detach().numpy(), rtol=1e-12)
        other, _ = every_kind(5)
        load_torch_state(other, peer.state_dict(), sample)
        np.testing.assert_allclose(other.eval().forward(x)[0], model.eval().forward(x)[0], rtol=1e-14)

    def test_sequences(self, torch):
        t = torch.nn
        layers = t.GRU(3, 4, batch_first=True), t.GRU(4, 4, batch_first=True), t.RNN(4, 5, batch_first=True)
        peer = t.ModuleList([t.Embedding(7, 3), *layers, t.Linear(5, 7)]).double()
        model, x = sequence_model(), np.random.default_rng(3).integers(7, size=(4, 6))
        load_torch_state(model, peer.state_dict())  # with two biases that are not zero
        want = peer[0](torch.from_numpy(x))
        for layer in layers:
            want, _ = layer(want)
        want = peer[4](want)
        np.testing.assert_allclose(model.forward(x)[0], want.detach().numpy(), rtol=1e-12)
        peer.load_state_dict({k: torch.from_numpy(v) for k, v in to_torch_state(model).items()})
