// bfloat16.h -- the upper half of a float.
#pragma once
#include "small_floats.h"

struct __nv_bfloat16 {
    static unsigned short rounded(float x) {
        unsigned u = emu::bits<unsigned>(x);
        if ((u & 0x7fffffff) > 0x7f800000u) return 0x7fff;
        return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    operator float() const { return emu::bits<float>((unsigned)raw << 16); }
    EMU_SMALL_FLOAT_MEMBERS(__nv_bfloat16)
};
typedef __nv_bfloat16 nv_bfloat16;
#define EMU_BF __nv_bfloat16
EMU_SMALL_FLOAT(EMU_BF)
static inline float __bfloat162float(EMU_BF a) { return a; }
static inline EMU_BF __float2bfloat16(float a) { return EMU_BF(a); }
static inline EMU_BF __float2bfloat16_rn(float a) { return EMU_BF(a); }
static inline EMU_BF __double2bfloat16(double a) { return EMU_BF(a); }
static inline EMU_BF __int2bfloat16_rn(int a) { return EMU_BF(a); }
static inline int __bfloat162int_rn(EMU_BF a) { return (int)::lrintf(a); }
static inline unsigned short __bfloat16_as_ushort(EMU_BF a) { return a.raw; }
static inline EMU_BF __ushort_as_bfloat16(unsigned short a) { EMU_BF b; b.raw = a; return b; }

#define EMU_BF2 __nv_bfloat162
EMU_SMALL_FLOAT_PAIR(EMU_BF2, EMU_BF)
typedef __nv_bfloat162 nv_bfloat162;
static inline EMU_BF2 make_bfloat162(EMU_BF a, EMU_BF b) { return {a, b}; }
static inline EMU_BF2 __halves2bfloat162(EMU_BF a, EMU_BF b) { return {a, b}; }
static inline EMU_BF2 __bfloat162bfloat162(EMU_BF a) { return {a, a}; }
static inline EMU_BF2 __float2bfloat162_rn(float a) { return {EMU_BF(a), EMU_BF(a)}; }
static inline EMU_BF2 __floats2bfloat162_rn(float a, float b) { return {EMU_BF(a), EMU_BF(b)}; }
static inline EMU_BF2 __float22bfloat162_rn(float2 a) { return {EMU_BF(a.x), EMU_BF(a.y)}; }
static inline float2 __bfloat1622float2(EMU_BF2 a) { return float2((float)a.x, (float)a.y); }
static inline EMU_BF __low2bfloat16(EMU_BF2 a) { return a.x; }
static inline EMU_BF __high2bfloat16(EMU_BF2 a) { return a.y; }
