// arithmetic.h -- what C++ leaves undefined and a card defines: numbers converted to integers that do not hold them.
// translate.py writes the source's casts so that they come here:
//
//     (int)x        (int)(emu::To<int>)x
//     T(x)          emu::Made<T>::of(x)
//
// What it does not see, such as `int i = x`, a sanitizer watches: where the card's result would be another, its handler
// says so (sanitizers.h).
// No branches: they would count as blocks of the kernel.
#pragma once

#ifdef __clang__  // what was inlined has the line of the kernel that it was called from
#define EMU_INLINE __attribute__((always_inline, nodebug))
#else
#define EMU_INLINE __attribute__((always_inline))
#endif

namespace emu {

#define EMU_EXACT __attribute__((no_sanitize("float-cast-overflow")))
#define EMU_CARD EMU_INLINE EMU_EXACT constexpr

template <class T> struct Integer { static constexpr bool is_signed = T(-1) < T(0); static constexpr int bits = 8 * sizeof(T); };
template <class T> struct IsFloat { static constexpr bool value = false; };
template <> struct IsFloat<float> { static constexpr bool value = true; };
template <> struct IsFloat<double> { static constexpr bool value = true; };
template <class T> struct IsInteger { static constexpr bool value = false; };  // bool is none: it has no limits
#define EMU_INTEGER(T) template <> struct IsInteger<T> { static constexpr bool value = true; };
EMU_INTEGER(char) EMU_INTEGER(signed char) EMU_INTEGER(unsigned char) EMU_INTEGER(short) EMU_INTEGER(unsigned short)
EMU_INTEGER(int) EMU_INTEGER(unsigned) EMU_INTEGER(long) EMU_INTEGER(unsigned long) EMU_INTEGER(long long)
EMU_INTEGER(unsigned long long)
template <class T, bool is_integer = IsInteger<T>::value> struct Promoted { typedef T type; };
template <class T> struct Promoted<T, true> { typedef decltype(+T()) type; };
template <> struct Promoted<bool, false> { typedef int type; };
template <int bytes, bool is_signed> struct Word { typedef unsigned type; };
template <> struct Word<4, true> { typedef int type; };
template <> struct Word<8, false> { typedef unsigned long long type; };
template <> struct Word<8, true> { typedef long long type; };

// ---- conversions: to the nearest number that 4 or 8 bytes hold, NaN to 0, or to the upper bit alone if either is of 8
// bytes; narrower types keep the lower bits (PTX, "cvt")
template <class T, class F> EMU_CARD T saturate_plainly(F x) {
    constexpr T least = Integer<T>::is_signed ? T(1) << (Integer<T>::bits - 1) : T(0);
    constexpr F end = F(2) * F(1ull << (Integer<T>::bits - 2)) * F(Integer<T>::is_signed ? 1 : 2);  // the first too large
    if (x != x) return Integer<T>::bits == 64 || sizeof x == 8 ? T(1ull << (Integer<T>::bits - 1)) : T(0);
    return x >= end ? T(~least) : x <= F(least) ? least : T(x);
}
#if defined(__x86_64__)
typedef float FourFloats __attribute__((vector_size(16)));
typedef double TwoDoubles __attribute__((vector_size(16)));
// gcc would compute what it finds constant in its last passes, but with another result where it does not fit.
template <class F> EMU_INLINE static inline F hidden(F x) {
    asm("" : "+x"(x));
    return x;
}
EMU_INLINE static inline int truncate4(float x) { return __builtin_ia32_cvttss2si(FourFloats{hidden(x), 0, 0, 0}); }
EMU_INLINE static inline int truncate4(double x) { return __builtin_ia32_cvttsd2si(TwoDoubles{hidden(x), 0}); }
EMU_INLINE static inline long long truncate8(float x) { return __builtin_ia32_cvttss2si64(FourFloats{hidden(x), 0, 0, 0}); }
EMU_INLINE static inline long long truncate8(double x) { return __builtin_ia32_cvttsd2si64(TwoDoubles{hidden(x), 0}); }
// What does not fit becomes the smallest number: turned over where it was too large.
template <class F> EMU_INLINE static inline int saturate_to(int, F x) {
    return (truncate4(x) ^ -(int)(x >= F(2147483648.0))) & -(int)(sizeof x == 8 || x == x);
}
template <class F> EMU_INLINE static inline long long saturate_to(long long, F x) {
    return truncate8(x) ^ -(long long)(x >= F(9223372036854775808.0));
}
template <class F> EMU_INLINE static inline unsigned saturate_to(unsigned, F x) {
    long long whole = truncate8(x);
    unsigned nan = (unsigned)(sizeof x == 8 && x != x) << 31;
    return (unsigned)(whole & ~-(long long)(whole < 0)) | -(unsigned)(x >= F(4294967296.0)) | nan;
}
template <class F> EMU_INLINE static inline unsigned long long saturate_to(unsigned long long, F x) {
    return saturate_plainly<unsigned long long>(x);
}
#else  // 64-bit ARM converts as a card does, but NaN to 0
template <class T, class F> EMU_CARD T saturate_to(T, F x) {
    return (T)x | (T)((T)((sizeof x == 8 || sizeof(T) == 8) & (x != x)) << (Integer<T>::bits - 1));
}
#endif

template <class T, class F> EMU_CARD T convert(F x);
template <class F, class = void> struct IsSmallFloat { static constexpr bool value = false; };
template <class F> struct IsSmallFloat<F, typename F::OfTwoBytes> { static constexpr bool value = true; };  // small_floats.h
// A card converts them to the nearest number that the type holds, however narrow it is (PTX, "cvt").
template <class T, class F> EMU_CARD T convert_class(F x) {
    if constexpr (!IsSmallFloat<F>::value || !IsInteger<T>::value) {
        return (T)x;
    } else if constexpr (sizeof(T) >= 4) {
        return convert<T>((float)x);
    } else {
        constexpr float least = Integer<T>::is_signed ? -(float)(1 << (Integer<T>::bits - 1)) : 0.0f;
        constexpr float most = (float)(1 << (Integer<T>::bits - Integer<T>::is_signed)) - 1.0f;
        float f = (float)x;
        return (T)saturate_to(int(), f != f ? 0.0f : f < least ? least : f > most ? most : f);
    }
}
template <class T, class F> EMU_CARD T convert(F x) {
    if constexpr (IsFloat<F>::value) {
        typedef typename Word<(sizeof(T) < 8 ? 4 : 8), Integer<T>::is_signed>::type W;
        return (T)(__builtin_constant_p(x) ? saturate_plainly<W>(x) : saturate_to(W(), x));
    } else {
        return convert_class<T>(x);
    }
}

template <class T> struct Integral {  // what a cast to T gives
    T value;
    Integral() = default;
    template <class F> EMU_CARD explicit Integral(F x) : value(convert<T>(x)) {}
    EMU_CARD operator T() const { return value; }
};
template <class T, bool is_integer> struct Target { typedef T type; };
template <class T> struct Target<T, true> { typedef Integral<T> type; };
template <class T> using To = typename Target<T, IsInteger<T>::value>::type;

template <class T, bool is_class = __is_class(T)> struct Made {
    template <class... F> static EMU_CARD T of(F... x) {
        if constexpr (IsInteger<T>::value && sizeof...(x) == 1) return convert<T>(x...);
        else return T(x...);
    }
};
template <class T> struct Made<T, true> {  // a class may keep a reference to what it is made of
    template <class... F> static EMU_CARD T of(F&&... x) { return T(static_cast<F&&>(x)...); }
};

}  // namespace emu
