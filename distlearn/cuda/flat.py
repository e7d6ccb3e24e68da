"""One launch for all parameters: on a GPU a rule's arrays lie in one piece each."""

from __future__ import annotations

from distlearn.backend import can_launch, get_xp


class Flat:
    """Parameters of a group, their gradients and the states of an elementwise rule, moved into one array each."""

    def __init__(self, params, rule):
        xp, ends = get_xp(params[0].data), [0]
        for p in params:
            ends.append(ends[-1] + -(-p.size // 4) * 4)  # a float4 can begin there
        data, grad = (xp.zeros(ends[-1], params[0].data.dtype) for _ in range(2))
        self.whole, self.parts = (data, grad, rule.init(data)), []
        for p, begin in zip(params, ends, strict=False):
            w, g, state = (_part(a, begin, p.data.shape, p.size) for a in self.whole)
            w[...], g[...] = p.data, p.grad
            p.data, p.grad = w, g
            self.parts.append((w, g, state))

    def arrays(self, pairs) -> tuple | None:
        """Return the whole arrays, if the parts of (parameter, state) are still theirs: a strategy may move them."""
        parts = [(w.data, w.grad, state) for w, state in pairs]
        same = all(a is b for one, own in zip(parts, self.parts, strict=True) for a, b in zip(one, own, strict=True))
        return self.whole if same else None


def _part(a, begin, shape, size):
    if isinstance(a, tuple):
        return tuple(_part(b, begin, shape, size) for b in a)
    return None if a is None else a[begin : begin + size].reshape(shape)


def flat_group(params, rule) -> Flat | None:
    """Put a group's arrays in one piece, where all are on a GPU."""
    arrays = [p.data for p in params]
    return Flat(params, rule) if arrays and can_launch(*arrays, dtypes=("float32", "float64")) else None
