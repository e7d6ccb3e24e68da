// What the language offers: complex numbers, structs, recursion, bits.
#include <complex>
#include <cstdint>
#include <cuComplex.h>
#include <iostream>

enum { FIRST = 3, SECOND };
union Bits { float f; unsigned u; };
struct Vec3 {
    float x, y, z;
    __host__ __device__ Vec3(float x = 0, float y = 0, float z = 0) : x(x), y(y), z(z) {}
    __host__ __device__ Vec3 operator+(const Vec3& o) const { return Vec3(x + o.x, y + o.y, z + o.z); }
    __host__ __device__ friend Vec3 operator*(float s, const Vec3& v) { return {s * v.x, s * v.y, s * v.z}; }
    __host__ __device__ float dot(const Vec3& o) const { return x * o.x + y * o.y + z * o.z; }
};
struct Shape { __device__ virtual float area() const { return 0; } };
__device__ int calls;
__device__ const int primes[4] = {2, 3, 5, 7};

// Complex numbers
__global__ void fft_step(const cuFloatComplex* in, cuFloatComplex* out, int n, int half) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 2) return;
    int k = i % half, j = 2 * (i - k) + k;
    float s, c;
    sincospif(-(float)k / half, &s, &c);
    cuFloatComplex a = in[j], b = cuCmulf(in[j + half], make_cuFloatComplex(c, s));
    out[j] = cuCaddf(a, b);
    out[j + half] = cuCsubf(a, b);
}
// Bits and conversions
__global__ void bits(const unsigned* x, int* out) {
    unsigned v = x[threadIdx.x];
    Bits b;
    b.f = (float)(v & 0xffff);
    out[threadIdx.x] = __popc(v) + 100 * __clz(v) + 10000 * __ffs(v) + (int)(__brev(v) >> 28) * 1000000 + (int)(b.u >> 31) + (int)__byte_perm(v, 0, 0x4441) * 0;
}
__global__ void pack_nibbles(const uint8_t* x, uint32_t* out, int8_t zero) {
    uint32_t packed = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) packed |= uint32_t(x[threadIdx.x * 8 + k] & 0xF) << (4 * k);
    out[threadIdx.x] = packed + zero;
}
// Structs, recursion
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(int* out) {
    atomicAdd(&calls, 1);
    out[threadIdx.x] = fibonacci(threadIdx.x) * primes[threadIdx.x % 4] + FIRST + SECOND;
}
__global__ void vectors_of_own(const Vec3* a, const Vec3* b, float* dots, Vec3* sums, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const Vec3 p = a[i], q{b[i]};
        sums[i] = p + 2.0f * q;
        dots[i] = p.dot(q);
    }
}
int main() {
    std::cout << std::complex<double>(1, 2) << '\n';
    recursion<<<1, dim3(12)>>>(nullptr);
    auto f = [](int a) { return a; };
    return f(0);
}
