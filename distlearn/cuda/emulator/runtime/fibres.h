// fibres.h -- the threads of one block, on one thread of the processor.
//
// A CUDA thread becomes a fibre: a stack of its own and a saved stack pointer. A fibre runs until it meets a barrier or
// a warp operation, then hands over to the next fibre that is ready. Nothing preempts it, so a hand-over is little more
// than a jump (switch.h): a few nanoseconds, where the operating system's threads take microseconds.
//
//     ready -----> runs -----> waits at __syncthreads  (all living threads of the block must come)
//       ^            |-------> waits at a warp operation (all living lanes of its mask must come)
//       |            '-------> done
//       '--- the last to arrive makes the others ready
//
// When none is ready and not all are done, the block is stuck: the emulator can say which thread waits where.
//
// The build that includes this file provides
//     emu::OfThread                  what else it keeps of a thread
//     emu::block()               the state of the block that runs here,
//     emu::block_released(B)     called when all living threads have met at a barrier, before any continues,
//     emu::warp_released(B, warp, lanes, op)   the same for a warp operation.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include "pages.h"
#include "switch.h"
#include "types.h"

namespace emu {

enum State { READY, AT_BARRIER, AT_WARP_OP, DONE };
enum WarpOp { SYNC, SHUFFLE, VOTE, MATCH, ACTIVE_LANES };

struct Fibre : OfThread {
    Context context;      // where it continues
    uint3 index;          // threadIdx
    int linear;           // its number in the block; lane = linear % 32
    State state;
    WarpOp op;
    unsigned mask;        // lanes it waits for
    void* pc;             // where in the kernel it waits
    uint64_t value;       // its operand of a warp operation
    uint64_t result;      // and the result
    int source;           // the lane it reads, for a shuffle
    bool valid;           // whether that lane takes part
};

struct Block {
    uint3 index;          // blockIdx
    uint3 size, grid;     // blockDim, gridDim
    Fibre* current;
    Fibre* fibres;        // one per thread, and behind them the scheduler
    char* stacks;         // a guard and a stack for each thread
    Fibre* sweep;         // all from this one on are ready, or done; they go before the ring
    Fibre** ready;        // a ring of those that became ready one by one
    int head, tail, capacity;
    int n, living;
    int votes, counted;   // at the barrier, for __syncthreads_count and similar; and at the one before
    Fibre* last;          // the last that ended, or came to a barrier
    char* dynamic_shared;
    void** args;
    void (*kernel)(void**);
    uint64_t hand_overs;  // how often another thread has gone on
    unsigned alive[WARP], waiting[WARP];  // a bit per lane, a word per warp: a block has 1024 threads at most
};

// A stack grows down into its guard, which cannot be accessed. No frame is larger than the guard (FRAME in compilers.py),
// so none can step over it.
constexpr size_t GUARD = 2 * PAGE, STACK = 5 * PAGE;
// An index that is off, times 4 bytes, leads at most so far: never from an array into the thread's own variables, which
// it may touch. It costs addresses, no memory.
constexpr size_t STACK_RED_ZONE = (size_t)(sizeof(void*) == 8 ? 8ull << 30 : 0);

#define EMU_ALWAYS inline __attribute__((always_inline))

Block& block();
void block_released(Block& B);
void warp_released(Block& B, int warp, unsigned lanes, WarpOp op);

static inline void make_ready(Block& B, Fibre* f) {
    f->state = READY;
    B.ready[B.tail] = f;
    if (++B.tail == B.capacity) B.tail = 0;
}

static inline void go_on(Block& B, Fibre* from, Fibre* to) {
    B.current = to;
    B.hand_overs++;
    switch_context(from->context, to->context);
}

// The next thread: those released by a barrier in their order, then those released by warp operations; if none is ready,
// the scheduler.
static inline Fibre* next_ready(Block& B) {
    Fibre* scheduler = B.fibres + B.n;
    if (B.sweep < scheduler) return B.sweep++;
    if (B.head == B.tail) return scheduler;
    Fibre* f = B.ready[B.head];
    if (++B.head == B.capacity) B.head = 0;
    return f;
}

// All lanes of `lanes` have come for the same operation: exchange their values, then make them ready.
static inline void release_lanes(Block& B, int warp, unsigned lanes) {
    Fibre* lane = B.fibres + warp * WARP;
    WarpOp op = lane[__builtin_ctz(lanes)].op;
    unsigned votes = 0;
    if (op == VOTE)
        for (unsigned m = lanes; m; m &= m - 1)
            if (lane[__builtin_ctz(m)].value) votes |= m & -m;
    warp_released(B, warp, lanes, op);
    for (unsigned m = lanes; m; m &= m - 1) {
        Fibre& f = lane[__builtin_ctz(m)];
        if (op == SHUFFLE) {
            f.valid = f.source >= 0 && f.source < WARP && (lanes >> f.source & 1);
            f.result = f.valid ? lane[f.source].value : f.value;
        } else if (op == VOTE) {
            f.result = votes;
        } else if (op == MATCH) {
            f.result = 0;
            for (unsigned other = lanes; other; other &= other - 1)
                if (lane[__builtin_ctz(other)].value == f.value) f.result |= other & -other;
        }
        make_ready(B, &f);
    }
    B.waiting[warp] &= ~lanes;
}

static __attribute__((noinline)) void release_warp_if_complete(Block& B, int warp, unsigned mask) {
    unsigned need = mask & B.alive[warp];
    if (!need || (B.waiting[warp] & need) != need) return;
    const Fibre* lane = B.fibres + warp * WARP;
    WarpOp op = lane[__builtin_ctz(need)].op;
    for (unsigned m = need; m; m &= m - 1) {  // it must be the same operation; else the block will be stuck
        const Fibre& f = lane[__builtin_ctz(m)];
        if (f.op != op || (f.mask & B.alive[warp]) != need) return;
    }
    release_lanes(B, warp, need);
}

// Most switches are made here, without a branch: on to the next thread, and after the last to the scheduler.
static EMU_ALWAYS int barrier(int value, void* pc) {
    Block& B = block();
    Fibre* f = B.current;
    f->state = AT_BARRIER, f->pc = pc, B.last = f;
    B.votes += value;
    go_on(B, f, B.sweep++);
    return B.counted;  // the next count cannot end before this thread has read it
}

static EMU_ALWAYS Fibre* warp_operation(WarpOp op, unsigned mask, uint64_t value, int source, void* pc) {
    Block& B = block();
    Fibre* f = B.current;
    int warp = f->linear / WARP;
    unsigned self = 1u << f->linear % WARP;
    f->state = AT_WARP_OP;
    f->op = op;
    f->mask = mask | self;
    f->value = value;
    f->source = source;
    f->pc = pc;
    B.waiting[warp] |= self;
    release_warp_if_complete(B, warp, f->mask);
    go_on(B, f, next_ready(B));
    return f;
}

// Which lanes are together here, at `place`: known once no thread of the block can continue without the answer.
static EMU_ALWAYS unsigned active_lanes(int place, void* pc) {
    Block& B = block();
    Fibre* f = B.current;
    f->state = AT_WARP_OP;
    f->op = ACTIVE_LANES;
    f->mask = 0;  // no operation of others waits for it
    f->value = (uint64_t)place;
    f->pc = pc;
    B.waiting[f->linear / WARP] |= 1u << f->linear % WARP;
    go_on(B, f, next_ready(B));
    return (unsigned)f->result;
}

static bool answer_active_lanes(Block& B) {  // false if no thread has asked
    bool answered = false;
    for (int warp = 0; warp * WARP < B.n; warp++) {
        Fibre* lane = B.fibres + warp * WARP;
        for (unsigned asking = B.waiting[warp]; asking; asking &= asking - 1) {
            Fibre& first = lane[__builtin_ctz(asking)];
            if (first.state != AT_WARP_OP || first.op != ACTIVE_LANES) continue;
            unsigned lanes = 0;
            for (unsigned m = asking; m; m &= m - 1) {
                const Fibre& f = lane[__builtin_ctz(m)];
                if (f.state == AT_WARP_OP && f.op == ACTIVE_LANES && f.value == first.value) lanes |= m & -m;
            }
            for (unsigned m = lanes; m; m &= m - 1) {
                lane[__builtin_ctz(m)].result = lanes;
                make_ready(B, &lane[__builtin_ctz(m)]);
            }
            B.waiting[warp] &= ~lanes;
            answered = true;
        }
    }
    return answered;
}

[[noreturn]] static void leave(Block& B) {  // the running fibre ends, which can complete what the others wait for
    Fibre* f = B.current;
    int warp = f->linear / WARP;
    f->state = DONE;
    B.last = f;
    B.alive[warp] &= ~(1u << f->linear % WARP);
    B.living--;
    for (unsigned m = B.waiting[warp]; m; m = B.waiting[warp] & (m & (m - 1)))
        release_warp_if_complete(B, warp, B.fibres[warp * WARP + __builtin_ctz(m)].mask);
    for (;;) go_on(B, f, next_ready(B));  // a sweep may come by again
}

static void fibre_main() {
    Block& B = block();
    B.kernel(B.args);
    leave(B);
}

static inline char* stack_of(const Block& B, int thread) { return B.stacks + thread * (GUARD + STACK) + GUARD; }
static inline size_t stacks_bytes(int threads) { return threads * (GUARD + STACK) + GUARD; }

static void prepare(Block& B, const Launch* L) {
    int n = L->block[0] * L->block[1] * L->block[2];
    B.n = n;
    B.size = {L->block[0], L->block[1], L->block[2]};
    B.grid = {L->grid[0], L->grid[1], L->grid[2]};
    B.args = L->args;
    B.stacks = reserve_pages(stacks_bytes(n) + 2 * STACK_RED_ZONE);
    if (B.stacks) B.stacks += STACK_RED_ZONE;
    else B.stacks = reserve_pages(stacks_bytes(n));  // there is a limit on addresses
    if (!B.stacks) fprintf(stderr, "the emulator ran out of memory\n"), abort();
    for (int i = 0; i < n; i++)
        if (!open_pages(stack_of(B, i), STACK)) fprintf(stderr, "the emulator ran out of memory\n"), abort();
    B.fibres = (Fibre*)calloc(n + 1, sizeof(Fibre));
    B.capacity = n + 1;
    B.ready = (Fibre**)calloc(B.capacity, sizeof *B.ready);
    for (int i = 0; i < n; i++) {
        B.fibres[i].linear = i;
        B.fibres[i].index = {i % B.size.x, i / B.size.x % B.size.y, i / (B.size.x * B.size.y)};
    }
}

static bool all_at_barrier(const Block& B) {  // when none is ready
    for (int w = 0; w * WARP < B.n; w++)
        if (B.waiting[w]) return false;
    return B.living;
}

static bool run_block(Block& B) {  // false if some threads wait without end
    B.living = B.n;
    B.votes = B.head = B.tail = 0;
    for (int w = 0; w * WARP < B.n; w++) {
        int lanes = B.n - w * WARP;
        B.waiting[w] = 0;
        B.alive[w] = lanes >= WARP ? ~0u : (1u << lanes) - 1;
    }
    // Tops are staggered: stacks a power of two apart would all fall into the same cache sets.
    for (int i = 0; i < B.n; i++) {
        uintptr_t top = (uintptr_t)stack_of(B, i) + STACK - 256 - i * 192 % 4096;
        start_context(B.fibres[i].context, top & ~(uintptr_t)15, fibre_main);
        B.fibres[i].state = READY;
    }
    B.sweep = B.fibres;
    Fibre* scheduler = B.fibres + B.n;
    for (;;) {
        Fibre* next = next_ready(B);
        if (next != scheduler) {
            go_on(B, scheduler, next);
            if (B.sweep > scheduler) B.sweep = scheduler;
        } else if (all_at_barrier(B)) {
            B.current = B.last;
            block_released(B);
            B.counted = B.votes;
            B.votes = 0;
            B.sweep = B.fibres;
        } else if (!answer_active_lanes(B)) {
            break;
        }
    }
    B.current = nullptr;
    return B.living == 0;
}

static inline uint3 block_index(const Launch* L, int64_t b) {
    unsigned gx = L->grid[0], gy = L->grid[1];
    return {(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / ((int64_t)gx * gy))};
}

}  // namespace emu
