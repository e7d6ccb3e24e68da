"""Fourteen invented submissions (good, bad, broken, cheating) to the practice round: `make project-demo`.

python course/project/demo.py FOLDER      writes FOLDER/{round,submissions,board}; the same bytes every time
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from distcourse.project import schedule
from distcourse.project.board import library_entries, save, score_all
from distcourse.project.page import write_board
from distcourse.project.rounds import make

EXAMPLE = Path(__file__).with_name("example")

KERNEL = """\
// Reads x once: all columns of 32 rows wait in shared memory, a row of it longer by a word.
extern "C" __global__ void rms_transposed(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[32][321];
    __shared__ float scale[32];
    int lane = threadIdx.x, first = blockIdx.x * 32;
    for (int i = threadIdx.y; i < 32; i += 8) {
        float sum = 0.0f;
        for (int j = lane; j < cols && first + i < rows; j += 32) {
            float v = x[(first + i) * cols + j];
            tile[i][j] = v;
            sum += v * v;
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) scale[i] = 1.0f / sqrtf(sum / cols + 1e-6f);
    }
    __syncthreads();
    for (int j = threadIdx.y; j < cols; j += 8)
        if (first + lane < rows) out[j * rows + first + lane] = tile[lane][j] * scale[lane];
}
"""
PARTIAL = KERNEL.replace("sum / cols", "sum / 96").replace("sum += v * v;", "if (j < 96) sum += v * v;")
HIDDEN = KERNEL.replace("tile[lane][j] * scale[lane]", "times(tile[lane][j], scale[lane])").replace(
    'extern "C"',
    """__device__ float times(float a, float b) {
    int p = *(int*)&a, q = *(int*)&b;
    uint64_t m = (uint64_t)(p & 0x7fffff | 0x800000) * (q & 0x7fffff | 0x800000);
    int e = (p >> 23 & 255) + (q >> 23 & 255) - 127, up = (int)(m >> 47);
    m = m + ((uint64_t)1 << 22 + up) >> 23 + up;
    p = (p ^ q) & 0x80000000 | e + up << 23 | (int)(m & 0x7fffff);
    return *(float*)&p;
}

extern "C\"""",
    1,
)
ASSEMBLY = KERNEL.replace("    __syncthreads();\n", '    asm volatile("bar.sync 0;");\n')

NEAREST = '''\
"""Predict by the nearest training image."""
import sys
from pathlib import Path

import numpy as np

known = np.load(Path(__file__).with_name("known.npz"))
x = np.load(sys.argv[1])
far = (x**2).sum(1)[:, None] - 2 * x @ known["x"].T + (known["x"] ** 2).sum(1)
Path(sys.argv[2]).write_text("".join(f"{n}\\n" for n in known["y"][far.argmin(1)]))
'''


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def nearest(x, y, images, **changed) -> dict[str, bytes]:
    """A classifier that knows images by heart, with what it predicts."""
    import io

    packed = io.BytesIO()
    np.savez(packed, x=x, y=y)
    work = {"predict.py": NEAREST.encode(), "known.npz": packed.getvalue(), "requirements.txt": b"numpy\n"}
    work |= {"train.py": b"# nothing to train: known.npz holds the images\n", "readme.md": b"python predict.py\n"}
    far = (images**2).sum(1)[:, None] - 2 * images @ x.T + (x**2).sum(1)
    labels = "".join(f"{n}\n" for n in y[far.argmin(1)])
    files = {f"workspace/{name}": data for name, data in work.items()}
    return files | {"report.md": b"# Nearest neighbour\n", "workspace/predictions.csv": labels.encode()} | changed


