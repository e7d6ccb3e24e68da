"""One launch for many parameters: on a GPU a rule's arrays lie in one piece each."""

from __future__ import annotations

from distlearn.backend import can_launch, get_xp


class Flat:
    """Parameters of a group, their gradients and the states of an elementwise rule, moved into few arrays.

    There is one of each for every aligned `Bucket`, which has the gradients already; or one for all parameters.
    """

    def __init__(self, params, rule, buckets):
        self.wholes, parts = [], {}
        for inside, grad in [(b.params, b.flat) for b in buckets] or [(params, None)]:
            begins, size = layout(inside)
            data = get_xp(inside[0].data).zeros(size, inside[0].data.dtype)
            whole = data, data.copy() if grad is None else grad[:size], rule.init(data)
            for p, begin in zip(inside, begins, strict=True):
                w, g, state = (_part(a, begin, p.data.shape, p.size) for a in whole)
                w[...] = p.data
                if grad is None:
                    g[...] = p.grad
                    p.grad = g
                p.data, parts[id(p)] = w, (w, p.grad, state)
            self.wholes.append(whole)
        self.parts = [parts[id(p)] for p in params]

    def arrays(self, pairs) -> list | None:
        """Return the whole arrays, if the parts of (parameter, state) are still theirs: a strategy may move them."""
        same = all(
            w.data is data and w.grad is grad and state is own
            for (w, state), (data, grad, own) in zip(pairs, self.parts, strict=True)
        )
        return self.wholes if same else None


def layout(params, unit=4) -> tuple[list[int], int]:
    """Return where parameters begin in one array, by default where a float4 can, and the array's size."""
    begins, size = [], 0
    for p in params:
        begins.append(size)
        size += -(-p.size // unit) * unit
    return begins, size


def on_gpu(params):
    """Say whether there are parameters, and kernels can work on them."""
    return params and can_launch(*(p.data for p in params), dtypes=("float32", "float64"))


def _part(a, begin, shape, size):
    if isinstance(a, tuple):
        return tuple(_part(b, begin, shape, size) for b in a)
    return None if a is None else a[begin : begin + size].reshape(shape)


def flat_group(params, rule, buckets=()) -> Flat | None:
    """Put a group's arrays together, where all are on a GPU."""
    return Flat(params, rule, buckets) if on_gpu(params) else None
