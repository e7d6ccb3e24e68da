// elementwise.cu -- one thread per element, or per four. All of these are bound by memory: a float4 moves the same
// bytes with a quarter of the instructions.

// y = a x + y. The loop strides by the whole grid, so any grid is right, and neighbours stay neighbours.
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

// The same, four elements at a time; n is a multiple of 4.
extern "C" __global__ void saxpy4(float a, const float4* x, float4* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        float4 u = x[i], v = y[i];
        v.x += a * u.x;
        v.y += a * u.y;
        v.z += a * u.z;
        v.w += a * u.w;
        y[i] = v;
    }
}

// y = max(x + bias, 0) for rows of `cols`: one pass over memory where two kernels would make two. Written as a choice, not
// as fmaxf, which takes 0 for the larger of 0 and NaN: a training run that has gone astray would look healthy.
__device__ float relu(float v) { return v < 0.0f ? 0.0f : v; }

extern "C" __global__ void bias_relu(const float* x, const float* bias, float* y, int rows, int cols) {
    int n = rows * cols;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = relu(x[i] + bias[i % cols]);
}

// The same, four columns at a time; cols is a multiple of 4.
extern "C" __global__ void bias_relu4(const float4* x, const float4* bias, float4* y, int rows, int cols) {
    int width = cols / 4, n = rows * width;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i], b = bias[i % width];
        v.x = relu(v.x + b.x);
        v.y = relu(v.y + b.y);
        v.z = relu(v.z + b.z);
        v.w = relu(v.w + b.w);
        y[i] = v;
    }
}

// The way back through bias and ReLU: dy = 0 where y is not above 0, if `masked`; db = the columns' sums, or db += them.
// A block has 32 columns of `rows` rows, its eight rows of threads every eighth each, and writes its own row of db.
template <bool masked>
__global__ void bias_grad(const float* y, float* dy, float* db, int rows, int cols, int add, int all_rows) {
    __shared__ float part[8][32];
    int j = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    int begin = blockIdx.y * rows, end = min(begin + rows, all_rows);
    for (int row = begin + threadIdx.y; row < end && j < cols; row += 8) {
        int i = row * cols + j;
        float d = dy[i];
        if (masked) dy[i] = d *= y[i] > 0.0f ? 1.0f : 0.0f;  // a NaN stays one
        sum += d;
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || j >= cols) return;
    for (int k = 1; k < 8; k++) sum += part[k][threadIdx.x];
    int at = blockIdx.y * cols + j;
    db[at] = add ? db[at] + sum : sum;
}
