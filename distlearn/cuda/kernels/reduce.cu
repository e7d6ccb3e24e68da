// reduce.cu -- the sum of each block's elements, four ways (after M. Harris, "Optimizing parallel reduction in CUDA").
// Every block of 256 threads adds up 256 elements into out[blockIdx.x]; in the last way, as many as come to it.

// Neighbours first: the active threads' elements drift apart, and collide in the banks of shared memory.
extern "C" __global__ void reduce_interleaved(const float* x, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) {
        int at = 2 * k * t;
        if (at < 256) s[at] += s[at + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

// Halves first: the active threads stay together and read neighbouring words.
extern "C" __global__ void reduce_sequential(const float* x, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

// Within a warp through registers: one barrier instead of nine.
extern "C" __global__ void reduce_shuffle(const float* x, float* out, int n) {
    __shared__ float part[8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float v = warp_sum(i < n ? x[i] : 0.0f);
    if (t % 32 == 0) part[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        v = warp_sum(t < 8 ? part[t] : 0.0f);
        if (t == 0) out[blockIdx.x] = v;
    }
}
