// cuda_emu.h -- CUDA C read as plain C++17.
//
// The student's source is compiled unchanged but for a few words that Python blanks or completes on their own line
// (translate.py), inside a namespace, followed by an EMU_EXPORT. The file that is built (build.py):
//
//     #include "cuda_emu.h"
//     namespace emu_kernel {
//     inline namespace emu_source {
//     #line 1 "kernel.cu"
//     ...the student's source...
//     EMU_EXPORT(&saxpy)
//     }
//     }
//
// The namespaces keep names apart: a kernel may be called `index` or `y0`, which the C library also has, and a struct
// `complex`, which this header has. No header of the C++ library is used, which keeps a build under a second and lets a
// plain C tool chain link it.
//
//     types.h    dim3 and the launch
//     vectors.h, maths.h, simd.h, overloads.h, half.h, bfloat16.h, fp8.h, complex.h, atomics.h, warp.h   what CUDA C offers
//     cooperative.h, standard.h, wmma.h   what its headers offer
//     arithmetic.h, sanitizers.h  conversions and shifts
//     checked.h  what a kernel calls in the checker; checker.cpp and the files it includes are the other side
#pragma once
#define __DISTLEARN_EMULATOR__ 1
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"
namespace emu {  // of arrays: their innermost items
template <class T> struct Element { typedef T type; };
template <class T, size_t n> struct Element<T[n]> { typedef typename Element<T>::type type; };
}  // namespace emu
#include "checked.h"

#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 800
#endif
#define __global__
#define __host__
#define __device__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))

#include "arithmetic.h"

