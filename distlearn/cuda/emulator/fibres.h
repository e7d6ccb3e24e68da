// fibres.h -- the threads of one block, on one thread of the processor.
//
// A CUDA thread becomes a fibre: a stack of its own and a saved stack pointer. A fibre runs until it meets a barrier or
// a warp operation, then hands over to the next fibre that is ready. Nothing preempts it, so a hand-over is an ordinary
// function call that saves the registers a callee must keep, swaps the stack pointer and returns on the other stack:
// about 15 ns, where the operating system's threads take microseconds.
//
//     ready -----> runs -----> waits at __syncthreads  (all living threads of the block must come)
//       ^            |-------> waits at a warp operation (all living lanes of its mask must come)
//       |            '-------> done
//       '--- the last to arrive makes the others ready
//
// When nobody is ready and not everybody is done, the block is stuck: the emulator can say who waits where.
//
// The build that includes this file provides
//     emu::block()               the state of the block that runs here,
//     emu::block_released(B)     called when all living threads have met at a barrier, before any goes on,
//     emu::warp_released(B, warp, lanes, op)   the same for a warp operation.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "types.h"
#ifdef _WIN32
#include <malloc.h>
#else
#include <sys/mman.h>
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#endif

namespace emu {

enum State { READY, AT_BARRIER, AT_WARP_OP, DONE };
enum WarpOp { SYNC, SHUFFLE, VOTE, MATCH };

struct Fibre {
    void* sp;             // where its registers are saved while it does not run
    uint3 index;          // threadIdx
    int linear;           // its number in the block; lane = linear % 32
    State state;
    WarpOp op;
    unsigned mask;        // lanes it waits for
    void* pc;             // where in the kernel it waits
    uint64_t value;       // what it brings to the operation
    uint64_t result;      // and what it takes away
    int source;           // the lane it reads, for a shuffle
    bool valid;           // whether that lane takes part
};

struct Block {
    uint3 index, thread;  // blockIdx; threadIdx for kernels without barriers, which need no fibres
    uint3 size, grid;     // blockDim, gridDim
    Fibre* current;
    Fibre* fibres;
    char* stacks;
    size_t moat;          // bytes before and after them that belong to nobody
    int allocated;        // fibres that the two arrays above can hold
    int n, living, at_barrier;
    int votes;            // at the barrier, for __syncthreads_count and its kin
    int *ready, head, tail, capacity;  // a ring of fibre numbers
    void* scheduler_sp;   // the stack that started the block
    char* dynamic_shared;
    size_t dynamic_capacity;
    void** args;
    void (*kernel)(void**);
    unsigned alive[WARP], waiting[WARP];  // a bit per lane, a word per warp: a block has 1024 threads at most
};

#ifndef EMU_STACK_BYTES
#define EMU_STACK_BYTES (64 * 1024)
#endif
constexpr size_t STACK = EMU_STACK_BYTES;
// An index that is off, times 4 bytes, leads at most so far: never from an array into the thread's own variables, which
// it may touch. It costs addresses, no memory.
constexpr size_t MOAT = (size_t)(sizeof(void*) == 8 ? 8ull << 30 : 0);

Block& block();
void block_released(Block& B);
void warp_released(Block& B, int warp, unsigned lanes, WarpOp op);

}  // namespace emu

// ---- the switch: save what a callee must keep, swap stacks, restore. It leaves by `pop; jmp` because a `ret` to an
// address that was never called confuses the processor's return predictor (measured: 57 against 40 ms).
extern "C" void emu_switch(void** save, void* to);

#ifdef __APPLE__
#define EMU_SYMBOL "_emu_switch"
#define EMU_HIDDEN ".private_extern _emu_switch\n"
#elif defined(_WIN32)
#define EMU_SYMBOL "emu_switch"
#define EMU_HIDDEN ""
#else
#define EMU_SYMBOL "emu_switch"
#define EMU_HIDDEN ".hidden emu_switch\n"
#endif
#ifndef EMU_KERNEL_SIDE
#if defined(__x86_64__) && defined(_WIN32)
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %rdi\npush %rsi\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "sub $168,%rsp\n"
    "movups %xmm6,(%rsp)\nmovups %xmm7,16(%rsp)\nmovups %xmm8,32(%rsp)\nmovups %xmm9,48(%rsp)\n"
    "movups %xmm10,64(%rsp)\nmovups %xmm11,80(%rsp)\nmovups %xmm12,96(%rsp)\nmovups %xmm13,112(%rsp)\n"
    "movups %xmm14,128(%rsp)\nmovups %xmm15,144(%rsp)\n"
    "mov %rsp,(%rcx)\nmov %rdx,%rsp\n"
    "movups (%rsp),%xmm6\nmovups 16(%rsp),%xmm7\nmovups 32(%rsp),%xmm8\nmovups 48(%rsp),%xmm9\n"
    "movups 64(%rsp),%xmm10\nmovups 80(%rsp),%xmm11\nmovups 96(%rsp),%xmm12\nmovups 112(%rsp),%xmm13\n"
    "movups 128(%rsp),%xmm14\nmovups 144(%rsp),%xmm15\n"
    "add $168,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rsi\npop %rdi\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
