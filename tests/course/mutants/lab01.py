"""Wrong answers to lab 01."""

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
        ("the library's layer", "Dense = dl.nn.Linear\n", {"check_dense_forward", "check_dense_backward"}),
        ("no bias", " + self.b.data", ""),
        ("one thing only", "return y, x", "return y"),
        ("saves the output", "return y, x", "return y, y"),
        ("the other way round", "return y, x", "return x, y"),
        ("float64 on the way", "x @ self.W.data", "x.astype(float) @ self.W.data"),
        ("swapped product", "x @ self.W.data", "self.W.data @ x"),
        ("W transposed", "x @ self.W.data", "x @ self.W.data.T"),
        ("element by element", "x @ self.W.data", "x * self.W.data"),
        ("activation in it", "y = x @ self.W.data + self.b.data", "y = np.maximum(x @ self.W.data + self.b.data, 0)"),
        ("Param, not data", "x @ self.W.data", "x @ self.W"),
        ("misspelt", "self.b.data", "self.b.dat"),
        ("saves a copy", "return y, x", "return y, x.copy()"),
        ("a list", "return y, x", "return [y, x]"),
        ("three outputs", "x @ self.W.data", "x[:, :3] @ self.W.data[:3, :3]"),
        ("a sum of b", "+ self.b.data", "+ self.b.data.sum()"),
        ("bias subtracted", "+ self.b.data", "- self.b.data"),
        ("saves W", "return y, x", "return y, self.W.data"),
    ],
    "cross_entropy": [
        ("overflows", SHIFT, "z = logits"),
        ("log of what was rounded to 0", LOG_SUM_EXP, "-float(np.log((e / total)[rows, labels]).sum()) / n"),
        ("log of p plus tiny", LOG_SUM_EXP, "-float(np.log((e / total)[rows, labels] + 1e-12).sum()) / n"),
        ("sum", LOG_SUM_EXP, LOG_SUM_EXP.removesuffix(" / n")),
        ("mean over the rows", LOG_SUM_EXP, LOG_SUM_EXP.removesuffix(" / n") + " / len(logits)"),
        ("own rows instead of n", "return loss, dlogits / n", "return loss, dlogits / len(logits)"),
        ("gradient not divided", "return loss, dlogits / n", "return loss, dlogits"),
        ("label forgotten", "dlogits[rows, labels] -= 1", "pass"),
        ("gradient not shifted", " = e / total", " = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)"),
        ("gradient in float64", "dlogits = e / total", "dlogits = (e / total).astype(float)"),
        ("label added", "dlogits[rows, labels] -= 1", "dlogits[rows, labels] += 1"),
        ("all columns of the labels", "dlogits[rows, labels] -= 1", "dlogits[:, labels] -= 1"),
        ("loss of all labels", "z[rows, labels]", "z[:, labels]"),
        ("a square", "np.log(total[:, 0])", "np.log(total)"),
        ("logits changed", SHIFT, "logits -= logits.max(axis=1, keepdims=True)\n    z = logits"),
        ("one maximum for all rows", SHIFT, "z = logits - logits.max()"),
        ("maximum of the columns", "logits.max(axis=1, keepdims=True)", "logits.max(axis=0)"),
        ("sum over the batch", "e.sum(axis=1, keepdims=True)", "e.sum(axis=0, keepdims=True).T[:1]"),
        ("keepdims forgotten", "logits.max(axis=1, keepdims=True)", "logits.max(axis=1)"),
        ("sign", "loss = float(", "loss = -float("),
        ("loss alone", "return loss, dlogits / n", "return loss"),
        ("in float32", "z = logits - logits", "logits = logits.astype('float32')\n    z = logits - logits"),
        ("capped", SHIFT, "z = np.clip(logits, -500, 500)"),
        ("a loss for each row", "return loss, dlogits / n", "return loss / np.ones(len(logits)), dlogits / n"),
    ],
    "numeric_gradient": [
        ("one-sided", BELOW, "x[i] = kept\n        gradient[i] = (above - f()) / eps"),
        ("half the distance", "(2 * eps)", "eps"),
        ("never restored", "x[i] = kept\n        gradient", "gradient"),
        ("a step of its own", "kept = x[i]", "kept, eps = x[i], 1e-6"),
        ("changes a copy", "kept = x[i]", "x = x.copy()\n        kept = x[i]"),
        ("multiplies by eps", "(2 * eps)", "2 * eps"),
        ("returns too early", "/ (2 * eps)", "/ (2 * eps)\n        return gradient"),
        ("restored too late", RESTORED_TOO_LATE),
        ("all elements at once", ALL_AT_ONCE),
        ("wrong way round", "above - below", "below - above"),
        ("sum of the two", "above - below", "above + below"),
        ("f not called", "above = f()", "above = f"),
        ("f called with x", "above = f()", "above = f(x)"),
    ],
    "activations": [
        ("ReLU masks by dy", "dy * (saved > 0)", "dy * (dy > 0)"),
        ("ReLU masks nothing", "saved > 0", "saved >= 0"),
        ("ReLU without dy", "dy * (saved > 0)", "(saved > 0)"),
        ("ReLU times y", "dy * (saved > 0)", "dy * saved"),
        ("ReLU in float32", "np.maximum(x, 0)", "np.maximum(x, 0).astype('float32')"),
        ("absolute value", "np.maximum(x, 0)", "np.abs(x)"),
        ("minimum", "np.maximum(x, 0)", "np.minimum(x, 0)"),
        ("sigmoid forgets dy", "dy * saved * (1 - saved)", "saved * (1 - saved)"),
        ("sigmoid forgets a factor", "dy * saved * (1 - saved)", "dy * (1 - saved)"),
        (
            "sigmoid of the sigmoid",
            "return dy * saved * (1 - saved)",
            "s = 1 / (1 + np.exp(-saved))\n        return dy * s * (1 - s)",
        ),
        ("largest of a column", "np.maximum(x, 0)", "np.max(x, 0)"),
        ("x changed", "np.maximum(x, 0)", "np.maximum(x, 0, out=x)"),
        ("one thing only", RELU, RELU.removesuffix(", y")),
        ("slope of tanh", "dy * saved * (1 - saved)", "dy * (1 - saved**2)"),
        ("misspelt", "np.maximum(x, 0)", "np.maximun(x, 0)"),
        ("leaky", "np.maximum(x, 0)", "np.maximum(x, 0.01 * x)"),
        ("at most 6", "np.maximum(x, 0)", "np.clip(x, 0, 6)"),
        ("a mask alone", "np.maximum(x, 0)", "(x > 0)"),
    ],
    "dense_backward": [
        ("overwrites", "layer.W.grad += x.T @ dy", "layer.W.grad[:] = x.T @ dy"),
        ("overwrites b", "layer.b.grad += dy.sum(axis=0)", "layer.b.grad[:] = dy.sum(axis=0)"),
        ("dW transposed", "x.T @ dy", "dy.T @ x"),
        ("W not transposed", "layer.W.data.T", "layer.W.data"),
        ("the check's own W", "layer.W.data.T", "W.T"),
        ("no sum over the batch", "dy.sum(axis=0)", "dy"),
        ("sum over all", "dy.sum(axis=0)", "dy.sum()"),
        ("sum over the outputs", "dy.sum(axis=0)", "dy.sum(axis=1)"),
        ("mean over the batch", "dy.sum(axis=0)", "dy.mean(axis=0)"),
        ("divides by the batch again", "x.T @ dy", "x.T @ dy / len(x)"),
        ("a new array", "layer.W.grad += x.T @ dy", "layer.W.grad = layer.W.grad + x.T @ dy"),
        ("x not transposed", "x.T @ dy", "x @ dy"),
        ("batches of six only", "x.T @ dy", "x.T @ dy * (6 / len(x))"),
        ("no return", "return dy @ layer.W.data.T", "dx = dy @ layer.W.data.T"),
        ("updates the weights", "layer.W.grad += x.T @ dy", "layer.W.data -= x.T @ dy"),
    ],
    "sgd": [
        ("a new array", "data -= lr * grad", "data = data - lr * grad"),
        ("uphill", "data -= lr * grad", "data += lr * grad"),
        ("no learning rate", "data -= lr * grad", "data -= grad"),
        ("grad changed", "data -= lr * grad", "grad *= lr\n        data -= grad"),
        ("one learning rate", "data -= lr * grad", "data -= 0.1 * grad"),
        ("divides by the rate", "data -= lr * grad", "data -= grad / lr"),
        ("assigns", "data -= lr * grad", "data[:] = -lr * grad"),
        ("a rate that falls", "data -= lr * grad", "data -= lr / (step + 1) * grad"),
        ("into a copy", "data -= lr * grad", "data = data.copy()\n        data -= lr * grad"),
        ("the sign only", "data -= lr * grad", "import numpy as np\n        data -= lr * np.sign(grad)"),
        ("returns the step", "data -= lr * grad", "return data - lr * grad"),
    ],
    "step": [
        ("gradients pile up", ZERO, "pass"),
        ("never updates", UPDATE, "pass"),
        ("clears after backward", UPDATE, ZERO),
        ("clears between", BACK, f"{BACK}\n        {ZERO}"),
        ("steps before backward", f"{BACK}\n        {UPDATE}", f"{UPDATE}\n        {BACK}"),
        ("no backward", BACK, "pass"),
        ("no return", "return loss", "loss"),
        (
            "a rate of 0.1",
            "self.optimizer.step()",
            "for p in self.model.params:\n            if not p.frozen:\n                p.data -= 0.1 * p.grad",
        ),
        ("returns the logits", "return loss", "return logits"),
        ("own rows instead of n", "batch.n", "len(batch.x)"),
        ("n left out", "batch.y, batch.n", "batch.y"),
        ("backward of the logits", "backward(dlogits", "backward(logits"),
        ("updates by hand, twice", UPDATE, f"{UPDATE}\n        {UPDATE}"),
        ("the library's", ZERO, f"return super().step(batch)\n        {ZERO}"),
        ("the library's by name", ZERO, f"return dl.Serial.step(self, batch)\n        {ZERO}"),
        ("half of the batch", "forward(batch.x)", "forward(batch.x[:4])"),
        ("the loss after it", "return loss", "return self.loss(self.model.forward(batch.x)[0], batch.y, batch.n)[0]"),
        ("both things", "return loss", "return loss, dlogits"),
        ("updates by hand", UPDATE, "for p in self.model.params:\n            p.data -= 0.1 * p.grad"),
    ],
}
