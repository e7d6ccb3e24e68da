// Layers of neural networks.
#include <stdio.h>
#include <float.h>
#include <assert.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#if defined(ENABLE_BF16)
typedef __nv_bfloat16 floatX;
#elif defined(ENABLE_FP16)
#include <cuda_fp16.h>
typedef half floatX;
#else
typedef float floatX;
#endif
#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))
#define WARP_SIZE 32U
namespace cg = cooperative_groups;

#ifdef _WIN32
#include <windows.h>
#else
#include <unistd.h>
#endif

// 128 bits are loaded and stored at once.
template <class ElementType> struct alignas(16) Packed128 {
    __device__ Packed128() = default;
    __device__ explicit Packed128(int4 bits) {
        static_assert(sizeof(bits) == sizeof(payload), "Size mismatch.");
        memcpy(&payload, &bits, sizeof(bits));
    }
    __device__ ElementType& operator[](int index) { return payload[index]; }
    __device__ const ElementType& operator[](int index) const { return payload[index]; }
    __device__ int4 get_bits() const {
        int4 bits;
        memcpy(&bits, &payload, sizeof(bits));
        return bits;
    }
    static constexpr const size_t size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
};
template <class T> __device__ Packed128<T> load128(const T* address) { return Packed128<T>{*reinterpret_cast<const int4*>(address)}; }
template <class T> __device__ void store128(T* target, Packed128<T> value) { *reinterpret_cast<int4*>(target) = value.get_bits(); }
typedef Packed128<floatX> x128;

__global__ void residual_forward(floatX* out, const floatX* a, const floatX* b) {
    int idx = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    x128 packed_out, packed_a = load128(a + idx), packed_b = load128(b + idx);
    for (int k = 0; k < packed_a.size; ++k) packed_out[k] = (floatX)((float)packed_a[k] + (float)packed_b[k]);
    store128(out + idx, packed_out);
}

