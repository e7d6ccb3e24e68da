"""The exercises of lab 01: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise

EXERCISES = {}
FORGOTTEN = "did you forget `return`?"

EXERCISES["dense_forward"] = Exercise(
    answers=("Dense",),
    cases=[
        {"batch": 5, "d_in": 3, "d_out": 4, "seed": 1},
        {"batch": 1, "d_in": 3, "d_out": 7, "dtype": "float32", "seed": 2},
        {"batch": 4, "d_in": 6, "d_out": 2, "seed": 3},
        {"batch": 3, "d_in": 3, "d_out": 3, "seed": 4},
    ],
    draw=lambda rng: {
        "batch": rng.integers(1, 7),
        "d_in": rng.integers(2, 9),
        "d_out": rng.integers(1, 8),
        "dtype": rng.choice(["float64", "float32"]),
        "seed": rng.integers(1000),
    },
    inplace=True,
    mistakes={
        "the bias b is missing": " + self.b.data  ->  ",
        "b is subtracted: add it": "+ self.b.data  ->  - self.b.data",
        "b is added to the product, not to W": ("x @ self.W.data + self.b.data  ->  x @ (self.W.data + self.b.data)"),
        "every output has a bias of its own": [
            "+ self.b.data  ->  + self.b.data.sum()",
            "+ self.b.data  ->  + self.b.data.mean()",
        ],
        "a dense layer has no activation": [
            "return y, x  ->  return np.maximum(y, 0), x",
            "return y, x  ->  return np.exp(y) / np.exp(y).sum(axis=1, keepdims=True), x",
        ],
        "a sum over the inputs, not a mean": "x @ self.W.data  ->  x @ self.W.data / x.shape[1]",
        "y and x are swapped": "return y, x  ->  return x, y",
        "return two things: y, and x for the backward pass": "return y, x  ->  return y",
        "the second result is x itself, not y": "return y, x  ->  return y, y",
        "the second result is x itself, not W": "return y, x  ->  return y, self.W.data",
        "the second result is x itself, neither a list nor a tuple": [
            "return y, x  ->  return y, [x]",
            "return y, x  ->  return y, (x, self.W.data)",
        ],
        "keep nothing on self: the second result is x": ("return y, x  ->  self.x = x\n        return y, None"),
        "the second result is x itself, not a copy": "return y, x  ->  return y, x.copy()",
        "keep the dtype of x": "x @ self.W.data  ->  x.astype(float) @ self.W.data",
        "x comes first: x @ W": "x @ self.W.data  ->  self.W.data @ x",
        "W has the shape (d_in, d_out): do not transpose it": ("x @ self.W.data  ->  x @ self.W.data.T"),
        "this is not the matrix product: @": "x @ self.W.data  ->  x * self.W.data",
        "self.W is a Param: its array is self.W.data": "x @ self.W.data  ->  x @ self.W",
        "W and b are the layer's own: self.W.data and self.b.data": ["self.W.data  ->  W", "self.b.data  ->  b"],
        "y has d_out columns, not always 3": "x @ self.W.data  ->  x[:, :3] @ self.W.data[:3, :3]",
        "Dense has self.W.data and self.b.data": "self.b.data  ->  self.b.dat",
        FORGOTTEN: "        return y, x\n  ->          y, x\n",
    },
    may_pass=dict.fromkeys(
        ("W = np.random.default_rng", "return dense_backward", "self.params = ", "rng=1"),
        "given, and no part of the answer",
    ),
)

SHIFT = "z = logits - logits.max(axis=1, keepdims=True)"
LOSS = "float((np.log(total[:, 0]) - z[rows, labels]).sum()) / n"
MINUS = "dlogits[rows, labels] -= 1"
FROM_Z, FROM_E = "(np.log(total[:, 0]) - z[rows, labels])", "e / total"
ADDED_AGAIN = "(logits.max(axis=1) + np.log(total[:, 0]) - logits[rows, labels])"

EXERCISES["cross_entropy"] = Exercise(
    answers=("softmax_cross_entropy",),
    cases=[
        {"rows": 6, "classes": 4, "n": 29, "seed": 1},
        {"rows": 7, "classes": 3, "seed": 2},
        {"rows": 5, "classes": 3, "scale": 600.0, "seed": 3},
        {"rows": 6, "classes": 4, "levels": [2000, -2000, 3e9], "seed": 4},
        {"rows": 5, "classes": 7, "n": 8, "dtype": "float32", "seed": 5},
        {"rows": 1, "classes": 2, "dtype": "float16", "seed": 6},
    ],
    draw=lambda rng: {
        "rows": rng.integers(1, 10),
        "classes": rng.integers(2, 11),
        "n": [None, 17, 30][rng.integers(3)],
        **[
            {"scale": 0.0},
            {"dtype": "float32"},
            {"scale": 3.0},
            {"scale": 300.0},
        ][rng.integers(4)],
        "levels": rng.choice([0, 2000, -4000, 3e9], 4).tolist(),
        "seed": rng.integers(1000),
    },
    draws=8,
    mistakes={
        "exp overflows: first subtract each row's largest logit": f"{SHIFT}  ->  z = logits",
        "logits may be thousands: clipping changes them": [
            f"{SHIFT}  ->  z = np.clip(logits, -{most}, {most})" for most in (50, 500)
        ],
        "the logarithm of what was rounded to 0: use the log-sum-exp form": (
            f"{LOSS}  ->  -float(np.log((e / total)[rows, labels]).sum()) / n"
        ),
        "log(p + 1e-12) caps the loss: use the log-sum-exp form": (
            f"{LOSS}  ->  -float(np.log((e / total)[rows, labels] + 1e-12).sum()) / n"
        ),
        "the sum is that of the shifted e, np.exp(z)": "e = np.exp(z)  ->  e = np.exp(logits)",
        "subtract the largest, not the least": (
            "logits.max(axis=1, keepdims=True)  ->  logits.min(axis=1, keepdims=True)"
        ),
        "the loss is not divided by n": f"{LOSS}  ->  {LOSS[:-4]}",
        "divide the loss by n, not by the number of rows": f"{LOSS}  ->  {LOSS[:-1]}len(logits)",
        "divide the gradient by n, not by the number of rows": (
            "return loss, dlogits / n  ->  return loss, dlogits / len(logits)"
        ),
        "divide both by n, not by the number of rows": (
            f"{LOSS}  ->  {LOSS[:-1]}len(logits)",
            "return loss, dlogits / n  ->  return loss, dlogits / len(logits)",
        ),
        "the gradient is not divided by n": "return loss, dlogits / n  ->  return loss, dlogits",
        "[j = y] is missing: subtract 1 at every label": f"{MINUS}  ->  pass",
        "1 was added at the labels: subtract it": f"{MINUS}  ->  {MINUS.replace('-', '+')}",
        "[:, labels] changes these columns of every row, [labels] these rows: use [rows, labels]": [
            f"{MINUS}  ->  dlogits[:, labels] -= 1",
            f"{MINUS}  ->  dlogits[labels % len(rows)] -= 1",
        ],
        "z[:, labels] takes these columns of every row: use z[rows, labels]": ("z[rows, labels]  ->  z[:, labels]"),
        "(rows, 1) minus (rows,) is a square: use total[:, 0]": ("np.log(total[:, 0])  ->  np.log(total)"),
        "the largest logit, added again, costs digits: use the shifted z alone": [
            f"{FROM_Z}  ->  {ADDED_AGAIN}",
            (f"{FROM_Z}  ->  {ADDED_AGAIN}", f"{FROM_E}  ->  np.exp(logits - np.logaddexp.reduce(logits, 1)[:, None])"),
            (f"{FROM_Z}  ->  {ADDED_AGAIN}", f"{FROM_E}  ->  np.exp(logits - (logits - z) - np.log(total))"),
        ],
        "the loss takes the shifted logits, like the sum": ("- z[rows, labels]  ->  - logits[rows, labels]"),
        "the gradient overflows: compute it from the shifted e, as the loss": (
            " = e / total  ->   = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)"
        ),
        "compute in the dtype of the logits": [
            "dlogits = e / total  ->  dlogits = (e / total).astype(float)",
            "z = logits - logits  ->  logits = logits.astype('float32')\n    z = logits - logits",
        ],
        "this overwrites the logits: `a - b`, not `a -= b`": (
            f"{SHIFT}  ->  logits -= logits.max(axis=1, keepdims=True)\n    z = logits"
        ),
        "each row needs its own largest logit: max over axis=1": f"{SHIFT}  ->  z = logits - logits.max()",
        "subtract the largest of each row: max over axis=1, not of each column": (
            "logits.max(axis=1, keepdims=True)  ->  logits.max(axis=0)"
        ),
        "the largest of each row stays a column: keepdims=True": (
            "logits.max(axis=1, keepdims=True)  ->  logits.max(axis=1)"
        ),
        "each row has a sum of its own: e.sum(axis=1, keepdims=True)": [
            "e.sum(axis=1, keepdims=True)  ->  e.sum(axis=0, keepdims=True).T[:1]",
            "e.sum(axis=1, keepdims=True)  ->  e.sum().reshape(1, 1)",
        ],
        "the largest and the sum of each row: axis=1": (
            "logits.max(axis=1, keepdims=True)  ->  logits.max(axis=0, keepdims=True)",
            "e.sum(axis=1, keepdims=True)  ->  np.resize(e.sum(axis=0), (len(e), 1))",
        ),
        "the natural logarithm: np.log": ["np.log(  ->  np.log2(", "np.log(  ->  np.log10("],
        "the loss takes one logit of each row, that of its label": [
            "z[rows, labels]).sum()  ->  z.sum(axis=1)).sum()",
            "z[rows, labels]).sum()  ->  z[rows, labels - 1]).sum()",
        ],
        "subtract 1, then divide all of it by n, once": [
            f"{MINUS}  ->  dlogits[rows, labels] -= 1 / n",
            "return loss, dlogits / n  ->  return loss, dlogits / n**2",
            ("dlogits = e / total  ->  dlogits = e / total / n", "return loss, dlogits / n  ->  return loss, dlogits"),
        ],
        "the gradient is that of all logits, not of the labels' alone": (
            f"{MINUS}  ->  {MINUS}\n    dlogits *= np.arange(dlogits.shape[1]) == labels[:, None]"
        ),
        "the loss is -log p, which is positive": f"loss = {LOSS}  ->  loss = -{LOSS}",
        "one loss for all rows: add them up": (
            "return loss, dlogits / n  ->  return loss / np.ones(len(logits)), dlogits / n"
        ),
        "the gradient is missing: return loss, dlogits": ("return loss, dlogits / n  ->  return loss"),
        "the loss comes first: return loss, dlogits": ("return loss, dlogits / n  ->  return dlogits / n, loss"),
        FORGOTTEN: "    return loss, dlogits / n  ->      loss, dlogits / n",
    },
    may_pass={"len(labels)": "as many", "total[:, -1]": "the only column"},
)

BELOW = "x[i] = kept - eps\n        below = f()\n        x[i] = kept\n        gradient[i] = (above - below) / (2 * eps)"
TOO_LATE = """def numeric_gradient(f, x, eps=1e-6):
    gradient, start = np.zeros_like(x), x.copy()
    for i in np.ndindex(x.shape):
        x[i] = start[i] + eps
        above = f()
        x[i] = start[i] - eps
        gradient[i] = (above - f()) / (2 * eps)
    x[...] = start
    return gradient
