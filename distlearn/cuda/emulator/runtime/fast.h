// fast.h -- the fast build: a shared library without checks, for kernels that are trusted and for timing.
//
// Python calls emu_run for ranges of blocks from a few threads at once, so all state is per thread. A kernel without
// barriers and warp operations (EMU_FIBRES is not defined) is a plain loop over the threads of the block. Whether it has
// any, wherever macros and headers may have hidden them, the linker knows: emu_needs_fibres is defined nowhere.
#pragma once
#include <stdarg.h>

namespace emu {
struct OfThread {};
}  // namespace emu
#include "fibres.h"

namespace emu {
static thread_local Block the_block;
#ifdef __clang__
inline Block& block() { return the_block; }
#define EMU_BLOCK emu::the_block
#else  // gcc takes a look-up of this thread's block for cheap and repeats it at every barrier; a call's result it keeps
__attribute__((const, noinline)) inline Block& block() { return the_block; }
#define EMU_BLOCK emu::block()
#endif
inline void block_released(Block&) {}
inline void warp_released(Block&, int, unsigned, WarpOp) {}
}  // namespace emu
#include "faults.h"
#include "sanitizers.h"

#define EMU_HANDLER extern "C" __attribute__((used, visibility("hidden"))) inline void
EMU_HANDLER __ubsan_handle_float_cast_overflow(void* what, void* x) {
    emu::UbConversion* to = (emu::UbConversion*)what;
    char text[96];
    if (emu::differs(to, (uintptr_t)x, text)) emu::end_process("converts without a cast: %s", text, (int)to->location.line);
}
EMU_HANDLER __ubsan_handle_shift_out_of_bounds(void* what, void*, void*) {
    emu::UbShift* by = (emu::UbShift*)what;
    emu::end_process("shifts %s by as many bits as it has, or more", by->left->name, (int)by->location.line);
}

#ifdef EMU_FIBRES
#define threadIdx (EMU_BLOCK.current->index)
#else
#define threadIdx (EMU_BLOCK.thread)
#endif
#define blockIdx (EMU_BLOCK.index)
#define blockDim (EMU_BLOCK.size)
#define gridDim (EMU_BLOCK.grid)

#define __shared__ static thread_local
#define EMU_SHARED(variable)
#define EMU_SHARED_GLOBAL(variable)
#define EMU_GLOBAL(variable, constant) \
    extern "C" __attribute__((visibility("default"))) void* emu_address_of_##variable() { return (void*)&variable; } \
    static emu::Variable emu_variable_##variable(#variable, emu::item_letter(variable), emu::item_size(variable),   \
                                                 sizeof variable);

#ifndef EMU_FIBRES
extern "C" __attribute__((visibility("hidden"))) void emu_needs_fibres();
static EMU_ALWAYS int emu_barrier(int) { return emu_needs_fibres(), 0; }
static EMU_ALWAYS void emu_sync_warp(unsigned) { emu_needs_fibres(); }
static EMU_ALWAYS uint64_t emu_shuffle(unsigned, uint64_t, int, bool, void*) { return emu_needs_fibres(), 0; }
static EMU_ALWAYS unsigned emu_vote(unsigned, int) { return emu_needs_fibres(), 0; }
static EMU_ALWAYS unsigned emu_match(unsigned, uint64_t, void*) { return emu_needs_fibres(), 0; }
static EMU_ALWAYS unsigned emu_active_lanes(int) { return emu_needs_fibres(), 0; }
static EMU_ALWAYS int emu_lane() { return emu_needs_fibres(), 0; }
#else
static EMU_ALWAYS int emu_barrier(int value) { return emu::barrier(value, nullptr); }
static EMU_ALWAYS void emu_sync_warp(unsigned mask) { emu::warp_operation(emu::SYNC, mask, 0, 0, nullptr); }
static EMU_ALWAYS uint64_t emu_shuffle(unsigned mask, uint64_t value, int source, bool, void*) {
    return emu::warp_operation(emu::SHUFFLE, mask, value, source, nullptr)->result;
}
static EMU_ALWAYS unsigned emu_vote(unsigned mask, int value) {
    return (unsigned)emu::warp_operation(emu::VOTE, mask, value, 0, nullptr)->result;
}
static EMU_ALWAYS unsigned emu_match(unsigned mask, uint64_t value, void*) {
    return (unsigned)emu::warp_operation(emu::MATCH, mask, value, 0, nullptr)->result;
}
static EMU_ALWAYS unsigned emu_active_lanes(int place) { return emu::active_lanes(place, nullptr); }
static inline int emu_lane() { return EMU_BLOCK.current->linear % emu::WARP; }
#endif
static inline void* emu_dynamic_shared() { return EMU_BLOCK.dynamic_shared; }
static inline void emu_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void emu_assertion_failed(const char* condition, int line) {
    fflush(stdout);
    emu::end_process("finds that assert(%s) does not hold", condition, line);
}
static inline void emu_trap(int line) {
    fflush(stdout);
    emu::end_process("calls __trap()%s", "", line);
}
__attribute__((format(printf, 1, 2))) static int emu_printf(const char* format, ...) {
    if (emu::printed > emu::MOST_PRINTED) return -1;
    va_list a;
    va_start(a, format);
    int n = vprintf(format, a);
    va_end(a);
    if (n > 0 && (emu::printed += (size_t)n) > emu::MOST_PRINTED)
        puts("\n... (the kernel prints more than 1 MiB; the rest is left out)");
    return n;
}

namespace emu {
struct Variable {  // a __constant__ or __device__ one
    const char* name;
    char letter;
    size_t item, size;
    Variable* next;
    static inline Variable* first = nullptr;
    Variable(const char* name, char letter, size_t item, size_t size)
        : name(name), letter(letter), item(item), size(size), next(first) { first = this; }
};
static const char* describe(const char* signature) {  // the checked build's program prints the same
    size_t n = strlen(signature) + 2;
    for (Variable* v = Variable::first; v; v = v->next) n += strlen(v->name) + 48;
    char *text = (char*)malloc(n), *at = text + sprintf(text, "%s\n", signature);
    for (Variable* v = Variable::first; v; v = v->next)
        at += sprintf(at, "%s %c%d %zu\n", v->name, v->letter, (int)v->item, v->size);
    return text;
}

template <void (*kernel)(void**)>
static int run(const Launch* L) {  // 1 if some threads of a block wait without end
    Block& B = EMU_BLOCK;
    catch_faults();
    if (!L->first) printed = 0;
#ifdef EMU_FIBRES
    prepare(B, L, true);
    B.kernel = kernel;
#else
    prepare(B, L, false);
#endif
    for (int64_t b = L->first; b < L->last; b++) {
        B.index = block_index(L, b);
#ifdef EMU_FIBRES
        if (!run_block(B)) return 1;
#else
        for (unsigned z = 0; z < L->block[2]; z++)
            for (unsigned y = 0; y < L->block[1]; y++)
                for (unsigned x = 0; x < L->block[0]; x++) {
                    B.thread = {x, y, z};
                    kernel(L->args);
                }
#endif
    }
    fflush(stdout);
    return 0;
}
}  // namespace emu
