// checked.h -- what a kernel calls in the checker (checker.cpp), besides the compiler's hooks.
#pragma once
#include "types.h"

#ifdef __clang__
// clang would copy a call into both arms of a branch, or make one of the calls in both: a copied barrier is two barriers.
#define EMU_CONVERGENT __attribute__((convergent, noduplicate, nomerge))
#define EMU_UNCHECKED __attribute__((no_sanitize("thread", "coverage")))
#define EMU_UNHOOKED __attribute__((no_sanitize("thread")))  // its flops count all the same
#else
#define EMU_CONVERGENT __attribute__((noclone))
#define EMU_UNCHECKED __attribute__((no_sanitize("thread"), no_sanitize_coverage))
#define EMU_UNHOOKED __attribute__((no_sanitize("thread")))
#endif

extern "C" {
__attribute__((const)) uint3 emu_thread_index();
__attribute__((const)) uint3 emu_block_index();
__attribute__((const)) uint3 emu_block_size();
__attribute__((const)) uint3 emu_grid_size();
__attribute__((const)) void* emu_dynamic_shared();
__attribute__((const)) int emu_lane();
EMU_CONVERGENT int emu_barrier(int value);
EMU_CONVERGENT void emu_sync_warp(unsigned mask);
EMU_CONVERGENT uint64_t emu_shuffle(unsigned mask, uint64_t value, int source, bool own, void* pc);
EMU_CONVERGENT unsigned emu_vote(unsigned mask, int value);
EMU_CONVERGENT unsigned emu_match(unsigned mask, uint64_t value, void* pc);
EMU_CONVERGENT unsigned emu_active_lanes(int place);
void emu_fence();
int emu_printf(const char* format, ...);
void emu_assertion_failed(const char* condition, int line);
void emu_trap(int line);
void emu_atomic(void* address, int size, void* pc);
void emu_register_shared(void* address, size_t size, size_t item, size_t align, const char* name, emu::Sides sides);
void emu_register_global(void* address, size_t size, size_t item, size_t align, const char* name, char letter,
                         int constant);
void emu_set_kernel(void (*kernel)(void**), const char* signature, int parameters);
}

#define threadIdx (emu_thread_index())
#define blockIdx (emu_block_index())
#define blockDim (emu_block_size())
#define gridDim (emu_grid_size())

// A static variable is shared memory enough: the checker runs one block at a time. Its name and size are registered with the
// checker by a call that the source pass puts after the declaration.
#define __shared__ static __attribute__((aligned(128)))
#define EMU_SHARED(v) \
    emu_register_shared((void*)&(v), sizeof(v), emu::item_size(v), emu::item_align(v), #v, emu::sides(v));
#define EMU_SHARED_GLOBAL(v)                                                                                \
    static emu::RegisteredShared emu_registered_##v((void*)&(v), sizeof(v), emu::item_size(v), emu::item_align(v), #v, \
                                                    emu::sides(v));
#define EMU_GLOBAL(v, constant)                                                                             \
    static emu::Registered emu_registered_##v((void*)&(v), sizeof(v), emu::item_size(v), emu::item_align(v), #v, \
                                              emu::item_letter(v), constant);

namespace emu {
struct Registered {
    EMU_UNCHECKED Registered(void* p, size_t size, size_t item, size_t align, const char* name, char letter,
                             int constant) {
        emu_register_global(p, size, item, align, name, letter, constant);
    }
};
struct RegisteredShared {  // outside functions
    EMU_UNCHECKED RegisteredShared(void* p, size_t size, size_t item, size_t align, const char* name, Sides sides) {
        emu_register_shared(p, size, item, align, name, sides);
    }
};
}  // namespace emu
