"""The exercises of lab 04: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}
COMPILES = "the compiler's message says what to mend"
RETURN = {"did you forget `return`?": "return r'''  ->  code = r'''"}
SAME_TEXT = {"results kept": "the same text in every call"}

LOOP = "for (int i = first; i < n; i += threads)"
CHUNKS = "for (int i = first * (n / threads + 1); i < n && i < (first + 1) * (n / threads + 1); i++)"
PIECES = (
    "int piece = (n + gridDim.x - 1) / gridDim.x;\n"
    "    for (int i = blockIdx.x * piece + threadIdx.x; i < n && i < (blockIdx.x + 1) * piece; i += blockDim.x)"
)
ASKS_LATE = "int i = first;\n    do { c[i] = a[i] + b[i]; i += threads; } while (i < n);"
OF_THREAD_0 = (
    "if (threadIdx.x == 0) for (int j = first; j < n; j += threads)\n"
    "        for (int i = j; i < n && i < j + blockDim.x; i++)"
)

EXERCISES["vector_add"] = Exercise(
    inplace=True,
    cases=rows("n grid block seed", (2100, 4, 256, 2), (1500, 3, 64, 3), (5, 2, 32, 4)),
    draw=lambda rng: {
        "n": int(rng.choice([1, 130, 777, 4097])),
        "grid": rng.integers(1, 9),
        "block": int(rng.choice([32, 50, 64, 96])),
        "seed": rng.integers(1000),
    },
    draws=4,
    mistakes=RETURN
    | {
        "a thread is beyond the end: the loop goes on while i < n": [
            "i < n  ->  i <= n",
            f"{LOOP}  ->  for (int i = first, r = 0; r < 3; r++, i += threads)",
            f"{LOOP}\n        c[i] = a[i] + b[i];  ->  {ASKS_LATE}",
        ],
        "a thread goes on while i < n": [
            f"{LOOP}  ->  {LOOP.replace('; i <', f', r = 0; r < {n} && i <').replace('i += ', 'r++, i += ')}"
            for n in (2, 3)
        ],
        "a thread takes only one element: go on in steps of gridDim.x * blockDim.x": [
            f"{LOOP}  ->  int i = first; if (i < n)",
            f"{LOOP}  ->  int i = first;",
        ],
        "threads take the same elements: thread i of the grid begins at i, goes on by gridDim.x * blockDim.x": [
            "threads = gridDim.x * blockDim.x  ->  threads = blockDim.x",
            "int first = blockIdx.x * blockDim.x + threadIdx.x  ->  int first = threadIdx.x",
            "i += threads  ->  i += 1",
        ],
        "the grid has gridDim.x * blockDim.x threads, not always 1024": (
            "threads = gridDim.x * blockDim.x  ->  threads = 1024"
        ),
        "steps are gridDim.x * blockDim.x, not twice that": "i += threads  ->  i += 2 * threads",
        "thread t + 1 takes the element beside that of thread t": (f"{LOOP}  ->  {CHUNKS}"),
        "one thread alone adds: let all share the work": (
            f"{LOOP}  ->  if (first == 0) {LOOP.replace('i += threads', 'i++')}"
        ),
        "one block alone adds: let all share the work": (
            f"{LOOP}  ->  if (blockIdx.x == 0) {LOOP.replace('threads', 'blockDim.x')}"
        ),
        "one thread of each block adds for all of them": f"{LOOP}  ->  {OF_THREAD_0}",
        "c[i] is a[i] + b[i], with the same i: each element once, of floats": [
            "c[i] = a[i] + b[i];  ->  c[first] = a[i] + b[i];",
            "a[i] + b[i];  ->  a[i] + b[i] + b[i];",
            "a[i] + b[i];  ->  (int)a[i] + (int)b[i];",
            "a[i] + b[i];  ->  (int)(a[i] + b[i]);",
            "a[i] + b[i];  ->  a[i] + b[threadIdx.x];",
        ],
        "element 0 was not written: start at 0": "+ threadIdx.x,  ->  + threadIdx.x + 1,",
        "the last element, n - 1, was not written": "i < n;  ->  i < n - 1;",
        "c is unchanged: nothing was written": "c[i] = a[i] + b[i];  ->  float sum = a[i] + b[i];",
        "c held something before: write c[i] = ..., not +=": ("c[i] = a[i] + b[i];  ->  c[i] += a[i] + b[i];"),
        "this is the product: add": "a[i] + b[i];  ->  a[i] * b[i];",
        "add both: a[i] + b[i]": [f"a[i] + b[i];  ->  {terms};" for terms in ("a[i]", "a[i] - b[i]", "a[i] + a[i]")],
        "a block has blockDim.x threads, not always 256": [
            "blockIdx.x * blockDim.x  ->  blockIdx.x * 256",
            ("blockIdx.x * blockDim.x  ->  blockIdx.x * 256", "gridDim.x * blockDim.x  ->  gridDim.x * 256"),
        ],
        "thread i of the grid takes i, i + T, i + 2T, ...": f"{LOOP}  ->  {PIECES}",
        COMPILES: ["c[i] = a[i] + b[i];  ->  c[i] = a[i] + b[i]", "void vector_add(  ->  void add("],
    },
    may_pass=SAME_TEXT,
)

COL = "int col = blockIdx.x * blockDim.x + threadIdx.x"
ROW = "int row = blockIdx.y * blockDim.y + threadIdx.y"
GUARD = "if (row >= m || col >= n) return;"
PRODUCT = "sum += A[row * k + i] * B[i * n + col];\n    C[row * n + col] = sum;"
ONE_MULTIPLIES = """def matmul():
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

