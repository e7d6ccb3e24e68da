// half.h -- half precision. A half is two bytes; arithmetic is done in float and rounded back, to nearest even, which
// gives the correctly rounded half result for +, -, *, / and sqrt.
#pragma once

static inline float emu_half_to_float(unsigned short h) {
    unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return emu::bits<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent) return emu::bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)(int)fraction * 5.9604644775390625e-8f;  // subnormal: fraction * 2^-24
    return sign ? -tiny : tiny;
}
static inline unsigned short emu_float_to_half(float x) {
    unsigned u = emu::bits<unsigned>(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00);
    if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);  // rounds to 65536 or more: infinity
    if (magnitude < 0x38800000u) {                                        // subnormal: adding 0.5 does the rounding
        float shifted = emu::bits<float>(magnitude) + 0.5f;
        return (unsigned short)(sign | (emu::bits<unsigned>(shifted) - 0x3f000000u));
    }
    return (unsigned short)(sign | ((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

struct __half {
    unsigned short raw;
    __half() = default;
    __half(float x) : raw(emu_float_to_half(x)) {}
    __half(double x) : raw(emu_float_to_half((float)x)) {}
    __half(int x) : raw(emu_float_to_half((float)x)) {}
    operator float() const { return emu_half_to_float(raw); }
    __half& operator+=(__half o) { return *this = __half((float)*this + (float)o); }
    __half& operator-=(__half o) { return *this = __half((float)*this - (float)o); }
    __half& operator*=(__half o) { return *this = __half((float)*this * (float)o); }
    __half& operator/=(__half o) { return *this = __half((float)*this / (float)o); }
};
typedef __half half;
static inline __half operator+(__half a, __half b) { return __half((float)a + (float)b); }
static inline __half operator-(__half a, __half b) { return __half((float)a - (float)b); }
static inline __half operator*(__half a, __half b) { return __half((float)a * (float)b); }
static inline __half operator/(__half a, __half b) { return __half((float)a / (float)b); }
static inline __half operator-(__half a) { return __half(-(float)a); }
static inline float __half2float(__half a) { return a; }
static inline __half __float2half(float a) { return __half(a); }
static inline __half __float2half_rn(float a) { return __half(a); }
static inline __half __double2half(double a) { return __half(a); }
static inline __half __int2half_rn(int a) { return __half(a); }
static inline __half __hadd(__half a, __half b) { return a + b; }
static inline __half __hsub(__half a, __half b) { return a - b; }
static inline __half __hmul(__half a, __half b) { return a * b; }
static inline __half __hdiv(__half a, __half b) { return a / b; }
static inline __half __hneg(__half a) { return -a; }
static inline __half __hfma(__half a, __half b, __half c) { return __half(::fmaf(a, b, c)); }
static inline __half __hmax(__half a, __half b) { return (float)a > (float)b ? a : b; }
static inline __half __hmin(__half a, __half b) { return (float)a < (float)b ? a : b; }
static inline bool __hgt(__half a, __half b) { return (float)a > (float)b; }
static inline bool __hlt(__half a, __half b) { return (float)a < (float)b; }
static inline bool __hge(__half a, __half b) { return (float)a >= (float)b; }
static inline bool __hle(__half a, __half b) { return (float)a <= (float)b; }
static inline bool __heq(__half a, __half b) { return (float)a == (float)b; }
static inline bool __hne(__half a, __half b) { return (float)a != (float)b; }
static inline bool __hisnan(__half a) { return (float)a != (float)a; }
static inline int __hisinf(__half a) { return (a.raw & 0x7fff) == 0x7c00 ? a.raw >> 15 ? -1 : 1 : 0; }
static inline __half __habs(__half a) { return __half(::fabsf(a)); }
static inline __half hexp(__half a) { return __half(::expf(a)); }
static inline __half hlog(__half a) { return __half(::logf(a)); }
static inline __half hsqrt(__half a) { return __half(::sqrtf(a)); }
static inline __half hrsqrt(__half a) { return __half(1.0f / ::sqrtf(a)); }
static inline __half hrcp(__half a) { return __half(1.0f / (float)a); }
static inline __half hsin(__half a) { return __half(::sinf(a)); }
static inline __half hcos(__half a) { return __half(::cosf(a)); }
static inline __half hfloor(__half a) { return __half(::floorf(a)); }
static inline __half hceil(__half a) { return __half(::ceilf(a)); }
static inline int __half2int_rn(__half a) { return emu::convert<int>(::rintf(a)); }
static inline int __half2int_rz(__half a) { return emu::convert<int>((float)a); }
static inline short __half2short_rn(__half a) { return (short)::lrintf(a); }
static inline __half __uint2half_rn(unsigned a) { return __half((float)a); }
static inline unsigned short __half_as_ushort(__half a) { return a.raw; }
static inline __half __ushort_as_half(unsigned short a) { __half h; h.raw = a; return h; }

struct alignas(4) __half2 {  // copied as one word, as a card does: see vectors.h
    typedef unsigned Word __attribute__((may_alias));
    __half x, y;
    __half2() = default;
    EMU_INLINE __half2(const __half2& o) { *(Word*)this = *(const Word*)&o; }
    EMU_INLINE __half2& operator=(const __half2& o) { *(Word*)this = *(const Word*)&o; return *this; }
    __half2(__half a, __half b) : x(a), y(b) {}
};
typedef __half2 half2;
static inline __half2 make_half2(__half a, __half b) { return {a, b}; }
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __half2half2(__half a) { return {a, a}; }
static inline __half __low2half(__half2 a) { return a.x; }
static inline __half __high2half(__half2 a) { return a.y; }
static inline float __low2float(__half2 a) { return a.x; }
static inline float __high2float(__half2 a) { return a.y; }
static inline float2 __half22float2(__half2 a) { return float2((float)a.x, (float)a.y); }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
static inline __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
static inline __half2 __h2div(__half2 a, __half2 b) { return {a.x / b.x, a.y / b.y}; }
static inline __half2 __hneg2(__half2 a) { return {-a.x, -a.y}; }
static inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
static inline __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
static inline __half2 h2exp(__half2 a) { return {hexp(a.x), hexp(a.y)}; }
static inline __half2 operator+(__half2 a, __half2 b) { return __hadd2(a, b); }
static inline __half2 operator-(__half2 a, __half2 b) { return __hsub2(a, b); }
static inline __half2 operator*(__half2 a, __half2 b) { return __hmul2(a, b); }
static inline __half2 operator/(__half2 a, __half2 b) { return __h2div(a, b); }
static inline __half2& operator+=(__half2& a, __half2 b) { return a = a + b; }
static inline __half2& operator-=(__half2& a, __half2 b) { return a = a - b; }
static inline __half2& operator*=(__half2& a, __half2 b) { return a = a * b; }
