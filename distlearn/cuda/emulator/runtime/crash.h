// crash.h -- what the checker does when its program gets a signal: it reports what is known so far, and ends.
#pragma once
#include <signal.h>
#include <sys/time.h>

namespace emu {

static void write_what_is_known() {
    static bool twice;
    if (!twice && the_block.current) {
        twice = true;
        write_report(accesses, now() - started);
    }
    _exit(4);
}
static uintptr_t instruction(void* context) {
#if defined(__linux__) && defined(__x86_64__)
    return (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__linux__)
    return (uintptr_t)((ucontext_t*)context)->uc_mcontext.pc;
#else
    (void)context;
    return ~(uintptr_t)0;
#endif
}
static uint32_t interrupted_at(void* context) {
    uint32_t site = site_of_instruction(instruction(context));
    return site ? site : site_of(last_block);  // in a function of the C library, say
}
static void on_crash(int signal, siginfo_t*, void* context) {  // the kernel has damaged its own stack, say
    Finding* f = the_block.current ? report(CRASH, interrupted_at(context), 0, -1) : nullptr;
    if (f && signal == SIGFPE) snprintf(f->text, sizeof f->text, "division");
    if (f && instruction(context) < NULL_ZONE) snprintf(f->text, sizeof f->text, "call");
    write_what_is_known();
}
static void on_alarm(int, siginfo_t*, void* context) {  // a loop so empty that the compiler placed no hook in it
    if (!the_block.current || timed_out) return;
    report_endless(interrupted_at(context));
    write_what_is_known();
}
static void catch_crashes() {
    stack_t alternative = {};
    alternative.ss_sp = malloc(1 << 16);
    alternative.ss_size = 1 << 16;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (int s : signals) sigaction(s, &action, nullptr);
    action.sa_sigaction = on_alarm;
    sigaction(SIGALRM, &action, nullptr);
    int64_t ms = time_limit_ms + 1000;
    itimerval alarm = {{1, 0}, {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)}};
    setitimer(ITIMER_REAL, &alarm, nullptr);
}

}  // namespace emu
