"""One training step of every model on a GPU, against PyTorch eager.

The step, the models, the data and the comparison of the first losses are those of `bench_layers`; every measured call
ends when the card has done its work. Products are float32 on both sides (no TF32).
"""

from __future__ import annotations

from distlearn import nn
from distlearn.backend import has_gpu, to_device

from . import optional, paired, record
from .bench_layers import STEPS, batch_of, check_same_loss, our_step, torch_step

torch = optional("torch")

GOALS = {("mlp", 32): 1.6, ("mlp", 128): 1.7, ("mlp", 512): 1.4, ("cnn", 64): 2.5, ("cnn", 256): 3.2,
         ("lenet", 64): 3.4, ("gru", 32): 20}  # fmt: skip
"""The step's time / PyTorch's that may not be exceeded, of an H100: they only fall."""
NO_GPU = "skipped: needs an NVIDIA GPU (see distlearn doctor)"
NO_PEER = "PyTorch is not installed, or not for CUDA"


def on_gpu(array):
    """Copy to the card."""
    return to_device(array, "gpu")


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


def compare(name, ours, theirs, note="", goal="") -> dict:
    """Time both sides turn by turn."""
    both = finished(ours, synchronize), finished(theirs, torch and torch.cuda.synchronize)
    ratio = paired(*both, repeats=51, warmup=5)
    said = f"PyTorch / ours = {1 / ratio:.2f}" if theirs else NO_PEER
    note = f"{said}; {note}" if note else said
    return record(name, "ms", ratio.ours * 1e3, ratio.peer and ratio.peer * 1e3, ratio=ratio, goal=goal, note=note)


def eager_record(name: str, n: int) -> dict:
    """The step as it is written."""
    model, (x, y) = nn.build(name), batch_of(name, n)
    theirs = torch_step(model, x, y, "cuda") if has_peer() else None
    ours = our_step(nn.fuse(nn.move(model, on_gpu)), on_gpu(x), on_gpu(y))
    if theirs:
        check_same_loss(name, ours(), theirs())
    return compare(f"{name} step on the GPU, batch {n}", ours, theirs, goal=f"ratio <= {GOALS[name, n]}")


def has_peer() -> bool:
    """Say whether there is a PyTorch that can use the GPU."""
    return bool(torch) and torch.cuda.is_available()


def records():
    """Every model and batch of `bench_layers`."""
    if not has_gpu():
        return [record("training steps on a GPU", "ms", None, note=NO_GPU)]
    if has_peer():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return [eager_record(name, n) for name, n, _ in STEPS]
