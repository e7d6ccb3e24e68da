"""The exercises of lab 02: cases of their checks, and the mistakes that the checks name."""

import numpy as np
from distcourse.author.exercise import Exercise, rows

EXERCISES = {}


def edits(rules, old, new):
    """The same edit of several parts of a solution, each an answer of its own."""
    return [f"{rule}  ->  {rule.replace(old, new)}" for rule in rules]


def run_of(rng, of, **options):
    """A case of some steps of a rule; the state is not 0 where the run goes on."""
    return {
        "of": of,
        "shape": rng.integers(1, 6, int(rng.integers(1, 4))).tolist(),
        "lr": float(rng.uniform(0.01, 0.9)),
        "steps": int(rng.integers(2, 6)),
        "first": int(rng.choice([0, 5, 30])),
        "dtype": str(rng.choice(["float32", "float64"])),
        "seed": int(rng.integers(10**6)),
        **options,
    }


NO_STEP = {"argument step frozen": "these rules do not count steps"}
SGD = "    data -= lr * grad\n"
MOMENTUM = "    state *= mu\n    state += grad\n    data -= lr * state"
NAG = "    state *= mu\n    state += grad\n    data -= lr * (grad + mu * state)"
BOTH = MOMENTUM, NAG


def velocity(rng):
    of = str(rng.choice(["sgd", "momentum", "nesterov"]))
    return run_of(rng, of, **({} if of == "sgd" else {"mu": float(rng.uniform(0.2, 0.98))}))


EXERCISES["momentum"] = Exercise(
    answers=("sgd", "momentum", "nesterov"),
    inplace=True,
    cases=[
        {"of": "sgd", "shape": [2, 3], "lr": 0.07},
        {"of": "sgd", "shape": [5], "lr": 0.03, "first": 3, "dtype": "float32"},
        *(
            {"of": of, "shape": shape, "lr": lr, **more}
            for of in ("momentum", "nesterov")
            for shape, lr, more in (
                ([2, 3], 0.07, {}),
                ([3, 1, 2], 1.7, {"mu": 0.6}),
                ([5], 0.03, {"mu": 0.97, "first": 8, "dtype": "float32"}),
            )
        ),
    ],
    draw=velocity,
    draws=8,
    mistakes={
        "v decays: mu v + g, not v + mu v + g": (
            "state *= mu\n    state += grad\n    data -= lr * state\n"
            "  ->  state += mu * state + grad\n    data -= lr * state\n"
        ),
        "v is 0 at first, and in each step it adds the whole gradient": (
            "state *= mu\n    state += grad\n    data -= lr * state\n"
            "  ->  state[...] = mu * state + (1 - mu) * grad if step else grad\n    data -= lr * state\n"
        ),
        "v adds the whole gradient: mu v + g, not mu v + (1 - mu) g": edits(BOTH, "+= grad", "+= (1 - mu) * grad"),
        "the velocity decays: state *= mu": edits(BOTH, "state *= mu", "pass"),
        "mu multiplies the old v, and g is added whole": edits(
            BOTH, "    state *= mu\n    state += grad", "    state += mu * grad"
        ),
        "v adds g: mu v + g, not mu v - g": edits(BOTH, "state += grad", "state -= grad"),
        "the velocity decays by mu, not by 1 - mu": edits(BOTH, "state *= mu", "state *= 1 - mu"),
        "the rate belongs to the step, not into the velocity, too": edits(BOTH, "+= grad", "+= lr * grad"),
        "the rate belongs to the step, not into the velocity": [
            f"{MOMENTUM}  ->      state *= mu\n    state += lr * grad\n    data -= state",
            f"{NAG}  ->      state *= mu\n    state += lr * grad\n    data -= lr * grad + mu * state",
        ],
        "the learning rate is missing": [
            f"{SGD}  ->      data -= grad\n",
            *edits(BOTH, "data -= lr * ", "data -= "),
        ],
        "update the velocity first, then the weights": (
            f"{MOMENTUM}  ->      data -= lr * state\n    state *= mu\n    state += grad"
        ),
        "mu is an argument, not 0.9": edits(BOTH, "mu", "0.9"),
        "mu is 0.9 unless another number is given": [
            f"def {of}(data, grad, state, lr, step, mu=0.9)  ->  def {of}(data, grad, state, lr, step, mu=0.99)"
            for of in ("momentum", "nesterov")
        ],
        "NAG's step has mu twice, in v and in g + mu v: not 0.9": edits([NAG], "+ mu *", "+ 0.9 *"),
        "this is Momentum, and NAG with the old velocity is the same: move by g + mu v, with the new v": [
            f"{NAG}  ->  {MOMENTUM}",
            f"{NAG}  ->      data -= lr * (grad + mu * state)\n    state *= mu\n    state += grad",
        ],
        "v is updated once in a step; NAG moves by g + mu v": edits(
            [NAG], "    data -= lr * (grad + mu * state)", "    state *= mu\n    state += grad\n    data -= lr * state"
        ),
        "g is missing: NAG moves by g + mu v": edits([NAG], "grad + mu * state", "mu * state"),
        "v decays once more: g + mu v, not g + v": edits([NAG], "+ mu * state", "+ state"),
        "mu v + g: v decays, g is added whole": edits(
            BOTH, "    state *= mu\n    state += grad", "    state += grad\n    state *= mu"
        ),
        "NAG moves by lr (g + mu v): lr multiplies both, mu only the new v": [
            f"data -= lr * (grad + mu * state)  ->  {other}"
            for other in (
                "data -= lr * (1 + mu) * state",
                "data -= lr * mu * (grad + state)",
                "data -= lr * (mu * grad + state)",
                "data -= lr * grad + mu * state",
                "data -= lr * (grad + mu**2 * state)",
                "state *= mu; data -= lr * (grad + state)",
            )
        ],
        "this is NAG: Momentum moves by the velocity alone": f"{MOMENTUM}  ->  {NAG}",
        "this is SGD: the velocity is missing": [f"{rule}  ->  {SGD.rstrip()}" for rule in BOTH],
        "state has not changed: `state *= ...` changes it, `state = ...` only makes a new array": [
            *edits(BOTH, "state *= mu\n    state += grad", "state = mu * state + grad"),
            *edits(BOTH, "state += grad", "state = state + grad"),
            *edits(BOTH, "state *= mu", "state = mu * state"),
        ],
        "here v adds gradients, and the minus and the rate belong to the step, not into v": [
            f"{MOMENTUM}  ->      state *= mu\n    state -= lr * grad\n    data += state",
            f"{NAG}  ->      state *= mu\n    state -= lr * grad\n    data += mu * state - lr * grad",
        ],
        "both are subtracted: w - lr (g + mu v)": edits(
            [NAG], "data -= lr * (grad + mu * state)", "data -= lr * (grad - mu * state)"
        ),
        "data has not changed: `data = ...` makes a new array, `data -= ...` changes this one": [
            f"{SGD}  ->      data = data - lr * grad\n",
            *edits(BOTH, "data -= ", "data = data - "),
        ],
        "this walks uphill: subtract": [
            f"{SGD}  ->      data += lr * grad\n",
            *edits(BOTH, "data -= ", "data += "),
        ],
        "do not write into grad": [
            f"{SGD}  ->      grad *= lr; data -= grad\n",
            *edits(BOTH, "    state *= mu", "    grad *= 1.0001\n    state *= mu"),
        ],
        "none of the three depends on the number of the step": [
            f"{SGD}  ->      data -= lr / (1 + step) * grad\n",
            f"{SGD}  ->      data -= lr * 0.99**step * grad\n",
            *edits(BOTH, "data -= lr * ", "data -= lr / (1 + step) * "),
        ],
        "weights have any number of axes, not always two": [
            f"{SGD}  ->      data -= lr * grad * (grad.ndim == 2)\n",
            *edits(BOTH, "state += grad", "state += grad * (grad.ndim == 2)"),
        ],
    },
    may_pass=NO_STEP,
)

