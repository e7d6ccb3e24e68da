"""`distlearn kernel check`: files, launches of host code, folders, SARIF; and pytest's fixture."""

import json
import shlex
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from distlearn.cli import kernel
from distlearn.cuda import RawKernel
from distlearn.cuda.arguments import argument
from distlearn.cuda.emulator.device_code import kernels_of
from distlearn.cuda.host import launches_of
from distlearn.cuda.report import KINDS, WARNINGS, Finding, Report
from tests.cuda.textbook import CASES, Case
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
        call.folder = folder
        return CliRunner().invoke(kernel.check, [str(folder / of), *(a.replace("HERE", str(tmp_path)) for a in args)])

    return call


def test_launches_are_read():
    assert kernels_of(RIGHT + "template <class T, int N> __global__ void typed(T* x) {}") == {
        "scale": "", "reversed": "", "typed": "<float, 32>",
    }  # fmt: skip
    first, other = launches_of(RIGHT)["scale"]
    assert first == ("scale", 19, (8,), (128,), 0, ["bytes[4000]", "2.5", "1000"], "")
    assert other.unknown == "the value of 'blocks' is not known"
    assert launches_of(RIGHT)["reversed"][0].arguments == ["bytes[4000]", "bytes[256]"]
    huge = launches_of(RIGHT.replace("N 1000", "N (1 << 23)"))["scale"][0]
    assert "8,388,608 threads, at most" in huge.unknown


READ = {  # the body of `run(float* h, int n, float s)`, called with (p, 1000, 0.5f): grid, block, shared, arguments
    "k<<<(n + 255) / 256, 256>>>(s, 1);": [(4,), (256,), 0, ["0.5", "1"]],
    "k << <4, 256 >> > (s, 1);": [(4,), (256,), 0, ["0.5", "1"]],  # as Visual Studio formats it
    "k<<<ceil(n / 256), ceil(n / 256.0)>>>();": [(3,), (4,), 0, []],
    "k<<<ceilf((float)n / 256), 1>>>(s, n < 5);": [(4,), (1,), 0, ["0.5", "0"]],
    "dim3 b(16, 16), g; g.x = up(n, b.x); k<<<g, b, b.x * b.y * sizeof(float)>>>();": [(63, 1, 1), (16, 16), 1024, []],
    "int i = 7; for (i = 1; i < n; i *= 2) k<<<i, n > 512 ? 512 : n>>>(i << 3, 0x10, ~0);":
        [(1,), (512,), 0, ["8", "16", "-1"]],
    "float *a = NULL, *b; size_t e = sizeof(*b) * n; cudaMalloc((void**)&a, e); b = a; k<<<1, 1>>>(a, b);":
        [(1,), (1,), 0, ["bytes[4000]", "bytes[4000]"]],
    "int m = 5; if (argc > 1) m = atoi(argv[1]); k<<<m, static_cast<unsigned int>(s * 4)>>>();": [(5,), (2,), 0, []],
    "dim3 g = {2,\n3}; k<<<g, {4}>>>();": [(2, 3), (4,), 0, []],
    "int a, b; a = b = 1 << 3; k<<<a, std::min(b, prop.maxGridSize[0])>>>();": [(8,), (8,), 0, []],
    "k<<<{{2}, 3}, 1>>>();": "the value of '{{2}, 3}' is not known",
    "{ int m = 5; } int m = 6; k<T, W><<<m, std::min(n, 64)>>>();": [(6,), (64,), 0, []],
    "int m = 5; if (n) m = 6; k<<<m, 1>>>();": "the value of 'm' is not known",
    "int m = 5; m += 2; k<<<m, 1>>>();": "the value of 'm' is not known",
    "int m = 5; read(&m); k<<<m, 1>>>();": "the value of 'm' is not known",
    "float* a = NULL; make(&a, n); k<<<1, 1>>>(a);": "the value of 'a' is not known",
    "int in = 5; int is = in * 2; k<<<is, in>>>();": [(10,), (5,), 0, []],
    "float* a; cudaMalloc(&a, 4); k<<<1, 1>>>(a * 1000000000);": "the value of 'a * 1000000000' is not known",
    "float* a; cudaMalloc(&a, 40); k<<<1, 1>>>(a + 3);": "the value of 'a + 3' is not known",
    "k<<<1>>>();": "the value of '' is not known",
}  # fmt: skip


