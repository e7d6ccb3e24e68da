// complex.h -- complex numbers by the three names that kernels use: thrust::complex<T> (and cuda::std, std), CuPy's
// complex<T>, and the plain functions of cuComplex.h.
#pragma once

template <class T> struct complex {
    typedef T value_type;
    T re, im;
    EMU_INLINE constexpr complex(T re = T(), T im = T()) : re(re), im(im) {}
    template <class U> EMU_INLINE constexpr complex(const complex<U>& o) : re((T)o.re), im((T)o.im) {}
    EMU_INLINE constexpr T real() const { return re; }
    EMU_INLINE constexpr T imag() const { return im; }
    EMU_INLINE void real(T v) { re = v; }
    EMU_INLINE void imag(T v) { im = v; }
    EMU_INLINE constexpr complex operator-() const { return {-re, -im}; }
    EMU_INLINE complex& operator+=(const complex& o) { re += o.re, im += o.im; return *this; }
    EMU_INLINE complex& operator-=(const complex& o) { re -= o.re, im -= o.im; return *this; }
    EMU_INLINE complex& operator*=(const complex& o) { return *this = *this * o; }
    EMU_INLINE complex& operator/=(const complex& o) { return *this = *this / o; }
    // Friends in the class, so that a number on either side is converted.
    friend EMU_INLINE constexpr complex operator+(const complex& a, const complex& b) { return {a.re + b.re, a.im + b.im}; }
    friend EMU_INLINE constexpr complex operator-(const complex& a, const complex& b) { return {a.re - b.re, a.im - b.im}; }
    friend EMU_INLINE constexpr complex operator*(const complex& a, const complex& b) {
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
    friend EMU_INLINE constexpr complex operator/(const complex& a, const complex& b) {
        T n = b.re * b.re + b.im * b.im;
        return {(a.re * b.re + a.im * b.im) / n, (a.im * b.re - a.re * b.im) / n};
    }
    friend EMU_INLINE constexpr bool operator==(const complex& a, const complex& b) { return a.re == b.re && a.im == b.im; }
    friend EMU_INLINE constexpr bool operator!=(const complex& a, const complex& b) { return !(a == b); }
};
template <class T> static inline T real(const complex<T>& a) { return a.re; }
template <class T> static inline T imag(const complex<T>& a) { return a.im; }
template <class T> static inline T norm(const complex<T>& a) { return a.re * a.re + a.im * a.im; }
template <class T> static inline T abs(const complex<T>& a) { return hypot(a.re, a.im); }
template <class T> static inline T arg(const complex<T>& a) { return atan2(a.im, a.re); }
template <class T> static inline complex<T> conj(const complex<T>& a) { return {a.re, -a.im}; }
template <class T> static inline complex<T> polar(T r, T angle = T()) { return {r * cos(angle), r * sin(angle)}; }
template <class T> static inline complex<T> exp(const complex<T>& a) { return polar<T>(exp(a.re), a.im); }
template <class T> static inline complex<T> log(const complex<T>& a) { return {log(abs(a)), arg(a)}; }
template <class T> static inline complex<T> sqrt(const complex<T>& a) { return polar<T>(sqrt(abs(a)), arg(a) / 2); }

#define EMU_COMPLEX_IN(space)                                                                                          \
    namespace space {                                                                                                  \
    using emu_kernel::complex; using emu_kernel::real; using emu_kernel::imag; using emu_kernel::norm; using emu_kernel::abs; \
    using emu_kernel::arg; using emu_kernel::conj; using emu_kernel::polar; using emu_kernel::exp; using emu_kernel::log;     \
    using emu_kernel::sqrt;                                                                                            \
    }
EMU_COMPLEX_IN(thrust)
EMU_COMPLEX_IN(std)

typedef float2 cuFloatComplex;
typedef float2 cuComplex;
typedef double2 cuDoubleComplex;
#define EMU_CU_COMPLEX(C, T, suffix, f)                                                                              \
    static inline C make_cu##suffix(T a, T b) { return C(a, b); }                                                    \
    static inline T cuCreal##f(C a) { return a.x; }                                                                  \
    static inline T cuCimag##f(C a) { return a.y; }                                                                  \
    static inline C cuConj##f(C a) { return C(a.x, -a.y); }                                                          \
    static inline C cuCadd##f(C a, C b) { return C(a.x + b.x, a.y + b.y); }                                          \
    static inline C cuCsub##f(C a, C b) { return C(a.x - b.x, a.y - b.y); }                                          \
    static inline C cuCmul##f(C a, C b) { return C(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }                  \
    static inline C cuCfma##f(C a, C b, C c) { return cuCadd##f(cuCmul##f(a, b), c); }                               \
    static inline T cuCabs##f(C a) { return hypot(a.x, a.y); }                                                       \
    static inline C cuCdiv##f(C a, C b) {                                                                            \
        T n = b.x * b.x + b.y * b.y;                                                                                 \
        return C((a.x * b.x + a.y * b.y) / n, (a.y * b.x - a.x * b.y) / n);                                          \
    }
EMU_CU_COMPLEX(float2, float, FloatComplex, f)
EMU_CU_COMPLEX(double2, double, DoubleComplex, )
static inline cuComplex make_cuComplex(float a, float b) { return float2(a, b); }
