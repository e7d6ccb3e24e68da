"""`Loader`: the same batches from files, shards and arrays, for any ranks and workers; what fails is named."""

import os
import random
import resource
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from PIL import Image

import distlearn as dl
from distlearn.cli import main
from distlearn.comm.point_to_point import LocalComm
from distlearn.data import Batches, Cache, Loader, SlowStorage, load, loader, sources, write_shards
from distlearn.data.sources import read_file
from distlearn.trace import WallClock

N, PER_SHARD = 45, 6


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images of noise in a folder for each of three classes, and the same in shards."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for i, name in enumerate(rng.permutation(N)):
        path = root / "files" / f"c{i % 3}" / f"{name:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 5), np.uint8)).save(path)
    write_shards(root / "files", root / "shards", PER_SHARD)
    return root


@pytest.fixture(autouse=True)
def nothing_left():
    """No worker and no shared memory of this process stays after a test."""
    OTHERS.update(psutil.Process().children())  # such as the emulator's
    yield
    assert children() == []
    assert [name for name in os.listdir("/dev/shm") if name.startswith((f"pym-{os.getpid()}-", "psm_"))] == []


OTHERS = set()
"""Processes that other tests started in this one."""


def children():
    """Workers of this process; "spawn" adds a tracker of resources, which stays."""
    found = [child for child in psutil.Process().children() if child not in OTHERS]
    return [child for child in found if "tracker" not in str(child.cmdline())]


def arrays(folder):
    """All images and labels, by name: read without a `Loader`."""
    paths = sorted((folder / "files").glob("*/*.png"))
    x = np.stack([np.asarray(Image.open(path)).reshape(-1) for path in paths])
    return x, np.array([int(path.parent.name[1:]) for path in paths])


def equal(found, expected):
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.n == expected.n


def test_a_resumed_epoch_is_exact_in_random_cases(photos, request):
    """On any ranks, from files and shards, with and without buffer and workers, of which some are killed."""
    cases = 500 if request.config.getoption("--thorough") else 150
    draw, (x, y), killed = random.Random(0), arrays(photos), 0
    for case in range(cases):
        folder, seed, epoch = draw.choice(("files", "shards")), draw.randrange(3), draw.randrange(4)
        size, batch_size, buffer = draw.randint(1, 5), draw.randint(1, 50), draw.choice((0, 0, 4, 25))
        images = Loader(photos / folder, dtype=np.uint8, buffer=buffer)
        serial = Batches(images, images.labels, batch_size, seed=seed)
        order, start = serial.order(epoch), draw.randrange(len(serial))
        if not buffer:
            np.testing.assert_array_equal(order, Batches(x, y, batch_size, seed=seed).order(epoch))
        for rank in range(size):
            images = images.but(workers=draw.randint(1, 3) if case % 10 == 0 else 0, depth=draw.randint(1, 5))
            batches = Batches(images, images.labels, batch_size, rank=rank, size=size, seed=seed)
            if images.workers and start:
                before = batches.epoch(epoch)
                for _ in range(start):
                    next(before)
                draw.choice(children()).kill()
                killed += 1
            for step, batch in enumerate(batches.epoch(epoch, start), start):
                rows = np.array_split(order[step * batch_size : (step + 1) * batch_size], size)
                np.testing.assert_array_equal(batch.x, x[rows[rank]])
                np.testing.assert_array_equal(batch.y, y[rows[rank]])
                assert batch.n == sum(map(len, rows))
            assert step == len(serial) - 1
    assert killed > cases / 15


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_that_are_held_stay_as_they_were(photos, monkeypatch, method):
    """A batch is a view into memory that workers use again, but not before its last array is gone."""
    monkeypatch.setattr(loader, "get_context", lambda _, make=loader.get_context: make(method))
    images = Loader(photos / "shards", storage=SlowStorage(0, 1e9))
    expected = list(Batches(images, images.labels, 4).epoch(0))
    images = images.but(workers=2, depth=3)
    for found, one in zip(list(Batches(images, images.labels, 4).epoch(0)), expected, strict=True):
        equal(found, one)
    kept = [batch.x.reshape(-1, 6, 5)[:1] for batch in Batches(images, images.labels, 4).epoch(0)]  # views of views
    for found, one in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(found.reshape(1, 30), one.x[:1])


