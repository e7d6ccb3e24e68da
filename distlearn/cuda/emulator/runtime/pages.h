// pages.h -- address space: reserved, so that nothing else lies there, and opened where it is used. What is reserved and
// not opened costs neither memory nor time, and an access to it is a fault.
#pragma once
#include <stddef.h>
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#else
#include <sys/mman.h>
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#endif

namespace emu {

constexpr size_t PAGE = 1 << 16;  // the largest that any of these systems has: they are opened in multiples of it

#ifdef _WIN32
static inline char* reserve_pages(size_t bytes) {
    return (char*)VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_NOACCESS);
}
static inline bool open_pages(char* p, size_t bytes) { return VirtualAlloc(p, bytes, MEM_COMMIT, PAGE_READWRITE); }
#else
static inline char* reserve_pages(size_t bytes) {  // null if there is a limit on addresses
    void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : (char*)p;
}
static inline bool open_pages(char* p, size_t bytes) { return !mprotect(p, bytes, PROT_READ | PROT_WRITE); }
#endif

}  // namespace emu
