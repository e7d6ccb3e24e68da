// pages.h -- address space: reserved, so that nothing else lies there, and opened where it is used. What is reserved and
// not opened costs neither memory nor time, and an access to it is a fault.
#pragma once
#include <stddef.h>
#include <sys/mman.h>
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace emu {

constexpr size_t PAGE = 1 << 16;  // the largest that any of these systems has: they are opened in multiples of it

static inline char* reserve_pages(size_t bytes) {  // null if there is a limit on addresses
    void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : (char*)p;
}
static inline bool open_pages(char* p, size_t bytes) { return !mprotect(p, bytes, PROT_READ | PROT_WRITE); }

}  // namespace emu
