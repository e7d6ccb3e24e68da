// faults.h -- how a kernel of the fast build ends the process it runs in (worker.py): with a sentence on standard error.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <signal.h>
#include <unistd.h>
#else
#include <process.h>
#endif

namespace emu {

constexpr char END_OF_KERNEL = '\x1e';  // what the kernel printed ends here (LAST_WORDS of launch.py)

[[noreturn]] static void end_process(const char* why, const char* detail, int line) {
    Block& B = EMU_BLOCK;
#ifdef EMU_FIBRES
    uint3 t = B.current ? B.current->index : uint3{};
#else
    uint3 t = B.thread;
#endif
    fprintf(stderr, "%c", END_OF_KERNEL);
    if (line) fprintf(stderr, "line %d, ", line);
    if ((double)B.size.x * B.size.y * B.size.z > 1024 || B.index.x >= B.grid.x || B.index.y >= B.grid.y || B.index.z >= B.grid.z)
        fprintf(stderr, "a thread, after one wrote beyond its shared memory, ");  // over the block's own data
    else
        fprintf(stderr, "thread (%u, %u, %u) of block (%u, %u, %u) ", t.x, t.y, t.z, B.index.x, B.index.y, B.index.z);
    fprintf(stderr, why, detail);
    fflush(stderr);
    _exit(3);
}

#ifndef _WIN32
static bool in_a_guard(uintptr_t a, uintptr_t sp) {
#ifdef EMU_FIBRES
    if (const Fibre* f = EMU_BLOCK.current) return (uintptr_t)stack_of(EMU_BLOCK, f->linear) - a - 1 < GUARD;
#endif
    return sp - a < PAGE || a - sp < PAGE;
}
static void on_fault(int signal, siginfo_t* info, void* context) {
    uintptr_t sp = 0;
#if defined(__linux__) && defined(__x86_64__)
    sp = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RSP];
#elif defined(__linux__)
    sp = (uintptr_t)((ucontext_t*)context)->uc_mcontext.sp;
#else
    (void)context;
#endif
    char where[32];
    snprintf(where, sizeof where, "0x%llx", (unsigned long long)(uintptr_t)info->si_addr);
    if (signal == SIGFPE) end_process("divides an integer by zero, or the smallest integer by -1%s", "", 0);
    if (signal != SIGSEGV && signal != SIGBUS) end_process("came to a place that it must not reach%s", "", 0);
    if (in_a_guard((uintptr_t)info->si_addr, sp)) end_process("needs too much local memory%s", "", 0);
    end_process("reads or writes at address %s, where nothing is", where, 0);
}
static void catch_faults() {  // once for each thread of the processor: a full stack cannot hold the handler
    static thread_local bool done;
    if (done) return;
    done = true;
    stack_t own = {};
    own.ss_size = 1 << 16;
    own.ss_sp = malloc(own.ss_size);
    sigaltstack(&own, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    for (int s : signals) sigaction(s, &action, nullptr);
}
#else
static void catch_faults() {}
#endif

constexpr size_t MOST_PRINTED = 1 << 20;  // bytes; a card's own buffer for printf holds as much
static size_t printed;

}  // namespace emu
