// wmma.h -- tensor cores through nvcuda::wmma: the 32 lanes of a warp hold a matrix together, a "fragment".
//
// Which lane holds which element is not specified. Here a lane of matrix_a or matrix_b holds neighbours in memory, which
// it reads 16 bytes at a time, and a lane of an accumulator pairs of a row: as cards since sm_80 read and write shared
// memory. All lanes must come, at the same place of the source; as on a card, this does not order accesses to memory.
#pragma once

namespace nvcuda { namespace wmma {
struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major; namespace precision { struct tf32 { float x; }; }
enum layout_t { mem_row_major, mem_col_major };
static inline float __float_to_tf32(float x) { return emu::bits<float>((emu::bits<unsigned>(x) + 0x1000) & ~0x1fffu); }

using emu_kernel::std::conditional_t;
template <class T, class... U> constexpr bool emu_is = (emu_kernel::std::is_same_v<T, U> || ...);
template <class T, bool sum> constexpr bool emu_on_cards(int m, int n, int k) {
    if (k == 4) return emu_is<T, double> && m == 8 && n == 8;
    if (k == 8) return emu_is<T, conditional_t<sum, float, precision::tf32>> && m == 16 && n == 16;
    bool known = sum ? emu_is<T, float, int> : emu_is<T, __nv_bfloat16, signed char, unsigned char>;
    return (known || emu_is<T, __half>) && k == 16 && m * n == 256 && m >= 8 && n >= 8;
}
template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment {
    static constexpr bool emu_sum = emu_is<Use, accumulator>, emu_a = emu_is<Use, matrix_a>, emu_by_row = emu_is<Layout, row_major>;
    static_assert(emu_on_cards<T, emu_sum>(m, n, k) && emu_sum == emu_is<Layout, void>,
                  "tensor cores multiply 16x16x16, 32x8x16 and 8x32x16 of half, __nv_bfloat16, signed char and unsigned "
                  "char, 16x16x8 of tf32, 8x8x4 of double; matrix_a and matrix_b have a layout, an accumulator has none");
    static constexpr int emu_lines = emu_sum || (emu_a && emu_by_row) ? m : emu_a || emu_by_row ? k : n;
    static constexpr int emu_own = (emu_sum ? m * n : emu_a ? m * k : n * k) / 32;
    static constexpr int num_elements = emu_is<T, __half> && !emu_sum ? 16 : emu_own;  // halves twice, as on a card
    typedef conditional_t<emu_is<T, precision::tf32>, float, T> element_type;
    element_type x[num_elements];
    static EMU_CG int emu_row(int i) { return emu_lane() / 4 + i / 2 % (m / 8) * 8; }  // of an accumulator
    static EMU_CG int emu_column(int i) { return emu_lane() % 4 * 2 + i % 2 + i / 2 / (m / 8) * 8; }
};
#define EMU_WMMA(sum) template <class F, class T = typename F::element_type, emu_kernel::std::enable_if_t<F::emu_sum == (sum), int> = 0> static EMU_CG void
EMU_WARP_FUNCTION void emu_all_lanes() { emu_exchange(~0u, 0, (emu_lane() + 1) % 32, true, EMU_HERE); }
EMU_WMMA(F::emu_sum) fill_fragment(F& f, const typename F::element_type& v) { for (auto& x : f.x) x = v; }
EMU_WMMA(false) load_matrix_sync(F& f, const typename F::element_type* p, unsigned width) {
    typedef char Piece __attribute__((vector_size(sizeof(T) * F::emu_own < 16 ? sizeof(T) * F::emu_own : 16), may_alias));
    emu_all_lanes();
    p += emu_lane() % F::emu_lines * width + emu_lane() / F::emu_lines * F::emu_own;
    for (unsigned i = 0; i < sizeof(T) * F::emu_own / sizeof(Piece); i++) ((Piece*)f.x)[i] = ((const Piece*)p)[i];
    for (int i = F::emu_own; i < F::num_elements; i++) f.x[i] = f.x[i % F::emu_own];
}
EMU_WMMA(true) emu_move(F& f, T* p, unsigned width, bool by_row, bool store) {
    typedef char Pair __attribute__((vector_size(2 * sizeof(T)), may_alias));
    emu_all_lanes();
    for (int i = 0; i < F::emu_own; i += 1 + by_row) {
        T* memory = p + (by_row ? F::emu_row(i) * width + F::emu_column(i) : F::emu_column(i) * width + F::emu_row(i));
        T *to = store ? memory : f.x + i, *from = store ? f.x + i : memory;
        if (by_row) *(Pair*)to = *(const Pair*)from; else *to = *from;
    }
}
EMU_WMMA(true) load_matrix_sync(F& f, const typename F::element_type* p, unsigned width, layout_t layout) { emu_move(f, (T*)p, width, layout == mem_row_major, false); }
EMU_WMMA(true) store_matrix_sync(typename F::element_type* p, const F& f, unsigned width, layout_t layout) { emu_move((F&)f, p, width, layout == mem_row_major, true); }
template <class F, class S> static EMU_UNHOOKED void emu_spread(const F& f, S* all, int k) {
    int line = emu_lane() % F::emu_lines, along = emu_lane() / F::emu_lines * F::emu_own;
    for (int i = 0; i < F::emu_own; i++) all[F::emu_a == F::emu_by_row ? line * k + along + i : (along + i) * k + line] = f.x[i];
}
template <int m, int n, int k, class T, class A, class B, class D, class C>
static EMU_CONVERGENT EMU_UNHOOKED __attribute__((noinline)) void mma_sync(
    fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, A>& a,
    const fragment<matrix_b, m, n, k, T, B>& b, const fragment<accumulator, m, n, k, C>& c) {
    typedef conditional_t<sizeof(T) == 1, int, conditional_t<emu_is<T, double>, T, float>> Sum;
    static_assert(emu_is<C, Sum, T> && emu_is<D, Sum, T>, "half adds up to half or float, whole numbers to int");
    static Sum left[32][m * k], right[32][n * k];  // by warp
    int warp = cooperative_groups::emu_linear() / 32;
    emu_spread(a, left[warp], k), emu_spread(b, right[warp], k);
    emu_exchange(~0u, 0, (emu_lane() + 1) % 32, true, EMU_HERE);
    for (int i = 0; i < c.emu_own; i++) {
        Sum sum = c.x[i], *row = left[warp] + c.emu_row(i) * k, *column = right[warp] + c.emu_column(i) * k;
#pragma GCC unroll 16
        for (int j = 0; j < k; j++) sum += row[j] * column[j];
        d.x[i] = sum;
    }
    emu_exchange(~0u, 0, (emu_lane() + 1) % 32, true, EMU_HERE);  // all have read
}
}}  // namespace nvcuda::wmma
