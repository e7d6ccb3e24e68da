// pool.cu -- max pooling over windows of K x K, stride S, of images (N C, H, W). `arg` keeps which element of its
// window won (ky K + kx, the first of equals), so that the backward pass need not look again.

extern "C" __global__ void max_pool(const float* x, float* y, unsigned char* arg, int images, int H, int W, int K, int S,
                                    int OH, int OW) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= images * OH * OW) return;
    int ox = i % OW, oy = i / OW % OH, image = i / (OW * OH), winner = 0;
    const float* window = x + (image * H + oy * S) * W + ox * S;
    float best = window[0];
    for (int ky = 0; ky < K; ky++)
        for (int kx = 0; kx < K; kx++) {
            float v = window[ky * W + kx];
            if (v > best) {
                best = v;
                winner = ky * K + kx;
            }
        }
    y[i] = best;
    arg[i] = winner;
}

// Each element of dx looks at the windows over it and takes dy where it won: a gather, with no atomics.
extern "C" __global__ void max_pool_backward(const float* dy, const unsigned char* arg, float* dx, int images, int H, int W,
                                             int K, int S, int OH, int OW) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= images * H * W) return;
    int ix = i % W, iy = i / W % H, image = i / (W * H);
    float sum = 0.0f;
    for (int ky = 0; ky < K; ky++)
        for (int kx = 0; kx < K; kx++) {
            int y = iy - ky, z = ix - kx;
            if (y < 0 || z < 0 || y % S || z % S || y / S >= OH || z / S >= OW) continue;
            int at = (image * OH + y / S) * OW + z / S;
            if (arg[at] == ky * K + kx) sum += dy[at];
        }
    dx[i] = sum;
}
