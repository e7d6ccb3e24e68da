// simd.h -- a word as four bytes or two halves: __vadd4 and its family. Left out are __vset..., whose results NVIDIA's
// pages describe in two ways, and signed averages, which they do not round.
#pragma once

template <class T> static inline int emu_clamp_part(int x) {
    constexpr int values = 1 << 8 * sizeof(T), low = T(-1) < 0 ? -values / 2 : 0;
    return x < low ? low : x < low + values ? x : low + values - 1;
}
template <class T, class F> static inline unsigned emu_by_parts(unsigned a, unsigned b, F f) {
    constexpr int bits = 8 * sizeof(T);
    unsigned all = 0;
    for (int i = 0; i < 32; i += bits) all |= ((unsigned)f((T)(a >> i), (T)(b >> i)) & ~0u >> (32 - bits)) << i;
    return all;
}
template <class T> static inline unsigned emu_sum_of_parts(unsigned a) {
    unsigned sum = 0;
    for (int i = 0; i < 32; i += 8 * sizeof(T)) sum += (T)(a >> i);
    return sum;
}

// Templates, so that a build pays for those that it calls.
#define EMU_PARTS(name, T, result)                                                                        \
    template <class = void> static inline unsigned name(unsigned a, unsigned b) {                         \
        return emu_by_parts<T>(a, b, [](int x, int y) { return (result); });                              \
    }
#define EMU_SIGNED_OR_NOT(sign, n, T, U)                                                                  \
    EMU_PARTS(__vadd##sign##s##n, T, emu_clamp_part<T>(x + y))                                            \
    EMU_PARTS(__vsub##sign##s##n, T, emu_clamp_part<T>(x - y))                                            \
    EMU_PARTS(__vmax##sign##n, T, x < y ? y : x)                                                          \
    EMU_PARTS(__vmin##sign##n, T, x < y ? x : y)                                                          \
    EMU_PARTS(__vabsdiff##sign##n, T, x < y ? y - x : x - y)                                              \
    EMU_PARTS(__vcmplt##sign##n, T, -(x < y))                                                             \
    EMU_PARTS(__vcmpgt##sign##n, T, -(x > y))                                                             \
    EMU_PARTS(__vcmple##sign##n, T, -(x <= y))                                                            \
    EMU_PARTS(__vcmpge##sign##n, T, -(x >= y))                                                            \
    template <class = void> static inline unsigned __vsad##sign##n(unsigned a, unsigned b) {              \
        return emu_sum_of_parts<U>(__vabsdiff##sign##n(a, b));                                            \
    }
#define EMU_WORD_OF(n, S, U)                                                                              \
    EMU_PARTS(__vadd##n, U, x + y)                                                                        \
    EMU_PARTS(__vsub##n, U, x - y)                                                                        \
    EMU_PARTS(__vcmpeq##n, U, -(x == y))                                                                  \
    EMU_PARTS(__vcmpne##n, U, -(x != y))                                                                  \
    EMU_PARTS(__vavgu##n, U, (x + y + 1) / 2)                                                             \
    EMU_PARTS(__vhaddu##n, U, (x + y) / 2)                                                                \
    EMU_SIGNED_OR_NOT(s, n, S, U) EMU_SIGNED_OR_NOT(u, n, U, U)                                           \
    template <class = void> static inline unsigned __vneg##n(unsigned a) { return __vsub##n(0, a); }      \
    template <class = void> static inline unsigned __vabs##n(unsigned a) { return __vabsdiffs##n(a, 0); }
EMU_WORD_OF(4, signed char, unsigned char) EMU_WORD_OF(2, short, unsigned short)
