"""What one NVIDIA H100 did, for those who have no card: its profiler's counts, and times of kernels, steps and layers.

The numbers are in `recorded_card.json`, with the card, the day, the driver, the versions and the commands.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import NamedTuple

from distlearn.nn.costs.profile import LayerTime, Profile


class Counts(NamedTuple):
    """What a launch asks of memory: 32-byte sectors of global memory, passes (wavefronts) over shared memory."""

    read: int
    written: int
    shared_read: int
    shared_written: int

    @property
    def sectors(self) -> int:
        return self.read + self.written

    @property
    def wavefronts(self) -> int:
        return self.shared_read + self.shared_written


class Counted(NamedTuple):
    """A kernel that was counted twice; `source` is "library", "textbook" or "corpus" (`tests/cuda` has these two)."""

    source: str
    file: str
    name: str
    card: Counts
    emulator: Counts


class Step(NamedTuple):
    """A training step: the library's, and the same in PyTorch (eager), in milliseconds."""

    model: str
    batch: int
    launches: int
    ms: float
    torch_ms: float


DATA = json.loads((resources.files(__package__) / "recorded_card.json").read_text(encoding="utf-8"))
COUNTED = {
    name: Counted(source, file, name, Counts(*card), Counts(*emulator))
    for source, file, name, card, emulator in DATA["counts"]["rows"]
}
KERNELS = {name.partition(":")[2]: (ms, cupy_ms) for name, ms, cupy_ms in DATA["kernels"]["rows"]}
"""By kernel: milliseconds on large arrays, and those of CuPy's own operation (None where there is none)."""
STEPS = [Step(*row) for row in DATA["steps"]["rows"]]


def profiles(model: str) -> list[Profile]:
    """Return a model's recorded sweep as `nn.profile_sweep` returns one, with a layer for each kind."""
    return [
        Profile([LayerTime(kind, ms * share / 1e3, 0.0, 0, 0) for kind, share in shares.items()], batch)
        for name, batch, ms, shares in DATA["layers"]["rows"]
        if name == model
    ]
