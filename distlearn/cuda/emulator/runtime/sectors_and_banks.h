// sectors_and_banks.h -- what the accesses of a warp cost: sectors of global memory, bank conflicts of shared memory.
//
// On a card the lanes of a warp run side by side; here one after another. So when all lanes of a warp have come to a
// barrier their traces (trace.h) are replayed side by side: of the lanes that are not done, those that are furthest behind
// (deepest in calls of functions, then first in emu_site_order) run their block together. That is how diverged lanes of a
// card meet again after a branch or a loop.
//
// A warp's access to global memory costs the 32-byte sectors that it touches; to shared memory, one wavefront for each
// different 4-byte word that falls into the same of the 32 banks. Accesses of 8 and 16 bytes are served for 16 and 8
// lanes at a time. This is the model of NVIDIA's documents since Volta.
#pragma once
#include "trace.h"

namespace emu {

// Where the lanes of a request stand relative to the first of them, and what that costs. The next request of the same
// line mostly has the same pattern, further on, and costs the same if it begins at the same place of a sector.
struct Pattern {
    unsigned lanes;                // which lanes; 0: none yet
    uint64_t distance[WARP];       // from the first, of each of them in turn
    uint8_t cost[32], worst[32];   // sectors or wavefronts by (offset of the first) % 32, 0 if not known; worst conflict
    int ideal;
};

struct Traffic {  // of one line's access to one array
    uint32_t site;
    int region, next;  // next: another array that the same line touches, or -1
    Access access;
    int size;
    bool shared;
    uint64_t requests, lanes, cost, ideal;  // cost: sectors of global memory, wavefronts of shared memory
    int worst;                              // the worst bank conflict
    Pattern pattern;
};

struct Place {  // where the accesses of a site go: to the array that it touched last, if it is still the same
    uintptr_t begin;  // of the array
    uint64_t count;   // how many addresses from there on an access can begin at; 0: look for the array
    Event first;      // the event of an access to its first byte
    Cell* cells;      // its shadow, if each access is one cell; else null
    int region;
    bool shared;
    int traffic;  // of this site, the first of a list; -1: none
};

struct BasicBlock {
    uint64_t issued, active;  // how often warps ran it, and how many lanes took part
    uint64_t untraced;        // by lanes whose trace was full
};

static uint64_t of_warp[WARP][2], busiest_warp[2];  // sectors and wavefronts: of the block's warps, and the most of any

static Vec<Traffic> traffic;
static Vec<BasicBlock> blocks_of;  // by site
static Vec<Place> places;          // by site

static inline uint64_t rank_of(Event e) {  // the lower, the further behind
    return (uint64_t)(DEEPEST - (int)(e >> 32 & DEEPEST)) << 32 | emu_site_order[site_in(e)];
}

static void sort(uint64_t* a, int n) {  // nearly always sorted already
    for (int i = 1; i < n; i++) {
        uint64_t v = a[i];
        int k = i;
        for (; k && a[k - 1] > v; k--) a[k] = a[k - 1];
        a[k] = v;
    }
}

static int count_sectors(const Traffic& t, Pattern& p, const uint64_t* offset, int n) {
    uint64_t a[WARP], last_sector = ~0ull, last = ~0ull;
    memcpy(a, offset, n * sizeof *a);
    sort(a, n);
    int different = 0, sectors = 0;
    for (int i = 0; i < n; i++) {
        if (a[i] == last) continue;
        last = a[i];
        different++;
        for (uint64_t s = a[i] >> 5; s <= (a[i] + t.size - 1) >> 5; s++)
            if (s != last_sector) last_sector = s, sectors++;
    }
    p.ideal = (different * t.size + 31) / 32;
    return sectors;
}

static int count_wavefronts(const Traffic& t, Pattern& p, const uint64_t* offset, unsigned mask, int* worst) {
    int group = t.size <= 4 ? 32 : t.size == 8 ? 16 : 8, words = t.size <= 4 ? 1 : t.size / 4, wavefronts = 0, i = 0;
    p.ideal = 0;
    while (mask) {
        uint64_t a[WARP * 4];
        int n = 0, degree = 0, which = __builtin_ctz(mask) / group;
        for (; mask && __builtin_ctz(mask) / group == which; mask &= mask - 1, i++)
            for (int w = 0; w < words; w++) a[n++] = (offset[i] >> 2) + w;
        sort(a, n);
        uint8_t in_bank[32] = {0};
        for (int k = 0; k < n; k++) {
            if (k && a[k] == a[k - 1] && t.access != ATOMIC) continue;  // one word for many lanes is a broadcast
            int d = ++in_bank[a[k] & 31];
            if (d > degree) degree = d;
        }
        wavefronts += degree;
        p.ideal++;
        if (degree > *worst) *worst = degree;
    }
    return wavefronts;
}

// A request of the lanes in `mask`, n of them: an access of each, all of the same Traffic.
static EMU_ALWAYS void make_request(const Event* e, unsigned mask, int n) {
    const Event first = e[0];
    Traffic& t = traffic[traffic_in(first)];
    Pattern& p = t.pattern;
    const int begin = (int)(offset_in(first) & 31);
    uint64_t distance[WARP], other = p.lanes ^ mask;
    for (int i = 0; i < n; i++) distance[i] = e[i] - first;
    for (int i = 0; i < n; i++) other |= distance[i] ^ p.distance[i];
    if (other) {
        p.lanes = mask;
        memcpy(p.distance, distance, n * sizeof *distance);
        memset(p.cost, 0, sizeof p.cost);
    }
    if (!p.cost[begin]) {
        uint64_t offset[WARP];
        int worst = 1;
        for (int i = 0; i < n; i++) offset[i] = offset_in(e[i]);
        p.cost[begin] = (uint8_t)(t.shared ? count_wavefronts(t, p, offset, mask, &worst) : count_sectors(t, p, offset, n));
        p.worst[begin] = (uint8_t)worst;
    }
    t.requests++;
    t.lanes += n;
    t.cost += p.cost[begin];
    of_warp[open_warp][t.shared] += p.cost[begin];
    t.ideal += p.ideal;
    if (p.worst[begin] > t.worst) t.worst = p.worst[begin];
}

struct Cursor {  // where a lane stands in its trace
    const Event *next, *end;
};

static inline bool at_access(const Cursor& c) { return c.next != c.end && !(*c.next & IS_BLOCK); }

// The n lanes of `which` stand at the beginning of the same block: do its accesses, each by all lanes that make it.
static void replay_accesses(const uint8_t* which, int n, Cursor* cursor) {
    for (;;) {
        int index = -1, together = 0;
        Event access[WARP];
        unsigned lanes = 0;
        for (int i = 0; i < n; i++) {
            Cursor& c = cursor[which[i]];
            if (!at_access(c)) continue;
            if (index < 0) index = traffic_in(*c.next);
            if (traffic_in(*c.next) != index) continue;
            access[together++] = *c.next;
            lanes |= 1u << which[i];
            c.next += WARP;
        }
        if (!together) return;
        make_request(access, lanes, together);
    }
}

// Of the lanes that are not done, those that are furthest behind: how many, which, and whether these are all.
static int furthest_behind(const Cursor* cursor, uint8_t* which, bool* all) {
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
    *all = alike;
    if (alike) return n;
    uint64_t behind = ~0ull;
    int left = n;
    n = 0;
    for (int i = 0; i < left; i++) {
        uint64_t rank = rank_of(*cursor[which[i]].next);
        if (rank < behind) behind = rank, n = 0;
        if (rank == behind) which[n++] = which[i];
    }
    return n;
}

static inline void run_block_of(Event e, int lanes) {
    if (!(e & RESUMED)) blocks_of[site_in(e)].issued++, blocks_of[site_in(e)].active += lanes;
}

// The first n lanes stand in the same row, at a block: replay row after row as long as they do the same.
static EMU_ALWAYS const Event* replay_rows(const Event* row, const Event* end, int n) {
    const unsigned mask = n == WARP ? ~0u : (1u << n) - 1;
    for (; row < end; row += WARP) {
        const Event first = row[0];
        uint64_t other = 0;
        for (int i = 1; i < n; i++) other |= row[i] ^ first;
        if (first & IS_BLOCK) {
            if (other) break;
            run_block_of(first, n);
        } else {
            if (other >> OFFSET_BITS) break;
            make_request(row, mask, n);
        }
    }
    return row;
}

// If those that are not done are the first n and stand in the same row: replay all that they do until they part.
static bool replay_level(Cursor* cursor, const uint8_t* which, int n) {
    const Event *row = cursor[0].next, *end = cursor[0].end;
    if (which[n - 1] != n - 1) return false;
    for (int l = 1; l < n; l++) {
        if (cursor[l].next != row + l) return false;
        if (cursor[l].end - l < end) end = cursor[l].end - l;
    }
    const Event* to = n == WARP ? replay_rows(row, end, WARP) : replay_rows(row, end, n);
    for (int l = 0; l < n; l++) cursor[l].next = to + l;
    return to != row;
}

// All lanes of the warp whose traces were written wait, or another warp runs: replay it.
static void close_warp() {
    if (open_warp < 0) return;
    Block& B = block();
    Cursor cursor[WARP] = {};
    for (int l = 0; l < WARP && open_warp * WARP + l < B.n; l++) {
        Fibre& f = B.fibres[open_warp * WARP + l];
        if (f.next != CLOSED) cursor[l] = {rows + l, f.next};
        f.next = CLOSED;
    }
    uint8_t which[WARP];
    bool all;
    while (int n = furthest_behind(cursor, which, &all)) {
        if (!all || !replay_level(cursor, which, n)) {
            run_block_of(*cursor[which[0]].next, n);
            for (int i = 0; i < n; i++) cursor[which[i]].next += WARP;
        }
        replay_accesses(which, n, cursor);
    }
    open_warp = -1;
}

static void end_warps() {  // of a block
    for (auto& costs : of_warp)
        for (int k = 0; k < 2; k++) {
            if (costs[k] > busiest_warp[k]) busiest_warp[k] = costs[k];
            costs[k] = 0;
        }
}

static int traffic_for(uint32_t site, int region, Access access, int size) {
    Place& p = places[site];
    for (int i = p.traffic; i >= 0; i = traffic[i].next)
        if (traffic[i].region == region && traffic[i].size == size && traffic[i].access == access) return i;
    Traffic& t = traffic.add();
    t.site = site;
    t.region = region;
    t.access = access;
    t.size = size;
    t.shared = regions[region].space == SHARED;
    t.next = p.traffic;
    t.worst = 1;
    return p.traffic = (int)traffic.n - 1;
}

}  // namespace emu
