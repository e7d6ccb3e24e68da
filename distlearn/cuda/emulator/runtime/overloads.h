// overloads.h -- overloads that CUDA has beside those of maths.h: for integers, by other names, with other rounding.
#pragma once

// A function of two numbers that are not both of one floating-point type computes in double, as in C++; of a float and
// an integer maths.h has its own.
template <class T> struct EmuIsInteger { static constexpr bool value = false; };
#define EMU_IS_INTEGER(T) template <> struct EmuIsInteger<T> { static constexpr bool value = true; };
EMU_IS_INTEGER(bool) EMU_IS_INTEGER(char) EMU_IS_INTEGER(signed char) EMU_IS_INTEGER(unsigned char) EMU_IS_INTEGER(short)
EMU_IS_INTEGER(unsigned short) EMU_IS_INTEGER(int) EMU_IS_INTEGER(unsigned) EMU_IS_INTEGER(long) EMU_IS_INTEGER(unsigned long)
EMU_IS_INTEGER(long long) EMU_IS_INTEGER(unsigned long long)
template <bool b> struct EmuDoubleIf {};
template <> struct EmuDoubleIf<true> { typedef double type; };
#define EMU_OF_INTEGERS(name)                                                                                       \
    template <class A, class B> static inline typename EmuDoubleIf<EmuIsInteger<A>::value || EmuIsInteger<B>::value>::type \
    name(A a, B b) { return ::name((double)a, (double)b); }
EMU_OF_INTEGERS(pow) EMU_OF_INTEGERS(fmod) EMU_OF_INTEGERS(atan2) EMU_OF_INTEGERS(fmin) EMU_OF_INTEGERS(fmax)
EMU_OF_INTEGERS(hypot)
EMU_MATH2(fdim) EMU_MATH2(remainder) EMU_MATH2(nextafter)
EMU_MATH1(logb)
static inline float ldexp(float x, int n) { return ::ldexpf(x, n); }
static inline double ldexp(double x, int n) { return ::ldexp(x, n); }
static inline float modf(float x, float* whole) { return ::modff(x, whole); }
static inline double modf(double x, double* whole) { return ::modf(x, whole); }
static inline float frexp(float x, int* n) { return ::frexpf(x, n); }
static inline double frexp(double x, int* n) { return ::frexp(x, n); }
static inline void sincos(double x, double* s, double* c) { *s = ::sin(x), *c = ::cos(x); }
static inline void sincos(float x, float* s, float* c) { *s = ::sinf(x), *c = ::cosf(x); }
static inline double fma(double a, float b, double c) { return ::fma(a, (double)b, c); }

static inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
static inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
static inline long long llmin(long long a, long long b) { return b < a ? b : a; }
static inline long long llmax(long long a, long long b) { return a < b ? b : a; }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a < b ? b : a; }

static inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
static inline double exp10(double x) { return ::pow(10.0, x); }
static inline float exp10(float x) { return ::powf(10.0f, x); }
static inline double sinpi(double x) { return ::sin(3.141592653589793 * ::fmod(x, 2.0)); }
static inline double cospi(double x) { return ::cos(3.141592653589793 * ::fmod(x, 2.0)); }
static inline double normcdf(double x) { return 0.5 * ::erfc(x * -0.7071067811865476); }
static inline double norm3d(double x, double y, double z) { return ::sqrt(x * x + y * y + z * z); }
static inline float norm4df(float x, float y, float z, float w) { return ::sqrtf(x * x + y * y + z * z + w * w); }
static inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
static inline float rnorm4df(float x, float y, float z, float w) { return 1.0f / norm4df(x, y, z, w); }
static inline float erfcxf(float x) { return (float)(::exp((double)x * x) * ::erfc((double)x)); }

// Only rounding to nearest is computed as such; the others differ from it in the last bit.
#define EMU_ROUNDED(mode)                                                                     \
    static inline double __dadd_##mode(double a, double b) { return a + b; }                  \
    static inline double __dsub_##mode(double a, double b) { return a - b; }                  \
    static inline double __dmul_##mode(double a, double b) { return a * b; }                  \
    static inline double __ddiv_##mode(double a, double b) { return a / b; }                  \
    static inline double __drcp_##mode(double a) { return 1.0 / a; }                          \
    static inline double __dsqrt_##mode(double a) { return ::sqrt(a); }                       \
    static inline double __fma_##mode(double a, double b, double c) { return ::fma(a, b, c); }
EMU_ROUNDED(rn) EMU_ROUNDED(rz) EMU_ROUNDED(ru) EMU_ROUNDED(rd)
#define EMU_ROUNDED_FLOAT(mode)                                                               \
    static inline float __fadd_##mode(float a, float b) { return a + b; }                     \
    static inline float __fsub_##mode(float a, float b) { return a - b; }                     \
    static inline float __fmul_##mode(float a, float b) { return a * b; }                     \
    static inline float __fdiv_##mode(float a, float b) { return a / b; }                     \
    static inline float __frcp_##mode(float a) { return 1.0f / a; }                           \
    static inline float __fsqrt_##mode(float a) { return ::sqrtf(a); }                        \
    static inline float __fmaf_##mode(float a, float b, float c) { return ::fmaf(a, b, c); }
EMU_ROUNDED_FLOAT(rz) EMU_ROUNDED_FLOAT(ru) EMU_ROUNDED_FLOAT(rd)