EXERCISES["matmul"] = Exercise(
    inplace=True,
    cases=rows(
        "m n k block seed",
        (64, 32, 40, [32, 8], 1),
        (33, 50, 7, [32, 8], 2),
        (20, 9, 5, [16, 4], 3),
        (32, 32, 32, [16, 16], 5),
        (6, 100, 70, [64, 2], 4),
    ),
    draw=lambda rng: {
        "m": rng.integers(1, 50),
        "n": rng.integers(1, 90),
        "k": rng.integers(2, 70),
        "block": [[32, 4], [8, 8], [64, 2], [16, 16]][rng.integers(4)],
        "seed": rng.integers(1000),
    },
    draws=4,
    mistakes=RETURN
    | {
        "neighbours in x take neighbouring columns": (
            f"{COL};\n    {ROW}  ->  {COL.replace('col', 'row')};\n    {ROW.replace('row', 'col')}"
        ),
        "a thread outside of C has nothing to do: return if row >= m or col >= n": [
            f"{GUARD}  ->  ",
            f"{GUARD}  ->  if (row >= m && col >= n) return;",
            f"{GUARD}  ->  if (row >= m) return;",
            f"{GUARD}  ->  row = min(row, m - 1);\n    col = min(col, n - 1);",
        ],
        "a thread outside of C has nothing to do: ask for the row, too": (f"{GUARD}  ->  if (col >= n) return;"),
        "C has m rows and n columns: row >= m, col >= n": (f"{GUARD}  ->  if (row >= n || col >= m) return;"),
        "this is A times B transposed: B[i, col] is B[i * n + col]": [
            "B[i * n + col]  ->  B[col * n + i]",
            "B[i * n + col]  ->  B[col * k + i]",
        ],
        "this is A transposed times B: A[row, i] is A[row * k + i]": ("A[row * k + i]  ->  A[i * m + row]"),
        "A[row, i] is A[row * k + i]: row times k, plus i": [
            f"A[row * k + i]  ->  A[{index}]" for index in ("i * k + row", "col * k + i", "row + i")
        ],
        "a term is a product: A times B": "A[row * k + i] * B  ->  A[row * k + i] + B",
        "all k terms: i from 0 to k - 1, in steps of 1": ["i < k  ->  i < k - 1", "i++  ->  i += 2"],
        "each thread has a sum of its own, no shared one": "float sum = 0.0f;  ->  __shared__ float sum; sum = 0.0f;",
        "this is B A: the operands are swapped": (
            "A[row * k + i] * B[i * n + col]  ->  B[row * k + i] * A[i * n + col]"
        ),
        "a row of B has n numbers: B[i, col] is B[i * n + col]": [
            f"B[i * n + col]  ->  B[{index}]" for index in ("i * k + col", "i * m + col", "row * n + i")
        ],
        "a row of A has k numbers: A[row, i] is A[row * k + i]": [
            "A[row * k + i]  ->  A[row * n + i]",
            "A[row * k + i]  ->  A[row * m + i]",
        ],
        "a row of C has n numbers: C[row, col] is C[row * n + col]": [
            "C[row * n + col]  ->  C[row * k + col]",
            "C[row * n + col]  ->  C[row * m + col]",
        ],
        "this is C transposed: C[row, col] is C[row * n + col]": ("C[row * n + col]  ->  C[col * m + row]"),
        "a block is blockDim.x wide and blockDim.y high": [
            "blockIdx.y * blockDim.y  ->  blockIdx.y * 8",
            "blockIdx.x * blockDim.x  ->  blockIdx.x * 32",
            ("blockIdx.y * blockDim.y  ->  blockIdx.y * 8", "blockIdx.x * blockDim.x  ->  blockIdx.x * 32"),
            ("blockIdx.y * blockDim.y  ->  blockIdx.y * 16", "blockIdx.x * blockDim.x  ->  blockIdx.x * 16"),
        ],
        "x belongs to columns, y to rows: blockIdx, blockDim and threadIdx": [
            "blockIdx.x * blockDim.x  ->  blockIdx.x * blockDim.y",
            "blockIdx.y * blockDim.y  ->  blockIdx.y * blockDim.x",
            (
                "blockIdx.x * blockDim.x  ->  blockIdx.x * blockDim.y",
                "blockIdx.y * blockDim.y  ->  blockIdx.y * blockDim.x",
            ),
            (
                "blockIdx.x * blockDim.x  ->  blockIdx.y * blockDim.x",
                "blockIdx.y * blockDim.y  ->  blockIdx.x * blockDim.y",
            ),
            ("+ threadIdx.x  ->  + threadIdx.y", "blockDim.y + threadIdx.y  ->  blockDim.y + threadIdx.x"),
        ],
        "the parameters come in the order m, n, k": [
            "int m, int n, int k) {  ->  int n, int m, int k) {",
            "int m, int n, int k) {  ->  int m, int k, int n) {",
        ],
        "C held 99 and was added to: write C[...] = sum": ("C[row * n + col] = sum  ->  C[row * n + col] += sum"),
        "a sum begins with 0: float sum = 0.0f": "float sum = 0.0f;  ->  float sum;",
        "the sum is a float": "float sum = 0.0f;  ->  int sum = 0;",
        "only the last term is left: add with +=": "sum += A  ->  sum = A",
        "the first term is missing: i starts at 0": "int i = 0;  ->  int i = 1;",
        "one term too many: i < k": "i < k  ->  i <= k",
        "a sum has k terms: i < k": [f"i < k  ->  i < {n}" for n in ("n", "m", "64")],
        "C is written once: keep the sum in a variable": [
            f"{PRODUCT}  ->  C[row * n + col] = (i ? C[row * n + col] : 0) + A[row * k + i] * B[i * n + col];",
            (
                "float sum = 0.0f;  ->  C[row * n + col] = 0.0f;",
                f"{PRODUCT}  ->  C[row * n + col] += A[row * k + i] * B[i * n + col];",
            ),
        ],
        "one thread, one element of C: its column from x, its row from y, of block and thread": [
            *(f"blockIdx.{x} * blockDim.{x} + threadIdx.{x}  ->  threadIdx.{x}" for x in "xy"),
            ONE_MULTIPLIES,
        ],
        "nothing was written: C[row * n + col] = sum": "    C[row * n + col] = sum;\n  ->  ",
        COMPILES: "float sum = 0.0f;  ->  float sum = 0.0f",
    },
    may_pass=SAME_TEXT,
)

