// checker.cpp -- what a kernel is linked with: a program that runs one launch and says what it saw.
//
// The kernel is compiled with the hooks that ThreadSanitizer and coverage tools use (a call before every access to
// memory, one at the start of every basic block), but none of their libraries is linked: the hooks are defined here.
// Checked kernels run in a process of their own, so that they cannot harm Python, whatever they do to its memory.
//
//     fibres.h      the threads of a block take turns
//     sites.h       from a return address to a line
//     memory.h      which memory there is: everything else is out of bounds
//     shadow.h      races, uninitialised shared memory
//     sectors_and_banks.h  sectors, bank conflicts, active lanes
//     findings.h    what went wrong
//     sanitizers.h  conversions and shifts
//     checked_calls.h  what a kernel calls: barriers, warp operations, printf
//     launch_io.h   the launch comes in, the report goes out
//     crash.h       what is reported when a signal ends the program
//
// A thread that must not continue (it was about to access memory outside of all arrays) ends there. The others of its
// block continue, later blocks are not run.
#include "launch_io.h"
#include "sanitizers.h"

#include <stdarg.h>
#include <time.h>

extern "C" void emu_choose_kernel();
#if defined(__linux__)
extern "C" char __executable_start[] __attribute__((weak)), __data_start[] __attribute__((weak)), _end[] __attribute__((weak));
#endif

