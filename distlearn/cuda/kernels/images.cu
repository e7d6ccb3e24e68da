// images.cu -- convolution and pooling of images (n, h, w, c) as a network launches them: channels last. A thread has one
// element of the result, and neighbours have neighbouring channels, so accesses coalesce however small the images are.

// The matrix of windows, for a convolution as one product: col[n oh ow][kh kw c]; 0 beyond the border.
extern "C" __global__ void windows(const float* x, float* col, int h, int w, int c, int oh, int ow, int kh, int kw, int sy,
                                   int sx, int top, int left, int size) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x) {
        int ch = at % c, i = at / c;
        int v = i % kw, u = i / kw % kh, j = i / (kw * kh) % ow, k = i / (kw * kh * ow) % oh, n = i / (kw * kh * ow * oh);
        int row = k * sy + u - top, column = j * sx + v - left;
        bool inside = row >= 0 && row < h && column >= 0 && column < w;
        col[at] = inside ? x[((n * h + row) * w + column) * c + ch] : 0.0f;
    }
}

// Its transpose: every pixel adds what the windows that hold it have there.
extern "C" __global__ void add_windows(const float* col, float* dx, int h, int w, int c, int oh, int ow, int kh, int kw,
                                       int sy, int sx, int top, int left, int size) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x) {
        int ch = at % c, i = at / c, column = i % w + left, row = i / w % h + top, n = i / (w * h);
        float sum = 0.0f;
        for (int u = row % sy; u < kh && u <= row; u += sy)
            for (int v = column % sx; v < kw && v <= column; v += sx) {
                int k = (row - u) / sy, j = (column - v) / sx;
                if (k < oh && j < ow) sum += col[((((n * oh + k) * ow + j) * kh + u) * kw + v) * c + ch];
            }
        dx[at] = sum;
    }
}

// The largest value of each window, and which it was: of equal ones the upper in the leftmost column. A NaN is the largest.
extern "C" __global__ void max_pool(const float* x, float* y, int* won, int h, int w, int c, int oh, int ow, int kh, int kw,
                                    int sy, int sx, int top, int left, int size) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x) {
        int ch = at % c, i = at / c, j = i % ow, k = i / ow % oh, n = i / (ow * oh), best_at = -1;
        float best = __int_as_float(0xff800000);  // minus infinity
        for (int v = 0; v < kw; v++)
            for (int u = 0; u < kh; u++) {
                int row = k * sy + u - top, column = j * sx + v - left;
                if (row < 0 || row >= h || column < 0 || column >= w) continue;
                float value = x[((n * h + row) * w + column) * c + ch];
                if (best_at < 0 || value > best || (value != value && best == best)) best = value, best_at = u * kw + v;
            }
        y[at] = best;
        won[at] = best_at;
    }
}

// Its gradient: every pixel adds that of the windows in which it was the largest.
extern "C" __global__ void max_pool_back(const float* dy, const int* won, float* dx, int h, int w, int c, int oh, int ow,
                                         int kh, int kw, int sy, int sx, int top, int left, int size) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x) {
        int ch = at % c, i = at / c, column = i % w + left, row = i / w % h + top, n = i / (w * h);
        float sum = 0.0f;
        for (int u = row % sy; u < kh && u <= row; u += sy)
            for (int v = column % sx; v < kw && v <= column; v += sx) {
                int k = (row - u) / sy, j = (column - v) / sx;
                if (k >= oh || j >= ow) continue;
                int from = ((n * oh + k) * ow + j) * c + ch;
                if (won[from] == u * kw + v) sum += dy[from];
            }
        dx[at] = sum;
    }
}