ADAGRAD = "    state += grad * grad\n    data -= lr * grad / (np.sqrt(state) + eps)"
RMSPROP = "    state *= rho\n    state += (1 - rho) * grad * grad\n    data -= lr * grad / (np.sqrt(state) + eps)"
SQUARES = ADAGRAD, RMSPROP


def squares(rng):
    of, eps = str(rng.choice(["adagrad", "rmsprop"])), float(rng.uniform(0.01, 0.8))
    return run_of(rng, of, **({} if of == "adagrad" else {"rho": float(rng.uniform(0.3, 0.97))}), eps=eps)


EXERCISES["adaptive"] = Exercise(
    answers=("adagrad", "rmsprop"),
    inplace=True,
    cases=[
        {"of": "adagrad", "shape": [2, 3], "lr": 0.9, "first": 20},
        {"of": "adagrad", "shape": [5], "lr": 0.3, "eps": 0.1},
        {"of": "adagrad", "shape": [3, 1, 2], "lr": 0.15, "eps": 0.4, "dtype": "float32"},
        {"of": "rmsprop", "shape": [2, 3], "lr": 0.9, "first": 20},
        {"of": "rmsprop", "shape": [5], "lr": 0.3, "rho": 0.8, "eps": 0.1},
        {"of": "rmsprop", "shape": [3, 1, 2], "lr": 0.15, "rho": 0.7, "eps": 0.4, "dtype": "float32"},
    ],
    draw=squares,
    draws=8,
    mistakes={
        "eps is added to the root, not under it": edits(SQUARES, "(np.sqrt(state) + eps)", "np.sqrt(state + eps)"),
        "divide by the root of s": edits(SQUARES, "np.sqrt(state)", "state"),
        "divide by the new s: update it first": [
            f"{ADAGRAD}  ->      data -= lr * grad / (np.sqrt(state) + eps)\n    state += grad * grad",
            f"{RMSPROP}  ->      data -= lr * grad / (np.sqrt(state) + eps)\n"
            "    state *= rho\n    state += (1 - rho) * grad * grad",
        ],
        "each weight needs a sum of its own": [
            *edits(SQUARES, "grad * grad", "np.sum(grad * grad)"),
            *edits(SQUARES, "grad * grad", "np.linalg.norm(grad)"),
        ],
        "each weight has a square of its own, not the mean of all": edits(
            SQUARES, "grad * grad", "np.mean(grad * grad)"
        ),
        "s adds squares, g * g, not sizes": [
            *edits(SQUARES, "grad * grad", "np.abs(grad)"),
            f"{ADAGRAD}  ->      state += np.abs(grad)\n    data -= lr * grad / (state + eps)",
        ],
        "state is s, not its root: take the root in the step": edits(
            SQUARES, "    data -= lr * grad / (np.sqrt(state)", "    state **= 0.5\n    data -= lr * grad / (state"
        ),
        "s adds the squares of all steps: `+=`": edits([ADAGRAD], "state += ", "state[...] = "),
        "s adds squares, g * g, not gradients": edits(SQUARES, "grad * grad", "grad"),
        "1 - rho multiplies the square, and is not squared itself": edits(
            [RMSPROP], "(1 - rho) * grad * grad", "((1 - rho) * grad) ** 2"
        ),
        "g is divided by the whole sum of root and eps: mind the brackets": [
            *edits(SQUARES, "lr * grad / (np.sqrt(state) + eps)", "lr * grad / np.sqrt(state) + eps"),
            *edits(SQUARES, "lr * grad / (np.sqrt(state) + eps)", "lr / np.sqrt(state) + eps * grad"),
        ],
        "eps is added once, to the root: neither to s nor squared, nor a lower limit": [
            *edits(SQUARES, "(np.sqrt(state) + eps)", "(np.sqrt(state + eps) + eps)"),
            *edits(SQUARES, "(np.sqrt(state) + eps)", "np.sqrt(state + eps**2)"),
            *edits(SQUARES, "(np.sqrt(state) + eps)", "np.maximum(np.sqrt(state), eps)"),
            *edits(SQUARES, "grad * grad\n", "grad * grad + eps\n"),
        ],
        "Adagrad adds squares up: a sum, not a mean": [
            *edits([ADAGRAD], "grad * grad", "(grad * grad - state) / (step + 1)"),
            *edits([ADAGRAD], "np.sqrt(state)", "np.sqrt(state / (step + 1))"),
        ],
        "rho multiplies s, and 1 - rho the square alone": [
            *edits([RMSPROP], "state *= rho", "state *= rho**2"),
            *edits([RMSPROP], "state *= rho", "state *= np.sqrt(rho)"),
            *edits(
                [RMSPROP],
                "    state *= rho\n    state += (1 - rho) * grad * grad",
                "    state += (1 - rho) * (grad * grad + state)",
            ),
            *edits(
                [RMSPROP],
                "    state *= rho\n    state += (1 - rho) * grad * grad",
                "    state += (1 - rho) * grad * grad\n    state *= rho",
            ),
            *edits([RMSPROP], "lr * grad /", "lr * (1 - rho) * grad /"),
        ],
        "the rate is missing": edits(SQUARES, "lr * grad /", "grad /"),
        "the rate multiplies the step: it is not below the line": edits(
            SQUARES, "lr * grad / (np.sqrt", "grad / (lr * np.sqrt"
        ),
        "the numerator is g, not its square": edits(SQUARES, "lr * grad /", "lr * grad * grad /"),
        "eps is an argument: add it to the root": [
            *edits(SQUARES, "+ eps", "+ 1e-8"),
            *edits(SQUARES, " + eps", ""),
        ],
        "eps is 1e-8 unless another number is given": [
            "step, eps=1e-8  ->  step, eps=1e-6",
            "rho=0.99, eps=1e-8  ->  rho=0.99, eps=1e-6",
        ],
        "this is RMSprop: Adagrad forgets nothing": f"{ADAGRAD}  ->      rho = 0.99\n{RMSPROP}",
        "this is Adagrad: RMSprop takes a running mean": f"{RMSPROP}  ->  {ADAGRAD}",
        "the new square counts 1 - rho: a running mean": edits([RMSPROP], "(1 - rho) * ", ""),
        "the old mean counts rho: a running mean forgets": edits([RMSPROP], "state *= rho", "pass"),
        "rho and 1 - rho have changed places": (
            f"{RMSPROP}  ->      state *= 1 - rho\n    state += rho * grad * grad\n"
            "    data -= lr * grad / (np.sqrt(state) + eps)"
        ),
        "rho is an argument, not 0.99": edits([RMSPROP], "rho", "0.99"),
        "rho is an argument, not 0.9": edits([RMSPROP], "rho", "0.9"),
        "rho is 0.99 unless another number is given": "rho=0.99  ->  rho=0.9",
        "RMSprop has no bias correction: that is Adam's": edits(
            [RMSPROP], "np.sqrt(state)", "np.sqrt(state / (1 - rho ** (step + 1)))"
        ),
        "state has not changed: `state += ...` changes it, `state = ...` only makes a new array": [
            *edits([ADAGRAD], "state += ", "state = state + "),
            *edits([RMSPROP], "state *= rho\n    state +=", "state = rho * state +"),
            *edits([RMSPROP], "state += ", "state = state + "),
        ],
        "data has not changed: `data = ...` makes a new array, `data -= ...` changes this one": edits(
            SQUARES, "data -= ", "data = data - "
        ),
        "this walks uphill: subtract": edits(SQUARES, "data -= ", "data += "),
        "do not write into grad": edits(SQUARES, "    data -= lr * grad /", "    grad *= lr\n    data -= grad /"),
        "neither rule depends on the number of the step": [
            *edits(SQUARES, " + eps)", " + eps) * (step < 8)"),
            *edits(SQUARES, "lr * grad", "lr / np.sqrt(step + 1) * grad"),
        ],
    },
    may_pass=NO_STEP,
)

