"""Wrong answers to lab 01, and what each must cost."""

FORWARD, LOSS, NUMERIC = {"check_dense_forward"}, {"check_cross_entropy"}, {"check_numeric_gradient"}
ACTIVATIONS, BACKWARD = {"check_activations"}, {"check_dense_backward"}
SGD, STEP = {"check_sgd"}, {"check_step"}

SHIFT = "z = logits - logits.max(axis=1, keepdims=True)"
LOG_SUM_EXP = "float((np.log(total[:, 0]) - z[rows, labels]).sum()) / n"
RELU = "y = np.maximum(x, 0)\n        return y, y"
BELOW = "x[i] = kept - eps\n        below = f()\n        x[i] = kept\n        gradient[i] = (above - below) / (2 * eps)"

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

MUTANTS = {
    "dense_forward": [
        ("no bias", (" + self.b.data", ""), FORWARD),
        ("one thing only", ("return y, x", "return y"), FORWARD),
        ("saves the output", ("return y, x", "return y, y"), FORWARD),
        ("float64 on the way", ("x @ self.W.data", "x.astype(float) @ self.W.data"), FORWARD),  # hidden tests only
    ],
    "cross_entropy": [
        ("overflows", (SHIFT, "z = logits"), LOSS),
        ("log of what was rounded to 0", (LOG_SUM_EXP, "-float(np.log((e / total)[rows, labels]).sum()) / n"), LOSS),
        ("log of p plus tiny", (LOG_SUM_EXP, "-float(np.log((e / total)[rows, labels] + 1e-12).sum()) / n"), LOSS),
        ("sum", (LOG_SUM_EXP, LOG_SUM_EXP.removesuffix(" / n")), LOSS),
        ("own rows instead of n", ("return loss, dlogits / n", "return loss, dlogits / len(logits)"), LOSS),
        ("label forgotten", ("dlogits[rows, labels] -= 1", "pass"), LOSS),
        ("logits changed", (SHIFT, "logits -= logits.max(axis=1, keepdims=True)\n    z = logits"), LOSS),
        ("one maximum for all rows", (SHIFT, "z = logits - logits.max()"), LOSS),  # hidden tests only
    ],
    "numeric_gradient": [
        ("one-sided", (BELOW, "x[i] = kept\n        gradient[i] = (above - f()) / eps"), NUMERIC),
        ("half the distance", ("(2 * eps)", "eps"), NUMERIC),
        ("never restored", ("x[i] = kept\n        gradient", "gradient"), NUMERIC),
        ("a step of its own", ("kept = x[i]", "kept, eps = x[i], 1e-6"), NUMERIC),
        ("changes a copy", ("kept = x[i]", "x = x.copy()\n        kept = x[i]"), NUMERIC),
        ("multiplies by eps", ("(2 * eps)", "2 * eps"), NUMERIC),
        ("returns too early", ("/ (2 * eps)", "/ (2 * eps)\n        return gradient"), NUMERIC),
        ("restored too late", RESTORED_TOO_LATE, NUMERIC),  # hidden tests only
    ],
    "activations": [
        ("ReLU masks by dy", ("dy * (saved > 0)", "dy * (dy > 0)"), ACTIVATIONS),
        ("ReLU masks nothing", ("saved > 0", "saved >= 0"), ACTIVATIONS),
        ("sigmoid forgets dy", ("dy * saved * (1 - saved)", "saved * (1 - saved)"), ACTIVATIONS),
        ("largest of a column", ("np.maximum(x, 0)", "np.max(x, 0)"), ACTIVATIONS),
        ("x changed", ("np.maximum(x, 0)", "np.maximum(x, 0, out=x)"), ACTIVATIONS),
        ("one thing only", (RELU, RELU.removesuffix(", y")), ACTIVATIONS),
        ("slope of tanh", ("dy * saved * (1 - saved)", "dy * (1 - saved**2)"), ACTIVATIONS),
    ],
    "dense_backward": [
        ("overwrites", ("self.W.grad += x.T @ dy", "self.W.grad[:] = x.T @ dy"), BACKWARD),
        ("dW transposed", ("x.T @ dy", "dy.T @ x"), BACKWARD),
        ("W not transposed", ("self.W.data.T", "self.W.data"), BACKWARD),
        ("the check's own W", ("self.W.data.T", "W.T"), BACKWARD),
        ("no sum over the batch", ("dy.sum(axis=0)", "dy"), BACKWARD),
        ("mean over the batch", ("dy.sum(axis=0)", "dy.mean(axis=0)"), BACKWARD),
        ("divides by the batch again", ("x.T @ dy", "x.T @ dy / len(x)"), BACKWARD),
        ("a new array", ("self.W.grad += x.T @ dy", "self.W.grad = self.W.grad + x.T @ dy"), BACKWARD),
        ("batches of six only", ("x.T @ dy", "x.T @ dy * (6 / len(x))"), BACKWARD),  # hidden tests only
    ],
    "sgd": [
        ("a new array", ("data -= lr * grad", "data = data - lr * grad"), SGD),
        ("uphill", ("data -= lr * grad", "data += lr * grad"), SGD),
        ("no learning rate", ("data -= lr * grad", "data -= grad"), SGD),
        ("grad changed", ("data -= lr * grad", "grad *= lr\n        data -= grad"), SGD),
        ("one learning rate", ("data -= lr * grad", "data -= 0.1 * grad"), SGD),  # hidden tests only
    ],
    "step": [
        ("gradients pile up", ("self.optimizer.zero_grad()", "pass"), STEP),
        ("never updates", ("self.optimizer.step()", "pass"), STEP),
        ("clears after backward", ("self.optimizer.step()", "self.optimizer.zero_grad()"), STEP),
        ("no return", ("return loss", "loss"), STEP),
        ("own rows instead of n", ("batch.n", "len(batch.x)"), STEP),  # hidden tests only
    ],
}