@pytest.mark.parametrize("body", READ)
def test_values_are_those_at_the_launch(body):
    code = f"""const int W = 3;
    static int up(int a, int b) {{ return (a + b - 1) / b; }}
    template <typename T> void run(T* h, int n, float s) {{ {body} }}
    void other() {{ int n = 7, m = 8; float* a; cudaMalloc(&a, 4); }}
    int main() {{ run<double>(p, 1000, .5f); }}"""
    one = launches_of(code)["k"][-1]
    if isinstance(READ[body], str):
        assert one.unknown == READ[body]
    else:
        assert [*one[2:6], one.unknown] == [*READ[body], ""]
        assert one.kernel == ("k<double, 3>" if "<T" in body else "k")


POINTED = {  # what stands before main, and in it: which kernels are launched
    ("", "void (*k)(float*, int) = &b; k<<<2, n>>>(d, n);"): "b",
    ("", "auto k = n > 5 ? a : b; (*k)<<<2, n>>>(d, n);"): "a b",
    ("typedef void (*Fn)(float*, int); const Fn KS[2] = {a, c<float, 4>};", "KS[i]<<<2, n>>>(d, n);"): "a c<float, 4>",
    ("", 'struct { char* name; Fn k; } tests[] = {{"one", a}, {"two", b}}; tests[i].k<<<2, n>>>(d, n);'): "a b",
    ("", "std::vector<Fn> ks; ks.push_back(a); ks.push_back(b); for (auto k : ks) k<<<2, n>>>(d, n);"): "a b",
    ("", "Fn k; switch (i) { case 0: k = a; break; default: k = b; } k<<<2, n>>>(d, n);"): "a b",
    ("void run(Fn f, float* x) { f<<<2, 64>>>(x, 64); } void timed(Fn f, float* x) { run(f, x); }",
     "cudaFuncSetAttribute(b, X, 5); timed(a, d); timed(c<float, 8>, d);"): "a c<float, 8>",
    ("template <typename K, typename... Args> void run(K k, dim3 g, Args&&... args) "
     "{ k<<<g, 64>>>(std::forward<Args>(args)...); }", "run(b, 2, d, n);"): "b",
    ("#define LAUNCH(k, g, t, ...) k<<<g, t>>>(__VA_ARGS__)", "LAUNCH(a, 2, n, d,\n n);"): "a",
    ("#define LAUNCH(k, g, t, ...) k << <g, t >> > (__VA_ARGS__)", "LAUNCH(a, 2, n, d, n);"): "a",
}  # fmt: skip


@pytest.mark.parametrize(("before", "body"), POINTED)
def test_launches_through_pointers_and_helpers(before, body):
    """Each kernel that a variable may hold is launched; what only asks about a kernel is no launch."""
    code = f"""__global__ void a(float* x, int n) {{}} __global__ void b(float* x, int n) {{}}
    template <typename T, int W> __global__ void c(T* x, int n) {{}}
    {before}
    int main() {{ float* d; int n = 64; cudaMalloc(&d, n * 4); {body} }}"""
    ones = [one for launches in launches_of(code).values() for one in launches]
    assert sorted(one.kernel for one in ones) == POINTED[before, body].split(" ", 1)
    assert {(*one[2:5], *one.arguments, one.unknown) for one in ones} == {((2,), (64,), 0, "bytes[256]", "64", "")}


