// vectors.h -- float4 and similar types. A float4 load must be seen as one access of 16 bytes, as on the card. Left to
// themselves compilers split the copy of a struct into what is used of it, so the copy is made to copy a vector.
#pragma once

#define EMU_CONSTRUCTORS(N)                                            \
    N() = default;                                                     \
    EMU_INLINE constexpr N(const N& o) : whole(o.whole) {}             \
    EMU_INLINE N& operator=(const N& o) { whole = o.whole; return *this; }

#define EMU_VECTOR2(T, N)                                              \
    struct alignas(2 * sizeof(T)) N##2 {                               \
        union {                                                        \
            T whole __attribute__((vector_size(2 * sizeof(T))));       \
            struct { T x, y; };                                        \
        };                                                             \
        EMU_CONSTRUCTORS(N##2)                                         \
        constexpr N##2(T a, T b) : x(a), y(b) {}                       \
    };                                                                 \
    static inline N##2 make_##N##2(T a, T b) { return N##2(a, b); }

#define EMU_VECTOR4(T, N, ALIGN)                                       \
    struct alignas(ALIGN) N##4 {                                       \
        union {                                                        \
            T whole __attribute__((vector_size(4 * sizeof(T))));       \
            struct { T x, y, z, w; };                                  \
        };                                                             \
        EMU_CONSTRUCTORS(N##4)                                         \
        constexpr N##4(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {} \
    };                                                                 \
    static inline N##4 make_##N##4(T a, T b, T c, T d) { return N##4(a, b, c, d); }

#define EMU_VECTOR3(T, N)                                              \
    struct N##3 { T x, y, z; };                                        \
    static inline N##3 make_##N##3(T a, T b, T c) { return {a, b, c}; }

#define EMU_VECTOR1(T, N)                                              \
    struct N##1 { T x; };                                              \
    static inline N##1 make_##N##1(T a) { return {a}; }

#define EMU_VECTORS(T, N) EMU_VECTOR1(T, N) EMU_VECTOR2(T, N) EMU_VECTOR3(T, N) EMU_VECTOR4(T, N, 4 * sizeof(T))
EMU_VECTORS(signed char, char)
EMU_VECTORS(unsigned char, uchar)
EMU_VECTORS(short, short)
EMU_VECTORS(unsigned short, ushort)
EMU_VECTORS(int, int)
EMU_VECTOR1(unsigned, uint)
EMU_VECTOR2(unsigned, uint)  // uint3 is the type of threadIdx, see types.h
EMU_VECTOR4(unsigned, uint, 16)
static inline uint3 make_uint3(unsigned a, unsigned b, unsigned c) { return {a, b, c}; }
EMU_VECTORS(float, float)
EMU_VECTOR1(long long, longlong)
EMU_VECTOR2(long long, longlong)
EMU_VECTOR1(unsigned long long, ulonglong)
EMU_VECTOR2(unsigned long long, ulonglong)
EMU_VECTOR1(double, double)
EMU_VECTOR2(double, double)
EMU_VECTOR3(double, double)
struct alignas(16) double4 { double x, y, z, w; };  // a card moves it in two pieces
static inline double4 make_double4(double a, double b, double c, double d) { return {a, b, c, d}; }
