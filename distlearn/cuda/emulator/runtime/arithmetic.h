// arithmetic.h -- what C++ leaves undefined and a card defines: shifts as far as the type is wide or farther, and numbers
// converted to integers that do not hold them. arithmetic.py writes the source's shifts and casts so that they come here:
//
//     a << n        a <<emu::shift<< n
//     a <<= n       a <<=emu::shift<<= n
//     (int)x        (emu::To<int>)x
//
// No branches: in the checked build they would count as blocks of the kernel.
#pragma once

namespace emu {

#define EMU_CARD EMU_INLINE constexpr

template <class T> struct Integer { static constexpr bool is_signed = T(-1) < T(0); static constexpr int bits = 8 * sizeof(T); };
template <class T> struct IsFloat { static constexpr bool value = false; };
template <> struct IsFloat<float> { static constexpr bool value = true; };
template <> struct IsFloat<double> { static constexpr bool value = true; };
template <int bytes, bool is_signed> struct Word { typedef unsigned type; };
template <> struct Word<4, true> { typedef int type; };
template <> struct Word<8, false> { typedef unsigned long long type; };
template <> struct Word<8, true> { typedef long long type; };

// ---- conversions: to the nearest number that the type holds, NaN to 0 (of 8 bytes to the smallest)
template <class T, class F> EMU_CARD T saturate_plainly(F x) {
    constexpr T least = Integer<T>::is_signed ? T(1) << (Integer<T>::bits - 1) : T(0);
    constexpr F end = F(2) * F(1ull << (Integer<T>::bits - 2)) * F(Integer<T>::is_signed ? 1 : 2);  // the first too large
    if (x != x) return Integer<T>::bits == 64 ? T(1ull << 63) : T(0);
    return x >= end ? T(~least) : x <= F(least) ? least : T(x);
}
#if defined(__x86_64__)
typedef float FourFloats __attribute__((vector_size(16)));
typedef double TwoDoubles __attribute__((vector_size(16)));
EMU_INLINE static inline int truncate4(float x) { return __builtin_ia32_cvttss2si(FourFloats{x, 0, 0, 0}); }
EMU_INLINE static inline int truncate4(double x) { return __builtin_ia32_cvttsd2si(TwoDoubles{x, 0}); }
EMU_INLINE static inline long long truncate8(float x) { return __builtin_ia32_cvttss2si64(FourFloats{x, 0, 0, 0}); }
EMU_INLINE static inline long long truncate8(double x) { return __builtin_ia32_cvttsd2si64(TwoDoubles{x, 0}); }
// What does not fit becomes the smallest number: turned over where it was too large.
template <class F> EMU_INLINE static inline int saturate_to(int, F x) {
    return (truncate4(x) ^ -(int)(x >= F(2147483648.0))) & -(int)(x == x);
}
template <class F> EMU_INLINE static inline long long saturate_to(long long, F x) {
    return truncate8(x) ^ -(long long)(x >= F(9223372036854775808.0));
}
template <class F> EMU_INLINE static inline unsigned saturate_to(unsigned, F x) {
    long long whole = truncate8(x);
    return (unsigned)(whole & ~-(long long)(whole < 0)) | -(unsigned)(x >= F(4294967296.0));
}
template <class F> EMU_INLINE static inline unsigned long long saturate_to(unsigned long long, F x) {
    return saturate_plainly<unsigned long long>(x);
}
#else  // 64-bit ARM converts as a card does
template <class T, class F> EMU_INLINE static inline T saturate_to(T, F x) { return (T)x; }
#endif

template <class T, class F> EMU_CARD T convert(F x) {
    if constexpr (IsFloat<F>::value && !IsFloat<T>::value) {
        typedef typename Word<sizeof(T), Integer<T>::is_signed>::type W;
        return (T)(__builtin_constant_p(x) ? saturate_plainly<W>(x) : saturate_to(W(), x));
    } else {
        return (T)x;
    }
}

template <class T> struct To {  // what a cast to T gives
    T value;
    To() = default;
    template <class F> EMU_CARD explicit To(F x) : value(convert<T>(x)) {}
    EMU_CARD operator T() const { return value; }
};
template <> struct To<bool>;  // not written

// ---- shifts
struct Shift {};
constexpr Shift shift{};
template <class T> EMU_CARD T shift_left(T a, unsigned n) {
    typedef typename Word<sizeof(T), false>::type U;
    constexpr unsigned bits = Integer<T>::bits;
    return T((U(a) << (n & (bits - 1))) & -U(n < bits));
}
template <class T> EMU_CARD T shift_right(T a, unsigned n) {
    typedef typename Word<sizeof(T), false>::type U;
    constexpr unsigned bits = Integer<T>::bits;
    if constexpr (Integer<T>::is_signed) return a >> ((n | -(unsigned)(n >= bits)) & (bits - 1));  // the sign stays
    else return T((a >> (n & (bits - 1))) & -U(n < bits));
}
template <class T> struct ShiftLeft { T a; };
template <class T> struct ShiftRight { T a; };
struct By { unsigned n; };

template <class T> EMU_CARD auto operator<<(T a, Shift) -> ShiftLeft<decltype(+a)> { return {+a}; }
template <class T> EMU_CARD auto operator>>(T a, Shift) -> ShiftRight<decltype(+a)> { return {+a}; }
template <class T, class N> EMU_CARD T operator<<(ShiftLeft<T> s, N n) { return shift_left(s.a, (unsigned)n); }
template <class T, class N> EMU_CARD T operator>>(ShiftRight<T> s, N n) { return shift_right(s.a, (unsigned)n); }
template <class N> EMU_CARD By operator<<=(Shift, N n) { return {(unsigned)n}; }
template <class N> EMU_CARD By operator>>=(Shift, N n) { return {(unsigned)n}; }
template <class T> EMU_CARD T& operator<<=(T& a, By by) { return a = (T)shift_left(+a, by.n); }
template <class T> EMU_CARD T& operator>>=(T& a, By by) { return a = (T)shift_right(+a, by.n); }

// What passes through `...` must be a plain number again.
template <class T> EMU_CARD T plain(T x) { return x; }
template <class T> EMU_CARD T plain(To<T> x) { return x.value; }
template <class... A> EMU_INLINE static inline int print(const char* format, A... a) {
    return emu_printf(format, plain(a)...);
}

}  // namespace emu
