"""Honest work loses nothing, costs are the same every time, and nothing is below a floor without being named."""

import ast
import io
import sys
import zipfile

import numpy as np
import pytest
from distcourse.author import sandbox
from distcourse.project import classifier, kernel, reading, schedule
from distcourse.project.alone import run
from distcourse.project.cuda_source import check_source
from distcourse.project.rounds import TRACKS, make
from distcourse.project.track import Draws, judged

from distlearn.cuda import compile_check, has_nvrtc

from .submissions import EXAMPLE, demo, files_of, write

UNSAFE = bool(sandbox.available())


@pytest.mark.parametrize("track", TRACKS)
def test_the_example_is_scored(track, around):
    found = [around.score(track, EXAMPLE / TRACKS[track].file, "a-team", unsafe=UNSAFE) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].state == "scored", found[0]
    assert found[0].cost >= found[0].floor > 0


@pytest.mark.skipif(UNSAFE, reason="no sandbox")
def test_what_all_kernels_share_is_built_once_for_all_submissions(tmp_path):
    find = "print(sorted(os.listdir(os.path.expanduser('~/.cache/distlearn/cuda'))))"
    build = "distlearn.cuda.RawKernel('__global__ void k() {}', 'k')((1,), (1,), ())"
    ended = run([sys.executable, "-c", f"import os, distlearn; {find}; {build}; {find}"], tmp_path, 60)
    before, after = map(ast.literal_eval, ended.out.decode().splitlines())
    assert [name[:2] for name in after if name not in before] == ["k-", "k-"]


def test_tasks_and_numbers_are_what_they_were(around):
    """Drawn from hashes and a promised stream of bits: the same on every machine, or the practice round has changed."""
    assert around.tasks["schedule"]["forward"] == [4, 5, 3, 8, 8, 6, 2, 7]
    assert Draws("a").heavy_tailed(3, "x").tobytes().hex() == "d4e02cbb308275bc722614bd"
    assert schedule.floor(around.tasks["schedule"]) == 301


@pytest.mark.parametrize("track", [t for t in TRACKS.values() if hasattr(t, "beat_this")], ids=lambda t: t.name)
def test_the_example_is_worse_than_what_is_to_be_beaten(track, around, tmp_path):
    best = write(tmp_path, track.file, track.beat_this(around.tasks[track.name]))
    mine, best = (around.score(track.name, p, "a", unsafe=UNSAFE) for p in (EXAMPLE / track.file, best))
    assert mine.cost > best.cost
    assert mine.public is None or mine.public / mine.floor < 2 * mine.cost / mine.floor, "means, in one unit"


@pytest.mark.parametrize("seed", range(30))
def test_no_schedule_is_below_the_floor(seed, tmp_path):
    """Whatever the round: not what a greedy scheduler finds."""
    task = schedule.draw(Draws(f"{seed}"))
    found = schedule.score(write(tmp_path, "schedule.csv", demo.greedy(task).encode()), task)
    assert found.state == "scored", found
    assert found.cost <= 2 * found.floor


def test_the_floor_of_a_schedule_is_reached_where_there_is_no_bubble(tmp_path):
    task = {"ranks": 1, "stages": 2, "microbatches": 2, "forward": [3, 4], "backward": [6, 2], "transfer": 1, "room": 9}
    path = write(tmp_path, "schedule.csv", b"0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n")
    assert schedule.score(path, task).cost == schedule.floor(task) == 30


@pytest.mark.parametrize("seed", range(20))
def test_what_is_to_be_beaten_fits_in_every_round(seed, tmp_path):
    task = schedule.draw(Draws(f"round {seed}"))
    assert schedule.score(write(tmp_path, "schedule.csv", schedule.beat_this(task)), task).state == "scored"


def test_a_cost_below_the_floor_is_named():
    assert judged(10, 10).state == "scored"
    below = judged(9, 10)
    assert (below.state, below.reason) == ("impossible", "impossible: below the physical floor (9 < 10)")


