"""The Python side of the sheet to draw on."""

import numpy as np
import pytest
from distcourse.drawing import SIDE, Drawing, pixels, respond

from distlearn import Serial, nn, optim


@pytest.fixture
def trainer():
    linear = [nn.Linear(*sizes, rng=k, dtype="float64") for k, sizes in enumerate(((64, 12), (12, 10)))]
    model = nn.Sequential(linear[0], nn.ReLU(), linear[1])
    return Serial(None, model, nn.SoftmaxCrossEntropy(), optim.Optimizer(model.params, optim.SGD(), 0.1))


def sheet(rows, columns):
    """Ink in a rectangle."""
    drawn = np.zeros((SIDE, SIDE), int)
    drawn[rows, columns] = 1
    return "".join(map(str, drawn.ravel()))


def test_pixels_are_shares_of_ink_in_the_middle_of_the_sheet():
    assert not pixels("0" * SIDE * SIDE).any()
    bar = pixels(sheet(slice(3, 19), slice(20, 22))).reshape(8, 8)  # 16 high and 2 wide: becomes 32 x 4
    assert bar.dtype == np.float32
    assert (bar[:, 3:5] == 0.5).all()
    assert bar.sum() == 8


def test_the_gradients_are_those_of_the_network(trainer):
    x = pixels(sheet(slice(0, 32), slice(10, 20))).astype("float64")
    reply = respond(trainer.model, trainer.loss, x, 3)
    assert [layer["name"] for layer in reply["layers"]] == ["input", "Linear", "ReLU", "Linear"]
    assert [len(layer["values"]) for layer in reply["layers"]] == [64, 12, 12, 10]
    logits = trainer.model.forward(x)[0]
    assert reply["layers"][-1]["values"] == pytest.approx(logits[0], abs=1e-5)
    assert reply["loss"] == pytest.approx(trainer.loss(logits, np.array([3]), 1)[0])
    eps, moved = 1e-5, x.copy()
    moved[0, 27] += eps
    up = trainer.loss(trainer.model.forward(moved)[0], np.array([3]), 1)[0]
    moved[0, 27] -= 2 * eps
    down = trainer.loss(trainer.model.forward(moved)[0], np.array([3]), 1)[0]
    assert reply["layers"][0]["slopes"][27] == pytest.approx((up - down) / (2 * eps), abs=1e-5)
    assert sum(reply["probabilities"]) == pytest.approx(1, abs=1e-4)


def test_looking_changes_nothing(trainer):
    for p in trainer.model.params:
        p.grad[...] = 1.0
    before = [p.data.copy() for p in trainer.model.params]
    respond(trainer.model, trainer.loss, np.ones((1, 64)), 3)
    assert all((p.grad == 1).all() for p in trainer.model.params)
    assert all((p.data == b).all() for p, b in zip(trainer.model.params, before, strict=True))


def test_the_widget_answers_ink_and_trains_on_a_label(trainer):
    drawing = Drawing(trainer)
    assert drawing.reply == {}
    assert "JupyterLab" in repr(drawing)
    drawing.ink = sheet(slice(0, 32), slice(10, 20))
    guess = drawing.reply["guess"]
    assert drawing.reply["label"] == guess
    drawing.steps = 1
    assert drawing.reply["probabilities"][guess] == max(drawing.reply["probabilities"]), "no label, no training"
    other = (guess + 1) % 10
    drawing.label = other
    losses = [drawing.reply["loss"]]
    for k in range(2, 12):
        drawing.steps = k
        losses.append(drawing.reply["loss"])
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    drawing.ink = "0" * SIDE * SIDE
    assert drawing.reply == {}
