"""Random layers, shapes and options against PyTorch: outputs, gradients, statistics; NaN and infinity in the input."""

import numpy as np
import pytest

from distlearn import nn

torch = pytest.importorskip("torch", reason="torch is not installed (the extra 'bench')")
F = torch.nn.functional
ROUNDING = {"float32": 1e-4, "float64": 1e-10}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:TF32:UserWarning")  # of NaN; of the fixture


@pytest.fixture(autouse=True)
def plain_torch():
    """oneDNN reads beyond small images in float32 where the stride is 3 across: PyTorch 2.13 differs from itself."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


class Draw:
    """Random choices of one case."""

    def __init__(self, *seed):
        self.rng = np.random.default_rng(seed)
        self.dtype = self.of("float32", "float64")

    def of(self, *options):
        return options[self.rng.integers(len(options))]

    def n(self, low, high):
        """A whole number, `high` included."""
        return int(self.rng.integers(low, high + 1))

    def pair(self, low, high):
        return self.n(low, high), self.n(low, high)

    def values(self, *shape, special=False):
        x = (self.rng.normal(size=shape) * self.of(1, 1e-3, 30)).astype(self.dtype)
        if special:
            x.flat[self.n(0, x.size - 1)] = self.of(np.nan, np.inf, -np.inf)
        return x


def chw(x):
    return torch.tensor(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).requires_grad_()


def hwc(t):
    return t.detach().numpy().transpose(0, 2, 3, 1)


def leaf(x):
    return torch.tensor(np.array(x, order="C")).requires_grad_()


def compared(special, t, want, got, dx, dy):
    """What every layer is compared in: its output and the gradient of its input."""
    yield "y", got, want.detach().numpy()
    if not special:
        want.backward(torch.tensor(dy))
        yield "dx", dx, t.grad.numpy()


def conv(draw, special):
    groups = draw.of(1, 1, 2, 3)
    c_in, c_out = groups * draw.n(1, 3), groups * draw.n(1, 3)
    size, padding = draw.pair(1, 5), draw.pair(0, 3)
    stride = draw.of((1, 1), draw.pair(1, 3))
    algorithm = draw.of("im2col", "direct") if special else draw.of(*nn.ALGORITHMS)
    if algorithm.startswith("winograd"):
        size, stride = (3, 3), (1, 1)
    if algorithm == "fft":
        stride = (1, 1)
    h, w = (max(1, k - 2 * p + draw.of(0, draw.n(0, 9))) for k, p in zip(size, padding, strict=True))  # from one output
    options = {"stride": stride, "padding": padding, "groups": groups}
    layer = nn.Conv2d(c_in, c_out, size, 1, algorithm=algorithm, dtype=draw.dtype, **options)
    x = draw.values(draw.n(1, 3), h, w, c_in, special=special)
    t, W = chw(x), leaf(layer.W.data.transpose(3, 2, 0, 1))
    b = leaf(layer.b.data)
    want = F.conv2d(t, W, b, **options)
    got, dx, dy = there_and_back(draw, layer, x)
    yield "y", got, hwc(want)
    if not special:
        want.backward(chw(dy))
        yield "dx", dx, hwc(t.grad)
        yield "dW", layer.W.grad, W.grad.numpy().transpose(2, 3, 1, 0)
        yield "db", layer.b.grad, b.grad.numpy()


def pool(draw, special):
    size = draw.pair(1, 4)
    stride, padding = draw.of(size, draw.pair(1, 4)), tuple(draw.n(0, k // 2) for k in size)
    h, w = (max(1, k - 2 * p + draw.n(0, 8)) for k, p in zip(size, padding, strict=True))
    x, ceil = draw.values(draw.n(1, 3), h, w, draw.n(1, 4), special=special), draw.of(True, False)
    t = chw(x)
    want = F.max_pool2d(t, size, stride, padding, ceil_mode=ceil)
    got, dx, dy = there_and_back(draw, nn.MaxPool(size, stride, padding=padding, ceil=ceil), x)
    yield "y", got, hwc(want)
    if not special:
        want.backward(chw(dy))
        yield "dx", dx, hwc(t.grad)


def norm(draw, special):
    shape, kind = (draw.n(2, 5), *(draw.n(1, 4) for _ in range(draw.n(0, 2))), draw.n(2, 6)), draw.of("b", "e", "l")
    x, c, eps, momentum = draw.values(*shape, special=special), shape[-1], draw.of(1e-5, 1e-3), draw.of(0.1, 1.0)
    if kind == "l":
        layer = nn.LayerNorm(c, eps=eps, dtype=draw.dtype)
    else:
        layer = nn.BatchNorm(c, eps=eps, momentum=momentum, dtype=draw.dtype)
    for p in layer.params:
        p.data[...] = draw.rng.random(c) + 0.5
    t, parts = leaf(x), [leaf(p.data) for p in layer.params]
    gamma, beta, *running = parts
    if kind == "l":
        want = F.layer_norm(t, (c,), gamma, beta, eps)
    else:
        running = [r.detach() for r in running]
        rows = t.reshape(-1, c)
        want = F.batch_norm(rows, *running, gamma, beta, kind == "b", momentum, eps).reshape(shape)
    yield from compared(special, t, want, *there_and_back(draw, layer.eval() if kind == "e" else layer, x))
    if not special:
        yield "dgamma", layer.gamma.grad, gamma.grad.numpy()
        yield "dbeta", layer.beta.grad, beta.grad.numpy()
        for p, r in zip(layer.params[2:], running, strict=True):
            yield p.name, p.data, r.numpy()


def response(draw, special):
    n, alpha, beta, k = draw.of(1, 3, 5), draw.of(1e-4, 0.1), draw.of(0.75, 0.5, 1.0), draw.of(1.0, 2.0)
    x = draw.values(draw.n(1, 9), draw.n(1, 7), special=special)
    t = leaf(x)
    want = F.local_response_norm(t[:, :, None], n, alpha * n, beta, k)[:, :, 0]
    yield from compared(
        special, t, want, *there_and_back(draw, nn.LocalResponseNorm(n, k=k, alpha=alpha, beta=beta), x)
    )


def recurrent(draw, special):
    d_in, d_hidden = draw.pair(1, 6)
    ours, theirs = draw.of((nn.RNN, torch.nn.RNN), (nn.GRU, torch.nn.GRU))
    layer, theirs = ours(d_in, d_hidden, 1, dtype=draw.dtype), theirs(d_in, d_hidden, batch_first=True)
    for p in layer.params:
        p.data[...] = draw.rng.normal(size=p.data.shape)
    theirs = theirs.to(getattr(torch, draw.dtype))
    state = nn.to_torch_state(nn.Sequential(layer))
    theirs.load_state_dict({name.split(".", 1)[1]: torch.tensor(array) for name, array in state.items()})
    x = draw.values(draw.n(1, 4), draw.n(1, 7), d_in, special=special)
    t = leaf(x)
    want = theirs(t)[0]
    yield from compared(special, t, want, *there_and_back(draw, layer, x))
    if not special:
        yield "dW", layer.W.grad, theirs.weight_ih_l0.grad.numpy().T
        yield "dU", layer.U.grad, theirs.weight_hh_l0.grad.numpy().T
        yield "db", layer.b.grad, theirs.bias_ih_l0.grad.numpy()


def activation(draw, special):
    x = draw.values(draw.n(1, 4), draw.n(1, 6), special=special) * np.asarray(draw.of(1, 1000), draw.dtype)
    t, name = leaf(x), draw.of("ReLU", "Sigmoid", "Tanh", "Softmax")
    want = getattr(torch, name.lower())(t, *[-1] * (name == "Softmax"))
    yield from compared(special, t, want, *there_and_back(draw, getattr(nn, name)(), x))


def loss(draw, special):
    batch, classes, time = draw.n(1, 5), draw.n(1, 5), draw.of((), (draw.n(1, 4),))
    n = batch + draw.n(0, 9)  # of the global batch
    x = draw.values(batch, *time, classes, special=special) * np.asarray(draw.of(1, 1000), draw.dtype)
    t, terms = leaf(x), n * int(np.prod(time))
    if draw.of(True, False):
        labels = draw.rng.integers(0, classes, x.shape[:-1])
        want = F.cross_entropy(t.reshape(-1, classes), torch.tensor(labels.reshape(-1)), reduction="sum") / terms
        got, dx = nn.SoftmaxCrossEntropy()(x, labels, n)
    else:
        targets = draw.values(*x.shape)
        want = F.mse_loss(t, torch.tensor(targets), reduction="sum") / (terms * classes)
        got, dx = nn.MeanSquaredError()(x, targets, n)
    want.backward()
    yield "loss", np.asarray(got, draw.dtype), want.detach().numpy()
    yield "dx", dx, t.grad.numpy()


def there_and_back(draw, layer, x):
    """Return the output, the gradient of the input, and that of the output."""
    y, saved = layer.forward(x.copy())
    dy = draw.rng.normal(size=y.shape).astype(draw.dtype)
    return y, layer.backward(dy.copy(), saved), dy


@pytest.mark.parametrize("special", [False, True], ids=["finite", "NaN and infinity"])
@pytest.mark.parametrize("kind", [conv, pool, norm, response, recurrent, activation, loss])
def test_layers(kind, special):
    for i in range(100):
        draw = Draw(i, special)
        for what, got, want in kind(draw, special):
            where = f"{kind.__name__}, case {i}: {what}"
            assert (got.shape, got.dtype) == (want.shape, want.dtype), where
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want), where)
            largest = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0.0))
            np.testing.assert_allclose(got, want, rtol=0, atol=ROUNDING[draw.dtype] * largest, err_msg=where)
