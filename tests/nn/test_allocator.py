"""Freed memory is kept where the C library can, and left alone on request."""

import os
import subprocess
import sys

import pytest

CODE = """
import resource, numpy as np, distlearn.nn as nn
for _ in range(3):
    np.empty(1 << 22).fill(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.empty(1 << 22).fill(1)
print(nn.keep_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(keep):
    environment = {**os.environ, "DISTLEARN_KEEP_MEMORY": keep}
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    kept, faults = out.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of this system has no mallopt")
def test_arrays_of_32_mib_are_recycled_without_page_faults():
    kept, faults = run("1")
    if not kept:
        pytest.skip("the C library is not the GNU one")
    assert faults < 100
    left_alone, more = run("0")
    assert not left_alone
    assert more > 10 * max(1, faults)