"""
AT_ONCE = """def numeric_gradient(f, x, eps=1e-6):
    x += eps
    above = f()
    x -= 2 * eps
    below = f()
    x += eps
    return np.full_like(x, (above - below) / (2 * eps))
"""

EXERCISES["numeric_gradient"] = Exercise(
    inplace=True,
    rtol=1e-7,
    cases=[
        {"shape": [2, 3], "eps": 0.1, "seed": 1},
        {"shape": [4], "eps": 0.03, "seed": 2},
        {"shape": [2, 1, 2], "eps": 0.25, "seed": 3},
        {"shape": [1, 2], "seed": 4},
    ],
    draw=lambda rng: {
        "shape": [[4], [2, 3, 2], [1, 1], [3, 2]][rng.integers(4)],
        "eps": [None, 0.05, 0.2, 0.4][rng.integers(4)],
        "seed": rng.integers(1000),
    },
    mistakes={
        "this is the one-sided difference, (f(x + eps) - f(x)) / eps": (
            f"{BELOW}  ->  x[i] = kept\n        gradient[i] = (above - f()) / eps"
        ),
        "this is the one-sided difference, (f(x) - f(x - eps)) / eps": (
            "        x[i] = kept + eps\n        above = f()\n  ->          above = f()\n",
            "(2 * eps)  ->  eps",
        ),
        "the lower point is x - eps, not x itself": "x[i] = kept - eps  ->  x[i] = kept",
        "the two points are 2 eps apart: divide by that": "(2 * eps)  ->  eps",
        "a / 2 * eps multiplies by eps: write a / (2 * eps)": "(2 * eps)  ->  2 * eps",
        "only the first element: is `return` inside the loop?": (
            "/ (2 * eps)  ->  / (2 * eps)\n        return gradient"
        ),
        "the value above minus the value below, not the reverse": ("above - below  ->  below - above"),
        "a sum of both values: take their difference": "above - below  ->  above + below",
        "eps is an argument, not always 1e-6": [
            "kept = x[i]  ->  kept, eps = x[i], 1e-6",
            "(2 * eps)  ->  (2 * 1e-6)",
        ],
        "f sees no change: is it a copy of x that you change?": ("kept = x[i]  ->  x = x.copy()\n        kept = x[i]"),
        "put every element back before you change the next": [
            "x[i] = kept\n        gradient  ->  gradient",
            TOO_LATE,
        ],
        "change one element at a time, not all": AT_ONCE,
        "eps is added, whatever x[i] is": [
            ("kept + eps  ->  kept + eps * abs(kept)", "kept - eps  ->  kept - eps * abs(kept)"),
            ("kept + eps  ->  kept * (1 + eps)", "kept - eps  ->  kept * (1 - eps)"),
            (
                "kept + eps  ->  kept * (1 + eps)",
                "kept - eps  ->  kept * (1 - eps)",
                "(2 * eps)  ->  (2 * eps * kept)",
            ),
        ],
        "the two points are eps above and eps below": [
            ("kept + eps  ->  kept + eps / 2", "kept - eps  ->  kept - eps / 2"),
            ("kept + eps  ->  kept + eps / 2", "kept - eps  ->  kept - eps / 2", "(2 * eps)  ->  eps"),
            "kept - eps  ->  kept - 2 * eps",
        ],
        "a slope can be negative: no abs": "(above - below) /  ->  abs(above - below) /",
        "the first derivative, not the second": "(above - below) / (2 * eps)  ->  (above - 2 * f() + below) / eps**2",
        "call f, without arguments: f()": ["above = f()  ->  above = f", "above = f()  ->  above = f(x)"],
    },
    may_pass={"np.ndindex(gradient.shape)": "the same shape"},
)

RELU = "y = np.maximum(x, 0)\n        return y, y"

EXERCISES["activations"] = Exercise(
    answers=("ReLU", "Sigmoid"),
    inplace=True,
    cases=[
        {"of": "ReLU", "shape": [2, 5], "seed": 1},
        {"of": "ReLU", "shape": [3, 4], "scale": 4.0, "dtype": "float32", "seed": 2},
        {"of": "ReLU", "shape": [2, 3, 2], "scale": 0.3, "dtype": "float16", "seed": 3},
        {"of": "Sigmoid", "shape": [2, 5], "seed": 4},
        {"of": "Sigmoid", "shape": [1, 9], "scale": 0.7, "dtype": "float32", "seed": 5},
    ],
    draw=lambda rng: {
        "of": rng.choice(["ReLU", "Sigmoid"]),
        "shape": [[3, 4], [1, 9], [2, 3, 4, 2], [7]][rng.integers(4)],
        "scale": float(rng.choice([0.2, 1.0, 3.0])),
        "dtype": rng.choice(["float64", "float32"]),
        "seed": rng.integers(1000),
    },
    draws=8,
    mistakes={
        "ReLU: the mask is made from dy: make it from the output": ("dy * (saved > 0)  ->  dy * (dy > 0)"),
        "ReLU: y >= 0 is true everywhere: use y > 0": ("saved > 0  ->  saved >= 0"),
        "ReLU: dy is missing: the chain rule multiplies by it": ("dy * (saved > 0)  ->  (saved > 0).astype(dy.dtype)"),
        "ReLU: the slope is 1 where y is positive, not y": "dy * (saved > 0)  ->  dy * saved",
        "ReLU: keep the dtype of x": [
            "np.maximum(x, 0)  ->  np.maximum(x, 0).astype('float32')",
            "np.maximum(x, 0)  ->  np.maximum(x, np.zeros(x.shape))",
        ],
        "ReLU: negative values become 0, not positive": "np.maximum(x, 0)  ->  np.abs(x)",
        "ReLU: negative values become 0, not small": "np.maximum(x, 0)  ->  np.maximum(x, x / 100)",
        "ReLU: positive values stay, also large ones": ("np.maximum(x, 0)  ->  np.clip(x, 0, 6)"),
        "ReLU: keep the larger of x and 0, not the smaller": ("np.maximum(x, 0)  ->  np.minimum(x, 0)"),
        "ReLU: positive values stay, and do not become 1": ("np.maximum(x, 0)  ->  (x > 0).astype(x.dtype)"),
        "ReLU: np.maximum compares element by element, np.max takes the largest of a column": (
            "np.maximum(x, 0)  ->  np.max(x, 0)"
        ),
        "ReLU: this overwrites x: make a new array": ("np.maximum(x, 0)  ->  np.maximum(x, 0, out=x)"),
        "ReLU: return two things: y, and what backward needs": f"{RELU}  ->  {RELU[:-3]}",
        "Sigmoid: dy is missing: the chain rule multiplies by it": (
            "dy * saved * (1 - saved)  ->  saved * (1 - saved)"
        ),
        "the layer may see other inputs before backward: use saved, keep nothing on self": (
            f"{RELU}  ->  self.y = np.maximum(x, 0)\n        return self.y, self.y",
            "saved > 0  ->  self.y > 0",
        ),
        "Sigmoid: a factor is missing: the slope is y (1 - y)": [
            "dy * saved * (1 - saved)  ->  dy * (1 - saved)",
            "dy * saved * (1 - saved)  ->  dy * saved",
        ],
        "Sigmoid: y is a sigmoid already: do not apply it again": (
            "return dy * saved * (1 - saved)  ->  s = 1 / (1 + np.exp(-saved))\n        return dy * s * (1 - s)"
        ),
        "Sigmoid: this is the slope of tanh: the sigmoid's is y (1 - y)": (
            "dy * saved * (1 - saved)  ->  dy * (1 - saved**2)"
        ),
        "Sigmoid: y (1 - y) is made of the output, not of dy": ("dy * saved * (1 - saved)  ->  dy * dy * (1 - dy)"),
        "Sigmoid: the slope is y (1 - y), not y (1 + y)": "(1 - saved)  ->  (1 + saved)",
        "Sigmoid: keep y as it was given": [
            "np.tanh(x / 2)  ->  np.tanh(x)",
            "(1 + np.tanh(x / 2)) / 2  ->  np.tanh(x / 2)",
        ],
        "Sigmoid: return y twice: backward makes the slope of y, not of x": (
            "(1 + np.tanh(x / 2)) / 2\n        return y, y  ->  (1 + np.tanh(x / 2)) / 2\n        return y, x"
        ),
        "ReLU: the slope is 1 where y is positive and 0 elsewhere, in the shape of dy": [
            "dy * (saved > 0)  ->  dy[saved > 0]",
            "dy * (saved > 0)  ->  dy * np.sign(saved - 0.5)",
            "dy * (saved > 0)  ->  dy * np.where(saved > 0, 1, 0.01).astype(dy.dtype)",
        ],
        "Sigmoid: backward leaves saved as it was: the layer above holds the same array": (
            "return dy * saved * (1 - saved)  ->  saved *= 1 - saved\n        return dy * saved"
        ),
        "it is np.maximum": "np.maximum(x, 0)  ->  np.maximun(x, 0)",
        "ReLU: did you forget `return`?": [
            f"{RELU}  ->  {RELU.replace('return ', '')}",
            "return dy * (saved  ->  dy * (saved",
        ],
        "Sigmoid: did you forget `return`?": "return dy * saved *  ->  dy * saved *",
    },
    may_pass={"np.maximum(0, x)": "a maximum", "return (y, x)": "x is positive where y is"},
)

EXERCISES["dense_backward"] = Exercise(
    inplace=True,
    cases=[
        {"batch": 4, "d_in": 4, "d_out": 4, "seed": 1},
        {"batch": 3, "d_in": 2, "d_out": 7, "seed": 2},
        {"batch": 5, "d_in": 3, "d_out": 1, "dtype": "float32", "seed": 3},
        {"batch": 1, "d_in": 5, "d_out": 2, "seed": 4},
    ],
    draw=lambda rng: {
        "batch": rng.integers(1, 8),
        "d_in": rng.integers(1, 8),
        "d_out": rng.integers(1, 8),
        "dtype": rng.choice(["float64", "float32"]),
        "seed": rng.integers(1000),
    },
    mistakes={
        "`=` makes new arrays, and other code holds the old: use +=": (
            ".W.grad +=  ->  .W.grad =",
            ".b.grad +=  ->  .b.grad =",
        ),
        "both sums go into `grad`: `data` holds the weights": [
            (".W.grad +=  ->  .W.data +=", ".b.grad +=  ->  .b.data +="),
            (".W.grad +=  ->  .W.data -=", ".b.grad +=  ->  .b.data -="),
        ],
        "db is summed over all rows of the batch, not the first": "dy.sum(axis=0)  ->  dy[0]",
        "overwritten: add to what is there, with +=": (
            ".W.grad +=  ->  .W.grad[:] =",
            ".b.grad +=  ->  .b.grad[:] =",
        ),
        "W.grad is overwritten: add to what is there, with +=": ".W.grad +=  ->  .W.grad[:] =",
        "b.grad is overwritten: add to what is there, with +=": ".b.grad +=  ->  .b.grad[:] =",
        "`=` makes a new W.grad, and other code holds the old: use +=": (
            "layer.W.grad += x.T @ dy  ->  layer.W.grad = layer.W.grad + x.T @ dy"
        ),
        "`=` makes a new b.grad, and other code holds the old: use +=": (
            "layer.b.grad += dy.sum(axis=0)  ->  layer.b.grad = layer.b.grad + dy.sum(axis=0)"
        ),
        "this is the transpose, dY^T X": "x.T @ dy  ->  dy.T @ x",
        "dW = X^T dY: X is transposed": "x.T @ dy  ->  x @ dy",
        "dX = dY W^T: W is transposed": "layer.W.data.T  ->  layer.W.data",
        "reshape keeps the order of the numbers: .T transposes": [
            "x.T @ dy  ->  x.reshape(x.shape[::-1]) @ dy",
            "layer.W.data.T  ->  layer.W.data.reshape(layer.W.data.shape[::-1])",
        ],
        "dX = dY W^T: of the weights, not of their gradient": "dy @ layer.W.data.T  ->  dy @ layer.W.grad.T",
        "dX = dY W^T: a dense layer has no activation": [
            f"dy @ layer.W.data.T  ->  (dy @ layer.W.data.T) * {other}" for other in ("x", "(x > 0)")
        ],
        "dX = dY W^T: this is dY": "return dy @ layer.W.data.T  ->  return dy",
        "dW = X^T dY: a sum of products, over all rows of the batch": [
            "x.T @ dy  ->  np.outer(x[0], dy[0])",
            "x.T @ dy  ->  x.mean(axis=0)[:, None] * dy.sum(axis=0)",
        ],
        "dW is added once": "layer.W.grad += x.T @ dy  ->  layer.W.grad += 2 * (x.T @ dy)",
        "return dX alone": "return dy @ layer.W.data.T  ->  return layer.W.grad, layer.b.grad, dy @ layer.W.data.T",
        "db is summed over the batch: dy.sum(axis=0)": "dy.sum(axis=0)  ->  dy",
        "db is summed over the batch only, axis 0, not over all": "dy.sum(axis=0)  ->  dy.sum()",
        "db is summed over the batch, axis 0, not over the outputs": ("dy.sum(axis=0)  ->  dy.sum(axis=1)"),
        "it was divided by the batch size: the loss does that": [
            "dy.sum(axis=0)  ->  dy.mean(axis=0)",
            "x.T @ dy  ->  x.T @ dy / len(x)",
            "layer.W.data.T  ->  layer.W.data.T / len(x)",
            ("dy.sum(axis=0)  ->  dy.mean(axis=0)", "x.T @ dy  ->  x.T @ dy / len(x)"),
        ],
        "a batch may have any number of rows": "x.T @ dy  ->  x.T @ dy * (6 / len(x))",
        "this changes the weights: add to their grad": [
            "layer.W.grad += x.T @ dy  ->  layer.W.data -= x.T @ dy",
            "return dy @  ->  layer.W.data -= 0.1 * layer.W.grad\n    return dy @",
        ],
        "dW is subtracted: add it": "layer.W.grad +=  ->  layer.W.grad -=",
        "dW is missing: add it to layer.W.grad": "layer.W.grad += x.T @ dy  ->  pass",
        "db is missing: add it to layer.b.grad": "layer.b.grad += dy.sum(axis=0)  ->  pass",
        FORGOTTEN: "return dy @ layer.W.data.T  ->  dx = dy @ layer.W.data.T",
    },
    may_pass={"saved.T @ dy": "x is what was saved"},
)

EXERCISES["sgd"] = Exercise(
    answers=("SGD",),
    inplace=True,
    cases=[
        {"shape": [2, 3], "lr": 0.1, "step": 7, "seed": 1},
        {"shape": [5], "lr": 0.75, "step": 0, "dtype": "float32", "seed": 2},
        {"shape": [2, 1, 4], "lr": 1.3, "step": 3, "seed": 3},
    ],
    draw=lambda rng: {
        "shape": [[7], [3, 2, 4], [1, 1], [2, 5]][rng.integers(4)],
        "lr": rng.uniform(1e-3, 2),
        "step": rng.integers(20),
        "dtype": rng.choice(["float64", "float32"]),
        "seed": rng.integers(1000),
    },
    mistakes={
        "each weight has its own gradient: no mean, no sum": [
            "lr * grad  ->  lr * grad.mean()",
            "lr * grad  ->  lr * grad.sum()",
            "lr * grad  ->  lr * grad.mean(axis=0)",
        ],
        "the loss has divided by the batch size already": "lr * grad  ->  lr * grad / len(grad)",
        "data is unchanged: `data = ...` makes a new array, `data -= ...` does not": [
            "data -= lr * grad  ->  data = data - lr * grad",
            "data -= lr * grad  ->  data = data.copy()\n        data -= lr * grad",
            "data -= lr * grad  ->  return data - lr * grad",
            "data -= lr * grad  ->  pass",
        ],
        "this walks uphill: subtract": "data -= lr * grad  ->  data += lr * grad",
        "the learning rate is missing": "data -= lr * grad  ->  data -= grad",
        "this overwrites grad: `a * b`, not `a *= b`": ("data -= lr * grad  ->  grad *= lr\n        data -= grad"),
        "the rate is an argument: lr, not 0.1": "data -= lr * grad  ->  data -= 0.1 * grad",
        "divided by the learning rate: multiply": "data -= lr * grad  ->  data -= grad / lr",
        "the step replaces the weights: subtract it from them": ("data -= lr * grad  ->  data[:] = -lr * grad"),
        "all of data changes, not its first row": "data -= lr * grad  ->  data[0] -= lr * grad[0]",
        "the rate stays the same in every step": [
            f"data -= lr * grad  ->  data -= lr {other} * grad" for other in ("/ (step + 1)", "* step", "* (step + 1)")
        ],
        "the size of the gradient counts, not its sign alone": ("data -= lr * grad  ->  data -= lr * np.sign(grad)"),
    },
)

ZERO, UPDATE = "self.optimizer.zero_grad()", "self.optimizer.step()"
BACK = "self.model.backward(dlogits, saved)"
LOGITS = "loss, dlogits = self.loss(logits, batch.y, batch.n)"

EXERCISES["step"] = Exercise(
    answers=("Trainer",),
    inplace=True,
    without=("distcourse", "super", "distlearn"),
    cases=[
        {"rows": 8, "n": 24, "lr": 0.1, "seed": 1},
        {"rows": 7, "n": 7, "lr": 0.4, "frozen": [1], "seed": 2},
        {"rows": 5, "n": 16, "lr": 0.7, "steps": 3, "seed": 3},
    ],
    draw=lambda rng: {
        "rows": rng.integers(1, 9),
        "n": rng.integers(9, 30),
        "lr": rng.uniform(0.05, 1),
        "frozen": [[], [0], [2, 3]][rng.integers(3)],
        "steps": rng.integers(1, 5),
        "seed": rng.integers(1000),
    },
    mistakes={
        "gradients of an earlier step are still there: call zero_grad()": f"{ZERO}  ->  pass",
        "the weights did not move: step() belongs after backward(), zero_grad() before it": [
            f"{UPDATE}  ->  pass",
            f"{UPDATE}  ->  {ZERO}",
            f"{BACK}  ->  {BACK}\n        {ZERO}",
            f"{BACK}  ->  pass",
            f"{BACK}\n        {UPDATE}  ->  {UPDATE}\n        {BACK}",
        ],
        "gradients of an earlier step are added: zero_grad() belongs before backward()": (
            f"        {ZERO}\n  ->  ",
            f"{UPDATE}  ->  {UPDATE}\n        {ZERO}",
        ),
        "a step by hand: the optimizer knows its rate, and which weights are frozen": [
            f"{UPDATE}  ->  for p in self.model.params:\n            p.data -= 0.1 * p.grad",
            f"{UPDATE}  ->  for p in self.model.params:\n            p.data -= (not p.frozen) * 0.1 * p.grad",
            f"{UPDATE}  ->  for p in self.model.params:\n            p.data -= self.optimizer.lr * p.grad",
        ],
        "the optimizer takes two steps": f"{UPDATE}  ->  {UPDATE}\n        {UPDATE}",
        "pass batch.n to the loss": ["batch.n  ->  len(batch.x)", "batch.y, batch.n  ->  batch.y"],
        "backward takes the gradient of the loss, not the logits": ("backward(dlogits  ->  backward(logits"),
        "return the loss, not the logits or their gradient": [
            f"return loss  ->  return {x}" for x in ("logits", "dlogits")
        ],
        "the loss is divided by n already": [f"return loss  ->  return loss {other} batch.n" for other in "/*"],
        "return the loss alone": "return loss  ->  return loss, dlogits",
        "this is the loss after the update: return that before": (
            "return loss  ->  return self.loss(self.model.forward(batch.x)[0], batch.y, batch.n)[0]"
        ),
        "all rows of the batch": (
            "forward(batch.x)  ->  forward(batch.x[:4])",
            "batch.y, batch.n  ->  batch.y[:4], batch.n",
        ),
        "forward returns two things, and so does the loss: unpack them": [
            "logits, saved = self.model.forward(batch.x)  ->  logits = saved = self.model.forward(batch.x)",
            f"{LOGITS}  ->  loss = dlogits = self.loss(logits, batch.y, batch.n)",
        ],
        "they are the trainer's own: self.model, self.loss, self.optimizer": [
            "self.loss(  ->  dl.nn.SoftmaxCrossEntropy()(",
            f"{ZERO}  ->  optimizer.zero_grad()",
            "self.model.forward  ->  model.forward",
            "self.loss(  ->  loss(",
        ],
        "the loss is a number: backward takes its gradient, dlogits": "backward(dlogits  ->  backward(loss",
        "backward takes dlogits and then saved": [
            "backward(dlogits, saved)  ->  backward(saved, dlogits)",
            "backward(dlogits, saved)  ->  backward(dlogits)",
        ],
        "the gradient is divided by n already": "backward(dlogits,  ->  backward(dlogits / batch.n,",
        "clear the gradients in every step": (
            f"{ZERO}  ->  if not hasattr(self, 'cleared'):\n            {ZERO}\n        self.cleared = True"
        ),
        FORGOTTEN: "return loss  ->  loss",
    },
)
