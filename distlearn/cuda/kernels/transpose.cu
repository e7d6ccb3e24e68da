// transpose.cu -- rows x cols in, cols x rows out. Blocks are 32 x 8 threads, each works on a square of 32 x 32.

// Reads along rows and writes along columns: every lane of a warp writes to another sector.
extern "C" __global__ void transpose_naive(const float* in, float* out, int rows, int cols) {
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) {
        int y = blockIdx.y * 32 + j;
        if (x < cols && y < rows) out[x * rows + y] = in[y * cols + x];
    }
}

// Turns the square in shared memory, so that both sides run along rows. A row of the tile is 32 + pad words: with no
// pad a column lies in one bank, and reading it takes 32 turns; one word of padding spreads it over all banks.
template <int pad>
__global__ void transpose_tiled(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[32][32 + pad];
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) {
        int y = blockIdx.y * 32 + j;
        if (x < cols && y < rows) tile[j][threadIdx.x] = in[y * cols + x];
    }
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) {
        int y = blockIdx.x * 32 + j;
        if (x < rows && y < cols) out[y * rows + x] = tile[threadIdx.x][j];
    }
}
