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

// What the kernel did to one array cell (4 bytes, or less where the items are smaller) last; see shadow.h.
struct Mark {
    uint32_t interval;  // 0: never. Counts barrier intervals over the whole launch
    uint16_t thread, epoch, site;
    uint16_t flags;
};
struct Cell {
    Mark write, read, other_read;
};

struct Region {  // an array argument, a shared, constant or device variable
    uintptr_t begin, end;
    char name[64];
    Space space;
    bool read_only;
    Sides sides;  // of a shared variable
    char letter;  // the type of its items, for variables: see cuda_emu.h
    int item, cell_shift;
    Cell* cells;
};

static Vec<Region> regions;

static int add_region(void* p, size_t size, size_t item, size_t align, const char* name, Space space, bool read_only) {
    Region& r = regions.add();
    r.begin = (uintptr_t)p;
    r.end = r.begin + size;
    snprintf(r.name, sizeof r.name, "%s", name);
    r.space = space;
    r.read_only = read_only;
    r.item = (int)item;
    r.cell_shift = align >= 4 ? 2 : align == 2 ? 1 : 0;
    r.cells = (Cell*)calloc((size >> r.cell_shift) + 2, sizeof(Cell));  // fresh pages cost nothing until touched
    if (!r.cells) fprintf(stderr, "the emulator ran out of memory for %s\n", name), abort();
    return (int)regions.n - 1;
}

// From now on every byte has a cell of its own: bytes of an array of ints are written one by one, say.
static void refine(Region& r) {
    size_t n = r.end - r.begin;
    Cell* finer = (Cell*)calloc(n + 2, sizeof(Cell));
    if (!finer) fprintf(stderr, "the emulator ran out of memory for %s\n", r.name), abort();
    for (size_t i = 0; i < n; i++) {
        const Cell& c = r.cells[i >> r.cell_shift];
        if (c.write.interval || c.read.interval) finer[i] = c;
    }
    free(r.cells);
    r.cells = finer;
    r.cell_shift = 0;
}

static int find_region(uintptr_t a, size_t size) {
    for (size_t i = 0; i < regions.n; i++)
        if (a >= regions[i].begin && a + size <= regions[i].end) return (int)i;
    return -1;
}

static int nearest_region(uintptr_t a, uintptr_t within) {  // the array that was most likely meant; red zones keep arrays apart
    int best = -1;
    uintptr_t distance = ~(uintptr_t)0;
    for (size_t i = 0; i < regions.n; i++) {
        uintptr_t d = a >= regions[i].end ? a - regions[i].end : a < regions[i].begin ? regions[i].begin - a : 0;
        if (d < distance) distance = d, best = (int)i;
    }
    return distance < within ? best : -1;
}

}  // namespace emu
