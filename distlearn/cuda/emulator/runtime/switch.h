// switch.h -- from one stack to another: what makes a fibre of a function.
//
//     Context                       what is kept of a fibre while it does not run
//     start_context(c, top, main)   prepares c so that a switch to it calls main() on the stack that ends at top
//     switch_context(from, to)      stops here, to go on when someone switches to `from`; goes on where `to` stopped
//
// Nothing preempts a fibre, so a switch need not save what a call may overwrite. Where the compilers allow it the switch
// is a few instructions in the middle of the kernel: they are told that every register is lost and save those they
// need, mostly none; the jump comes back to the very place that stopped, which the processor predicts well since the
// threads of a block mostly stop at the same one. Elsewhere it is a function that saves what a callee must keep.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && !defined(_WIN32)

namespace emu {

struct Context {
    void *sp, *frame, *resume;
};

static inline void start_context(Context& c, uintptr_t top, void (*main)()) {
    void** s = (void**)top;
    *--s = nullptr;  // where a call would have left its return address
    c = {s, nullptr, (void*)main};
}

#ifdef __AVX512F__
#define EMU_AVX512                                                                                                     \
    "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", \
        "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7",
#else
#define EMU_AVX512
#endif
#ifdef __AVX__  // as before a call: SSE code (of the C library) is slow while the upper halves are in use
#define EMU_CLEAN_VECTORS "vzeroupper\n"
#else
#define EMU_CLEAN_VECTORS
#endif
#ifdef __APX_F__
#define EMU_APX \
    "r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23", "r24", "r25", "r26", "r27", "r28", "r29", "r30", "r31",
#else
#define EMU_APX
#endif
// rbp is saved here, for the compilers do not let it be listed; nothing is pushed, for a function that calls no other
// may keep its variables below the stack pointer.
static inline __attribute__((always_inline)) void switch_context(Context& from, Context& to) {
    Context *a = &from, *b = &to;
    asm volatile(
        "mov %%rsp,(%0)\n"
        "mov %%rbp,8(%0)\n"
        "lea 1f(%%rip),%%rax\n"
        "mov %%rax,16(%0)\n" EMU_CLEAN_VECTORS
        "mov (%1),%%rsp\n"
        "mov 8(%1),%%rbp\n"
        "jmp *16(%1)\n"
        "1:\n"
        : "+D"(a), "+S"(b)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
          "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
          EMU_AVX512 EMU_APX "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "cc", "memory");
}

}  // namespace emu

#else

extern "C" void emu_switch(void** save, void* to);

#ifdef __x86_64__  // Windows; it leaves by `pop; jmp`, for a `ret` to an address that was never called is mispredicted
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
#elif defined(__aarch64__)
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

struct Context {
    void* sp;
};

static inline void switch_context(Context& from, Context& to) {
    if (&from != &to) emu_switch(&from.sp, to.sp);  // what it saves comes too late for itself
}

static inline void start_context(Context& c, uintptr_t top, void (*main)()) {  // as emu_switch would have left it
    void** s = (void**)top;
#ifdef __x86_64__
    s -= 4;  // the callee's home space
    *--s = nullptr;
    *--s = (void*)main;
    s -= 29;
    memset(s, 0, 29 * sizeof *s);
#else
    s -= 20;
    memset(s, 0, 20 * sizeof *s);
    s[11] = (void*)main;  // x30, the link register
#endif
    c.sp = s;
}

}  // namespace emu
#endif