@NEEDS_COMPILER
def test_what_is_printed_can_be_typed(run):
    """A launch that is not known: the command that is printed checks the kernel; of a header, too."""
    source = """#include "tile.h"
    struct Yes {};
    template <typename T> __global__ void fill(T* x, float a, int n, Yes) {
        if (threadIdx.x < n) x[threadIdx.x] = a + W * BY;
    }
    void run(float* d, float a, int n) { fill<<<n / 32, 32>>>(d, a, n, Yes()); }"""
    run("", of="")
    (run.folder / "tile.h").write_text("#define W 4\n__global__ void of_header(float* x) { x[threadIdx.x] = 0; }")
    for options in ([], ["--launch"]):
        found = run(source, "-D", "BY=2", *options)
        _, path, *typed = shlex.split(found.output.partition("distlearn kernel ")[2])
        assert run(source, *typed).output.startswith("fill<float>, grid (1, 1, 1), block (32, 1, 1): no errors"), path


@NEEDS_COMPILER
def test_branches_that_are_not_taken_say_nothing(run):
    source = """
    #ifdef LARGE
    #define N 4096
    #else
    #define N 64
    #endif
    #ifndef SIDE
    #define SIDE 32
    #endif
    __global__ void fill(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = N; }
    #ifdef LARGE
    __global__ void other(float* x) {}
    #endif
    int main() { float* x; cudaMalloc(&x, N * sizeof(float)); fill<<<N / SIDE, SIDE>>>(x); }"""
    for options, grid, block in (((), 2, 32), (("-D", "LARGE", "-DSIDE=16", "--name", "fill"), 256, 16)):
        said = run(source, "--launch", *options).output
        assert said.startswith(f"fill, grid ({grid}, 1, 1), block ({block}, 1, 1): no")


@NEEDS_COMPILER
def test_what_takes_too_long_is_no_finding(run, monkeypatch):
    """A launch of host code is of a size for a card: that it did not end here is said, and no mistake."""
    monkeypatch.setattr(kernel, "SECONDS", (1, 1))
    source = """__global__ void slow(float* x, long n) { for (long i = 0; i < n; i++) x[i % 64] += x[(i + 1) % 64]; }
    int main() { float* x; cudaMalloc(&x, 256); slow<<<1, 1>>>(x, 1000000000000); }"""
    found = run(source, "--launch")
    assert found.exit_code == 0
    assert "not to its end" in found.output
    assert run(source, "--block", "1", "--arg", "float[64]", "--arg", "1000000000000").exit_code == 1


@NEEDS_COMPILER
def test_what_drawn_numbers_do_is_no_finding(run):
    """The numbers that host code would copy are not known: an index made of them is nobody's mistake."""
    source = """__global__ void count(const char* x, int* bins, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(&bins[(x[i] - 'a') / 4], 1);
        if (i <= n) bins[i / 8] = 1;
    }
    int main() { char* x; int* b; cudaMalloc(&x, 64); cudaMalloc(&b, 8 * sizeof(int)); count<<<1, 65>>>(x, b, 64); }"""
    found = run(source, "--launch")
    assert "out-of-bounds, line 4" in found.output
    assert "out-of-bounds, line 3" not in found.output
    assert "depends on what its arrays hold" in found.output
    source = """__global__ void rows(const float* x, float* y, const int* order) {
        __shared__ float s[1]; s[0] = x[threadIdx.x]; y[threadIdx.x] = s[0];
        y[64 + order[threadIdx.x]] = x[threadIdx.x];
    }
    int main() { float *x, *y; int* o; cudaMalloc(&x, 256); cudaMalloc(&y, 512); cudaMalloc(&o, 256);
        rows<<<1, 64>>>(x, y, o); }"""
    found = run(source, "--launch")
    assert "race, line 2" in found.output
    assert "race, line 3" not in found.output