def packed(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize("part", ["sectors", "operations"])
def test_counts_that_are_forged_are_named(part, around, monkeypatch):
    """Whatever a kernel did to its own process: fewer bytes or fewer operations than are needed."""

    def forged(source, inputs, **_):
        back = {}
        for i, x in enumerate(inputs):
            sectors, flops = kernel.bound(*x.shape)
            counts = [sectors - (part == "sectors"), 0, flops - (part == "operations"), 0, 0]
            back |= {f"x{i}": packed(x), f"y{i}": packed(np.ascontiguousarray(kernel.reference(x).astype("f"))),
                     f"counts{i}": packed(np.array(counts))}  # fmt: skip
        return back

    monkeypatch.setattr(kernel, "launch", forged)
    found = around.score("kernel", EXAMPLE / "kernel.cu", "a-team")
    assert found.state == "impossible"
    assert "below the physical floor" in found.reason


ONE_WARP = """\
extern "C" __global__ void rms_transposed(const float* x, float* out, int rows, int cols) {
    if (FIRST threadIdx.y) return;
    float all[20000];
    int lane = threadIdx.x, n = rows * cols;
    for (int k = lane; k < (n + 31) / 32 * 32; k += 32) {
        float v = k < n ? x[k] : 0.0f;
        for (int l = 0; l < 32; ++l) all[k - lane + l] = __shfl_sync(0xffffffffu, v, l);
    }
    for (int i = 0; i < rows; ++i) {
        float sum = 0.0f;
        for (int j = lane; j < cols; j += 32) sum += all[i * cols + j] * all[i * cols + j];
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        float scale = 1.0f / sqrtf(sum / cols + 1e-6f);
        for (int j = 0; j < cols; ++j) all[i * cols + j] *= scale;
    }
    for (int k = lane; k < n; k += 32) if (MINE) out[k] = all[k % rows * cols + k / rows];
}
"""


@pytest.mark.parametrize(("first", "mine"), [("blockIdx.x +", "true"), ("", "k % rows / 32 == blockIdx.x")])
def test_local_memory_and_idle_warps_are_paid_for(first, mine, around, tmp_path):
    """A warp, or one of each block, that keeps the matrix in a local array: in sums, all of it at the floor."""
    source = ONE_WARP.replace("FIRST", first).replace("MINE", mine)
    given = source.encode(), kernel.beat_this()
    kept, tiled = (around.score("kernel", write(tmp_path, "kernel.cu", s), "a-team", unsafe=UNSAFE) for s in given)
    assert (kept.state, tiled.state) == ("scored", "scored"), kept
    assert kept.cost > 2 * tiled.cost


HONEST = {
    "the library's": kernel.beat_this().decode(),
    "the example": (EXAMPLE / "kernel.cu").read_text(),
    "the demo's": demo.KERNEL,
    "many habits": """\
constexpr int TILE = 32;
__device__ __forceinline__ float square(float v) { return v * v; }
__device__ float4 twice(const float4& v) { return make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w); }
/* # not a directive, "a text", 'c', :: and asm in a comment */
extern "C" __global__ void rms_transposed(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
    const int i = blockIdx.x * TILE + threadIdx.x, lane = threadIdx.x % warpSize;
    float part[4] = {0.0f, 0.f, 0.0f, 1e-3f}, *p = part;
    const float4* wide = reinterpret_cast<const float4*>(x);
    unsigned int mask = 0xffffffffu; size_t n = (size_t)rows * cols;
    for (int a = 0, b = 3; a < b; ++a, --b) { float keep = part[a]; part[a] = part[b]; part[b] = keep; }
    do { p[0] += square(x[n - 1]); } while (false);
    bool first = lane == 0 && !(i >= rows) || (mask & 1) ? true : false;
    if (first) out[i] = fmaf(p[0], rsqrtf((float)cols), float(wide[0].x) + twice(wide[0]).y);
}
""",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_sources_pass(name):
    source = check_source(HONEST[name].encode(), "kernel.cu", kernel.KERNEL)
    assert [line.count(";") for line in source.split("\n")][-5:] == [s.count(";") for s in HONEST[name].split("\n")][
        -5:
    ]
    assert "out_u[" in source
    if has_nvrtc():
        assert compile_check(source, 90).ok


def test_leaked_labels_are_named_and_looked_up_images_gain_nothing(around, tmp_path):
    given, kept = around.data, around.labels
    x, y = given["x_train"], given["y_train"]
    leaked = demo.nearest(np.concatenate([x, kept["x_held"]]), np.concatenate([y, kept["y_held"]]), given["x_private"])
    found = around.score("classifier", write(tmp_path, "classifier", leaked), "a-team", unsafe=UNSAFE)
    assert (found.state, "drawn at random" in found.reason) == ("impossible", True), found
    assert found.cost is None


def test_a_zip_of_the_folder_itself_is_read_too(tmp_path):
    with zipfile.ZipFile(tmp_path / "classifier.zip", "w") as out:
        for name, data in files_of(EXAMPLE / "classifier").items():
            out.writestr(f"our team/{name}", data)
        out.writestr("our team/.DS_Store", b"x")
    assert set(classifier.read(tmp_path / "classifier.zip", 275, 10)[0]) == {
        "train.py", "predict.py", "readme.md", "requirements.txt", "weights.npz"}  # fmt: skip


def test_chance():
    assert classifier.most_by_chance(27, 10) == 13
    assert classifier.most_by_chance(0, 10) == 0


def test_pages_are_counted_in_packed_objects_too():
    import zlib

    objects = zlib.compress(b"<< /Type /Page /Parent 1 0 R >>" * 6)
    assert classifier.pages_of(b"%PDF-1.5\n1 0 obj << >> stream\n" + objects + b"\nendstream") == 6
    assert classifier.pages_of(b"%PDF-1.5 << /Type /Pages /Kids [] /Count 4 >> << /Type/Page >>") == 4


def test_any_data_set_makes_a_round_outside_of_repositories(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.random((60, 4, 4)), y=np.arange(60) % 3)
    made = make(tmp_path / "round", str(tmp_path / "own.npz"))
    assert {k: v.shape for k, v in made.data.items() if k.startswith("x")} == {
        "x_train": (30, 4, 4), "x_public": (10, 4, 4), "x_private": (10, 4, 4)}  # fmt: skip
    assert not set(made.labels) & set(made.data)
    assert made.draws.seed != make(tmp_path / "other", str(tmp_path / "own.npz")).draws.seed
    (tmp_path / "repository/.git").mkdir(parents=True)
    with pytest.raises(ValueError, match="keep the seed and the labels outside"):
        make(tmp_path / "repository/round")


def test_links_and_arrays_of_a_submission_are_refused(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(reading.Refused, match="ordinary file"):
        reading.read_bytes(tmp_path / "link")
    good = packed(np.arange(3))
    assert reading.array_of(good, "a", np.int64).tolist() == [0, 1, 2]
    for bad in (good[:-1], good + b"0", b"x" + good, packed(np.array([1.0])), packed(np.zeros((2, 2), int))):
        with pytest.raises(reading.Refused, match="a:"):
            reading.array_of(bad, "a", np.int64)