#elif defined(__x86_64__)
asm(".text\n.globl " EMU_SYMBOL "\n" EMU_HIDDEN EMU_SYMBOL ":\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
#elif defined(__aarch64__)
asm(".text\n.globl " EMU_SYMBOL "\n" EMU_HIDDEN ".p2align 2\n" EMU_SYMBOL ":\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp,#0]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\n"
    "stp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp,#0]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\n"
    "ldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n");
#else
#error "the emulator knows x86-64 and 64-bit ARM only"
#endif

namespace emu {

static inline void make_ready(Block& B, int i) {
    B.fibres[i].state = READY;
    B.ready[B.tail] = i;
    if (++B.tail == B.capacity) B.tail = 0;
}

// Leaves the running fibre (or the scheduler) for the next that is ready; back to the scheduler if there is none.
static __attribute__((noinline)) void hand_over(Block& B, void** save) {
    if (B.head == B.tail) {
        B.current = nullptr;
        emu_switch(save, B.scheduler_sp);
        return;
    }
    Fibre* next = &B.fibres[B.ready[B.head]];
    if (++B.head == B.capacity) B.head = 0;
    B.current = next;
    if (save == &next->sp) return;  // itself: its saved stack pointer is stale, it simply goes on
    emu_switch(save, next->sp);
}

static inline void release_block(Block& B) {
    uint64_t count = B.votes;
    B.at_barrier = B.votes = 0;
    block_released(B);
    for (int i = 0; i < B.n; i++)
        if (B.fibres[i].state == AT_BARRIER) {
            B.fibres[i].result = count;
            make_ready(B, i);
        }
}

// All lanes of `lanes` have arrived: exchange what they brought, then let them go.
static inline void release_lanes(Block& B, int warp, unsigned lanes) {
    Fibre* lane = B.fibres + warp * WARP;
    unsigned votes = 0;
    for (unsigned m = lanes; m; m &= m - 1) {
        int k = __builtin_ctz(m);
        if (lane[k].op == VOTE && lane[k].value) votes |= 1u << k;
    }
    warp_released(B, warp, lanes, lane[__builtin_ctz(lanes)].op);
    for (unsigned m = lanes; m; m &= m - 1) {
        Fibre& f = lane[__builtin_ctz(m)];
        if (f.op == SHUFFLE) {
            f.valid = f.source >= 0 && f.source < WARP && (lanes >> f.source & 1);
            f.result = f.valid ? lane[f.source].value : f.value;
        } else if (f.op == VOTE) {
            f.result = votes;
        } else if (f.op == MATCH) {
            f.result = 0;
            for (unsigned other = lanes; other; other &= other - 1)
                if (lane[__builtin_ctz(other)].value == f.value) f.result |= other & -other;
        }
    }
    for (unsigned m = lanes; m; m &= m - 1) make_ready(B, warp * WARP + __builtin_ctz(m));
    B.waiting[warp] &= ~lanes;
}

static inline void release_warp_if_complete(Block& B, int warp, unsigned mask) {
    unsigned need = mask & B.alive[warp];
    if (!need || (B.waiting[warp] & need) != need) return;
    const Fibre* lane = B.fibres + warp * WARP;
    WarpOp op = lane[__builtin_ctz(need)].op;
    for (unsigned m = need; m; m &= m - 1) {  // they must have come for the same thing; else the block will be stuck
        const Fibre& f = lane[__builtin_ctz(m)];
        if (f.op != op || (f.mask & B.alive[warp]) != need) return;
    }
    release_lanes(B, warp, need);
}

static inline uint64_t barrier(uint64_t value, void* pc) {
    Block& B = block();
    Fibre* f = B.current;
    f->state = AT_BARRIER;
    f->pc = pc;
    B.votes += value != 0;
    if (++B.at_barrier == B.living) release_block(B);
    hand_over(B, &f->sp);
    return f->result;
}

static inline Fibre* warp_operation(WarpOp op, unsigned mask, uint64_t value, int source, void* pc) {
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
    hand_over(B, &f->sp);
    return f;
}

static void leave(Block& B) {  // the running fibre ends, which can complete what the others wait for
    Fibre* f = B.current;
    int warp = f->linear / WARP;
    f->state = DONE;
    B.alive[warp] &= ~(1u << f->linear % WARP);
    if (--B.living && B.at_barrier == B.living) release_block(B);
    for (unsigned m = B.waiting[warp]; m; m = B.waiting[warp] & (m & (m - 1)))
        release_warp_if_complete(B, warp, B.fibres[warp * WARP + __builtin_ctz(m)].mask);
    void* never;
    hand_over(B, &never);
    __builtin_trap();
}

static void fibre_main() {
    Block& B = block();
    B.kernel(B.args);
    leave(B);
}

static void prepare(Block& B, const Launch* L, bool fibres) {
    int n = L->block[0] * L->block[1] * L->block[2];
    B.n = n;
    B.size = {L->block[0], L->block[1], L->block[2]};
    B.grid = {L->grid[0], L->grid[1], L->grid[2]};
    B.args = L->args;
    if (!B.dynamic_shared || B.dynamic_capacity < L->shared_bytes) {
        B.dynamic_capacity = L->shared_bytes;
        char* p = (char*)malloc(B.dynamic_capacity + 512);
        B.dynamic_shared = (char*)(((uintptr_t)p + 255) & ~(uintptr_t)255);
    }
    if (!fibres || B.allocated >= n) return;
#ifdef _WIN32
    _aligned_free(B.stacks);
    B.stacks = (char*)_aligned_malloc(n * STACK, 4096);
#else
    if (B.stacks) munmap(B.stacks - B.moat, B.allocated * STACK + 2 * B.moat);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char* p = (char*)mmap(nullptr, n * STACK + 2 * MOAT, PROT_NONE, flags, -1, 0);
    B.moat = MOAT;
    if (p == (char*)MAP_FAILED || mprotect(p + MOAT, n * STACK, PROT_READ | PROT_WRITE)) {  // a limit on addresses
        if (p != (char*)MAP_FAILED) munmap(p, n * STACK + 2 * MOAT);
        B.moat = 0;
        p = (char*)mmap(nullptr, n * STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    B.stacks = p + B.moat;
#endif
    free(B.fibres);
    free(B.ready);
    B.fibres = (Fibre*)calloc(n, sizeof(Fibre));
    B.capacity = n + 1;
    B.ready = (int*)calloc(B.capacity, sizeof(int));
    B.allocated = n;
}

static void* fresh_stack(Block& B, int i) {  // as emu_switch would have left it, about to return into fibre_main
    // Tops are staggered: stacks a power of two apart would all fall into the same cache sets.
    uintptr_t top = ((uintptr_t)B.stacks + (i + 1) * STACK - 256 - i * 192 % 4096) & ~(uintptr_t)15;
    void** s = (void**)top;
#if defined(__x86_64__) && defined(_WIN32)
    s -= 4;  // the callee's home space
    *--s = nullptr;
    *--s = (void*)fibre_main;
    s -= 29;
    memset(s, 0, 29 * sizeof *s);
#elif defined(__x86_64__)
    *--s = nullptr;
    *--s = (void*)fibre_main;
    s -= 6;
    memset(s, 0, 6 * sizeof *s);
#else
    s -= 20;
    memset(s, 0, 20 * sizeof *s);
    s[11] = (void*)fibre_main;  // x30, the link register
#endif
    return s;
}

static bool run_block(Block& B) {  // false if some threads wait for ever
    B.living = B.n;
    B.at_barrier = B.votes = B.head = B.tail = 0;
    for (int w = 0; w * WARP < B.n; w++) {
        int lanes = B.n - w * WARP;
        B.waiting[w] = 0;
        B.alive[w] = lanes >= WARP ? ~0u : (1u << lanes) - 1;
    }
    for (int i = 0; i < B.n; i++) {
        Fibre& f = B.fibres[i];
        f.linear = i;
        f.index = {i % B.size.x, i / B.size.x % B.size.y, i / (B.size.x * B.size.y)};
        f.sp = fresh_stack(B, i);
        make_ready(B, i);
    }
    hand_over(B, &B.scheduler_sp);
    return B.living == 0;
}

static inline uint3 block_index(const Launch* L, int64_t b) {
    unsigned gx = L->grid[0], gy = L->grid[1];
    return {(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / ((int64_t)gx * gy))};
}

}  // namespace emu
#endif  // EMU_KERNEL_SIDE
