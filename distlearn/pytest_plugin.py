"""pytest's fixture `cuda_check`: a kernel's mistakes and memory accesses as assertions, on any machine.

    def test_scale(cuda_check):
        x = np.arange(1000, dtype=np.float32)
        report = cuda_check("scale.cu", "scale", 8, 128, (x, np.float32(2), np.int32(1000)))
        report.expect(no_findings=True, sectors_per_request=4, conflicts=1)
        assert x[999] == 1998

With `@pytest.mark.cuda_card` the kernel runs on the card as well, if there is one: then the arrays hold its results.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config):  # noqa: D103  (a hook of pytest)
    config.addinivalue_line("markers", "cuda_card: kernels of `cuda_check` run on a card as well, where there is one")


class Expected:
    """A report, and what is expected of it; all else is the report's own."""

    def __init__(self, report):
        self.report = report

    def __getattr__(self, name):
        return getattr(self.report, name)

    def expect(self, *, no_findings=True, sectors_per_request=None, conflicts=None) -> None:
        """Fail unless nothing was found, and no line needs more sectors of global memory or passes over the banks."""
        __tracebackhide__ = True
        wrong = [str(f) for f in (*self.report.errors, *self.report.warnings)] if no_findings else []
        for s in self.report.sites:
            if s.space == "global" and sectors_per_request is not None and s.sectors_per_request > sectors_per_request:
                sectors = f"{s.sectors_per_request:.2f} sectors a request, expected {sectors_per_request} at most"
                wrong.append(f"line {s.line}: {s.access} {s.array}: {sectors}")
            if s.space == "shared" and conflicts is not None and s.worst_conflict > conflicts:
                wrong.append(f"line {s.line}: {s.access} {s.array}: {s.worst_conflict}-way bank conflict")
        if wrong:
            pytest.fail("\n".join([*wrong, str(self.report)]), pytrace=False)


@pytest.fixture
def cuda_check(request):
    """Return a function that checks a launch: `cuda_check(file, kernel, grid, block, args, shared_mem=0)`."""
    from .backend import has_gpu, to_device, to_numpy
    from .cuda import RawKernel

    def check(file, kernel, grid, block, args, *, shared_mem=0, options=()):
        path = request.path.parent / file
        made = RawKernel(Path(path).read_text(encoding="utf-8"), kernel, (f"-I{path.parent}", *options))
        before = [a.copy() if hasattr(a, "shape") and a.ndim else a for a in args]
        report = made.check(grid, block, args, shared_mem=shared_mem)
        if request.node.get_closest_marker("cuda_card") and has_gpu():
            there = [to_device(a, "gpu") if hasattr(a, "shape") and a.ndim else a for a in before]
            made(grid, block, tuple(there), shared_mem=shared_mem)
            for given, result in zip(args, there, strict=True):
                if hasattr(given, "shape") and given.ndim:
                    given[...] = to_numpy(result)
        return Expected(report)

    return check
