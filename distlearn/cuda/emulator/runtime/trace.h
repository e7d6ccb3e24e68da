// trace.h -- what the lanes of a warp did between two barriers, until sectors_and_banks.h replays it.
//
// Every lane leaves a trace of the basic blocks that it entered and the accesses that it made. The traces of a warp lie
// side by side, one row per event: as long as its lanes do the same, a row is what the warp did in one instruction.
#pragma once
#include "findings.h"

namespace emu {

constexpr size_t LONGEST_TRACE = 1 << 18;  // events of a lane between two barriers; what comes later is not replayed
constexpr int DEEPEST = 63;                // depth up to which nested calls are distinguished

// An event is one of these. A block: the top bit, whether it is only gone on with, the depth of calls, the site. An
// access: the number of its Traffic and the offset in the array.
constexpr Event IS_BLOCK = 1ull << 63, RESUMED = 1ull << 62;
constexpr int OFFSET_BITS = 40;
static inline Event block_event(uint32_t site, int depth) { return IS_BLOCK | (Event)depth << 32 | site; }
static inline Event first_access(int traffic) { return (Event)traffic << OFFSET_BITS; }  // plus the offset
static inline uint32_t site_in(Event e) { return (uint32_t)e; }
static inline int traffic_in(Event e) { return (int)(e >> OFFSET_BITS); }
static inline uint64_t offset_in(Event e) { return e & ((1ull << OFFSET_BITS) - 1); }

static Event *rows, *last_row;  // WARP events each; pages that are never touched cost nothing
static Event* const CLOSED = (Event*)~(uintptr_t)0;  // `next` of a thread whose warp's traces are not being written
static int open_warp = -1;      // the warp whose traces are
static uint64_t not_replayed;
static Event call_stacks[1024][DEEPEST + 1];  // of each thread: the blocks that called the functions it is in

static void close_warp();

static void make_traces() {
    rows = (Event*)malloc(LONGEST_TRACE * WARP * sizeof(Event));
    if (!rows) fprintf(stderr, "the emulator ran out of memory\n"), abort();
    last_row = rows + (LONGEST_TRACE - 2) * WARP;
}

static void begin_traces(Block& B) {  // of a block
    for (int i = 0; i < B.n; i++) {
        Fibre& f = B.fibres[i];
        f.stack = stack_of(B, i);
        f.next = CLOSED;
        f.block = block_event(0, 0);
        f.depth = 0;
    }
}

// Called where `next` is no place for an event: it is the first one since the traces were replayed, or there is no room.
static __attribute__((noinline)) bool open_trace(Fibre* f, Event e) {
    if (f->next != CLOSED) return not_replayed++, false;
    int warp = f->linear / WARP;
    if (warp != open_warp) close_warp(), open_warp = warp;
    f->next = rows + f->linear % WARP;
    if (!(e & IS_BLOCK)) {  // it continues after a barrier, within a block
        *f->next = f->block | RESUMED;
        f->next += WARP;
    }
    return true;
}

static EMU_ALWAYS bool trace(Fibre* f, Event e) {
    if (__builtin_expect(f->next >= last_row, 0) && !open_trace(f, e)) return false;
    *f->next = e;
    f->next += WARP;
    return true;
}

static inline void enter_function(Fibre* f) {
    call_stacks[f->linear][f->depth] = f->block;
    if (f->depth < DEEPEST) f->depth++;
    f->block = block_event(0, f->depth);
}

static inline void leave_function(Fibre* f) {  // lanes that called a function meet again behind the call
    if (f->depth > 0) f->depth--;
    f->block = call_stacks[f->linear][f->depth];
    trace(f, f->block | RESUMED);
}

}  // namespace emu
