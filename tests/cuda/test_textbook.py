"""Each textbook kernel reports exactly what the textbook says, with every compiler; correct ones report nothing."""

import numpy as np
import pytest

from distlearn.cuda import KernelError, RawKernel

from .corpus import fresh
from .textbook import CASES

MEMORY = {"out-of-bounds", "misaligned", "missing-lanes", "division-by-zero", "divergent-barrier"}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.title)
def test_report(case, compiler):
    args = fresh(case.args)
    kernel = RawKernel(case.source, case.name, compiler=compiler)
    report = kernel.check(case.grid, case.block, args, shared_mem=case.shared_mem, time_limit=case.time_limit)
    assert [(e.kind, e.line, e.array) for e in report.errors] == case.errors, str(report)
    assert [(w.kind, w.line, w.array) for w in report.warnings] == case.warnings, str(report)
    if case.errors and case.errors[0][0] in MEMORY:  # a launch raises where memory would suffer
        with pytest.raises(KernelError, match=case.errors[0][0]) as caught:
            kernel(case.grid, case.block, fresh(case.args), shared_mem=case.shared_mem)
        assert caught.value.report.errors[0].line == case.errors[0][1]
    for (array, access, line), wanted in case.sites.items():
        site = report.find(array, access, line)
        assert {name: getattr(site, name) for name in wanted} == pytest.approx(wanted), str(report)
    if case.flops is not None:
        assert report.flops == case.flops
    if case.moved is not None:
        assert report.bytes_moved == case.moved
    if case.lanes is not None:
        assert case.lanes[0] <= report.active_lanes <= case.lanes[1]
    if case.result:
        which, wanted = case.result
        np.testing.assert_allclose(np.squeeze(args[which]), np.squeeze(wanted), rtol=1e-5)
