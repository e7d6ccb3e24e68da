"""Update rules in one pass over memory: SGD with momentum, and Adam."""

from __future__ import annotations

import math

import numpy as np

from distlearn.cuda.kernels.variant import Variant, i32, per_element


def _numbers(w, *values):
    return (*map(w.dtype.type, values), i32(w.size))


def _sgd_momentum(w, v, g, lr, momentum, decay):
    return per_element(w.size, (w, v, g, *_numbers(w, lr, momentum, decay)))


def _adam(w, m, v, g, lr, beta1, beta2, eps, step):
    correction = math.sqrt(1 - beta2**step)
    rate = lr * correction / (1 - beta1**step)
    return per_element(w.size, (w, m, v, g, *_numbers(w, rate, beta1, beta2, eps * correction)))


def _by_dtype(kernel, launch):
    names = {np.dtype("f4"): "float", np.dtype("f8"): "double"}
    return {dtype: Variant("optimizer.cu", f"{kernel}<{name}>", launch) for dtype, name in names.items()}


MOMENTUM = _by_dtype("sgd_momentum", _sgd_momentum)
ADAM = _by_dtype("adam", _adam)

VARIANTS = [*MOMENTUM.values(), *ADAM.values()]


def sgd_momentum(w, v, g, lr, momentum, decay=0.0):
    """Step with momentum, in place and in one pass, on the arrays' device."""
    MOMENTUM[w.dtype](w, v, g, lr, momentum, decay)


def adam(w, m, v, g, lr, step, beta1=0.9, beta2=0.999, eps=1e-8):
    """Step with Adam, in place and in one pass, on the arrays' device.

    Parameters
    ----------
    w, m, v, g : float32 or float64 arrays of one size
        Weights, first and second moments, gradient.
    step : int
        From 1.
    """
    ADAM[w.dtype](w, m, v, g, lr, beta1, beta2, eps, step)
