"""Wrong answers to lab 04."""

LOOP = "for (int i = first; i < n; i += threads)"
COL = "int col = blockIdx.x * blockDim.x + threadIdx.x"
ROW = "int row = blockIdx.y * blockDim.y + threadIdx.y"
SWAPPED = f"{COL.replace('col', 'row')};\n    {ROW.replace('row', 'col')}"
RETURN = "if (row >= m || col >= n) return;"
LAST_BARRIER = "__syncthreads();   // before the next tile"
FIRST_BARRIER = "__syncthreads();\n        for (int i"
TILE_A = "row < m && first + tx < k ? A[row * k + first + tx] : 0.0f"
TILE_B = "col < n && first + ty < k ? B[(first + ty) * n + col] : 0.0f"
STEP = "if (t < h) s[t] += s[t + h];\n        __syncthreads();   // the step is done"
NEIGHBOURS = "int d = blockDim.x / 2 / h;\n        if (t % (2 * d) == 0) s[t] += s[t + d];\n        __syncthreads();"
CHUNKS = "for (int i = first * (n / threads + 1); i < n && i < (first + 1) * (n / threads + 1); i++)"
ONE_ADDS = f"if (first == 0) {LOOP.replace('i += threads', 'i++')}"
ONE_MULTIPLIES = """
def matmul():
    return r'''extern "C" __global__ void matmul(const float* A, const float* B, float* C, int m, int n, int k) {
    if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y > 0) return;
    for (int row = 0; row < m; row++)
        for (int col = 0; col < n; col++) {
            float sum = 0.0f;
            for (int i = 0; i < k; i++) sum += A[row * k + i] * B[i * n + col];
            C[row * n + col] = sum;
        }
}'''
"""
SUM_HEAD = """
def block_sum():
    return r'''extern "C" __global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
"""
ONE_READS = (
    SUM_HEAD
    + """
    if (t > 0) return;
    float sum = 0.0f;
    for (int j = i; j < n && j < i + blockDim.x; j++) sum += x[j];
    out[blockIdx.x] = sum;
}'''
"""
)
ONE_SUMS = (
    SUM_HEAD
    + """
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    float sum = 0.0f;
    if (t == 0) for (int j = 0; j < blockDim.x; j++) sum += s[j];
    if (t == 0) out[blockIdx.x] = sum;
}'''
"""
)
SERIAL_32 = (
    SUM_HEAD
    + """
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (t < 32) for (int j = t + 32; j < blockDim.x; j += 32) s[t] += s[j];
    __syncthreads();
    float sum = 0.0f;
    if (t == 0) for (int j = 0; j < min(32, blockDim.x); j++) sum += s[j];
    if (t == 0) out[blockIdx.x] = sum;
}'''
"""
)
ATOMIC = (
    SUM_HEAD
    + """
    if (t == 0) s[0] = 0.0f;
    __syncthreads();
    if (i < n) atomicAdd(&s[0], x[i]);
    __syncthreads();
    if (t == 0) out[blockIdx.x] = s[0];
}'''
"""
)
GLOBAL_ATOMIC = (
    SUM_HEAD
    + """
    if (t == 0) out[blockIdx.x] = 0.0f;
    __syncthreads();
    if (i < n) atomicAdd(&out[blockIdx.x], x[i]);
}'''
"""
)
ONE_SOFTMAX = """
def softmax():
    return COMBINE + r'''extern "C" __global__ void softmax(const float* z, float* p, int k) {
    const float* row = z + blockIdx.x * k;
    if (threadIdx.x > 0) return;
    float most = row[0], sum = 0.0f;
    for (int j = 0; j < k; j++) most = fmaxf(most, row[j]);
    for (int j = 0; j < k; j++) sum += expf(row[j] - most);
    for (int j = 0; j < k; j++) p[blockIdx.x * k + j] = expf(row[j] - most) / sum;
}'''
"""
WHOLE_SOFTMAX = """
def softmax():
    return COMBINE + r'''extern "C" __global__ void softmax(const float* z, float* p, int k) {
    const float* row = z + blockIdx.x * k;
    float most = row[0], sum = 0.0f;
    for (int j = 0; j < k; j++) most = fmaxf(most, row[j]);
    for (int j = 0; j < k; j++) sum += expf(row[j] - most);
    for (int j = threadIdx.x; j < k; j += blockDim.x) p[blockIdx.x * k + j] = expf(row[j] - most) / sum;
}'''
"""
STRIDE = "for (int j = threadIdx.x; j < k; j += blockDim.x)"

