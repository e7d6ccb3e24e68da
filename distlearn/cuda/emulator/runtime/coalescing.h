// coalescing.h -- how well the lanes of a warp use the memory.
//
// On a card the lanes of a warp run side by side; here one after another. So each lane leaves a trace of the basic blocks
// that it entered and the accesses it made, and when all lanes of a warp have come to a barrier the traces are replayed
// side by side: of the lanes that are not done, those that are furthest behind (deepest in calls of functions, then first
// in emu_site_order) run their block together. That is how diverged lanes of a card meet again after a branch or a loop.
//
// A warp's access to global memory costs the 32-byte sectors that it touches; to shared memory, one wavefront for each
// different 4-byte word that falls into the same of the 32 banks. Accesses of 8 and 16 bytes are served for 16 and 8
// lanes at a time. This is the model of NVIDIA's documents since Volta.
#pragma once
#include "findings.h"

namespace emu {

constexpr size_t LONGEST_TRACE = 1 << 18;  // events of a lane between two barriers; what comes later is not replayed
constexpr int DEEPEST = 63;                // calls within calls that are told apart

struct Traffic {  // of one line's access to one array
    uint32_t site;
    int region, next;  // next: another array that the same line touches, or -1
    Access access;
    int size;
    uintptr_t begin, end;  // of the array
    uint64_t requests, lanes, sectors, ideal_sectors, wavefronts, ideal_wavefronts;
    int worst;
    bool fits(uintptr_t a, int n, Access kind) const { return a >= begin && a + n <= end && n == size && kind == access; }
};

struct BasicBlock {
    uint64_t issued, active;  // how often warps ran it, and how many lanes took part
    uint64_t untraced;        // by lanes whose trace was full
};

// A trace is of these. A block: the top bit, whether it is only gone on with, the depth of calls, the site. An access:
// the number of its Traffic and the offset in the array.
typedef uint64_t Event;
constexpr Event IS_BLOCK = 1ull << 63, RESUMED = 1ull << 62;
static inline Event block_event(uint32_t site, int depth) { return IS_BLOCK | (Event)depth << 32 | site; }
static inline Event access_event(int traffic, uint64_t offset) { return (Event)traffic << 40 | (offset & ((1ull << 40) - 1)); }
static inline uint32_t site_in(Event e) { return (uint32_t)e; }
static inline uint64_t rank_of(Event e) {  // the lower, the further behind
    return (uint64_t)(DEEPEST - (int)(e >> 32 & DEEPEST)) << 32 | emu_site_order[site_in(e)];
}

static Vec<Traffic> traffic;
static Vec<int> traffic_of;        // by site: the array it touched last, plus one; zero is none
static Vec<BasicBlock> blocks_of;  // by site
struct Trace {
    Event *begin, *end, *full;
};
static Trace traces[WARP];         // of the warp that runs
static int open_warp = -1;
static uint64_t not_replayed;

struct CallStack {  // of one thread: the block it is in, for each function it is in
    int depth;
    uint32_t block[DEEPEST + 1];
};
static CallStack call_stacks[1024];

static void sort(uint64_t* a, int n) {  // nearly always sorted already
    for (int i = 1; i < n; i++) {
        uint64_t v = a[i];
        int k = i;
        for (; k && a[k - 1] > v; k--) a[k] = a[k - 1];
        a[k] = v;
    }
}

static void count_sectors(Traffic& t, uint64_t* a, int n) {
    sort(a, n);
    uint64_t last_sector = ~0ull, last = ~0ull;
    int different = 0;
    for (int i = 0; i < n; i++) {
        if (a[i] == last) continue;
        last = a[i];
        different++;
        for (uint64_t s = a[i] >> 5; s <= (a[i] + t.size - 1) >> 5; s++)
            if (s != last_sector) last_sector = s, t.sectors++;
    }
    t.ideal_sectors += (different * t.size + 31) / 32;
}

static void count_wavefronts(Traffic& t, const uint64_t* offset, const uint8_t* lane, int lanes) {
    int group = t.size <= 4 ? 32 : t.size == 8 ? 16 : 8, words = t.size <= 4 ? 1 : t.size / 4;
    for (int i = 0; i < lanes;) {
        uint64_t a[WARP * 4];
        int n = 0, degree = 0, which = lane[i] / group;
        for (; i < lanes && lane[i] / group == which; i++)
            for (int w = 0; w < words; w++) a[n++] = (offset[i] >> 2) + w;
        sort(a, n);
        uint8_t in_bank[32] = {0};
        for (int k = 0; k < n; k++) {
            if (k && a[k] == a[k - 1] && t.access != ATOMIC) continue;  // one word for many lanes is a broadcast
            int d = ++in_bank[a[k] & 31];
            if (d > degree) degree = d;
        }
        t.wavefronts += degree;
        t.ideal_wavefronts++;
        if (degree > t.worst) t.worst = degree;
    }
}

static void make_request(int index, uint64_t* offset, const uint8_t* lane, int n) {
    Traffic& t = traffic[index];
    t.requests++;
    t.lanes += n;
    if (regions[t.region].space == SHARED) count_wavefronts(t, offset, lane, n);
    else count_sectors(t, offset, n);
}

struct Cursor {  // where a lane stands in its trace
    const Event *next, *end;
};

static inline int traffic_in(Event e) { return (int)(e >> 40); }
static inline uint64_t offset_in(Event e) { return e & ((1ull << 40) - 1); }
static inline bool at_access(const Cursor& c) { return c.next != c.end && !(*c.next & IS_BLOCK); }

// The n lanes of `which` stand at the beginning of the same block: do its accesses, each by all lanes that make it.
static void replay_accesses(const uint8_t* which, int n, Cursor* cursor) {
    for (;;) {
        int index = -1, together = 0;
        uint64_t offset[WARP];
        uint8_t lane[WARP];
        for (int i = 0; i < n; i++) {
            Cursor& c = cursor[which[i]];
            if (!at_access(c)) continue;
            if (index < 0) index = traffic_in(*c.next);
            if (traffic_in(*c.next) != index) continue;
            offset[together] = offset_in(*c.next++);
            lane[together++] = which[i];
        }
        if (!together) return;
        make_request(index, offset, lane, together);
    }
}

// Of the lanes that are not done, those that are furthest behind; and who they are.
static int furthest_behind(const Cursor* cursor, uint8_t* which) {
    int n = 0;
    Event first = 0;
    bool alike = true;
    for (int l = 0; l < WARP; l++) {
        if (cursor[l].next == cursor[l].end) continue;
        Event e = *cursor[l].next;
        if (!n) first = e;
        alike &= e == first;
        which[n++] = (uint8_t)l;
    }
    if (alike) return n;
    uint64_t behind = ~0ull;
    int all = n;
    n = 0;
    for (int i = 0; i < all; i++) {
        uint64_t rank = rank_of(*cursor[which[i]].next);
        if (rank < behind) behind = rank, n = 0;
        if (rank == behind) which[n++] = which[i];
    }
    return n;
}

// The warp whose traces were collected has come to a barrier, or another warp runs: replay it.
static void close_warp() {
    if (open_warp < 0) return;
    Cursor cursor[WARP];
    for (int l = 0; l < WARP; l++) cursor[l] = {traces[l].begin, traces[l].end};
    uint8_t which[WARP];
    while (int n = furthest_behind(cursor, which)) {
        Event e = *cursor[which[0]].next;
        if (!(e & RESUMED)) blocks_of[site_in(e)].issued++, blocks_of[site_in(e)].active += n;
        for (int i = 0; i < n; i++) cursor[which[i]].next++;
        replay_accesses(which, n, cursor);
    }
    for (int l = 0; l < WARP; l++) traces[l].end = traces[l].begin;
    open_warp = -1;
}

static void make_traces() {  // pages that are never touched cost nothing
    for (Trace& t : traces) {
        t.begin = t.end = (Event*)malloc(LONGEST_TRACE * sizeof(Event));
        t.full = t.begin + LONGEST_TRACE - 2;
        if (!t.begin) fprintf(stderr, "the emulator ran out of memory\n"), abort();
    }
}

static inline __attribute__((always_inline)) bool trace(int thread, Event e) {
    int warp = thread / WARP;
    if (__builtin_expect(warp != open_warp, 0)) close_warp(), open_warp = warp;
    Trace& t = traces[thread % WARP];
    if (__builtin_expect(t.end >= t.full, 0)) return not_replayed++, false;
    if (__builtin_expect(t.end == t.begin, 0) && !(e & IS_BLOCK)) {  // it goes on after a barrier, within a block
        CallStack& s = call_stacks[thread];
        *t.end++ = block_event(s.block[s.depth], s.depth) | RESUMED;
    }
    *t.end++ = e;
    return true;
}

static inline __attribute__((always_inline)) void enter_block(int thread, uint32_t site) {
    CallStack& s = call_stacks[thread];
    s.block[s.depth] = site;
    if (__builtin_expect(!trace(thread, block_event(site, s.depth)), 0)) blocks_of[site].untraced++;
}

static inline void enter_function(int thread) {
    CallStack& s = call_stacks[thread];
    if (s.depth < DEEPEST) s.depth++;
    s.block[s.depth] = 0;
}

static inline void leave_function(int thread) {  // lanes that called a function meet again behind the call
    CallStack& s = call_stacks[thread];
    if (s.depth > 0) s.depth--;
    trace(thread, block_event(s.block[s.depth], s.depth) | RESUMED);
}

static int traffic_for(uint32_t site, int region, Access access, int size) {
    int first = traffic_of[site] - 1;
    for (int i = first; i >= 0; i = traffic[i].next)
        if (traffic[i].region == region && traffic[i].size == size && traffic[i].access == access) return i;
    if (size < 1 << regions[region].cell_shift) refine(regions[region]);
    Traffic& t = traffic.add();
    t.site = site;
    t.region = region;
    t.access = access;
    t.size = size;
    t.begin = regions[region].begin;
    t.end = regions[region].end;
    t.next = first;
    t.worst = 1;
    traffic_of[site] = (int)traffic.n;
    return (int)traffic.n - 1;
}

}  // namespace emu
