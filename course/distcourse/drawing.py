"""Draw a digit with the mouse; a network answers layer by layer, with its gradients.

The page runs `drawing.js` (by anywidget) and sends the ink; everything is computed here, by the student's own layers.
Without a page the widget is only its text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from distlearn import need
from distlearn.data import Batch

anywidget, traitlets = need("anywidget", "labs"), need("traitlets", "labs")

# The digits of the data set were bitmaps of 32 x 32; a pixel is the share of ink in a block of 4 x 4.
SIDE, BLOCK = 32, 4


class Drawing(anywidget.AnyWidget):
    """A sheet to draw on, and what a network makes of the drawing."""

    _esm = Path(__file__).with_suffix(".js")
    ink = traitlets.Unicode("0" * SIDE * SIDE).tag(sync=True)
    label = traitlets.Int(-1).tag(sync=True)
    steps = traitlets.Int(0).tag(sync=True)
    reply = traitlets.Dict().tag(sync=True)

    def __init__(self, trainer):
        super().__init__()
        self._trainer = trainer
        self.observe(self._answer, ["ink", "label"])
        self.observe(self._train, "steps")

    def __repr__(self) -> str:
        return "[a sheet to draw a digit on: run this cell in JupyterLab]"

    def _pixels(self):
        return pixels(self.ink).astype(self._trainer.model.params[0].data.dtype)

    def _answer(self, change=None) -> None:
        x = self._pixels()
        self.reply = respond(self._trainer.model, self._trainer.loss, x, self.label) if x.any() else {}

    def _train(self, change) -> None:
        x = self._pixels()
        if self.label >= 0 and x.any():
            self._trainer.step(Batch(x, np.array([self.label]), 1))
            self._answer()


def pixels(ink: str) -> np.ndarray:
    """Return the drawing as the data set has its digits: moved to the middle, as high as the sheet, (1, 64).

    Examples
    --------
    >>> pixels("0" * 500 + "1" + "0" * 523).reshape(8, 8)[:, 3:5].min()
    np.float32(1.0)
    """
    sheet = np.array([c == "1" for c in ink]).reshape(SIDE, SIDE)
    if sheet.any():
        rows, columns = np.flatnonzero(sheet.any(axis=1)), np.flatnonzero(sheet.any(axis=0))
        drawn = sheet[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        scale = SIDE / max(drawn.shape)
        height, width = (max(1, round(n * scale)) for n in drawn.shape)
        fitted = drawn[np.ix_((np.arange(height) / scale).astype(int), (np.arange(width) / scale).astype(int))]
        sheet, top, left = np.zeros_like(sheet), (SIDE - height) // 2, (SIDE - width) // 2
        sheet[top : top + height, left : left + width] = fitted
    blocks = sheet.reshape(SIDE // BLOCK, BLOCK, SIDE // BLOCK, BLOCK)
    return blocks.mean(axis=(1, 3)).astype("float32").reshape(1, -1)


def respond(model, loss, x, label: int = -1) -> dict:
    """Run a drawing forward and backward through a model, and return what passes between the layers."""
    names, values, saved = ["input"], [x], []
    for layer in model.layers:
        y, kept = layer.forward(values[-1])
        names.append(type(layer).__name__)
        values.append(y)
        saved.append(kept)
    logits = values[-1]
    guess = int(logits.argmax())
    label = guess if label < 0 else label
    value, dy = loss(logits, np.array([label]), 1)
    slopes, before = [dy], [p.grad.copy() for p in model.params]
    for layer, kept in zip(reversed(model.layers), reversed(saved), strict=True):
        slopes.append(layer.backward(slopes[-1].copy(), kept))
    for p, grad in zip(model.params, before, strict=True):
        p.grad[...] = grad
    e = np.exp(logits[0] - logits.max())
    layers = [
        {"name": name, "values": _plain(v), "slopes": _plain(s)}
        for name, v, s in zip(names, values, reversed(slopes), strict=True)
    ]
    return {"layers": layers, "probabilities": _plain(e / e.sum()), "guess": guess, "label": label,
            "loss": float(value)}  # fmt: skip


def _plain(array) -> list[float]:
    if array is None:  # the library's first layer leaves out what no layer below needs
        return []
    return [round(float(v), 5) for v in np.ravel(array)]
