// standard.h -- the little of the C++ library that kernels use, by the names of std, cuda::std and thrust.
//
// Real headers of the C++ library would cost half a second for each build, and need a library to link.
#pragma once

namespace std {
using ::size_t;
using ::ptrdiff_t;
using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uintptr_t;
using ::memcpy;
using ::memset;
using ::std::initializer_list;

template <class T, T v> struct integral_constant {
    static constexpr T value = v;
    typedef T value_type;
    constexpr operator T() const { return v; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <bool b> using bool_constant = integral_constant<bool, b>;

template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_volatile<remove_const_t<T>>::type type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_cvref_t = remove_cv_t<remove_reference_t<T>>;
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T*> { typedef T type; };
template <class T> using decay_t = remove_cvref_t<T>;  // of no arrays and functions

template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;
template <bool b, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool b, class A, class B> using conditional_t = typename conditional<b, A, B>::type;

template <class T> struct is_floating_point : bool_constant<is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>> {};
template <class T> struct is_integral : bool_constant<__is_enum(T) ? false : false> {};
#define EMU_INTEGRAL(T) template <> struct is_integral<T> : true_type {}; template <> struct is_integral<const T> : true_type {};
EMU_INTEGRAL(bool) EMU_INTEGRAL(char) EMU_INTEGRAL(signed char) EMU_INTEGRAL(unsigned char) EMU_INTEGRAL(short)
EMU_INTEGRAL(unsigned short) EMU_INTEGRAL(int) EMU_INTEGRAL(unsigned) EMU_INTEGRAL(long) EMU_INTEGRAL(unsigned long)
EMU_INTEGRAL(long long) EMU_INTEGRAL(unsigned long long)
template <class T> struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T> struct is_signed : bool_constant<(is_arithmetic<T>::value && T(-1) < T(0))> {};
template <class T> struct is_unsigned : bool_constant<(is_integral<T>::value && !(T(-1) < T(0)))> {};
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> struct is_const : false_type {};
template <class T> struct is_const<const T> : true_type {};
template <class T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> constexpr bool is_integral_v = is_integral<T>::value;
template <class T> constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T> constexpr bool is_signed_v = is_signed<T>::value;
template <class T> constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T> constexpr bool is_pointer_v = is_pointer<T>::value;
template <class T> struct make_unsigned { typedef conditional_t<sizeof(T) == 1, unsigned char, conditional_t<sizeof(T) == 2, unsigned short, conditional_t<sizeof(T) == 4, unsigned, unsigned long long>>> type; };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;

template <class T> EMU_INLINE constexpr remove_reference_t<T>&& move(T&& v) { return static_cast<remove_reference_t<T>&&>(v); }
template <class T> EMU_INLINE constexpr T&& forward(remove_reference_t<T>& v) { return static_cast<T&&>(v); }
template <class T> EMU_INLINE constexpr T&& forward(remove_reference_t<T>&& v) { return static_cast<T&&>(v); }
template <class T> T&& declval();
template <class T> EMU_INLINE constexpr void swap(T& a, T& b) { T c = move(a); a = move(b); b = move(c); }
template <class T, class U> EMU_INLINE constexpr T exchange(T& a, U&& b) { T old = move(a); a = forward<U>(b); return old; }
template <class T> EMU_INLINE constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> EMU_INLINE constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class To, class From> EMU_INLINE To bit_cast(const From& v) { return emu::bits<To>(v); }

template <class A, class B> struct pair {
    A first;
    B second;
    typedef A first_type;
    typedef B second_type;
};
template <class A, class B> EMU_INLINE constexpr pair<A, B> make_pair(A a, B b) { return {a, b}; }
template <class T, size_t n> struct array {
    T items[n];
    EMU_INLINE constexpr T& operator[](size_t i) { return items[i]; }
    EMU_INLINE constexpr const T& operator[](size_t i) const { return items[i]; }
    static constexpr size_t size() { return n; }
    EMU_INLINE constexpr T* data() { return items; }
    EMU_INLINE constexpr T* begin() { return items; }
    EMU_INLINE constexpr T* end() { return items + n; }
    EMU_INLINE constexpr const T* begin() const { return items; }
    EMU_INLINE constexpr const T* end() const { return items + n; }
    EMU_INLINE constexpr void fill(const T& v) { for (size_t i = 0; i < n; i++) items[i] = v; }
};

#define EMU_FUNCTOR(name, type, result)                                                                     \
    template <class T = void> struct name { EMU_INLINE constexpr type operator()(const T& a, const T& b) const { return result; } }; \
    template <> struct name<void> { template <class T> EMU_INLINE constexpr auto operator()(const T& a, const T& b) const { return result; } };
EMU_FUNCTOR(plus, T, a + b) EMU_FUNCTOR(minus, T, a - b) EMU_FUNCTOR(multiplies, T, a * b) EMU_FUNCTOR(divides, T, a / b)
EMU_FUNCTOR(less, bool, a < b) EMU_FUNCTOR(greater, bool, b < a) EMU_FUNCTOR(equal_to, bool, a == b)
EMU_FUNCTOR(bit_and, T, a & b) EMU_FUNCTOR(bit_or, T, a | b) EMU_FUNCTOR(bit_xor, T, a ^ b)

template <class T> struct numeric_limits { static constexpr bool is_specialized = false; };
#define EMU_LIMITS(T, smallest, greatest, least, epsilon_, inf, nan, is_int, bits)                            \
    template <> struct numeric_limits<T> {                                                                    \
        static constexpr bool is_specialized = true, is_integer = is_int, has_infinity = !is_int, is_signed = (T)-1 < (T)0; \
        static constexpr int digits = bits;                                                                   \
        static constexpr T min() { return smallest; }                                                         \
        static constexpr T max() { return greatest; }                                                         \
        static constexpr T lowest() { return least; }                                                         \
        static constexpr T epsilon() { return epsilon_; }                                                     \
        static constexpr T infinity() { return inf; }                                                         \
        static constexpr T quiet_NaN() { return nan; }                                                        \
    };
#define EMU_INT_LIMITS(T, low, high) EMU_LIMITS(T, low, high, low, 0, 0, 0, true, (int)(sizeof(T) * 8 - ((T)-1 < (T)0)))
EMU_LIMITS(float, FLT_MIN, FLT_MAX, -FLT_MAX, FLT_EPSILON, __builtin_inff(), __builtin_nanf(""), false, 24)
EMU_LIMITS(double, DBL_MIN, DBL_MAX, -DBL_MAX, DBL_EPSILON, __builtin_inf(), __builtin_nan(""), false, 53)
EMU_INT_LIMITS(bool, false, true) EMU_INT_LIMITS(char, CHAR_MIN, CHAR_MAX) EMU_INT_LIMITS(signed char, SCHAR_MIN, SCHAR_MAX)
EMU_INT_LIMITS(unsigned char, 0, UCHAR_MAX) EMU_INT_LIMITS(short, SHRT_MIN, SHRT_MAX) EMU_INT_LIMITS(unsigned short, 0, USHRT_MAX)
EMU_INT_LIMITS(int, INT_MIN, INT_MAX) EMU_INT_LIMITS(unsigned, 0, UINT_MAX) EMU_INT_LIMITS(long, LONG_MIN, LONG_MAX)
EMU_INT_LIMITS(unsigned long, 0, ULONG_MAX) EMU_INT_LIMITS(long long, LLONG_MIN, LLONG_MAX) EMU_INT_LIMITS(unsigned long long, 0, ULLONG_MAX)

// The functions of maths.h by their names in std.
#define EMU_STD(name) using emu_kernel::name;
EMU_STD(exp) EMU_STD(exp2) EMU_STD(expm1) EMU_STD(log) EMU_STD(log2) EMU_STD(log10) EMU_STD(log1p) EMU_STD(sin) EMU_STD(cos)
EMU_STD(tan) EMU_STD(asin) EMU_STD(acos) EMU_STD(atan) EMU_STD(atan2) EMU_STD(sinh) EMU_STD(cosh) EMU_STD(tanh) EMU_STD(sqrt)
EMU_STD(cbrt) EMU_STD(floor) EMU_STD(ceil) EMU_STD(trunc) EMU_STD(round) EMU_STD(rint) EMU_STD(fabs) EMU_STD(erf) EMU_STD(erfc)
EMU_STD(tgamma) EMU_STD(lgamma) EMU_STD(pow) EMU_STD(fmod) EMU_STD(fmin) EMU_STD(fmax) EMU_STD(hypot) EMU_STD(copysign)
EMU_STD(asinh) EMU_STD(acosh) EMU_STD(atanh) EMU_STD(nearbyint) EMU_STD(logb) EMU_STD(fdim) EMU_STD(remainder)
EMU_STD(nextafter) EMU_STD(ldexp) EMU_STD(frexp) EMU_STD(modf) EMU_STD(fma) EMU_STD(abs) EMU_STD(isnan) EMU_STD(isinf) EMU_STD(isfinite) EMU_STD(signbit)
}  // namespace std

namespace cuda {
namespace std { using namespace emu_kernel::std; }
using emu_kernel::std::plus;
template <class T = void> struct maximum { EMU_INLINE constexpr T operator()(const T& a, const T& b) const { return a < b ? b : a; } };
template <class T = void> struct minimum { EMU_INLINE constexpr T operator()(const T& a, const T& b) const { return b < a ? b : a; } };
template <class T> EMU_INLINE constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
}  // namespace cuda

namespace thrust {
using emu_kernel::std::plus;
using emu_kernel::std::multiplies;
using emu_kernel::std::pair;
using emu_kernel::std::swap;
using cuda::maximum;
using cuda::minimum;
}  // namespace thrust
