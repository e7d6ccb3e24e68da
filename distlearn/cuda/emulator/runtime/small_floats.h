// small_floats.h -- what the floating-point types of two bytes have in common (half.h, bfloat16.h): arithmetic in float,
// rounded back to nearest even, which gives the correctly rounded result of +, -, *, / and sqrt.
#pragma once

// `T` with its members `raw`, `rounded(float)` and `operator float()`, which the two headers define.
#define EMU_SMALL_FLOAT_MEMBERS(T)                                                         \
    typedef void OfTwoBytes; /* a cast to an integer saturates: arithmetic.h */            \
    unsigned short raw;                                                                    \
    T() = default;                                                                         \
    T(float x) : raw(rounded(x)) {}                                                        \
    T(double x) : raw(rounded((float)x)) {}                                                \
    T(int x) : raw(rounded((float)x)) {}                                                   \
    T& operator+=(T o) { return *this = T((float)*this + (float)o); }                      \
    T& operator-=(T o) { return *this = T((float)*this - (float)o); }                      \
    T& operator*=(T o) { return *this = T((float)*this * (float)o); }                      \
    T& operator/=(T o) { return *this = T((float)*this / (float)o); }

#define EMU_SMALL_FLOAT(T)                                                                 \
    static inline T operator+(T a, T b) { return T((float)a + (float)b); }                 \
    static inline T operator-(T a, T b) { return T((float)a - (float)b); }                 \
    static inline T operator*(T a, T b) { return T((float)a * (float)b); }                 \
    static inline T operator/(T a, T b) { return T((float)a / (float)b); }                 \
    static inline T operator-(T a) { return T(-(float)a); }                                \
    static inline T __hadd(T a, T b) { return a + b; }                                     \
    static inline T __hsub(T a, T b) { return a - b; }                                     \
    static inline T __hmul(T a, T b) { return a * b; }                                     \
    static inline T __hdiv(T a, T b) { return a / b; }                                     \
    static inline T __hneg(T a) { return -a; }                                             \
    static inline T __habs(T a) { return T(::fabsf(a)); }                                  \
    static inline T __hfma(T a, T b, T c) { return T(::fmaf(a, b, c)); }                   \
    static inline T __hmax(T a, T b) { return (float)a > (float)b ? a : b; }               \
    static inline T __hmin(T a, T b) { return (float)a < (float)b ? a : b; }               \
    static inline bool __hgt(T a, T b) { return (float)a > (float)b; }                     \
    static inline bool __hlt(T a, T b) { return (float)a < (float)b; }                     \
    static inline bool __hge(T a, T b) { return (float)a >= (float)b; }                    \
    static inline bool __hle(T a, T b) { return (float)a <= (float)b; }                    \
    static inline bool __heq(T a, T b) { return (float)a == (float)b; }                    \
    static inline bool __hne(T a, T b) { return (float)a != (float)b; }                    \
    static inline bool __hisnan(T a) { return (float)a != (float)a; }                      \
    static inline int __hisinf(T a) { return __builtin_isinf((float)a) ? (a.raw >> 15 ? -1 : 1) : 0; } \
    static inline T hexp(T a) { return T(::expf(a)); }                                     \
    static inline T hlog(T a) { return T(::logf(a)); }                                     \
    static inline T hsqrt(T a) { return T(::sqrtf(a)); }                                   \
    static inline T hrsqrt(T a) { return T(1.0f / ::sqrtf(a)); }                           \
    static inline T hrcp(T a) { return T(1.0f / (float)a); }                               \
    static inline T hsin(T a) { return T(::sinf(a)); }                                     \
    static inline T hcos(T a) { return T(::cosf(a)); }                                     \
    static inline T hfloor(T a) { return T(::floorf(a)); }                                 \
    static inline T hceil(T a) { return T(::ceilf(a)); }

// Two of them, `P`: copied as one word, as a card does (see vectors.h).
#define EMU_SMALL_FLOAT_PAIR(P, T)                                                         \
    struct alignas(4) P {                                                                  \
        typedef unsigned Word __attribute__((may_alias));                                  \
        T x, y;                                                                            \
        P() = default;                                                                     \
        EMU_INLINE P(const P& o) { *(Word*)this = *(const Word*)&o; }                      \
        EMU_INLINE P& operator=(const P& o) { *(Word*)this = *(const Word*)&o; return *this; } \
        P(T a, T b) : x(a), y(b) {}                                                        \
    };                                                                                     \
    static inline float __low2float(P a) { return a.x; }                                   \
    static inline float __high2float(P a) { return a.y; }                                  \
    static inline P __hadd2(P a, P b) { return {a.x + b.x, a.y + b.y}; }                   \
    static inline P __hsub2(P a, P b) { return {a.x - b.x, a.y - b.y}; }                   \
    static inline P __hmul2(P a, P b) { return {a.x * b.x, a.y * b.y}; }                   \
    static inline P __h2div(P a, P b) { return {a.x / b.x, a.y / b.y}; }                   \
    static inline P __hneg2(P a) { return {-a.x, -a.y}; }                                  \
    static inline P __hfma2(P a, P b, P c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
    static inline P __hmax2(P a, P b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }     \
    static inline P __hmin2(P a, P b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }     \
    static inline P h2exp(P a) { return {hexp(a.x), hexp(a.y)}; }                          \
    static inline P operator+(P a, P b) { return __hadd2(a, b); }                          \
    static inline P operator-(P a, P b) { return __hsub2(a, b); }                          \
    static inline P operator*(P a, P b) { return __hmul2(a, b); }                          \
    static inline P operator/(P a, P b) { return __h2div(a, b); }                          \
    static inline P& operator+=(P& a, P b) { return a = a + b; }                           \
    static inline P& operator-=(P& a, P b) { return a = a - b; }                           \
    static inline P& operator*=(P& a, P b) { return a = a * b; }
