// attention.cu -- Y = softmax(Q K^T / sqrt(d)) V, for q, y (heads, n, d) and k, v (heads, m, d): with the scores in global
// memory, and in tiles that never leave the block. `causal`: query i sees the keys 0 to i, and n is m.
// T. Dao et al. (2022), FlashAttention, NeurIPS, sections 2.2 and 3; the order of loops is that of FlashAttention-2
// (T. Dao 2023, arXiv:2307.08691, section 3.1): a block keeps its queries, and no two blocks write the same element.

#define NOTHING __int_as_float(0xff800000)  // minus infinity: the largest of no scores at all

// Sum, or largest, over the `width` lanes (a power of two) that are neighbours in x; every lane gets it.
__device__ float sum_over(float x, int width) {
    for (int d = width / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ float most_over(float x, int width) {
    for (int d = width / 2; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

// A warp per query: its scores go to global memory, come back for the softmax, and again for the weighted sum. Every
// query reads all keys and values.
extern "C" __global__ void attention_naive(const float* q, const float* k, const float* v, float* s, float* y, int n, int m,
                                           int d, int causal) {
    int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x, stop = causal ? row + 1 : m;
    if (row >= n) return;  // a whole warp leaves together
    long at = (long)blockIdx.y * n + row, keys = (long)blockIdx.y * m * d;
    float scale = rsqrtf((float)d), top = NOTHING, total = 0.0f;
    q += at * d, s += at * m, y += at * d, k += keys, v += keys;
    for (int j = 0; j < stop; j++) {
        float sum = 0.0f;
        for (int c = lane; c < d; c += 32) sum += q[c] * k[j * d + c];
        sum = sum_over(sum, 32) * scale;
        if (lane == 0) s[j] = sum;
        top = fmaxf(top, sum);
    }
    __syncwarp();
    for (int j = lane; j < stop; j += 32) {
        float e = expf(s[j] - top);
        total += e;
        s[j] = e;
    }
    total = sum_over(total, 32);
    __syncwarp();
    for (int c = lane; c < d; c += 32) {
        float sum = 0.0f;
        for (int j = 0; j < stop; j++) sum += s[j] * v[j * d + c];
        y[c] = sum / total;
    }
}

// B x D numbers of B rows, B x B threads; rows that are not there are zero.
template <int B, int D>
__device__ void fetch(float (*tile)[D + 1], const float* x, int first, int n, float scale) {
    int row = first + threadIdx.y;
    for (int c = threadIdx.x; c < D; c += B) tile[threadIdx.y][c] = row < n ? x[row * D + c] * scale : 0.0f;
}

// The score of this thread's query and key, minus infinity where there is none.
template <int D>
__device__ float score(const float* query, const float* key, int row, int col, int m, int causal) {
    float sum = 0.0f;
    for (int c = 0; c < D; c++) sum += query[c] * key[c];
    return col < m && (!causal || col <= row) ? sum : NOTHING;
}

// A block has B queries and goes over the keys, B at a time. What a row has seen so far is (top, total, out): its largest
// score, and sums relative to that; when a larger score comes, both are scaled down. Scores exist in p only, B x B.
template <int B, int D>
__global__ void attention_tiled(const float* q, const float* k, const float* v, float* y, float* lse, int n, int m,
                                int causal) {
    __shared__ float qs[B][D + 1], ks[B][D + 1], vs[B][D + 1], p[B][B];
    int tx = threadIdx.x, ty = threadIdx.y, begin = blockIdx.x * B, row = begin + ty;
    long rows = (long)blockIdx.y * n, keys = (long)blockIdx.y * m * D;
    float top = NOTHING, total = 0.0f, out[D / B] = {};
    fetch<B, D>(qs, q + rows * D, begin, n, rsqrtf((float)D));
    for (int first = 0, stop = causal ? min(m, begin + B) : m; first < stop; first += B) {
        fetch<B, D>(ks, k + keys, first, m, 1.0f);
        fetch<B, D>(vs, v + keys, first, m, 1.0f);
        __syncthreads();
        float s = score<D>(qs[ty], ks[tx], row, first + tx, m, causal);
        float above = fmaxf(top, most_over(s, B));  // finite: every row sees key 0, in the first tile
        float less = expf(top - above), e = expf(s - above);
        p[ty][tx] = e;
        total = total * less + sum_over(e, B);
        top = above;
        __syncthreads();
        for (int j = 0; j < D / B; j++) {
            out[j] *= less;
            for (int t = 0; t < B; t++) out[j] += p[ty][t] * vs[t][tx + j * B];
        }
        __syncthreads();
    }
    if (row >= n) return;
    for (int j = 0; j < D / B; j++) y[(rows + row) * D + tx + j * B] = out[j] / total;
    if (tx == 0) lse[rows + row] = top + logf(total);
}

// Backward, by queries: probabilities are computed again from lse; inner = rowsum(dy y) is kept for the keys' kernel.
template <int B, int D>
__global__ void attention_tiled_dq(const float* q, const float* k, const float* v, const float* y, const float* lse,
                                   const float* dy, float* inner, float* dq, int n, int m, int causal) {
    __shared__ float qs[B][D + 1], ks[B][D + 1], vs[B][D + 1], dys[B][D + 1], ds[B][B];
    int tx = threadIdx.x, ty = threadIdx.y, begin = blockIdx.x * B, row = begin + ty;
    long rows = (long)blockIdx.y * n, keys = (long)blockIdx.y * m * D;
    float scale = rsqrtf((float)D), ends = row < n ? lse[rows + row] : -NOTHING, mean = 0.0f, out[D / B] = {};
    fetch<B, D>(qs, q + rows * D, begin, n, scale);
    fetch<B, D>(dys, dy + rows * D, begin, n, 1.0f);
    for (int c = tx; c < D; c += B) mean += row < n ? y[(rows + row) * D + c] * dys[ty][c] : 0.0f;
    mean = sum_over(mean, B);
    for (int first = 0, stop = causal ? min(m, begin + B) : m; first < stop; first += B) {
        fetch<B, D>(ks, k + keys, first, m, 1.0f);
        fetch<B, D>(vs, v + keys, first, m, 1.0f);
        __syncthreads();
        float dp = 0.0f, p = expf(score<D>(qs[ty], ks[tx], row, first + tx, m, causal) - ends);
        for (int c = 0; c < D; c++) dp += dys[ty][c] * vs[tx][c];
        ds[ty][tx] = p * (dp - mean);
        __syncthreads();
        for (int j = 0; j < D / B; j++)
            for (int t = 0; t < B; t++) out[j] += ds[ty][t] * ks[t][tx + j * B];
        __syncthreads();
    }
    if (row >= n) return;
    for (int j = 0; j < D / B; j++) dq[(rows + row) * D + tx + j * B] = out[j] * scale;
    if (tx == 0) inner[rows + row] = mean;
}

// Backward, by keys: a block has B keys and goes over the queries that see them. Launched after attention_tiled_dq.
template <int B, int D>
__global__ void attention_tiled_dkv(const float* q, const float* k, const float* v, const float* lse, const float* dy,
                                    const float* inner, float* dk, float* dv, int n, int m, int causal) {
    __shared__ float qs[B][D + 1], ks[B][D + 1], vs[B][D + 1], dys[B][D + 1], ps[B][B], ds[B][B];
    int tx = threadIdx.x, ty = threadIdx.y, begin = blockIdx.x * B, key = begin + ty;
    long rows = (long)blockIdx.y * n, keys = (long)blockIdx.y * m * D;
    float outk[D / B] = {}, outv[D / B] = {};
    fetch<B, D>(ks, k + keys, begin, m, 1.0f);
    fetch<B, D>(vs, v + keys, begin, m, 1.0f);
    for (int first = causal ? begin : 0; first < n; first += B) {
        int row = first + ty;
        fetch<B, D>(qs, q + rows * D, first, n, rsqrtf((float)D));
        fetch<B, D>(dys, dy + rows * D, first, n, 1.0f);
        float ends = row < n ? lse[rows + row] : -NOTHING, mean = row < n ? inner[rows + row] : 0.0f;
        __syncthreads();
        float dp = 0.0f, p = expf(score<D>(qs[ty], ks[tx], row, begin + tx, m, causal) - ends);
        for (int c = 0; c < D; c++) dp += dys[ty][c] * vs[tx][c];
        ps[ty][tx] = p;
        ds[ty][tx] = p * (dp - mean);
        __syncthreads();
        for (int j = 0; j < D / B; j++)
            for (int t = 0; t < B; t++) {
                outk[j] += ds[t][ty] * qs[t][tx + j * B];
                outv[j] += ps[t][ty] * dys[t][tx + j * B];
            }
        __syncthreads();
    }
    if (key >= m) return;
    for (int j = 0; j < D / B; j++) {
        dk[keys + (long)key * D + tx + j * B] = outk[j];
        dv[keys + (long)key * D + tx + j * B] = outv[j];
    }
}