TILE_A = "row < m && first + tx < k ? A[row * k + first + tx] : 0.0f"
TILE_B = "col < n && first + ty < k ? B[(first + ty) * n + col] : 0.0f"
LAST = "__syncthreads();   // before the next tile"
TILES = "__shared__ float a[16][16], b[16][16];"
A_READ, B_READ = "sum += a[ty][i]  ->  sum += a[i][ty]", "b[i][tx]  ->  b[tx][i]"
A_FIRST = "A[row * k + first + tx]  ->  A[row * k + tx]"
B_FIRST = "B[(first + ty) * n + col]  ->  B[ty * n + col]"
A_STORED, B_STORED = "a[ty][tx] =  ->  a[tx][ty] =", "b[ty][tx] =  ->  b[tx][ty] ="

EXERCISES["tiled"] = Exercise(
    inplace=True,
    cases=[
        {"m": m, "n": n, "k": k, "seed": seed}
        for seed, (m, n, k) in enumerate(((64, 64, 64), (20, 35, 50), (5, 40, 7), (31, 17, 1)))
    ],
    draw=lambda rng: {
        "m": int(rng.choice([1, 17, 31, 48])),
        "n": int(rng.choice([1, 15, 32, 70])),
        "k": int(rng.choice([2, 16, 21, 80, 100])),
        "seed": rng.integers(1000),
    },
    draws=4,
    mistakes=RETURN
    | {
        "a barrier is missing: all must have read a tile before any fetches the next": (f"{LAST}  ->  "),
        "a barrier is missing: all must have fetched before any reads a tile": (
            "__syncthreads();\n        for (int i  ->  for (int i"
        ),
        "all threads fetch and reach every barrier: no early return, no barrier in an `if`": [
            f"float sum = 0.0f;  ->  float sum = 0.0f;\n    {GUARD}",
            f"{LAST}  ->  if (row < m) __syncthreads();",
        ],
        "a thread outside of C writes nothing: if (row < m && col < n)": [
            f"if (row < m && col < n) C  ->  {guard}C" for guard in ("", "if (row < m) ", "if (col < n) ")
        ],
        "threads outside of C fetch, too, for others": (
            "row < m && first + tx < k  ->  row < m && col < n && first + tx < k",
            "col < n && first + ty < k  ->  row < m && col < n && first + ty < k",
        ),
        "a tile is transposed on the way: store at [ty][tx], read a[ty][i] and b[i][tx]": [
            A_READ,
            A_STORED,
            B_READ,
            B_STORED,
        ],
        "each thread fetches one element of each tile, and tx counts columns everywhere": [
            (A_STORED, B_STORED, "a[ty][i] * b[i][tx]  ->  a[i][ty] * b[tx][i]"),
            "tx = threadIdx.x, ty = threadIdx.y  ->  tx = threadIdx.y, ty = threadIdx.x",
        ],
        "only the first tile was added: go on to k": ("first < k; first += 16  ->  first < min(k, 16); first += 16"),
        "the loop over tiles never runs: first < k": ("first < k; first += 16  ->  first > k; first += 16"),
        "the last tile may be narrower than 16: go on while first < k": (
            "first < k; first += 16  ->  first + 16 <= k; first += 16"
        ),
        "one tile too many, if k is a multiple of 16: first < k": "first < k; first  ->  first <= k; first",
        "tiles follow one another along k: first < k": [
            "first < k; first += 16  ->  first < m; first += 16",
            "first < k; first += 16  ->  first < n; first += 16",
        ],
        "every pass needs the next tiles of A and B, from `first` on": [A_FIRST, B_FIRST, (A_FIRST, B_FIRST)],
        "each tile has 16 terms: i < 16": ["i < 16; i++  ->  i < 15; i++", "i < 16; i++  ->  i < k; i++"],
        "go on by 16, the width of a tile": [
            "first += 16  ->  first += 8",
            "first += 16  ->  first++",
            "first < k; first += 16  ->  first < (k + 15) / 16; first++",
        ],
        "the sum goes on from tile to tile: 0 only before the loop": (
            "        a[ty][tx] = row  ->          sum = 0.0f;\n        a[ty][tx] = row"
        ),
        "A[row, first + tx] is A[row * k + first + tx], if row < m and first + tx < k; else fetch 0.0f": [
            f"{TILE_A}  ->  A[row * k + first + tx]",
            "row < m && first + tx < k  ->  row < m",
            "row < m && first + tx < k  ->  first + tx < k",
            "A[row * k + first + tx]  ->  A[row * n + first + tx]",
            "A[row * k + first + tx]  ->  A[row * k + first + ty]",
        ],
        "B[first + ty, col] is B[(first + ty) * n + col], if first + ty < k and col < n; else fetch 0.0f": [
            f"{TILE_B}  ->  B[(first + ty) * n + col]",
            "col < n && first + ty < k  ->  col < n",
            "col < n && first + ty < k  ->  first + ty < k",
            "B[(first + ty) * n  ->  B[(first + ty) * k",
            "B[(first + ty) * n  ->  B[(first + tx) * n",
        ],
        "tiles extend beyond A and B: fetch A if row < m and first + tx < k, B if first + ty < k and col < n": [
            (f"{TILE_A}  ->  A[row * k + first + tx]", f"{TILE_B}  ->  B[(first + ty) * n + col]"),
            ("row < m && first + tx < k  ->  row < m && col < n", "col < n && first + ty < k  ->  row < m && col < n"),
            ("first + tx < k  ->  first + tx <= k", "first + ty < k  ->  first + ty <= k"),
            ("first + tx < k  ->  tx < k", "first + ty < k  ->  ty < k"),
        ],
        "a sum begins with 0: float sum = 0.0f": "float sum = 0.0f;  ->  float sum;",
        "the sum and the tiles are floats": [
            "float sum = 0.0f;  ->  int sum = 0;",
            f"{TILES}  ->  {TILES.replace('float', 'int')}",
        ],
        "a tile is filled everywhere: with 0.0f where it extends beyond A or B": [
            "first + tx] : 0.0f  ->  first + tx] : a[ty][tx]",
            ("first + tx] : 0.0f  ->  first + tx] : 1.0f", ") * n + col] : 0.0f  ->  ) * n + col] : 1.0f"),
        ],
        "C has m rows and n columns: row < m, col < n": "if (row < m && col < n) C  ->  if (row < n && col < m) C",
        "a block has 16 rows: blockIdx.y * 16 + ty": "blockIdx.y * 16 + ty  ->  blockIdx.y + ty",
        "memory is touched too often: multiply from the __shared__ tiles, fetch 0.0f beyond A and B, write C once": [
            "def tiled():\n    return matmul().replace('matmul', 'tiled')\n",
            "+= a[ty][i]  ->  += a[ty][i] * 0 + A[min(row, m - 1) * k + min(first + i, k - 1)]",
            "        __syncthreads();   // before  ->          if (row < m && col < n) C[row * n + col] = sum;\n"
            "        __syncthreads();   // before",
        ],
        "each thread has tiles of its own: both are __shared__": [
            "__shared__ float a[16][16], b  ->  float a[16][16]; __shared__ float b",
            "__shared__ float a[16][16], b  ->  float a[16][16], b",
        ],
        "tiles are 16 x 16, and their indices are 0 to 15": [
            f"{TILES}  ->  __shared__ float a[8][8], b[8][8];",
            (f"{TILES}  ->  __shared__ float a[32][32], b[32][32];", "i < 16; i++  ->  i < 32; i++"),
        ],
        "x counts columns, y counts rows: col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty": [
            "blockIdx.x * 16 + tx, row = blockIdx.y  ->  blockIdx.y * 16 + tx, row = blockIdx.x",
            "blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty  ->  blockIdx.x * 16 + ty, row = blockIdx.y * 16 + tx",
            "row = blockIdx.y * 16 + ty  ->  row = blockIdx.y * 16 + tx",
            "col = blockIdx.x * 16 + tx, row  ->  row = blockIdx.x * 16 + tx, col",
        ],
        "a row of C has n numbers: C[row, col] is C[row * n + col]": [
            "C[row * n + col]  ->  C[row * k + col]",
            "C[row * n + col]  ->  C[row * m + col]",
        ],
        "C held 99 and was added to: write C[...] = sum": ("C[row * n + col] = sum  ->  C[row * n + col] += sum"),
        "the parameters come in the order m, n, k": "int m, int n, int k) {  ->  int m, int k, int n) {",
        COMPILES: "float sum = 0.0f;  ->  float sum = 0.0f",
    },
    may_pass=SAME_TEXT,
)

