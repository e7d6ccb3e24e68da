// shadow.h -- data races and uninitialised shared memory.
//
// Beside every array lies its shadow: for each cell, the last write and the reads that a later write could clash with,
// each marked with the thread, the place, the barrier interval and the epoch of the warp. Intervals are numbered over
// the whole launch, a new one at every __syncthreads and at the start of every block; a warp's epoch is the number of
// its __syncwarps. So
//
//     both in this interval, other thread            -> race in the block, unless a __syncwarp of both lies between
//     earlier interval of this block                  -> ordered by the barrier
//     earlier block, global memory                    -> race between blocks: blocks have no order
//     a read of shared memory, no write in this block -> uninitialised
//
// Which reads must be kept: of the warp that read last, the last two by different lanes (if lanes meet at a whole
// __syncwarp, the last reader is ordered last) and, for partial masks, which lanes have read since when; one read
// of another warp; and one of an earlier block. For warps that use partial masks, the last read of each lane. A write of
// any thread then clashes with a kept read if it clashes with any.
//
// What lanes of partial masks know of each other is a vector clock per lane (F. Mattern, "Virtual time and global states
// of distributed systems", 1989): a __syncwarp joins the clocks of its lanes.
//
// Atomics do not race with each other, and a volatile read may watch what atomics change. Shuffles and votes order
// nothing: CUDA promises memory order for __syncwarp alone. An access of an earlier block counts as handed over if its
// thread called __threadfence after it (or, once a barrier or __syncwarp lay between, another one did), and if this
// thread has made an atomic access before (or another one, before a barrier): the last block that adds up
// the partial sums of all. Within an interval of a block that hands over, too, where both atomics are on one word: a lock.
#pragma once
#include "sectors_and_banks.h"

