"""Checks of a student's update rule against the library's."""

from __future__ import annotations

import numpy as np


def judge_rule(
    check, function, rule, memory, mistakes=None, *, shape=(2, 3), steps=3, lr=0.1, seed=1, first=0, **options
):
    """Compare a function with the signature of `Rule.update` with a rule, over some steps on random gradients.

    Parameters
    ----------
    check : Check
        Of the cell, which reports.
    function : callable
        function(data, grad, state, lr, step), which changes `data` and `state` in place.
    rule : Rule
        Of the library.
    memory : int
        Arrays in the state.
    mistakes : dict of str to callable, optional
        Wrong functions by what is wrong with them.
    shape : tuple of int
    steps, seed : int
    lr : float
    first : int
        Number of the first step, for a run that goes on; the state is then not zero.
    **options
        Keyword arguments of the function.
    """
    rng, name = np.random.default_rng(seed), type(rule).__name__
    start, grads = rng.normal(size=shape), rng.normal(size=(steps, *shape))
    kept = rng.uniform(0.5, 2.0, size=(memory, *shape)) * (first > 0)

    def fresh():
        arrays = tuple(a.copy() for a in kept)
        return start.copy(), arrays if memory > 1 else arrays[0] if arrays else None

    def outcome(update, step, **more):
        """Data after a step, by another rule from the same start."""
        data, state = fresh()
        with np.errstate(all="ignore"):
            for k in range(step + 1):
                update(data, grads[k].copy(), state, lr, first + k, **more)
        return data

    data, state = fresh()
    twin, other = fresh()
    for k in range(steps):
        grad, before = grads[k].copy(), data.copy()
        check.call(function, data, grad, state, lr, first + k, inplace=True, **options)
        rule.update(twin, grads[k], other, lr, first + k)
        suspects = {"data has not changed: `data = ...` makes a new array, `data -= ...` changes this one": before}
        suspects |= {text: outcome(wrong, k) for text, wrong in (mistakes or {}).items()}
        suspects |= {"this walks uphill: subtract": 2 * before - twin}
        where = f"{name}, step {first + k}"
        check.close(f"data ({where})", data, twin, suspects=suspects)
        check.true(f"grad is unchanged ({where})", np.array_equal(grad, grads[k]), "do not write into grad")
        mine = state if memory > 1 else (state,) * memory
        theirs = other if memory > 1 else (other,) * memory
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            check.close(f"state {i} ({where})", a, b)
        if not all(np.allclose(a, b) for a, b in [(data, twin), *zip(mine, theirs, strict=True)]):
            return  # the steps after a wrong one are wrong, too


def eps_under_root(rho, eps):
    """Return the update of RMSprop, or of Adagrad (rho None), with eps under the root, where it does not belong."""

    def update(data, grad, state, lr, step):
        state[...] = state + grad**2 if rho is None else rho * state + (1 - rho) * grad**2
        data -= lr * grad / np.sqrt(state + eps)

    return update
