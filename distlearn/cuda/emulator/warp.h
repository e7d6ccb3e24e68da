// warp.h -- barriers, shuffles and votes, on the few primitives that either build gives.
#pragma once
#define warpSize 32

static inline __attribute__((always_inline)) void __syncthreads() { emu_barrier(0); }
static inline __attribute__((always_inline)) int __syncthreads_count(int p) { return emu_barrier(p != 0); }
static inline __attribute__((always_inline)) int __syncthreads_or(int p) { return emu_barrier(p != 0) != 0; }
static inline __attribute__((always_inline)) int __syncthreads_and(int p) { return emu_barrier(p == 0) == 0; }
static inline __attribute__((always_inline)) void __syncwarp(unsigned mask = ~0u) { emu_sync_warp(mask); }

// `inside` says whether the source lane is in this lane's group of `width`; if not, a lane gets its own value, which
// CUDA promises. A source lane that does not take part is another matter: its value is undefined.
template <class T>
static inline __attribute__((always_inline)) T emu_shuffle_value(unsigned mask, T v, int source, bool inside) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    uint64_t raw = 0;
    __builtin_memcpy(&raw, &v, sizeof v);
    raw = emu_shuffle(mask, raw, inside ? source : emu_lane(), !inside);
    __builtin_memcpy(&v, &raw, sizeof v);
    return v;
}
#define EMU_SHUFFLE template <class T> static inline __attribute__((always_inline)) T
EMU_SHUFFLE __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    return emu_shuffle_value(mask, v, (emu_lane() & ~(width - 1)) + (source & (width - 1)), true);
}
EMU_SHUFFLE __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    return emu_shuffle_value(mask, v, emu_lane() + (int)delta, (emu_lane() & (width - 1)) + (int)delta < width);
}
EMU_SHUFFLE __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    return emu_shuffle_value(mask, v, emu_lane() - (int)delta, (emu_lane() & (width - 1)) - (int)delta >= 0);
}
EMU_SHUFFLE __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
    int source = emu_lane() ^ lanes;
    return emu_shuffle_value(mask, v, source, (source & ~(width - 1)) <= (emu_lane() & ~(width - 1)));
}

static inline __attribute__((always_inline)) unsigned __ballot_sync(unsigned mask, int p) { return emu_vote(mask, p != 0); }
static inline __attribute__((always_inline)) int __any_sync(unsigned mask, int p) { return emu_vote(mask, p != 0) != 0; }
static inline __attribute__((always_inline)) int __all_sync(unsigned mask, int p) { return emu_vote(mask, p == 0) == 0; }
template <class T> static inline __attribute__((always_inline)) unsigned __match_any_sync(unsigned mask, T v) {
    uint64_t raw = 0;
    __builtin_memcpy(&raw, &v, sizeof v);
    return emu_match(mask, raw);
}
