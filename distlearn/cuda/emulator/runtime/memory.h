// memory.h -- a growing array without the C++ library, and what is known of the memory that a kernel may touch.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"

namespace emu {

template <class T> struct Vec {  // of plain data: zeroed when it grows
    T* data = nullptr;
    size_t n = 0, capacity = 0;
    void resize(size_t wanted) {
        if (wanted > capacity) {
            size_t c = wanted > 2 * capacity ? wanted : 2 * capacity;
            data = (T*)realloc((void*)data, c * sizeof(T));
            if (!data) fprintf(stderr, "the emulator ran out of memory\n"), abort();
            memset((void*)(data + capacity), 0, (c - capacity) * sizeof(T));
            capacity = c;
        }
        n = wanted;
    }
    T& add() { return resize(n + 1), data[n - 1]; }
    T& operator[](size_t i) { return data[i]; }
};

enum Space { GLOBAL, SHARED, CONSTANT };

constexpr uintptr_t STATIC_RED_ZONE = 256 << 10;  // behind every static variable, put there by assembly.py

// What the kernel did to one array cell (4 bytes, or less where the items are smaller); see shadow.h.
enum { BY_ATOMIC = 1 << 10, BY_VOLATILE = 1 << 11, FENCES = 12, NO_THREAD = 0xffff };
struct Mark {
    uint32_t interval, epoch;  // interval 0: never
    uint16_t site, who;        // the thread in 10 bits, how, and in 2 bits how many fences it had called in this interval
    unsigned thread() const { return who & 1023; }
    bool is_atomic() const { return who & BY_ATOMIC; }
    bool is_volatile() const { return who & BY_VOLATILE; }
    unsigned fences() const { return who >> FENCES & 3; }
};
struct Cell {
    Mark write, read;      // the last ones
    uint32_t other_epoch;  // of the last read by another lane of the same warp, in the same interval
    uint16_t other_site, other_who;
    uint32_t lanes, since;  // which lanes of that warp have read since its last whole __syncwarp; epoch of the first
};
struct LaneRead {  // the last read of a cell by one lane of a warp that uses __syncwarp with partial masks
    uint32_t interval, epoch;
    uint16_t site, warp;
};
struct Past {              // what is seldom asked for
    Mark far, earlier;     // a read by another warp in the interval of Cell::read; one of an earlier block
};

struct Region {  // an array argument, a shared, constant or device variable
    uintptr_t begin, end;
    char name[64];
    Space space;
    bool read_only;
    Sides sides;  // of a shared variable
    char letter;  // the type of its items, for variables: see cuda_emu.h
    int item, cell_shift;
    uintptr_t reach;  // an address in no region is reported for the nearest one, if it is no farther away than this
    Cell* cells;
    Past* past;
    LaneRead* lane_reads;  // WARP for each cell; null if there are none
};

static Vec<Region> regions;

static size_t cells_of(const Region& r) { return ((r.end - r.begin) >> r.cell_shift) + 2; }

static void make_shadow(Region& r, int cell_shift) {  // fresh pages cost nothing until touched
    r.cell_shift = cell_shift;
    size_t n = cells_of(r);
    r.cells = (Cell*)calloc(n, sizeof(Cell));
    r.past = (Past*)calloc(n, sizeof(Past));
    r.lane_reads = nullptr;
    if (!r.cells || !r.past) fprintf(stderr, "the emulator ran out of memory for %s\n", r.name), abort();
}

static int add_region(void* p, size_t size, size_t item, size_t align, const char* name, Space space, bool read_only,
                      uintptr_t reach = STATIC_RED_ZONE / 2) {
    Region& r = regions.add();
    r.begin = (uintptr_t)p;
    r.end = r.begin + size;
    snprintf(r.name, sizeof r.name, "%s", name);
    r.space = space;
    r.read_only = read_only;
    r.item = (int)item;
    r.reach = reach;
    make_shadow(r, align >= 4 ? 2 : align == 2 ? 1 : 0);
    return (int)regions.n - 1;
}

// From now on every byte has a cell of its own: bytes of an array of ints are written one by one, say.
static void refine(Region& r) {
    size_t n = r.end - r.begin;
    Region coarse = r;
    make_shadow(r, 0);
    for (size_t i = 0; i < n; i++) {
        size_t from = i >> coarse.cell_shift;
        const Cell& c = coarse.cells[from];
        if (c.write.interval || c.read.interval) r.cells[i] = c, r.past[i] = coarse.past[from];
    }
    free(coarse.cells);
    free(coarse.past);
    free(coarse.lane_reads);
}

static int find_region(uintptr_t a, size_t size) {
    for (size_t i = 0; i < regions.n; i++)
        if (a >= regions[i].begin && a + size <= regions[i].end) return (int)i;
    return -1;
}

static int nearest_region(uintptr_t a) {  // the array that was most likely meant; red zones keep arrays apart
    int best = -1;
    uintptr_t distance = ~(uintptr_t)0;
    for (size_t i = 0; i < regions.n; i++) {
        uintptr_t d = a >= regions[i].end ? a - regions[i].end : a < regions[i].begin ? regions[i].begin - a : 0;
        if (d < distance && d <= regions[i].reach) distance = d, best = (int)i;
    }
    return best;
}

}  // namespace emu
