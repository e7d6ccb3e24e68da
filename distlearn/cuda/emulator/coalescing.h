// coalescing.h -- how well the lanes of a warp use the memory.
//
// The lanes of a warp run one after another here, so their accesses are put together afterwards: the n-th time that lane
// 0 passes a line belongs to the n-th time that lane 1 passes it, within one barrier interval. (Lanes that skip turns of
// a loop can so be paired with another turn.) A warp's access to global memory costs the 32-byte sectors that it touches;
// to shared memory, one wavefront for each different 4-byte word that falls into the same of the 32 banks. Accesses of
// 8 and 16 bytes are served for 16 and 8 lanes at a time. This is the model of NVIDIA's documents since Volta.
#pragma once
#include "findings.h"

namespace emu {

constexpr uint32_t MOST_TURNS = 1 << 14;  // remembered per line and interval; later ones are only counted

struct Traffic {  // of one line's access to one array
    uint32_t site;
    int region, next;  // next: another array that the same line touches, or -1
    Access access;
    int size;
    bool touched;
    uint32_t turns[WARP], most;
    Vec<uint32_t> offsets;  // [turn][lane]
    uint64_t requests, lanes, sectors, ideal_sectors, wavefronts, ideal_wavefronts, skipped;
    int worst;
};

struct BasicBlock {
    bool touched;
    uint32_t turns[WARP];
    uint64_t issued, active;
};

static Vec<Traffic> traffic;
static Vec<int> traffic_of;       // by site: the array it touched last, or -1 (stored plus one, so that zero is none)
static Vec<BasicBlock> blocks_of; // by site
static Vec<int> open_traffic, open_blocks;
static int open_warp = -1;

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

static void count_wavefronts(Traffic& t, const uint32_t* offset, unsigned lanes) {
    int group = t.size <= 4 ? 32 : t.size == 8 ? 16 : 8, words = t.size <= 4 ? 1 : t.size / 4;
    for (int g = 0; g < WARP; g += group) {
        uint64_t a[WARP * 4];
        int n = 0, degree = 0;
        for (int l = g; l < g + group; l++)
            if (lanes >> l & 1)
                for (int w = 0; w < words; w++) a[n++] = (offset[l] >> 2) + w;
        if (!n) continue;
        sort(a, n);
        uint8_t in_bank[32] = {0};
        for (int i = 0; i < n; i++) {
            if (i && a[i] == a[i - 1] && t.access != ATOMIC) continue;  // one word for many lanes is a broadcast
            int d = ++in_bank[a[i] & 31];
            if (d > degree) degree = d;
        }
        t.wavefronts += degree;
        t.ideal_wavefronts++;
        if (degree > t.worst) t.worst = degree;
    }
}

// The warp whose accesses were collected has reached a barrier, or another warp runs: make requests of them.
static void close_warp() {
    for (size_t i = 0; i < open_traffic.n; i++) {
        Traffic& t = traffic[open_traffic[i]];
        Space space = regions[t.region].space;
        uint32_t turns = t.most < MOST_TURNS ? t.most : MOST_TURNS;
        for (uint32_t turn = 0; turn < turns; turn++) {
            const uint32_t* offset = &t.offsets[(size_t)turn * WARP];
            uint64_t a[WARP];
            unsigned lanes = 0;
            int n = 0;
            for (int l = 0; l < WARP; l++)
                if (t.turns[l] > turn) a[n++] = offset[l], lanes |= 1u << l;
            t.requests++;
            t.lanes += n;
            if (space == SHARED) count_wavefronts(t, offset, lanes);
            else count_sectors(t, a, n);
        }
        t.skipped += t.most - turns;
        t.touched = false;
        t.most = 0;
        memset(t.turns, 0, sizeof t.turns);
    }
    open_traffic.n = 0;
    for (size_t i = 0; i < open_blocks.n; i++) {
        BasicBlock& b = blocks_of[open_blocks[i]];
        uint32_t most = 0;
        for (int l = 0; l < WARP; l++) {
            if (b.turns[l] > most) most = b.turns[l];
            b.active += b.turns[l];
        }
        b.issued += most;
        b.touched = false;
        memset(b.turns, 0, sizeof b.turns);
    }
    open_blocks.n = 0;
    open_warp = -1;
}

static inline void open(int warp) {
    if (warp == open_warp) return;
    close_warp();
    open_warp = warp;
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

static inline void record(int index, uint32_t offset, int lane) {
    Traffic& t = traffic[index];
    if (!t.touched) t.touched = true, open_traffic.add() = index;
    uint32_t turn = t.turns[lane]++;
    if (turn >= t.most) t.most = turn + 1;
    if (turn >= MOST_TURNS) return;
    size_t at = (size_t)turn * WARP + lane;
    if (at >= t.offsets.n) t.offsets.resize((size_t)(turn + 1) * WARP);
    t.offsets[at] = offset;
}

}  // namespace emu
