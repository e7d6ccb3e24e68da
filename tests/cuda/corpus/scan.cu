// Prefix sums, histograms, sorting and compaction.
#include <stdio.h>
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

#define BINS 64
#define SWAP(a, b) { auto t = (a); (a) = (b); (b) = t; }

__global__ void scan_hillis_steele(const float* in, float* out, int n) {
    extern __shared__ float temp[];  // two rows, read and written in turn
    int t = threadIdx.x, pout = 0, pin = 1;
    temp[t] = t < n ? in[t] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        temp[pout * blockDim.x + t] = t >= offset ? temp[pin * blockDim.x + t] + temp[pin * blockDim.x + t - offset]
                                                  : temp[pin * blockDim.x + t];
        __syncthreads();
    }
    if (t < n) out[t] = temp[pout * blockDim.x + t];
}

__device__ int warp_inclusive(int v) {
    int lane = threadIdx.x & 31;
    for (int d = 1; d < 32; d *= 2) {
        int u = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d) v += u;
    }
    return v;
}
__global__ void scan_by_warps(const int* in, int* out, int* sums, int n) {
    __shared__ int totals[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int v = warp_inclusive(i < n ? in[i] : 0);
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    if (warp == 0) totals[lane] = warp_inclusive(lane < blockDim.x / 32 ? totals[lane] : 0);
    __syncthreads();
    if (warp) v += totals[warp - 1];
    if (i < n) out[i] = v;
    if (threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = v;
}
__global__ void scan_tile(const int* in, int* inclusive, int* exclusive) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int v = in[threadIdx.x];
    inclusive[threadIdx.x] = cg::inclusive_scan(tile, v);
    exclusive[threadIdx.x] = cg::exclusive_scan(tile, v, cg::plus<int>());
}

__global__ void histogram_shared(const unsigned char* data, int* bins, int n) {
    __shared__ int mine[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&mine[data[i] % BINS], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) atomicAdd(&bins[b], mine[b]);
}

// One atomic for all lanes that are together.
__device__ int aggregated_increment(int* counter) {
    unsigned active = __activemask();
    int lane = threadIdx.x & 31, leader = __ffs(active) - 1, base;
    if (lane == leader) base = atomicAdd(counter, __popc(active));
    base = __shfl_sync(active, base, leader);
    return base + __popc(active & ((1u << lane) - 1));
}
__global__ void filter_positive(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) out[aggregated_increment(count)] = in[i];
}
__global__ void filter_by_coalesced_group(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || in[i] <= 0) return;
    cg::coalesced_group g = cg::coalesced_threads();
    int base = 0;
    if (g.thread_rank() == 0) base = atomicAdd(count, g.size());
    out[g.shfl(base, 0) + g.thread_rank()] = in[i];
}

__global__ void bitonic_sort(int* values) {
    extern __shared__ int shared[];
    const unsigned tid = threadIdx.x;
    shared[tid] = values[tid];
    __syncthreads();
    for (unsigned k = 2; k <= blockDim.x; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            unsigned other = tid ^ j;
            if (other > tid) {
                if ((tid & k) == 0) { if (shared[tid] > shared[other]) SWAP(shared[tid], shared[other]); }
                else { if (shared[tid] < shared[other]) SWAP(shared[tid], shared[other]); }
            }
            __syncthreads();
        }
    values[tid] = shared[tid];
}

int main() { bitonic_sort<<<1, 256, 1024>>>(NULL); return 0; }