namespace emu {

Block& block() { return the_block; }

static const char* signature;
static int parameters;  // of the kernel
static uint64_t accesses;
static double started, block_started;
static int64_t blocks_done;
static bool unfinished;  // the time limit has ended the launch: of the blocks that remain the last one runs
static const void* last_block;  // where the running thread was when it last entered a basic block

constexpr uintptr_t STACK_RESERVE = 112 * 1024;  // left for the largest frame (compilers.py), and for the checker itself
constexpr size_t MOST_PRINTED = 1 << 20;         // bytes; a card's own buffer for printf holds as much
constexpr int64_t LAST_BLOCK_MS = 500;           // that it may take: a guard that is missing shows there
constexpr int PATIENCE = 1 << 16;  // basic blocks between two looks at the clock, and at which thread has been running

static double now() {
    timespec t;
    timespec_get(&t, TIME_UTC);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

[[noreturn]] static void end_thread() {
    stop = true;
    leave(the_block);
    __builtin_unreachable();
}


void block_released(Block& B) {
    close_warp();
    next_interval();
    uint32_t first = 0;
    for (int i = 0; i < B.n; i++) {
        if (B.fibres[i].state != AT_BARRIER) continue;
        uint32_t site = site_of(B.fibres[i].pc);
        if (!first) first = site;
        if (site == first) continue;
        Finding* f = report(DIVERGENT_BARRIER, first, site, -1);
        if (f) f->other_thread = B.fibres[i].index, f->other_block = B.index;
        break;
    }
    if (B.living < B.n) {
        Finding* f = report(EXITED_THREADS, first, 0, -1);
        if (f) f->extra = B.n - B.living;
    }
}

void warp_released(Block& B, int warp, unsigned lanes, WarpOp op) {
    if (warp == open_warp && lanes == B.alive[warp]) close_warp();
    if (op == SYNC) return synchronised(B, warp, lanes);
    const Fibre *lane = B.fibres + warp * WARP, *first = nullptr;
    for (unsigned m = lanes; m; m &= m - 1) {  // values are exchanged by one instruction, so at one place of the source
        const Fibre* f = lane + __builtin_ctz(m);
        if (!first) first = f;
        if (site_of(f->pc) == site_of(first->pc)) continue;
        B.current = (Fibre*)f;
        Finding* n = report(DIVERGENT_LANES, site_of(f->pc), site_of(first->pc), -1);
        if (n) n->other_thread = first->index, n->other_block = B.index;
        break;
    }
}

// Static data of the program that the kernel may read: constant tables and string literals of the source.
static bool in_constant_data(uintptr_t a) {
#if defined(__linux__)
    return a >= (uintptr_t)__executable_start && a < (uintptr_t)__data_start;
#else
    uintptr_t here = (uintptr_t)&emu_n_sites;
    return a - here + (16u << 20) < (32u << 20);
#endif
}

static bool in_static_data(uintptr_t a) {
#if defined(__linux__)
    return a >= (uintptr_t)__data_start && a < (uintptr_t)_end;
#else
    (void)a;
    return false;
#endif
}

constexpr uintptr_t NULL_ZONE = 1 << 20;  // an index from a null pointer leads there, and nothing lies there

static void refuse(uintptr_t a, int size, Access access, uint32_t site, int suspect) {
    int near = nearest_region(a);
    bool host = near < 0 && in_static_data(a);
    if (near >= 0 || host || a < NULL_ZONE) suspect = near;
    Finding* f = report(OUT_OF_BOUNDS, site, 0, suspect, access);
    if (f) {
        f->size = size;
        f->offset = suspect < 0 ? (int64_t)a : (int64_t)(a - regions[suspect].begin);
        if (suspect < 0 && host) snprintf(f->text, sizeof f->text, "host");
    }
    end_thread();
}

static inline bool in_own_stack(uintptr_t a, const Fibre* f) { return a - (uintptr_t)f->stack < STACK; }

// From now on the accesses of a site go to this array, until one does not.
static void settle(Place& p, int region, int t, int size) {
    Region& r = regions[region];
    if (size < 1 << r.cell_shift) {  // bytes of an array of ints are written one by one, say
        refine(r);
        for (size_t i = 0; i < places.n; i++) places[i].count = 0;
    }
    p.begin = r.begin;
    p.count = r.end - r.begin - size + 1;
    p.first = first_access(t);
    p.region = region;
    p.shared = r.space == SHARED;
    p.cells = size == 1 << r.cell_shift ? r.cells : nullptr;
}

static __attribute__((noinline)) void on_any_access(uintptr_t a, int size, Access access, const void* pc) {
    Fibre* f = the_block.current;
    if (!f || in_own_stack(a, f)) return;  // the thread's own local variables
    if (second_write.by) judge_second_write();
    uint32_t site = site_of(pc);
    Place& p = places[site];
    int region = find_region(a, size);
    if (region < 0) {
        if (access != WRITE && in_constant_data(a)) return;
        refuse(a, size, access, site, p.traffic < 0 ? -1 : traffic[p.traffic].region);
    }
    const Region& r = regions[region];
    uint64_t offset = a - r.begin;
    int t = traffic_for(site, region, access, size);
    settle(p, region, t, size);
    accesses++;
    if (blocks_done == recorded_block) {
        if (recorded.n < MOST_RECORDED)
            recorded.add() = {interval - block_interval, site, f->linear, region, size, (int64_t)offset, access};
        p.count = 0;  // the next one comes here, too
    }
    if (size <= 16 && (a & (size - 1))) {  // a power of two: `on_pieces` does not come here with others
        Finding* n = report(MISALIGNED, site, 0, region, access);
        if (n) n->offset = (int64_t)offset, n->size = size;
        end_thread();
    }
    if (access != READ && access != VOLATILE_READ && r.read_only) {
        Finding* n = report(READ_ONLY, site, 0, region, access);
        if (n) n->offset = (int64_t)offset, n->size = size;
        p.count = 0;
    }
    if (access == ATOMIC && r.space == GLOBAL) note_atomic((unsigned)f->linear);
    if (access == ATOMIC && any_fence) note_lock(a, (unsigned)f->linear);
    if (want_statistics) trace(f, p.first + offset);
    if (want_races) watch(region, offset, size, access, site, (unsigned)f->linear);
}

// What the compiler's hooks report: size and kind are those of the site. Whether the access is one of the most frequent
// sort, within the array that the site touched before, is found with two comparisons.
static EMU_ALWAYS void on_access(uintptr_t a, int size, Access access, const void* pc) {
    Fibre* f = the_block.current;
    if (!f) return;
    const uint32_t site = site_of(pc);
    const Place& p = places[site];
    const uint64_t offset = a - p.begin;
    if (__builtin_expect(offset >= p.count || (a & (size - 1)) || second_write.by, 0)) {
        if (in_own_stack(a, f)) return;
        return on_any_access(a, size, access, pc);
    }
    accesses++;
    if (want_statistics) trace(f, p.first + offset);
    if (want_races) watch_cell(p, offset, size, access, site, (unsigned)f->linear);
}

// A copy of what need not begin at a multiple of its size, a struct of three floats, say: a card moves its pieces.
static __attribute__((noinline)) void on_pieces(uintptr_t a, size_t size, Access access, const void* pc) {
    Block& B = the_block;
    if (!B.current || !size || in_own_stack(a, B.current)) return;
    int piece = (a | size) & 1 ? 1 : (a | size) & 2 ? 2 : 4;
    if (size > 4096) {  // by memset, say: only the ends, and what lies between when they are right
        on_any_access(a, piece, access, pc);
        on_any_access(a + size - piece, piece, access, pc);
    }
    for (size_t i = 0; i < size; i += piece) on_any_access(a + i, piece, access, pc);
}

static void report_endless(uint32_t site) {
    bool long_block = (now() - block_started) * 2 > now() - started;  // otherwise there are many blocks, and all end
    Finding* f = unfinished ? nullptr : report(long_block ? ENDLESS : UNFINISHED, site, 0, -1);
    if (f) snprintf(f->text, sizeof f->text, "%lld of %lld", (long long)blocks_done, (long long)n_blocks);
    timed_out = true;
    unfinished |= !long_block && !stop;
}

static int patience = PATIENCE;

static void out_of_patience(Fibre* f, const void* pc) {
    static uint64_t before;
    patience = PATIENCE;
    if ((now() - started) * 1e3 > time_limit_ms) {
        patience = 0;  // the next block of any thread comes here, too
        report_endless(site_of(pc));
        end_thread();
    }
    // No other thread has run since the last look: this one may be waiting for another one of its block. (That it is the
    // same thread would not do: put off for nothing, it would be missing from the requests of its warp.)
    if (before == the_block.hand_overs) {
        make_ready(the_block, f);
        go_on(the_block, f, next_ready(the_block));
    }
    before = the_block.hand_overs;
}

static inline void on_block(const void* pc) {  // a thread enters a basic block
    Fibre* f = the_block.current;
    if (!f) return;
    last_block = pc;
    if (__builtin_expect(--patience < 0, 0)) out_of_patience(f, pc);
    if (!want_statistics) return;
    const uint32_t site = site_of(pc);
    f->block = block_event(site, f->depth);
    if (!trace(f, f->block)) blocks_of[site].untraced++;
}

static void find_who_is_stuck(Block& B) {
    const Fibre *first = nullptr, *second = nullptr;
    int waiting = 0, done = 0;
    for (int i = 0; i < B.n; i++) {
        const Fibre& f = B.fibres[i];
        done += f.state == DONE;
        if (f.state == DONE) continue;
        waiting++;
        // A warp operation that is missing lanes explains more than the barrier at which the others wait for it.
        if (!first || (first->state == AT_BARRIER && f.state == AT_WARP_OP)) second = first, first = &f;
        else if (!second && site_of(f.pc) != site_of(first->pc)) second = &f;
    }
    Finding* f = report(STUCK, site_of(first->pc), second ? site_of(second->pc) : 0, -1);
    if (!f) return;
    f->thread = first->index;
    if (second) f->other_thread = second->index;
    f->other_block = B.index;
    f->extra = waiting;
    f->size = done;
    unsigned missing = first->state == AT_WARP_OP ? first->mask & ~B.waiting[first->linear / WARP] : 0;
    snprintf(f->text, sizeof f->text, "%s %08x", first->state == AT_BARRIER ? "barrier" : "warp", missing);
}

static void run_launch() {
    Block& B = the_block;
    prepare(B, &the_launch);
    places.resize(emu_n_site_ids + 1);
    for (size_t i = 0; i < places.n; i++) places[i].traffic = -1;
    blocks_of.resize(emu_n_site_ids + 1);
    make_traces();
    started = now();
    for (; blocks_done < n_blocks && !stop; blocks_done++) {
        B.index = block_index(&the_launch, blocks_done);
        block_started = now();
        begin_block();
        begin_traces(B);
        if (blocks_done == recorded_block)
            for (size_t i = 0; i < places.n; i++) places[i].count = 0;
        for (size_t i = 0; i < regions.n; i++)  // NaNs: what was never written shows in the results, too
            if (regions[i].space == SHARED) memset((void*)regions[i].begin, 0xff, regions[i].end - regions[i].begin);
        if (!run_block(B)) {
            B.current = nullptr;
            if (!stop) find_who_is_stuck(B);
            stop = true;
        }
        if (second_write.by) judge_second_write();
        close_warp();
        end_warps();
        if (timed_out && unfinished && blocks_done < n_blocks - 1) {
            stop = timed_out = false;
            patience = PATIENCE;
            time_limit_ms += LAST_BLOCK_MS;
            blocks_done = n_blocks - 2;
        }
    }
    B.current = nullptr;
}

}  // namespace emu

#include "crash.h"

using namespace emu;
#define HERE __builtin_return_address(0)
extern "C" {
// ---- the compiler's hooks
#define EMU_HOOK(n)                                                                                      \
    void __tsan_read##n(void* p) { on_access((uintptr_t)p, n, READ, HERE); }                             \
    void __tsan_write##n(void* p) { on_access((uintptr_t)p, n, WRITE, HERE); }                           \
    void __tsan_unaligned_read##n(void* p) { on_pieces((uintptr_t)p, n, READ, HERE); }                   \
    void __tsan_unaligned_write##n(void* p) { on_pieces((uintptr_t)p, n, WRITE, HERE); }                 \
    void __tsan_volatile_read##n(void* p) { on_access((uintptr_t)p, n, VOLATILE_READ, HERE); }           \
    void __tsan_volatile_write##n(void* p) { on_access((uintptr_t)p, n, WRITE, HERE); }                  \
    void __tsan_unaligned_volatile_read##n(void* p) { on_pieces((uintptr_t)p, n, VOLATILE_READ, HERE); } \
    void __tsan_unaligned_volatile_write##n(void* p) { on_pieces((uintptr_t)p, n, WRITE, HERE); }
EMU_HOOK(1) EMU_HOOK(2) EMU_HOOK(4) EMU_HOOK(8) EMU_HOOK(16)
void __tsan_read_range(void* p, size_t n) { on_pieces((uintptr_t)p, n, READ, HERE); }
void __tsan_write_range(void* p, size_t n) { on_pieces((uintptr_t)p, n, WRITE, HERE); }
// Copies that the compiler made a call of; assembly.py sends gcc's plain memcpy here, too.
void* __tsan_memcpy(void* d, const void* s, size_t n) {
    on_pieces((uintptr_t)s, n, READ, HERE), on_pieces((uintptr_t)d, n, WRITE, HERE);
    return memcpy(d, s, n);
}
void* __tsan_memmove(void* d, const void* s, size_t n) {
    on_pieces((uintptr_t)s, n, READ, HERE), on_pieces((uintptr_t)d, n, WRITE, HERE);
    return memmove(d, s, n);
}
void* __tsan_memset(void* d, int v, size_t n) {
    on_pieces((uintptr_t)d, n, WRITE, HERE);
    return memset(d, v, n);
}
void __tsan_init(void) {}
void __tsan_func_entry(void*) {
    Fibre* f = the_block.current;
    if (!f) return;
    if (want_statistics) enter_function(f);
    if ((uintptr_t)__builtin_frame_address(0) - (uintptr_t)f->stack >= STACK_RESERVE) return;
    report(STACK_OVERFLOW, site_of(HERE), 0, -1);
    end_thread();
}
void __tsan_func_exit(void) {
    Fibre* f = the_block.current;
    if (f && want_statistics) leave_function(f);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
// gcc guards arrays of float4 in shared memory as if they had to be constructed: they count as if they had been. Hidden,
// so that the C++ library, where a compiler links it, keeps its own.
#define EMU_OWN __attribute__((visibility("hidden")))
EMU_OWN uint8_t __tsan_atomic8_load(const volatile void*, int) { return 1; }
EMU_OWN int __cxa_guard_acquire(void*) { return 0; }
EMU_OWN void __cxa_guard_release(void*) {}
void __sanitizer_cov_trace_pc(void) { on_block(HERE); }

struct UbIndex { UbLocation location; UbType *array, *index; };
void __ubsan_handle_out_of_bounds(UbIndex* what, void* index) {
    Finding* f = report(ARRAY_INDEX, site_of(HERE), 0, -1);
    if (f) f->offset = (int)(intptr_t)index, snprintf(f->text, sizeof f->text, "%s", what->array->name);
    end_thread();
}
void __ubsan_handle_divrem_overflow(void*, void*, void*) {
    report(DIVISION, site_of(HERE), 0, -1);
    end_thread();
}
void __ubsan_handle_float_cast_overflow(UbConversion* what, uintptr_t x) {
    char text[96];
    if (!differs(what, x, text)) return;
    Finding* f = report(CONVERSION, site_of(HERE), 0, -1);
    if (f) snprintf(f->text, sizeof f->text, "%s: %s", what->to->name, text);
    end_thread();
}
void __ubsan_handle_shift_out_of_bounds(UbShift* what, void*, void* count) {
    int spare = 64 - (1 << (what->right->info >> 1));
    long long by = spare > 0 ? (long long)((uint64_t)(uintptr_t)count << spare) >> spare : (long long)(intptr_t)count;
    if (!(what->right->info & 1) && spare > 0) by &= ~0ull >> spare;
    Finding* f = report(SHIFT, site_of(HERE), 0, -1);
    if (f) snprintf(f->text, sizeof f->text, "%s of %d bits by %lld", what->left->name, 1 << (what->left->info >> 1), by);
}

#include "checked_calls.h"

void emu_register_shared(void* p, size_t size, size_t item, size_t align, const char* name, Sides sides) {
    for (size_t i = regions.n; i--;)
        if (regions[i].begin == (uintptr_t)p) return;
    regions[add_region(p, size, item, align, name, SHARED, false)].sides = sides;
    memset(p, 0xff, size);
}
void emu_register_global(void* p, size_t size, size_t item, size_t align, const char* name, char letter,
                         int constant) {
    regions[add_region(p, size, item, align, name, constant ? CONSTANT : GLOBAL, constant)].letter = letter;
}
void emu_set_kernel(void (*kernel)(void**), const char* text, int n) {
    the_block.kernel = kernel;
    signature = text;
    parameters = n;
}
}

int main(int n, char**) {
    emu_choose_kernel();
    if (n > 1) {  // asked once, when the kernel is built
        puts(signature);
        for (size_t i = 0; i < regions.n; i++)
            if (Region& r = regions[i]; r.space != SHARED)
                printf("%s %c%d %zu\n", r.name, r.letter, r.item, (size_t)(r.end - r.begin));
        return 0;
    }
    index_sites();
    open_streams();
    read_launch();
    put_pointers(the_launch.args, parameters);
    catch_crashes();
    run_launch();
    write_report(accesses, now() - started);
    return 0;
}
