// A first kernel that is right: a thread for each row. What does the check say about sectors?
extern "C" __global__ void rms_transposed(const float* x, float* out, int rows, int cols) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < rows && threadIdx.y == 0) {
        float sum = 0.0f;
        for (int j = 0; j < cols; ++j) {
            float v = x[i * cols + j];
            sum += v * v;
        }
        float scale = 1.0f / sqrtf(sum / cols + 1e-6f);
        for (int j = 0; j < cols; ++j) out[j * rows + i] = x[i * cols + j] * scale;
    }
}