STEP = "if (t < h) s[t] += s[t + h];\n        __syncthreads();   // the step is done"
PACKED = (
    "int d = blockDim.x / h, j = d * t;\n        if (j < blockDim.x) s[j] += s[j + d / 2];\n        __syncthreads();"
)
NEIGHBOURS = "int d = blockDim.x / 2 / h;\n        if (t % (2 * d) == 0) s[t] += s[t + d];\n        __syncthreads();"


def summing(body):
    """A kernel that sums in another way."""
    head = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
    first = 'extern "C" __global__ void block_sum(const float* x, float* out, int n) {'
    return f"def block_sum():\n    return r'''{first}\n    __shared__ float s[256];\n    {head}\n{body}}}'''\n"


LOADED = "    s[t] = i < n ? x[i] : 0.0f;\n    __syncthreads();\n"
ONE_READS = summing("""    if (t > 0) return;
    float sum = 0.0f;
    for (int j = i; j < n && j < i + blockDim.x; j++) sum += x[j];
    out[blockIdx.x] = sum;
""")
ONE_SUMS = summing(f"""{LOADED}    float sum = 0.0f;
    if (t == 0) for (int j = 0; j < blockDim.x; j++) sum += s[j];
    if (t == 0) out[blockIdx.x] = sum;
""")
SERIAL_32 = summing(f"""{LOADED}    if (t < 32) for (int j = t + 32; j < blockDim.x; j += 32) s[t] += s[j];
    __syncthreads();
    float sum = 0.0f;
    if (t == 0) for (int j = 0; j < min(32, blockDim.x); j++) sum += s[j];
    if (t == 0) out[blockIdx.x] = sum;
""")
ATOMIC = summing("""    if (t == 0) s[0] = 0.0f;
    __syncthreads();
    if (i < n) atomicAdd(&s[0], x[i]);
    __syncthreads();
    if (t == 0) out[blockIdx.x] = s[0];
""")
GLOBAL_ATOMIC = summing("""    if (t == 0) out[blockIdx.x] = 0.0f;
    __syncthreads();
    if (i < n) atomicAdd(&out[blockIdx.x], x[i]);
""")

