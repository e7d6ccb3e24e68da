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

from .backtest import Run, predict_step, published, skill
from .incidents import system_mtbf

# -- section 1: scaling ------------------------------------------------------------------------------------------------

NETWORK = dl.nn.MLP((784, 1024, 1024, 10), seed=None)


def step_seconds(ranks: int, batch: int, network="ethernet-100g") -> float:
    """Seconds of a data-parallel step, simulated at 1 Tflop/s a rank."""
    layout, options = dl.parallel.Layout(ranks), {"input_shape": (784,), "compute": dl.Roofline(1e12)}
    return dl.parallel.simulate_layout(NETWORK, layout, network, batch_size=batch, **options).seconds


def check_fit(check, fit_amdahl, ranks, seconds, what):
    """Two coefficients, by least squares on relative errors."""
    p, t = np.asarray(ranks, float), np.asarray(seconds, float)

    def solved(weights, x=1 / p, y=t):
        columns = np.stack([np.ones(len(p)), x], axis=1)
        return np.linalg.lstsq(columns * weights[:, None], y * weights, rcond=None)[0]

    want, plain = solved(1 / t), solved(np.ones(len(p)))
    share = want / want.sum()
    first, last = np.argmin(p), np.argmax(p)
    b = (t[first] - t[last]) / (1 / p[first] - 1 / p[last])
    got = check.call(fit_amdahl, ranks, seconds)
    check.close(f"a and b, {what}", np.asarray(got, float), want, suspects={
        "b first: return a, b": want[::-1],
        "these are shares of the time on one rank: return seconds": share,
        "the errors are to be relative: divide each equation by its time": plain,
        "that multiplies by the time: divide each equation by it": solved(t),
        "both sides of an equation are divided by its time: the right-hand sides become 1": solved(1 / t, 1 / p, t * t),
        "two unknowns: a is missing": np.array([0, (1 / (p * t)).sum() / (1 / (p * t) ** 2).sum()]),
        "T = a + b / p: the second column is 1 / p, not p": solved(1 / t, p),
        "these are fitted to speed-ups, not to seconds": solved(np.ones(len(p)), 1 / p, t[first] / t),
        "the line through the first and the last point is not the best one": np.array([t[last] - b / p[last], b]),
        "a and b are two numbers, not the times they give": want[0] + want[1] / p,
    })  # fmt: skip


# -- section 2: record and replay --------------------------------------------------------------------------------------


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


def drawn_programs(rng, ranks, joint):
    """Programs of ranks that meet in `joint` operations, each of some of them."""
    programs, seconds = [[] for _ in range(ranks)], {}
    for k in range(joint):
        name = f"op {k}"
        seconds[name] = float(rng.integers(1, 20)) / 4
        for rank in rng.permutation(ranks)[: rng.integers(2, ranks + 1)].tolist():
            programs[rank] += [float(rng.integers(1, 30)) / 4, name]
    for program in programs:
        program += [float(rng.integers(1, 9))]
    return programs, seconds


def simulated(programs, seconds):
    """When each rank finishes, on a network that takes no time: ranks wait for one another's messages."""

    def program(comm):
        for item in programs[comm.rank]:
            if isinstance(item, str):
                others = [r for r in range(comm.size) if r != comm.rank and item in programs[r]]
                for r in others:
                    comm.send_obj(item, r)
                for r in others:
                    comm.recv_obj(r)
            comm.clock.sleep(seconds[item] if isinstance(item, str) else item)
        return comm.clock.now()

    return dl.SimWorld(len(programs), eager_limit=1 << 20).run(program)  # no sender waits


def check_finish(check, finish, programs, seconds, what):
    """When each rank finishes, against the simulator."""
    want = simulated(programs, seconds)
    alone = [sum(seconds.get(item, item) for item in program) for program in programs]
    got = check.call(finish, programs, seconds)
    check.close(f"ends, {what}", np.asarray(got, float), np.array(want), suspects={
        "a rank waits: an operation begins when the last of its ranks has arrived": alone,
        "the operation itself takes seconds[name]": simulated(programs, dict.fromkeys(seconds, 0.0)),
        "it takes seconds[name] once, not twice": simulated(programs, {name: 2 * t for name, t in seconds.items()}),
        "one time for each rank, not the last of all": np.full(len(want), max(want)),
        "computing takes time, too: the numbers in a program are seconds": simulated(
            [[item for item in program if isinstance(item, str)] for program in programs], seconds
        ),
        "what a rank does after its last operation counts": simulated(
            [program[: 1 + max((i for i, item in enumerate(program) if isinstance(item, str)), default=-1)]
             for program in programs], seconds
        ),
    })  # fmt: skip