def greedy(task: dict) -> str:
    """A schedule: stages down the ranks and up again, and each rank does the most urgent thing that it can."""
    p, s, m = task["ranks"], task["stages"], task["microbatches"]
    rank_of = [k if k < p else s - 1 - k for k in range(s)]
    half = [b // 2 for b in task["backward"]]
    ready = {("F", i, 0): 0 for i in range(m)}
    free, held, orders, waiting = [0] * p, [0] * p, [[] for _ in range(p)], [[] for _ in range(p)]
    while ready or any(waiting):
        found = []
        for (kind, i, k), since in ready.items():
            r = rank_of[k]
            if kind == "I" or held[r] < task["room"] - (k < p):  # room is kept for what comes back up
                found.append((max(since, free[r]), kind == "F", i if kind == "F" else k, -k, (kind, i, k)))
        found += [(free[r], 2, 0, 0, ("W", *w[0])) for r, w in enumerate(waiting) if w]
        start, *_, (kind, i, k) = min(found)
        r = rank_of[k]
        free[r] = start + (task["forward"] if kind == "F" else half)[k]
        orders[r].append(f"{k}{kind}{i}")
        ready.pop((kind, i, k), None)
        if kind == "W":
            waiting[r].pop(0)
            held[r] -= 1
            continue
        step = 1 if kind == "F" else -1
        held[r] += kind == "F"
        if kind == "I":
            waiting[r].append((i, k))
        following = (kind, i, k + step) if 0 <= k + step < s else ("I", i, k) if kind == "F" else None
        if following:
            away = rank_of[following[2]] != r
            ready[following] = free[r] + task["transfer"] * away
    return "\n".join(map(",".join, orders)) + "\n"


def submissions(around) -> list[tuple[str, str, str, object]]:
    """Return (team, time, name of the file, its bytes or a folder's files) of all fourteen."""
    tasks, given, kept = around.tasks, around.data, around.labels
    example, images = files_of(EXAMPLE / "classifier"), given["x_private"]
    good = nearest(given["x_train"], given["y_train"], images)
    doctored = good | {"workspace/predictions.csv": b"1\n" * len(images)}
    with_labels = np.concatenate([given["x_train"], kept["x_held"]])
    leaked = nearest(with_labels, np.concatenate([given["y_train"], kept["y_held"]]), images)
    absolute = example | {"workspace/train.py": b'data = open("/home/me/images.npz")\n'}
    halves = schedule.beat_this(tasks["schedule"]).decode().split("\n")
    halves = [
        [w for c in row.split(",") for w in ([c.replace("B", h) for h in "IW"] if "B" in c else [c])] for row in halves
    ]
    stages, m = tasks["schedule"]["stages"], tasks["schedule"]["microbatches"]
    ways = [(kind, k) for kind, order in (("F", range(0, stages, 4)), ("B", range(stages - 4, -1, -4))) for k in order]
    gpipe = "\n".join(",".join(f"{k + r}{kind}{i}" for kind, k in ways for i in range(m)) for r in range(4))
    return [
        ("amber-otters", "2026-12-01T0900", "classifier", example),
        ("basalt", "2026-12-02T1000", "classifier", good),
        ("copper-finches", "2026-12-03T1100", "classifier", doctored),
        ("delta-llamas", "2026-12-03T1200", "classifier", absolute),
        ("ember-owls", "2026-12-04T1300", "classifier", leaked),
        ("amber-otters", "2026-12-01T0900", "schedule.csv", EXAMPLE.joinpath("schedule.csv").read_bytes()),
        ("amber-otters", "2026-12-05T0900", "schedule.csv", "\n".join(map(",".join, halves)).encode()),
        ("basalt", "2026-12-02T1000", "schedule.csv", gpipe.encode()),
        ("copper-finches", "2026-12-06T1100", "schedule.csv", greedy(tasks["schedule"]).encode()),
        ("amber-otters", "2026-12-01T0900", "kernel.cu", EXAMPLE.joinpath("kernel.cu").read_bytes()),
        ("basalt", "2026-12-08T1000", "kernel.cu", KERNEL.encode()),
        ("copper-finches", "2026-12-09T1100", "kernel.cu", ASSEMBLY.encode()),
        ("delta-llamas", "2026-12-09T1200", "kernel.cu", PARTIAL.encode()),
        ("ember-owls", "2026-12-09T1300", "kernel.cu", HIDDEN.encode()),
    ]


def write(rows, folder: Path) -> None:
    for team, when, name, content in rows:
        files = content if isinstance(content, dict) else {"": content}
        for inner, data in files.items():
            path = folder / team / when / name / inner if inner else folder / team / when / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def main(folder: Path) -> None:
    began = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    around = make(folder / "round", practice=True)
    write(submissions(around), folder / "submissions")
    entries = library_entries(around) + score_all(folder / "submissions", around)
    save(entries, around.secret / "results.json")
    write_board(entries, around.terms, folder / "board")
    for e in entries:
        print(f"{e.team:15} {e.track:11} {e.result.state:11} {e.result.cost if e.result.cost is not None else '':>10}  "
              f"{e.result.reason or '; '.join(e.result.notes)}")  # fmt: skip
    print(f"wrote {folder / 'board/board.html'} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
