"""`distlearn kernel check`: files, launches of host code, folders, SARIF; and pytest's fixture."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from click.testing import CliRunner

from distlearn.cli.kernel import check
from distlearn.cuda.host import argument, kernels_of, launches_of
from tests.emulated import NEEDS_COMPILER

SOURCE = """
#define N 1000
__global__ void scale(float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i LESS n) x[i] *= a;
}
__global__ void reversed(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    BARRIER
    y[threadIdx.x] = s[63 - threadIdx.x];
}
int main() {
    float *d, *e;
    const int threads = 1 << 7;  /* cudaMalloc(&d, 1) */
    cudaMalloc((void**)&d, N * sizeof(float));
    typedef float number;
    CHECK(cudaMalloc(&e, sizeof(number) * 64));
    scale<<<(N + threads - 1) / threads, threads>>>(d, 2.5f, N);
    dim3 block(64);
    reversed<<<dim3(1), block>>>(d, e);
    scale<<<blocks(N), threads>>>(d, 2.5f, N);
}
"""
RIGHT = SOURCE.replace("LESS", "<").replace("BARRIER", "__syncthreads();")
WRONG = SOURCE.replace("LESS", "<=").replace("BARRIER", "")


@pytest.fixture
def run(tmp_path):
    """Check a source, of its folder the file, with options."""

    def call(source, *args, of="some.cu"):
        folder = tmp_path / "kernels"
        folder.mkdir(exist_ok=True)
        (folder / "some.cu").write_text(source)
        return CliRunner().invoke(check, [str(folder / of), *(a.replace("HERE", str(tmp_path)) for a in args)])

    return call


def test_launches_are_read():
    assert kernels_of(RIGHT + "template <class T> __global__ void typed(T* x) {}") == {
        "scale": False, "reversed": False, "typed": True,
    }  # fmt: skip
    first, other = launches_of(RIGHT, "scale")
    assert first[:4] == ("scale", 19, (8,), (128,))
    assert first.arguments == [("bytes", 4000), 2.5, 1000]
    assert other.unknown == "'blocks(N)' is not a literal"
    assert launches_of(RIGHT, "reversed")[0].arguments == [("bytes", 4000), ("bytes", 256)]
    huge = RIGHT.replace("N 1000", "N (1 << 23)")
    assert "8,388,608 threads, at most" in launches_of(huge, "scale")[0].unknown


@NEEDS_COMPILER
def test_a_file_is_checked_by_its_own_launches_and_by_arguments(run):
    said = run(RIGHT)
    assert "scale: it takes float* x, float a, int n: --grid 1 --block 32 --arg 'float[1024]'" in said.output
    right, wrong = run(RIGHT, "--launch"), run(WRONG, "--launch")
    assert (right.exit_code, wrong.exit_code) == (0, 1)
    assert right.output.count("no errors") == 2
    assert "out-of-bounds, line 5" in wrong.output
    assert "race, line 11" in wrong.output
    arguments = ["--name", "scale", "--block", "128", "--arg", "float[1000]", "--arg", "2.5", "--arg", "1000"]
    assert run(WRONG, *arguments, "--grid", "7").exit_code == 0
    assert run(WRONG, *arguments, "--grid", "8").exit_code == 1


@NEEDS_COMPILER
def test_a_folder_is_a_table_and_findings_are_written(run, tmp_path):
    found = run(WRONG, "--sarif", "HERE/found.sarif", of="")
    assert found.exit_code == 1
    assert "its launch in line 22: 'blocks(N)' is not a literal" in " ".join(found.output.split())
    sarif = json.loads((tmp_path / "found.sarif").read_text())
    results = sarif["runs"][0]["results"]
    assert sarif["version"] == "2.1.0"
    assert [r["ruleId"] for r in results] == ["out-of-bounds", "race"]
    assert {r["ruleId"] for r in results} <= {rule["id"] for rule in sarif["runs"][0]["tool"]["driver"]["rules"]}
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 5
    assert place["artifactLocation"]["uri"].endswith("kernels/some.cu")
    (scale, *_) = json.loads(run(WRONG, "--launch", "--json").output)
    assert [scale["kernel"], scale["errors"][0]["line"], scale["block"]] == ["scale", 5, [128, 1, 1]]


@NEEDS_COMPILER
def test_templates_are_launched_with_their_arguments(run):
    typed = """template <class T, int N> __global__ void typed(T* x) { x[threadIdx.x] = N; }
    int main() { double* d; cudaMalloc(&d, 8 * sizeof(double)); typed<double, 3><<<1, 8>>>(d); }"""
    assert "a template: name its arguments" in run(typed).output
    assert "typed<double, 3>, grid (1, 1, 1), block (8, 1, 1): no errors" in run(typed, "--launch").output


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--arg", "float[10]"], "say which by --name"),
        (["--name", "scale", "--arg", "10"], "wants a float*, expected float[1024]"),
        (["--name", "scale", "--arg", "float[10]=much"], "one of normal, uniform"),
        (["--name", "scale", "--arg", "float[10]"], "takes 3 arguments"),
        (["--name", "scale", "--grid", "x", "--arg", "float[1]"], "expected whole numbers"),
        (["--name", "none", "--grid", "2"], "has no __global__ function 'none'; it has scale, reversed"),
    ],
)
def test_what_cannot_be_checked_is_said(run, args, said):
    found = run(RIGHT, *args)
    assert found.exit_code == 1
    assert said in found.output


def test_arguments_are_of_the_kernels_type():
    rng = np.random.default_rng(0)
    assert argument("3", "i4", rng).dtype == np.int32
    assert argument("float[2, 3]", "*kf4", rng).shape == (2, 3)
    assert argument("[4]=arange", "*i8", rng).tolist() == [0, 1, 2, 3]
    assert argument("int[3]", "*i4", rng).tolist() == [1, 1, 1]
    assert argument("half[2]=0.5", "*h2", rng).tolist() == [0.5, 0.5]


@NEEDS_COMPILER
def test_the_fixture_of_pytest(tmp_path):
    (tmp_path / "some.cu").write_text(WRONG)
    text = """
        import numpy as np, pytest

        @pytest.mark.cuda_card
        def test_scale(cuda_check):
            x = np.ones(1000, np.float32)
            cuda_check("some.cu", "scale", 7, 128, (x, np.float32(2), np.int32(896))).expect(sectors_per_request=4)
            assert x[:896].tolist() == [2.0] * 896

        def test_reversed(cuda_check):
            x = np.ones(64, np.float32)
            cuda_check("some.cu", "reversed", 1, 64, (x, np.zeros(64, np.float32))).expect(conflicts=1)
        """
    (tmp_path / "test_some.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False).stdout
    assert "1 failed, 1 passed" in said
    assert "race, line 11" in said
