// cooperative.h -- cooperative groups: the block, tiles of a warp, the lanes that are together; and reductions over them.
//
// Every function is inlined into the kernel, so that what it does counts for the line that calls it. A group of lanes is
// the mask of its lanes in the warp. A barrier over the whole grid is refused (device_code.py): blocks run one after
// another here.
#pragma once

#define EMU_CG EMU_INLINE inline

namespace cooperative_groups {

static EMU_CG unsigned emu_linear() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
static EMU_CG unsigned emu_block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
static EMU_CG unsigned emu_lanes_of_warp() {  // those that exist: the last warp of a block may have fewer
    unsigned left = emu_block_threads() - emu_linear() / 32 * 32;
    return left >= 32 ? ~0u : (1u << left) - 1;
}

struct thread_block {
    EMU_CG void sync() const { __syncthreads(); }
    EMU_CG unsigned thread_rank() const { return emu_linear(); }
    EMU_CG unsigned size() const { return emu_block_threads(); }
    EMU_CG unsigned num_threads() const { return emu_block_threads(); }
    EMU_CG dim3 group_index() const { return blockIdx; }
    EMU_CG dim3 thread_index() const { return threadIdx; }
    EMU_CG dim3 group_dim() const { return blockDim; }
    EMU_CG dim3 dim_threads() const { return blockDim; }
};
static EMU_CG thread_block this_thread_block() { return {}; }
template <unsigned threads = 1024> struct block_tile_memory { char unused; };
template <unsigned n> static EMU_CG thread_block this_thread_block(block_tile_memory<n>&) { return {}; }

// Of the grid only where a thread stands in it is known: see the head of this file.
struct grid_group {
    EMU_CG unsigned long long thread_rank() const { return block_rank() * emu_block_threads() + emu_linear(); }
    EMU_CG unsigned long long block_rank() const { return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z); }
    EMU_CG unsigned long long num_blocks() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    EMU_CG unsigned long long num_threads() const { return num_blocks() * emu_block_threads(); }
    EMU_CG unsigned long long size() const { return num_threads(); }
    EMU_CG dim3 group_dim() const { return gridDim; }
    EMU_CG dim3 dim_blocks() const { return gridDim; }
    EMU_CG dim3 block_index() const { return blockIdx; }
    EMU_CG bool is_valid() const { return true; }
    void sync() const = delete;
};
static EMU_CG grid_group this_grid() { return {}; }

// What all groups of lanes share: `mask` names their lanes, `rank` is this one's number among them.
#define EMU_LANES                                                                                                      \
    EMU_CG void sync() const { __syncwarp(mask()); }                                                                   \
    EMU_CG int any(int p) const { return __any_sync(mask(), p); }                                                      \
    EMU_CG int all(int p) const { return __all_sync(mask(), p); }                                                      \
    EMU_CG unsigned ballot(int p) const { return packed(__ballot_sync(mask(), p)); }                                   \
    template <class T> EMU_CG unsigned match_any(T v) const { return packed(__match_any_sync(mask(), v)); }            \
    template <class T> EMU_CG unsigned match_all(T v, int& p) const { return packed(__match_all_sync(mask(), v, &p)); } \
    EMU_CG unsigned num_threads() const { return size(); }

template <class T> static EMU_CG T emu_lane_value(unsigned mask, T v, int lane) {  // of a value of any size
    if constexpr (sizeof(T) <= 8) {
        return __shfl_sync(mask, v, lane);
    } else {
        static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 64, "a shuffle moves 4 to 64 bytes");
        unsigned words[sizeof(T) / 4];
        __builtin_memcpy(words, &v, sizeof v);
        for (unsigned& w : words) w = __shfl_sync(mask, w, lane);
        __builtin_memcpy(&v, words, sizeof v);
        return v;
    }
}