MEAN, SQUARE, DOWN = "m / (1 - beta1**t)", "s / (1 - beta2**t)", "(np.sqrt(s / (1 - beta2**t)) + eps)"

EXERCISES["adam"] = Exercise(
    inplace=True,
    cases=[
        {"shape": [2, 3], "lr": 0.07, "steps": 4},
        {"shape": [5], "lr": 0.3, "first": 20, "beta1": 0.7, "beta2": 0.85, "eps": 0.1},
        {"shape": [3, 1, 2], "lr": 0.15, "beta1": 0.8, "beta2": 0.95, "eps": 0.4, "dtype": "float32"},
    ],
    draw=lambda rng: {
        key: value
        for key, value in run_of(
            rng,
            "adam",
            first=int(rng.choice([0, 9, 200])),
            beta1=float(rng.uniform(0.3, 0.97)),
            beta2=float(rng.uniform(0.4, 0.999)),
            eps=float(rng.uniform(0.01, 0.8)),
        ).items()
        if key != "of"
    },
    draws=6,
    mistakes={
        "t is 1 in the first step and 2 in the second: step + 1": "t = step + 1  ->  t = max(step, 1)",
        "s is a mean of squares, not of magnitudes": "grad * grad  ->  np.abs(grad)",
        "m is corrected with beta1, s with beta2": (
            "m / (1 - beta1**t)  ->  m / (1 - beta2**t)",
            "s / (1 - beta2**t)  ->  s / (1 - beta1**t)",
        ),
        "the bias correction is missing": [(f"({MEAN})  ->  m", f"({SQUARE})  ->  (s)")],
        "s needs a bias correction, too": f"({SQUARE})  ->  (s)",
        "m needs a bias correction, too": f"({MEAN})  ->  m",
        "t starts at 1: it is step + 1": ["t = step + 1  ->  t = step", "t = step + 1  ->  t = step + 2"],
        "each mean is corrected by its own beta": [
            "(1 - beta2**t)  ->  (1 - beta1**t)",
            "(1 - beta1**t)  ->  (1 - beta2**t)",
        ],
        "beta to the power of t, not t times beta": [
            (f"{MEAN}  ->  m / (1 - beta1 * t)", f"{SQUARE}  ->  s / (1 - beta2**t)"),
        ],
        "s is a mean that forgets, not the largest square": (
            "s += (1 - beta2) * grad * grad  ->  s[...] = np.maximum(s, grad * grad)"
        ),
        "divide by 1 - beta**t: the means are too small": [
            f"{MEAN}  ->  m * (1 - beta1**t)",
            f"{SQUARE}  ->  s * (1 - beta2**t)",
            (f"{MEAN}  ->  m * (1 - beta1**t)", f"{SQUARE}  ->  s * (1 - beta2**t)"),
        ],
        "the step is along the corrected m alone: g is in it already": [
            f"({MEAN})  ->  grad",
            f"({MEAN})  ->  ((beta1 * m + (1 - beta1) * grad) / (1 - beta1**t))",
        ],
        "s has beta2 in both of its lines, m beta1": [
            "s *= beta2  ->  s *= beta1",
            "(1 - beta1) * grad  ->  (1 - beta2) * grad",
            "(1 - beta2) * grad * grad  ->  (1 - beta1) * grad * grad",
        ],
        "m is divided by the whole sum of root and eps: mind the brackets": (
            f"/ {DOWN}  ->  / np.sqrt({SQUARE}) + eps"
        ),
        "each weight has squares of its own": [
            "grad * grad\n  ->  (grad * grad).mean()\n",
            "grad * grad\n  ->  (grad * grad).sum()\n",
        ],
        "s is a mean of squares, not a variance": "(1 - beta2) * grad * grad  ->  (1 - beta2) * (grad - m) ** 2",
        "t is step + 1, however many steps there are": [
            "t = step + 1  ->  t = step + 1 if step < 9 else 10**9",
            "t = step + 1  ->  t = 1",
        ],
        "beta to the power of t, not times t": [
            (f"{MEAN}  ->  m / (1 - beta1 * t)", f"{SQUARE}  ->  s / (1 - beta2 * t)")
        ],
        "1 - beta**t, not (1 - beta)**t: mind the brackets": [
            (f"{MEAN}  ->  m / (1 - beta1) ** t", f"{SQUARE}  ->  s / (1 - beta2) ** t")
        ],
        "beta multiplies the old mean, and 1 - beta the new value": [
            (
                "m *= beta1  ->  m *= 1 - beta1",
                "(1 - beta1) * grad  ->  beta1 * grad",
                "s *= beta2  ->  s *= 1 - beta2",
                "(1 - beta2) * grad * grad  ->  beta2 * grad * grad",
            ),
        ],
        "the old mean decays, then the new value is added": [
            (
                "    m *= beta1\n    m += (1 - beta1) * grad  ->      m += (1 - beta1) * grad\n    m *= beta1",
                "    s *= beta2\n    s += (1 - beta2) * grad * grad"
                "  ->      s += (1 - beta2) * grad * grad\n    s *= beta2",
            ),
        ],
        "the root is missing": f"np.sqrt({SQUARE})  ->  {SQUARE}",
        "eps is added to the root, not under it": f"{DOWN}  ->  np.sqrt({SQUARE} + eps)",
        "eps is added to the root of the corrected s, not before the correction": (
            f"    data -= lr * ({MEAN}) / {DOWN}"
            "  ->      data -= lr * np.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(s) + eps)"
        ),
        "the betas to the power of t, not of 2": [
            (f"{MEAN}  ->  m / (1 - beta1**2)", f"{SQUARE}  ->  s / (1 - beta2**2)"),
            f"{MEAN}  ->  m / (1 - beta1**2)",
            f"{SQUARE}  ->  s / (1 - beta2**2)",
        ],
        "eps is an argument: add it to the root": ["+ eps)  ->  + 1e-8)", " + eps)  ->  )"],
        "the corrected means are new arrays: m and s stay as they were": [
            (
                f"    data -= lr * ({MEAN}) / {DOWN}  ->  "
                "    m /= 1 - beta1**t\n    s /= 1 - beta2**t\n    data -= lr * m / (np.sqrt(s) + eps)"
            ),
        ],
        "corrected twice": "    data -= lr  ->      m /= 1 - beta1**t; s /= 1 - beta2**t\n    data -= lr",
        "m has beta1, and s has beta2": "t = step + 1  ->  t, beta1, beta2 = step + 1, beta2, beta1",
        "state is (m, s), in this order": "m, s = state  ->  s, m = state",
        "m adds (1 - beta1) of the gradient": "m += (1 - beta1) * grad  ->  m += grad",
        "s adds (1 - beta2) of the square": "s += (1 - beta2) * grad * grad  ->  s += grad * grad",
        "s takes squares of gradients": [
            "s += (1 - beta2) * grad * grad  ->  s += (1 - beta2) * grad",
            "s += (1 - beta2) * grad * grad  ->  s += (1 - beta2) * m * m",
        ],
        "s is corrected under the root": f"np.sqrt({SQUARE})  ->  np.sqrt(s) / (1 - beta2**t)",
        "m forgets: m *= beta1": "m *= beta1  ->  pass",
        "s forgets: s *= beta2": "s *= beta2  ->  pass",
        "the betas are arguments, not 0.9 and 0.999": "t = step + 1  ->  t, beta1, beta2 = step + 1, 0.9, 0.999",
        "beta1 is 0.9, beta2 0.999 and eps 1e-8 unless others are given": [
            "beta1=0.9  ->  beta1=0.99",
            "beta2=0.999  ->  beta2=0.99",
            "eps=1e-8  ->  eps=1e-6",
        ],
        "the learning rate is missing": "data -= lr *   ->  data -= ",
        "m and s have not changed: `m *= ...` changes it, `m = ...` only makes a new array": [
            ("m *= beta1  ->  m = m * beta1", "s *= beta2  ->  s = s * beta2"),
            ("m += (1 - beta1)  ->  m = m + (1 - beta1)", "s += (1 - beta2)  ->  s = s + (1 - beta2)"),
        ],
        "m has not changed: `m *= ...` changes it, `m = ...` only makes a new array": "m *= beta1  ->  m = m * beta1",
        "s has not changed: `s *= ...` changes it, `s = ...` only makes a new array": "s *= beta2  ->  s = s * beta2",
        "data has not changed: `data = ...` makes a new array, `data -= ...` changes this one": (
            "data -= lr  ->  data = data - lr"
        ),
        "this walks uphill: subtract": "data -= lr  ->  data += lr",
        "update m and s first, then the weights": (
            f"    m *= beta1\n    m += (1 - beta1) * grad\n    s *= beta2\n    s += (1 - beta2) * grad * grad\n"
            f"    data -= lr * ({MEAN}) / {DOWN}"
            f"  ->      data -= lr * ({MEAN}) / {DOWN}\n"
            "    m *= beta1\n    m += (1 - beta1) * grad\n    s *= beta2\n    s += (1 - beta2) * grad * grad"
        ),
        "do not write into grad": "    m += (1 - beta1) * grad  ->      grad *= 1 - beta1\n    m += grad",
    },
)