namespace emu {
template <class Into, class From> static inline Into bits(From from) {
    Into to;
    static_assert(sizeof to == sizeof from, "only the type changes");
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
template <class A, class B> using Common =
    decltype(true ? typename Promoted<A>::type() : typename Promoted<B>::type());

// `extern __shared__ T x[]`: whatever its type, an array that begins where dynamic shared memory begins.
template <class T> struct DynamicShared {
    __attribute__((always_inline)) operator T*() const { return (T*)emu_dynamic_shared(); }
    template <class U> __attribute__((always_inline)) explicit operator U*() const { return (U*)emu_dynamic_shared(); }
};
}  // namespace emu

namespace std {  // the compiler itself makes objects of this name: `for (int i : {1, 2})`
template <class E> class initializer_list {
    const E* first;
    size_t n;
    constexpr initializer_list(const E* p, size_t size) : first(p), n(size) {}

public:
    typedef E value_type;
    constexpr initializer_list() : first(nullptr), n(0) {}
    constexpr size_t size() const { return n; }
    constexpr const E* begin() const { return first; }
    constexpr const E* end() const { return first + n; }
};
}  // namespace std

namespace emu_kernel {
#include "vectors.h"
#include "maths.h"
#include "simd.h"
#include "overloads.h"
#include "half.h"
#include "bfloat16.h"
#include "fp8.h"
#include "standard.h"
#include "complex.h"
#include "atomics.h"
#include "warp.h"
#include "cooperative.h"
#include "wmma.h"
}  // namespace emu_kernel

#undef INFINITY
#undef NAN
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#undef assert
#define assert(condition) ((condition) ? (void)0 : emu_assertion_failed(#condition, __LINE__))

// ---- export: a kernel that takes its arguments as pointers, and its parameter types in letters, e.g. "*kf4 *f4 i4":
// pointer, const, then f(loat), i(nt), u(nsigned), b(ool), h(alf), w (bfloat16), c(omplex), v(oid) or s(truct), and the
// size.
namespace emu {
template <class T> struct Letter { static constexpr char value = 's'; };
#define EMU_LETTER(T, c) template <> struct Letter<T> { static constexpr char value = c; };
EMU_LETTER(float, 'f') EMU_LETTER(double, 'f') EMU_LETTER(bool, 'b') EMU_LETTER(emu_kernel::__half, 'h')
EMU_LETTER(emu_kernel::__nv_bfloat16, 'w') EMU_LETTER(emu_kernel::complex<float>, 'c')
EMU_LETTER(emu_kernel::complex<double>, 'c')
EMU_LETTER(char, 'i') EMU_LETTER(signed char, 'i') EMU_LETTER(short, 'i') EMU_LETTER(int, 'i') EMU_LETTER(long, 'i')
EMU_LETTER(long long, 'i') EMU_LETTER(unsigned char, 'u') EMU_LETTER(unsigned short, 'u') EMU_LETTER(unsigned, 'u')
EMU_LETTER(unsigned long, 'u') EMU_LETTER(unsigned long long, 'u')

template <class T> struct Bare { typedef T type; };
template <class T> struct Bare<const T> : Bare<T> {};
template <class T> struct Bare<volatile T> : Bare<T> {};
template <class T> struct Bare<const volatile T> : Bare<T> {};
template <class T> EMU_UNCHECKED constexpr size_t item_size(T&) { return sizeof(typename Element<T>::type); }
template <class T> EMU_UNCHECKED constexpr size_t item_align(T&) { return alignof(typename Element<T>::type); }
template <class T> EMU_UNCHECKED constexpr Sides sides(T&) {
    Sides s = {};
    SidesOf<T>::put(s, 0);
    return s;
}
template <class T> EMU_UNCHECKED constexpr char item_letter(T&) {
    return Letter<typename Bare<typename Element<T>::type>::type>::value;
}

template <class T> struct Code {
    static int put(char* s) { return sprintf(s, "%c%d ", Letter<T>::value, (int)sizeof(T)); }
};
template <> struct Code<void> {
    static int put(char* s) { return sprintf(s, "v0 "); }
};
template <class T> struct Code<const T> : Code<T> {};
template <class T> struct Code<volatile T> : Code<T> {};
template <class T> struct Code<const volatile T> : Code<T> {};
template <class T> struct IsConst { static constexpr bool value = false; };
template <class T> struct IsConst<const T> { static constexpr bool value = true; };
template <class T> struct Code<T*> {
    static int put(char* s) {
        int k = sprintf(s, IsConst<T>::value ? "*k" : "*");
        return k + Code<T>::put(s + k);
    }
};

template <int... i> struct Indices {};
template <int n, int... i> struct Count : Count<n - 1, n - 1, i...> {};
template <int... i> struct Count<0, i...> { typedef Indices<i...> type; };

template <auto kernel> struct Kernel {
    static_assert(sizeof(kernel) == 0, "a __global__ function must return void");
    static constexpr void (*run)(void**) = nullptr;
    static constexpr int parameters = 0;
    static const char* signature() { return ""; }
};
// An argument on the thread's own stack, which no check looks at: a struct that holds a float4 has a constructor that
// copies it, and that is the user's code.
template <class T> struct Local {
    alignas(T) char bytes[sizeof(T)];
    EMU_INLINE EMU_UNCHECKED Local(const void* from) { __builtin_memcpy(bytes, from, sizeof(T)); }
};
template <class... A, void (*kernel)(A...)> struct Kernel<kernel> {
    template <int... i> static inline __attribute__((always_inline)) EMU_UNCHECKED void call(void** a, Indices<i...>) {
        kernel(*(A*)Local<A>(a[i]).bytes...);
    }
    static constexpr int parameters = sizeof...(A);
    static EMU_UNCHECKED void run(void** a) {
        call(a, typename Count<sizeof...(A)>::type());
    }
    static EMU_UNCHECKED const char* signature() {
        static char text[2048];
        int k = 0;
        int each[] = {0, (k += Code<A>::put(text + k))...};
        (void)each;
        return text;
    }
};
}  // namespace emu

#define EMU_EXPORT(...)                                                                          \
    extern "C" EMU_UNCHECKED void emu_choose_kernel() {                                          \
        typedef emu::Kernel<__VA_ARGS__> emu_kernel_t;                                           \
        emu_set_kernel(&emu_kernel_t::run, emu_kernel_t::signature(), emu_kernel_t::parameters); \
    }
#define printf(...) emu_printf(__VA_ARGS__)  // a kernel may print only so much
#undef __trap
#define __trap() emu_trap(__LINE__)
