"""The benchmarks of a GPU, as far as they can be checked without one."""

import types

import numpy as np
import pytest

from distlearn.backend import has_gpu
from distlearn.cuda import kernels
from distlearn.cuda.cards import CARDS
from tests.benchmarks import bench_gpu, bench_gpu_kernels, gpu_cases
from tests.emulated import NEEDS_COMPILER

CASES = gpu_cases.cases()


def test_every_variant_is_measured():
    assert sorted(str(c.variant) for c in CASES) == sorted(map(str, kernels.VARIANTS))


@NEEDS_COMPILER
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.variant))
def test_case(case):
    """What is timed is right twice in a row, and its cost is at most what the emulator counts (but for rims)."""
    args = case.arguments(np, 64)
    for _ in range(2):
        wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        peer = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        case.variant.reference(*wanted)
        if case.peer:
            case.peer(np, *peer)
        case.variant(*args)
        for i, (a, b) in enumerate(zip(args, wanted, strict=True)):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
                if case.peer:
                    np.testing.assert_allclose(peer[i], b, rtol=1e-4, atol=1e-4)
    nbytes, flops = case.cost(*args)
    report = case.variant.check(*args)
    assert report.errors == []
    assert 0 < nbytes <= report.bytes_moved * 1.05
    assert flops <= report.flops * 1.1


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("case", [c for c in CASES if c.peer], ids=lambda c: str(c.variant))
def test_kernel_against_cupy(case):
    """On the card: what the kernel writes is what CuPy's own operations write."""
    import cupy

    args = case.arguments(cupy, 512)
    wanted = [a.copy() if isinstance(a, cupy.ndarray) else a for a in args]
    case.peer(cupy, *wanted)
    case.variant(*args)
    for a, b in zip(args, wanted, strict=True):
        if isinstance(a, cupy.ndarray):
            np.testing.assert_allclose(a.get(), b.get(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("device", "card"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA A100-SXM4-80GB", "A100 80GB"), ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"), ("Tesla T4", "T4"), ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", None), ("NVIDIA B200", "B200"),
    ],
)  # fmt: skip
def test_card_of_a_device(device, card):
    found = bench_gpu_kernels.card_in(device)
    assert (found and found.name) == card
    assert card is None or found is CARDS[card]


class Events:
    """The clock of a card that needs a millisecond per launch."""

    def __init__(self):
        self.launched = 0

    def Event(self):
        event = types.SimpleNamespace(at=None, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.launched)
        return event

    @staticmethod
    def get_elapsed_time(start, end):
        return float(end.at - start.at)


@NEEDS_COMPILER
def test_time_bandwidth_and_share(monkeypatch):
    monkeypatch.setattr(bench_gpu_kernels, "LARGE", 64)
    card, events = CARDS["T4"], Events()
    case = next(c for c in CASES if str(c.variant) == "elementwise.cu:saxpy")
    counted = case._replace(variant=Counted(case.variant, events), peer=None)
    row = bench_gpu_kernels.kernel_record(types.SimpleNamespace(cuda=events, random=np.random), counted, card)
    assert row["ours"] == pytest.approx(1.0)
    nbytes = 3 * 64 * 64 * 4
    assert row["note"].startswith(f"{nbytes / 1e-3 / 1e9:,.0f} GB/s")
    assert row["note"].endswith("of what T4's memory bound allows")
    assert f"{nbytes / card.bandwidth / 1e-3:.0%}" in row["note"]


class Counted:
    def __init__(self, variant, events):
        self.variant, self.events = variant, events

    def __call__(self, *args):
        self.variant(*args)
        self.events.launched += 1

    def __str__(self):
        return str(self.variant)


@pytest.mark.skipif(has_gpu(), reason="there is a GPU: the rows are real")
def test_without_a_gpu_the_reason_is_the_row():
    for module in (bench_gpu, bench_gpu_kernels):
        (row,) = module.records()
        assert row["ours"] is None
        assert row["note"].startswith("skipped: needs an NVIDIA GPU")


@NEEDS_COMPILER
def test_steps_are_compared_turn_by_turn(monkeypatch):
    """The whole way of a row, with NumPy for CuPy and PyTorch on its CPU."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'bench')")
    calls = []
    monkeypatch.setattr(bench_gpu, "synchronize", lambda: calls.append("ours"))
    monkeypatch.setattr(bench_gpu, "on_gpu", np.asarray)
    monkeypatch.setattr(bench_gpu, "has_peer", lambda: True)
    step = bench_gpu.torch_step
    monkeypatch.setattr(bench_gpu, "torch_step", lambda model, x, y, where: step(model, x, y, "cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("theirs"))
    monkeypatch.setenv("DISTLEARN_BENCH_QUICK", "1")
    row = bench_gpu.eager_record("mlp", 32)
    assert row["name"] == "mlp step on the GPU, batch 32"
    assert row["peer"] > 0
    assert calls.count("ours") == calls.count("theirs") == 17 + 5