# -- section 3: a loader -----------------------------------------------------------------------------------------------


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


def read_seconds(loader, storage):
    """Mean seconds of a read from a storage, and of decoding what was read."""
    n, began = 20, time.perf_counter()
    for row in range(n):
        loader.but(storage=storage).read(row)
    reading = time.perf_counter()
    np.asarray(loader[:n].but(storage=read_file))
    return (reading - began) / n, (time.perf_counter() - reading) / n


def check_workers(check, workers_needed, rate, latency, decode, nbytes, bandwidth, images=1):
    """The number of workers that feed a consumer, or infinity."""
    each = latency / images + nbytes / bandwidth + decode
    busy = rate * nbytes > bandwidth
    args = {"rate": rate, "latency": latency, "decode": decode, "nbytes": nbytes, "bandwidth": bandwidth}
    what = ", ".join(f"{name} {value:g}" for name, value in args.items()) + f", {images} an answer"
    exact = rate * (latency / images + decode)
    enough = math.ceil(exact)
    want = math.inf if busy else enough
    got = check.call(workers_needed, rate, latency, decode, nbytes, bandwidth, images)
    check.equal(f"workers, {what}", got, want, suspects={
        "no number of workers helps here: math.inf": enough,
        "whole workers: round up": exact,
        "round up, not to the nearest": round(exact),
        "a request brings `images` images: its latency is shared": math.ceil(rate * (latency + decode)),
        "decoding keeps a worker busy, too": math.ceil(rate * latency / images),
        "while it waits for an answer a worker does nothing else": math.ceil(rate * decode),
        "the smallest number that suffices, not one more": want + 1,
        "no number of workers helps here: math.inf, not 0": 0,
        "sending is not counted, as long as the storage can send so much": math.ceil(rate * each),
        "math.inf only where rate * nbytes is more than the bandwidth": math.inf,
    })  # fmt: skip


# -- section 4: the sealed envelope ------------------------------------------------------------------------------------

TABLES = published()
ENVELOPE = TABLES["Megatron-LM, table 2"]


def fields(run: Run) -> dict:
    """What a prediction may know of a published run."""
    names = ("blocks", "width", "length", "batch", "microbatch", "gpus", "tensor", "pipeline", "zero")
    return {name: getattr(run, name) for name in names}


def tflops(run: Run, seconds: float) -> float:
    """TFLOP/s of a GPU, as the table counts: what is computed again is counted, too."""
    return run.flops(run.recompute) / run.gpus / seconds / 1e12


def check_step_time(check, step_time, run: dict, peak, efficiency, link):
    """Seconds of a step, by the formulas of the text."""
    blocks, width, length, batch, micro, gpus, t, p, zero = run.values()
    flops = batch * length * blocks * (96 * width**2 + 16 * width * length)
    computing, replicas = flops / (gpus * peak * efficiency), gpus // (t * p)
    m, gathered = batch / (replicas * micro), 3 * 2 * 12 * blocks * width**2 / link

    def total(computing=computing, m=m, gathered=gathered, p=p):
        return max(computing, m * gathered) if zero else computing * (m + p - 1) / m

    ranks = batch / (gpus * micro)
    wrong = {
        "all blocks are computed three times in a step and once again: 96 and 16": total(computing * 3 / 4),
        "the term with the length is missing": total(computing * 96 * width / (96 * width + 16 * length)),
        "`efficiency` is the share of the peak that is reached": total(computing * efficiency),
        "all GPUs share the work": total(computing * gpus),
        "a step has `batch` sequences": total(computing / batch),
        "divide by the efficiency: less of the peak takes longer": total(computing * efficiency**2),
        "a micro-batch has `microbatch` sequences": total(m=m * micro),
    }
    if zero:
        wrong |= {
            "gathers run beside computing: the longer of the two, not the sum": computing + m * gathered,
            "the sum, of one micro-batch": computing + gathered,
            "every micro-batch gathers again": max(computing, gathered),
            "three times: gathered forward, gathered backward, gradients reduced": total(gathered=gathered * 2 / 3),
            "2 bytes a number": total(gathered=gathered / 2),
            "communication is missing": computing,
            "computing may take longer than the link: the longer of the two": m * gathered,
            "2 bytes a number, not 4": total(gathered=2 * gathered),
            "12 width^2 parameters a block": total(gathered=gathered / 12),
        }
    else:
        wrong |= {
            "the bubble is missing": computing,
            "m + p - 1 slots for m micro-batches": computing * (m + p) / m,
            "the bubble lasts as long as p - 1 micro-batches": computing * (1 + (p - 1) / (m + p - 1)),
            "the bubble makes it longer: divide by the share that is full": computing * m / (m + p - 1),
            "a replica is gpus / (tensor * pipeline): tensor ranks belong to it, too": total(m=m / t),
            "without ZeRO (zero is 0) nothing is gathered": max(computing, m * gathered),
            "divide by m, not by p": computing * (m + p - 1) / p,
            "the batch is shared by the replicas, gpus / (tensor * pipeline), not by all GPUs": total(m=ranks),
            "each replica's share of the batch, in micro-batches": total(m=batch / micro),
        }
    got = check.call(step_time, **run, peak=peak, efficiency=efficiency, link=link)
    kind = "ZeRO-3" if zero else f"tensor {t}, pipeline {p}"
    check.close(f"seconds, {kind}, {gpus} GPUs, micro-batch {micro}", got, total(), suspects=wrong)


