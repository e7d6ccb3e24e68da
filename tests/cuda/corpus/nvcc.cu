// What nvcc takes and NVRTC does not: std:: in a kernel, pow(int, int), lambdas that say __device__, thrust::complex.
#include <algorithm>
#include <cuda/std/limits>
#include <iostream>
#include <limits>
#include <thrust/complex.h>
#include <type_traits>
#include <utility>
using std::min;

enum class Mode : int { Twice, Square };
template <typename T> struct Limits { static __device__ T top() { return cuda::std::numeric_limits<T>::max(); } };
template <> struct Limits<float> { static __device__ float top() { return cuda::std::numeric_limits<float>::infinity(); } };
__constant__ struct { float scale; int shift; } settings;

// Names of the C++ library
template <typename T> __device__ typename std::enable_if<std::is_integral<T>::value, T>::type halve(T v) { return v >> 1; }
template <typename T> __device__ std::enable_if_t<std::is_floating_point_v<T>, T> halve(T v) { return v / T(2); }
__global__ void standard_names(const int* x, int* y, float* f) {
    int i = threadIdx.x, a = x[i], b = x[(i + 1) % blockDim.x];
    if (a > b) std::swap(a, b);
    y[i] = std::max(a, 10) + min(b, 50) + Limits<int>::top() / (1 << 30) + halve(b - a);
    f[i] = isinf(Limits<float>::top()) ? halve(1.0f) : NAN;
    if constexpr (std::is_same<decltype(i), int>::value) f[i] += std::numeric_limits<float>::epsilon() > 0;
}
__global__ void overloads(const int* n, double* d, unsigned* u) {
    int i = threadIdx.x;
    d[i] = pow(n[i], 2) + fmin(n[i], 2.5) + fmax((float)n[i], 1) + pow(2.0, n[i]) + abs(-n[i]) + ::sqrt(4.0) + fabs(-1.0f) + exp2(3.0);
    u[i] = umin(n[i], 5u) + umax(n[i], 3u) + __umul24(n[i], 3) + min(n[i], 4) + llmax(n[i], 2LL);
}
template <Mode mode, typename F> __device__ void apply_mode(float* x, int n, F&& f) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        switch (mode) {
            case Mode::Twice: x[i] = f(2 * x[i]); break;
            case Mode::Square: x[i] = f(x[i] * x[i]); break;
        }
    }
}
__global__ void lambdas(float* x, int n, float bias, bool square) {
    auto shift = [bias] __device__(float v) { return v + bias * settings.scale + settings.shift; };
    if (square) apply_mode<Mode::Square>(x, n, shift);
    else apply_mode<Mode::Twice>(x, n, shift);
}
__global__ void mandelbrot(int* counts, int w, int h, int limit) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    thrust::complex<double> c(-2.0 + 3.0 * x / w, -1.0 + 2.0 * y / h), z = 0;
    int n = 0;
    while (n < limit && thrust::norm(z) <= 4.0) z = z * z + c, n++;
    counts[y * w + x] = n;
}
__global__ void phase(const thrust::complex<float>* z, float* angle, thrust::complex<float>* conjugate) {
    int i = threadIdx.x;
    angle[i] = thrust::arg(z[i]);
    conjugate[i] = conj(z[i]) / thrust::complex<float>(thrust::abs(z[i]), 0);
}
int main() { std::cout << std::max(1, 2) << std::endl; }