MUTANTS = {
    "vector_add": [
        ("guard with <=", "i < n", "i <= n"),
        ("no guard", LOOP, "for (int i = first, r = 0; r < 3; r++, i += threads)"),
        ("no loop", LOOP, "int i = first; if (i < n)"),
        ("strides by the block", "threads = gridDim.x * blockDim.x", "threads = blockDim.x"),
        ("a piece for each thread", LOOP, CHUNKS),
        ("1024 threads only", "threads = gridDim.x * blockDim.x", "threads = 1024"),
        ("does not compile", "c[i] = a[i] + b[i];", "c[i] = a[i] + b[i]"),
        ("one thread adds all", LOOP, ONE_ADDS),
        ("one block adds all", LOOP, "if (blockIdx.x == 0) " + LOOP.replace("threads", "blockDim.x")),
        (
            "thread 0 of each block adds",
            LOOP,
            "if (threadIdx.x == 0) for (int j = first; j < n; j += threads)\n"
            "        for (int i = j; i < n && i < j + blockDim.x; i++)",
        ),
        ("counts from 1", "+ threadIdx.x,", "+ threadIdx.x + 1,"),
        ("writes nothing", "c[i] = a[i] + b[i];", "float sum = a[i] + b[i];"),
        ("adds to c", "c[i] = a[i] + b[i];", "c[i] += a[i] + b[i];"),
        ("multiplies", "a[i] + b[i];", "a[i] * b[i];"),
        ("no return", "return r'''", "code = r'''"),
        ("another name", "void vector_add(", "void add("),
        ("endless", "i += threads", "i += 0 * threads"),
        ("blocks of 256", "blockIdx.x * blockDim.x", "blockIdx.x * 256"),
        ("last one missing", "i < n;", "i < n - 1;"),
        ("every other round", "i += threads", "i += 2 * threads"),
        ("first block only", "int first = blockIdx.x * blockDim.x + threadIdx.x", "int first = threadIdx.x"),
    ],
    "matmul": [
        ("x runs down the rows", f"{COL};\n    {ROW}", SWAPPED),
        ("no guard", RETURN, ""),
        ("guards rows only", RETURN, "if (row >= m) return;"),
        ("guards columns only", RETURN, "if (col >= n) return;"),
        ("guards the wrong sides", RETURN, "if (row >= n || col >= m) return;"),
        ("B transposed", "B[i * n + col]", "B[col * n + i]"),
        ("B transposed, by k", "B[i * n + col]", "B[col * k + i]"),
        ("A transposed", "A[row * k + i]", "A[i * m + row]"),
        ("operands swapped", "A[row * k + i] * B[i * n + col]", "B[row * k + i] * A[i * n + col]"),
        ("squares only", "B[i * n + col]", "B[i * k + col]"),
        ("A by its columns", "A[row * k + i]", "A[row * n + i]"),
        ("C by k", "C[row * n + col]", "C[row * k + col]"),
        ("blocks of 32 x 8 only", "blockIdx.y * blockDim.y", "blockIdx.y * 8"),
        ("adds to what is there", "C[row * n + col] = sum", "C[row * n + col] += sum"),
        ("sum not started", "float sum = 0.0f;", "float sum;"),
        ("keeps the last term", "sum += A", "sum = A"),
        ("counts from 1", "int i = 0;", "int i = 1;"),
        ("one term too many", "i < k", "i <= k"),
        (
            "the sum is kept in C",
            "sum += A[row * k + i] * B[i * n + col];\n    C[row * n + col] = sum;",
            "C[row * n + col] = (i ? C[row * n + col] : 0) + A[row * k + i] * B[i * n + col];",
        ),
        ("one thread multiplies all", ONE_MULTIPLIES),
        ("sum over n", "i < k", "i < n"),
        ("C transposed", "C[row * n + col]", "C[col * m + row]"),
        ("first rows only", "blockIdx.y * blockDim.y + threadIdx.y", "threadIdx.y"),
        ("64 terms", "i < k", "i < 64"),
    ],
    "tiled": [
        ("no barrier before the next tile", LAST_BARRIER, ""),
        ("no barrier after fetching", FIRST_BARRIER, "for (int i"),
        ("returns early", "float sum = 0.0f;", f"float sum = 0.0f;\n    {RETURN}"),
        ("multiples of 16 only", TILE_A, "A[row * k + first + tx]"),
        ("no guard of B", TILE_B, "B[(first + ty) * n + col]"),
        ("no guard of k", "row < m && first + tx < k", "row < m"),
        ("no guard of C", "if (row < m && col < n) C", "C"),
        ("barrier inside the if", LAST_BARRIER, "if (row < m) __syncthreads();"),
        ("tile turned", "sum += a[ty][i]", "sum += a[i][ty]"),
        ("B's tile turned", "b[i][tx]", "b[tx][i]"),
        ("first tile only", "first < k; first += 16", "first < min(k, 16); first += 16"),
        ("fetches the same tile", "A[row * k + first + tx]", "A[row * k + tx]"),
        ("reads A from far away", "+= a[ty][i]", "+= a[ty][i] * 0 + A[min(row, m - 1) * k + min(first + i, k - 1)]"),
        ("two tiles at least", "first < k; first += 16", "first < (k + 31) / 32 * 32 && k > 1; first += 16"),
        ("the loop never runs", "first < k; first += 16", "first > k; first += 16"),
        ("steps of 15", "i < 16; i++", "i < 15; i++"),
        ("tiles of its own", "__shared__ float a[16][16], b", "float a[16][16]; __shared__ float b"),
        ("padding the wrong way", "float a[16][16], b[16][16]", "float a[17][16], b[16][32]"),
        ("no tiles", "def tiled():\n    return matmul().replace('matmul', 'tiled')\n"),
        ("tiles of 8", "__shared__ float a[16][16], b[16][16]", "__shared__ float a[8][8], b[8][8]"),
        ("half steps", "first += 16", "first += 8"),
        (
            "C in every pass",
            "        __syncthreads();   // before",
            "        if (row < m && col < n) C[row * n + col] = sum;\n        __syncthreads();   // before",
        ),
        ("blocks swapped", "blockIdx.x * 16 + tx, row = blockIdx.y", "blockIdx.y * 16 + tx, row = blockIdx.x"),
    ],
    "block_sum": [
        ("the race", "__syncthreads();   // the step is done", ""),
        ("no barrier after loading", "0.0f;\n    __syncthreads();", "0.0f;"),
        ("barrier inside the if", STEP, "if (t < h) {\n        s[t] += s[t + h];\n        __syncthreads(); }"),
        ("neighbours", STEP, NEIGHBOURS),
        ("no guard", "i < n ? x[i] : 0.0f", "x[i]"),
        ("blocks of 256 only", "int h = blockDim.x / 2", "int h = 128"),
        ("one thread reads all", ONE_READS),
        ("one thread adds all", ONE_SUMS),
        ("32 add one after the other", SERIAL_32),
        ("atomics in shared memory", ATOMIC),
        ("atomics in global memory", GLOBAL_ATOMIC),
        ("stops at 1", "h > 0", "h > 1"),
        ("too many threads add", "if (t < h)", "if (t <= h)"),
        ("all threads add", "if (t < h) s", "s"),
        ("loads the first block", "x[i] : 0.0f", "x[t] : 0.0f"),
        ("writes to the thread's place", "out[blockIdx.x]", "out[t]"),
        ("never writes", "if (t == 0) out[blockIdx.x] = s[0];", ""),
        ("returns before the barrier", "s[t] = i < n ? x[i] : 0.0f;", "if (i >= n) return;\n    s[t] = x[i];"),
        ("mean", "out[blockIdx.x] = s[0]", "out[blockIdx.x] = s[0] / blockDim.x"),
        ("one step too many", "h = blockDim.x / 2", "h = blockDim.x"),
        ("all write", "if (t == 0) out", "out"),
        ("private", "__shared__ float s", "float s"),
        ("missing ones are 1", ": 0.0f", ": 1.0f"),
    ],
    "softmax": [
        ("overflows", "most = combine(s, most, true);", "most = 0.0f;"),
        ("not divided", "expf(row[j] - most) / sum", "expf(row[j] - most)"),
        ("own sum only", "sum = combine(s, sum, false);", ""),
        ("own maximum only", "most = combine(s, most, true);", ""),
        ("maximum for the sum", "combine(s, sum, false)", "combine(s, sum, true)"),
        ("sum for the maximum", "combine(s, most, true)", "combine(s, most, false)"),
        ("a barrier that few reach", "most = fmaxf(most, row[j]);", "{ most = fmaxf(most, row[j]); __syncthreads(); }"),
        ("maximum from 0", "float most = row[0]", "float most = 0.0f"),
        ("maximum starts with the thread's", "float most = row[0]", "float most = row[threadIdx.x]"),
        ("rows no longer than a block", "sum += expf(row[j] - most);", "sum = expf(row[j] - most);"),
        ("returns early", "float most", "if (threadIdx.x >= k) return;\n    float most"),
        ("one thread does all", ONE_SOFTMAX),
        ("subtracts the first score", "most = combine(s, most, true);", "most = row[0];"),
        ("subtracts the mean", "most = combine(s, most, true);", "most = combine(s, most, false) / blockDim.x;"),
        ("each thread does the whole row", WHOLE_SOFTMAX),
        ("first row only", "z + blockIdx.x * k", "z"),
        ("writes the first row", "p[blockIdx.x * k + j]", "p[j]"),
        ("no loop at the end", STRIDE + "\n        p", "int j = threadIdx.x;\n    if (j < k)\n        p"),
        ("exponential missing at the end", "= expf(row[j] - most) / sum", "= (row[j] - most) / sum"),
        ("maximum not subtracted at the end", "= expf(row[j] - most) / sum", "= expf(row[j]) / sum"),
        ("32 threads for the maximum", "j += blockDim.x) most", "j += 32) most"),
        ("maximum from -1e4", "float most = row[0]", "float most = -1e4f"),
        ("an epsilon in the sum", "/ sum;", "/ (sum + 1e-3f);"),
        ("sum from 1", "sum = 0.0f", "sum = 1.0f"),
        ("least score", "fmaxf(most, row[j])", "fminf(most, row[j])"),
        ("rows of a block's length", "z + blockIdx.x * k", "z + blockIdx.x * blockDim.x"),
        ("few call combine", "   sum = combine(s, sum, false", "   if (threadIdx.x < k) sum = combine(s, sum, false"),
        ("writes into z", "p[blockIdx.x * k + j] =", "((float*)z)[blockIdx.x * k + j] ="),
    ],
}
