// Prefix sums, histograms, sorting and compaction.
#include <stdio.h>
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

#define BINS 64
#define NUM_BANKS 32
#define LOG_NUM_BANKS 5
#define CONFLICT_FREE_OFFSET(n) ((n) >> LOG_NUM_BANKS)
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

__global__ void scan_blelloch(const int* in, int* out, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x, ai = t, bi = t + n / 2, offset = 1;
    s[ai + CONFLICT_FREE_OFFSET(ai)] = in[ai];
    s[bi + CONFLICT_FREE_OFFSET(bi)] = in[bi];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) {
            int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
            s[j + CONFLICT_FREE_OFFSET(j)] += s[i + CONFLICT_FREE_OFFSET(i)];
        }
        offset *= 2;
    }
    if (t == 0) s[n - 1 + CONFLICT_FREE_OFFSET(n - 1)] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
            i += CONFLICT_FREE_OFFSET(i);
            j += CONFLICT_FREE_OFFSET(j);
            int v = s[i];
            s[i] = s[j];
            s[j] += v;
        }
    }
    __syncthreads();
    out[ai] = s[ai + CONFLICT_FREE_OFFSET(ai)];
    out[bi] = s[bi + CONFLICT_FREE_OFFSET(bi)];
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
__global__ void add_block_offsets(int* out, const int* sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, before = 0;
    for (int b = 0; b < blockIdx.x; b++) before += sums[b];
    if (i < n) out[i] += before;
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
// Neighbouring equal values are added up before they are counted.
__global__ void histogram_aggregated(const char* text, unsigned length, unsigned* bins) {
    int tid = blockIdx.x * blockDim.x + threadIdx.x, previous = -1;
    unsigned sum = 0;
    for (unsigned i = tid; i < length; i += blockDim.x * gridDim.x) {
        int position = text[i] - 'a';
        if (position >= 0 && position < 26) {
            if (position / 4 == previous) {
                ++sum;
            } else {
                if (sum > 0) atomicAdd(&bins[previous], sum);
                sum = 1;
                previous = position / 4;
            }
        }
    }
    if (sum > 0) atomicAdd(&bins[previous], sum);
}

__global__ void compact_by_ballot(const int* in, int* out, int n, int limit) {
    int lane = threadIdx.x;
    int kept = 0;
    for (int base = 0; base < n; base += 32) {
        int v = base + lane < n ? in[base + lane] : 0;
        bool keep = base + lane < n && v < limit;
        unsigned votes = __ballot_sync(0xffffffffu, keep);
        if (keep) out[kept + __popc(votes & ((1u << lane) - 1))] = v;
        kept += __popc(votes);
    }
    if (lane == 0) out[n] = kept;
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
__global__ void odd_even_sort(float* x, int n) {
    for (int phase = 0; phase < n; phase++) {
        int i = 2 * threadIdx.x + (phase & 1);
        if (i + 1 < n && x[i] > x[i + 1]) {
            float t = x[i];
            x[i] = x[i + 1];
            x[i + 1] = t;
        }
        __syncthreads();
    }
}
// One bit of a radix sort: zeros before ones, in order.
__global__ void split_by_bit(const unsigned* in, unsigned* out, int bit) {
    __shared__ int before[256];
    int t = threadIdx.x, n = blockDim.x;
    unsigned v = in[t];
    int one = v >> bit & 1;
    before[t] = one;
    __syncthreads();
    for (int d = 1; d < n; d <<= 1) {
        int add = t >= d ? before[t - d] : 0;
        __syncthreads();
        before[t] += add;
        __syncthreads();
    }
    int ones = before[t] - one, zeros = n - before[n - 1];
    out[one ? zeros + ones : t - ones] = v;
}
__global__ void merge_paths(const int* a, int na, const int* b, int nb, int* c) {
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < na + nb; k += gridDim.x * blockDim.x) {
        int low = max(0, k - nb), high = min(k, na);
        while (low < high) {
            int mid = (low + high) / 2;
            if (a[mid] <= b[k - mid - 1]) low = mid + 1;
            else high = mid;
        }
        int i = low, j = k - low;
        c[k] = j >= nb || (i < na && a[i] <= b[j]) ? a[i] : b[j];
    }
}

int main() { bitonic_sort<<<1, 256, 1024>>>(NULL); return 0; }
