// Included by kernels: device functions, and a host function that is none of theirs.
#pragma once
#include <cmath>
#include <string>
#ifdef __CUDACC__
#define HD __host__ __device__ __forceinline__
#else
#define HD inline
#endif

namespace activation {
constexpr float GELU_SCALE = 0.7978845608028654f;
HD float gelu(float x) { return 0.5f * x * (1.0f + tanhf(GELU_SCALE * (x + 0.044715f * x * x * x))); }
HD float silu(float x) { return x / (1.0f + expf(-x)); }
inline std::string name(int which) { return which ? "gelu" : "silu"; }
}  // namespace activation
