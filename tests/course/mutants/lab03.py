"""Wrong answers to lab 03."""

PLACE = "x[:, u : u + oh, v : v + ow] @ W[u, v]"
CUT = "    x = x[:, : h // k * k, : w // k * k]\n"
POOLED = "x.reshape(n, h // k, k, w // k, k, c).max(axis=(2, 4))"
DAMPED = "x * (k + alpha * total) ** -beta"
SHIFTED = "for u in range(kh) for v in range(kw)]\n    return np.concatenate"
CROPPED = "[:, : h - kh + 1, : w - kw + 1]"
CORNERS = "[:, :oh, :ow]"
INTERLEAVED = ".transpose(0, 1, 4, 2, 5, 3)"
MATRICES = "np.linalg.inv(values(m + r - 1)).T, values(r), values(m).T"
COLUMNS = """
def columns(x, kh, kw):
    oh, ow = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    shifted = [x[:, u : u + oh, v : v + ow] for u in range(kh) for v in range(kw)]
    return np.concatenate(shifted, axis=-1).reshape(-1, kh * kw * x.shape[-1])
"""

MUTANTS = {
    "windows": [
        ("kernel turned", (PLACE, PLACE.replace("W[u, v]", "W[kh - 1 - u, kw - 1 - v]"))),
        ("kernel transposed", (PLACE, PLACE.replace("W[u, v]", "W[v % kh, u % kw]"))),
        ("square kernels", ("kh, kw = W.shape[:2]\n    oh", "kh = kw = W.shape[0]\n    oh")),
        ("last place only", ("y = y + x[", "y = x[")),
        ("a row too few", ("oh, ow = x.shape[1] - kh + 1", "oh, ow = x.shape[1] - kh")),
        ("3 x 3 only", (PLACE, f"(u < 3) * {PLACE[:-7]}W[u, v] * (v < 3)")),
        ("into float64", ("    y = 0\n", "    y = np.zeros((len(x), oh, ow, W.shape[3]))\n")),
        ("mean", (POOLED, POOLED.replace(".max(", ".mean("))),
        ("least", (POOLED, POOLED.replace(".max(", ".min("))),
        ("whole windows only", (CUT, "")),
        ("windows apart", (POOLED, "x[:, ::k, ::k]")),
        ("axes mixed up", (POOLED, "x.reshape(n, k, h // k, k, w // k, c).max(axis=(1, 3))")),
        ("windows of 2", ("n, h, w, c = x.shape\n", "n, h, w, c = x.shape\n    k = 2\n")),
        ("multiplied", (DAMPED, "x * (k + alpha * total) ** beta")),
        ("alpha / n", (DAMPED, "x * (k + alpha / n * total) ** -beta")),
        ("all channels", (DAMPED, "x * (k + alpha * (x * x).sum(axis=-1, keepdims=True)) ** -beta")),
        ("not squared", ("np.pad(x * x,", "np.pad(x,")),
        ("around the end", ("(half, half)))\n", "(half, half)), mode='wrap')\n")),
        ("one side", ("(half, half)))\n", "(n - 1, 0)))\n")),
        ("five channels", ("half = n // 2", "n = 5; half = n // 2")),
        ("constants of its own", ("half = n // 2", "k, alpha, beta = 2.0, 1e-4, 0.75; half = n // 2")),
    ],
    "spectra": [
        (
            "columns before rows",
            (
                SHIFTED,
                SHIFTED.replace("for u in range(kh) for v in range(kw)", "for v in range(kw) for u in range(kh)"),
            ),
        ),
        ("a column each", (".reshape(-1, kh * kw * x.shape[-1])", ".reshape(-1, kh * kw * x.shape[-1]).T")),
        ("channel by channel", ("np.concatenate(shifted, axis=-1)", "np.stack(shifted, axis=-1)")),
        ("rows and columns", ("return y.reshape(n, h - kh + 1, w - kw + 1, c_out)", "return y")),
        (
            "turned image",
            ("y.reshape(n, h - kh + 1, w - kw + 1, c_out)", "y.reshape(n, w - kw + 1, h - kh + 1, c_out)"),
        ),
        ("the definition again", "im2col = fft_convolve = convolve\n" + COLUMNS),
        ("no conjugate", ("kernels.conj()", "kernels")),
        ("not cut off", (CROPPED, "")),
        ("cut off before", (CROPPED, "[:, kh - 1 :, kw - 1 :]")),
        ("padding around", (CROPPED, "[:, (kh - 1) // 2 : h - kh // 2, (kw - 1) // 2 : w - kw // 2]")),
        ("spectra transposed", ("(h, w), axes=(0, 1))\n    y", "(w, h), axes=(1, 0))\n    y")),
        ("even only", ("images @ kernels.conj(), (h, w)", "images @ kernels.conj(), (h, w // 2 * 2)")),
        ("conjugate of images", ("images @ kernels.conj()", "images.conj() @ kernels")),
    ],
    "winograd": [
        ("tiles in disorder", (INTERLEAVED, ".transpose(0, 4, 1, 5, 2, 3)")),
        ("tiles transposed", (INTERLEAVED, ".transpose(0, 1, 5, 2, 4, 3)")),
        ("one side", ("BT @ d @ BT.T", "BT @ d")),
        ("BT twice", ("BT @ d @ BT.T", "BT @ d @ BT")),
        ("BT transposed", ("BT @ d @ BT.T", "BT.T @ d @ BT")),
        ("channels turned", ("G @ W.transpose(2, 3, 0, 1) @ G.T", "G @ W.transpose(2, 3, 1, 0) @ G.T")),
        ("kernel transposed", ("W.transpose(2, 3, 0, 1)", "W.transpose(3, 2, 0, 1).transpose(1, 0, 3, 2)")),
        ("whole tiles only", ("-(-oh // m), -(-ow // m)", "oh // m, ow // m")),
        ("not cut off", (CORNERS, "")),
        ("padded before", ("(0, th * m - oh), (0, tw * m - ow)", "(th * m - oh, 0), (tw * m - ow, 0)")),
        (
            "padded into float64",
            ("    x = np.pad(x, ((0, 0), (0, th * m", "    x = np.pad(x.astype(float), ((0, 0), (0, th * m"),
        ),
        ("3 x 3 kernels", ("G.shape[1], x.shape", "3, x.shape")),
        ("tiles of 2", ("axis=(1, 2))[:, ::m, ::m]", "axis=(1, 2))[:, ::2, ::2]")),
        ("no tiles", "def winograd(x, W, BT, G, AT):\n    return convolve(x, W)"),
        ("one channel", ("(tiles @ kernels)", "(tiles[..., :1] @ kernels[:, :, :1])")),
    ],
    "cost": [
        ("printed alpha", ("a = m + r - 1", "a = m - r + 1")),
        ("kernels per tile", ("work = c_in * c_out *", "work = tiles * c_in * c_out *")),
        ("kernels once", ("work = c_in * c_out *", "work =")),
        ("one product a tile", ("tiles * c_in * c_out * a**2", "tiles * c_in * c_out")),
        ("pixels for each output", ("tiles * c_in * 2 * a**3", "tiles * c_in * c_out * 2 * a**3")),
        ("one side of pixels", ("tiles * c_in * 2 * a**3", "tiles * c_in * a**3")),
        ("outputs for each input", ("tiles * c_out * (m", "tiles * c_in * c_out * (m")),
        ("square outputs", ("m * a * a + m * a * m", "2 * m * a * a")),
        ("tiles rounded down", ("n * -(-h // m) * -(-w // m)", "n * (h // m) * (w // m)")),
        ("one image", ("n * -(-h // m)", "-(-h // m)")),
        ("additions only", ("transform = 1 + int", "transform = int")),
        ("kernels first", ("depth = 2 * transform", "depth = 2 * (1 + int(np.ceil(np.log2(r)))) + 2 * transform")),
        ("no tree", ("1 + int(np.ceil(np.log2(c_in)))", "c_in")),
        ("one transform", ("+ 2 * transform\n", "\n")),
        ("3 x 3", ("a = m + r - 1", "r = 3; a = m + r - 1")),
    ],
    "transforms": [
        ("not transposed", (MATRICES, MATRICES.replace("1)).T", "1))"))),
        ("not inverted", (MATRICES, "values(m + r - 1).T, values(r), values(m).T")),
        ("AT as V", (MATRICES, MATRICES.replace("values(m).T", "values(m)"))),
        ("m and r swapped", (MATRICES, "np.linalg.inv(values(m + r - 1)).T, values(m), values(r).T")),
        ("infinity at 1", ("np.eye(k)[-1:]", "np.eye(k)[:1]")),
        ("infinity first", ("[finite, infinite]", "[infinite, finite]")),
        ("no infinity", ("np.eye(k)[-1:]", "7.0 ** np.arange(k)[None]")),
        ("falling powers", ("** np.arange(k)", "** np.arange(k)[::-1]")),
        ("whole points", ("np.array(points, float)", "np.array(points).astype(int).astype(float)")),
        ("order of values", (MATRICES, "values(r), np.linalg.inv(values(m + r - 1)).T, values(m).T")),
    ],
    "points": [
        ("counted", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, 2, 3, 4, 5, 6]")),
        ("signs", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, -1, 2, -2, 3, -3]")),
        ("near 0", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, -1, 0.5, -0.5, 0.25, -0.25]")),
        ("six", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, -1, 2, -2, 0.5]")),
        ("one twice", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, -1, 2, -2, 0.5, 0.5]")),
        ("infinity", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, -1, 2, -2, 0.5, float('inf')]")),
        ("thirds", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "[0, 1, -1, 3, -3, 1 / 3, -1 / 3]")),
        ("Chebyshev's", ("[0, 1, -1, 2, -2, 0.5, -0.5]", "np.cos((np.arange(7) + 0.5) * np.pi / 7).tolist()")),
    ],
}
