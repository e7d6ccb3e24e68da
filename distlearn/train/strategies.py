"""Strategies by name: the table used by `Settings(strategy=...)` and `distlearn train --strategy`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .. import parallel

CODECS: dict[str, Callable] = {
    "fp16": lambda settings: parallel.FP16(),
    "int8": lambda settings: parallel.Int8(),
    "one_bit": lambda settings: parallel.OneBit(),
    "top_k": lambda settings: parallel.TopK(settings.keep_ratio),
}
"""Codecs of gradients by name, from the settings."""


def _pipeline(*args, schedule, **options) -> parallel.Strategy:
    strategy = parallel.PipeDream if schedule == "pipedream" else parallel.Pipeline
    return strategy(*args, schedule=schedule, **options)


_BUCKETS = ("cap_bytes", "overlap")
_STAGES = ("schedule", "n_microbatches", "shape")
STRATEGIES: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "data": (parallel.DataParallel, (*_BUCKETS, "accumulate", "check_every", "compress")),
    "data_naive": (parallel.NaiveDataParallel, ()),
    "hybrid": (parallel.Hybrid, ("dp", "pp", "tp", *_STAGES, *_BUCKETS)),
    "local_sgd": (parallel.LocalSGD, ("every",)),
    "one_weird_trick": (parallel.OneWeirdTrick, _BUCKETS),
    "pipeline": (_pipeline, _STAGES),
    "serial": (parallel.Serial, ()),
    "tensor": (parallel.TensorParallel, ()),
    "zero1": (partial(parallel.ZeRO, stage=1), _BUCKETS),
    "zero2": (partial(parallel.ZeRO, stage=2), _BUCKETS),
    "zero3": (partial(parallel.ZeRO, stage=3), _BUCKETS),
}
"""By name: the constructor, called with (comm, model, loss, optimizer), and the options that `program.build` adds."""
