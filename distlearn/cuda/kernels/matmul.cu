// matmul.cu -- C = A B for row-major A (m x k), B (k x n), four ways: what changes is how often an element of A and B
// is fetched from global memory: n (m) times, n / 16 times, n / 64 times, n / 128 times.

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

// Four neighbours of a row; 0 outside. One read where all are inside and they begin at a multiple of 16 bytes.
__device__ float4 four(const float* M, int row, int col, int rows, int cols) {
    const float* p = M + row * cols + col;
    if (row < rows && col + 3 < cols && (size_t)p % 16 == 0) return *(const float4*)p;
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = row < rows && col + i < cols ? p[i] : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

// Each of 16 x 16 threads computes 8 x 8 elements: two pieces of four rows, 64 apart, by two of four columns, so that
// all of its reads are float4 and a warp's are neighbours. 16 words from shared memory, in 4 reads, feed 64 multiply-adds.
// There are two buffers: while a thread computes with one tile, the next one is already on its way into registers, and
// one barrier per tile is enough. a is stored turned, in rows of 132 words, so that its writes do not collide in a bank.
extern "C" __global__ void matmul_wide(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ __align__(16) float a[2][8][132], b[2][8][128];
    int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
    int row0 = blockIdx.y * 128, col0 = blockIdx.x * 128;
    int row = thread / 2, at_a = thread % 2 * 4, at_b = thread / 32, col = thread % 32 * 4;  // what it fetches
    float sum[8][8] = {};
    float4 next_a = four(A, row0 + row, at_a, m, k), next_b = four(B, at_b, col0 + col, k, n);
    for (int first = 0, now = 0; first < k; first += 8, now ^= 1) {
        a[now][at_a][row] = next_a.x;
        a[now][at_a + 1][row] = next_a.y;
        a[now][at_a + 2][row] = next_a.z;
        a[now][at_a + 3][row] = next_a.w;
        *(float4*)&b[now][at_b][col] = next_b;
        __syncthreads();
        if (first + 8 < k) {
            next_a = four(A, row0 + row, first + 8 + at_a, m, k);
            next_b = four(B, first + 8 + at_b, col0 + col, k, n);
        }
#pragma unroll
        for (int at = 0; at < 8; at++) {
            float u[8], v[8];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                *(float4*)&u[4 * half] = *(const float4*)&a[now][at][64 * half + 4 * ty];
                *(float4*)&v[4 * half] = *(const float4*)&b[now][at][64 * half + 4 * tx];
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += u[i] * v[j];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int r = row0 + i / 4 * 64 + 4 * ty + i % 4, c = col0 + 64 * half + 4 * tx;
            float* p = C + r * n + c;
            if (r < m && c + 3 < n && (size_t)p % 16 == 0) {
                *(float4*)p = make_float4(sum[i][4 * half], sum[i][4 * half + 1], sum[i][4 * half + 2], sum[i][4 * half + 3]);
            } else {
                for (int j = 0; j < 4; j++)
                    if (r < m && c + j < n) p[j] = sum[i][4 * half + j];
            }
        }
}