@NEEDS_COMPILER
def test_a_file_is_checked_by_its_own_launches_and_by_arguments(run):
    said = run(RIGHT)
    assert "scale: it takes float* x, float a, int n: distlearn kernel check" in said.output
    assert "--name scale --grid 8 --block 128 --arg 'bytes[4000]' --arg 2.5 --arg 1000" in said.output
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
    assert "its launch in line 22: the value of 'blocks' is not known" in " ".join(found.output.split())
    assert "2 launches checked, 2 with errors; 1 not: `distlearn kernel check FILE`" in " ".join(found.output.split())
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


SCHEMA = {  # what version 2.1.0 of the format asks of the parts that are written here; its own schema agrees
    "type": "object", "required": ["version", "runs"], "additionalProperties": False,
    "properties": {"$schema": {"format": "uri"}, "version": {"const": "2.1.0"}, "runs": {"items": {
        "required": ["tool", "results"], "additionalProperties": False, "properties": {
            "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name"]}}},
            "results": {"items": {"required": ["message", "ruleId", "level", "locations"], "properties": {
                "message": {"required": ["text"]}, "level": {"enum": ["none", "note", "warning", "error"]},
                "locations": {"items": {"properties": {"physicalLocation": {"properties": {
                    "artifactLocation": {"properties": {"uri": {"pattern": r"^[\w./%~-]+$"}}},
                    "region": {"properties": {name: {"type": "integer", "minimum": 1} for name in
                                              ("startLine", "startColumn")}},
                }}}}},
            }}},
        },
    }}},
}  # fmt: skip


OTHERS = {  # the kinds of findings that no textbook case has, by a body of `k(float* x, int n)`; n is 5
    "assertion-failed": "assert(n == 3);",
    "divergent-warp-operation": """float v = n;
        x[threadIdx.x] = threadIdx.x % 2 ? __shfl_sync(~0u, v, 0)
            : __shfl_sync(~0u, v, 1);""",
    "crash": "void (*f)() = nullptr; if (n == 5) f();",
    "shift": "x[threadIdx.x] = 1 << (n + 30);",
    "stack-overflow": "x[0] = deep(n);",
    "unfinished": "for (int i = 0; i < 1000; i++) atomicAdd(&x[threadIdx.x], 1.0f);",
    "removed-intrinsic": "x[threadIdx.x] = __shfl_down(x[threadIdx.x], 1);",
    "shared-memory-limit": "__shared__ float s[13000]; s[threadIdx.x] = n; x[threadIdx.x] = s[threadIdx.x];",
    "same-value": "__shared__ int s; s = n; __syncthreads(); x[threadIdx.x] = s;",
    "overlaid": "extern __shared__ float a[]; extern __shared__ int b[]; x[threadIdx.x] = a[threadIdx.x] = n;",
    "uninitialised-local": "float v; x[threadIdx.x] = v + n;",
    "conversion": "int i = x[threadIdx.x] + 1e20f; x[threadIdx.x] = i;",
}
OTHER = """__global__ void k(float* x, int n);
    __device__ float deep(int n) { return n ? deep(n + 1) + 1 : 0; }
    __global__ void k(float* x, int n) { BODY }"""
DEFECTS = [c for c in CASES if c.errors or c.warnings]
for _kind, _body in OTHERS.items():
    _grid, _args = (1 << 20 if _kind == "unfinished" else 1,), (np.zeros(64, np.float32), np.int32(5))
    _more = {"errors": [(_kind, 0, "")], "shared_mem": 4096, "time_limit": 0.5}
    DEFECTS.append(Case(_kind, OTHER.replace("BODY", _body), _grid, (32,), _args, **_more))


def test_each_kind_of_finding_has_a_defect():
    known = {kind for kind, _ in KINDS} | WARNINGS | {"removed-intrinsic", "shared-memory-limit"}
    assert known == {kind for c in DEFECTS for kind, *_ in (*c.errors, *c.warnings)}