template <unsigned n> struct EmuTile {
    static_assert(n && (n & (n - 1)) == 0 && n <= 32, "a tile has 1, 2, 4, 8, 16 or 32 threads");
    static EMU_CG constexpr unsigned size() { return n; }
    EMU_CG unsigned thread_rank() const { return emu_linear() % n; }
    EMU_CG unsigned meta_group_rank() const { return emu_linear() / n; }
    EMU_CG unsigned meta_group_size() const { return (emu_block_threads() + n - 1) / n; }
    EMU_CG unsigned first() const { return emu_linear() % 32 / n * n; }
    EMU_CG unsigned mask() const { return (n == 32 ? ~0u : ((1u << n % 32) - 1) << first()) & emu_lanes_of_warp(); }
    EMU_CG unsigned packed(unsigned lanes) const { return (lanes & mask()) >> first(); }
    EMU_LANES
    template <class T> EMU_CG T shfl(T v, int lane) const { return emu_lane_value(mask(), v, (int)(first() + lane % n)); }
    template <class T> EMU_CG T shfl_down(T v, unsigned d) const { return __shfl_down_sync(mask(), v, d, (int)n); }
    template <class T> EMU_CG T shfl_up(T v, unsigned d) const { return __shfl_up_sync(mask(), v, d, (int)n); }
    template <class T> EMU_CG T shfl_xor(T v, unsigned d) const { return __shfl_xor_sync(mask(), v, (int)d, (int)n); }
};
template <unsigned n, class Parent = void> struct thread_block_tile : EmuTile<n> {
    thread_block_tile() = default;
    EMU_CG thread_block_tile(const EmuTile<n>&) {}  // whatever it is a tile of
};

// A group of lanes that is only known when the kernel runs: coalesced_threads(), or a tile of a size in a variable.
struct coalesced_group {
    unsigned lanes;
    unsigned from = 0, groups = 1;
    EMU_CG unsigned mask() const { return lanes; }
    EMU_CG unsigned size() const { return (unsigned)__popc(lanes); }
    EMU_CG unsigned thread_rank() const { return (unsigned)__popc(lanes & ((1u << emu_linear() % 32) - 1)); }
    EMU_CG unsigned meta_group_rank() const { return from; }
    EMU_CG unsigned meta_group_size() const { return groups; }
    EMU_CG int lane_of(unsigned rank) const {
        unsigned left = lanes;
        while (rank-- && left) left &= left - 1;
        return left ? __ffs((int)left) - 1 : (int)(emu_linear() % 32);
    }
    EMU_CG unsigned packed(unsigned set) const {
        unsigned out = 0, rank = 0;
        for (unsigned m = lanes; m; m &= m - 1, rank++)
            if (set & m & -m) out |= 1u << rank;
        return out;
    }
    EMU_LANES
    template <class T> EMU_CG T shfl(T v, unsigned rank) const { return emu_lane_value(lanes, v, lane_of(rank)); }
    template <class T> EMU_CG T shfl_down(T v, unsigned d) const {
        unsigned r = thread_rank() + d;
        return emu_lane_value(lanes, v, r < size() ? lane_of(r) : (int)(emu_linear() % 32));
    }
    template <class T> EMU_CG T shfl_up(T v, unsigned d) const {
        unsigned r = thread_rank();
        return emu_lane_value(lanes, v, r >= d ? lane_of(r - d) : (int)(emu_linear() % 32));
    }
    template <class T> EMU_CG T shfl_xor(T v, unsigned d) const {
        unsigned r = thread_rank() ^ d;
        return emu_lane_value(lanes, v, r < size() ? lane_of(r) : (int)(emu_linear() % 32));
    }
};
struct thread_group : coalesced_group {
    bool whole_block = false;
    EMU_CG thread_group(coalesced_group g) : coalesced_group(g) {}
    EMU_CG thread_group(thread_block) : coalesced_group{~0u}, whole_block(true) {}
    template <unsigned n, class P> EMU_CG thread_group(thread_block_tile<n, P> t)
        : coalesced_group{t.mask(), t.meta_group_rank(), t.meta_group_size()} {}
    EMU_CG void sync() const { if (whole_block) __syncthreads(); else __syncwarp(lanes); }
    EMU_CG unsigned size() const { return whole_block ? emu_block_threads() : coalesced_group::size(); }
    EMU_CG unsigned num_threads() const { return size(); }
    EMU_CG unsigned thread_rank() const { return whole_block ? emu_linear() : coalesced_group::thread_rank(); }
    void shfl() const = delete;  // as on a card: only groups of a size that the compiler knows exchange values
    void shfl_up() const = delete;
    void shfl_down() const = delete;
    void shfl_xor() const = delete;
    void any() const = delete;
    void all() const = delete;
    void ballot() const = delete;
};
static EMU_CG coalesced_group coalesced_threads(int line = __builtin_LINE()) { return {emu_active_lanes(line)}; }

