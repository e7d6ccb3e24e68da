// matmul.cu -- C = A B for row-major A (m x k), B (k x n), three ways: what changes is how often an element of A and B
// is fetched from global memory: n (m) times, n / 16 times, n / 64 times.

extern "C" __global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum += A[row * k + i] * B[i * n + col];
    C[row * n + col] = sum;
}

// A block of 16 x 16 threads fetches a tile of A and one of B together, then every thread uses 16 elements of each.
extern "C" __global__ void matmul_tiled(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float a[16][16], b[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 16) {
        a[ty][tx] = row < m && first + tx < k ? A[row * k + first + tx] : 0.0f;
        b[ty][tx] = col < n && first + ty < k ? B[(first + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += a[ty][i] * b[i][tx];
        __syncthreads();
    }
    if (row < m && col < n) C[row * n + col] = sum;
}

// The same with tiles of any width up to 32, that of the block: 2 * width * width floats of dynamic shared memory.
extern "C" __global__ void matmul_any_tile(const float* A, const float* B, float* C, int m, int n, int k) {
    extern __shared__ float tiles[];
    int width = blockDim.x, tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * width + tx, row = blockIdx.y * width + ty;
    float *a = tiles, *b = tiles + width * width, sum = 0.0f;
    for (int first = 0; first < k; first += width) {
        a[ty * width + tx] = row < m && first + tx < k ? A[row * k + first + tx] : 0.0f;
        b[ty * width + tx] = col < n && first + ty < k ? B[(first + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < width && first + i < k; i++) sum += a[ty * width + i] * b[i * width + tx];
        __syncthreads();
    }
    if (row < m && col < n) C[row * n + col] = sum;
}

// Each of 16 x 16 threads computes 4 x 4 elements: 8 words from shared memory feed 16 multiply-adds instead of 2 one.
// a is stored turned, with rows of 66 words, so that neither writing nor reading it collides in a bank.
extern "C" __global__ void matmul_blocked(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float a[16][66], b[16][64];
    int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
    int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int first = 0; first < k; first += 16) {
        for (int i = thread; i < 1024; i += 256) {
            int row = i / 16, at = i % 16;
            a[at][row] = row0 + row < m && first + at < k ? A[(row0 + row) * k + first + at] : 0.0f;
        }
        for (int i = thread; i < 1024; i += 256) {
            int at = i / 64, col = i % 64;
            b[at][col] = col0 + col < n && first + at < k ? B[(first + at) * n + col0 + col] : 0.0f;
        }
        __syncthreads();
        for (int at = 0; at < 16; at++) {
            float u[4], v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) u[i] = a[at][ty * 4 + i];
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = b[at][tx + 16 * j];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += u[i] * v[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = row0 + ty * 4 + i, col = col0 + tx + 16 * j;
            if (row < m && col < n) C[row * n + col] = sum[i][j];
        }
}