namespace emu {

static uint32_t interval, block_interval;  // now; the first of this block
static Vec<uint32_t> block_intervals;      // the first of every block

static uint32_t epoch[WARP], whole_epoch[WARP];  // by warp: __syncwarps so far; the last one of the whole warp
static uint32_t known[WARP][WARP][WARP];         // [warp][a][b]: what b did before this epoch is ordered before a
static bool partial[WARP];                       // whether `known` is in use

struct Fence {
    uint32_t interval, epoch;  // the last one; of a warp: what was ordered before it
    uint8_t count;             // how many in that interval, 3 for more
};
struct Fences {            // __threadfences of a block
    uint32_t last;         // interval of the last one of any thread
    Fence *thread, *warp;  // null if there were none
};
static Vec<Fences> fences;       // by block
static bool any_fence;
static unsigned acquired[WARP];  // lanes that have made an atomic access to global memory, or synchronised with one
static bool any_acquired, block_acquired;

// Locks within a block: fences that a thread had called before its last atomic on a word; and, of each pair of threads,
// how many fences of the second one lie before what the first one does now.
struct Release {
    uintptr_t word;
    uint16_t thread;
    uint8_t fences;
};
static Vec<Release> releases;  // of this interval
static uint8_t* before_me;     // [1024][1024]; null if there is no lock
static bool any_lock;          // in this interval

static void next_interval() {
    interval++;
    if (any_lock) memset(before_me, 0, 1 << 20);
    any_lock = false;
    releases.n = 0;
    block_acquired = any_acquired;
}

static void begin_block() {
    any_acquired = false;
    memset(acquired, 0, sizeof acquired);
    next_interval();
    block_interval = interval;
    block_intervals.add() = interval;
    fences.add() = {};
}

static void note_fence(Block& B) {
    unsigned t = (unsigned)B.current->linear, w = t / WARP;
    Fences& f = fences[fences.n - 1];
    if (!f.thread) f.thread = (Fence*)calloc((size_t)B.n, sizeof(Fence)), f.warp = (Fence*)calloc(WARP, sizeof(Fence));
    if (!f.thread || !f.warp) fprintf(stderr, "the emulator ran out of memory\n"), abort();
    f.last = interval;
    any_fence = true;
    Fence& own = f.thread[t];
    own.count = (uint8_t)(own.interval != interval ? 1 : own.count < 3 ? own.count + 1 : 3);
    own.interval = interval;
    f.warp[w] = {interval, whole_epoch[w], 0};
}

static void note_lock(uintptr_t word, unsigned thread) {
    const Fence* own = fences[fences.n - 1].thread;
    uint8_t count = own && own[thread].interval == interval ? own[thread].count : 0;
    Release* mine = nullptr;
    for (size_t i = 0; i < releases.n; i++) {
        Release& r = releases[i];
        if (r.word != word) continue;
        if (r.thread == thread) {
            mine = &r;
            continue;
        }
        if (!before_me) before_me = (uint8_t*)calloc(1024, 1024);
        if (!before_me) return;
        any_lock = true;
        uint8_t& known = before_me[thread << 10 | r.thread];
        if (known < r.fences) known = r.fences;
    }
    if (!mine && count) mine = &releases.add();
    if (mine) *mine = {word, (uint16_t)thread, count};
}

static inline bool ordered_by_lock(const Mark& before, unsigned me) {
    if (!any_lock || before.interval != interval) return false;
    unsigned known = before_me[me << 10 | before.thread()];
    return known && (known > before.fences() || before.fences() == 3);
}

static void note_atomic(unsigned thread) {
    acquired[thread / WARP] |= 1u << thread % WARP;
    any_acquired = true;
}

static void synchronised(Block& B, int warp, unsigned lanes) {
    uint32_t now = ++epoch[warp];
    if (acquired[warp] & lanes) acquired[warp] |= lanes;
    if (lanes == B.alive[warp]) {
        whole_epoch[warp] = now;
        return;
    }
    partial[warp] = true;
    uint32_t joined[WARP] = {};
    for (unsigned a = lanes; a; a &= a - 1)
        for (int b = 0; b < WARP; b++)
            if (uint32_t k = known[warp][__builtin_ctz(a)][b]; k > joined[b]) joined[b] = k;
    for (unsigned a = lanes; a; a &= a - 1) joined[__builtin_ctz(a)] = now;
    for (unsigned a = lanes; a; a &= a - 1) memcpy(known[warp][__builtin_ctz(a)], joined, sizeof joined);
}

static inline bool ordered_in_warp(uint32_t when, unsigned before, unsigned thread) {
    unsigned w = thread / WARP;
    if (before / WARP != w) return false;
    return whole_epoch[w] > when || (partial[w] && known[w][thread % WARP][before % WARP] > when);
}

static size_t block_of(uint32_t when) {  // which block an interval belongs to
    size_t lo = 0, hi = block_intervals.n;
    while (hi - lo > 1) {
        size_t middle = (lo + hi) / 2;
        (block_intervals[middle] <= when ? lo : hi) = middle;
    }
    return lo;
}

static void report_race(const Region& r, int region, uint64_t offset, int size, uint32_t site, Access access, const Mark& before,
                        Access other, bool same_value = false) {
    bool blocks = before.interval < block_interval;
    Kind kind = same_value ? SAME_VALUE : blocks ? RACE_BLOCKS : r.space == SHARED ? RACE_SHARED : RACE_GLOBAL;
    Finding* f = report(kind, site, before.site, region, access, other);
    if (!f) return;
    Block& B = block();
    unsigned t = before.thread();
    uint64_t b = block_of(before.interval);
    f->offset = (int64_t)offset;
    f->size = size;
    f->other_thread = {t % B.size.x, t / B.size.x % B.size.y, t / (B.size.x * B.size.y)};
    f->other_block = {(unsigned)(b % B.grid.x), (unsigned)(b / B.grid.x % B.grid.y),
                      (unsigned)(b / ((uint64_t)B.grid.x * B.grid.y))};
}

static bool handed_over(const Mark& before, unsigned me) {
    if (!block_acquired && !(acquired[me / WARP] >> me % WARP & 1)) return false;
    const Fences& f = fences[block_of(before.interval)];
    if (f.last > before.interval) return true;
    if (!f.thread) return false;
    unsigned t = before.thread();
    const Fence &own = f.thread[t], &warp = f.warp[t / WARP];
    return (own.interval == before.interval && (own.count > before.fences() || before.fences() == 3)) ||
           (warp.interval == before.interval && warp.epoch > before.epoch);
}

// A write over another thread's write. The hooks come before the access, so whether it leaves the same value behind is
// only known at the next one.
struct SecondWrite {
    Fibre* by;
    int region, size;
    uint64_t offset;
    uint32_t site;
    Mark before;
    char value[16];
};
static SecondWrite second_write;  // `by` is null if there is none

static __attribute__((noinline)) void judge_second_write() {
    SecondWrite w = second_write;
    second_write.by = nullptr;
    Region& r = regions[w.region];
    bool same = w.size <= (int)sizeof w.value && !memcmp((void*)(r.begin + w.offset), w.value, w.size);
    Fibre* now = block().current;
    block().current = w.by;  // whose finding it is
    report_race(r, w.region, w.offset, w.size, w.site, WRITE, w.before, WRITE, same);
    block().current = now;
}

static void keep_second_write(const Region& r, int region, uint64_t offset, int size, uint32_t site, const Mark& before) {
    if (second_write.by) return;  // of the same access: its first cell speaks for all
    second_write = {block().current, region, size, offset, site, before, {}};
    memcpy(second_write.value, (void*)(r.begin + offset), size <= 16 ? size : 16);
}

// Does an access clash with this earlier one (one of the two is a write)?
static inline bool clashes(const Region& r, const Mark& before, unsigned me) {
    if (!before.interval) return false;
    if (before.interval < block_interval) return r.space != SHARED && !handed_over(before, me);
    unsigned other = before.thread();
    return before.interval == interval && other != me && !ordered_in_warp(before.epoch, other, me) &&
           !ordered_by_lock(before, me);
}

// The read that a write would clash with, or one of interval 0.
static Mark find_clashing_read(const Region& r, uint64_t c, unsigned me, bool atomic) {
    const Cell& x = r.cells[c];
    const Past& past = r.past[c];
    const Mark other = {x.read.interval, x.other_epoch, x.other_site, x.other_who};
    const Mark kept[] = {x.read, other, past.far, past.earlier};
    for (const Mark& m : kept)
        if (m.who != NO_THREAD && !(atomic && m.is_volatile()) && clashes(r, m, me)) return m;
    unsigned w = me / WARP;
    if (x.read.interval == interval && partial[w] && x.read.thread() / WARP == w && !(atomic && x.read.is_volatile()))
        for (unsigned others = x.lanes & ~(1u << me % WARP); others; others &= others - 1) {
            unsigned lane = w * WARP + (unsigned)__builtin_ctz(others);
            Mark m = {interval, x.since, x.read.site, (uint16_t)lane};
            if (r.lane_reads) {
                const LaneRead& last = r.lane_reads[c * WARP + lane % WARP];
                if (last.interval == interval && last.warp == w) m.epoch = last.epoch, m.site = last.site;
            }
            if (!ordered_in_warp(m.epoch, lane, me)) return m;
        }
    return {};
}

static __attribute__((noinline)) void note_lane_read(Region& r, uint64_t c, const Mark& now, unsigned me) {
    if (!r.lane_reads) r.lane_reads = (LaneRead*)calloc(cells_of(r), WARP * sizeof(LaneRead));
    if (!r.lane_reads) return;  // of an array so large only the first epoch is known, Cell::since
    r.lane_reads[c * WARP + me % WARP] = {now.interval, now.epoch, now.site, (uint16_t)(me / WARP)};
}

static EMU_ALWAYS void note_read(Region& r, uint64_t c, const Mark& now, unsigned me) {
    Cell& x = r.cells[c];
    const unsigned w = me / WARP, last = x.read.thread();
    if (x.read.interval != interval) {
        Mark& earlier = r.past[c].earlier;
        if (x.read.interval && x.read.interval < block_interval && (!earlier.interval || earlier.is_volatile()))
            earlier = x.read;
        x.other_who = NO_THREAD;
        x.lanes = 0;
    } else if (last / WARP != w) {
        Mark& far = r.past[c].far;
        if (far.interval != interval || far.thread() / WARP == w || !x.read.is_volatile()) far = x.read;
        x.other_who = NO_THREAD;
        x.lanes = 0;
    } else if (last != me) {
        x.other_epoch = x.read.epoch;
        x.other_site = x.read.site;
        x.other_who = x.read.who;
    }
    if (!x.lanes || x.read.epoch < whole_epoch[w]) x.lanes = 0, x.since = now.epoch;
    x.lanes |= 1u << me % WARP;
    x.read = now;
    if (__builtin_expect(partial[w], 0)) note_lane_read(r, c, now, me);
}

static EMU_ALWAYS Mark mark(Access access, uint32_t site, unsigned me) {
    const Fence* fence = any_fence ? fences[fences.n - 1].thread : nullptr;
    unsigned fenced = fence && fence[me].interval == interval ? fence[me].count : 0;
    unsigned flags = access == ATOMIC ? BY_ATOMIC : access == VOLATILE_READ ? BY_VOLATILE : 0;
    return {interval, epoch[me / WARP], (uint16_t)site, (uint16_t)(me | flags | fenced << FENCES)};
}

static __attribute__((noinline)) void watch(int region, uint64_t offset, int size, Access access, uint32_t site, unsigned me) {
    Region& r = regions[region];
    const bool reads = access == READ || access == VOLATILE_READ;
    const Mark now = mark(access, site, me);
    uint64_t last = (offset + size - 1) >> r.cell_shift;
    for (uint64_t c = offset >> r.cell_shift; c <= last; c++) {
        Cell& x = r.cells[c];
        if (r.space == SHARED && x.write.interval < block_interval && access != WRITE) {
            Finding* f = report(UNINITIALISED, site, 0, region, access);
            if (f) f->offset = (int64_t)offset, f->size = size;
        }
        bool relaxed = (access == ATOMIC || access == VOLATILE_READ) && x.write.is_atomic();
        if (!relaxed && clashes(r, x.write, me)) {
            if (access == WRITE && !x.write.is_atomic()) keep_second_write(r, region, offset, size, site, x.write);
            else report_race(r, region, offset, size, site, access, x.write, x.write.is_atomic() ? ATOMIC : WRITE);
        }
        if (reads) {
            note_read(r, c, now, me);
            continue;
        }
        if (x.read.interval) {
            Mark read = find_clashing_read(r, c, me, access == ATOMIC);
            if (read.interval) report_race(r, region, offset, size, site, access, read, READ);
        }
        x.write = now;
    }
}

// The same for what nearly all accesses are: to one cell, and unable to clash. A read of what was written in this block
// before this interval, or never; a write of what no thread has read in this interval.
static EMU_ALWAYS void watch_cell(const Place& p, uint64_t offset, int size, Access access, uint32_t site, unsigned me) {
    if (p.cells) {
        const uint64_t c = offset / size;
        Cell& x = p.cells[c];
        const bool before = x.write.interval - block_interval < interval - block_interval, never = !x.write.interval;
        if (access == READ && (before || (never && !p.shared)))
            return note_read(regions[p.region], c, mark(access, site, me), me);
        if (access == WRITE && (before || never) && (!x.read.interval || (p.shared && x.read.interval != interval))) {
            x.write = mark(access, site, me);
            return;
        }
    }
    watch(p.region, offset, size, access, site, me);
}

}  // namespace emu
