// C = alpha A B + beta C, from one thread per element to warps that each hold a tile of results.
#include <cassert>
#include <cstdlib>
#include <iostream>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>

#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))
#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define FETCH_FLOAT4(pointer) (reinterpret_cast<float4*>(&(pointer))[0])
#define BLOCK 16

typedef unsigned int uint;
const int WARPSIZE = 32;

void reference(cublasHandle_t handle, int n, float* a, float* b, float* c) {
    float alpha = 1.0f, beta = 0.0f;
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, b, n, a, n, &beta, c, n);
}

__global__ void sgemm_naive(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
    const uint x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < M && y < N) {
        float tmp = 0.0;
        for (int i = 0; i < K; ++i) tmp += A[x * K + i] * B[i * N + y];
        C[x * N + y] = alpha * tmp + beta * C[x * N + y];
    }
}
template <const uint BLOCKSIZE>
__global__ void sgemm_coalesced(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
    const int row = blockIdx.x * BLOCKSIZE + (threadIdx.x / BLOCKSIZE), col = blockIdx.y * BLOCKSIZE + (threadIdx.x % BLOCKSIZE);
    if (row < M && col < N) {
        float tmp = 0.0;
        for (int i = 0; i < K; ++i) tmp += A[row * K + i] * B[i * N + col];
        C[row * N + col] = alpha * tmp + beta * C[row * N + col];
    }
}
template <const int BLOCKSIZE>
__global__ void sgemm_shared(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
    const uint cRow = blockIdx.x, cCol = blockIdx.y;
    __shared__ float As[BLOCKSIZE * BLOCKSIZE];
    __shared__ float Bs[BLOCKSIZE * BLOCKSIZE];
    const uint threadCol = threadIdx.x % BLOCKSIZE, threadRow = threadIdx.x / BLOCKSIZE;
    A += cRow * BLOCKSIZE * K;
    B += cCol * BLOCKSIZE;
    C += cRow * BLOCKSIZE * N + cCol * BLOCKSIZE;
    float tmp = 0.0;
    for (int bk = 0; bk < K; bk += BLOCKSIZE) {
        As[threadRow * BLOCKSIZE + threadCol] = A[threadRow * K + threadCol];
        Bs[threadRow * BLOCKSIZE + threadCol] = B[threadRow * N + threadCol];
        __syncthreads();
        A += BLOCKSIZE;
        B += BLOCKSIZE * N;
        for (int dot = 0; dot < BLOCKSIZE; ++dot) tmp += As[threadRow * BLOCKSIZE + dot] * Bs[dot * BLOCKSIZE + threadCol];
        __syncthreads();
    }
    C[threadRow * N + threadCol] = alpha * tmp + beta * C[threadRow * N + threadCol];
}
// Any size: what lies outside counts as zero.
__global__ void matmul_guarded(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[BLOCK][BLOCK], Bs[BLOCK][BLOCK + 1];
    int row = blockIdx.y * BLOCK + threadIdx.y, col = blockIdx.x * BLOCK + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < CEIL_DIV(K, BLOCK); t++) {
        int k = t * BLOCK;
        As[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < K ? A[OFFSET(row, k + threadIdx.x, K)] : 0.f;
        Bs[threadIdx.y][threadIdx.x] = col < N && k + threadIdx.y < K ? B[OFFSET(k + threadIdx.y, col, N)] : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BLOCK; ++i) sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[OFFSET(row, col, N)] = sum;
}
template <const int BM, const int BN, const int BK, const int TM>
__global__ void sgemm_1d_tile(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
    const uint cRow = blockIdx.y, cCol = blockIdx.x;
    const int threadCol = threadIdx.x % BN, threadRow = threadIdx.x / BN;
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    A += cRow * BM * K; B += cCol * BN; C += cRow * BM * N + cCol * BN;
    assert(BM * BK == blockDim.x);
    assert(BN * BK == blockDim.x);
    const uint innerColA = threadIdx.x % BK, innerRowA = threadIdx.x / BK;
    const uint innerColB = threadIdx.x % BN, innerRowB = threadIdx.x / BN;
    float results[TM] = {0.0};
    for (uint bk = 0; bk < K; bk += BK) {
        As[innerRowA * BK + innerColA] = A[innerRowA * K + innerColA];
        Bs[innerRowB * BN + innerColB] = B[innerRowB * N + innerColB];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (uint dot = 0; dot < BK; ++dot) {
            float b = Bs[dot * BN + threadCol];
            for (uint r = 0; r < TM; ++r) results[r] += As[(threadRow * TM + r) * BK + dot] * b;
        }
        __syncthreads();
    }
    for (uint r = 0; r < TM; ++r) {
        float& c = C[(threadRow * TM + r) * N + threadCol];
        c = alpha * results[r] + beta * c;
    }
}
// A is kept transposed, and global memory is read four floats at a time.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
    sgemm_2d_vectorised(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    const int threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
    A += blockIdx.y * BM * K; B += blockIdx.x * BN; C += blockIdx.y * BM * N + blockIdx.x * BN;
    const uint innerRowA = threadIdx.x / (BK / 4), innerColA = threadIdx.x % (BK / 4);
    const uint innerRowB = threadIdx.x / (BN / 4), innerColB = threadIdx.x % (BN / 4);
    constexpr int THREADS = (BM * BN) / (TM * TN), strideA = THREADS * 4 / BK, strideB = THREADS * 4 / BN;
    float results[TM * TN] = {0.0}, regM[TM] = {0.0}, regN[TN] = {0.0};
    for (uint bk = 0; bk < K; bk += BK) {
        for (uint o = 0; o + strideA <= BM; o += strideA) {
            float4 t = FETCH_FLOAT4(A[(innerRowA + o) * K + innerColA * 4]);
            As[(innerColA * 4 + 0) * BM + innerRowA + o] = t.x;
            As[(innerColA * 4 + 1) * BM + innerRowA + o] = t.y;
            As[(innerColA * 4 + 2) * BM + innerRowA + o] = t.z;
            As[(innerColA * 4 + 3) * BM + innerRowA + o] = t.w;
        }
        for (uint o = 0; o + strideB <= BK; o += strideB)
            FETCH_FLOAT4(Bs[(innerRowB + o) * BN + innerColB * 4]) = FETCH_FLOAT4(B[(innerRowB + o) * N + innerColB * 4]);
        __syncthreads();
        A += BK;
        B += BK * N;
        for (uint dot = 0; dot < BK; ++dot) {
            for (uint i = 0; i < TM; ++i) regM[i] = As[dot * BM + threadRow * TM + i];
            for (uint i = 0; i < TN; ++i) regN[i] = Bs[dot * BN + threadCol * TN + i];
            for (uint m = 0; m < TM; ++m)
                for (uint n = 0; n < TN; ++n) results[m * TN + n] += regM[m] * regN[n];
        }
        __syncthreads();
    }
    for (uint m = 0; m < TM; m += 1)
        for (uint n = 0; n < TN; n += 4) {
            float4 t = FETCH_FLOAT4(C[(threadRow * TM + m) * N + threadCol * TN + n]);
            t.x = alpha * results[m * TN + n] + beta * t.x;
            t.y = alpha * results[m * TN + n + 1] + beta * t.y;
            t.z = alpha * results[m * TN + n + 2] + beta * t.z;
            t.w = alpha * results[m * TN + n + 3] + beta * t.w;
            FETCH_FLOAT4(C[(threadRow * TM + m) * N + threadCol * TN + n]) = t;
        }
}
namespace wt {
template <const int BM, const int BN, const int BK>
__device__ void load(int N, int K, const float* A, const float* B, float* As, float* Bs) {
    for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) As[(i % BK) * BM + i / BK] = A[(i / BK) * K + i % BK];
    for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) Bs[i] = B[(i / BN) * N + i % BN];
}
template <const int BM, const int BN, const int BK, const int WM, const int WN, const int TM, const int TN>
__device__ void multiply(float* results, const float* As, const float* Bs, uint warpRow, uint warpCol, uint row, uint col) {
    float regM[TM], regN[TN];
    for (uint dot = 0; dot < BK; ++dot) {
        for (uint i = 0; i < TM; ++i) regM[i] = As[dot * BM + warpRow * WM + row * TM + i];
        for (uint i = 0; i < TN; ++i) regN[i] = Bs[dot * BN + warpCol * WN + col * TN + i];
        for (uint m = 0; m < TM; ++m)
            for (uint n = 0; n < TN; ++n) results[m * TN + n] += regM[m] * regN[n];
    }
}
}  // namespace wt
template <const int BM, const int BN, const int BK, const int WM, const int WN, const int TM, const int TN>
__global__ void sgemm_warp_tile(int M, int N, int K, const float* A, const float* B, float* C) {
    const uint warp = threadIdx.x / WARPSIZE, warpCol = warp % (BN / WN), warpRow = warp / (BN / WN);
    const uint lane = threadIdx.x % WARPSIZE, col = lane % (WN / TN), row = lane / (WN / TN);
    __shared__ float As[2][BM * BK], Bs[2][BK * BN];  // one is read while the next is filled
    A += blockIdx.y * BM * K; B += blockIdx.x * BN; C += blockIdx.y * BM * N + blockIdx.x * BN;
    float results[TM * TN] = {0.0f};
    wt::load<BM, BN, BK>(N, K, A, B, As[0], Bs[0]);
    __syncthreads();
    int now = 0;
    for (int bk = BK; bk <= K; bk += BK, now ^= 1) {
        if (bk < K) wt::load<BM, BN, BK>(N, K, A + bk, B + bk * N, As[now ^ 1], Bs[now ^ 1]);
        wt::multiply<BM, BN, BK, WM, WN, TM, TN>(results, As[now], Bs[now], warpRow, warpCol, row, col);
        __syncthreads();
    }
    for (uint m = 0; m < TM; ++m)
        for (uint n = 0; n < TN; ++n) C[(warpRow * WM + row * TM + m) * N + warpCol * WN + col * TN + n] = results[m * TN + n];
}
__global__ void gemv_warp_per_row(const float* A, const float* x, float* y, int M, int N) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (row >= M) return;
    float s = 0;
    for (int j = lane * 4; j + 3 < N; j += 128) {
        float4 a = *(const float4*)&A[row * N + j], b = *(const float4*)&x[j];
        s += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
    if (lane == 0) y[row] = s;
}
int main(int argc, char** argv) {
    if (argc != 2) { std::cerr << "Please select a kernel (range 0 - 11)" << std::endl; exit(EXIT_FAILURE); }
    dim3 grid(CEIL_DIV(1024, 32), CEIL_DIV(1024, 32)), block(32 * 32);
    sgemm_coalesced<32><<<grid, block>>>(1024, 1024, 1024, 1.f, nullptr, nullptr, 0.f, nullptr);
}
