// Neighbours in one, two and three dimensions; images; transposes.
#include <cstdint>
#include <cmath>
#include <cuda.h>
#include "device_launch_parameters.h"

#define RADIUS 3
#define TILE_DIM 32
#define BLOCK_ROWS 8
#define MASK_WIDTH 5
#define O_TILE 12
#define IDX2(r, c, w) ((r) * (w) + (c))
#define IN_RANGE(x, min, max) ((x) >= (min) && (x) <= (max))
#define MIN(a, b) ((a) <= (b) ? (a) : (b))

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
__global__ void box_blur(const uint8_t* in, uint8_t* out, int w, int h, int r) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int sum = 0, count = 0;
    for (int dy = -r; dy <= r; ++dy)
        for (int dx = -r; dx <= r; ++dx) {
            int xx = x + dx, yy = y + dy;
            if (IN_RANGE(xx, 0, w - 1) && IN_RANGE(yy, 0, h - 1)) { sum += in[IDX2(yy, xx, w)]; ++count; }
        }
    out[IDX2(y, x, w)] = (uint8_t)(sum / count);
}
__global__ void to_grey(const uchar4* rgba, unsigned char* grey, int pixels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pixels) {
        uchar4 p = rgba[i];
        grey[i] = (unsigned char)(0.299f * p.x + 0.587f * p.y + 0.114f * p.z);
    }
}
__global__ void sobel(const float* in, float* out, int w, int h) {
    int x = threadIdx.x + blockIdx.x * blockDim.x, y = threadIdx.y + blockIdx.y * blockDim.y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    auto at = [&](int dx, int dy) { return in[(y + dy) * w + x + dx]; };
    float gx = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1);
    float gy = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
    out[y * w + x] = sqrtf(gx * gx + gy * gy);
}
__global__ void median3x3(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float v[9];
    int k = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) v[k++] = in[min(max(y + dy, 0), h - 1) * w + min(max(x + dx, 0), w - 1)];
    for (int i = 0; i <= 4; i++)
        for (int j = i + 1; j < 9; j++)
            if (v[j] < v[i]) { float t = v[i]; v[i] = v[j]; v[j] = t; }
    out[y * w + x] = v[4];
}
__global__ void heat2d(const double* u, double* v, int n, double a) {
    int j = blockIdx.x * blockDim.x + threadIdx.x + 1, i = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (i < n - 1 && j < n - 1)
        v[i * n + j] = u[i * n + j] + a * (u[(i - 1) * n + j] + u[(i + 1) * n + j] + u[i * n + j - 1] + u[i * n + j + 1] - 4.0 * u[i * n + j]);
}
// The column of a thread slides through z in registers.
__global__ void stencil3d(float c0, float c1, const float* A0, float* Anext, int nx, int ny, int nz) {
#define Index3D(i, j, k) ((i) + nx * ((j) + ny * (k)))
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
    float bottom = A0[Index3D(i, j, 0)], current = A0[Index3D(i, j, 1)];
    for (int k = 1; k < nz - 1; k++) {
        float top = A0[Index3D(i, j, k + 1)];
        Anext[Index3D(i, j, k)] = c1 * (top + bottom + A0[Index3D(i + 1, j, k)] + A0[Index3D(i - 1, j, k)] +
                                        A0[Index3D(i, j + 1, k)] + A0[Index3D(i, j - 1, k)]) - current * c0;
        bottom = current;
        current = top;
    }
}
// Several steps of dynamic programming before the edge of a block has become wrong.
__global__ void path_steps(int iterations, const int* wall, const int* src, int* results, int cols, int border) {
    __shared__ int prev[64];
    __shared__ int result[64];
    int tx = threadIdx.x, small = blockDim.x - iterations * 2, begin = small * blockIdx.x - border;
    int xidx = begin + tx;
    bool valid = IN_RANGE(xidx, 0, cols - 1), computed = false;
    if (valid) prev[tx] = src[xidx];
    __syncthreads();
    for (int i = 0; i < iterations; i++) {
        computed = false;
        if (IN_RANGE(tx, i + 1, (int)blockDim.x - i - 2) && valid) {
            computed = true;
            int left = prev[xidx > 0 ? tx - 1 : tx], up = prev[tx], right = prev[xidx < cols - 1 ? tx + 1 : tx];
            int shortest = MIN(left, up);
            shortest = MIN(shortest, right);
            result[tx] = shortest + wall[cols * i + xidx];
        }
        __syncthreads();
        if (i == iterations - 1) break;
        if (computed) prev[tx] = result[tx];
        __syncthreads();
    }
    if (computed) results[xidx] = result[tx];
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
// Banks and blocks in another order: diagonal in both.
__global__ void transpose_diagonal(int* odata, const int* idata, int n) {
    __shared__ int tile[16][16];
    int by = blockIdx.x, bx = (blockIdx.x + blockIdx.y) % gridDim.x;
    int x = bx * 16 + threadIdx.x, y = by * 16 + threadIdx.y;
    tile[threadIdx.y][(threadIdx.x + threadIdx.y) % 16] = idata[y * n + x];
    __syncthreads();
    odata[(bx * 16 + threadIdx.y) * n + by * 16 + threadIdx.x] = tile[threadIdx.x][(threadIdx.x + threadIdx.y) % 16];
}
__global__ void game_of_life(const unsigned char* now, unsigned char* next, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int alive = 0;
    for (int d = 0; d < 9; d++)
        if (d != 4) alive += now[((y + d / 3 - 1 + h) % h) * w + (x + d % 3 - 1 + w) % w];
    switch (alive) {
        case 2: next[y * w + x] = now[y * w + x]; break;
        case 3: next[y * w + x] = 1; break;
        default: next[y * w + x] = 0;
    }
}
__global__ void im2col(const float* image, float* columns, int c, int h, int w, int k, int oh, int ow) {
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < c * oh * ow; index += blockDim.x * gridDim.x) {
        int x = index % ow, y = index / ow % oh, channel = index / ow / oh;
        float* out = columns + ((size_t)channel * k * k * oh + y) * ow + x;
        for (int i = 0; i < k; ++i)
            for (int j = 0; j < k; ++j, out += oh * ow) *out = image[(channel * h + y + i) * w + x + j];
    }
}
__global__ void max_pool(const float* __restrict__ x, float* y, int* where, int w, int ow, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    int best = (i / ow) * 2 * w + (i % ow) * 2;
    for (int d : {1, w, w + 1})
        if (x[(i / ow) * 2 * w + (i % ow) * 2 + d] > x[best]) best = (i / ow) * 2 * w + (i % ow) * 2 + d;
    y[i] = x[best];
    where[i] = best;
}
__global__ void bilinear(const float* in, float* out, int w, int h, int ow, int oh) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= ow || y >= oh) return;
    float fx = x * (w - 1.0f) / (ow - 1), fy = y * (h - 1.0f) / (oh - 1);
    int x0 = (int)floorf(fx), y0 = __float2int_rd(fy), x1 = min(x0 + 1, w - 1), y1 = min(y0 + 1, h - 1);
    float ax = fx - x0, ay = fy - y0;
    out[y * ow + x] = (1 - ay) * ((1 - ax) * in[y0 * w + x0] + ax * in[y0 * w + x1]) + ay * ((1 - ax) * in[y1 * w + x0] + ax * in[y1 * w + x1]);
}
