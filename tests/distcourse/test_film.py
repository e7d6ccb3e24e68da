"""The film of a kernel: what each interval between barriers shows."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from distcourse.film import kernel_film

from distlearn.cuda import RawKernel

SUM = """__global__ void block_sum(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int h = 32; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        STEP
    }
    if (t == 0) out[0] = s[0];
}"""


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def play(step):
    x = np.ones(64, np.float32)
    return kernel_film(RawKernel(SUM.replace("STEP", step), "block_sum").check((1,), (64,), (x, x.copy()), record=(0,)))


def test_a_frame_for_each_interval():
    frames = play("__syncthreads();")
    assert [alt for _, alt in frames] == [
        "Before the first barrier: no two threads clash",
        *(f"After barrier {k} of 7: no two threads clash" for k in range(1, 8)),
    ]
    panels = [ax.get_xlabel() for ax in frames[0][0].axes[:-1]]
    assert panels == ["element of x", "element of out", "element of s"]
    source = [t.get_text() for t in frames[0][0].axes[-1].texts]
    assert "▸ 4" in source, "the line that loads is marked"
    assert "▸ 7" not in source


def test_a_film_needs_a_recorded_block():
    x = np.ones(64, np.float32)
    kernel = RawKernel(SUM.replace("STEP", ""), "block_sum")
    with pytest.raises(ValueError, match="nothing was recorded"):
        kernel_film(kernel.check((1,), (64,), (x, x.copy())))
    with pytest.raises(ValueError, match="record is 3: the grid"):
        kernel.check((1,), (64,), (x, x.copy()), record=3)


def test_a_missing_barrier_is_red():
    frames = play("")
    assert frames[1][1].startswith("After barrier 1 of 1: threads clash on ")
    red = [t.get_text().strip() for t in frames[1][0].axes[-1].texts if t.get_fontweight() == "bold"]
    assert red == ["if (t < h) s[t] += s[t + h];"]
