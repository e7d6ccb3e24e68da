// sanitizers.h -- what the compilers' checks of conversions and shifts report, and what a card would do.
#pragma once
#include <stdint.h>
#include <stdio.h>

#include "arithmetic.h"

namespace emu {

struct UbType {
    uint16_t kind, info;  // 0 and the log2 of the bits, then whether it is signed, or 1 and the bits of a float
    char name[1];
};
struct UbLocation { const char* file; unsigned line, column; };
struct UbConversion { UbLocation location; UbType *from, *to; };
struct UbShift { UbLocation location; UbType *left, *right; };

template <class T, class F> __attribute__((noinline)) EMU_EXACT T convert_here(F x) { return (T)x; }
template <class T, class F> static bool differs(F x, char* text) {
    T card = convert<T>(x), here = convert_here<T>(x);
    if (card == here) return false;
    constexpr const char* format = Integer<T>::is_signed ? "%g is %lld on a card, but %lld here" : "%g is %llu on a card, but %llu here";
    snprintf(text, 96, format, (double)x, (long long)card, (long long)here);
    return true;
}
template <class F> static bool differs(const UbType* to, F x, char* text) {
    switch (to->info) {
    case 3 << 1: return differs<unsigned char>(x, text);
    case 3 << 1 | 1: return differs<signed char>(x, text);
    case 4 << 1: return differs<unsigned short>(x, text);
    case 4 << 1 | 1: return differs<short>(x, text);
    case 5 << 1: return differs<unsigned>(x, text);
    case 5 << 1 | 1: return differs<int>(x, text);
    case 6 << 1: return differs<unsigned long long>(x, text);
    default: return differs<long long>(x, text);
    }
}
// Whether this machine converts a number, given as its bits, unlike a card; `text` says how.
static bool differs(const UbConversion* what, uintptr_t x, char* text) {
    if (what->from->info != 64) return differs(what->to, __builtin_bit_cast(float, (uint32_t)x), text);
    return differs(what->to, __builtin_bit_cast(double, (uint64_t)x), text);
}

}  // namespace emu
