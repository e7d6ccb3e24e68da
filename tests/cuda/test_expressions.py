"""Random expressions and statements with casts everywhere: every compiler computes what an independent model does.

`EXPRESSION_CASES=5000 pytest tests/cuda/test_expressions.py` tries as many. The model is written after the C++
standard's integer promotions and the PTX manual's rules for `cvt`, `shl` and `shr`.
"""

import operator
import os
import random

import numpy as np
import pytest

from distlearn.cuda import RawKernel

CASES = int(os.environ.get("EXPRESSION_CASES", "200"))
PER_KERNEL = 100
INTEGERS = {  # name in C: bits, whether it is signed
    "signed char": (8, True), "unsigned char": (8, False), "short": (16, True), "unsigned short": (16, False),
    "int": (32, True), "unsigned": (32, False), "long long": (64, True), "unsigned long long": (64, False),
}  # fmt: skip
FLOATS = {"float": np.float32, "double": np.float64}
ALIASES = {"signed char": ["int8_t", "schar"], "unsigned char": ["uint8_t", "uchar_"], "short": ["int16_t"],
           "unsigned short": ["uint16_t", "half_word"], "int": ["int32_t", "index_t"], "unsigned": ["uint32_t", "word"],
           "long long": ["wide"], "unsigned long long": ["wide_word"], "float": ["real"], "double": ["wide_real"],
           "bool": ["flag"]}  # fmt: skip
VARIABLES = {"x": "float", "d": "double", "i": "int", "j": "long long", "u": "unsigned", "q": "unsigned char",
             "c": "signed char", "s": "short", "w": "unsigned long long", "h": "unsigned short",
             "b": "bool"}  # fmt: skip
HEAD = """
#define AS_INT(e) ((int)(e))
#define AS_BYTE(e) (unsigned char)(e)
#define AS_WORD(e) uint32_t(e)
#define AS(TYPE, e) ((TYPE)(e))
#define LEFT(a, n) ((a) << (n))
#define RIGHT(a, n) ((a) >> (n))
#define PICK(p, e, f) ((p) ? (e) : (f))
typedef signed char schar; typedef unsigned char uchar_; typedef unsigned short half_word; typedef int index_t;
typedef unsigned int word; typedef long long wide; typedef bool flag; typedef double wide_real;
using wide_word = unsigned long long; using real = float;
template <typename T, typename F> __device__ T convert(F e) { return (T)e; }
template <class To, class From> __device__ To construct(From e) { return To(e); }
template <class T, class F> struct Converter { __device__ static T of(F e) { return static_cast<T>(e); } };
"""
MACROS = {"int": "AS_INT", "unsigned char": "AS_BYTE", "unsigned": "AS_WORD"}


def convert(value, to):
    """Return a value as the type `to`, as a card does."""
    if to == "bool":
        return int(value != 0)
    if to in FLOATS:
        if isinstance(value, np.floating):
            return FLOATS[to](value)
        return (np.int64(value) if value < 2**63 else np.uint64(value)).astype(FLOATS[to])
    bits, signed = INTEGERS[to]
    if isinstance(value, np.floating):
        width = max(bits, 32)
        least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
        if np.isnan(value):
            value = 2 ** (width - 1) if width == 64 or isinstance(value, np.float64) else 0
        else:
            value = least if value <= least else most if value >= most else int(value)
    value &= 2**bits - 1
    return value - 2**bits if signed and value >> (bits - 1) else value


def promoted(t):
    return "int" if t == "bool" or (t in INTEGERS and INTEGERS[t][0] < 32) else t


def common(s, t):
    for f in ("double", "float"):
        if f in (s, t):
            return f
    s, t = promoted(s), promoted(t)
    return max(s, t, key=lambda name: (INTEGERS[name][0], not INTEGERS[name][1]))


