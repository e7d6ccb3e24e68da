// checked_calls.h -- what a kernel calls (checked.h declares it): barriers, warp operations, fences,
// assertions, printf. Part of checker.cpp, inside its extern "C".
#pragma once

uint3 emu_thread_index() { return the_block.current->index; }
uint3 emu_block_index() { return the_block.index; }
uint3 emu_block_size() { return the_block.size; }
uint3 emu_grid_size() { return the_block.grid; }
int emu_lane() { return the_block.current->linear % WARP; }
void* emu_dynamic_shared() { return the_block.dynamic_shared; }
int emu_barrier(int value) { return barrier(value, HERE); }

static void check_mask(unsigned mask, const void* pc) {
    if (mask >> emu_lane() & 1) return;
    Finding* f = report(LANE_NOT_IN_MASK, site_of(pc), 0, -1);
    if (f) f->extra = mask;
}
void emu_sync_warp(unsigned mask) {
    check_mask(mask, HERE);
    warp_operation(SYNC, mask, 0, 0, HERE);
}
uint64_t emu_shuffle(unsigned mask, uint64_t value, int source, bool own, void* pc) {
    check_mask(mask, pc);
    const Fibre* f = warp_operation(SHUFFLE, mask, value, source, pc);
    if (!f->valid && !own) {
        Finding* n = report(MISSING_LANE, site_of(pc), 0, -1);
        if (n) n->offset = source, n->extra = f->linear % WARP;
    }
    return f->result;
}
unsigned emu_vote(unsigned mask, int value) {
    check_mask(mask, HERE);
    return (unsigned)warp_operation(VOTE, mask, value, 0, HERE)->result;
}
unsigned emu_match(unsigned mask, uint64_t value, void* pc) {
    check_mask(mask, pc);
    return (unsigned)warp_operation(MATCH, mask, value, 0, pc)->result;
}
unsigned emu_active_lanes(int place) { return active_lanes(place, HERE); }
void emu_fence() {
    if (the_block.current) note_fence(the_block);
}
void emu_atomic(void* p, int size, void* pc) { on_any_access((uintptr_t)p, size, ATOMIC, pc); }
void emu_assertion_failed(const char* condition, int) {
    Finding* f = report(ASSERTION, site_of(HERE), 0, -1);
    if (f) snprintf(f->text, sizeof f->text, "%s", condition);
    end_thread();
}
void emu_trap(int) {
    Finding* f = report(ASSERTION, site_of(HERE), 0, -1);
    if (f) snprintf(f->text, sizeof f->text, "__trap was not reached");
    end_thread();
}
int emu_printf(const char* format, ...) {
    static size_t printed;
    if (printed > MOST_PRINTED) return -1;
    va_list a;
    va_start(a, format);
    int n = vprintf(format, a);
    va_end(a);
    if (n > 0 && (printed += (size_t)n) > MOST_PRINTED) puts("\n... (the kernel prints more than 1 MiB; the rest is left out)");
    return n;
}
