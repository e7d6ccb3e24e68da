// loss.cu -- softmax and cross-entropy in one: loss[row] = -log softmax(z)[label], dz = (softmax(z) - onehot) * scale.
// The largest logit is taken off first, so that no exponential overflows. `scale` is 1 / the global batch. A label that is
// no class makes its loss NaN: the caller looks at the sum anyway, and need not read all labels back beforehand.
__device__ float loss_of(const float* in, float most, float sum, long long truth, int k) {
    return truth >= 0 && truth < k ? logf(sum) + most - in[truth] : __int_as_float(0x7fffffff);
}

// A warp per row: its lanes read neighbouring elements and combine what they found by shuffles.
// Labels are integers of any type.
template <typename L>
__global__ void softmax_xent_warp(const float* z, const L* label, float* loss, float* dz, float scale, int n, int k) {
    int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= n) return;  // a whole warp leaves together
    const float* in = z + row * k;
    float most = __int_as_float(0xff800000), sum = 0.0f;  // minus infinity
    for (int j = lane; j < k; j += 32) most = fmaxf(most, in[j]);
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    for (int j = lane; j < k; j += 32) sum += expf(in[j] - most);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    long long truth = label[row];
    for (int j = lane; j < k; j += 32) dz[row * k + j] = (expf(in[j] - most) / sum - (j == truth ? 1.0f : 0.0f)) * scale;
    if (lane == 0) loss[row] = loss_of(in, most, sum, truth, k);
}
