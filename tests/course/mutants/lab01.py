"""Wrong answers to lab 01, and what each must cost."""

FORWARD, LOSS, NUMERIC = {"check_dense_forward"}, {"check_cross_entropy"}, {"check_numeric_gradient"}
ACTIVATIONS, BACKWARD = {"check_activations"}, {"check_dense_backward"}
SGD, STEP = {"check_sgd"}, {"check_step"}

SHIFT = "z = logits - logits.max(axis=1, keepdims=True)"
LOG_SUM_EXP = "float((np.log(total[:, 0]) - z[rows, labels]).sum()) / n"
RELU = "y = np.maximum(x, 0)\n        return y, y"
BELOW = "x[i] = kept - eps\n        below = f()\n        x[i] = kept\n        gradient[i] = (above - below) / (2 * eps)"
ZERO, UPDATE = "self.optimizer.zero_grad()", "self.optimizer.step()"
BACK = "self.model.backward(dlogits, saved)"

RESTORED_TOO_LATE = """
def numeric_gradient(f, x, eps=1e-6):
    gradient, start = np.zeros_like(x), x.copy()
    for i in np.ndindex(x.shape):
        x[i] = start[i] + eps
        above = f()
        x[i] = start[i] - eps
        gradient[i] = (above - f()) / (2 * eps)
    x[...] = start
    return gradient
"""
ALL_AT_ONCE = """
def numeric_gradient(f, x, eps=1e-6):
    x += eps
    above = f()
    x -= 2 * eps
    below = f()
    x += eps
    return np.full_like(x, (above - below) / (2 * eps))
"""

