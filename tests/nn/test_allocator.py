"""Freed memory is kept where that was asked for and the C library can; an import changes nothing."""

import os
import subprocess
import sys

import pytest

CODE = """
import resource, sys, numpy as np, distlearn.nn as nn
kept = nn.keep_memory() if sys.argv[1] == "asked" else False
for _ in range(3):
    np.empty(1 << 22).fill(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.empty(1 << 22).fill(1)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(asked, keep="1"):
    """Whether memory is kept, and the page faults of 20 arrays of 32 MiB."""
    environment = {**os.environ, "DISTLEARN_KEEP_MEMORY": keep}
    command = [sys.executable, "-c", CODE, "asked" if asked else "not asked"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    kept, faults = out.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of this system has no mallopt")
def test_arrays_of_32_mib_are_recycled_without_page_faults():
    kept, faults = run(asked=True)
    if not kept:
        pytest.skip("the C library is not the GNU one")
    assert faults < 100
    _, imported = run(asked=False)
    assert imported > 10 * max(1, faults), "an import sets nothing"
    left_alone, more = run(asked=True, keep="0")
    assert not left_alone
    assert more > 10 * max(1, faults)
