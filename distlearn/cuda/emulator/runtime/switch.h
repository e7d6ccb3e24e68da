// switch.h -- from one stack to another: what makes a fibre of a function.
//
//     Context                       what is kept of a fibre while it does not run
//     start_context(c, top, main)   prepares c so that a switch to it calls main() on the stack that ends at top
//     switch_context(from, to)      stops here until someone switches to `from`; continues where `to` stopped
//
// A switch is a call of a function, emu_switch, which saves what the platform's calling convention asks a callee to
// keep and nothing else: whatever registers a processor has beyond those, the compiler expects to lose them at any call.
// Kernels of every compiler and instruction set are therefore switched correctly by the same few instructions. The
// control words of the floating-point units, which a callee keeps as well, are never changed: CUDA C has no way to do so,
// and to read them takes longer than all the rest.
#pragma once
#include <stdint.h>
#include <string.h>

extern "C" void emu_switch(void** save, void** to);  // the same twice comes back at once

// On x86-64 it leaves by `pop; jmp`, for a `ret` to an address that was not called last is mispredicted.
#if defined(__x86_64__)
#ifdef __APPLE__
#define EMU_SYMBOL "_emu_switch"
#define EMU_HIDDEN ".private_extern _emu_switch\n"
#else
#define EMU_SYMBOL "emu_switch"
#define EMU_HIDDEN ".hidden emu_switch\n"
#endif
asm(".text\n.globl " EMU_SYMBOL "\n" EMU_HIDDEN ".p2align 4\n" EMU_SYMBOL ":\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov (%rsi),%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
#elif defined(__aarch64__)
#ifdef __APPLE__
#define EMU_SYMBOL "_emu_switch"
#define EMU_HIDDEN ".private_extern _emu_switch\n"
#else
#define EMU_SYMBOL "emu_switch"
#define EMU_HIDDEN ".hidden emu_switch\n"
#endif
asm(".text\n.globl " EMU_SYMBOL "\n" EMU_HIDDEN ".p2align 2\n" EMU_SYMBOL ":\n"
    "sub sp,sp,#160\n"
    "stp x19,x20,[sp,#0]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\n"
    "stp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nldr x9,[x1]\nmov sp,x9\n"
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

static inline void switch_context(Context& from, Context& to) { emu_switch(&from.sp, &to.sp); }

static inline void start_context(Context& c, uintptr_t top, void (*main)()) {  // as emu_switch would have left it
    void** s = (void**)top;
#if defined(__x86_64__)
    *--s = nullptr;  // where a call would have left its return address
    *--s = (void*)main;
    s -= 6;
    memset(s, 0, 6 * sizeof *s);
#else
    s -= 20;
    memset(s, 0, 20 * sizeof *s);
    s[11] = (void*)main;  // x30, the link register
#endif
    c.sp = s;
}

}  // namespace emu