__device__ inline float warpReduceSum(float val) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) val += __shfl_xor_sync(0xFFFFFFFF, val, offset);
    return val;
}
using reduction_func_t = float (*)(float);
template <reduction_func_t warp_reduction> __device__ inline float blockReduce(float val, bool final_sync = false, float out_of_bounds = 0.0f) {
    __shared__ float shared_val[WARP_SIZE];
    const int lane_id = threadIdx.x % WARP_SIZE, warp_id = threadIdx.x / WARP_SIZE, num_warps = blockDim.x / WARP_SIZE;
    float warp_val = warp_reduction(val);
    if (lane_id == 0) { shared_val[warp_id] = warp_val; }
    __syncthreads();
    warp_val = lane_id < num_warps ? shared_val[lane_id] : out_of_bounds;
    float block_val = warp_reduction(warp_val);
    if (final_sync) { __syncthreads(); }
    return block_val;
}
struct __align__(8) SumMax { float maxval; float sum; };
__device__ __forceinline__ SumMax combine(SumMax a, SumMax b) {
    bool a_bigger = a.maxval > b.maxval;
    SumMax bigger = a_bigger ? a : b, smaller = a_bigger ? b : a;
    return {bigger.maxval, bigger.sum + smaller.sum * __expf(smaller.maxval - bigger.maxval)};
}
__global__ void softmax_online(float* out, const float* in, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) { return; }
    SumMax sm = {-FLT_MAX, 0.0f};
    for (int i = warp.thread_rank(); i < C; i += warp.size()) sm = combine(sm, {in[idx * C + i], 1.0f});
    sm = cg::reduce(warp, sm, combine);
    for (int i = warp.thread_rank(); i < C; i += warp.size()) __stcs(out + idx * C + i, expf(__ldcs(in + idx * C + i) - sm.maxval) / sm.sum);
}
__global__ void rmsnorm(float* o, const float* x, const float* weight, int size) {
    float ss = 0.0f;
    for (int i = threadIdx.x; i < size; i += blockDim.x) ss += x[i] * x[i];
    __shared__ float shared_ss;
    ss = blockReduce<warpReduceSum>(ss);
    if (threadIdx.x == 0) shared_ss = 1.0f / sqrtf(ss / size + 1e-5f);
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += blockDim.x) o[i] = weight[i] * (shared_ss * x[i]);
}
__global__ void embedding_backward(float* dwte, const float* dout, const int* inp, int tokens, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < tokens * C) atomicAdd(dwte + inp[idx / C] * C + idx % C, dout[idx]);
}
// Tiles of keys and values go by, the sum of exponentials is corrected as the maximum grows.
__global__ void flash_attention(const float* Q, const float* K, const float* V, int N, int d, int Tc, int Tr, int Bc, int Br, float scale,
                                float* l, float* m, float* O) {
    int tx = threadIdx.x, bx = blockIdx.x, by = blockIdx.y;
    int qkv = (bx * gridDim.y * N * d) + (by * N * d), lm = (bx * gridDim.y * N) + (by * N);
    extern __shared__ float sram[];
    int tile_size = Bc * d;
    float *Qi = sram, *Kj = &sram[tile_size], *Vj = &sram[tile_size * 2], *S = &sram[tile_size * 3];
    for (int j = 0; j < Tc; j++) {
        for (int x = 0; x < d; x++) {
            Kj[tx * d + x] = K[qkv + tile_size * j + tx * d + x];
            Vj[tx * d + x] = V[qkv + tile_size * j + tx * d + x];
        }
        __syncthreads();
        for (int i = 0; i < Tr; i++) {
            for (int x = 0; x < d; x++) Qi[tx * d + x] = Q[qkv + tile_size * i + tx * d + x];
            float m_prev = m[lm + Br * i + tx], l_prev = l[lm + Br * i + tx], m_row = -INFINITY;
            for (int y = 0; y < Bc; y++) {
                float sum = 0;
                for (int x = 0; x < d; x++) sum += Qi[tx * d + x] * Kj[y * d + x];
                sum *= scale;
                S[Bc * tx + y] = sum;
                if (sum > m_row) m_row = sum;
            }
            float l_row = 0;
            for (int y = 0; y < Bc; y++) {
                S[Bc * tx + y] = __expf(S[Bc * tx + y] - m_row);
                l_row += S[Bc * tx + y];
            }
            float m_new = max(m_prev, m_row), l_new = __expf(m_prev - m_new) * l_prev + __expf(m_row - m_new) * l_row;
            for (int x = 0; x < d; x++) {
                float pv = 0;
                for (int y = 0; y < Bc; y++) pv += S[Bc * tx + y] * Vj[y * d + x];
                float& o = O[qkv + tile_size * i + tx * d + x];
                o = (1 / l_new) * (l_prev * __expf(m_prev - m_new) * o + __expf(m_row - m_new) * pv);
            }
            m[lm + Br * i + tx] = m_new;
            l[lm + Br * i + tx] = l_new;
        }
        __syncthreads();
    }
}
__global__ void batchnorm_channels(const float* x, float* y, const float* gamma, const float* beta, int batch, int channels, int pixels) {
    int c = blockIdx.x;
    __shared__ float stats[2];
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < batch * pixels; i += blockDim.x) {
        float v = x[((i / pixels) * channels + c) * pixels + i % pixels];
        sum += v;
        squares += v * v;
    }
    sum = blockReduce<warpReduceSum>(sum, true);
    squares = blockReduce<warpReduceSum>(squares);
    if (threadIdx.x == 0) {
        stats[0] = sum / (batch * pixels);
        stats[1] = rsqrtf(squares / (batch * pixels) - stats[0] * stats[0] + 1e-5f);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < batch * pixels; i += blockDim.x) {
        int at = ((i / pixels) * channels + c) * pixels + i % pixels;
        y[at] = gamma[c] * (x[at] - stats[0]) * stats[1] + beta[c];
    }
}
#ifndef TESTING
int main() {
    printf("%d\n", getpid());
    rmsnorm<<<4, 128>>>(nullptr, nullptr, nullptr, 100);
    return 0;
}
#endif