@pytest.mark.nightly(but_every=3)
@NEEDS_COMPILER
@pytest.mark.parametrize("case", DEFECTS, ids=lambda c: c.title)
def test_a_defect_reads_the_same_everywhere(case, tmp_path):
    """In the text, the table of a folder, JSON and SARIF: kind, line and sentence of every seeded defect."""
    made = RawKernel(case.source, case.name)
    given = tuple(a.copy() for a in case.args)
    report = made.check(case.grid, case.block, given, shared_mem=case.shared_mem, time_limit=case.time_limit)
    found = [*report.errors, *report.warnings]
    assert {f.kind for f in found} == {kind for kind, *_ in (*case.errors, *case.warnings)}
    one = kernel.Checked(tmp_path / "a b.cu", case.name, report)
    sarif = kernel.to_sarif([one])
    jsonschema.validate(sarif, SCHEMA)
    as_json = json.loads(json.dumps(kernel._as_dict(one)))
    results = sarif["runs"][0]["results"]
    for finding, listed, result in zip(found, as_json["errors"] + as_json["warnings"], results, strict=True):
        region = result["locations"][0]["physicalLocation"]["region"]
        assert (listed["kind"], listed["line"], listed["message"]) == (finding.kind, finding.line, finding.message)
        assert (result["ruleId"], region["startLine"]) == (finding.kind, finding.line or 1)
        assert result["message"]["text"] == f"{case.name}: {finding.message}"
        assert f"{finding.kind}, {finding.where}: {finding.message}" in str(report)
        assert result["level"] == ("warning" if finding.is_warning else "error")
        assert finding.is_warning or f"{finding.kind}, {finding.where}" in kernel._outcome(one)


def test_files_of_findings_are_relative_and_quoted(tmp_path, monkeypatch):
    """Code hosts put findings beside lines of files of the repository."""
    monkeypatch.chdir(tmp_path)
    finding = Finding("race", 3, 0, "x", (), (), "it races")
    report = Report("k", "gcc", (1,), (1,), errors=[finding, replace(finding, file="my tile.cuh")])
    for path in (tmp_path / "my src" / "a+b.cu", Path("my src/../my src/a+b.cu")):
        results = kernel.to_sarif([kernel.Checked(path, "k", report)])["runs"][0]["results"]
        uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results]
        assert uris == ["my%20src/a%2Bb.cu", "my%20src/my%20tile.cuh"]


@NEEDS_COMPILER
def test_templates_are_launched_with_their_arguments(run):
    typed = """template <class T, int N> __global__ void typed(T* x) { x[threadIdx.x] = N; }
    int main() { double* d; cudaMalloc(&d, 8 * sizeof(double)); typed<double, 3><<<1, 8>>>(d); }"""
    assert "--name 'typed<double, 3>' --grid 1 --block 8 --arg 'bytes[64]'" in run(typed).output
    without = run(typed.replace("typed<double, 3><<<", "typed<<<"), "--launch")
    assert "names no arguments of the template" in without.output
    assert "typed<double, 3>, grid (1, 1, 1), block (8, 1, 1): no errors" in run(typed, "--launch").output


