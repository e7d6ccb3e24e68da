"""An optimizer's state in 8 bits a value instead of 32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backend import get_xp
from .optimizer import Rule, check_rule, state_arrays


def _code(signed: bool):
    """The values from -1, or above 0, to 1 that a code stands for."""
    # Seven powers of ten, and the more values between two of them the larger they are.
    edges = [np.linspace(0.1, 1, 2 ** (i + (not signed)) + 1) * 10.0 ** (i - 6) for i in range(7)]
    means = np.concatenate([(e[1:] + e[:-1]) / 2 for e in edges])
    return np.sort(np.concatenate([[0], -means, means, [1]] if signed else [means, [1]])).astype(np.float32)


CODES = _code(False), _code(True)


@dataclass(frozen=True)
class EightBit:
    r"""A rule whose state is kept in 8 bits: blocks of values, each divided by its largest magnitude.

    .. math:: x_i \approx s_b \, c_{q_i}, \qquad s_b = \max_{i \in b} |x_i|

    The code c has as many values between 0.1 and 1 as below, half as many from 0.01 to 0.1, and so on down to 3e-7.
    Arrays without a negative value, such as Adam's second moment, use a code without signs, twice as fine, and without
    a zero: a small second moment that becomes 0 makes Adam's step m / eps, a million times too large.

    Parameters
    ----------
    rule : Rule
        Such as `Adam()`: computes in full precision on the decoded state.
    block : int
        Values that share a float32 scale; one outlier makes a block coarse, not the array.

    Notes
    -----
    Bytes: 1 + 4 / block a value and array, so about 2 instead of 8 for Adam. Blocks are those of a whole parameter, so
    strategies that hold parts of one refuse the rule.

    References
    ----------
    T. Dettmers, M. Lewis, S. Shleifer, L. Zettlemoyer (2022), 8-bit optimizers via block-wise quantization, ICLR. B.
    Li, J. Chen, J. Zhu (2023), Memory efficient optimizers with 4-bit states, NeurIPS: why not zero.
    """

    rule: Rule
    block: int = 256
    whole = True

    def __post_init__(self):
        check_rule("EightBit", self.rule)
        if not (hasattr(self.block, "__index__") and self.block >= 1):
            raise ValueError(f"EightBit: block is {self.block!r}, expected a whole number of 1 or more")

    def init(self, data):
        return self._encode(state_arrays(self.rule.init(data)))

    def update(self, data, grad, state, lr, step):
        if data.device == "meta":  # there is nothing to encode
            return
        arrays = tuple(map(self._decode, state[::2], state[1::2]))
        self.rule.update(data, grad, arrays if len(arrays) > 1 else arrays[0] if arrays else None, lr, step)
        for old, new in zip(state, self._encode(arrays), strict=True):
            old[...] = new

    def _encode(self, arrays):
        """Return codes and scales of each array, one after another; scales are negative where a code has no signs."""
        found = []
        for x in arrays:
            xp, n = get_xp(x), -(-x.size // self.block)
            if x.device == "meta":
                found += xp.zeros(x.shape, np.uint8), xp.zeros(n, np.float32)
                continue
            blocks = xp.zeros((n, self.block), np.float32)
            blocks.reshape(-1)[: x.size] = x.reshape(-1)
            signed, scales = bool((x < 0).any()), abs(blocks).max(axis=1, keepdims=True)
            code = xp.asarray(CODES[signed])
            codes = xp.searchsorted((code[1:] + code[:-1]) / 2, blocks / xp.where(scales > 0, scales, 1))
            found += codes.reshape(-1)[: x.size].reshape(x.shape).astype(np.uint8), scales[:, 0] * (2 * signed - 1)
        return tuple(found)

    def _decode(self, codes, scales):
        xp = get_xp(codes)
        values = xp.asarray(CODES[not (scales < 0).any()])[codes]
        return values * abs(scales).repeat(self.block)[: codes.size].reshape(codes.shape)
