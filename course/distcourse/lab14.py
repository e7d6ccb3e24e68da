"""Lab 14, scale: its checks, recordings as programs, slow storage, published rows, and the score of a plan."""

from __future__ import annotations

import functools
import itertools
import math
import time
from pathlib import Path

import numpy as np
from PIL import Image

import distlearn as dl
from distlearn.data.sources import read_file
from distlearn.nn import nbytes
from distlearn.parallel.meta import meta_copy
from distlearn.trace import WallClock
from distlearn.train import Settings
from distlearn.train.program import train
from distlearn.viz.look import new_axes, styled, write_title

from .backtest import Run, predict_step, published, skill
from .exercise import named
from .incidents import DAY

# -- section 1: scaling ------------------------------------------------------------------------------------------------

NETWORK = dl.nn.MLP((784, 1024, 1024, 10), seed=None)


def step_seconds(ranks: int, batch: int, network="ethernet-100g") -> float:
    """Seconds of a data-parallel step, simulated at 1 TFLOP/s a rank."""
    layout, options = dl.parallel.Layout(ranks), {"input_shape": (784,), "compute": dl.Roofline(1e12)}
    return dl.parallel.simulate_layout(NETWORK, layout, network, batch_size=batch, **options).seconds


def run_fit_amdahl(fit_amdahl, ranks, seconds):
    return named(fit_amdahl(ranks, seconds), "a", "b")


# -- sections 2 and 3: record and replay -------------------------------------------------------------------------------


def record(world, strategy="data_naive", hidden=(64, 64)):
    """Record a training run on the digits: a trace with operations."""
    settings = Settings(data="digits", strategy=strategy, epochs=1, batch_size=256, hidden=hidden, seed=1)
    return dl.record_run(world, train, settings)[1]


def programs_of(trace) -> tuple[list[list], dict]:
    """A recording of blocking operations as programs (seconds of computing, names), and what the operations take."""
    own, entered = {}, {}
    for op in sorted(trace.operations, key=lambda op: op.places):
        own.setdefault(op.rank, []).append(op)
        entered[op.key] = max(op.start, entered.get(op.key, 0.0))
    programs = []
    for rank in sorted(own):
        gaps = [own[rank][0].start, *(b.start - a.end for a, b in itertools.pairwise(own[rank]))]
        programs.append([item for gap, op in zip(gaps, own[rank], strict=True) for item in (max(0.0, gap), op.key)])
    return programs, {op.key: op.end - entered[op.key] for op in trace.operations}


def drawn_programs(ranks, joint, seed):
    """Programs of ranks that meet in `joint` operations, each of some of them; some of them take no time."""
    rng = np.random.default_rng(seed)
    programs, seconds = [[] for _ in range(ranks)], {}
    for k in rng.permutation(joint).tolist():
        name = f"op {k}"
        seconds[name] = float(rng.integers(0, 20)) / 7
        for rank in rng.permutation(ranks)[: rng.integers(1, ranks + 1)].tolist():
            programs[rank] += [float(rng.integers(0, 30)) / 7, name]
    for program in programs:
        program += [float(rng.integers(1, 9))]
    return programs, dict(sorted(seconds.items()))


def run_finish(finish, programs=None, seconds=None, ranks=0, joint=0, seed=0):
    if programs is None:
        programs, seconds = drawn_programs(ranks, joint, seed)
    try:
        ends = finish(programs, seconds)
    except ValueError:
        return {"ends": "a ValueError: ranks wait for each other for ever"}
    return {"ends": [float(end) for end in ends] if isinstance(ends, (list, tuple, np.ndarray)) else ends}


# -- section 4: a loader -----------------------------------------------------------------------------------------------


