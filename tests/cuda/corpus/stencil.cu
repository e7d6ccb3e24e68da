// Neighbours in one and two dimensions; a transpose.
#include <cstdint>
#include <cmath>
#include <cuda.h>
#include "device_launch_parameters.h"

#define RADIUS 3
#define TILE_DIM 32
#define BLOCK_ROWS 8
#define MASK_WIDTH 5
#define O_TILE 12

__constant__ float c_filter[2 * RADIUS + 1];
__constant__ float c_mask[MASK_WIDTH][MASK_WIDTH];

__global__ void convolve_row(const float* in, float* out, int n) {
    __shared__ float s[128 + 2 * RADIUS];
    int g = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x + RADIUS;
    s[l] = g < n ? in[g] : 0.0f;
    if (threadIdx.x < RADIUS) {
        s[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0.0f;
        s[l + blockDim.x] = g + blockDim.x < n ? in[g + blockDim.x] : 0.0f;
    }
    __syncthreads();
    if (g >= n) return;
    float sum = 0;
    for (int k = -RADIUS; k <= RADIUS; k++) sum += c_filter[k + RADIUS] * s[l + k];
    out[g] = sum;
}
// The block loads more than it computes; its outermost threads only load.
__global__ void convolve_tile(const float* image, float* out, int height, int width) {
    __shared__ float tile[O_TILE + MASK_WIDTH - 1][O_TILE + MASK_WIDTH - 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row_o = blockIdx.y * O_TILE + ty, col_o = blockIdx.x * O_TILE + tx;
    int row_i = row_o - MASK_WIDTH / 2, col_i = col_o - MASK_WIDTH / 2;
    if (row_i >= 0 && row_i < height && col_i >= 0 && col_i < width) tile[ty][tx] = image[row_i * width + col_i];
    else tile[ty][tx] = 0.0f;
    __syncthreads();
    if (ty < O_TILE && tx < O_TILE && row_o < height && col_o < width) {
        float s = 0.0f;
        for (int i = 0; i < MASK_WIDTH; i++)
            for (int j = 0; j < MASK_WIDTH; j++) s += c_mask[i][j] * tile[i + ty][j + tx];
        out[row_o * width + col_o] = s;
    }
}
__global__ void heat2d(const double* u, double* v, int n, double a) {
    int j = blockIdx.x * blockDim.x + threadIdx.x + 1, i = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (i < n - 1 && j < n - 1)
        v[i * n + j] = u[i * n + j] + a * (u[(i - 1) * n + j] + u[(i + 1) * n + j] + u[i * n + j - 1] + u[i * n + j + 1] - 4.0 * u[i * n + j]);
}
__global__ void transpose_padded(float* odata, const float* idata, int width, int height) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < height && y + j < width) odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void bilinear(const float* in, float* out, int w, int h, int ow, int oh) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= ow || y >= oh) return;
    float fx = x * (w - 1.0f) / (ow - 1), fy = y * (h - 1.0f) / (oh - 1);
    int x0 = (int)floorf(fx), y0 = __float2int_rd(fy), x1 = min(x0 + 1, w - 1), y1 = min(y0 + 1, h - 1);
    float ax = fx - x0, ay = fy - y0;
    out[y * ow + x] = (1 - ay) * ((1 - ax) * in[y0 * w + x0] + ax * in[y0 * w + x1]) + ay * ((1 - ax) * in[y1 * w + x0] + ax * in[y1 * w + x1]);
}
