"""Saved weights: the same predictions again, and nothing that does not fit is taken."""

import dataclasses
import errno
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import distlearn as dl
from distlearn.train import Settings, WeightsError, load, load_weights, save_weights, train
from distlearn.train.program import make_model
from distlearn.train.weights import save_trained

SETTINGS = Settings(hidden=(16,), n_train=200, epochs=2)


@pytest.fixture(scope="module")
def data():
    return dl.data.load("digits")


@pytest.fixture(scope="module")
def params(data):
    return dl.SimWorld(1).run(train, SETTINGS)[0].params


@pytest.fixture
def path(tmp_path, params, data):
    return save_trained(tmp_path / "model.safetensors", params, SETTINGS, data)


def test_what_was_saved_predicts_the_same(path, params, data):
    model = make_model(SETTINGS, 64, 10)
    for p in model.params:
        p.data[...] = params[p.name]
    logits = model.eval().forward(data.x_test)[0]
    for where in (path, path.parent, str(path)):
        trained = load(where)
        probabilities = trained.predict(data.x_test, batch_size=7)
        assert probabilities.shape == (360, 10)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_allclose(
            np.log(probabilities), logits - np.log(np.exp(logits).sum(axis=1))[:, None], atol=1e-5
        )
    assert (trained.classes, trained.image_shape, trained.value_range) == (data.classes, (8, 8, 1), (0, 16))
    assert trained.settings == SETTINGS
    assert trained.predict(data.x_test[:0]).shape == (0, 10)
    np.testing.assert_array_equal(trained.predict(data.x_test[:5].reshape(5, 8, 8)), trained.predict(data.x_test[:5]))


def test_any_program_can_read_it(path, params):
    from safetensors.numpy import load_file

    found = load_file(path)
    assert found.keys() == params.keys()
    for name, value in params.items():
        np.testing.assert_array_equal(found[name], value)


def test_weights_go_into_a_model_by_name(path, params):
    model = dl.nn.MLP((64, 16, 10), seed=9)
    load_weights(model, path)
    for p in model.params:
        np.testing.assert_array_equal(p.data, params[p.name])


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((64, 17, 10), "shape .*, expected"),
        ((64, 16, 16, 10), "holds no "),
        ((64, 10), "which the model does not have"),
    ],
)
def test_weights_of_another_model_are_refused_and_change_nothing(path, widths, message):
    model = dl.nn.MLP(widths, seed=9)
    before = [p.data.copy() for p in model.params]
    with pytest.raises(WeightsError, match=message):
        load_weights(model, path)
    for p, was in zip(model.params, before, strict=True):
        np.testing.assert_array_equal(p.data, was)


