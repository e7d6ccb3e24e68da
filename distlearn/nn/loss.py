"""Losses: what training makes small.

A loss divides by the number of samples in the *global* batch, `n`, and gradients are summed over ranks. Then shards of
unequal size are right by construction; a mean of the ranks' means would be wrong.
"""

from __future__ import annotations

import numpy as np

from ..backend import get_xp


class SoftmaxCrossEntropy:
    r"""Softmax and cross-entropy in one, which is both more accurate and cheaper than the two apart.

    .. math:: L = -\frac1n \sum_i \log p_{i, y_i}, \quad p_{ij} = \frac{e^{z_{ij}}}{\sum_k e^{z_{ik}}},
              \qquad \frac{\partial L}{\partial z_{ij}} = \frac{p_{ij} - [j = y_i]}{n}

    The largest logit of each row is subtracted first, so that no exponential overflows.
    """

    def __call__(self, logits, labels, n=None):
        """Return the loss and its gradient.

        Parameters
        ----------
        logits : (batch, classes) array
        labels : (batch,) array of int
        n : int, optional
            Size of the global batch of which these rows are a part; `batch` by default.

        Returns
        -------
        loss : float
            The part of the global batch's mean loss that these rows give; the sum over ranks is the loss.
        dlogits : (batch, classes) array
        """
        n = len(logits) if n is None else n
        self._check(logits, labels, n)
        if len(logits) == 0:
            return 0.0, logits.copy()
        xp = get_xp(logits)
        rows = xp.arange(len(logits))
        z = logits - logits.max(axis=1, keepdims=True)
        at_label = z[rows, labels]
        xp.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        loss = float((xp.log(total[:, 0]) - at_label).sum(dtype=np.float64)) / n
        z /= total
        z[rows, labels] -= 1
        z /= n
        return loss, z

    @staticmethod
    def _check(logits, labels, n):
        if logits.ndim != 2:
            raise ValueError(f"SoftmaxCrossEntropy: logits have shape {logits.shape}, expected (batch, classes)")
        if labels.shape != logits.shape[:1]:
            raise ValueError(
                f"SoftmaxCrossEntropy: labels have shape {labels.shape}, expected ({len(logits)},): "
                "one class index per row of logits"
            )
        if labels.dtype.kind not in "iu":
            raise TypeError(f"SoftmaxCrossEntropy: labels have dtype {labels.dtype}, expected integers (class indices)")
        if n < max(1, len(logits)):
            raise ValueError(f"SoftmaxCrossEntropy: n is {n}, expected at least the {len(logits)} rows given")
        if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < logits.shape[1]):
            raise ValueError(
                f"SoftmaxCrossEntropy: labels run from {int(labels.min())} to {int(labels.max())}, "
                f"expected class indices from 0 to {logits.shape[1] - 1}"
            )
