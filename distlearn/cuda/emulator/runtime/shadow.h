// shadow.h -- data races and uninitialised shared memory.
//
// Beside every array lies its shadow: for each cell, the last write and up to two reads by different threads, each
// marked with the thread, the place, and the barrier interval. Intervals are numbered over the whole launch, a new one
// at every __syncthreads and at the start of every block, so that
//
//     both in this interval, other thread            -> race in the block, unless a __syncwarp of both lies between
//     earlier interval of this block                  -> ordered by the barrier
//     earlier block, global memory                    -> race between blocks: blocks have no order
//     a read of shared memory, no write in this block -> uninitialised
//
// Atomics do not race with each other, and a volatile read may watch what atomics change. Shuffles and votes order
// nothing: CUDA promises memory order for __syncwarp alone. A write of an earlier block counts as handed over when that
// block called __threadfence after it and this block has made an atomic access before the read (the last block that
// adds up everybody's partial sums).
#pragma once
#include "coalescing.h"

namespace emu {

static uint32_t interval, block_interval;  // now; the first of this block
static Vec<uint32_t> block_intervals;      // the first of every block
static Vec<uint32_t> fenced;               // by block: the interval of its last __threadfence
static bool made_atomic;                   // this block has made an atomic access to global memory

static uint16_t epoch[WARP], whole_epoch[WARP];  // by warp: __syncwarps so far; the last one of the whole warp
static uint16_t pair_epoch[WARP][WARP][WARP];    // the last one that two lanes shared, for partial masks
static bool partial[WARP];

enum { BY_ATOMIC = 1, BY_VOLATILE = 2 };

static void next_interval() {
    interval++;
    memset(epoch, 0, sizeof epoch);
    memset(whole_epoch, 0, sizeof whole_epoch);
    for (int w = 0; w < WARP; w++)
        if (partial[w]) memset(pair_epoch[w], 0, sizeof pair_epoch[w]), partial[w] = false;
}

static void begin_block() {
    next_interval();
    block_interval = interval;
    block_intervals.add() = interval;
    fenced.add() = 0;
    made_atomic = false;
}

static void synchronised(Block& B, int warp, unsigned lanes) {
    uint16_t now = ++epoch[warp];
    if (lanes == B.alive[warp]) {
        whole_epoch[warp] = now;
        return;
    }
    partial[warp] = true;
    for (unsigned a = lanes; a; a &= a - 1)
        for (unsigned b = lanes; b; b &= b - 1) pair_epoch[warp][__builtin_ctz(a)][__builtin_ctz(b)] = now;
}

static inline bool ordered_in_warp(const Mark& before, unsigned thread) {
    unsigned w = thread / WARP;
    if (before.thread / WARP != w) return false;
    if (whole_epoch[w] > before.epoch) return true;
    return partial[w] && pair_epoch[w][before.thread % WARP][thread % WARP] > before.epoch;
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
                        Access other, bool blocks, bool same_value = false) {
    Kind kind = same_value ? SAME_VALUE : blocks ? RACE_BLOCKS : r.space == SHARED ? RACE_SHARED : RACE_GLOBAL;
    Finding* f = report(kind, site, before.site, region, access, other);
    if (!f) return;
    Block& B = block();
    unsigned t = before.thread;
    uint64_t b = block_of(before.interval);
    f->offset = (int64_t)offset;
    f->size = size;
    f->other_thread = {t % B.size.x, t / B.size.x % B.size.y, t / (B.size.x * B.size.y)};
    f->other_block = {(unsigned)(b % B.grid.x), (unsigned)(b / B.grid.x % B.grid.y),
                      (unsigned)(b / ((uint64_t)B.grid.x * B.grid.y))};
}

// A write over another thread's write. The hooks come before the access, so whether it leaves the same value behind is
// only known at the next one.
struct SecondWrite {
    Fibre* by;
    int region, size;
    uint64_t offset;
    uint32_t site;
    Mark before;
    bool blocks;
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
    report_race(r, w.region, w.offset, w.size, w.site, WRITE, w.before, WRITE, w.blocks, same);
    block().current = now;
}

static void keep_second_write(const Region& r, int region, uint64_t offset, int size, uint32_t site, const Mark& before,
                              bool blocks) {
    if (second_write.by) return;  // of the same access: its first cell speaks for all
    second_write = {block().current, region, size, offset, site, before, blocks, {}};
    memcpy(second_write.value, (void*)(r.begin + offset), size <= 16 ? size : 16);
}

static bool handed_over(const Mark& write) { return made_atomic && fenced[block_of(write.interval)] >= write.interval; }

// Does this access clash with an earlier one (which was a write, or this one is)?
static inline bool clashes(const Region& r, const Mark& before, unsigned me, bool* blocks) {
    if (!before.interval) return false;
    if (before.interval < block_interval) return *blocks = true, r.space != SHARED;
    *blocks = false;
    return before.interval == interval && before.thread != me && !ordered_in_warp(before, me);
}

static inline void watch(int region, uint64_t offset, int size, Access access, uint32_t site, unsigned me) {
    const Region& r = regions[region];
    uint64_t last = (offset + size - 1) >> r.cell_shift;
    bool blocks;
    for (uint64_t c = offset >> r.cell_shift; c <= last; c++) {
        Cell& x = r.cells[c];
        if (r.space == SHARED && x.write.interval < block_interval && access != WRITE) {
            Finding* f = report(UNINITIALISED, site, 0, region, access);
            if (f) f->offset = (int64_t)offset, f->size = size;
        }
        bool relaxed = (access == ATOMIC || access == VOLATILE_READ) && (x.write.flags & BY_ATOMIC);
        if (!relaxed && clashes(r, x.write, me, &blocks) && !(blocks && handed_over(x.write))) {
            if (access == WRITE && !(x.write.flags & BY_ATOMIC)) keep_second_write(r, region, offset, size, site, x.write, blocks);
            else report_race(r, region, offset, size, site, access, x.write, x.write.flags & BY_ATOMIC ? ATOMIC : WRITE, blocks);
        }
        Mark now = {interval, (uint16_t)me, epoch[me / WARP], (uint16_t)site, 0};
        if (access == READ || access == VOLATILE_READ) {
            if (access == VOLATILE_READ) now.flags = BY_VOLATILE;
            // The second slot keeps a reader of an earlier block if there was one, else another thread of this interval.
            bool earlier_block = x.other_read.interval && x.other_read.interval < block_interval;
            if (x.read.interval && (x.read.interval < block_interval || (x.read.thread != me && !earlier_block)))
                x.other_read = x.read;
            x.read = now;
            continue;
        }
        const Mark* reads[] = {&x.read, &x.other_read};
        for (const Mark* read : reads) {
            if (access == ATOMIC && (read->flags & BY_VOLATILE)) continue;
            if (clashes(r, *read, me, &blocks)) {
                report_race(r, region, offset, size, site, access, *read, READ, blocks);
                break;
            }
        }
        now.flags = access == ATOMIC ? BY_ATOMIC : 0;
        x.write = now;
    }
}

}  // namespace emu
