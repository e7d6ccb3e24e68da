// half.h -- half precision: 5 bits of exponent, 10 of the fraction. Conversions count no operation, so they have none.
#pragma once
#include "small_floats.h"

static inline float emu_half_to_float(unsigned short h) {
    unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return emu::bits<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent) return emu::bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    if (!fraction) return emu::bits<float>(sign);
    unsigned top = 31 - __builtin_clz(fraction);  // subnormal: fraction * 2^-24
    return emu::bits<float>(sign | (top + 103) << 23 | (fraction << (23 - top) & 0x7fffff));
}
static inline unsigned short emu_float_to_half(float x) {
    unsigned u = emu::bits<unsigned>(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00);
    if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);  // rounds to 65536 or more: infinity
    if (magnitude < 0x38800000u) {                                        // subnormal
        unsigned down = 126 - (magnitude >> 23), whole = 0x800000 | (magnitude & 0x7fffff);
        if (down > 24) return (unsigned short)sign;
        unsigned rest = whole & ((1u << down) - 1), tie = 1u << (down - 1);
        return (unsigned short)(sign | ((whole >> down) + (rest > tie || (rest == tie && (whole >> down & 1)))));
    }
    return (unsigned short)(sign | ((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

struct __half {
    static unsigned short rounded(float x) { return emu_float_to_half(x); }
    operator float() const { return emu_half_to_float(raw); }
    EMU_SMALL_FLOAT_MEMBERS(__half)
};
typedef __half half;
EMU_SMALL_FLOAT(__half)
static inline float __half2float(__half a) { return a; }
static inline __half __float2half(float a) { return __half(a); }
static inline __half __float2half_rn(float a) { return __half(a); }
static inline __half __double2half(double a) { return __half(a); }
static inline __half __int2half_rn(int a) { return __half(a); }
static inline int __half2int_rn(__half a) { return emu::convert<int>(::rintf(a)); }
static inline int __half2int_rz(__half a) { return emu::convert<int>((float)a); }
static inline short __half2short_rn(__half a) { return (short)::lrintf(a); }
static inline __half __uint2half_rn(unsigned a) { return __half((float)a); }
static inline unsigned short __half_as_ushort(__half a) { return a.raw; }
static inline __half __ushort_as_half(unsigned short a) { __half h; h.raw = a; return h; }

EMU_SMALL_FLOAT_PAIR(__half2, __half)
typedef __half2 half2;
static inline __half2 make_half2(__half a, __half b) { return {a, b}; }
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __half2half2(__half a) { return {a, a}; }
static inline __half __low2half(__half2 a) { return a.x; }
static inline __half __high2half(__half2 a) { return a.y; }
static inline float2 __half22float2(__half2 a) { return float2((float)a.x, (float)a.y); }
static inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
