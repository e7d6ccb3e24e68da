// One thread per element, and its variants.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include "activations.cuh"

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t status = (call);                                         \
        if (status != cudaSuccess) {                                         \
            fprintf(stderr, "%s\n", cudaGetErrorString(status));             \
            exit(EXIT_FAILURE);                                              \
        }                                                                    \
    } while (0)
#define GLOBAL_INDEX (blockIdx.x * blockDim.x + threadIdx.x)

__global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

// The last elements, which fill no float4, are done one by one.
__global__ void scale4(const float* x, float* y, float s, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(&x[i]);
        v.x *= s; v.y *= s; v.z *= s; v.w *= s;
        reinterpret_cast<float4*>(y)[i / 4] = v;
    } else {
        for (; i < n; i++) y[i] = x[i] * s;
    }
}

template <typename T, typename F>
__global__ void __launch_bounds__(CEIL_DIV(250, 32) * 32, (2)) transform(const T* x, T* y, size_t n, F f) {
    for (size_t i = GLOBAL_INDEX; i < n; i += (size_t)blockDim.x * gridDim.x) y[i] = f(x[i]);
}
template <typename T> struct Square { __host__ __device__ T operator()(T x) const { return x * x; } };
struct Affine { float a, b; __device__ float operator()(float x) const { return fmaf(a, x, b); } };

extern "C" __global__ void gelu_forward(float* out, const float* in, int n) {
    int i = GLOBAL_INDEX;
    if (i < n) out[i] = activation::gelu(in[i]);
}
extern "C" __global__ void swiglu(float* out, const float* gate, const float* up, int n) {
    int i = GLOBAL_INDEX;
    if (i < n) out[i] = activation::silu(__ldg(&gate[i])) * __ldg(up + i);
}

template <typename T>
__global__ void adamw(T* w, const T* g, float* m, float* v, int n, float lr, float beta1, float beta2, float eps,
                      float decay, int t) {
    int i = GLOBAL_INDEX;
    if (i >= n) return;
    float grad = (float)g[i];
    float mi = m[i] = beta1 * m[i] + (1.0f - beta1) * grad;
    float vi = v[i] = beta2 * v[i] + (1.0f - beta2) * grad * grad;
    mi /= 1.0f - powf(beta1, t);
    vi /= 1.0f - powf(beta2, t);
    float old = (float)w[i];
    w[i] = (T)(old - lr * (mi / (sqrtf(vi) + eps) + decay * old));
}

__global__ void half2_axpy(__half2 a, const __half2* x, __half2* y, int pairs) {
    int i = GLOBAL_INDEX;
    if (i < pairs) y[i] = __hfma2(a, x[i], y[i]);
}
__global__ void bfloat16_residual(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int n) {
    int i = GLOBAL_INDEX * 2;
    if (i < n) {
        __nv_bfloat162 p = *(const __nv_bfloat162*)(a + i), q = *(const __nv_bfloat162*)(b + i);
        *(__nv_bfloat162*)(out + i) = __floats2bfloat162_rn(__low2float(p) + __low2float(q), __high2float(p) + __high2float(q));
    }
}

int main() {
    std::vector<float> host(1000, 1.0f);
    float *x, *y;
    CHECK(cudaMalloc((void**)&x, host.size() * sizeof(float)));
    CHECK(cudaMalloc((void**)&y, host.size() * sizeof(float)));
    saxpy<<<CEIL_DIV(1000, 256), 256>>>(2.0f, x, y, 1000);
    transform<<<4, 256>>>(x, y, 1000, Square<float>());
    CHECK(cudaDeviceSynchronize());
    printf("%f\n", host[0]);
    return 0;
}