def strike(victim, how, seconds, path, offset, size):
    """A storage of which each read takes `seconds`, and that of `victim` kills or stops the process."""
    time.sleep(seconds)
    if path == victim:
        os.kill(os.getpid(), how)
    return read_file(path, offset, size)


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize(
    ("folder", "how", "error", "message"),
    [
        ("files", signal.SIGKILL, ChildProcessError, "died with exit code -9 while it read "),
        ("shards", signal.SIGKILL, ChildProcessError, "died with exit code -9 while it read "),
        ("files", signal.SIGSTOP, TimeoutError, "hangs: more than 3 s for "),
    ],
)
def test_a_dead_worker_and_a_hung_read_are_named(photos, folder, how, error, message):
    images = Loader(photos / folder)
    row = Batches(images, images.labels, 10).order(0)[25]  # of the third batch
    victim, _, record = images.source(row).partition(": ")
    images = images.but(workers=2, timeout=3, storage=partial(strike, victim, how, 0.01))
    named = victim if folder == "files" else rf"{victim}: c\d/\d+\.png"
    assert bool(record) == (folder == "shards")
    with pytest.raises(error, match=rf"^loader worker \d \(process \d+\) {message}{named}$"):
        list(Batches(images, images.labels, 10).epoch(0))


def test_many_slow_images_are_no_hang_but_one_after_them_is(photos):
    images = Loader(photos / "files")
    last = images.source(Batches(images, images.labels, N).order(0)[-1])
    images = images.but(workers=1, timeout=1, storage=partial(strike, last, signal.SIGSTOP, 0.05))
    with pytest.raises(TimeoutError, match=f"hangs: more than 1 s for {last}$"):
        next(Batches(images, images.labels, N).epoch(0))


def test_workers_end_with_the_loop(photos):
    images = Loader(photos / "files", workers=2)
    for _ in Batches(images, images.labels, 8).epoch(0):
        assert len(children()) == 2
        break
    assert children() == []
    with pytest.raises(ZeroDivisionError) as error:  # noqa: PT012
        for _ in Batches(images, images.labels, 8).epoch(0):
            1 // 0  # noqa: B018
    assert children() == []
    assert error  # the traceback is still there


