// sites.h -- from a return address to a place in the student's source.
//
// Every hook knows the address that it will return to. Python labels each call in the compiler's assembly (assembly.py)
// and adds two tables to the program: emu_sites, those addresses, and emu_site_ids, a number for each. Calls of the same
// line, column and kind share a number, since a compiler may copy a call; Python keeps what each number stands for.
// A third table, emu_site_order, says in which order a warp runs the basic blocks
// (assembly.py). Here the first two become one array over the kernel's code, so that finding a site is one load.
#pragma once
#include "memory.h"

extern "C" {
extern const uintptr_t emu_sites[];
extern const uint32_t emu_site_ids[];
extern const uint32_t emu_site_order[];
extern const uintptr_t emu_places[];  // where the code of a line begins
extern const uint32_t emu_place_ids[];
extern const uint32_t emu_n_sites, emu_n_site_ids, emu_n_places;
}

namespace emu {

static uintptr_t code_begin, code_size;
static uint32_t* site_at;

static void index_sites() {
    uintptr_t lo = ~(uintptr_t)0, hi = 0;
    for (uint32_t i = 0; i < emu_n_sites; i++) {
        if (emu_sites[i] < lo) lo = emu_sites[i];
        if (emu_sites[i] > hi) hi = emu_sites[i];
    }
    code_begin = lo;
    code_size = hi - lo + 1;
    site_at = (uint32_t*)calloc(code_size, sizeof *site_at);
    for (uint32_t i = 0; i < emu_n_sites; i++) site_at[emu_sites[i] - lo] = emu_site_ids[i];
}

static inline uint32_t site_of(const void* pc) {  // 0: not in the kernel
    uintptr_t at = (uintptr_t)pc - code_begin;
    return at < code_size ? site_at[at] : 0;
}

// The site of the line that an instruction belongs to; 0 if it is none of the kernel's.
static uint32_t site_of_instruction(uintptr_t pc) {
    uintptr_t best = 0;
    uint32_t site = 0;
    for (uint32_t i = 0; i < emu_n_places; i++)
        if (emu_places[i] <= pc && emu_places[i] >= best) best = emu_places[i], site = emu_place_ids[i];
    return pc - best < 1 << 20 ? site : 0;
}

}  // namespace emu
