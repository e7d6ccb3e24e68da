"""The exercises of lab 03: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}


def image(rng, least=1):
    """Draw the shape of images."""
    return [int(rng.integers(1, 4)), *rng.integers(least, 12, 2).tolist(), int(rng.integers(1, 8))]


def layer(rng, of):
    """Draw a convolution."""
    shape = image(rng)
    kernel = [int(rng.integers(1, min(side, 6) + 1)) for side in shape[1:3]]
    return {"of": of, "shape": shape, "kernel": [*kernel, int(rng.integers(1, 5))]} | kind(rng)


def kind(rng):
    return {"dtype": str(rng.choice(["float32", "float64"])), "seed": int(rng.integers(1000))}


PLACE = "x[:, u : u + oh, v : v + ow] @ W[u, v]"
CUT = "    x = x[:, : h // k * k, : w // k * k]\n"
POOLED = "x.reshape(n, h // k, k, w // k, k, c).max(axis=(2, 4))"
OVERLAPPING = "np.lib.stride_tricks.sliding_window_view(x, (k, k), (1, 2)).max((-2, -1))"
DAMPED = "x * (k + alpha * total) ** -beta"
AROUND = "(half, half)))\n"


def lrn(*constants):
    return {"of": "lrn"} | rows("n k alpha beta", constants)[0]


EXERCISES["windows"] = Exercise(
    answers=("convolve", "max_pool", "lrn"),
    cases=[
        {"of": "convolve", "shape": [2, 5, 6, 9], "kernel": [3, 3, 4]},
        {"of": "convolve", "shape": [1, 7, 5, 2], "kernel": [2, 4, 3], "seed": 1},
        {"of": "convolve", "shape": [3, 9, 8, 2], "kernel": [5, 2, 1], "seed": 2},
        {"of": "convolve", "shape": [2, 3, 2, 5], "kernel": [1, 1, 4], "dtype": "float16"},
        {"of": "max_pool", "shape": [2, 5, 6, 3], "k": 2},
        {"of": "max_pool", "shape": [1, 7, 9, 2], "k": 3, "seed": 3},
        {"of": "max_pool", "shape": [3, 4, 5, 1], "k": 1, "dtype": "float32"},
        {"of": "lrn", "shape": [2, 3, 4, 9], "seed": 4},
        lrn(3, 1.0, 0.5, 0.6) | {"shape": [1, 2, 5, 8]},
        lrn(5, 3.0, 0.7, 0.4) | {"shape": [2, 4, 3, 2], "dtype": "float32"},
        lrn(7, 1.7, 0.2, 0.9) | {"shape": [1, 1, 2, 11]},
    ],
    draw=lambda rng: [
        layer(rng, "convolve"),
        {"of": "max_pool", "shape": image(rng, 4), "k": int(rng.integers(1, 5))} | kind(rng),
        lrn(int(rng.choice([1, 3, 5, 7])), *rng.uniform([1, 0.1, 0.4], [4, 0.9, 0.95]).tolist())
        | {"shape": image(rng)}
        | kind(rng),
    ][rng.integers(3)],
    draws=12,
    mistakes={
        "convolve: u counts rows, v columns": "x[:, u : u + oh, v : v + ow]  ->  x[:, v : v + oh, u : u + ow]",
        "max_pool: windows do not overlap: they move by k": [
            f"{POOLED}  ->  {OVERLAPPING}",
            (f"{CUT}  ->  ", f"{POOLED}  ->  {OVERLAPPING}"),
        ],
        "max_pool: drop the rows and columns at the end, not at the start": (
            f"{CUT}  ->  {CUT.replace(': h // k * k', 'h % k :').replace(': w // k * k', 'w % k :')}"
        ),
        "max_pool: each channel has its own largest value": f"{POOLED}  ->  {POOLED.replace('(2, 4)', '(2, 4, 5)')}",
        "convolve: a sum over all input channels": f"{PLACE}  ->  x[:, u : u + oh, v : v + ow, :1] @ W[u, v, :1]",
        "convolve: at each position a product of (n, oh, ow, c_in) and (c_in, c_out): x[...] @ W[u, v]": [
            f"{PLACE}  ->  {PLACE}.T",
            f"{PLACE}  ->  {PLACE.replace('@', '*')}",
        ],
        "convolve: each position takes oh rows and ow columns of x: u : u + oh, v : v + ow": (
            f"{PLACE}  ->  {PLACE.replace('u + oh', 'oh').replace('v + ow', 'ow')}"
        ),
        "convolve: loops run over all kh x kw positions": [
            "range(kh):\n        for v in range(kw):  ->  range(kh - 1):\n        for v in range(kw - 1):",
            "for v in range(kw):  ->  for v in range(kh):",
        ],
        "lrn: it is x that is damped: multiply by x": f"{DAMPED}  ->  {DAMPED[4:]}",
        "lrn: neighbours are channels, the last axis": [
            (
                "(0, 0), (0, 0), (0, 0), (half, half)  ->  (0, 0), (half, half), (0, 0), (0, 0)",
                "squares[..., i : i + x.shape[-1]]  ->  squares[:, i : i + x.shape[1]]",
            ),
            (
                "(0, 0), (0, 0), (0, 0), (half, half)  ->  (0, 0), (0, 0), (half, half), (0, 0)",
                "squares[..., i : i + x.shape[-1]]  ->  squares[:, :, i : i + x.shape[2]]",
            ),
        ],
        "lrn: a slice that begins below 0 begins at the other end: max(0, ...)": (
            "sum(squares[..., i : i + x.shape[-1]] for i in range(n))"
            "  ->  np.stack([(x * x)[..., c - half : c + half + 1].sum(-1) for c in range(x.shape[-1])], -1)"
        ),
        "convolve: the kernel is flipped: deep learning does not flip": [
            f"{PLACE}  ->  {PLACE.replace('W[u, v]', 'W[kh - 1 - u, kw - 1 - v]')}",
        ],
        "convolve: the kernel's rows and columns are mixed up: W[u, v] goes with row u, column v": (
            f"{PLACE}  ->  {PLACE.replace('W[u, v]', 'W[v % kh, u % kw]')}"
        ),
        "convolve: a kernel need not be square: kh, kw = W.shape[:2]": (
            "kh, kw = W.shape[:2]\n    oh  ->  kh = kw = W.shape[0]\n    oh"
        ),
        "convolve: add the positions of the kernel: only the last one is left": "y = y + x[  ->  y = x[",
        "convolve: there are h - kh + 1 rows of outputs, and w - kw + 1 columns": [
            "x.shape[1] - kh + 1, x.shape[2] - kw + 1  ->  x.shape[1] - kh, x.shape[2] - kw",
            "oh, ow = x.shape[1] - kh + 1  ->  oh, ow = x.shape[1] - kh",
            "x.shape[2] - kw + 1\n    y  ->  x.shape[2] - kw\n    y",
        ],
        "convolve: no padding: zeros are part of the image already": (
            "    oh, ow =  ->      x = np.pad(x, ((0, 0), (kh // 2,) * 2, (kw // 2,) * 2, (0, 0)))\n    oh, ow ="
        ),
        "convolve: a sum over the kernel's positions, not a mean": f"{PLACE}  ->  {PLACE} / (kh * kw)",
        "convolve: a kernel may be larger than 3 x 3": f"{PLACE}  ->  (u < 3) * {PLACE} * (v < 3)",
        "convolve: the dtype of the images: np.zeros(shape) is float64": (
            "    y = 0\n  ->      y = np.zeros((len(x), oh, ow, W.shape[3]))\n"
        ),
        "convolve: in float32 digits of float64 are lost": (
            "    y = 0\n  ->      x, W = x.astype('float32'), W.astype('float32')\n    y = 0\n"
        ),
        "convolve: all images, not only the first": "    return y\n  ->      return y[:1]\n",
        "convolve: an array, not a list": [
            "    return y\n  ->      return y.tolist()\n",
            "    return y\n  ->      return list(y)\n",
        ],
        "make new arrays, write into none that was passed": [
            "    y = 0\n  ->      x *= 1.0\n    x += 1e-7\n    y = 0\n",
            "    return x * (k  ->      x *= 1 + 1e-4\n    return x * (k",
        ],
        "max_pool: the largest, not the sum, mean or least": [
            f"{POOLED}  ->  {POOLED.replace('max(', other)}" for other in ("sum(", "mean(", "min(")
        ],
        "max_pool: drop the rows and columns that do not fill a window": [
            f"{CUT}  ->  ",
            f"{CUT}  ->      x = np.pad(x, ((0, 0), (0, -h % k), (0, -w % k), (0, 0)))\n    h, w = x.shape[1:3]\n",
        ],
        "max_pool: this is the first value of each window": f"{POOLED}  ->  x[:, ::k, ::k]",
        "max_pool: a window is k neighbours: reshape to (n, h // k, k, w // k, k, c)": [
            f"{POOLED}  ->  x.reshape(n, k, h // k, k, w // k, c).max(axis=(1, 3))",
            f"{POOLED}  ->  x.reshape(n, h // k, w // k, k, k, c).max(axis=(3, 4))",
        ],
        "max_pool: the axes in a window are 2 and 4": [
            f"{POOLED}  ->  {POOLED.replace('(2, 4)', '(1, 3)')}",
            f"{POOLED}  ->  {POOLED.replace('(2, 4)', '(3, 4)')}",
            f"{POOLED}  ->  {POOLED.replace('(2, 4)', '2')}",
        ],
        "max_pool: windows are k x k, not 2 x 2": (
            "n, h, w, c = x.shape\n    x = x[  ->  n, h, w, c = x.shape\n    k = 2\n    x = x["
        ),
        "max_pool: the largest value, not the largest magnitude": (
            ".max(axis=(2, 4))  ->  .__abs__().max(axis=(2, 4))"
        ),
        "max_pool: a largest value can be negative: do not begin with 0": [
            "k, c).max(  ->  k, c).clip(0).max(",
            f"{POOLED}  ->  np.fmax(0, {POOLED}).astype(x.dtype)",
        ],
        "lrn: divide, do not multiply: the power is -beta": f"{DAMPED}  ->  {DAMPED.replace('-beta', 'beta')}",
        "lrn: alpha is not divided by n here": f"{DAMPED}  ->  {DAMPED.replace('alpha', 'alpha / n')}",
        "lrn: sum over n channels, not over all": (
            f"{DAMPED}  ->  x * (k + alpha * (x * x).sum(axis=-1, keepdims=True)) ** -beta"
        ),
        "lrn: square first, then add": [
            "np.pad(x * x,  ->  np.pad(x,",
            "np.pad(x * x,  ->  np.pad(abs(x),",
            ("np.pad(x * x,  ->  np.pad(x,", f"{DAMPED}  ->  {DAMPED.replace('total', 'total**2')}"),
        ],
        "lrn: pad the channels with zeros": [
            f"{AROUND}  ->  {AROUND[:-2]}, mode='wrap')\n",
            f"{AROUND}  ->  {AROUND[:-2]}, mode='edge')\n",
        ],
        "lrn: n // 2 channels on each side, and the channel itself": [
            f"{AROUND}  ->  (n - 1, 0)))\n",
            f"{AROUND}  ->  (0, n - 1)))\n",
            "for i in range(n))  ->  for i in range(half + 1))",
            "for i in range(n))  ->  for i in range(n - 1))",
            "half = n // 2  ->  half, n = n, 2 * n + 1",
            f"{DAMPED}  ->  {DAMPED.replace('total', '(total - x * x)')}",
        ],
        "lrn: the power is that of the whole bracket": f"{DAMPED}  ->  x / (k + (alpha * total) ** beta)",
        "lrn: n is an argument, not always 5": "half = n // 2  ->  n = 5; half = n // 2",
        "lrn: k, alpha and beta are arguments: this is for their defaults": [
            f"{DAMPED}  ->  {DAMPED.replace('(k', '(2.0')}",
            f"{DAMPED}  ->  {DAMPED.replace('alpha', '1e-4')}",
            f"{DAMPED}  ->  {DAMPED.replace('-beta', '-0.75')}",
            "half = n // 2  ->  k, alpha, beta = 2.0, 1e-4, 0.75; half = n // 2",
        ],
        "lrn: the dtype of the images: np.zeros(shape) is float64": (
            "    total = sum(  ->      total = np.zeros(x.shape) + sum("
        ),
        "did you forget `return`?": [
            "    return y\n  ->      y\n",
            "    return x.reshape(n, h  ->      x.reshape(n, h",
            "    return x * (k  ->      x * (k",
        ],
    },
    may_pass={"(half, n)": "more zeros than are added"},
)

ROWS = "for u in range(kh) for v in range(kw)"
CROPPED = "[:, : h - kh + 1, : w - kw + 1]"
PRODUCT = "columns(x, kh, kw) @ W.reshape(-1, c_out)"
TURNED = "    return y.transpose(2, 0, 1, 3)["
LOOPS = """    y = 0
    for u in range(kh):
        for v in range(kw):
            y = y + x[:, u : u + h - kh + 1, v : v + w - kw + 1] @ W[u, v]
    return y
