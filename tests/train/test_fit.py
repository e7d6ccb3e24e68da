"""What `fit` is given and may answer, beside training itself."""

import numpy as np
import pytest

from distlearn import DataParallel, RankError, Serial, SimWorld, data, fit, nn, optim
from distlearn.parallel import ParameterServer
from distlearn.parallel.checkpoint.store import CheckpointStore

DIGITS = data.load("digits").take(100, 50)


def serial(*layers, rule=None, comm=None):
    model = nn.Sequential(*layers) if layers else nn.MLP((64, 10))
    optimizer = optim.Optimizer(model.params, rule or optim.SGD(), 0.1)
    return (Serial if comm is None else DataParallel)(comm, model, nn.SoftmaxCrossEntropy(), optimizer)


def test_training_ends_where_on_epoch_says_so_and_goes_on_later(tmp_path):
    store, options = CheckpointStore(tmp_path), {"epochs": 6, "batch_size": 25}
    stopped = fit(serial(), DIGITS, checkpoints=store, on_epoch=lambda history: len(history.epochs) == 2, **options)
    assert [e.epoch for e in stopped.epochs] == [1, 2]
    assert store.steps == [8]
    for alone in ({"every": 5}, {"resume": True}):  # nothing would be saved, or read
        with pytest.raises(ValueError, match="but without checkpoints, a CheckpointStore"):
            fit(serial(), DIGITS, **options, **alone)
    resumed = fit(serial(), DIGITS, checkpoints=store, resume=True, **options)
    assert resumed.column("test").tolist() == fit(serial(), DIGITS, **options).column("test_accuracy").tolist()


def test_a_log_has_every_epoch_and_checkpoint_and_a_functions_metric_is_a_column(tmp_path, caplog):
    def error(outputs, labels):
        return float((outputs.argmax(axis=1) != labels).mean())

    with caplog.at_level("INFO", logger="distlearn"):
        options = {"epochs": 2, "batch_size": 50, "metric": error, "checkpoints": CheckpointStore(tmp_path)}
        history = SimWorld(2).run(lambda comm: fit(serial(comm=comm), DIGITS, **options))[0]
    losses = [e.loss for e in history.epochs]
    assert [r.getMessage() for r in caplog.records if r.name == "distlearn.train.fit"] == [
        f"epoch {i} of 2: loss {loss:.4g}" for i, loss in enumerate(losses, start=1)
    ]
    assert f"checkpoint of step 4 in {tmp_path}" in caplog.text
    accuracy = SimWorld(2).run(lambda comm: fit(serial(comm=comm), DIGITS, epochs=2, batch_size=50))[0]
    np.testing.assert_allclose(1 - history.column("test"), accuracy.column("test"))


def test_another_setting_of_an_own_layer_is_another_model(tmp_path):
    class Leaky(nn.Layer):
        def __init__(self, slope):
            self.slope, self.params = slope, []

        def forward(self, x):
            return np.where(x > 0, x, self.slope * x), x

        def backward(self, dy, saved):
            return np.where(saved > 0, dy, self.slope * dy)

    store = CheckpointStore(tmp_path)
    fit(serial(nn.Linear(64, 10, 0), Leaky(0.1)), DIGITS, epochs=1, batch_size=50, checkpoints=store)
    with pytest.raises(ValueError, match=r"Leaky\(slope=0.1\)"):
        fit(serial(nn.Linear(64, 10, 0), Leaky(0.9)), DIGITS, epochs=2, batch_size=50, checkpoints=store, resume=True)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit(serial(), (1, 2), epochs=1, batch_size=1), "the data set is a tuple, expected a Dataset"),
        (lambda: optim.Optimizer(nn.MLP((3, 2)), optim.SGD(), 0.1), "expected what it has: model.params"),
        (lambda: nn.Param([1.0, 2.0], "w"), r"Param 'w': data is \[1.0, 2.0\], expected an array"),
        (lambda: nn.Param(np.arange(3)), r"data is array\(\[0, 1, 2\]\), expected an array of floating-point"),
    ],
)
def test_what_is_no_data_set_no_parameters_and_no_array(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_a_shape_is_a_tuple_too():
    assert nn.Reshape((8, 8, 1)).forward(np.zeros((2, 64)))[0].shape == (2, 8, 8, 1)


def test_what_is_not_trained_by_steps_of_all_ranks_says_how_it_is(tmp_path):
    def program(comm):
        model = nn.MLP((64, 10))
        return fit(
            ParameterServer(comm, model, nn.SoftmaxCrossEntropy(), optim.SGD(), 0.1), DIGITS, epochs=1, batch_size=9
        )

    with pytest.raises(RankError, match=r"a ParameterServer has no steps .*: call its train\(dataset"):
        SimWorld(2).run(program)


def test_a_batch_of_more_rows_than_are_there_is_refused():
    with pytest.raises(ValueError, match="hold 8 rows together, but n is 80"):
        serial().step(data.Batch(DIGITS.x_train[:8], DIGITS.y_train[:8], 80))
