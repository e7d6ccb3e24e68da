// Graphs, sparse matrices, particles, an elimination and a table: accesses that the data decide.
#include <stdlib.h>
#include <string>
#include <math.h>
#include <map>
#define MAX_THREADS_PER_BLOCK 64
#define BLOCK_SIZE 16
#define PIx2 6.2831853071795864769252867665590058f
#define min(a, b) ((a) < (b) ? (a) : (b))
#ifdef RD_WG_SIZE_0
#define MAXBLOCKSIZE RD_WG_SIZE_0
#else
#define MAXBLOCKSIZE 512
#endif

struct Node { int starting; int no_of_edges; };
struct kValues { float Kx, Ky, Kz, PhiMag; };
__constant__ kValues ck[16];
std::map<std::string, int> options;

__global__ void bfs_visit(Node* nodes, int* edges, bool* mask, bool* updating, bool* visited, int* cost, int n) {
    int tid = blockIdx.x * MAX_THREADS_PER_BLOCK + threadIdx.x;
    if (tid < n && mask[tid]) {
        mask[tid] = false;
        for (int i = nodes[tid].starting; i < (nodes[tid].no_of_edges + nodes[tid].starting); i++) {
            int id = edges[i];
            if (!visited[id]) {
                cost[id] = cost[tid] + 1;
                updating[id] = true;
            }
        }
    }
}
__global__ void spmv_csr(const int rows, const int* ptr, const int* indices, const double* data, const double* x, double* y) {
    int row = blockDim.x * blockIdx.x + threadIdx.x;
    if (row < rows) {
        double dot = 0;
        for (int jj = ptr[row]; jj < ptr[row + 1]; jj++) dot += data[jj] * x[indices[jj]];
        y[row] += dot;
    }
}
template <int VECTOR>
__global__ void spmv_csr_vector(int rows, const int* __restrict__ ptr, const int* __restrict__ indices, const float* __restrict__ data,
                                const float* __restrict__ x, float* __restrict__ y) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % VECTOR, row = thread / VECTOR;
    float sum = 0;
    if (row < rows)
        for (int j = ptr[row] + lane; j < ptr[row + 1]; j += VECTOR) sum += data[j] * x[indices[j]];
    for (int d = VECTOR / 2; d; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d, VECTOR);
    if (row < rows && lane == 0) y[row] = sum;
}
__global__ void lu_diagonal(float* m, int dim, int offset) {
    __shared__ float shadow[BLOCK_SIZE][BLOCK_SIZE];
    int at = offset * dim + offset;
    for (int i = 0; i < BLOCK_SIZE; i++) shadow[i][threadIdx.x] = m[at + i * dim + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < BLOCK_SIZE - 1; i++) {
        if (threadIdx.x > i) {
            for (int j = 0; j < i; j++) shadow[threadIdx.x][i] -= shadow[threadIdx.x][j] * shadow[j][i];
            shadow[threadIdx.x][i] /= shadow[i][i];
        }
        __syncthreads();
        if (threadIdx.x > i)
            for (int j = 0; j < i + 1; j++) shadow[i + 1][threadIdx.x] -= shadow[i + 1][j] * shadow[j][threadIdx.x];
        __syncthreads();
    }
    for (int i = 0; i < BLOCK_SIZE; i++) m[at + i * dim + threadIdx.x] = shadow[i][threadIdx.x];
}
// Alignment of two sequences: cells of an anti-diagonal are computed together.
__device__ __host__ int maximum(int a, int b, int c) { int k = a <= b ? b : a; return k <= c ? c : k; }
__global__ void align(const int* reference, int* score, int n, int penalty) {
    __shared__ int temp[BLOCK_SIZE + 1][BLOCK_SIZE + 1];
    int tx = threadIdx.x;
    if (tx == 0) temp[0][0] = 0;
    temp[tx + 1][0] = -(tx + 1) * penalty;
    temp[0][tx + 1] = -(tx + 1) * penalty;
    __syncthreads();
    for (int m = 0; m < 2 * BLOCK_SIZE - 1; m++) {
        int y = m - tx;
        if (y >= 0 && y < BLOCK_SIZE)
            temp[y + 1][tx + 1] = maximum(temp[y][tx] + reference[y * n + tx], temp[y + 1][tx] - penalty, temp[y][tx + 1] - penalty);
        __syncthreads();
    }
    for (int y = 0; y < BLOCK_SIZE; y++) score[y * n + tx] = temp[y + 1][tx + 1];
}
__device__ float3 interaction(float4 bi, float4 bj, float3 ai, float eps2) {
    float3 r;
    r.x = bj.x - bi.x; r.y = bj.y - bi.y; r.z = bj.z - bi.z;
    float d2 = r.x * r.x + r.y * r.y + r.z * r.z + eps2, inv = rsqrtf(d2), s = bj.w * (inv * inv * inv);
    ai.x += r.x * s; ai.y += r.y * s; ai.z += r.z * s;
    return ai;
}
__global__ void nbody(const float4* positions, float3* accelerations, int n, float eps2) {
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 mine = i < n ? positions[i] : make_float4(0, 0, 0, 0);
    float3 acc = {0.0f, 0.0f, 0.0f};
    for (int start = 0; start < n; start += blockDim.x) {
        tile[threadIdx.x] = start + threadIdx.x < n ? positions[start + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < blockDim.x; j++) acc = interaction(mine, tile[j], acc, eps2);
        __syncthreads();
    }
    if (i < n) accelerations[i] = acc;
}
__global__ void mri_q(int numK, const float* x, const float* y, const float* z, float* Qr, float* Qi) {
    int xIndex = blockIdx.x * blockDim.x + threadIdx.x;
    float sX = x[xIndex], sY = y[xIndex], sZ = z[xIndex], sQr = Qr[xIndex], sQi = Qi[xIndex];
    int k = 0;
    if (numK % 2) {
        float arg = PIx2 * (ck[0].Kx * sX + ck[0].Ky * sY + ck[0].Kz * sZ);
        sQr += ck[0].PhiMag * cosf(arg);
        sQi += ck[0].PhiMag * sinf(arg);
        k++;
    }
    for (; k < numK; k++) {
        float arg = PIx2 * (ck[k].Kx * sX + ck[k].Ky * sY + ck[k].Kz * sZ), s, c;
        sincosf(arg, &s, &c);
        sQr += ck[k].PhiMag * c;
        sQi += ck[k].PhiMag * s;
    }
    Qr[xIndex] = sQr;
    Qi[xIndex] = sQi;
}
#undef min
int main(int argc, char* argv[]) {
    if (argc < 2) { options["help"] = 1; return EXIT_FAILURE; }
    nearest<<<dim3(1, 1), 64>>>(0, 0, 0, 0.f, 0.f);
}
