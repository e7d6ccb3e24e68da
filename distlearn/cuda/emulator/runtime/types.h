// types.h -- the few types that the kernel's side and the emulator's side of a build both need.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

namespace emu {

// The arguments come as cuLaunchKernel takes them: a pointer to each.
struct Launch {
    unsigned grid[3], block[3];
    size_t shared_bytes;
    void** args;
};

constexpr int WARP = 32;

// The sides of an array variable, e.g. 32 and 33 of `float tile[32][33]`; a 0 ends them.
struct Sides {
    int of[5];
};
template <class T> struct SidesOf {
    static constexpr void put(Sides&, int) {}
};
template <class T, size_t n> struct SidesOf<T[n]> {
    static constexpr void put(Sides& s, int at) {
        if (at < 4) s.of[at] = (int)n, SidesOf<T>::put(s, at + 1);
    }
};

}  // namespace emu
