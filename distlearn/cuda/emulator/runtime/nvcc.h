// nvcc.h -- what nvcc takes from the host's headers without an include, and NVRTC lacks. device_code.py gives a card's
// source those lines whose name it uses. The integers are those of <cuda/std/cstdint>, which may be included as well.
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = signed short;
using uint16_t = unsigned short;
using int32_t = signed int;
using uint32_t = unsigned int;
using int64_t = signed long long;
using uint64_t = unsigned long long;
using intptr_t = signed long long;
using uintptr_t = unsigned long long;
using uint = unsigned int;
using ushort = unsigned short;
using ulong = unsigned long;
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LONG_MIN (-9223372036854775807L - 1)
#define LONG_MAX 9223372036854775807L
#define ULONG_MAX 18446744073709551615uL
#define LLONG_MIN (-9223372036854775807LL - 1)
#define LLONG_MAX 9223372036854775807LL
#define ULLONG_MAX 18446744073709551615uLL
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define UINT64_MAX 18446744073709551615uLL
#define SIZE_MAX 18446744073709551615uL
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define INFINITY __int_as_float(0x7f800000)
#define HUGE_VALF __int_as_float(0x7f800000)
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)
#define NAN __int_as_float(0x7fffffff)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
// every NVRTC has __INTADDR__, whose value is constant; __builtin_offsetof came with CUDA 13.5
#define offsetof(type, member) ((size_t)__INTADDR__(&((type*)0)->member))
template <class T> __device__ inline decltype(T() % 1, double()) NAME(T x) { return NAME((double)x); }  // exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt cbrt floor ceil trunc round rint nearbyint fabs erf erfc tgamma lgamma logb sinpi cospi normcdf rcbrt
template <class A, class B> struct NvccMixed { typedef double type; }; template <> struct NvccMixed<float, float> {}; template <> struct NvccMixed<double, double> {};  // pow|fmod|atan2|fmin|fmax|hypot|fdim|remainder|nextafter
template <class A, class B> __device__ inline typename NvccMixed<A, B>::type NAME(A x, B y) { return NAME((double)x, (double)y); }  // pow fmod atan2 fmin fmax hypot fdim remainder nextafter
#include <cuda/std/limits>  // numeric_limits
#include <cuda/std/utility>  // swap|move|forward|pair|make_pair|exchange|declval
#include <cuda/std/type_traits>  // is_\w+|remove_\w+|decay(?:_t)?|enable_if(?:_t)?|conditional(?:_t)?|\w+_type|make_unsigned(?:_t)?|integral_constant|bool_constant
namespace cuda { namespace std { template <class... T> __device__ inline auto NAME(T... x) { return ::NAME(x...); } } }  // erf erfc fdim
#include <cuda/std/cmath>  // abs|sqrt|cbrt|exp|exp2|expm1|log|log2|log10|log1p|logb|pow|a?(?:sin|cos|tan)h?|atan2|floor|ceil|trunc|rint|nearbyint|round|remainder|fabs|fma|fmin|fmax|fmod|fdim|modf|frexp|ldexp|copysign|nextafter|hypot|erfc?|[tl]gamma|isnan|isinf|isfinite|signbit
#include <cuda/std/functional>  // min|max|plus|minus|multiplies|divides|modulus|less|greater|equal_to|bit_and|bit_or|bit_xor|logical_and|logical_or
#include <cuda/std/array>  // array
#include <cuda/std/bit>  // bit_cast
#include <cuda/std/cstdint>  // u?int\d+_t