EXERCISES["block_sum"] = Exercise(
    inplace=True,
    cases=[
        {"n": n, "block": block, "seed": seed}
        for seed, (n, block) in enumerate(((1000, 256), (300, 64), (9, 2), (768, 128)))
    ],
    draw=lambda rng: {
        "n": int(rng.choice([1, 7, 130, 256, 513, 1000])),
        "block": int(2 ** rng.integers(1, 9)),
        "seed": rng.integers(1000),
    },
    mistakes=RETURN
    | {
        "threads use one number at once: a barrier after every step, and s[t] += s[t + h]": [
            "__syncthreads();   // the step is done  ->  ",
            "s[t] += s[t + h]  ->  s[t] += s[t + 1]",
            "s[t] += s[t + h]  ->  s[0] += s[t + h]",
        ],
        "half as many numbers are left after each step: h /= 2, until h = 1 has been added": [
            "h /= 2  ->  h -= 1",
            "int h = blockDim.x / 2; h > 0; h /= 2  ->  int h = 1; h < blockDim.x; h *= 2",
            "h > 0  ->  h > 16",
        ],
        "a sum, not the largest": "s[t] += s[t + h];  ->  s[t] = fmaxf(s[t], s[t + h]);",
        "numbers are floats, in shared memory, too": "__shared__ float s  ->  __shared__ int s",
        "room for 256 floats, whatever the block: __shared__ float s[256]": [
            *(f"__shared__ float s[256]  ->  __shared__ float s[{n}]" for n in (32, 64, 128)),
            "__shared__ float s[256]  ->  extern __shared__ float s[]",
        ],
        "a block has blockDim.x elements, not always 256": [
            "blockIdx.x * blockDim.x  ->  blockIdx.x * 256",
            "out[blockIdx.x]  ->  out[i / 256]",
        ],
        "threads use one number at once: a barrier after loading, and only threads t < h add": [
            "0.0f;\n    __syncthreads();  ->  0.0f;",
            "if (t < h)  ->  if (t <= h)",
            "if (t < h) s  ->  s",
        ],
        "all threads reach every barrier: no early return, no barrier in an `if`": [
            f"{STEP}  ->  if (t < h) {{\n        s[t] += s[t + h];\n        __syncthreads(); }}",
            f"{STEP}  ->  if (t < h) {{\n        s[t] += s[t + h];\n        __syncthreads(); }} else __syncthreads();",
            "s[t] = i < n ? x[i] : 0.0f;  ->  if (i >= n) return;\n    s[t] = x[i];",
        ],
        "add by halves, s[t] += s[t + h] for t < h: neighbours keep every warp busy, or collide in banks": [
            f"{STEP}  ->  {NEIGHBOURS}",
            f"{STEP}  ->  {PACKED}",
        ],
        "the last block may have fewer than blockDim.x elements: load 0 from i = n on": [
            "i < n ? x[i] : 0.0f  ->  x[i]",
            "s[t] = i < n ? x[i] : 0.0f;  ->  if (i < n) s[t] = x[i];",
        ],
        "the first step is blockDim.x / 2, half of the block": [
            f"int h = blockDim.x / 2  ->  int h = {wrong}" for wrong in ("128", "n / 2", "blockDim.x")
        ],
        "one thread loads all: each thread loads one element": ONE_READS,
        "one thread adds all: add in steps, by halves": ONE_SUMS,
        "32 threads add one number after the other: add in steps, by halves": SERIAL_32,
        "atomics make the threads queue at one address: add in steps, in shared memory": [ATOMIC, GLOBAL_ATOMIC],
        "the last step, h = 1, is missing: h > 0": "h > 0  ->  h > 1",
        "every block adds the elements of block 0: i counts the threads of all blocks": [
            "x[i] : 0.0f  ->  x[t] : 0.0f",
            "i = blockIdx.x * blockDim.x + t  ->  i = t",
        ],
        "block j begins at element j * blockDim.x": [
            "blockIdx.x * blockDim.x + t  ->  blockIdx.x + t",
            "blockIdx.x * blockDim.x + t  ->  t * gridDim.x + blockIdx.x",
        ],
        "block j adds its own elements alone: a thread loads x[i]": (
            "s[t] = i < n ? x[i] : 0.0f;  ->  s[t] = 0.0f;\n    for (int j = t; j < n; j += blockDim.x) s[t] += x[j];"
        ),
        "add the number at t + h, with +=": ["s[t] += s[t + h]  ->  s[t] = s[t + h]", "+= s[t + h]  ->  += s[h]"],
        "block j writes to out[j]: out[blockIdx.x]": ["out[blockIdx.x]  ->  out[t]", "out[blockIdx.x]  ->  out[i]"],
        "every block writes its sum: if (t == 0)": "if (t == 0) out  ->  if (i == 0) out",
        "out is unchanged: nothing was written": "    if (t == 0) out[blockIdx.x] = s[0];\n  ->  ",
        "out[j] is the first element of block j: nothing was added to it, or s is not __shared__": [
            "s[t] += s[t + h];  ->  s[t] += 0 * s[t + h];",
            "__shared__ float s  ->  float s",
        ],
        "this is the mean: do not divide the sum": [
            f"out[blockIdx.x] = s[0]  ->  out[blockIdx.x] = s[0] / {count}" for count in ("blockDim.x", "n")
        ],
        "out held 99 and was added to: write out[...] = s[0]": ("out[blockIdx.x] = s[0]  ->  out[blockIdx.x] += s[0]"),
        "one thread writes the sum: if (t == 0)": [
            "if (t == 0) out  ->  out",
            "if (t == 0) out[blockIdx.x] = s[0]  ->  out[blockIdx.x] = s[t]",
        ],
        "where there is no element, load 0: it adds nothing": ": 0.0f  ->  : 1.0f",
        COMPILES: "s[t] = i < n ? x[i] : 0.0f;  ->  s[t] = i < n ? x[i] : 0.0f",
    },
    may_pass=SAME_TEXT,
)

