// atomics.h -- read-modify-write. One thread runs at a time, so these only tell the checker. Each is a function of its
// own, so that its return address says which line of the kernel called it.
#pragma once

#define EMU_ATOMIC static __attribute__((noinline)) EMU_UNHOOKED
#define EMU_TELL(p) emu_atomic((void*)(p), sizeof *(p), __builtin_return_address(0))
template <class T, class F> static inline __attribute__((always_inline)) EMU_UNHOOKED T emu_update(T* p, F f) {
    T old = *p;
    *p = f(old);
    return old;
}

#define EMU_DEFINE_ATOMIC(name, result)                                                                  \
    template <class T, class U> EMU_ATOMIC T name(T* p, U operand) {                                     \
        T v = (T)operand;                                                                                \
        EMU_TELL(p);                                                                                     \
        return emu_update(p, [v](T old) __attribute__((always_inline)) EMU_UNHOOKED -> T { return (T)(result); }); \
    }                                                                                                    \
    template <class T, class U> static inline __attribute__((always_inline)) T name##_block(T* p, U v) { return name(p, v); } \
    template <class T, class U> static inline __attribute__((always_inline)) T name##_system(T* p, U v) { return name(p, v); }
EMU_DEFINE_ATOMIC(atomicAdd, old + v)
EMU_DEFINE_ATOMIC(atomicSub, old - v)
EMU_DEFINE_ATOMIC(atomicMax, old < v ? v : old)
EMU_DEFINE_ATOMIC(atomicMin, v < old ? v : old)
EMU_DEFINE_ATOMIC(atomicExch, v)
EMU_DEFINE_ATOMIC(atomicAnd, old& v)
EMU_DEFINE_ATOMIC(atomicOr, old | v)
EMU_DEFINE_ATOMIC(atomicXor, old ^ v)
EMU_DEFINE_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
EMU_DEFINE_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)

// The first read of a loop around atomicCAS (translate.py) only guesses: it may see what other threads write.
template <class T> EMU_INLINE static inline T emu_guess(const T& x) { return *(const volatile T*)&x; }

template <class T, class U, class V> EMU_ATOMIC T atomicCAS(T* p, U expected, V wanted) {
    T c = (T)expected, v = (T)wanted;
    EMU_TELL(p);
    return emu_update(p, [c, v](T old) __attribute__((always_inline)) EMU_UNHOOKED -> T { return old == c ? v : old; });
}

#define atomicCAS_block(p, expected, wanted) atomicCAS(p, expected, wanted)
#define atomicCAS_system(p, expected, wanted) atomicCAS(p, expected, wanted)

static inline void __threadfence() { emu_fence(); }
static inline void __threadfence_system() { emu_fence(); }
static inline void __threadfence_block() {}
