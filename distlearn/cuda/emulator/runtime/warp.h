// warp.h -- barriers, shuffles and votes, on the few primitives of checked.h.
//
// Each must be a call on the student's line, so that its return address names that line: hence
// macros for what needs no type, and for the rest functions that are never inlined.
#pragma once
#define warpSize 32

#define __syncthreads() ((void)emu_barrier(0))
#define __syncthreads_count(p) (emu_barrier((p) != 0))
#define __syncthreads_or(p) (emu_barrier((p) != 0) != 0)
#define __syncthreads_and(p) (emu_barrier((p) == 0) == 0)
#define __syncwarp(...) (emu_sync_warp(emu_mask(__VA_ARGS__)))
#define __ballot_sync(mask, p) (emu_vote(mask, (p) != 0))
#define __any_sync(mask, p) (emu_vote(mask, (p) != 0) != 0)
#define __all_sync(mask, p) (emu_vote(mask, (p) == 0) == 0)
#define __activemask() (emu_active_lanes(-1 - __COUNTER__))
static inline constexpr unsigned emu_mask(unsigned mask = ~0u) { return mask; }

// `inside` says whether the source lane is in this lane's group of `width`; if not, a lane gets its own value, which
// CUDA promises. A source lane that does not take part is another matter: its value is undefined.
template <class T>
static inline __attribute__((always_inline)) T emu_exchange(unsigned mask, T v, int source, bool inside, void* pc) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    uint64_t raw = 0;
    __builtin_memcpy(&raw, &v, sizeof v);
    raw = emu_shuffle(mask, raw, inside ? source : emu_lane(), !inside, pc);
    __builtin_memcpy(&v, &raw, sizeof v);
    return v;
}
#define EMU_WARP_FUNCTION static EMU_CONVERGENT EMU_UNCHECKED __attribute__((noinline))
#define EMU_HERE __builtin_return_address(0)
#define EMU_SHUFFLE template <class T> EMU_WARP_FUNCTION T
EMU_SHUFFLE __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    return emu_exchange(mask, v, (emu_lane() & ~(width - 1)) + (source & (width - 1)), true, EMU_HERE);
}
EMU_SHUFFLE __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    int lane = emu_lane();
    return emu_exchange(mask, v, lane + (int)delta, (lane & (width - 1)) + (int)delta < width, EMU_HERE);
}
EMU_SHUFFLE __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    int lane = emu_lane();
    return emu_exchange(mask, v, lane - (int)delta, (lane & (width - 1)) - (int)delta >= 0, EMU_HERE);
}
EMU_SHUFFLE __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
    int lane = emu_lane(), source = lane ^ lanes;
    return emu_exchange(mask, v, source, (source & ~(width - 1)) <= (lane & ~(width - 1)), EMU_HERE);
}

// The names of before Volta: they run with a full mask, and the compiler's warning becomes a finding (build.py).
#define EMU_REMOVED(name, arguments) [[deprecated(                                                                \
    #name " has no mask: compilers for cards since Volta refuse it. Here it runs as " #name "_sync(0xffffffff, "  \
    arguments "): write that")]] static inline __attribute__((always_inline))
template <class T> EMU_REMOVED(__shfl, "v, lane") T __shfl(T v, int source, int width = 32) {
    return __shfl_sync(~0u, v, source, width);
}
template <class T> EMU_REMOVED(__shfl_down, "v, delta") T __shfl_down(T v, unsigned delta, int width = 32) {
    return __shfl_down_sync(~0u, v, delta, width);
}
template <class T> EMU_REMOVED(__shfl_up, "v, delta") T __shfl_up(T v, unsigned delta, int width = 32) {
    return __shfl_up_sync(~0u, v, delta, width);
}
template <class T> EMU_REMOVED(__shfl_xor, "v, lanes") T __shfl_xor(T v, int lanes, int width = 32) {
    return __shfl_xor_sync(~0u, v, lanes, width);
}
EMU_REMOVED(__ballot, "p") unsigned __ballot(int p) { return __ballot_sync(~0u, p); }
EMU_REMOVED(__any, "p") int __any(int p) { return __any_sync(~0u, p); }
EMU_REMOVED(__all, "p") int __all(int p) { return __all_sync(~0u, p); }

template <class T> EMU_WARP_FUNCTION unsigned __match_any_sync(unsigned mask, T v) {
    uint64_t raw = 0;
    __builtin_memcpy(&raw, &v, sizeof v);
    return emu_match(mask, raw, EMU_HERE);
}
template <class T> EMU_WARP_FUNCTION unsigned __match_all_sync(unsigned mask, T v, int* all) {
    uint64_t raw = 0;
    __builtin_memcpy(&raw, &v, sizeof v);
    *all = emu_match(mask, raw, EMU_HERE) == emu_vote(mask, 1);
    return *all ? mask : 0;
}
#define __nanosleep(ns) ((void)(ns))

// Reductions over the lanes of a mask (cards since sm_80): the value of each lane is exchanged, one after another.
#define EMU_REDUCE(name, result)                                                       \
    template <class T> EMU_WARP_FUNCTION T name(unsigned mask, T v) {                  \
        T all = v;                                                                     \
        for (int lane = 0, me = emu_lane(); lane < 32; lane++) {                       \
            if (!(mask >> lane & 1)) continue;                                         \
            T other = emu_exchange(mask, v, lane, true, EMU_HERE);                     \
            if (lane != me) all = (result);                                            \
        }                                                                              \
        return all;                                                                    \
    }
EMU_REDUCE(__reduce_add_sync, all + other)
EMU_REDUCE(__reduce_min_sync, other < all ? other : all)
EMU_REDUCE(__reduce_max_sync, all < other ? other : all)
EMU_REDUCE(__reduce_and_sync, all & other)
EMU_REDUCE(__reduce_or_sync, all | other)
EMU_REDUCE(__reduce_xor_sync, all ^ other)
