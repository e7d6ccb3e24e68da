// fp8.h -- floats of one byte: e4m3 has no infinity and one NaN, e5m2 is the upper byte of a half. Conversions are done
// on bits and count no operation (see half.h).
#pragma once

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    unsigned long long u = emu::bits<unsigned long long>(x), magnitude = u & ~0ull >> 1, one = 1;
    int wide = kind == __NV_E4M3 ? 3 : 2, bias = kind == __NV_E4M3 ? 7 : 15, largest = kind == __NV_E4M3 ? 0x7e : 0x7b;
    if (magnitude > 0x7ffull << 52) return 0x7f;
    int exponent = (int)(magnitude >> 52) - 1023 + bias, drop = 52 - wide + (exponent < 1 ? 1 - exponent : 0);
    unsigned long long whole = (magnitude & ((one << 52) - 1)) | one << 52, sign = u >> 56 & 0x80;
    if (drop > 54) return (__nv_fp8_storage_t)sign;
    unsigned long long rest = whole & ((one << drop) - 1), tie = one << (drop - 1);
    unsigned long long kept = (whole >> drop) + (rest > tie || (rest == tie && (whole >> drop & 1)));
    if (exponent > 0) kept += (unsigned long long)(exponent - 1) << wide;
    if (kept > (unsigned long long)largest) kept = saturate == __NV_SATFINITE ? largest : kind == __NV_E4M3 ? 0x7f : 0x7c;
    return (__nv_fp8_storage_t)(sign | kept);
}
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s, __nv_fp8_interpretation_t kind) { return __nv_cvt_double_to_fp8(x, s, kind); }
static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s, __nv_fp8_interpretation_t kind) {
    return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(x.x, s, kind) | __nv_cvt_float_to_fp8(x.y, s, kind) << 8);
}
static inline __half __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    __half h;
    unsigned sign = (x & 0x80u) << 8, magnitude = x & 0x7fu;
    if (kind == __NV_E5M2) h.raw = magnitude > 0x7c ? 0x7fff : (unsigned short)(x << 8);
    else if (magnitude == 0x7f) h.raw = 0x7fff;
    else if (magnitude > 7) h.raw = (unsigned short)(sign | ((magnitude << 7) + 0x2000));
    else if (!magnitude) h.raw = (unsigned short)sign;
    else {  // subnormal: magnitude * 2^-9
        unsigned top = 31 - __builtin_clz(magnitude);
        h.raw = (unsigned short)(sign | (top + 6) << 10 | (magnitude << (10 - top) & 0x3ff));
    }
    return h;
}
static inline __half2 __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
    return {__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, kind), __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(x >> 8), kind)};
}
static inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half x, __nv_saturation_t s, __nv_fp8_interpretation_t kind) { return __nv_cvt_double_to_fp8((float)x, s, kind); }
static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16 x, __nv_saturation_t s, __nv_fp8_interpretation_t kind) { return __nv_cvt_double_to_fp8((float)x, s, kind); }
#define EMU_FP8(T, Pair, Four, kind)                                                                                  \
    struct T {                                                                                                        \
        __nv_fp8_storage_t __x;                                                                                       \
        T() = default;                                                                                                \
        template <class N> explicit T(N x) : __x(__nv_cvt_double_to_fp8((double)x, __NV_SATFINITE, kind)) {}          \
        explicit operator __half() const { return __nv_cvt_fp8_to_halfraw(__x, kind); }                               \
        explicit operator float() const { return __nv_cvt_fp8_to_halfraw(__x, kind); }                                \
        explicit operator double() const { return (float)*this; }                                                     \
        explicit operator __nv_bfloat16() const { return __nv_bfloat16((float)*this); }                               \
    };                                                                                                                \
    struct alignas(2) Pair {                                                                                          \
        __nv_fp8x2_storage_t __x;                                                                                     \
        Pair() = default;                                                                                             \
        explicit Pair(float2 x) : __x(__nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, kind)) {}                           \
        explicit Pair(__half2 x) : Pair(__half22float2(x)) {}                                                         \
        explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, kind); }                           \
        explicit operator float2() const { return __half22float2((__half2)*this); }                                   \
    };                                                                                                                \
    struct alignas(4) Four {                                                                                          \
        __nv_fp8x4_storage_t __x;                                                                                     \
        Four() = default;                                                                                             \
        explicit Four(float4 x) : __x(Pair(float2(x.x, x.y)).__x | (unsigned)Pair(float2(x.z, x.w)).__x << 16) {}     \
        explicit operator float4() const {                                                                            \
            Pair low, high;                                                                                           \
            low.__x = (__nv_fp8x2_storage_t)__x, high.__x = (__nv_fp8x2_storage_t)(__x >> 16);                        \
            float2 a = (float2)low, b = (float2)high;                                                                 \
            return float4(a.x, a.y, b.x, b.y);                                                                        \
        }                                                                                                             \
    };
EMU_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
EMU_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