MUTANTS = {
    "dense_forward": [
        ("the library's layer", "Dense = dl.nn.Linear\n", FORWARD | {"check_dense_backward"}),
        ("no bias", (" + self.b.data", ""), FORWARD),
        ("one thing only", ("return y, x", "return y"), FORWARD),
        ("saves the output", ("return y, x", "return y, y"), FORWARD),
        ("the other way round", ("return y, x", "return x, y"), FORWARD),
        ("float64 on the way", ("x @ self.W.data", "x.astype(float) @ self.W.data"), FORWARD),
        ("swapped product", ("x @ self.W.data", "self.W.data @ x"), FORWARD),
        ("W transposed", ("x @ self.W.data", "x @ self.W.data.T"), FORWARD),
        ("element by element", ("x @ self.W.data", "x * self.W.data"), FORWARD),
        (
            "activation in it",
            ("y = x @ self.W.data + self.b.data", "y = np.maximum(x @ self.W.data + self.b.data, 0)"),
            FORWARD,
        ),
        ("Param, not data", ("x @ self.W.data", "x @ self.W"), FORWARD),
        ("misspelt", ("self.b.data", "self.b.dat"), FORWARD),
        ("saves a copy", ("return y, x", "return y, x.copy()"), FORWARD),
    ],
    "cross_entropy": [
        ("overflows", (SHIFT, "z = logits"), LOSS),
        ("log of what was rounded to 0", (LOG_SUM_EXP, "-float(np.log((e / total)[rows, labels]).sum()) / n"), LOSS),
        ("log of p plus tiny", (LOG_SUM_EXP, "-float(np.log((e / total)[rows, labels] + 1e-12).sum()) / n"), LOSS),
        ("sum", (LOG_SUM_EXP, LOG_SUM_EXP.removesuffix(" / n")), LOSS),
        ("mean over the rows", (LOG_SUM_EXP, LOG_SUM_EXP.removesuffix(" / n") + " / len(logits)"), LOSS),
        ("own rows instead of n", ("return loss, dlogits / n", "return loss, dlogits / len(logits)"), LOSS),
        ("gradient not divided", ("return loss, dlogits / n", "return loss, dlogits"), LOSS),
        ("label forgotten", ("dlogits[rows, labels] -= 1", "pass"), LOSS),
        (
            "gradient not shifted",
            ("dlogits = e / total", "dlogits = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)"),
            LOSS,
        ),
        ("gradient in float64", ("dlogits = e / total", "dlogits = (e / total).astype(float)"), LOSS),
        ("label added", ("dlogits[rows, labels] -= 1", "dlogits[rows, labels] += 1"), LOSS),
        ("all columns of the labels", ("dlogits[rows, labels] -= 1", "dlogits[:, labels] -= 1"), LOSS),
        ("loss of all labels", ("z[rows, labels]", "z[:, labels]"), LOSS),
        ("a square", ("np.log(total[:, 0])", "np.log(total)"), LOSS),
        ("logits changed", (SHIFT, "logits -= logits.max(axis=1, keepdims=True)\n    z = logits"), LOSS),
        ("one maximum for all rows", (SHIFT, "z = logits - logits.max()"), LOSS),
        ("maximum of the columns", ("logits.max(axis=1, keepdims=True)", "logits.max(axis=0)"), LOSS),
        ("sum over the batch", ("e.sum(axis=1, keepdims=True)", "e.sum(axis=0, keepdims=True).T[:1]"), LOSS),
        ("keepdims forgotten", ("logits.max(axis=1, keepdims=True)", "logits.max(axis=1)"), LOSS),
        ("sign", ("loss = float(", "loss = -float("), LOSS),
        ("loss alone", ("return loss, dlogits / n", "return loss"), LOSS),
    ],
    "numeric_gradient": [
        ("one-sided", (BELOW, "x[i] = kept\n        gradient[i] = (above - f()) / eps"), NUMERIC),
        ("half the distance", ("(2 * eps)", "eps"), NUMERIC),
        ("never restored", ("x[i] = kept\n        gradient", "gradient"), NUMERIC),
        ("a step of its own", ("kept = x[i]", "kept, eps = x[i], 1e-6"), NUMERIC),
        ("changes a copy", ("kept = x[i]", "x = x.copy()\n        kept = x[i]"), NUMERIC),
        ("multiplies by eps", ("(2 * eps)", "2 * eps"), NUMERIC),
        ("returns too early", ("/ (2 * eps)", "/ (2 * eps)\n        return gradient"), NUMERIC),
        ("restored too late", RESTORED_TOO_LATE, NUMERIC),
        ("all elements at once", ALL_AT_ONCE, NUMERIC),
        ("wrong way round", ("above - below", "below - above"), NUMERIC),
        ("sum of the two", ("above - below", "above + below"), NUMERIC),
        ("f not called", ("above = f()", "above = f"), NUMERIC),
        ("f called with x", ("above = f()", "above = f(x)"), NUMERIC),
    ],
    "activations": [
        ("ReLU masks by dy", ("dy * (saved > 0)", "dy * (dy > 0)"), ACTIVATIONS),
        ("ReLU masks nothing", ("saved > 0", "saved >= 0"), ACTIVATIONS),
        ("ReLU without dy", ("dy * (saved > 0)", "(saved > 0)"), ACTIVATIONS),
        ("ReLU times y", ("dy * (saved > 0)", "dy * saved"), ACTIVATIONS),
        ("ReLU in float32", ("np.maximum(x, 0)", "np.maximum(x, 0).astype('float32')"), ACTIVATIONS),
        ("absolute value", ("np.maximum(x, 0)", "np.abs(x)"), ACTIVATIONS),
        ("minimum", ("np.maximum(x, 0)", "np.minimum(x, 0)"), ACTIVATIONS),
        ("sigmoid forgets dy", ("dy * saved * (1 - saved)", "saved * (1 - saved)"), ACTIVATIONS),
        ("sigmoid forgets a factor", ("dy * saved * (1 - saved)", "dy * (1 - saved)"), ACTIVATIONS),
        (
            "sigmoid of the sigmoid",
            ("return dy * saved * (1 - saved)", "s = 1 / (1 + np.exp(-saved))\n        return dy * s * (1 - s)"),
            ACTIVATIONS,
        ),
        ("largest of a column", ("np.maximum(x, 0)", "np.max(x, 0)"), ACTIVATIONS),
        ("x changed", ("np.maximum(x, 0)", "np.maximum(x, 0, out=x)"), ACTIVATIONS),
        ("one thing only", (RELU, RELU.removesuffix(", y")), ACTIVATIONS),
        ("slope of tanh", ("dy * saved * (1 - saved)", "dy * (1 - saved**2)"), ACTIVATIONS),
        ("misspelt", ("np.maximum(x, 0)", "np.maximun(x, 0)"), ACTIVATIONS),
    ],
    "dense_backward": [
        ("overwrites", ("layer.W.grad += x.T @ dy", "layer.W.grad[:] = x.T @ dy"), BACKWARD),
        ("overwrites b", ("layer.b.grad += dy.sum(axis=0)", "layer.b.grad[:] = dy.sum(axis=0)"), BACKWARD),
        ("dW transposed", ("x.T @ dy", "dy.T @ x"), BACKWARD),
        ("W not transposed", ("layer.W.data.T", "layer.W.data"), BACKWARD),
        ("the check's own W", ("layer.W.data.T", "W.T"), BACKWARD),
        ("no sum over the batch", ("dy.sum(axis=0)", "dy"), BACKWARD),
        ("sum over all", ("dy.sum(axis=0)", "dy.sum()"), BACKWARD),
        ("sum over the outputs", ("dy.sum(axis=0)", "dy.sum(axis=1)"), BACKWARD),
        ("mean over the batch", ("dy.sum(axis=0)", "dy.mean(axis=0)"), BACKWARD),
        ("divides by the batch again", ("x.T @ dy", "x.T @ dy / len(x)"), BACKWARD),
        ("a new array", ("layer.W.grad += x.T @ dy", "layer.W.grad = layer.W.grad + x.T @ dy"), BACKWARD),
        ("x not transposed", ("x.T @ dy", "x @ dy"), BACKWARD),
        ("batches of six only", ("x.T @ dy", "x.T @ dy * (6 / len(x))"), BACKWARD),
        ("no return", ("return dy @ layer.W.data.T", "dx = dy @ layer.W.data.T"), BACKWARD),
        ("updates the weights", ("layer.W.grad += x.T @ dy", "layer.W.data -= x.T @ dy"), BACKWARD),
    ],
    "sgd": [
        ("a new array", ("data -= lr * grad", "data = data - lr * grad"), SGD),
        ("uphill", ("data -= lr * grad", "data += lr * grad"), SGD),
        ("no learning rate", ("data -= lr * grad", "data -= grad"), SGD),
        ("grad changed", ("data -= lr * grad", "grad *= lr\n        data -= grad"), SGD),
        ("one learning rate", ("data -= lr * grad", "data -= 0.1 * grad"), SGD),
        ("divides by the rate", ("data -= lr * grad", "data -= grad / lr"), SGD),
        ("assigns", ("data -= lr * grad", "data[:] = -lr * grad"), SGD),
    ],
    "step": [
        ("gradients pile up", (ZERO, "pass"), STEP),
        ("never updates", (UPDATE, "pass"), STEP),
        ("clears after backward", (UPDATE, ZERO), STEP),
        ("clears between", (BACK, f"{BACK}\n        {ZERO}"), STEP),
        ("steps before backward", (f"{BACK}\n        {UPDATE}", f"{UPDATE}\n        {BACK}"), STEP),
        ("no backward", (BACK, "pass"), STEP),
        ("no return", ("return loss", "loss"), STEP),
        (
            "a rate of 0.1",
            (
                "self.optimizer.step()",
                "for p in self.model.params:\n            if not p.frozen:\n                p.data -= 0.1 * p.grad",
            ),
            STEP,
        ),
        ("returns the logits", ("return loss", "return logits"), STEP),
        ("own rows instead of n", ("batch.n", "len(batch.x)"), STEP),
        ("n left out", ("batch.y, batch.n", "batch.y"), STEP),
        ("backward of the logits", ("backward(dlogits", "backward(logits"), STEP),
        ("updates by hand, twice", (UPDATE, f"{UPDATE}\n        {UPDATE}"), STEP),
        (
            "updates by hand",
            (UPDATE, "for p in self.model.params:\n            p.data -= 0.1 * p.grad"),
            STEP,
        ),
    ],
}
