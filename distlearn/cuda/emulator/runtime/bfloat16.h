// bfloat16.h -- the upper half of a float. Arithmetic is done in float and rounded back, to nearest even, as on a card.
#pragma once

struct __nv_bfloat16 {
    unsigned short raw;
    static inline unsigned short rounded(float x) {
        unsigned u = emu::bits<unsigned>(x);
        if ((u & 0x7fffffff) > 0x7f800000u) return 0x7fff;
        return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : raw(rounded(x)) {}
    __nv_bfloat16(double x) : raw(rounded((float)x)) {}
    __nv_bfloat16(int x) : raw(rounded((float)x)) {}
    operator float() const { return emu::bits<float>((unsigned)raw << 16); }
    __nv_bfloat16& operator+=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this + (float)o); }
    __nv_bfloat16& operator-=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this - (float)o); }
    __nv_bfloat16& operator*=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this * (float)o); }
    __nv_bfloat16& operator/=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this / (float)o); }
};
typedef __nv_bfloat16 nv_bfloat16;
#define EMU_BF __nv_bfloat16
static inline EMU_BF operator+(EMU_BF a, EMU_BF b) { return EMU_BF((float)a + (float)b); }
static inline EMU_BF operator-(EMU_BF a, EMU_BF b) { return EMU_BF((float)a - (float)b); }
static inline EMU_BF operator*(EMU_BF a, EMU_BF b) { return EMU_BF((float)a * (float)b); }
static inline EMU_BF operator/(EMU_BF a, EMU_BF b) { return EMU_BF((float)a / (float)b); }
static inline EMU_BF operator-(EMU_BF a) { return EMU_BF(-(float)a); }
static inline float __bfloat162float(EMU_BF a) { return a; }
static inline EMU_BF __float2bfloat16(float a) { return EMU_BF(a); }
static inline EMU_BF __float2bfloat16_rn(float a) { return EMU_BF(a); }
static inline EMU_BF __double2bfloat16(double a) { return EMU_BF(a); }
static inline EMU_BF __int2bfloat16_rn(int a) { return EMU_BF(a); }
static inline int __bfloat162int_rn(EMU_BF a) { return (int)::lrintf(a); }
static inline unsigned short __bfloat16_as_ushort(EMU_BF a) { return a.raw; }
static inline EMU_BF __ushort_as_bfloat16(unsigned short a) { EMU_BF b; b.raw = a; return b; }
static inline EMU_BF __hadd(EMU_BF a, EMU_BF b) { return a + b; }
static inline EMU_BF __hsub(EMU_BF a, EMU_BF b) { return a - b; }
static inline EMU_BF __hmul(EMU_BF a, EMU_BF b) { return a * b; }
static inline EMU_BF __hdiv(EMU_BF a, EMU_BF b) { return a / b; }
static inline EMU_BF __hneg(EMU_BF a) { return -a; }
static inline EMU_BF __habs(EMU_BF a) { return EMU_BF(::fabsf(a)); }
static inline EMU_BF __hfma(EMU_BF a, EMU_BF b, EMU_BF c) { return EMU_BF(::fmaf(a, b, c)); }
static inline EMU_BF __hmax(EMU_BF a, EMU_BF b) { return (float)a > (float)b ? a : b; }
static inline EMU_BF __hmin(EMU_BF a, EMU_BF b) { return (float)a < (float)b ? a : b; }
static inline bool __hgt(EMU_BF a, EMU_BF b) { return (float)a > (float)b; }
static inline bool __hlt(EMU_BF a, EMU_BF b) { return (float)a < (float)b; }
static inline bool __hge(EMU_BF a, EMU_BF b) { return (float)a >= (float)b; }
static inline bool __hle(EMU_BF a, EMU_BF b) { return (float)a <= (float)b; }
static inline bool __heq(EMU_BF a, EMU_BF b) { return (float)a == (float)b; }
static inline bool __hne(EMU_BF a, EMU_BF b) { return (float)a != (float)b; }
static inline bool __hisnan(EMU_BF a) { return (float)a != (float)a; }
static inline EMU_BF hexp(EMU_BF a) { return EMU_BF(::expf(a)); }
static inline EMU_BF hlog(EMU_BF a) { return EMU_BF(::logf(a)); }
static inline EMU_BF hsqrt(EMU_BF a) { return EMU_BF(::sqrtf(a)); }
static inline EMU_BF hrsqrt(EMU_BF a) { return EMU_BF(1.0f / ::sqrtf(a)); }
static inline EMU_BF hrcp(EMU_BF a) { return EMU_BF(1.0f / (float)a); }

struct alignas(4) __nv_bfloat162 {  // copied as one word: see vectors.h
    typedef unsigned Word __attribute__((may_alias));
    EMU_BF x, y;
    __nv_bfloat162() = default;
    EMU_INLINE __nv_bfloat162(const __nv_bfloat162& o) { *(Word*)this = *(const Word*)&o; }
    EMU_INLINE __nv_bfloat162& operator=(const __nv_bfloat162& o) { *(Word*)this = *(const Word*)&o; return *this; }
    __nv_bfloat162(EMU_BF a, EMU_BF b) : x(a), y(b) {}
};
typedef __nv_bfloat162 nv_bfloat162;
#define EMU_BF2 __nv_bfloat162
static inline EMU_BF2 make_bfloat162(EMU_BF a, EMU_BF b) { return {a, b}; }
static inline EMU_BF2 __halves2bfloat162(EMU_BF a, EMU_BF b) { return {a, b}; }
static inline EMU_BF2 __bfloat162bfloat162(EMU_BF a) { return {a, a}; }
static inline EMU_BF2 __float2bfloat162_rn(float a) { return {EMU_BF(a), EMU_BF(a)}; }
static inline EMU_BF2 __floats2bfloat162_rn(float a, float b) { return {EMU_BF(a), EMU_BF(b)}; }
static inline EMU_BF2 __float22bfloat162_rn(float2 a) { return {EMU_BF(a.x), EMU_BF(a.y)}; }
static inline float2 __bfloat1622float2(EMU_BF2 a) { return float2((float)a.x, (float)a.y); }
static inline EMU_BF __low2bfloat16(EMU_BF2 a) { return a.x; }
static inline EMU_BF __high2bfloat16(EMU_BF2 a) { return a.y; }
static inline float __low2float(EMU_BF2 a) { return a.x; }
static inline float __high2float(EMU_BF2 a) { return a.y; }
static inline EMU_BF2 __hadd2(EMU_BF2 a, EMU_BF2 b) { return {a.x + b.x, a.y + b.y}; }
static inline EMU_BF2 __hsub2(EMU_BF2 a, EMU_BF2 b) { return {a.x - b.x, a.y - b.y}; }
static inline EMU_BF2 __hmul2(EMU_BF2 a, EMU_BF2 b) { return {a.x * b.x, a.y * b.y}; }
static inline EMU_BF2 __hfma2(EMU_BF2 a, EMU_BF2 b, EMU_BF2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline EMU_BF2 operator+(EMU_BF2 a, EMU_BF2 b) { return __hadd2(a, b); }
static inline EMU_BF2 operator-(EMU_BF2 a, EMU_BF2 b) { return __hsub2(a, b); }
static inline EMU_BF2 operator*(EMU_BF2 a, EMU_BF2 b) { return __hmul2(a, b); }
