"""Wrong answers to lab 04, and what each must cost."""

ADD, MATMUL, TILED = {"check_vector_add"}, {"check_matmul"}, {"check_tiled"}
SUM, SOFTMAX = {"check_block_sum"}, {"check_softmax"}

COL = "int col = blockIdx.x * blockDim.x + threadIdx.x"
ROW = "int row = blockIdx.y * blockDim.y + threadIdx.y"
SWAPPED = f"{COL.replace('col', 'row')};\n    {ROW.replace('row', 'col')}"
LAST_BARRIER = "__syncthreads();   // before the next tile"
FIRST_BARRIER = "__syncthreads();\n        for (int i"
STEP = "if (t < h) s[t] += s[t + h];\n        __syncthreads();   // the step is done"
NEIGHBOURS = "int d = blockDim.x / 2 / h;\n        if (t % (2 * d) == 0) s[t] += s[t + d];\n        __syncthreads();"
CHUNKS = "for (int i = first * (n / threads + 1); i < n && i < (first + 1) * (n / threads + 1); i++)"

MUTANTS = {
    "vector_add": [
        ("guard with <=", ("i < n", "i <= n"), ADD),
        ("no loop", ("for (int i = first; i < n; i += threads)", "int i = first; if (i < n)"), ADD),
        ("strides by the block", ("threads = gridDim.x * blockDim.x", "threads = blockDim.x"), ADD),
        ("a piece for each thread", ("for (int i = first; i < n; i += threads)", CHUNKS), ADD),
        ("1024 threads only", ("threads = gridDim.x * blockDim.x", "threads = 1024"), ADD),  # hidden tests only
        ("does not compile", ("c[i] = a[i] + b[i];", "c[i] = a[i] + b[i]"), ADD),
    ],
    "matmul": [
        ("x runs down the rows", (f"{COL};\n    {ROW}", SWAPPED), MATMUL),
        ("no guard", ("if (row >= m || col >= n) return;", ""), MATMUL),
        ("B transposed", ("B[i * n + col]", "B[col * n + i]"), MATMUL),
        ("squares only", ("B[i * n + col]", "B[i * k + col]"), MATMUL),
        ("blocks of 32 x 8 only", ("blockIdx.y * blockDim.y", "blockIdx.y * 8"), MATMUL),  # hidden tests only
        ("adds to what is there", ("C[row * n + col] = sum", "C[row * n + col] += sum"), MATMUL),
    ],
    "tiled": [
        ("no barrier before the next tile", (LAST_BARRIER, ""), TILED),
        ("no barrier after fetching", (FIRST_BARRIER, "for (int i"), TILED),
        ("returns early", ("float sum = 0.0f;", "float sum = 0.0f;\n    if (row >= m || col >= n) return;"), TILED),
        (
            "multiples of 16 only",
            ("row < m && first + tx < k ? A[row * k + first + tx] : 0.0f", "A[row * k + first + tx]"),
            TILED,
        ),
        ("tile turned", ("sum += a[ty][i]", "sum += a[i][ty]"), TILED),
        (
            "reads A from far away",
            ("sum += a[ty][i]", "sum += a[ty][i] * 0 + A[min(row, m - 1) * k + min(first + i, k - 1)]"),
            TILED,
        ),
        (
            "two tiles at least",
            ("first < k; first += 16", "first < (k + 31) / 32 * 32 && k > 1; first += 16"),
            TILED,
        ),  # hidden tests only
    ],
    "block_sum": [
        ("the race", ("__syncthreads();   // the step is done", ""), SUM),
        ("no barrier after loading", ("0.0f;\n    __syncthreads();", "0.0f;"), SUM),
        ("barrier inside the if", (STEP, "if (t < h) {\n        s[t] += s[t + h];\n        __syncthreads(); }"), SUM),
        ("neighbours", (STEP, NEIGHBOURS), SUM),
        ("no guard", ("i < n ? x[i] : 0.0f", "x[i]"), SUM),
        ("blocks of 256 only", ("int h = blockDim.x / 2", "int h = 128"), SUM),  # hidden tests only
    ],
    "softmax": [
        ("overflows", ("most = combine(s, most, true);", "most = 0.0f;"), SOFTMAX),
        ("not divided", ("expf(row[j] - most) / sum", "expf(row[j] - most)"), SOFTMAX),
        ("own sum only", ("sum = combine(s, sum, false);", ""), SOFTMAX),
        ("own maximum only", ("most = combine(s, most, true);", ""), SOFTMAX),
        (
            "a barrier that few reach",
            ("most = fmaxf(most, row[j]);", "{ most = fmaxf(most, row[j]); __syncthreads(); }"),
            SOFTMAX,
        ),
        ("maximum from 0", ("float most = row[0]", "float most = 0.0f"), SOFTMAX),  # hidden tests only
        (
            "rows no longer than a block",
            ("sum += expf(row[j] - most);", "sum = expf(row[j] - most);"),
            SOFTMAX,
        ),  # hidden tests only
    ],
}
