// maths.h -- CUDA's mathematical functions and integer intrinsics.
//
// They live in the kernel's namespace, where they hide the C library's functions of the same name (glibc has a __expf
// of its own). Fast intrinsics are computed exactly: results differ from a card's in the last bits.
#pragma once

#undef isnan
#undef isinf
#undef isfinite
#undef signbit

#define EMU_MATH1(name)                                                                 \
    static inline float name(float x) { return ::name##f(x); }                          \
    static inline double name(double x) { return ::name(x); }                           \
    static inline double name(int x) { return ::name((double)x); }                      \
    static inline double name(unsigned x) { return ::name((double)x); }                 \
    static inline double name(long long x) { return ::name((double)x); }                 \
    static inline double name(unsigned long x) { return ::name((double)x); }             \
    static inline double name(unsigned long long x) { return ::name((double)x); }        \
    static inline double name(long x) { return ::name((double)x); }
#define EMU_MATH2(name)                                                                 \
    static inline float name(float x, float y) { return ::name##f(x, y); }              \
    static inline double name(double x, double y) { return ::name(x, y); }              \
    static inline double name(float x, double y) { return ::name((double)x, y); }       \
    static inline double name(double x, float y) { return ::name(x, (double)y); }       \
    static inline float name(float x, int y) { return ::name##f(x, (float)y); }         \
    static inline double name(double x, int y) { return ::name(x, (double)y); }
EMU_MATH1(exp) EMU_MATH1(exp2) EMU_MATH1(expm1) EMU_MATH1(log) EMU_MATH1(log2) EMU_MATH1(log10) EMU_MATH1(log1p)
EMU_MATH1(sin) EMU_MATH1(cos) EMU_MATH1(tan) EMU_MATH1(asin) EMU_MATH1(acos) EMU_MATH1(atan)
EMU_MATH1(sinh) EMU_MATH1(cosh) EMU_MATH1(tanh) EMU_MATH1(asinh) EMU_MATH1(acosh) EMU_MATH1(atanh)
EMU_MATH1(sqrt) EMU_MATH1(cbrt) EMU_MATH1(floor) EMU_MATH1(ceil) EMU_MATH1(trunc) EMU_MATH1(round) EMU_MATH1(rint)
EMU_MATH1(nearbyint) EMU_MATH1(fabs) EMU_MATH1(erf) EMU_MATH1(erfc) EMU_MATH1(tgamma) EMU_MATH1(lgamma)
EMU_MATH2(pow) EMU_MATH2(fmod) EMU_MATH2(atan2) EMU_MATH2(fmin) EMU_MATH2(fmax) EMU_MATH2(hypot) EMU_MATH2(copysign)
static inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
static inline double fma(double a, double b, double c) { return ::fma(a, b, c); }

static inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
static inline float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
static inline float exp10f(float x) { return ::powf(10.0f, x); }
static inline void sincosf(float x, float* s, float* c) { *s = ::sinf(x), *c = ::cosf(x); }
static inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
static inline float sinpif(float x) { return (float)::sin(3.141592653589793 * ::fmod(x, 2.0)); }
static inline float cospif(float x) { return (float)::cos(3.141592653589793 * ::fmod(x, 2.0)); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
static inline float rhypotf(float x, float y) { return 1.0f / ::hypotf(x, y); }
static inline float norm3df(float x, float y, float z) { return ::sqrtf(x * x + y * y + z * z); }
static inline float normcdff(float x) { return 0.5f * ::erfcf(x * -0.70710678f); }
static inline float fdividef(float a, float b) { return a / b; }
static inline int abs(int x) { return x < 0 ? -x : x; }
static inline long abs(long x) { return x < 0 ? -x : x; }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
template <class T> static inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> static inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> static inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> static inline bool signbit(T x) { return __builtin_signbit(x); }

// Of two numbers of which one is NaN, the other: `b != b` is never true of integers. As on a card there are these alone,
// so that `max(x, 0)` of a float is ambiguous.
#define EMU_EXTREMES(T, A, B)                                                                                          \
    EMU_INLINE static inline T max(A a, B b) { return (T)a < (T)b || (T)a != (T)a ? (T)b : (T)a; }                     \
    EMU_INLINE static inline T min(A a, B b) { return (T)b < (T)a || (T)a != (T)a ? (T)b : (T)a; }
#define EMU_EXTREMES_OF(S, U)                                                                                          \
    EMU_EXTREMES(S, S, S) EMU_EXTREMES(U, U, U) EMU_EXTREMES(U, S, U) EMU_EXTREMES(U, U, S)
EMU_EXTREMES_OF(int, unsigned) EMU_EXTREMES_OF(long, unsigned long) EMU_EXTREMES_OF(long long, unsigned long long)
EMU_EXTREMES_OF(float, double)

static inline float __expf(float x) { return ::expf(x); }
static inline float __exp10f(float x) { return ::powf(10.0f, x); }
static inline float __logf(float x) { return ::logf(x); }
static inline float __log2f(float x) { return ::log2f(x); }
static inline float __log10f(float x) { return ::log10f(x); }
static inline float __sinf(float x) { return ::sinf(x); }
static inline float __cosf(float x) { return ::cosf(x); }
static inline float __tanf(float x) { return ::tanf(x); }
static inline float __powf(float x, float y) { return ::powf(x, y); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return ::sqrtf(a); }
static inline float __frsqrt_rn(float a) { return 1.0f / ::sqrtf(a); }

static inline int __float2int_rn(float x) { return emu::convert<int>(::rintf(x)); }
static inline int __float2int_rd(float x) { return emu::convert<int>(::floorf(x)); }
static inline int __float2int_ru(float x) { return emu::convert<int>(::ceilf(x)); }
static inline int __float2int_rz(float x) { return emu::convert<int>(x); }
static inline unsigned __float2uint_rn(float x) { return emu::convert<unsigned>(::rintf(x)); }
static inline unsigned __float2uint_rz(float x) { return emu::convert<unsigned>(x); }
static inline long long __float2ll_rn(float x) { return emu::convert<long long>(::rintf(x)); }
static inline int __double2int_rn(double x) { return emu::convert<int>(::rint(x)); }
static inline int __double2int_rz(double x) { return emu::convert<int>(x); }
static inline float __double2float_rn(double x) { return (float)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline int __float_as_int(float x) { return emu::bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
static inline float __int_as_float(int x) { return emu::bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emu::bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emu::bits<double>(x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
static inline int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
static inline unsigned __sad(int a, int b, unsigned c) { return c + (a < b ? (unsigned)b - a : (unsigned)a - b); }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned order) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(both >> (order >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
}
static inline int __dp4a(char4 a, char4 b, int c) { return __dp4a(emu::bits<int>(a), emu::bits<int>(b), c); }
static inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return __dp4a(emu::bits<unsigned>(a), emu::bits<unsigned>(b), c);
}

// Macros, so that the access is on the student's line.
#define __ldg(p) (*(p))
#define __ldca(p) (*(p))
#define __ldcg(p) (*(p))
#define __ldcs(p) (*(p))
#define __stcg(p, v) ((void)(*(p) = (v)))
#define __stcs(p, v) ((void)(*(p) = (v)))

// Of math_constants.h.
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_PI_F 3.141592654f
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double(0x7ff8000000000000LL)
#define CUDART_PI 3.1415926535897931e+0