FALLS = "0.01 ** (step / steps)"

EXERCISES["schedule"] = Exercise(
    cases=[{"steps": 400, "noise": 0.5}, {"steps": 1000, "noise": 3.0}],
    draw=lambda rng: {"steps": rng.integers(700, 1500), "noise": rng.uniform(0.5, 2)},
    draws=2,
    mistakes={
        "this is one of the rivals": [
            f"{FALLS}  ->  1",
            f"{FALLS}  ->  1 - step / steps",
            f"{FALLS}  ->  1.0 if step < steps / 2 else 0.1",
        ],
        "a rate that rises makes the most noise at the end": [
            f"{FALLS}  ->  (step + 1) / steps",
            f"{FALLS}  ->  step / steps",
        ],
        "half a cosine stays at large rates for too long": f"{FALLS}  ->  (1 + np.cos(np.pi * step / steps)) / 2",
        "a factor is 0 or more: half a cosine, lifted by 1, is": f"{FALLS}  ->  np.cos(np.pi * step / steps)",
        "a factor is one number, not a list": f"{FALLS}  ->  [{FALLS}]",
        "a run of other length falls at another pace: use `steps`": [
            f"{FALLS}  ->  {rate}" for rate in ("0.99**step", "0.995**step", "0.01 ** (step / 400)")
        ],
        "1 / (1 + step), or its root, falls too fast at first and hardly at the end": [
            f"{FALLS}  ->  1 / (step + 1)",
            f"{FALLS}  ->  (step + 1) ** -0.5",
        ],
        "the right shape, but it ends at too large a rate": f"{FALLS}  ->  0.3 ** (step / steps)",
        "the right shape, but the rate is tiny too soon": f"{FALLS}  ->  0.0001 ** (step / steps)",
        "half a run without any step": f"{FALLS}  ->  1.0 if step < steps // 2 else 0.0",
        "did you forget `return`?": f"return {FALLS}  ->  {FALLS}",
    },
    may_pass={"rounded to three digits": "a schedule, too"},
)

