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
