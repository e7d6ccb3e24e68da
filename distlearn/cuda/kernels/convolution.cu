// convolution.cu -- images are (N, C, H, W), filters (F, C, K, K), outputs (N, F, OH, OW); stride S, padding P.

// Straight from the definition: a thread per output element, which fetches its whole neighbourhood.
extern "C" __global__ void conv_naive(const float* x, const float* w, float* y, int N, int C, int H, int W, int F, int K,
                                      int S, int P, int OH, int OW) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * F * OH * OW) return;
    int ox = i % OW, oy = i / OW % OH, f = i / (OW * OH) % F, n = i / (OW * OH * F);
    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        for (int ky = 0; ky < K; ky++)
            for (int kx = 0; kx < K; kx++) {
                int iy = oy * S - P + ky, ix = ox * S - P + kx;
                if (iy >= 0 && iy < H && ix >= 0 && ix < W)
                    sum += x[((n * C + c) * H + iy) * W + ix] * w[((f * C + c) * K + ky) * K + kx];
            }
    y[i] = sum;
}

// A block of 32 x 8 outputs fetches the part of the image under it once, its rim (the halo) included, and shares it.
// Dynamic shared memory: (7 S + K) rows of (31 S + K) floats.
extern "C" __global__ void conv_shared(const float* x, const float* w, float* y, int N, int C, int H, int W, int F, int K,
                                       int S, int P, int OH, int OW) {
    extern __shared__ float tile[];
    int width = 31 * S + K, height = 7 * S + K;
    int f = blockIdx.z % F, n = blockIdx.z / F, ox = blockIdx.x * 32 + threadIdx.x, oy = blockIdx.y * 8 + threadIdx.y;
    int left = blockIdx.x * 32 * S - P, top = blockIdx.y * 8 * S - P;
    float sum = 0.0f;
    for (int c = 0; c < C; c++) {
        for (int j = threadIdx.y; j < height; j += 8)
            for (int i = threadIdx.x; i < width; i += 32) {
                int iy = top + j, ix = left + i;
                bool inside = iy >= 0 && iy < H && ix >= 0 && ix < W;
                tile[j * width + i] = inside ? x[((n * C + c) * H + iy) * W + ix] : 0.0f;
            }
        __syncthreads();
        for (int ky = 0; ky < K; ky++)
            for (int kx = 0; kx < K; kx++)
                sum += tile[(threadIdx.y * S + ky) * width + threadIdx.x * S + kx] * w[((f * C + c) * K + ky) * K + kx];
        __syncthreads();
    }
    if (ox < OW && oy < OH) y[((n * F + f) * OH + oy) * OW + ox] = sum;
}
