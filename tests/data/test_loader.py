"""`Loader`: the same batches from files, shards and arrays, on any ranks and workers; what fails is named; nothing stays."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

import distlearn as dl
from distlearn.data import Batches, Cache, Loader, SlowStorage, load, loader, sources, tune, write_shards
from distlearn.data.sources import read_file

N, PER_SHARD = 60, 7


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
    """No worker and no shared memory stays after a test."""
    shared = set(os.listdir("/dev/shm"))
    yield
    assert children() == []
    assert set(os.listdir("/dev/shm")) <= shared


def children():
    return [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE and "tracker" not in str(p.cmdline())]


def arrays(folder):
    """All images and labels, by name: read without a `Loader`."""
    paths = sorted((folder / "files").glob("*/*.png"))
    x = np.stack([np.asarray(Image.open(path)).reshape(-1) for path in paths])
    return x, np.array([int(path.parent.name[1:]) for path in paths])


def noise(image, rng):
    return image ^ rng.integers(0, 256, image.shape, np.uint8)


def equal(found, expected):
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.n == expected.n


def test_a_resumed_epoch_is_exact_in_500_random_cases(photos):
    """On any ranks, from files and shards, with and without buffer and workers, of which some are killed."""
    draw, (x, y), killed = random.Random(0), arrays(photos), 0
    for case in range(500):
        folder, seed, epoch = draw.choice(("files", "shards")), draw.randrange(3), draw.randrange(4)
        size, batch_size = draw.randint(1, 5), draw.randint(1, 70)
        buffer = draw.choice((0, 0, 4, 25))
        images = Loader(photos / folder, dtype=np.uint8, augment=noise, buffer=buffer)
        serial = Batches(images, images.labels, batch_size, seed=seed)
        order, start = serial.order(epoch), draw.randrange(len(serial))
        if not buffer:
            np.testing.assert_array_equal(order, Batches(x, y, batch_size, seed=seed).order(epoch))
        for rank in range(size):
            if case % 10 == 0:
                workers = draw.randint(1, 3)
                images = images.but(workers=workers, depth=draw.randint(1, 5))
                parts = Batches(images, images.labels, batch_size, rank=rank, size=size, seed=seed).epoch(epoch)
                for _ in range(start):
                    next(parts)
                if start:
                    draw.choice(children()).kill()  # and go on from here in new workers
                    killed += 1
                del parts
            for step, batch in enumerate(
                Batches(images, images.labels, batch_size, rank=rank, size=size, seed=seed).epoch(epoch, start), start
            ):
                rows = np.array_split(order[step * batch_size : (step + 1) * batch_size], size)
                mine = [noise(x[i].reshape(6, 5, 1), np.random.default_rng([seed, epoch, i])).ravel() for i in rows[rank]]
                np.testing.assert_array_equal(batch.x, np.array(mine, np.uint8).reshape(-1, 30))
                np.testing.assert_array_equal(batch.y, y[rows[rank]])
                assert batch.n == sum(map(len, rows))
            assert step == len(serial) - 1
    assert killed > 50