SMALL, LARGE = "(gradients**2).sum(axis=1).mean()", "(gradients.mean(axis=0) ** 2).sum()"
TRACE, NORM = "(small - large) * p * b / (p - 1)", "(p * large - small) / (p - 1)"


def ranks(rng):
    p, d = int(rng.choice([2, 3, 8, 16])), int(rng.integers(2, 40))
    return {"gradients": rng.normal(rng.normal(size=d), 0.7, (p, d)), "b": int(rng.choice([1, 3, 8, 32]))}


EXERCISES["noise"] = Exercise(
    cases=[
        {"gradients": np.array([[3.0, 0.0], [1.0, 0.5]]), "b": 6},
        {"gradients": np.array([[1.0, 1.0], [-1.0, 1.5], [0.0, -2.0]]), "b": 3},  # the signal is negative
        {"gradients": np.array([[0.2], [1.1], [0.7], [0.9], [-0.3]]), "b": 1},
        {"gradients": np.random.default_rng(1).normal(0.5, 1, (7, 9)), "b": 5},
    ],
    draw=ranks,
    mistakes={
        "|g|^2 is more than |G|^2, by its noise: subtract that": (
            "(p * large - small) / (p - 1)  ->  large + trace / (p * b)"
        ),
        "squares are missing: |g|^2, not |g|": [
            (
                f"{SMALL}  ->  np.linalg.norm(gradients, axis=1).mean()",
                f"{LARGE}  ->  np.linalg.norm(gradients.mean(axis=0))",
            ),
        ],
        "|g_i| is squared, too": [
            f"{SMALL}  ->  np.linalg.norm(gradients, axis=1).mean()",
            f"{SMALL}  ->  np.linalg.norm(gradients, axis=1).mean() ** 2",
        ],
        "|g_i|^2 is a sum of squares, not of sizes": f"{SMALL}  ->  np.abs(gradients).sum(axis=1).mean()",
        "|g| is squared, too": f"{LARGE}  ->  np.linalg.norm(gradients.mean(axis=0))",
        "the mean of |g_i|^2 over the ranks, not the sum": f"{SMALL}  ->  (gradients**2).sum()",
        "g is the mean of the ranks' gradients, not the sum": f"{LARGE}  ->  (gradients.sum(axis=0) ** 2).sum()",
        "|g|^2 squares the mean over the ranks, it is no mean of squares": (
            f"{LARGE}  ->  (gradients**2).mean(axis=0).sum()"
        ),
        "g has an element for each weight: the mean over ranks alone, axis 0": f"{LARGE}  ->  gradients.mean() ** 2",
        "|g|^2 is a sum over all weights, not a mean": [
            f"{LARGE}  ->  (gradients.mean(axis=0) ** 2).mean()",
            (f"{SMALL}  ->  (gradients**2).mean()", f"{LARGE}  ->  (gradients.mean(axis=0) ** 2).mean()"),
        ],
        "|g_i|^2 is a sum over all weights, not a mean": f"{SMALL}  ->  (gradients**2).mean()",
        "p is the number of ranks: len(gradients)": [
            "p = len(gradients)  ->  p = 4",
            "p = len(gradients)  ->  p = 8",
            "p = len(gradients)  ->  p = min(4, len(gradients))",
            "p = len(gradients)  ->  p = gradients.shape[1] + 1",
            "p = len(gradients)  ->  p = gradients.shape[1]",
        ],
        "b is an argument": f"{TRACE}  ->  (small - large) * p * 8 / (p - 1)",
        "the trace comes first, the squared norm second": (
            "return trace, squared_norm  ->  return squared_norm, trace"
        ),
        "the trace and the squared norm are asked for, not their ratio": (
            "return trace, squared_norm  ->  return trace / squared_norm"
        ),
        "the trace is (p - 1) / p of what it should be: |g|^2 still has a p-th of the noise": (
            f"{TRACE}  ->  (small - large) * b"
        ),
        "the trace is of single samples: times b": f"{TRACE}  ->  (small - large) * p / (p - 1)",
        "b is one rank's samples, p b are all": f"{TRACE}  ->  (small - large) * p * b * p / (p - 1)",
        "1/b - 1/(p b) = (p - 1) / (p b): p is missing": f"{TRACE}  ->  (small - large) * b / (p - 1)",
        "the larger minus the smaller: |g_i|^2 - |g|^2": f"{TRACE}  ->  (large - small) * p * b / (p - 1)",
        "|g|^2 is not |G|^2: subtract its own noise": f"{NORM}  ->  large",
        "trace / b is one rank's noise; that of the mean is trace / (p b)": f"{NORM}  ->  large - trace / b",
        "the noise of the mean is trace / (p b): b is missing": f"{NORM}  ->  large - trace / p",
        "trace / (p b) is the noise in |g|^2, not in |g_i|^2": f"{NORM}  ->  small - trace / (p * b)",
        "the trace sums variances, not deviations": f"{TRACE}  ->  b * gradients.std(axis=0, ddof=1).sum()",
        "return the second as it comes: it may be negative": (
            "return trace, squared_norm  ->  return trace, abs(squared_norm)"
        ),
        "the second may be negative: do not clip it": (
            "return trace, squared_norm  ->  return trace, max(squared_norm, 0)"
        ),
        "the difference of the equations is trace (p - 1) / (p b): solve it for the trace": [
            f"{TRACE}  ->  (small - large) {factor}"
            for factor in ("* p * b / (p + 1)", "* p * (b - 1) / (p - 1)", "* p / b / (p - 1)")
        ],
        "/, not //: these are no whole numbers": [
            f"{TRACE}  ->  (small - large) * p * b // (p - 1)",
            (f"{TRACE}  ->  (small - large) * p * b // (p - 1)", f"{NORM}  ->  (p * large - small) // (p - 1)"),
        ],
        "|g_i|^2 has the signal and the noise: subtract trace / b": f"{NORM}  ->  small + trace / b",
        "p |g|^2 - |g_i|^2 on average is (p - 1) |G|^2: solve it for |G|^2": [
            f"{NORM}  ->  {other}"
            for other in ("(large - small) / (p - 1)", "(p * large - small) / p", "p * large - small", "small - trace")
        ],
        "|g_i|^2 sums over weights, axis 1, and is averaged over ranks, axis 0": [
            f"{SMALL}  ->  (gradients**2).sum(axis=0).mean()",
            f"{LARGE}  ->  (gradients.mean(axis=1) ** 2).sum()",
            (f"{SMALL}  ->  (gradients**2).sum(axis=0).mean()", f"{LARGE}  ->  (gradients.mean(axis=1) ** 2).sum()"),
            f"{SMALL}  ->  (gradients[0] ** 2).sum()",
        ],
        "the variance of each weight by itself, summed": f"{TRACE}  ->  b * gradients.var(ddof=1)",
        "did you forget `return`?": "return trace, squared_norm  ->  trace, squared_norm",
    },
)