STRIDE = "for (int j = threadIdx.x; j < k; j += blockDim.x)"
PIECE = "for (int q = (k - 1) / blockDim.x + 1, j = threadIdx.x * q; j < k && j < (threadIdx.x + 1) * q; j++)"
LOOPS = (" most", " sum", "\n        p")  # what follows it
EXP = "expf(row[j] - most) / sum"
HEAD = """def softmax():
    return COMBINE + r'''extern "C" __global__ void softmax(const float* z, float* p, int k) {
    const float* row = z + blockIdx.x * k;
"""
WHOLE = """    float most = row[0], sum = 0.0f;
    for (int j = 0; j < k; j++) most = fmaxf(most, row[j]);
    for (int j = 0; j < k; j++) sum += expf(row[j] - most);
"""
WRITES_ALL = f"for (int j = 0; j < k; j++) p[blockIdx.x * k + j] = {EXP};"
ONE_DOES_ALL = f"{HEAD}    if (threadIdx.x > 0) return;\n{WHOLE}    {WRITES_ALL}\n}}'''\n"
EACH_DOES_ALL = f"{HEAD}{WHOLE}    {STRIDE} p[blockIdx.x * k + j] = {EXP};\n}}'''\n"

EXERCISES["softmax"] = Exercise(
    inplace=True,
    cases=[
        {"rows": 3, "k": 9, "block": 32, "seed": 1},
        {"rows": 3, "k": 300, "block": 32, "seed": 2},
        {"rows": 2, "k": 9, "block": 64, "level": [1000], "seed": 3},
        {"rows": 3, "k": 9, "block": 64, "level": [-20000], "seed": 4},
        {"rows": 5, "k": 33, "block": 2, "seed": 5},
        {"rows": 3, "k": 40, "block": 32, "level": [900, 0, -90], "wide": 200.0, "seed": 6},
        {"rows": 3, "k": 40, "block": 2, "level": [250], "wide": 150.0, "seed": 7},
    ],
    draw=lambda rng: {
        "rows": rng.integers(1, 6),
        "k": int(rng.choice([1, 33, 64, 100, 300])),
        "block": int(rng.choice([2, 32, 64, 256])),
        "level": rng.choice([-20000, -500, 0, 1000], 3).tolist(),
        "wide": float(rng.choice([1, 300])),
        "seed": rng.integers(1000),
    },
    mistakes={
        "did you forget `return`?": "return COMBINE + r'''  ->  code = COMBINE + r'''",
        "exp over- or underflowed: subtract the largest score of the row": [
            "most = combine(s, most, true);  ->  most = 0.0f;",
            "most = combine(s, most, true);  ->  most = row[0];",
        ],
        "subtract the largest score of the row, not a mean": [
            "most = combine(s, most, true);  ->  most = combine(s, most, false) / blockDim.x;",
            ("fmaxf(most, row[j])  ->  most + row[j] / k", "= row[0]  ->  = 0.0f", "most, true  ->  most, false"),
        ],
        "the largest score of all threads is wanted, not of each: combine": ("most = combine(s, most, true);  ->  "),
        "these are not yet divided by their sum": f"{EXP}  ->  expf(row[j] - most)",
        "each thread divided by its own part of the sum: combine": ("sum = combine(s, sum, false);  ->  "),
        "the sum of all threads is wanted: combine(s, sum, false)": (
            "combine(s, sum, false)  ->  combine(s, sum, true)"
        ),
        "the largest of all threads is wanted: combine(s, most, true)": (
            "combine(s, most, true)  ->  combine(s, most, false)"
        ),
        "the largest score, not the least: fmaxf": "fmaxf(most, row[j])  ->  fminf(most, row[j])",
        "all threads reach every barrier and call combine: no early return, not in an `if`": [
            "most = fmaxf(most, row[j]);  ->  { most = fmaxf(most, row[j]); __syncthreads(); }",
            "float most  ->  if (threadIdx.x >= k) return;\n    float most",
            "   sum = combine(s, sum, false  ->     if (threadIdx.x < k) sum = combine(s, sum, false",
            "   most = combine(s, most, true  ->     if (threadIdx.x == 0) most = combine(s, most, true",
        ],
        "scores may all be below that: begin with row[0]": [
            f"float most = row[0]  ->  float most = {low}" for low in ("0.0f", "-1e4f", "z[0]")
        ],
        "k may be smaller than the block: begin with row[0], which all threads have": (
            "float most = row[0]  ->  float most = row[threadIdx.x]"
        ),
        "only the last term is left: add with +=": ("sum += expf(row[j] - most);  ->  sum = expf(row[j] - most);"),
        "one thread does all: the threads of the block share a row": ONE_DOES_ALL,
        "each thread reads the whole row: it takes every blockDim.x-th score": EACH_DOES_ALL,
        "every block reads row 0: a row begins at z + blockIdx.x * k": "z + blockIdx.x * k  ->  z",
        "every block writes row 0: p[blockIdx.x * k + j]": "p[blockIdx.x * k + j]  ->  p[j]",
        "a row has k scores: it begins at z + blockIdx.x * k": [
            f"z + blockIdx.x * k  ->  z + {first}"
            for first in ("blockIdx.x * blockDim.x", "blockIdx.x * (k + 1)", "blockIdx.x", "threadIdx.x * k")
        ],
        "combine needs 256 floats in shared memory: __shared__ float s[256]": [
            "float s[256]  ->  float s[32]",
            "__shared__ float s  ->  float s",
        ],
        "subtract the largest from the score, not the reverse": [
            f"{EXP}  ->  expf(most - row[j]) / sum",
            (f"{EXP}  ->  expf(most - row[j]) / sum", "+= expf(row[j] - most)  ->  += expf(most - row[j])"),
        ],
        "divide by the sum": [f"{EXP}  ->  expf(row[j] - most) {wrong}" for wrong in ("* sum", "/ k")],
        "the flags are swapped: true for the largest, false for the sum": (
            "combine(s, most, true)  ->  combine(s, most, false)",
            "combine(s, sum, false)  ->  combine(s, sum, true)",
        ),
        "the sum is one of exponentials": "sum += expf(row[j] - most)  ->  sum += row[j] - most",
        "a row may be longer than the block: stride through it in all three loops": [
            f"{STRIDE}\n        p  ->  int j = threadIdx.x;\n    if (j < k)\n        p",
            f"{STRIDE} most  ->  int j = threadIdx.x;\n    if (j < k) most",
            (
                f"{STRIDE} most  ->  int j = threadIdx.x;\n    if (j < k) most",
                f"{STRIDE} sum  ->  if (j < k) sum",
                f"{STRIDE}\n        p  ->  if (j < k)\n        p",
            ),
        ],
        "k may be more than 256: keep no row in shared memory": (
            "s[256];  ->  s[256], e[256];",
            "sum += expf(row[j] - most)  ->  sum += e[j] = expf(row[j] - most)",
            f"{EXP}  ->  e[j] / sum",
        ),
        "threads take the same scores: begin at threadIdx.x, go on by blockDim.x": (
            f"{STRIDE}\n        p  ->  {STRIDE.replace('+= blockDim.x', '++')}\n        p"
        ),
        "a row is one block's: begin at threadIdx.x, go on by blockDim.x": [
            tuple(f"{STRIDE}{loop}  ->  {other}{loop}" for loop in LOOPS)
            for other in (
                STRIDE.replace("blockDim", "gridDim.x * blockDim"),
                STRIDE.replace("threadIdx.x", "blockIdx.x * blockDim.x + threadIdx.x"),
            )
        ],
        "the last score is k - 1: j < k": [
            f"{STRIDE}\n        p  ->  {STRIDE.replace('<', '<=')}\n        p",
            tuple(f"{STRIDE}{loop}  ->  {STRIDE.replace('<', '<=')}{loop}" for loop in LOOPS),
        ],
        "most begins with row[0], sum with 0.0f": [
            "most = row[0], sum = 0.0f;  ->  most, sum = 0.0f;",
            "most = row[0], sum = 0.0f;  ->  most = row[0], sum;",
        ],
        "the largest score is subtracted in the sum, too": "sum += expf(row[j] - most)  ->  sum += expf(row[j])",
        "a block has blockDim.x threads, not always 32": [
            "j += blockDim.x) most  ->  j += 32) most",
            tuple(f"j += blockDim.x){loop}  ->  j += 32){loop}" for loop in LOOPS),
        ],
        "row j of p begins at j * k, as in z": "p[blockIdx.x * k + j]  ->  p[blockIdx.x * blockDim.x + j]",
        "thread t + 1 takes the score beside that of thread t": tuple(
            f"{STRIDE}{loop}  ->  {PIECE}{loop}" for loop in LOOPS
        ),
        "the exponential is missing in the last loop": f"{EXP}  ->  (row[j] - most) / sum",
        "the largest score is not subtracted in the last loop": f"{EXP}  ->  expf(row[j]) / sum",
        "a row sums to 1: add nothing to the sum": ["/ sum;  ->  / (sum + 1e-3f);", "sum = 0.0f  ->  sum = 1.0f"],
        "p held 99 and was added to: write p[...] = ...": ("p[blockIdx.x * k + j] =  ->  p[blockIdx.x * k + j] +="),
        "p is unchanged: not written": (f"p[blockIdx.x * k + j] = {EXP}  ->  sum += 0 * row[j]"),
        "z is const: write into p": ("p[blockIdx.x * k + j] =  ->  ((float*)z)[blockIdx.x * k + j] ="),
        COMPILES: "float most = row[0], sum = 0.0f;  ->  float most = row[0]",
    },
    may_pass=SAME_TEXT,
)
