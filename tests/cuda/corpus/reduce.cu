// Sums and the like over a block, a warp, a tile and the whole grid.
#include <iostream>
#include <cfloat>
#include <climits>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
using namespace std;
namespace cg = cooperative_groups;

#define FULL_MASK 0xffffffffu
#define WARP_SIZE 32

__global__ void reduce_interleaved(const int* in, int* out, unsigned n) {
    extern __shared__ int sdata[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}

__global__ void reduce_strided_index(const int* in, int* out, unsigned n) {
    extern __shared__ int sdata[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        unsigned index = 2 * s * tid;
        if (index < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();
    }
    if (!tid) out[blockIdx.x] = sdata[0];
}

// Unrolled by the compiler; the last warp needs __syncwarp between its steps.
template <unsigned blockSize> __device__ void warp_tail(volatile int* s, unsigned tid) {
    int v = s[tid];
    if (blockSize >= 64) { v += s[tid + 32]; __syncwarp(); s[tid] = v; __syncwarp(); }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) { v += s[tid + d]; __syncwarp(); s[tid] = v; __syncwarp(); }
}
template <class T, unsigned blockSize, bool powerOfTwo>
__global__ void reduce_template(const T* __restrict__ in, T* __restrict__ out, unsigned n) {
    __shared__ T s[blockSize + 16];
    unsigned tid = threadIdx.x, stride = blockSize * 2 * gridDim.x;
    T mine = 0;
    for (unsigned i = blockIdx.x * blockSize * 2 + tid; i < n; i += stride) {
        mine += in[i];
        if (powerOfTwo || i + blockSize < n) mine += in[i + blockSize];
    }
    s[tid] = mine;
    if (tid < 16) s[blockSize + tid] = 0;
    __syncthreads();
    if (blockSize >= 512) { if (tid < 256) s[tid] = mine = mine + s[tid + 256]; __syncthreads(); }
    if (blockSize >= 256) { if (tid < 128) s[tid] = mine = mine + s[tid + 128]; __syncthreads(); }
    if (blockSize >= 128) { if (tid < 64) s[tid] = mine = mine + s[tid + 64]; __syncthreads(); }
    if (tid < 32) warp_tail<blockSize>(s, tid);
    if (tid == 0) out[blockIdx.x] = s[0];
}

template <typename T> __inline__ __device__ T warp_sum(T v) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) v += __shfl_down_sync(FULL_MASK, v, offset);
    return v;
}
template <typename T> __inline__ __device__ T block_sum(T v) {
    static __shared__ T shared[32];
    int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    v = warp_sum(v);
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / WARP_SIZE ? shared[lane] : T(0);
    if (warp == 0) v = warp_sum(v);
    return v;
}
__global__ void dot(const float* a, const float* b, float* out, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += a[i] * b[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

struct Best { float value; int index; };
__device__ Best better(Best a, Best b) { return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b; }
__global__ void argmax_rows(const float* x, int* out, int columns) {
    __shared__ Best best[128];
    const float* row = x + blockIdx.x * columns;
    Best mine = {-FLT_MAX, INT_MAX};
    for (int j = threadIdx.x; j < columns; j += blockDim.x) mine = better(mine, {row[j], j});
    best[threadIdx.x] = mine;
    __syncthreads();
    for (int s = blockDim.x / 2; s; s >>= 1) {
        if (threadIdx.x < s) best[threadIdx.x] = better(best[threadIdx.x], best[threadIdx.x + s]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = best[0].index;
}

// A group of any size sums by halves: the function does not know whether it is a tile or a block.
template <typename Group> __device__ int group_sum(Group g, int* temp, int v) {
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        temp[lane] = v;
        g.sync();
        if (lane < i) v += temp[lane + i];
        g.sync();
    }
    return v;
}
__global__ void sum_by_any_group(const int* in, int* by_block, int* by_tile) {
    extern __shared__ int temp[];
    auto block = cg::this_thread_block();
    int total = group_sum(block, temp, in[block.thread_rank()]);
    if (block.thread_rank() == 0) *by_block = total;
    auto tile = cg::tiled_partition<16>(block);
    int offset = block.thread_rank() - tile.thread_rank();
    total = group_sum(tile, temp + offset, in[block.thread_rank()]);
    if (tile.thread_rank() == 0) by_tile[tile.meta_group_rank()] = total;
}

__device__ unsigned arrived = 0;
__global__ void mean_by_last_block(const float* x, volatile float* partial, float* out, int n) {
    __shared__ bool last;
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
    s = block_sum(s);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = s;
        __threadfence();
        last = atomicInc(&arrived, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float all = 0;
        for (int b = 0; b < gridDim.x; b++) all += partial[b];
        *out = all / n;
        arrived = 0;
    }
}
__global__ void count_votes(const int* x, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int all = __syncthreads_count(i < n && x[i] > 0), some = __syncthreads_or(i < n && x[i] > 90);
    unsigned ballot = __ballot_sync(FULL_MASK, i < n && x[i] & 1);
    if (threadIdx.x % 32 == 0) atomicAdd(&counts[2], __popc(ballot));
    if (threadIdx.x == 0) { atomicAdd(&counts[0], all); atomicAdd(&counts[1], some != 0); }
}

int main(int argc, char* argv[]) {
    int blocks = argc > 1 ? atoi(argv[1]) : 64;
    reduce_template<int, 256, true><<<blocks, 256, 256 * sizeof(int)>>>(nullptr, nullptr, 1 << 20);
    cout << "done" << endl;
}
