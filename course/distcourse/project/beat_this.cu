// The library's entry: a warp sums a row by shuffles, then 32 x 32 tiles are turned in padded shared memory.
extern "C" __global__ void rms_transposed(const float* x, float* out, int rows, int cols) {
    __shared__ float scale[32];
    __shared__ float tile[32][33];
    int lane = threadIdx.x, first = blockIdx.x * 32;

    for (int i = threadIdx.y; i < 32; i += 8) {
        float sum = 0.0f;
        if (first + i < rows)
            for (int j = lane; j < cols; j += 32) {
                float v = x[(first + i) * cols + j];
                sum += v * v;
            }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) scale[i] = 1.0f / sqrtf(sum / cols + 1e-6f);
    }
    __syncthreads();

    for (int left = 0; left < cols; left += 32) {
        for (int i = threadIdx.y; i < 32; i += 8)
            if (first + i < rows && left + lane < cols)
                tile[i][lane] = x[(first + i) * cols + left + lane] * scale[i];
        __syncthreads();
        for (int j = threadIdx.y; j < 32; j += 8)
            if (left + j < cols && first + lane < rows) out[(left + j) * rows + first + lane] = tile[lane][j];
        __syncthreads();
    }
}
