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
    uint64_t requests, lanes, sectors, ideal_sectors, wavefronts, ideal_wavefronts;
    int worst;
};

struct BasicBlock {
    uint64_t entered;         // by single threads: exact
    uint64_t issued, active;  // by warps, and lanes that took part: of what was replayed
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
static Vec<Event> traces[WARP];    // of the warp that runs
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

// The lanes `which` (n of them) stand in the same block, each at[] an event after its beginning: do its accesses.
static void replay_accesses(const uint8_t* which, int n, size_t* at) {
    uint32_t waiting = n == WARP ? ~0u : (1u << n) - 1;  // a bit for each of the n whose next event is an access
    while (waiting) {
        int first = -1, together = 0;
        uint64_t offset[WARP];
        uint8_t lane[WARP];
        for (uint32_t m = waiting; m; m &= m - 1) {
            int i = __builtin_ctz(m), l = which[i];
            Event e = at[l] < traces[l].n ? traces[l][at[l]] : IS_BLOCK;
            if (e & IS_BLOCK) {
                waiting &= ~(1u << i);
                continue;
            }
            int t = (int)(e >> 40);
            if (first < 0) first = t;
            if (t != first) continue;
            offset[together] = e & ((1ull << 40) - 1);
            lane[together++] = (uint8_t)l;
            at[l]++;
        }
        if (!together) break;
        Traffic& t = traffic[first];
        t.requests++;
        t.lanes += together;
        if (regions[t.region].space == SHARED) count_wavefronts(t, offset, lane, together);
        else count_sectors(t, offset, together);
    }
}

// The warp whose traces were collected has come to a barrier, or another warp runs: replay it.
static void close_warp() {
    size_t at[WARP] = {0};
    if (open_warp < 0) return;
    for (;;) {
        uint64_t behind = ~0ull;
        uint8_t which[WARP];
        int n = 0;
        for (int l = 0; l < WARP; l++) {
            if (at[l] >= traces[l].n) continue;
            uint64_t rank = rank_of(traces[l][at[l]]);
            if (rank < behind) behind = rank, n = 0;
            if (rank == behind) which[n++] = (uint8_t)l;
        }
        if (!n) break;
        Event e = traces[which[0]][at[which[0]]];
        if (!(e & RESUMED)) blocks_of[site_in(e)].issued++, blocks_of[site_in(e)].active += n;
        for (int i = 0; i < n; i++) at[which[i]]++;
        replay_accesses(which, n, at);
    }
    for (int l = 0; l < WARP; l++) traces[l].n = 0;
    open_warp = -1;
}

static inline void trace(int thread, Event e) {
    int warp = thread / WARP, lane = thread % WARP;
    if (warp != open_warp) close_warp(), open_warp = warp;
    Vec<Event>& trace = traces[lane];
    if (trace.n >= LONGEST_TRACE) {
        not_replayed++;
        return;
    }
    if (!trace.n && !(e & IS_BLOCK)) {  // it goes on after a barrier, in the middle of a block
        CallStack& s = call_stacks[thread];
        trace.add() = block_event(s.block[s.depth], s.depth) | RESUMED;
    }
    trace.add() = e;
}

static inline void enter_block(int thread, uint32_t site) {
    CallStack& s = call_stacks[thread];
    s.block[s.depth] = site;
    blocks_of[site].entered++;
    trace(thread, block_event(site, s.depth));
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
        if (traffic[i].region == region) return i;
    Traffic& t = traffic.add();
    t.site = site;
    t.region = region;
    t.access = access;
    t.size = size;
    t.next = first;
    t.worst = 1;
    traffic_of[site] = (int)traffic.n;
    return (int)traffic.n - 1;
}

}  // namespace emu