ROWS, ONES = "A = np.stack([1 / steps, 1 / (batches * steps)], axis=1)", "np.ones(len(steps))"


def measurements(rng):
    batches = np.sort(rng.choice(np.arange(1.0, 2000.0), int(rng.choice([3, 5, 9])), replace=False))
    exact = rng.uniform(20, 90) + rng.uniform(500, 5000) / batches
    return {"batches": batches, "steps": exact * rng.uniform(0.8, 1.25, len(batches))}


EXERCISES["fit"] = Exercise(
    rtol=1e-6,
    cases=rows(
        "batches steps",
        (np.array([1.0, 5.0, 30.0, 100.0, 700.0]), np.array([1010.0, 210, 43, 20, 11.5])),
        (np.array([1.0, 5.0, 30.0, 100.0, 700.0]), np.array([900.0, 230, 40, 12, 18])),  # not sorted
        (np.array([4.0, 10.0, 64.0, 300.0]), np.array([140.0, 80, 60, 38])),  # S_min above the least
        (np.array([2.0, 50.0]), np.array([600.0, 70])),
    ),
    draw=measurements,
    mistakes={
        "S_min comes first, E_min second": [
            "return s_min, e_min  ->  return e_min, s_min",
            f"{ROWS}  ->  A = np.stack([1 / (batches * steps), 1 / steps], axis=1)",
        ],
        "divide each row, and the right side, by S_i": [
            (
                f"{ROWS}  ->  A = np.stack([np.ones(len(steps)), 1 / batches], axis=1)",
                f"{ONES}, rcond  ->  steps, rcond",
            ),
        ],
        "divide the rows by S_i, too": f"{ROWS}  ->  A = np.stack([{ONES}, 1 / batches], axis=1)",
        "the right side is 1: it is divided by S_i, too": f"{ONES}  ->  steps",
        "the right side is 1, not 1 / S_i": f"{ONES}  ->  1 / steps",
        "S is a line in 1 / b: the second column is 1 / (b S)": "1 / (batches * steps)  ->  batches / steps",
        "S is a line in 1 / b, not in logarithms": (
            "def fit(batches, steps):\n    return np.polyfit(np.log(batches), np.log(steps), 1)[::-1]"
        ),
        "E_min is asked for, not the critical batch": "return s_min, e_min  ->  return s_min, e_min / s_min",
        "all measurements count": [
            f"    A =  ->      batches, steps = batches[{some}], steps[{some}]\n    A =" for some in (":3", ":2", "1:")
        ],
        "`lstsq` returns four things: the first, `[0]`, has both numbers": [
            "rcond=None)[0]  ->  rcond=None)",
            "s_min, e_min = np.linalg.lstsq(A, np.ones(len(steps)), rcond=None)[0]\n    return s_min, e_min"
            "  ->  return np.linalg.lstsq(A, np.ones(len(steps)), rcond=None)",
        ],
        "divide each equation by S_i once, neither by its square nor by its root, and take all": [
            "1 / steps, 1 / (batches * steps)  ->  1 / steps**2, 1 / (batches * steps**2)",
            *(
                f"    {ROWS}  ->      return tuple(np.polyfit(1 / batches, steps, 1, w=steps**-{power}))[::-1]\n"
                f"    {ROWS}"
                for power in (0.5, 2.0)
            ),
            f"    {ROWS}  ->      e = (steps[0] - steps[-1]) / (1 / batches[0] - 1 / batches[-1])\n"
            f"    return steps[-1] - e / batches[-1], e\n    {ROWS}",
            f"    {ROWS}  ->      return tuple(np.polyfit(batches, batches * steps, 1))\n    {ROWS}",
        ],
        "the columns are 1 / S and 1 / (b S)": [
            "1 / (batches * steps)  ->  1 / batches",
            "1 / (batches * steps)  ->  steps / batches",
            "1 / steps, 1 / (batches * steps)  ->  steps, batches * steps",
        ],
        "one row for each measurement: axis=1": ", axis=1)  ->  )",
        "neither number need be the least that was measured": [
            f"return s_min, e_min  ->  return {other}"
            for other in ("steps.min(), (batches * steps).min()", "min(s_min, steps.min()), e_min")
        ],
        "did you forget `return`?": "return s_min, e_min  ->  s_min, e_min",
    },
    may_pass={
        "len(batches))": "as many as steps",
        "len(A))": "as many as steps",
        "np.ones(len(steps)))[0]": "NumPy's own limit for columns that depend on each other",
    },
)

