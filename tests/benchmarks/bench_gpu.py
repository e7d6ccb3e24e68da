"""One training step of every model on a GPU: against PyTorch eager, and both captured in CUDA graphs.

The step, the models, the data and the comparison of the first losses are those of `bench_layers`; every measured call
ends when the card has done its work. Products are float32 on both sides (no TF32).
"""

from __future__ import annotations

from distlearn import nn
from distlearn.backend import has_gpu, to_device
from distlearn.cuda.gpu.graph import capture
from distlearn.nn.loss import softmax_cross_entropy_rows
from distlearn.optim import SGD, Optimizer

from . import optional, paired, record
from .bench_layers import STEPS, batch_of, check_same_loss, our_step, torch_body, torch_step

torch = optional("torch")

NO_GPU = "skipped: needs an NVIDIA GPU (see distlearn doctor)"
NO_PEER = "PyTorch is not installed, or not for CUDA"
WARMUP = 3
"""Steps before a capture, on both sides."""


def on_gpu(array):
    """Copy to the card."""
    return to_device(array, "gpu")


def device_step(model, x, y):
    """Return a step that looks at no value on the host, so that it can be captured; it returns the rows' losses."""
    optimizer = Optimizer(model.params, SGD(), 0.01)

    def step():
        optimizer.zero_grad()
        out, saved = model.forward(x)
        losses, dy = softmax_cross_entropy_rows(out, y, y.size)
        model.backward(dy, saved)
        optimizer.step()
        return losses

    return step


def torch_captured(step):
    """Capture a step in PyTorch: warm up on a side stream, then record, as its documentation asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def finished(step, synchronize):
    """Return the step followed by a wait for the card, or None for no step."""
    if step is None:
        return None

    def call():
        step()
        synchronize()

    return call


def synchronize():
    """Wait until the card has done what CuPy asked of it."""
    import cupy

    cupy.cuda.Device().synchronize()


def compare(name, ours, theirs, note="") -> dict:
    """Time both sides turn by turn."""
    both = finished(ours, synchronize), finished(theirs, torch and torch.cuda.synchronize)
    ratio = paired(*both, repeats=51, warmup=5)
    said = f"PyTorch / ours = {1 / ratio:.2f}" if theirs else NO_PEER
    note = f"{said}; {note}" if note else said
    return record(name, "ms", ratio.ours * 1e3, ratio.peer and ratio.peer * 1e3, ratio=ratio, note=note)


def eager_record(name: str, n: int) -> dict:
    """The step as it is written."""
    model, (x, y) = nn.build(name), batch_of(name, n)
    theirs = torch_step(model, x, y, "cuda") if has_peer() else None
    ours = our_step(nn.fuse(nn.move(model, on_gpu)), on_gpu(x), on_gpu(y))
    if theirs:
        check_same_loss(name, ours(), theirs())
    return compare(f"{name} step on the GPU, batch {n}", ours, theirs)


def captured_record(name: str, n: int) -> dict:
    """The step in a CUDA graph; where it cannot be captured, the reason."""
    title = f"{name} step in a CUDA graph, batch {n}"
    model, (x, y) = nn.build(name), batch_of(name, n)
    theirs = torch_body(model, x, y, "cuda") if has_peer() else None
    ours = device_step(nn.move(model, on_gpu), on_gpu(x), on_gpu(y))
    try:
        ours = capture(ours, warmup=WARMUP)
    except RuntimeError as error:
        return record(title, "ms", None, note=str(error))
    theirs = torch_captured(theirs) if theirs else None
    if theirs:  # both have made as many steps
        check_same_loss(name, float(ours().mean()), theirs().item())
    return compare(title, ours, theirs)


def has_peer() -> bool:
    """Say whether there is a PyTorch that can use the GPU."""
    return bool(torch) and torch.cuda.is_available()


def records():
    """Every model and batch of `bench_layers`."""
    if not has_gpu():
        return [record("training steps on a GPU", "ms", None, note=NO_GPU)]
    if has_peer():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return [row(name, n) for row in (eager_record, captured_record) for name, n, _ in STEPS]