class Maker:
    """Makes expressions: each its text, its type, and a function of the variables."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def leaf(self):
        if self.random.random() < 0.75:
            name = self.random.choice(list(VARIABLES))
            return name, VARIABLES[name], lambda v: v[name]
        text, t, value = self.random.choice([
            ("0", "int", 0), ("1", "int", 1), ("(-7)", "int", -7), ("300.7f", "float", np.float32(300.7)),
            ("(-1.5f)", "float", np.float32(-1.5)), ("3e9f", "float", np.float32(3e9)),
            ("1e20", "double", np.float64(1e20)),
            ("40u", "unsigned", 40), ("5000000000LL", "long long", 5000000000), ("'a'", "signed char", 97),
        ])  # fmt: skip
        return text, t, lambda v: value

    def cast(self, depth, to=None):
        text, t, value = self.expression(depth - 1)
        to = to or self.random.choice([*INTEGERS, *INTEGERS, *FLOATS, "bool"])
        name = self.random.choice([to, *ALIASES[to]])
        forms = [f"({name})({text})", f"(({name}){text})" if text.isalnum() else f"({name})({text})",
                 f"static_cast<{name}>({text})", f"AS({name}, {text})", f"convert<{name}>({text})",
                 f"construct<{name}>({text})", f"(Converter<{name}, {t}>::of({text}))"]  # fmt: skip
        forms += [f"{name}({text})"] * 2 if " " not in name else []
        forms += [f"{MACROS[to]}({text})"] if to in MACROS else []
        return self.random.choice(forms), to, lambda v: convert(value(v), to)

    def choice(self, depth):
        (p, _, chosen), (e, s, left), (f, t, right) = (self.expression(depth - 1) for _ in range(3))
        to = s if s == t else common(s, t)
        form = self.random.choice(["({} ? {} : {})", "PICK({}, {}, {})"])
        return form.format(p, e, f), to, lambda v: convert(left(v) if chosen(v) != 0 else right(v), to)

    def shift(self, depth):
        (e, s, left), (n, _, places) = (
            self.integer(depth - 1),
            self.cast(depth - 1, self.random.choice(["int", "unsigned"])),
        )
        to, up = promoted(s), self.random.random() < 0.5
        bits = INTEGERS[to][0]

        def value(v):
            a, count = convert(left(v), to), places(v) % bits
            return convert(a << count if up else a >> count, to)

        n = f"({n}) & {bits - 1}"
        form = self.random.choice([f"(({e}) {'<<' if up else '>>'} ({n}))", f"{'LEFT' if up else 'RIGHT'}({e}, {n})"])
        return form, to, value

    def binary(self, depth):
        (e, s, left), (f, t, right) = self.expression(depth - 1), self.expression(depth - 1)
        to = common(s, t)
        sign = self.random.choice(
            ["+", "-", "*", "<", ">=", "==", "max", "/"] + ["&", "|", "^", "%"] * (to in INTEGERS)
        )
        if to in FLOATS and sign == "max":
            sign = "+"
        if sign in "/%":
            n = self.random.choice([2, 3, 7])

            def divide(v):
                a = convert(left(v), promoted(s))
                if isinstance(a, np.floating):
                    return a / type(a)(n)
                quotient = abs(a) // n * (1 if a >= 0 else -1)
                return quotient if sign == "/" else a - quotient * n

            sign = "/" if s in FLOATS else sign
            return f"(({e}) {sign} {n})", promoted(s), divide
        operate = {"+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">=": operator.ge,
                   "==": operator.eq, "max": max, "&": operator.and_, "|": operator.or_,
                   "^": operator.xor}[sign]  # fmt: skip
        result = "bool" if sign in ("<", ">=", "==") else to

        def value(v):
            return convert(operate(convert(left(v), to), convert(right(v), to)), result)

        return f"max(({to})({e}), ({to})({f}))" if sign == "max" else f"(({e}) {sign} ({f}))", result, value

    def unary(self, depth):
        sign = self.random.choice("-~!")
        e, t, value = (self.integer if sign == "~" else self.expression)(depth - 1)
        to = "bool" if sign == "!" else promoted(t)
        operate = {"-": operator.neg, "~": operator.invert, "!": operator.not_}[sign]
        return f"({sign}({e}))", to, lambda v: convert(operate(convert(value(v), promoted(t))), to)

    def integer(self, depth):
        e = self.expression(depth)
        return e if e[1] not in FLOATS else self.cast(depth, self.random.choice(list(INTEGERS)))

    def expression(self, depth):
        if depth <= 0:
            return self.leaf()
        make = self.random.choice(
            [self.cast] * 4 + [self.choice] * 3 + [self.shift] * 2 + [self.binary] * 3 + [self.unary]
        )
        return make(depth)

    def statements(self):
        """Statements that end in the value of `r`; its type; its value."""
        t = self.random.choice([*INTEGERS, *FLOATS])
        (first, _, begin), (p, _, chosen) = self.cast(3, t), self.expression(2)
        steps = [self._assignment(t) for _ in range(3)]
        (a, one), (b, two), (c, three) = steps
        small, _, whole = self.cast(2, "float")
        text = (f"{t} r = {first}; if ({p}) {{ {a} }} else {b} for (int k = 0; k < 2; k++) {{ {c} }} "
                f"int n = fminf(fmaxf({small}, -100.f), 100.f); r += n;")  # fmt: skip

        def value(v):
            r = begin(v)
            r = one(v, r) if chosen(v) != 0 else two(v, r)
            for _ in range(2):
                r = three(v, r)
            x = whole(v)
            n = int(np.fmin(np.fmax(x, np.float32(-100)), np.float32(100)))
            to = common(t, "int")
            return convert(convert(convert(r, to) + convert(n, to), to), t)

        return text, t, value

    def _assignment(self, t):
        e, s, value = self.expression(2) if t in FLOATS else self.integer(2)
        sign = self.random.choice(["+", "-", "*", ""] + ["<<", ">>", "^"] * (t in INTEGERS))
        if sign in ("<<", ">>"):
            last = INTEGERS[promoted(t)][0] - 1
            e, value = f"(int)({e}) & {last}", lambda v, w=value: convert(w(v), "int") & last

        def run(v, r):
            if not sign:
                return convert(value(v), t)
            if sign in ("<<", ">>"):
                to = promoted(t)
                a, n = convert(r, to), value(v)
                return convert(a << n if sign == "<<" else a >> n, t)
            to = common(t, s)
            operate = {"+": operator.add, "-": operator.sub, "*": operator.mul, "^": operator.xor}[sign]
            return convert(convert(operate(convert(r, to), convert(value(v), to)), to), t)

        return f"r {sign}= {e};", run


def inputs():
    """Sixteen values of every variable, those at the ends of types among them."""
    rng = np.random.default_rng(1)
    x = [np.nan, np.inf, -np.inf, 1e10, -1e10, 2.7, -2.7, 3e9, -1.5, 4294967040.0, 2147483520.0, 1e19, -1e19, 300.9,
         0, 70000]  # fmt: skip
    out = {"x": np.array(x, np.float32), "d": rng.permutation(np.array(x) * 1.0000001)}
    for name, t in VARIABLES.items():
        if t in INTEGERS:
            bits, signed = INTEGERS[t]
            low = -(2 ** (bits - 1)) if signed else 0
            values = [low, low + 2**bits - 1, 0, 1, 2, 5, 31, 32, 33, 63, 64, 100, low + 1, 7]
            dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
            values += [int(v) for v in rng.integers(low, low + 2**bits - 1, 2, dtype)]
            out[name] = rng.permutation(np.array(values, dtype))
    return out | {"b": np.arange(16) % 3 == 0}


def kernel(cases):
    """Return the source of a kernel that computes all cases: a function for each."""
    parameters = ", ".join(f"{t} {name}" for name, t in VARIABLES.items())
    text = HEAD
    for k, (code, t, _) in enumerate(cases):
        returned = "double" if t in FLOATS else "long long"
        body = code + " return r;" if code.endswith(";") else f"auto r = {code}; return r;"
        if not code.endswith(";"):
            body = f"static_assert(sizeof(decltype({code})) == sizeof({t})); " + body
        text += f"__device__ __noinline__ {returned} case{k}({parameters}) {{ {body} }}\n"
    arrays = ", ".join(f"const {t}* {name}_" for name, t in VARIABLES.items())
    given = ", ".join(f"{name}_[t]" for name in VARIABLES)
    text += f'extern "C" __global__ void k({arrays}, long long* whole, double* real) {{ int t = threadIdx.x;\n'
    for k, (_, t, _) in enumerate(cases):
        text += f"    {'real' if t in FLOATS else 'whole'}[{16 * k} + t] = case{k}({given});\n"
    return text + "}\n"


def mistakes(seed, count, compiler):
    """Return what differs from the model in `count` cases."""
    maker, values, found = Maker(seed), inputs(), []
    cases = [maker.statements() if k % 4 == 3 else maker.expression(maker.random.randrange(1, 5)) for k in range(count)]
    rows = [
        {n: bool(a[t]) if n == "b" else a[t] if n in "xd" else int(a[t]) for n, a in values.items()} for t in range(16)
    ]
    with np.errstate(all="ignore"):
        wanted = [[value(v) for v in rows] for _, _, value in cases]
    whole, real = np.zeros((count, 16), np.int64), np.zeros((count, 16))
    arguments = (*(values[n] for n in VARIABLES), whole, real)
    RawKernel(kernel(cases), "k", compiler=compiler)((1,), (16,), arguments)
    for k, (code, t, _) in enumerate(cases):
        want = np.array(
            [w if t in FLOATS else convert(w, "long long") for w in wanted[k]],
            np.float64 if t in FLOATS else np.int64,
        )
        got = real[k] if t in FLOATS else whole[k]
        if not np.array_equal(got, want, equal_nan=t in FLOATS):
            lane = int(np.flatnonzero(~((got == want) | (want != want)))[0])
            found.append(f"{code}  ({t})\n  {got[lane]} for {want[lane]} of {rows[lane]}")
    return found


@pytest.mark.parametrize("seed", range(-(-CASES // PER_KERNEL)))
def test_random_expressions(seed, compiler):
    assert mistakes(seed, min(CASES, PER_KERNEL), compiler) == []