@NEEDS_COMPILER
def test_what_is_refused_is_said_once_and_the_rest_is_checked(run):
    source = """__global__ void clocked(long long* x) { x[0] = clock64(); }
    __global__ void rows(int** x) { x[0][threadIdx.x] = 1; }
    template <class T, class F> __global__ void mapped(T* x, F f) { x[0] = f(x[0]); }
    __global__ void one(int* x) { x[0] = 1; }
    int main() { long long* t; int **r, *x; cudaMalloc(&t, 8); cudaMalloc(&r, 64); cudaMalloc(&x, 4);
        clocked<<<1, 1>>>(t); clocked<<<2, 1>>>(t); rows<<<1, 8>>>(r); one<<<1, 1>>>(x); }"""
    for args, of in ((["--launch"], "some.cu"), ([], "")):
        said = " ".join(run(source, *args, of=of).output.split())
        assert said.count("clocks on the device") == 1
        assert "the kernel wants a int**, which only Python can pass: RawKernel" in said
        assert "no errors" in said
    assert "mapped<float, float> no launch in its host code" in said  # and not that a guess does not compile


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--arg", "float[10]"], "say which by --name"),
        (["--name", "scale", "--arg", "10"], "wants a float*, expected float[1024]"),
        (["--name", "scale", "--arg", "double[10]"], "wants a float*, expected float[1024]"),
        (["--name", "scale", "--arg", "float[10]=much"], "one of normal, uniform"),
        (["--sarif", "HERE/none/found.sarif"], "there is no folder HERE/none"),
        (["--name", "scale", "--arg", "float[10]"], "takes 3 arguments"),
        (["--grid", "x", "--arg", "float[1]"], "Invalid value for '--grid': 'x', expected positive whole numbers"),
        (["--name", "none", "--grid", "2"], "has no __global__ function 'none'; it has scale, reversed"),
    ],
)
def test_what_cannot_be_checked_is_said(run, args, said):
    found = run(RIGHT, *args)
    assert found.exit_code == (2 if said.startswith("Invalid value") else 1)
    assert said.replace("HERE", str(run.folder.parent)) in found.output


@NEEDS_COMPILER
def test_a_kernel_that_takes_nothing_runs_at_once(run):
    said = run(
        '__global__ void hello() { if (threadIdx.x == 0) printf("from %d\\n", blockIdx.x); }', "--grid", "2"
    ).output
    assert said.startswith("from 0\nfrom 1\nhello, grid (2, 1, 1), block (32, 1, 1): no errors")


@NEEDS_COMPILER
def test_a_workflow_that_checks_nothing_fails(run):
    alone = RIGHT.partition("int main")[0]
    for args, of in ((["--launch"], "some.cu"), ([], "")):
        found = run(alone, *args, of=of)
        assert found.exit_code == 1
        assert "no launch in its host code" in found.output
    assert run(alone).exit_code == 0


@NEEDS_COMPILER
def test_watching_outlives_a_mistake(run, monkeypatch):
    """A file that is half written, or gone while an editor replaces it, is looked at again."""
    texts = iter([None, RIGHT])

    def sleep(_):
        text, file = next(texts, "end"), run.folder / "some.cu"
        if text == "end":
            raise KeyboardInterrupt
        file.write_text(text) if text else file.unlink()

    monkeypatch.setattr(kernel, "time", SimpleNamespace(sleep=sleep))
    said = run("", "--launch", "--watch", of="").output
    assert "2 launches checked, 0 with errors" in " ".join(said.split())


def test_arguments_are_of_the_kernels_type():
    rng = np.random.default_rng(0)
    assert (argument("9007199254740993u", "i8", rng), argument("1e6", "i4", rng)) == (2**53 + 1, 10**6)
    assert (argument("2.5f", "f4", rng), argument("0", "*f4", rng)) == (np.float32(2.5), 0)
    with pytest.raises(ValueError, match=r"--arg '2\.7': the kernel wants a int, expected a whole number"):
        argument("2.7", "i4", rng)
    assert argument("float[2, 3]", "*kf4", rng).shape == (2, 3)
    assert argument("[4]=arange", "*i8", rng).tolist() == [0, 1, 2, 3]
    assert argument("int[3]", "*i4", rng).tolist() == [1, 1, 1]
    assert argument("half[2]=0.5", "*h2", rng).tolist() == [0.5, 0.5]
    struct = argument("{0.5f, 3, {true, 1e3}}", "s24", rng)
    assert struct.tolist() == (0.5, 3, True, 1e3)
    assert [struct.dtype.fields[name][1] for name in struct.dtype.names] == [0, 4, 8, 16]
    for text in ("32", "{x}"):
        with pytest.raises(ValueError, match="write its members as in C"):
            argument(text, "s24", rng)


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
