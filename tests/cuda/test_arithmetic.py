"""What C++ leaves undefined is computed as a card does, or reported, with every compiler."""

import re

import numpy as np
import pytest

from distlearn.cuda import KernelError, RawKernel
from distlearn.cuda.emulator.translate import card_casts

i32, f32 = np.int32, np.float32
FLOATS = np.array([np.nan, np.inf, -np.inf, 1e10, -1e10, 2.7, -2.7, 3e9, -1, 4294967040.0, 2147483520.0, 1e19, -1e19,
                   300.9, 0, 5], f32)  # fmt: skip
SHIFTS = np.array([0, 1, 5, 31, 32, 33, 40, 63, 64, 65, 100, -1, 2, 3, 4, 6], i32)


def compute(statements, compiler, out, x=FLOATS, s=SHIFTS, compile_time=""):
    source = f"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(const float* x, const int* s, {out}* out) {{
        int t = threadIdx.x; {compile_time}
        {statements}
    }}"""
    result = np.zeros(len(x), {"int": i32, "unsigned": np.uint32, "long long": np.int64, "float": f32}[out])
    RawKernel(source, "k", compiler=compiler)((1,), (len(x),), (x, s, result))
    return result


def test_maximum_and_minimum_pass_over_nan(compiler):
    for text, wanted in [
        ("max(x[t], 0.f)", np.fmax(FLOATS, f32(0))),
        ("max(0.f, x[t])", np.fmax(FLOATS, f32(0))),
        ("min(x[t], 1.f)", np.fmin(FLOATS, f32(1))),
    ]:
        np.testing.assert_array_equal(compute(f"out[t] = {text};", compiler, "float"), wanted, err_msg=text)


def test_a_cast_is_used_as_a_number(compiler, capsys):
    constants = "enum { N = 1 << (4 + 1), M = (int)3.9f }; const int K = 2; __shared__ float a[1 << K + 3];"
    text = """a[t] = 0; int n = t ? (int)x[t] : 0, m = t > 2 ? (int)x[t] : (unsigned)x[t]; auto i = (int)5.5f;
        int array[8] = {1, 2, 3}; switch ((int)2.5f) { case 2: n = array[(int)1.5f]; }
        float f = (float)(int)x[5]; unsigned char c = (unsigned char)3.5f << K;
        if (t == 0) printf("%d %g %u\\n", (int)2.5f, 0.5f, (unsigned char)7.5f);
        out[t] = n + max((int)x[5], 1) + (int)f + c + i + N + M + (1 << K < 5 && 16 >> K > 3) + m * 0;"""
    got = compute(text, compiler, "int", compile_time=constants)
    assert (got == 2 + 2 + 2 + 12 + 5 + 32 + 3 + 1).all()
    assert capsys.readouterr().out == "2 0.5 7\n"


@pytest.mark.parametrize(
    ("statement", "card", "message"),
    [
        ("int v = x[0]; out[0] = v;", 2**31 - 1, r"1e\+10 is 2147483647 on a card"),
        ("unsigned v = 0; v += -x[0]; out[0] = v;", 0, r"-1e\+10 is 0 on a card"),
        ("unsigned char v = x[1]; out[0] = v;", 300 & 255, "300.7 is 44 on a card, but 255 here"),
        ("unsigned char v = -x[1]; out[0] = v;", 0, "-300.7 is 0 on a card"),
    ],
)
def test_a_difference_that_stays_is_reported(statement, card, message, compiler):
    source = f"""#define PASTE(a, b) a##b
    extern "C" __global__ void k(const float* x, int* out) {{ {statement} }}"""
    out, said = np.full(1, -9, i32), ""
    try:
        RawKernel(source, "k", compiler=compiler)((1,), (1,), (f32([1e10, 300.7]), out))
    except KernelError as error:
        said = str(error)
    assert re.search(message, said) if said else out[0] == card


@pytest.mark.parametrize("shift", ["i << 32", "i >> n", "i << -1", "w << n + 32", "w >> -n", "i PASTE(<, <) 40",
                                   "i << (unsigned char)200", "i << -2LL"])  # fmt: skip
def test_a_shift_by_too_many_bits_has_a_line(shift, compiler):
    """A card's result is that of the instruction, or what the compiler folds: 0, or anything."""
    source = f"""#define PASTE(a, b) a##b
    extern "C" __global__ void k(int i, long long w, int n, long long* out) {{
        out[0] = n << 3 | w >> 63;
        out[1] = {shift};
    }}"""
    out = np.zeros(2, np.int64)
    report = RawKernel(source, "k", compiler=compiler).check((1,), (1,), (i32(5), np.int64(7), i32(32), out))
    assert [(e.kind, e.line) for e in report.errors] == [("shift", 4)], str(report)
    by = {"i >> n": 32, "i << 32": 32, "w << n + 32": 64, "w >> -n": -32, "i << (unsigned char)200": 200}
    by |= {"i << -1": -1, "i << -2LL": -2, "i PASTE(<, <) 40": 40}
    assert f"of {64 if shift[0] == 'w' else 32} bits by {by[shift]}:" in report.errors[0].message


def test_what_only_looks_like_a_cast_stays():
    for same in ["void f(int);", "sizeof (int)", "int operator<<(int a);", "float (*f)(int) = g;",
                 "f<A<int>, B<float>>(1);"]:  # fmt: skip
        assert card_casts(same) == []


@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16"])
def test_two_byte_floats_saturate(kind, compiler):
    """Also to narrow integers, unlike a float: the conversion of a card is from 16 bits straight to the type."""
    x = np.array([np.nan, np.inf, -np.inf, 2.5, -2.5, 300, -300, 65504], f32)
    for target, least, most in (
        ("short", -(2**15), 2**15 - 1),
        ("unsigned char", 0, 255),
        ("int", -(2**31), 2**31 - 1),
    ):
        statement = f"{kind} h = x[t]; out[t] = ({target})h;"
        got = compute(statement, compiler, "int", x, np.zeros(8, i32))
        seen = np.where(x == 65504, 65536.0 if "bf" in kind else x, x).astype(float)
        np.testing.assert_array_equal(got, np.nan_to_num(np.clip(np.trunc(seen), least, most)).astype(i32), target)


def test_a_class_keeps_a_reference_to_what_it_is_made_of(run):
    """Such as cub's `BlockReduce(storage).Sum(x)`: `T(x)` must not copy what the constructor takes by reference."""
    source = """struct Counter {
        int& n;
        __device__ Counter(int& n) : n(n) {}
        __device__ int more(int by) { return n += by; }
    };
    __global__ void k(int* out) {
        typedef Counter C;
        int n = 5, last = C(n).more(2) + C(out[0]).more(1);
        out[1] = n, out[2] = last;
    }"""
    (out,) = run(source, "k", (1,), (1,), (np.array([10, 0, 0], i32),))
    np.testing.assert_array_equal(out, [11, 7, 18])