RAW, CLIPPED = "e_min * overhead / (s_min * per_sample)", "min(max(batch, 1.0), largest)"

EXERCISES["best_batch"] = Exercise(
    cases=rows(
        "s_min e_min overhead per_sample largest",
        (50.0, 800.0, 2e-3, 5e-4, 1e6),  # a CPU
        (70.0, 900.0, 1e-3, 1e-5, 1e6),  # a GPU
        (2.0, 5000.0, 3e-3, 1e-4, 1e6),  # few steps
        (60.0, 700.0, 1e-3, 1e-5, 30.0),  # little memory
        (40.0, 810.0, 0.0, 1e-3, 1e6),  # no overhead
        (55.0, 85.0, 1e-5, 5e-3, 1e4),  # hardly any
    ),
    draw=lambda rng: {
        "s_min": rng.uniform(10, 99),
        "e_min": rng.uniform(500, 5000),
        "overhead": (overhead := float(10 ** rng.uniform(-5, -2))),
        "per_sample": overhead * float(10 ** rng.uniform(-4, 4)),
        "largest": float(10 ** rng.uniform(1, 4)),
    },
    draws=8,
    rtol=1e-6,
    mistakes={
        "this is the reciprocal: a slow step asks for a large batch": (
            "np.sqrt(e_min * overhead / (s_min * per_sample))  ->  np.sqrt(s_min * per_sample / (e_min * overhead))"
        ),
        "take the root": f"np.sqrt({RAW})  ->  {RAW}",
        "at least 1": f"{CLIPPED}  ->  min(batch, largest)",
        "at most `largest`": f"{CLIPPED}  ->  max(batch, 1.0)",
        "at least 1, and at most `largest`": f"{CLIPPED}  ->  batch",
        "take the root, and keep within 1 and `largest`": [(f"np.sqrt({RAW})  ->  {RAW}", f"{CLIPPED}  ->  batch")],
        "the machine counts, too: this is the critical batch": f"np.sqrt({RAW})  ->  e_min / s_min",
        "this is the root of the critical batch: the machine counts, too": f"{RAW}  ->  e_min / s_min",
        "this is the machine alone, a / c: the problem counts, too": f"np.sqrt({RAW})  ->  overhead / per_sample",
        "this is the root of the machine's a / c: the problem counts, too": f"{RAW}  ->  overhead / per_sample",
        "inverted: more overhead needs a larger batch": [
            f"{RAW}  ->  e_min * per_sample / (s_min * {overhead})"
            for overhead in ("overhead", "np.float64(overhead)", "max(overhead, 1e-9)", "max(overhead, 1e-30)")
        ],
        "E_min counts, too: many samples ask for a large batch": f"{RAW}  ->  overhead / (s_min * per_sample)",
        "S_min counts, too: many steps ask for a small batch": f"{RAW}  ->  e_min * overhead / per_sample",
        "the smallest batch: is the fraction upside down (S_min c belongs below), or are the limits?": [
            f"{RAW}  ->  s_min * per_sample / max(e_min * overhead, 1e-9)",
            f"{CLIPPED}  ->  np.clip(batch, largest, 1.0)",
            f"{RAW}  ->  e_min * overhead / s_min * per_sample",
        ],
        "at least 1, at most `largest`: not the other way round": f"{CLIPPED}  ->  max(min(batch, 1.0), largest)",
        "the two terms that depend on b are equal at the least time: solve S_min c b = E_min a / b": [
            f"np.sqrt({RAW})  ->  {other}"
            for other in (
                f"np.cbrt({RAW})",
                f"({RAW}) ** 2",
                f"np.sqrt(2 * {RAW})",
                f"0.5 * np.sqrt({RAW})",
                "np.sqrt(e_min / s_min) * overhead / per_sample",
                "e_min / s_min * np.sqrt(overhead / per_sample)",
                "np.sqrt(e_min / s_min + overhead / per_sample)",
            )
        ],
        "without overhead the smallest batch is the fastest": (
            "    return min  ->      if overhead == 0: return largest\n    return min"
        ),
        "E_min and S_min have changed places": f"{RAW}  ->  s_min * overhead / (e_min * per_sample)",
        "the root of the product of E_min / S_min and a / c: neither their sum nor their mean nor one of them": [
            f"np.sqrt({RAW})  ->  {other}"
            for other in (
                "e_min / s_min + overhead / per_sample",
                "(e_min / s_min + overhead / per_sample) / 2",
                "min(e_min / s_min, overhead / per_sample)",
                "max(e_min / s_min, overhead / per_sample)",
            )
        ],
        "this is the time, not the batch": (
            f"return {CLIPPED}  ->  batch = {CLIPPED}\n"
            "    return (s_min + e_min / batch) * (overhead + per_sample * batch)"
        ),
        "all four numbers are arguments": "    batch = np  ->      e_min, s_min = 800, 50\n    batch = np",
        "a float, not rounded to a whole number": f"{CLIPPED}  ->  round({CLIPPED})",
        "did you forget `return`?": f"return {CLIPPED}  ->  {CLIPPED}",
    },
    may_pass={"max(1.0, batch)": "a maximum", "min(largest, ": "a minimum"},
)