def write_photos(folder, n=240, side=64):
    """Write n JPEG files of smooth noise, which compress as photographs do."""
    rng = np.random.default_rng(0)
    for i in range(n):
        image = Image.fromarray(rng.integers(0, 256, (side // 8, side // 8, 3), np.uint8)).resize((side, side))
        Path(folder, f"class{i % 4}").mkdir(exist_ok=True, parents=True)
        image.save(Path(folder, f"class{i % 4}", f"{i:05d}.jpg"), quality=90)


def consume(loader, batch, rate):
    """Take an epoch's batches, each for as long as a model of `rate` images/s would; return the trace and the stall.

    The stall is the share of the time after the first batch in which there was nothing to train on.
    """
    clock, rows = WallClock(), np.random.default_rng(0).permutation(len(loader))
    parts = [rows[i : i + batch] for i in range(0, len(rows) - batch + 1, batch)]
    for part, x in zip(parts, loader.stream(parts, clock=clock), strict=True):
        with clock.span("train", flops=0):
            time.sleep(len(x) / rate)
        assert len(x) == len(part)
    loads = clock.trace.select(lane="disk")[1:]
    return clock.trace, sum(span.seconds for span in loads) / (clock.now() - clock.trace.spans[0].end)


def stuck(storage, name):
    """A storage that never answers when it is asked for the file `name`."""

    def read(path, offset=0, size=-1):
        if name in str(path):
            time.sleep(600)
        return storage(path, offset, size)

    return read


def read_seconds(loader, storage, n=20):
    """Mean seconds of the first n reads from a storage, and of decoding what was read."""
    began = time.perf_counter()
    for row in range(n):
        loader.but(storage=storage).read(row)
    reading = time.perf_counter()
    np.asarray(loader[:n].but(storage=read_file))
    return (reading - began) / n, (time.perf_counter() - reading) / n


def run_workers_needed(workers_needed, rate, latency, decode, nbytes, bandwidth, images=1):
    got = workers_needed(rate, latency, decode, nbytes, bandwidth, *([images] if images > 1 else []))
    if not isinstance(got, (int, float, np.number)):
        return {"workers": got}
    return {"workers": "math.inf" if got == math.inf else int(got) if got == int(got) else float(got)}


# -- section 5: the sealed envelope ------------------------------------------------------------------------------------

TABLES = published()
ENVELOPE = TABLES["Megatron-LM, table 2"]
OPEN, SEALED = ([run for run in ENVELOPE.runs if (run.part == "open") is known] for known in (True, False))

FIELDS = ("blocks", "width", "length", "batch", "microbatch", "gpus", "tensor", "pipeline", "zero")
"""What a prediction may know of a published run."""


def tflops(run: Run, seconds: float) -> float:
    """TFLOP/s of a GPU, as the table counts: what is computed again is counted, too."""
    return run.flops(run.recompute) / run.gpus / seconds / 1e12


def run_step_time(step_time, run, peak, efficiency, link):
    return {"seconds": step_time(**dict(zip(FIELDS, run, strict=True)), peak=peak, efficiency=efficiency, link=link)}


def opened(step_time, efficiency, link, runs):
    """Predict some rows of the envelope; return them (for a table), and the skill against the best constant."""
    known = {"peak": ENVELOPE.peak, "efficiency": efficiency, "link": link}
    predicted = [tflops(run, step_time(**{name: getattr(run, name) for name in FIELDS}, **known)) for run in runs]
    measured = [run.measured for run in runs]
    rows = [
        {
            "run": str(run),
            "micro-batch": run.microbatch,
            "predicted": round(p, 1),
            "measured": m,
            "ratio": round(p / m, 3),
        }
        for run, p, m in zip(runs, predicted, measured, strict=True)
    ]
    return rows, skill(predicted, measured, float(np.median(measured)))


def best_constants(step_time):
    """Return the share of the peak [%] and the link [GB/s] with the most skill on the sealed rows."""
    grid = itertools.product(range(30, 91), range(2, 26))
    return max(grid, key=lambda pair: opened(step_time, pair[0] / 100, pair[1] * 1e9, SEALED)[1])


@styled
def plot_envelope(rows):
    """Draw predicted against measured speeds of the sealed rows, each with its number of GPUs."""
    (ax,) = new_axes(figsize=(6.4, 4.2))
    for name, mark, zero in (("ZeRO-3", "o", 3), ("tensor and pipeline", "s", 0)):
        kind = [row for run, row in zip(SEALED, rows, strict=True) if run.zero == zero]
        ax.plot(*([row[key] for row in kind] for key in ("measured", "predicted")), mark, label=name)
    for run, row in zip(SEALED, rows, strict=True):
        place = row["measured"], row["predicted"]
        ax.annotate(f"{run.gpus:,}", place, (6, 3 if run.gpus < 1000 else -9), textcoords="offset points")
    ax.plot([40, 200], [40, 200], "k:", label="predicted = measured")
    ax.set(xlabel="measured [TFLOP/s]", ylabel="predicted [TFLOP/s]")
    ax.legend()
    write_title(ax, "On more GPUs (numbers) ZeRO-3 falls, the other layout hardly")
    return ax


# -- section 6: a plan for 4,096 GPUs ----------------------------------------------------------------------------------

GPUS, MEMORY, CHECKPOINT, RESTART = 4096, 80e9, 50.0, 600.0
"""The cluster's GPUs; bytes of each; seconds to save a checkpoint, and to go on after a failure."""
MTBF = 1000 / 6.5 * DAY / (GPUS // 8)
"""Of all nodes: 6.5 failures in 1,000 node-days (Meta's RSC-1)."""
LOST = ("below peak", "recomputation", "messages", "bubble", "reduction", "update", "failures")
MODEL = {"blocks": 128, "width": 25600, "heads": 160, "symbols": 51200}


@functools.cache
def saved_bytes(width, heads, length, tensor, microbatch) -> float:
    """Bytes that a block saves for one micro-batch on a tensor-parallel rank, by a run on arrays without data."""
    model = dl.nn.GPT(64, width, heads, 1, seed=None, dtype="float16")
    block = meta_copy(dl.nn.Sequential(*model.layers[1:3]))

    def program(comm):
        sharded = dl.parallel.parallelize(block, comm) if comm.size > 1 else block
        shape = (microbatch, length, width)
        return nbytes(sharded.forward(dl.sim.MetaArray(shape, "float16"))[1])

    return dl.SimWorld(tensor, collectives="formula").run(program)[0]


def score(plan: dict) -> dict:
    """Score a plan: seconds, memory, and the share of the peak that becomes training.

    Parameters
    ----------
    plan : dict
        "tensor", "pipeline", "chunks", "microbatch" (int), "recompute" (bool), "interval" (seconds between two
        checkpoints).

    Raises
    ------
    ValueError
        If the numbers do not divide the cluster, the model or the batch.
    """
    t, p, v, micro = (int(plan[name]) for name in ("tensor", "pipeline", "chunks", "microbatch"))
    replicas = GPUS // (t * p) if t * p else 0
    divides = min(t, p, v, micro) > 0 and GPUS % (t * p) == MODEL["blocks"] % (p * v) == MODEL["heads"] % t == 0
    if (
        not divides
        or t > 8
        or (p == 1 and v > 1)
        or 4096 % (replicas * micro)
        or (v > 1 and 4096 // replicas // micro % p)
    ):
        raise ValueError(
            f"plan: tensor {t} (1 to 8), pipeline {p}, chunks {v}, microbatch {micro}: tensor * pipeline must divide "
            f"{GPUS:,} GPUs, pipeline * chunks {MODEL['blocks']} blocks, replicas * microbatch a batch of 4,096, and "
            "with chunks, pipeline the number of micro-batches"
        )
    run = Run("1T", GPUS, 2048, t, p, v, 1, 0, 4096, micro, bool(plan["recompute"]), 0.0, "", **MODEL)
    step = predict_step(run, ENVELOPE, 0.6, 1.0)
    whole = saved_bytes(run.width, run.heads, run.length, t, micro)
    kept = 2 * micro * run.length * run.width if run.recompute else whole  # a block's input, or all that it saves
    waiting = run.blocks / p * min(run.microbatches, p) * (1 + (p - 1) / (p * v) * (v > 1))
    memory = run.rank_weights * (4 + 12 / replicas) + kept * waiting + whole * run.recompute
    cycle = MTBF * math.exp(RESTART / MTBF) * math.expm1((plan["interval"] + CHECKPOINT) / MTBF)  # Daly 2006, eq. 20
    working = plan["interval"] / cycle
    share = run.flops(False) / GPUS / step.seconds / ENVELOPE.peak * working
    times = [step.passes * working - share * step.seconds, *(seconds * working for seconds in step[1:])]
    lost = [*(float(seconds / step.seconds) for seconds in times), 1 - working]
    return {
        "step [s]": step.seconds,
        "memory [GB]": float(memory / 1e9),
        "fits": bool(memory <= MEMORY),
        "share of peak": float(share),
        "lost": dict(zip(LOST, lost, strict=True)),  # with the share they add up to 1
    }


def run_search(search, options, fits, seed):
    """Search a drawn table, in which some plans do not fit and some do not divide the cluster."""
    rng, table = np.random.default_rng(seed), {}
    for values in itertools.product(*options.values()):
        lost = dict(zip(LOST, (rng.permutation(len(LOST)) / 20).tolist(), strict=True))
        kind = {"fits": bool(rng.random() < fits), "share of peak": float(rng.uniform(0.1, 0.6)), "lost": lost}
        table[values] = None if len(options) > 1 and rng.random() < 0.25 else kind

    def score(plan):
        found = table[tuple(plan[name] for name in options)]
        if found is None:
            raise ValueError(f"{plan} does not divide the cluster")
        return found

    got = search(score, options)
    return {"plan": dict(sorted(got.items())) if isinstance(got, dict) else got}