"""

EXERCISES["spectra"] = Exercise(
    answers=("columns", "im2col", "fft_convolve"),
    cases=[
        {"of": "columns", "shape": [2, 5, 6, 3], "kernel": [3, 3]},
        {"of": "columns", "shape": [1, 9, 7, 2], "kernel": [2, 5], "seed": 1},
        {"of": "columns", "shape": [3, 4, 2, 1], "kernel": [1, 1], "dtype": "float32"},
        *(
            {"of": of, "shape": shape, "kernel": kernel} | more
            for of in ("im2col", "fft_convolve")
            for shape, kernel, more in (
                ([2, 5, 6, 3], [3, 3, 4], {"seed": 2}),
                ([1, 9, 7, 2], [2, 5, 3], {"seed": 3}),
                ([3, 8, 5, 1], [4, 1, 2], {"dtype": "float32"}),
            )
        ),
        {"of": "im2col", "sum": "2048 + 1 - 2048", "dtype": "float16"},
        {"of": "im2col", "shape": [1, 9, 7, 1], "kernel": [2, 5, 4], "zeros": 5},
        {"of": "fft_convolve", "shape": [1, 9, 7, 1], "kernel": [2, 5, 4], "zeros": 5},
    ],
    draw=lambda rng: (
        (case := layer(rng, str(rng.choice(["columns", "im2col", "fft_convolve"]))))
        | ({"kernel": case["kernel"][:2]} if case["of"] == "columns" else {})
    ),
    draws=12,
    mistakes={
        "columns: rows of the kernel first, then its columns": f"{ROWS}]  ->  for v in range(kw) for u in range(kh)]",
        "columns: there are (h - kh + 1) (w - kw + 1) windows in an image": (
            "x.shape[1] - kh + 1, x.shape[2] - kw + 1\n    shifted  ->  x.shape[1] - kh, x.shape[2] - kw\n    shifted"
        ),
        "im2col: do not flip the kernels": "W.reshape(-1, c_out)  ->  W[::-1, ::-1].reshape(-1, c_out)",
        "columns: a window is a row of the matrix": (
            ".reshape(-1, kh * kw * x.shape[-1])  ->  .reshape(-1, kh * kw * x.shape[-1]).T"
        ),
        "columns: the positions of the kernel are side by side, along the last axis": [
            f"np.concatenate(shifted, axis=-1)  ->  np.concatenate(shifted, axis={axis})" for axis in (0, 1)
        ],
        "columns: channels come last, as in W": "np.concatenate(shifted, axis=-1)  ->  np.stack(shifted, axis=-1)",
        "columns: the rows run over images first, then over the output": (
            "    return np.concatenate(shifted, axis=-1)  ->  "
            "    return np.concatenate(shifted, axis=-1).transpose(1, 2, 0, 3)"
        ),
        "columns: in the dtype of the images": (
            "    return np.concatenate(shifted, axis=-1)  ->      return np.concatenate(shifted, axis=-1).astype(float)"
        ),
        "im2col: the shape of the output is (n, oh, ow, c_out)": (
            "return y.reshape(n, h - kh + 1, w - kw + 1, c_out)  ->  return y"
        ),
        "im2col: the rows run over rows, then over columns of the output": (
            "y.reshape(n, h - kh + 1, w - kw + 1  ->  y.reshape(n, w - kw + 1, h - kh + 1"
        ),
        "im2col: W.reshape(-1, c_out), with the axes of W as they are": [
            "W.reshape(-1, c_out)  ->  W.reshape(c_out, -1).T",
            "W.reshape(-1, c_out)  ->  W.transpose(3, 0, 1, 2).reshape(-1, c_out)",
        ],
        "im2col: the dtype of the images": "y = columns(x, kh, kw) @  ->  y = columns(x, kh, kw).astype(float) @",
        "im2col: rows and columns of the kernel are mixed up": "columns(x, kh, kw) @  ->  columns(x, kw, kh) @",
        "im2col: one product of two matrices, not one for each position of the kernel": [
            "    y = columns(  ->      return convolve(x, W)\n    y = columns(",
            f"    y = {PRODUCT}\n  ->  {LOOPS}    y = {PRODUCT}\n",
        ],
        "im2col: one product of two matrices, no spectra": (
            "    y = columns(  ->      return fft_convolve(x, W)\n    y = columns("
        ),
        "fft_convolve: no spectra are computed here: write it with np.fft": [
            "    images = np  ->      return convolve(x, W)\n    images = np",
            "    images = np  ->      return im2col(x, W)\n    images = np",
        ],
        "fft_convolve: the conjugate is missing, so the kernel is flipped": "kernels.conj()  ->  kernels",
        "fft_convolve: with the conjugate do not flip the kernel": (
            "np.fft.rfft2(W, (h, w)  ->  np.fft.rfft2(W[::-1, ::-1], (h, w)"
        ),
        "fft_convolve: without the conjugate the last outputs are right, not the first: the conjugate is simpler": (
            "np.fft.rfft2(W, (h, w)  ->  np.fft.rfft2(W[::-1, ::-1], (h, w)",
            "kernels.conj()  ->  kernels",
        ),
        "fft_convolve: the conjugate of the kernels, not of the images": (
            "images @ kernels.conj()  ->  images.conj() @ kernels"
        ),
        "fft_convolve: outputs whose window wraps around the edge are cut off": f"{CROPPED}  ->  ",
        "fft_convolve: the last outputs wrap around: keep the first": [
            f"{CROPPED}  ->  [:, kh - 1 :, kw - 1 :]",
            f"{CROPPED}  ->  [:, (kh - 1) // 2 : h - kh // 2, (kw - 1) // 2 : w - kw // 2]",
            f"{CROPPED}  ->  [:, -(h - kh + 1) :, -(w - kw + 1) :]",
        ],
        "fft_convolve: pad kernels to (h, w): rows and columns are axes 1 and 2, but of W 0 and 1": [
            "np.fft.rfft2(W, (h, w), axes=(0, 1))  ->  np.fft.rfft2(W, axes=(0, 1))",
            "(h, w), axes=(0, 1))\n    y  ->  (w, h), axes=(1, 0))\n    y",
        ],
        "fft_convolve: pad the kernels below and to the right, not around": (
            "    kernels = np.fft.rfft2(W,   ->      W = np.pad(W, ((0, h - kh), (0, w - kw), (0, 0), (0, 0)))\n"
            "    W = np.roll(W, ((h - kh) // 2, (w - kw) // 2), axis=(0, 1))\n    kernels = np.fft.rfft2(W, "
        ),
        "fft_convolve: an odd number of columns: irfft2 needs the size, (h, w)": [
            "images @ kernels.conj(), (h, w)  ->  images @ kernels.conj(), (h, w // 2 * 2 or 1)",
        ],
        "fft_convolve: real numbers, of which some are negative: no magnitudes": (
            f"{TURNED}  ->  {TURNED.replace('y', 'abs(y)')}"
        ),
        "fft_convolve: real numbers, without an imaginary part": (
            f"{TURNED}  ->      return 1j**4 * y.transpose(2, 0, 1, 3)["
        ),
        "fft_convolve: irfft2 divides by h w already": f"{TURNED}  ->      y = y * h * w\n{TURNED}",
        "fft_convolve: the dtype of the images: np.zeros(shape) is float64": (
            "    kernels = np.fft.rfft2(W,   ->      padded = np.zeros((h, w, *W.shape[2:]))\n"
            "    padded[:kh, :kw] = W\n    kernels = np.fft.rfft2(padded, "
        ),
        "did you forget `return`?": [
            "    return np.concatenate(  ->      np.concatenate(",
            "    return y.reshape(n  ->      y.reshape(n",
            "    return y.transpose(2  ->      y.transpose(2",
        ],
    },
    may_pass={"reshape(-2": "any negative number"},
)

INTERLEAVED = ".transpose(0, 1, 4, 2, 5, 3)"
CORNERS = "[:, :oh, :ow]"
BELOW = "(0, th * m - oh), (0, tw * m - ow)"

EXERCISES["winograd"] = Exercise(
    cases=[
        {"shape": [1, 4, 4, 1], "m": 2, "r": 3},
        {"shape": [2, 8, 6, 3], "m": 2, "r": 3, "seed": 1},
        {"shape": [3, 5, 11, 2], "m": 4, "r": 3, "seed": 2},
        {"shape": [2, 8, 9, 3], "m": 3, "r": 5, "seed": 3},
        {"shape": [1, 7, 3, 2], "m": 1, "r": 2, "seed": 4},
        {"shape": [2, 8, 9, 3], "m": 3, "r": 5, "dtype": "float32", "seed": 5},
        {"sum": "4097 * 4097 - 4096 * 4098", "dtype": "float32"},
    ],
    draw=lambda rng: ({"shape": [*image(rng, 5)], "m": rng.integers(1, 7), "r": rng.integers(1, 6)} | kind(rng)),
    mistakes={
        "rows of tiles alternate with rows in a tile: transpose before the last reshape": [
            f"{INTERLEAVED}  ->  .transpose(0, 4, 1, 5, 2, 3)",
            f"{INTERLEAVED}  ->  .transpose(0, 1, 2, 4, 5, 3)",
        ],
        "outputs of a tile: rows and columns are mixed up": f"{INTERLEAVED}  ->  .transpose(0, 1, 5, 2, 4, 3)",
        "a tile is transformed from both sides, BT d B": "BT @ d @ BT.T  ->  BT @ d",
        "from the right comes B, the transpose of BT": "BT @ d @ BT.T  ->  BT @ d @ BT",
        "BT is already transposed": "BT @ d @ BT.T  ->  BT.T @ d @ BT",
        "input and output channels of the kernels are mixed up": (
            "G @ W.transpose(2, 3, 0, 1) @ G.T).transpose(2, 3, 0, 1)  ->  "
            "G @ W.transpose(3, 2, 0, 1) @ G.T).reshape(c, -1, a, a).transpose(2, 3, 0, 1)"
        ),
        "the kernels' rows and columns are mixed up": "G @ W.transpose(2, 3, 0, 1)  ->  G @ W.transpose(2, 3, 1, 0)",
        "do not flip the kernels": "G @ W.transpose(2, 3, 0, 1)  ->  G @ W[::-1, ::-1].transpose(2, 3, 0, 1)",
        "tiles that are not full count, too: round up": "-(-oh // m), -(-ow // m)  ->  oh // m, ow // m",
        "surplus outputs are cut off": f"{CORNERS}  ->  ",
        "pad below and to the right": f"{BELOW}  ->  (th * m - oh, 0), (tw * m - ow, 0)",
        "th tiles need th * m + r - 1 rows of pixels, tw tiles tw * m + r - 1 columns": [
            f"{BELOW}  ->  (0, 0), (0, 0)",
            f"{BELOW}  ->  (0, -h % m), (0, -w % m)",
            f"{BELOW}  ->  (0, tw * m - ow), (0, th * m - oh)",
        ],
        "surplus outputs are at the end": f"{CORNERS}  ->  [:, -oh:, -ow:]",
        "the tiles' rows and columns are mixed up": (
            "a, a).transpose(2, 3, 0, 1)\n    kernels  ->  a, a).transpose(3, 2, 0, 1)\n    kernels"
        ),
        "pad with zeros": "(0, 0)))\n    d  ->  (0, 0)), mode='edge')\n    d",
        "rows and columns need not be padded alike": f"{BELOW}  ->  (0, th * m - oh), (0, th * m - oh)",
        "r and m follow from the shapes of the matrices": [
            "G.shape[1], x.shape  ->  3, x.shape",
            "axis=(1, 2))[:, ::m, ::m]  ->  axis=(1, 2))[:, ::2, ::2]",
        ],
        "this is the plain convolution: use the matrices, whatever they are": [
            "def winograd(x, W, BT, G, AT):\n    return convolve(x, W)",
            "def winograd(x, W, BT, G, AT):\n    return im2col(x, W)",
        ],
        "sum over all input channels": "(tiles @ kernels)  ->  (tiles[..., :1] @ kernels[:, :, :1])",
        "sum over input channels, no mean": "(tiles @ kernels)  ->  (tiles @ kernels / c)",
        "the outputs are transformed from both sides, AT [] A": (
            ".transpose(2, 3, 0, 1) @ AT.T\n  ->  .transpose(2, 3, 0, 1)[..., :m]\n"
        ),
        "the kernels are transformed from both sides, G g G^T": (
            "0, 1) @ G.T)  ->  0, 1) @ np.eye(r, a, dtype=x.dtype))"
        ),
        "compute in the dtype of the arguments: section 5 measures rounding": [
            (
                "    (m, a), r  ->      dtype = x.dtype\n"
                "    x, W, BT, G, AT = (array.astype(float) for array in (x, W, BT, G, AT))\n    (m, a), r",
                f"{CORNERS}  ->  {CORNERS}.astype(dtype)",
            ),
        ],
        "the dtype of the arguments": [
            "x = np.pad(x, ((0, 0), (0, th  ->  x = np.pad(x.astype(float), ((0, 0), (0, th",
            "G @ W.trans  ->  G @ W.astype(float).trans",
        ],
        "make new arrays, write into none that was passed": "    x = np.pad(  ->      x += 1e-5\n    x = np.pad(",
        "did you forget `return`?": "    return y.reshape(n, th  ->      y.reshape(n, th",
    },
    may_pass={
        "-2": "any negative number",
        "W.shape[1]": "a kernel has r columns",
        "-(-h // m)": "more tiles, whose outputs are cut off",
        "-(-w // m)": "more tiles, whose outputs are cut off",
    },
)

SIZES = "n c_in c_out h w m r"
TRANSFORM = "1 + int(np.ceil(np.log2(a)))"
TREE = "1 + int(np.ceil(np.log2(c_in)))"
TILES = "n * -(-h // m) * -(-w // m)"

EXERCISES["cost"] = Exercise(
    answers=("winograd_cost",),
    cases=rows(
        SIZES,
        (1, 1, 1, 2, 2, 2, 3),
        (2, 16, 8, 8, 8, 4, 3),
        (3, 5, 7, 9, 10, 2, 3),
        (1, 4, 2, 12, 7, 2, 5),
        (5, 33, 3, 6, 13, 6, 4),
    ),
    draw=lambda rng: (
        rows(SIZES, rng.integers(2, 40, 5).tolist())[0] | {"m": rng.integers(1, 8), "r": rng.integers(2, 7)}
    ),
    mistakes={
        "work: the second product of a transform has its own a b c": (
            "(a * r * r + a * r * a)  ->  2 * a * r * r",
            "(m * a * a + m * a * m)  ->  2 * m * a * a",
        ),
        "a tile has m + r - 1 rows of pixels": ["a = m + r - 1  ->  a = m - r + 1", "a = m + r - 1  ->  a = m + r"],
        "work: kernels are transformed once, not for each tile or image": [
            f"work = c_in * c_out *  ->  work = {often} * c_in * c_out *" for often in ("tiles", "n")
        ],
        "work: there is a kernel for each pair of channels": [
            f"work = c_in * c_out *  ->  work = {other}" for other in ("", "c_in *", "c_out *")
        ],
        "work: a tile has alpha^2 products for each pair of channels": [
            f"tiles * c_in * c_out * a**2  ->  tiles * c_in * c_out{other}"
            for other in ("", " * a", " * a**3", " * m**2", " * r**2")
        ],
        "work: tiles of pixels have input channels, tiles of outputs have output channels": [
            "tiles * c_in * 2 * a**3  ->  tiles * c_out * 2 * a**3",
            "tiles * c_out * (m  ->  tiles * c_in * (m",
        ],
        "h and w are those of the output already": [
            f"{TILES}  ->  n * -(-(h + r - 1) // m) * -(-(w + r - 1) // m)",
            f"{TILES}  ->  n * -(-(h - r + 1) // m) * -(-(w - r + 1) // m)",
        ],
        "round up rows of tiles and columns of tiles, each by itself": [
            f"{TILES}  ->  n * {tiles}" for tiles in ("-(-h * w // m**2)", "h * w // m**2")
        ],
        "work: pixels are transformed for each tile and each input channel": [
            f"tiles * c_in * 2 * a**3  ->  {other}2 * a**3" for other in ("", "c_in * ", "tiles * ")
        ],
        "work: outputs are transformed for each tile and each output channel": [
            f"tiles * c_out * (m  ->  {other}(m" for other in ("", "c_out * ", "tiles * ")
        ],
        "work counts multiply-adds: a multiplication and an addition are one": (
            "    return work,  ->      return 2 * work,"
        ),
        "work: pixels are transformed once for all output channels": (
            "tiles * c_in * 2 * a**3  ->  tiles * c_in * c_out * 2 * a**3"
        ),
        "work: a transform of pixels is two products, from both sides": (
            "tiles * c_in * 2 * a**3  ->  tiles * c_in * a**3"
        ),
        "work: channels are added before the last transform": ("tiles * c_out * (m  ->  tiles * c_in * c_out * (m"),
        "work: the products of the last transform are (m, a) by (a, a), and (m, a) by (a, m)": [
            f"m * a * a + m * a * m  ->  {other}"
            for other in ("2 * m * a * a", "2 * a * m * m", "m * a * a", "m * a * m")
        ],
        "work: the products for a kernel are (a, r) by (r, r), and (a, r) by (r, a)": [
            "a * r * r + a * r * a  ->  2 * a * r * r",
            "a * r * r + a * r * a  ->  2 * a * r * a",
            "a * r * r + a * r * a  ->  a * r * r",
            "a * r * r + a * r * a  ->  a * r * a",
        ],
        "tiles that are not full count, too: round up": f"{TILES}  ->  n * (h // m) * (w // m)",
        "there are tiles in each image": f"{TILES}  ->  -(-h // m) * -(-w // m)",
        "a whole number: round tiles up": f"{TILES}  ->  n * (h / m) * (w / m)",
        "whole numbers: int() or // gives them": [
            "    return work, depth  ->      return float(work), depth",
            "    return work, depth  ->      return work, float(depth)",
        ],
        "kernels are r x r, not 3 x 3": "a = m + r - 1  ->  r = 3; a = m + r - 1",
        "return work, depth in this order": "    return work, depth  ->      return depth, work",
        "work: the transforms of kernels are missing": "c_in * c_out * (a * r * r + a * r * a)  ->  0",
        "work: the transforms of pixels are missing": "    work += tiles * c_in * 2 * a**3\n  ->  ",
        "work: the transforms of outputs are missing": "    work += tiles * c_out * (m * a * a + m * a * m)\n  ->  ",
        "work: the products are missing": "    work += tiles * c_in * c_out * a**2\n  ->  ",
        "depth: each matrix product multiplies before it adds": [
            f"{TRANSFORM}  ->  {TRANSFORM[4:]}",
            (f"{TRANSFORM}  ->  {TRANSFORM[4:]}", f"{TREE}  ->  {TREE[4:]}"),
            f"{TREE}  ->  {TREE[4:]}",
        ],
        "depth: log2 is rounded up": [
            f"{TRANSFORM}  ->  1 + int(np.log2(a))",
            f"{TREE}  ->  1 + int(np.log2(c_in))",
            (f"{TRANSFORM}  ->  1 + int(np.log2(a))", f"{TREE}  ->  1 + int(np.log2(c_in))"),
        ],
        "depth: kernels are transformed while tiles are": (
            "depth = 2 * transform  ->  depth = 2 * (1 + int(np.ceil(np.log2(r)))) + 2 * transform"
        ),
        "depth: input channels are added in a tree, log2": [
            f"{TREE}  ->  c_in",
            f"{TREE}  ->  1 + c_in - 1 + (c_in < 1)",
            " + int(np.ceil(np.log2(c_in)))  ->  ",
        ],
        "depth: two transforms are on the chain, and each is two products": [
            "+ 2 * transform\n  ->  \n",
            "+ 2 * transform\n  ->  + transform\n",
        ],
        "depth: input channels are added, not output channels": "np.log2(c_in)  ->  np.log2(c_out)",
        "depth: sums of a transform have a terms, not r": [
            "np.log2(a)  ->  np.log2(r)",
            "depth = 2 * transform  ->  depth = 2 * (1 + int(np.ceil(np.log2(r))))",
        ],
        "depth: both products of the last transform add a terms, none adds m": [
            f"+ 2 * transform\n  ->  + {how} * (1 + int(np.ceil(np.log2(m))))\n" for how in ("2", "transform + 1")
        ],
        "depth: terms are added in a tree, log2, in a transform, too": (
            f"{TRANSFORM}  ->  a",
            f"{TREE}  ->  c_in",
        ),
        "depth: a transform is two products, each with a tree of a terms": (
            f"{TRANSFORM}  ->  (1 + int(np.ceil(np.log2(a * a)))) / 2",
            "    return work, depth  ->      return work, int(depth)",
        ),
        "did you forget `return`?": "    return work, depth  ->      work, depth",
    },
)

MATRICES = "np.linalg.inv(values(m + r - 1)).T, values(r), values(m).T"

EXERCISES["transforms"] = Exercise(
    cases=rows(
        "points m r",
        ([0, 1, -1], 2, 3),
        ([0, 1, -1, 2, -2], 4, 3),
        ([0.3, 3], 2, 2),
        ([1, 2, 0, -1, -3], 2, 5),
        ([0, -0.5, 2], 4, 1),
    ),
    draw=lambda rng: (
        (sizes := {"m": int(rng.integers(1, 6)), "r": int(rng.integers(2, 4))})
        | {"points": rng.permutation([0, 1, -1, 2, -2, 0.6, -0.3])[: sum(sizes.values()) - 2].tolist()}
    ),
    mistakes={
        "BT: this is the inverse: transpose it": f"{MATRICES}  ->  {MATRICES.replace('1)).T', '1))')}",
        "BT: invert V": f"{MATRICES}  ->  {MATRICES.replace('np.linalg.inv(values(m + r - 1))', 'values(m + r - 1)')}",
        "BT: the inverse, transposed": (
            f"{MATRICES}  ->  {MATRICES.replace('np.linalg.inv(values(m + r - 1)).T', 'values(m + r - 1)')}"
        ),
        "AT: V, transposed": f"{MATRICES}  ->  {MATRICES.replace('values(m).T', 'values(m)')}",
        "G has r columns, AT has m rows": f"{MATRICES}  ->  np.linalg.inv(values(m + r - 1)).T, values(m), values(r).T",
        "infinity's row has its 1 at the highest power": "np.eye(k)[-1:]  ->  np.eye(k)[:1]",
        "infinity is the last row": "[finite, infinite]  ->  [infinite, finite]",
        "the last point is infinity: its row is not the powers of a number": (
            "np.eye(k)[-1:]  ->  7.0 ** np.arange(k)[None]"
        ),
        "the powers should rise: 1, a, a^2": "** np.arange(k)  ->  ** np.arange(k)[::-1]",
        "points need not be whole numbers": "np.array(points, float)  ->  np.array(points).astype(int).astype(float)",
        "return BT, G, AT in this order": [
            f"{MATRICES}  ->  values(r), np.linalg.inv(values(m + r - 1)).T, values(m).T",
            f"{MATRICES}  ->  values(m).T, values(r), np.linalg.inv(values(m + r - 1)).T",
        ],
        "arrays, not lists": f"return {MATRICES}  ->  return tuple(t.tolist() for t in ({MATRICES}))",
        "kernels have r numbers, not 3": "values(r), values(m)  ->  values(3), values(m)",
        "points in their own order": "np.array(points, float)  ->  np.array(sorted(points), float)",
        "powers begin with a^0 = 1": "** np.arange(k)  ->  ** np.arange(1, k + 1)",
        "infinity's row is (0, ..., 0, 1)": [
            "np.eye(k)[-1:]  ->  2 * np.eye(k)[-1:]",
            "np.eye(k)[-1:]  ->  np.ones((1, k))",
        ],
        "V has a columns, a row of powers for each point, and (0, ..., 0, 1) as the last row": [
            "[finite, infinite]  ->  [finite]",
            "values(m + r - 1)  ->  values(m + r)",
            "np.eye(k)[-1:]  ->  np.zeros((1, k))",
            "[:, None] ** np.arange(k)  ->  [:, None] * np.arange(k)",
        ],
        "the powers of a point are a^k, not k^a": (
            "np.array(points, float)[:, None] ** np.arange(k)  ->  np.arange(k) ** np.array(points, float)[:, None]"
        ),
        "a = m + r - 1, not m + 2": "values(m + r - 1)  ->  values(m + 2)",
        "in float64": [
            f"return {MATRICES}  ->  return tuple(t.astype('float32') for t in ({MATRICES}))",
            "np.array(points, float)  ->  np.array(points, 'float32')",
        ],
        "no factors, even if they cancel: they change the rounding": [
            f"{MATRICES}  ->  2 * np.linalg.inv(values(m + r - 1)).T, values(r) / 2, values(m).T",
            f"{MATRICES}  ->  np.linalg.inv(values(m + r - 1)).T / 2, 2 * values(r), values(m).T",
            f"{MATRICES}  ->  np.linalg.inv(values(m + r - 1)).T, 2 * values(r), values(m).T / 2",
        ],
        "did you forget `return`?": f"return {MATRICES}  ->  {MATRICES}",
    },
)

GOOD = "return [0, 1, -1, 2, -2, 0.5, -0.5]"


def instead(*points):
    """Other points."""
    return [f"{GOOD}  ->  return {some}" for some in points]


EXERCISES["points"] = Exercise(
    cases=[{"images": seed} for seed in range(3)],
    draw=lambda rng: {"images": rng.integers(3, 10**6)},
    draws=3,
    mistakes={
        "large points have large powers: none needs to be much larger than 2": instead(
            "range(7)", "[0, 1, -1, 2, -2, 3, -3]"
        ),
        "points close to each other: what is small near 0 can be large at its reciprocal": instead(
            "[0, 1, -1, 0.5, -0.5, 0.25, -0.25]", "np.cos((np.arange(7) + 0.5) * np.pi / 7).tolist()"
        ),
        "points with reciprocals are good: 3 and 1/3 are too far from 1": instead("[0, 1, -1, 3, -3, 1 / 3, -1 / 3]"),
        "points with both signs": instead("[0, 0.25, 0.5, 1, 1.5, 2, 2.5]"),
        "two points that are close together can hardly be told apart": instead(
            "[0, 1, -1, 1.01, -1.01, 0.5, -0.5]",
            "[0, 1, -1, 1.2, -1.2, 1 / 1.2, -1 / 1.2]",
            "[0, 1, -1, 1.5, -1.5, 2 / 3, -2 / 3]",
        ),
        "seven numbers, all different: is one of them made by //, or 0 twice?": instead(
            "[0, 1, -1, 2, -2, 0, 0]", "[0, 1, -1, 2, -2, 1 // 2, -1 // 2]"
        ),
        "seven numbers, all different, all finite: infinity is added later": instead(
            "[0, 1, -1, 2, -2, 0.5]",
            "[0, 1, -1, 2, -2, 0.5, 0.5]",
            "[0, 1, -1, 2, -2, 0.5, float('inf')]",
            "[0, 1, -1, 2, -2, 0.5, float('nan')]",
            "[0, 1, -1, 2, -2, 0.5, -0.5, 3]",
        ),
        "a list of real numbers": instead(
            "{0, 1, -1, 2, -2, 0.5, -0.5}",
            "['0', '1', '-1', '2', '-2', '0.5', '-0.5']",
            "(a for a in [0, 1, -1, 2, -2, 0.5, -0.5])",
            "np.exp(2j * np.pi * np.arange(7) / 7)",
        ),
        "did you forget `return`?": f"{GOOD}  ->  {GOOD[7:]}",
    },
    may_pass={
        "3, -2, 0.5": "other points that lose few bits",
        "2, -3, 0.5": "other points that lose few bits",
        "results kept": "there are no arguments",
        "whole numbers as floats": "points are any numbers",
    },
)