CONSUMER = """
import sys, time
from distlearn.data import Batches, Loader, SlowStorage
x = Loader(sys.argv[1], workers=2, storage=SlowStorage(0.05, 1e9))
for batch in Batches(x, x.labels, 4).epoch(0):
    print("ready", flush=True)
    time.sleep(0.1)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_of_a_consumer_that_is_ended(photos, how):
    command = [sys.executable, "-c", CONSUMER, photos / "shards"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, start_new_session=True) as consumer:
        assert consumer.stdout.readline() == "ready\n"
        workers = psutil.Process(consumer.pid).children(recursive=True)
        assert len(workers) == 2
        os.killpg(consumer.pid, how) if how == signal.SIGINT else consumer.send_signal(how)  # as a terminal
        _, errors = consumer.communicate(timeout=60)
    assert errors.count("Traceback") == (how == signal.SIGINT), errors
    assert psutil.wait_procs(workers, timeout=30)[1] == []


def save(folder, mode, kind="png", name="a/0"):
    path = folder / f"{name}.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(len(name)).integers(0, 256, (4, 3, 4), np.uint8)
    values[:, :, 3] = 255  # opaque
    image = Image.fromarray(values, "RGBA").convert(mode)
    image.save(path)
    return image


@pytest.mark.parametrize(
    ("mode", "kind", "channels"),
    [("L", "png", 1), ("1", "png", 1), ("LA", "png", 1), ("RGB", "bmp", 3), ("P", "gif", 3), ("RGBA", "png", 3)],
)
def test_kinds_of_images(tmp_path, mode, kind, channels):
    image = save(tmp_path, mode, kind)
    expected = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    single, double = (np.asarray(Loader(tmp_path, dtype=dtype)) for dtype in ("float32", "float64"))
    assert single.shape == (1, 12 * channels)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    if kind != "gif":  # which has a palette of its own
        np.testing.assert_array_equal(single, np.divide(expected.reshape(1, -1), 255, dtype=np.float32))
    np.testing.assert_array_equal(np.asarray(Loader(tmp_path, dtype="uint8")) / 255, double)


def test_photos_are_turned_as_they_are_shown(tmp_path):
    """A camera that was held upright stores the picture on its side, and says so."""
    (tmp_path / "a").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter, clockwise
    image = np.zeros((64, 128, 3), np.uint8)
    image[:, :64] = 255  # the left half becomes the upper one
    Image.fromarray(image).save(tmp_path / "a" / "1.jpg", exif=exif, quality=95)
    for shape in (None, (128, 64, 3), (16, 8, 3), (16, 8, 1)):
        x = np.asarray(Loader(tmp_path, image_shape=shape)).reshape(shape or (128, 64, 3))
        half = len(x) // 2
        assert x[: half - 2].min() > 0.9
        assert x[half + 2 :].max() < 0.1


GREY = Image.new("L", (5, 4))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\x7f", 99])
def test_damaged_notes_of_a_camera_turn_nothing(tmp_path, exif):
    (tmp_path / "a").mkdir()
    if exif == 99:
        exif = Image.Exif()
        exif[0x0112] = 99
    Image.new("RGB", (8, 6)).save(tmp_path / "a" / "1.jpg", exif=exif)
    assert Loader(tmp_path).image_shape == (6, 8, 3)


def transparent(mode):
    image = Image.new("RGBA", (5, 4), (255, 0, 0, 0)).convert(mode)
    if mode == "P":
        image.info["transparency"] = 0
    return image


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"a/1.png": transparent("RGBA")}, r"a/1\.png: has transparent pixels, expected none"),
        ({"a/1.png": transparent("LA")}, r"a/1\.png: has transparent pixels, expected none"),
        ({"a/1.gif": transparent("P")}, r"a/1\.gif: has transparent pixels, expected none"),
        ({"a/1.png": GREY, "a/2.png": Image.new("RGB", (5, 4))}, r"2\.png: is in colour, expected grey"),
        ({"a/1.tif": Image.fromarray(np.zeros((4, 5), np.int32))}, r"1\.tif: has pixels of the kind I, expected 8"),
        ({"a/1.tif": Image.fromarray(np.zeros((4, 5), np.float32))}, r"1\.tif: has pixels of the kind F, expected 8"),
        ({"a/1.png": Image.fromarray(np.zeros((4, 5), np.uint16))}, r"1\.png: has pixels of the kind I;16, expected 8"),
        ({"a/1.png": GREY, "a/2.png": GREY.resize((4, 5))}, r"4 x 5 .* \(--image-shape\) brings all"),
    ],
)  # fmt: skip
def test_pixels_that_would_be_lost_are_refused(tmp_path, images, message):
    for name, image in images.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        image.save(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        np.asarray(Loader(tmp_path, workers=0))


def tree(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (3, 2), 60 * (1 + len(name) % 4)).save(folder / name, "png")


def as_tar(folder, out):
    out.mkdir()
    with tarfile.open(out / "all.tar", "w") as tar:
        tar.add(folder, ".")
    return out


@pytest.mark.parametrize("tar", [False, True])
@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["cat/1.png", "dog/1.png", ".ipynb_checkpoints/1.png", "cat/.ipynb_checkpoints/1.png", "cat/._1.png"],
         ["cat/1.png", "dog/1.png"]),
        (["cat/1.png", "dog/1.png", "__MACOSX/dog/1.png", "__MACOSX/cat/._1.png"], ["cat/1.png", "dog/1.png"]),
        (["photos/cat/1.png", "photos/dog/1.png"], ["cat/1.png", "dog/1.png"]),
        (["p/q/cat/1.png", "p/q/dog/1.png", "p/q/.hidden/1.png"], ["cat/1.png", "dog/1.png"]),
        (["cat/1.png", "dog/more/1.png"], "found dog/more/1.png"),
        (["cat/1.png", "1.png"], "found 1.png"),
        (["train/cat/1.png", "val/cat/1.png"], "found train/cat/1.png, val/cat/1.png"),
    ],
)  # fmt: skip
def test_which_images_of_a_folder_count(tmp_path, names, found, tar):
    """The same in a folder and in a tar file."""
    tree(tmp_path / "p", *names)
    folder = as_tar(tmp_path / "p", tmp_path / "tars") if tar else tmp_path / "p"
    if isinstance(found, str):
        with pytest.raises(ValueError, match=f"expected a folder for each class .* {found}"):
            Loader(folder)
        return
    images = Loader(folder)
    assert [name.decode() for name in images._names] == found
    assert images.classes == ("cat", "dog")
    write_shards(folder, tmp_path / "shards", 1)
    np.testing.assert_array_equal(np.asarray(Loader(tmp_path / "shards")), np.asarray(images))


def test_shards_are_all_there_or_none(tmp_path):
    """Some of the tar files would be a data set, too."""
    tree(tmp_path / "p", *(f"{name}/{i}.png" for name in ("cat", "dog") for i in range(9)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, limits[1]))  # fails as a full disk does
    try:
        with pytest.raises(OSError, match="File too large"):
            write_shards(tmp_path / "p", tmp_path / "shards", 15)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["p"]
    write_shards(tmp_path / "p", tmp_path / "shards", 15)
    assert sorted(os.listdir(tmp_path / "shards")) == ["00000.tar", "00001.tar", "shards.json"]
    with pytest.raises(FileExistsError, match="shards exists, expected the name of a new folder"):
        write_shards(tmp_path / "p", tmp_path / "shards", 15)


def test_archives_that_cannot_be_read_part_by_part_are_named(tmp_path):
    tree(tmp_path / "p", "cat/1.png")
    with tarfile.open(tmp_path / "p" / "all.tar", "w:gz") as tar:
        tar.add(tmp_path / "p" / "cat", "cat")
    with pytest.raises(ValueError, match=r"all\.tar: expected a tar file that is not compressed"):
        Loader(tmp_path / "p")
    with tarfile.open(tmp_path / "p" / "all.tar", "w") as tar:
        tar.add(tmp_path / "p" / "cat", "cat")
    with pytest.raises(ValueError, match=r"holds cat/1\.png more than once"):
        Loader(tmp_path / "p")


def test_images_are_brought_to_a_shape_only_where_one_is_given(tmp_path):
    save(tmp_path, "L")
    Image.new("RGB", (30, 20), (255, 0, 0)).save(tmp_path / "a" / "1.jpg")
    with pytest.raises(ValueError, match=r"a/1\.jpg: has 30 x 20 pixels, expected 3 x 4"):
        np.asarray(Loader(tmp_path))
    x = np.asarray(Loader(tmp_path, image_shape=(2, 3, 3), dtype="uint8")).reshape(2, 2, 3, 3)
    assert abs(x[1].astype(int) - (254, 0, 0)).max() < 3
    np.testing.assert_array_equal(x[0, :, :, 0], x[0, :, :, 2])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["", "nonsense", "missing", "half"])
def test_an_unreadable_image_is_named(tmp_path, workers, damage):
    for i in range(6):
        save(tmp_path, "L", name=f"a/{i}")
    bad, images = tmp_path / "a" / "4.png", Loader(tmp_path, workers=workers)
    data = bad.read_bytes()
    bad.write_bytes(data[: len(data) // 2] if damage == "half" else damage.encode())
    if damage == "missing":
        bad.unlink()
    with pytest.raises((OSError, ValueError), match=rf"^{bad}: "):
        list(Batches(images, images.labels, 2).epoch(0))


def test_what_else_is_refused(tmp_path, photos):
    with pytest.raises(ValueError, match=r"expected a folder for each class .*found an empty folder"):
        Loader(tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"expected a folder for each class .*found a\.png"):
        Loader(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(f"{tmp_path}/nowhere/")
    with pytest.raises(ValueError, match="workers is 2, but 'digits' is read at once"):
        load("digits", workers=2)
    with pytest.raises(ValueError, match="depth is 0, expected a whole number of 1 or more"):
        Loader(photos / "files", workers=1, depth=0)
    with pytest.raises(ValueError, match="dtype is int8, expected a floating-point type or uint8"):
        Loader(photos / "files", dtype="int8")


# -- order -------------------------------------------------------------------------------------------------------------


def test_quality_of_a_shuffle(monkeypatch):
    """In one shard it is 3 B / n; a full shuffle has 1; and few shards are in use at a time."""
    n, per_shard = 6000, 500
    names = [f"a/{i:04d}.png" for i in range(n)]
    shards = [f"{i}.tar" for i in range(n // per_shard)], names, [(i // per_shard, i % per_shard, 1) for i in range(n)]
    monkeypatch.setattr(loader, "find_images", lambda folder: (["0.tar"], names, [(0, i, 1) for i in range(n)]))
    images, rng = Loader("one", image_shape=(1, 1, 1)), np.random.default_rng(0)
    assert images.shuffle_quality(np.arange(n)) == 0
    assert abs(images.shuffle_quality(images.order(rng)) - 1) < 0.05
    for buffer in (20, 100, 400):
        found = images.but(buffer=buffer).order(rng)
        assert sorted(found) == list(range(n))
        assert abs(images.shuffle_quality(found) / (3 * buffer / n) - 1) < 0.15
    monkeypatch.setattr(loader, "find_images", lambda folder: shards)
    images = Loader("many", image_shape=(1, 1, 1), buffer=1000)
    order = images.order(rng)
    assert images.shuffle_quality(order) > 0.8
    begun = np.sort([np.flatnonzero(order // per_shard == i)[0] for i in range(n // per_shard)])
    assert (begun >= np.arange(n // per_shard) * per_shard - 1000).all()  # none is opened before it is needed


# -- storage -----------------------------------------------------------------------------------------------------------


def test_slow_storage_takes_its_latency_and_its_share_of_the_bandwidth(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(bytes(1000))
    now, slept = [0.0], []
    monkeypatch.setattr(sources.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sources.time, "sleep", slept.append)
    storage = SlowStorage(latency=0.25, bandwidth=1000)
    assert storage(tmp_path / "file") == bytes(1000)
    storage(tmp_path / "file", 500, 500)  # at the same time: the line is busy until second 1
    now[0] = 10.0
    storage(tmp_path / "file", 900, 500)
    assert slept == pytest.approx([1.25, 1.75, 0.35])


def test_a_cache_reads_every_file_once(photos, tmp_path):
    log = tmp_path / "log"

    def storage(path, offset=0, size=-1):
        with open(log, "a") as file:
            file.write(f"{path} {offset} {size}\n")
        return read_file(path, offset, size)

    images = Loader(photos / "shards", workers=3, storage=Cache(tmp_path / "cache", storage))
    plain = Loader(photos / "files")
    for epoch in range(2):
        pairs = zip(*(Batches(x, x.labels, 9).epoch(epoch) for x in (images, plain)), strict=True)
        for found, expected in pairs:
            equal(found, expected)
    tars = sorted((photos / "shards").glob("*.tar"))
    assert sorted(log.read_text().splitlines()) == [f"{path} 0 -1" for path in tars]
    os.remove(photos / "shards" / "shards.json")  # tar files without an index are looked through
    equal(*(next(Batches(x, x.labels, 9).epoch(5)) for x in (Loader(photos / "shards"), plain)))


# -- training ----------------------------------------------------------------------------------------------------------


def train(comm, dataset, **options):
    model = dl.nn.MLP((30, 8, 3), dtype="float32", seed=1)
    optimizer = dl.optim.Optimizer(model.params, dl.optim.Adam(), lr=0.01)
    strategy = dl.DataParallel(comm, model, dl.nn.SoftmaxCrossEntropy(), optimizer)
    return dl.fit(strategy, dataset, epochs=2, batch_size=8, **options)


def test_fit_takes_it_like_any_data_set(photos, tmp_path):
    """The same losses and accuracies as with arrays, on ranks and with workers, and resumed from shards."""
    files, shards = load(f"{photos}/files/", workers=1), load(f"{photos}/shards/")
    shards = replace(shards, name=files.name)
    assert [len(x) for _, x, _ in files.splits()] == [32, 4, 9]
    assert (files.name, files.image_shape, files.shape) == ("files", (6, 5, 1), (30,))
    found = np.concatenate([np.column_stack([np.rint(np.asarray(x) * 255), y]) for _, x, y in files.splits()])
    expected = np.column_stack(arrays(photos))
    np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])

    in_memory = replace(files, **{f"x_{split}": np.asarray(x) for split, x, _ in files.splits()})
    world = dl.SimWorld(2)
    expected, found = (world.run(train, data)[0] for data in (in_memory, files))
    assert found.losses == expected.losses
    assert [epoch[3:] for epoch in found.epochs] == [epoch[3:] for epoch in expected.epochs]
    loads = world.trace.select(name="load")
    assert len(loads) == 2 * 2 * 4
    assert {span.lane for span in loads} == {"disk"}

    def interrupt(step, total, **values):
        if step == 7:
            raise KeyboardInterrupt

    store = dl.CheckpointStore(tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        train(LocalComm(WallClock(), interrupt), files, checkpoints=store, every=5, report=interrupt)
    resumed = train(LocalComm(WallClock(), None), shards, checkpoints=store, resume=True)
    np.testing.assert_allclose(resumed.losses, expected.losses, rtol=1e-5)


def test_a_folder_may_have_a_test_set_of_its_own(photos, tmp_path):
    (tmp_path / "train").symlink_to(photos / "files")
    (tmp_path / "test").symlink_to(photos / "shards")
    data = load(f"{tmp_path}/")
    assert [len(x) for _, x, _ in data.splits()] == [41, 4, 45]
    np.testing.assert_array_equal(np.rint(np.asarray(data.x_test) * 255), arrays(photos)[0])
    (tmp_path / "val").symlink_to(photos / "files")
    data = load(f"{tmp_path}/")
    assert [len(x) for _, x, _ in data.splits()] == [45, 45, 45]
    np.testing.assert_array_equal(np.asarray(data.x_val), np.asarray(data.x_test))
    (tmp_path / "val").rename(tmp_path / "valid")
    with pytest.raises(ValueError, match=r"found valid beside train/ and test/, expected val/ at most"):
        load(f"{tmp_path}/")
    (tmp_path / "valid").unlink()
    (tmp_path / "test").unlink()
    save(tmp_path / "test", "L", name="cat/0")
    with pytest.raises(ValueError, match=r"test/ has classes \('cat',\), expected those of train/: \('c0', "):
        load(f"{tmp_path}/")


def test_rows_go_to_the_device(photos, monkeypatch):
    monkeypatch.setattr(dl.data.dataset, "to_device", lambda x, device: x)
    monkeypatch.setattr(loader, "to_device", lambda x, device: (x.shape, device))
    data = load(f"{photos}/files/").on(3)
    assert list(data.x_test.stream([slice(2), slice(2, 9)])) == [((2, 30), 3), ((7, 30), 3)]


def test_the_command_line_trains_on_photos_of_mixed_sizes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(20):
        path = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30 + i, 20), (250 * (i % 2), 0, 0)).save(path)
    words = ["train", "--data", "photos/", "--epochs", "2"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "image_shape=(height, width, 1 or 3) (--image-shape) brings all images" in result.output
    with pytest.raises(ValueError, match=r"Loader: image_shape is \(8, -8, 3\), expected height, width, and 1 or 3"):
        Loader(tmp_path / "photos", image_shape=(8, -8, 3))
    result = CliRunner().invoke(main, [*words, "--image-shape", "8,8"])
    assert "image_shape is (8, 8), expected height, width, and 1 or 3 channels, such as (64, 64, 3)" in result.output
    result = CliRunner().invoke(main, [*words, "--image-shape", "8,8,3"])
    assert result.exit_code == 0, result.output
    trained = dl.load("runs/photos-mlp-local1")
    assert (trained.classes, trained.image_shape) == (("cat", "dog"), (8, 8, 3))
    assert trained.predict(np.zeros((2, 8, 8, 3))).shape == (2, 2)


def test_a_number_is_a_sample(photos):
    x = Loader(photos / "files")
    rows = np.asarray(x)
    assert [a.tolist() for a in x] == rows.tolist()
    assert x[-1].tolist() == x[np.int64(N - 1)].tolist() == rows[-1].tolist()
    with pytest.raises(IndexError):
        x[N]