def opened(step_time, efficiency, link):
    """Predict the rows of the envelope; return them (for a table), and the skill against the best constant."""
    known = {"peak": ENVELOPE.peak, "efficiency": efficiency, "link": link}
    predicted = [tflops(run, step_time(**fields(run), **known)) for run in ENVELOPE.runs]
    measured = [run.measured for run in ENVELOPE.runs]
    rows = [
        {"run": str(run), "predicted": round(p, 1), "measured": m, "ratio": round(p / m, 2)}
        for run, p, m in zip(ENVELOPE.runs, predicted, measured, strict=True)
    ]
    return rows, skill(predicted, measured, float(np.median(measured)))


def best_constants(step_time):
    """Return the share of the peak [%] and the link [GB/s] with the most skill."""
    grid = itertools.product(range(30, 91, 2), range(2, 26))
    return max(grid, key=lambda pair: opened(step_time, pair[0] / 100, pair[1] * 1e9)[1])


# -- section 5: a plan for 4,096 GPUs ----------------------------------------------------------------------------------

GPUS, MEMORY, CHECKPOINT, RESTART = 4096, 80e9, 50.0, 600.0
"""The cluster's GPUs; bytes of each; seconds to save a checkpoint, and to go on after a failure."""
MTBF = system_mtbf(86400 / 6.5e-3, GPUS // 8)
"""Of all nodes: 6.5 failures in 1,000 node-days (Meta's RSC-1)."""
LOST = ("again", "messages", "bubble", "reduction", "update", "failures")
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
    lost = {name: float(getattr(step, name) / step.seconds) for name in LOST[:-1]}
    lost["failures"] = 1 - working
    return {
        "step [s]": step.seconds,
        "memory [GB]": float(memory / 1e9),
        "fits": bool(memory <= MEMORY),
        "share of peak": float(run.flops(False) / GPUS / step.seconds / ENVELOPE.peak * working),
        "lost": lost,
    }


def check_search(check, search, options, rng, fits=0.6):
    """The best plan of a drawn table, in which some do not fit and some do not divide the cluster."""
    table = {}
    for values in itertools.product(*options.values()):
        lost = dict(zip(LOST, rng.permutation(len(LOST)) / 20, strict=True))
        kind = {"fits": bool(rng.random() < fits), "share of peak": float(rng.uniform(0.1, 0.6)), "lost": lost}
        table[values] = None if len(options) > 1 and rng.random() < 0.25 else kind
    known = {values: found for values, found in table.items() if found is not None}

    def score(plan):
        found = table[tuple(plan[name] for name in options)]
        if found is None:
            raise ValueError(f"{plan} does not divide the cluster")
        return found

    def best(known):
        values = max(known, key=lambda values: known[values]["share of peak"], default=None)
        if values is None:
            return None
        lost = known[values]["lost"]
        return dict(zip(options, values, strict=True)) | {"weakest": max(lost, key=lost.get)}

    want = best({values: found for values, found in known.items() if found["fits"]})
    wrong = {
        "this one does not fit": best(known),
        "None if no plan fits": {} if want is None else None,
        "return the plan itself, a dict": None if want is None else tuple(want[name] for name in options),
        "return the plan, not its share": 0.0
        if want is None
        else known[tuple(want[n] for n in options)]["share of peak"],
        "this one fits, and has the smallest share": best(
            {v: f | {"share of peak": -f["share of peak"]} for v, f in known.items() if f["fits"]}
        ),
    }
    if want is not None:
        lost = known[tuple(want[name] for name in options)]["lost"]
        wrong["`weakest` is the key of what is lost most"] = want | {"weakest": max(lost.values())}
        wrong["`weakest` is what is lost most to, not least"] = want | {"weakest": min(lost, key=lost.get)}
        wrong["the plan lacks `weakest`"] = {name: want[name] for name in options}
    check.equal(f"the best of {len(table)}", check.call(search, score, options), want, suspects=wrong)
