// compression.cu -- gradients made small before they are sent. What is left out stays in `residual` and is added to the
// next gradient (error feedback), so nothing is lost, only late.

// Sends the elements whose sum with the residual is at least `threshold` in size: their numbers and values, in any
// order. A warp reserves its places with one atomic: lanes count those before them in a vote.
extern "C" __global__ void top_k(const float* grad, float* residual, float threshold, int* index, float* value, int* count,
                                 int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    float v = i < n ? grad[i] + residual[i] : 0.0f;
    bool send = i < n && fabsf(v) >= threshold;
    unsigned votes = __ballot_sync(0xffffffffu, send);
    int first = 0;
    if (lane == 0 && votes) first = atomicAdd(count, __popc(votes));
    first = __shfl_sync(0xffffffffu, first, 0);
    if (i < n) residual[i] = send ? 0.0f : v;
    if (send) {
        int at = first + __popc(votes & ((1u << lane) - 1));
        index[at] = i;
        value[at] = v;
    }
}

// 8 bits: every block of 256 elements has a scale, the largest size in it / 127.
extern "C" __global__ void quantise_8bit(const float* grad, float* residual, signed char* q, float* scale, int n) {
    __shared__ float largest[8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float v = i < n ? grad[i] + residual[i] : 0.0f, most = fabsf(v);
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    if (t % 32 == 0) largest[t / 32] = most;
    __syncthreads();
    most = 0.0f;
    for (int w = 0; w < 8; w++) most = fmaxf(most, largest[w]);
    float unit = most / 127.0f;
    int code = most > 0.0f ? __float2int_rn(v / unit) : 0;
    if (i < n) {
        q[i] = (signed char)code;
        residual[i] = v - code * unit;
    }
    if (t == 0) scale[blockIdx.x] = unit;
}

// 1 bit: the signs, 32 to a word, and the mean size of each block of 256 elements.
extern "C" __global__ void quantise_1bit(const float* grad, float* residual, unsigned* bits, float* scale, int n) {
    __shared__ float part[8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t, size = min(256, n - (int)blockIdx.x * 256);
    float v = i < n ? grad[i] + residual[i] : 0.0f, sum = fabsf(v);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < 8; w++) sum += part[w];
    float unit = sum / size;
    unsigned word = __ballot_sync(0xffffffffu, i < n && v >= 0.0f);
    if (i < n) residual[i] = v - (v >= 0.0f ? unit : -unit);
    if (t % 32 == 0 && i < n) bits[i / 32] = word;
    if (t == 0) scale[blockIdx.x] = unit;
}