def test_files_that_are_none_are_named(path, tmp_path):
    from safetensors.numpy import save_file

    (tmp_path / "torn").write_bytes(path.read_bytes()[:-5])
    with pytest.raises(WeightsError, match="torn: is not a complete safetensors file"):
        load(tmp_path / "torn")
    save_file({"w": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(WeightsError, match="was not written by `distlearn train`"):
        load(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")


def test_samples_of_another_size_are_refused(path):
    trained = load(path)
    for shape in ((2, 65), (2, 4, 16), (2, 1, 8, 8), (64,), (0,)):
        with pytest.raises(ValueError, match=r"expected \(samples, 64\) or \(samples, 8, 8, 1\) or \(samples, 8, 8\)"):
            trained.predict(np.zeros(shape))
    with pytest.raises(ValueError, match=r"predict: x is uint8, expected fractions of 0 to 1: \(x - 0\) / 16, as the"):
        trained.predict(np.zeros((2, 64), np.uint8))


def test_channels_first_are_refused(path, data):
    """A transposed array has as many numbers: only its shape tells."""
    trained = dataclasses.replace(load(path), image_shape=(4, 4, 4))
    x = data.x_test[:5].reshape(5, 4, 4, 4)
    assert trained.predict(x).shape == (5, 10)
    trained = dataclasses.replace(trained, image_shape=(8, 4, 2))
    with pytest.raises(
        ValueError, match=r"x has shape \(5, 2, 8, 4\), expected \(samples, 64\) or \(samples, 8, 4, 2\)"
    ):
        trained.predict(x.reshape(5, 8, 4, 2).transpose(0, 3, 1, 2))


def write_raw(path, arrays):
    """Write (dtype, shape, bytes) by name, also of types that NumPy does not have."""
    header, data = {}, b""
    for name, (kind, shape, content) in arrays.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


LOADERS = {
    "file": lambda model, arrays, path: (save_file(arrays, path), load_weights(model, path)),
    "torch": lambda model, arrays, path: dl.nn.load_torch_state(
        model, {"0.weight": arrays["0.W"].T, "0.bias": arrays["0.b"]}
    ),
    "checkpoint": lambda model, arrays, path: dl.Serial(
        None, model, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), lr=0.1)
    ).load_state_dict({f"param/{name}": array for name, array in arrays.items()}),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (7, "int8", "(int8|I8), expected floating-point numbers"),
        (49096, "uint16", "(uint16|U16), expected floating-point numbers"),
        (True, "bool", "(bool|BOOL), expected floating-point numbers"),
        (1j, "complex64", r"(C64|complex64), expected floating-point numbers"),
        (np.nan, "float32", "numbers that are not finite"),
        (-np.inf, "float32", "numbers that are not finite"),
        (1e300, "float64", "numbers beyond float32"),
    ],
)
def test_what_cannot_be_weights_is_refused_and_changes_nothing(tmp_path, loader, value, dtype, message):
    model = dl.nn.Sequential(dl.nn.Linear(4, 3))
    arrays = {p.name: np.zeros_like(p.data) for p in model.params}
    arrays["0.W"] = arrays["0.W"].astype(dtype)
    arrays["0.W"][1, 1] = value
    before = [p.data.copy() for p in model.params]
    if loader == "checkpoint" and dtype != "float32":
        message = f"0.W is .* {dtype}, expected .* float32"
    with pytest.raises(ValueError, match=message):
        LOADERS[loader](model, arrays, tmp_path / "w")
    for p, was in zip(model.params, before, strict=True):
        np.testing.assert_array_equal(p.data, was)


def test_bfloat16_is_read_and_eight_bits_are_named(tmp_path):
    model = dl.nn.Sequential(dl.nn.Linear(2, 1))
    halves = np.array([1.5, -2.0], np.float32).view(np.uint16)[1::2]
    bias = np.array([0.25], np.float16)
    write_raw(tmp_path / "w", {"0.W": ("BF16", [2, 1], halves.tobytes()), "0.b": ("F16", [1], bias.tobytes())})
    load_weights(model, tmp_path / "w")
    assert [p.data.ravel().tolist() for p in model.params] == [[1.5, -2.0], [0.25]]
    write_raw(tmp_path / "w", {"0.W": ("F8_E4M3", [2, 1], b"12"), "0.b": ("F16", [1], bias.tobytes())})
    with pytest.raises(WeightsError, match=r"w: holds 0.W of F8_E4M3, expected floating-point numbers: F64,"):
        load_weights(model, tmp_path / "w")


def test_a_file_of_weights_is_whole_or_the_old_one(path, params, data, monkeypatch):
    before = path.read_bytes()

    def full(self, content):
        with open(self, "wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        save_trained(path, params, SETTINGS, data)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("of", [lambda model: model, lambda model: {p.name: p.data for p in model.params}])
def test_weights_of_a_model_of_ones_own(tmp_path, of):
    """A model, or what a strategy gathers; with running statistics."""

    def make(seed):
        return dl.nn.Sequential(dl.nn.Linear(4, 3, seed), dl.nn.BatchNorm(3), dl.nn.Linear(3, 2, seed + 1))

    model, other = make(0), make(5)
    model.layers[1].running_mean.data[...] = 0.7
    dl.load_weights(other, dl.save_weights(of(model), tmp_path / "own.safetensors"))
    assert [p.data.tolist() for p in other.params] == [p.data.tolist() for p in model.params]
    with pytest.raises(TypeError, match="model is None: gather_params returns parameters on rank 0 alone"):
        save_weights(None, tmp_path / "own.safetensors")