template <unsigned n, class G> static EMU_CG thread_block_tile<n, G> tiled_partition(const G&) { return {}; }
template <class G> static EMU_CG thread_group tiled_partition(const G& g, unsigned n) {
    unsigned first = emu_linear() % 32 / n * n, mask = n >= 32 ? ~0u : ((1u << n) - 1) << first;
    (void)g;
    return coalesced_group{mask & emu_lanes_of_warp(), emu_linear() / n, (emu_block_threads() + n - 1) / n};
}
template <class G> static EMU_CG coalesced_group labeled_partition(const G& g, int label) {
    return {__match_any_sync(g.mask(), label)};
}
template <class G> static EMU_CG coalesced_group binary_partition(const G& g, bool p) {
    unsigned yes = __ballot_sync(g.mask(), p);
    return {p ? yes : g.mask() & ~yes};
}
template <class G> static EMU_CG void sync(const G& g) { g.sync(); }
template <class G> static EMU_CG unsigned group_size(const G& g) { return g.size(); }
template <class G> static EMU_CG unsigned thread_rank(const G& g) { return g.thread_rank(); }
static EMU_CG dim3 group_index(const thread_block& b) { return b.group_index(); }
static EMU_CG dim3 thread_index(const thread_block& b) { return b.thread_index(); }

using emu_kernel::std::plus;
template <class T = void> struct less : cuda::minimum<T> {};     // cg's less and greater are min and max
template <class T = void> struct greater : cuda::maximum<T> {};
using emu_kernel::std::bit_and;
using emu_kernel::std::bit_or;
using emu_kernel::std::bit_xor;

// Lane by lane, in the order of their ranks: every lane gets the same sum. A card adds in a tree.
template <class G, class T, class F> static EMU_CG T reduce(const G& g, T v, F&& f) {
    T all = g.shfl(v, 0);
    for (unsigned i = 1; i < g.size(); i++) all = f(all, g.shfl(v, (int)i));
    return all;
}
template <class G, class T, class F> static EMU_CG T inclusive_scan(const G& g, T v, F&& f) {
    T all = g.shfl(v, 0), mine = all;
    for (unsigned i = 1; i < g.size(); i++) {
        all = f(all, g.shfl(v, (int)i));
        if (i <= g.thread_rank()) mine = all;
    }
    return mine;
}
template <class G, class T> static EMU_CG T inclusive_scan(const G& g, T v) { return inclusive_scan(g, v, plus<T>()); }
template <class G, class T, class F> static EMU_CG T exclusive_scan(const G& g, T v, F&& f) {
    T before = g.shfl_up(inclusive_scan(g, v, f), 1);
    return g.thread_rank() ? before : T();
}
template <class G, class T> static EMU_CG T exclusive_scan(const G& g, T v) { return exclusive_scan(g, v, plus<T>()); }
template <class G, class F> static EMU_CG void invoke_one(const G& g, F&& f) { if (g.thread_rank() == 0) f(); }

}  // namespace cooperative_groups
