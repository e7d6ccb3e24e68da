"""A `Loader` beside PyTorch's `DataLoader` on the same files, and how long a consumer of a given rate waits for it."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from distcourse.lab14 import write_photos

from distlearn.data import Batches, Cache, Loader, SlowStorage, write_shards
from distlearn.data.sources import decode_image, read_file
from distlearn.trace import WallClock

from . import optional, paired, quick, record, seconds

torch = optional("torch")
SIDE, BATCH, WORKERS = 96, 64, 2
RATE, LATENCY = 200, 0.005
"""The consumer's images/s, and the seconds of a request: one reader gets less than 200/s."""


class Files:
    """The same files, for PyTorch: decoded by the same function, scaled to 0..1."""

    def __init__(self, folder, storage=read_file):
        self.paths, self.storage = sorted(folder.glob("*/*.jpg")), storage

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        x = torch.from_numpy(np.array(decode_image(self.storage(self.paths[i])))).reshape(-1)
        return x.float().div_(255), int(self.paths[i].parent.name[5:])


def torch_loader(files, workers: int):
    """PyTorch's, with its default of two batches ahead for each worker."""
    return torch.utils.data.DataLoader(files, BATCH, shuffle=True, num_workers=workers)


def stalled(batches, clock, each: float) -> float:
    """Take batches, one in `each` seconds; return the share of time spent waiting, after the first batch."""
    batches, waited, began = iter(batches), 0.0, None
    with suppress(StopIteration):
        while True:
            asked = clock.now()
            next(batches)
            if began is not None:
                waited += clock.now() - asked
            began = clock.now() if began is None else began
            time.sleep(each)
    return waited / (clock.now() - began)


def records():
    """Throughput, waiting, and what shards and a local cache save."""
    with tempfile.TemporaryDirectory() as folder:
        n = 640 if quick() else 1920
        write_photos(folder, n, SIDE)
        x = Loader(folder, workers=WORKERS)

        def ours():
            assert sum(len(batch.x) for batch in Batches(x, x.labels, BATCH).epoch(0)) == n

        def theirs():
            assert sum(len(batch) for batch, _ in torch_loader(Files(Path(folder)), WORKERS)) == n

        ratio = paired(ours, theirs if torch else None, repeats=7, warmup=1)
        what = f"{n} JPEG files of {SIDE} x {SIDE}, {WORKERS} workers, one epoch"
        note = "peer: PyTorch's DataLoader; both start their workers in that time" if torch else "no PyTorch here"
        rows = [record(what, "s", ratio.ours, ratio.peer, ratio=ratio, goal="ratio <= 1", note=note)]

        storage, clock = SlowStorage(LATENCY, 1e8), WallClock()
        slow = Loader(folder, storage=storage)
        fast = slow.but(workers=WORKERS)
        sides = [Batches(x, x.labels, BATCH).epoch(0) for x in (slow, fast)]
        sides += [torch_loader(Files(Path(folder), storage), WORKERS)] if torch else []
        here, there, *peer = (100 * stalled(side, clock, BATCH / RATE) for side in sides)
        what = f"share of time that a consumer of {RATE}/s waits, {1e3 * LATENCY:g} ms a read"
        rows += [
            record(f"{what}, read in this process", "%", here),
            record(f"{what}, {WORKERS} workers", "%", there, *peer, goal="ours < 2"),
        ]

        shards = Path(folder, "shards")
        write_shards(folder, shards, 160)
        cached = Loader(shards, buffer=320, workers=WORKERS, storage=Cache(Path(folder, "cache"), storage))
        runs = [Batches(x, x.labels, BATCH) for x in (cached, cached, slow.but(workers=WORKERS))]
        first, second, peer = (seconds(lambda run=run: sum(batch.n for batch in run.epoch(0))) for run in runs)
        quality = cached.shuffle_quality(runs[0].order(0))
        note = f"peer: the files one by one; second epoch {second:.2g} s; quality of the shuffle {quality:.2f} of 1"
        what = f"first epoch, {1e3 * LATENCY:g} ms a read, shards of 160 through a local cache, buffer of 320"
        rows.append(record(what, "s", first, peer, goal="ratio < 1", note=note))
    return rows
