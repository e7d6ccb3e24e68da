"""Track 4: a plan for a cluster that fails: layout, micro-batches, how often to save; the planner gives its time."""

from __future__ import annotations

import functools
import json
import math
from fractions import Fraction
from pathlib import Path

from distlearn.cuda import CARDS
from distlearn.nn.models import model_named
from distlearn.parallel.checkpoint.interval import young_interval
from distlearn.parallel.planning import Layout, simulate_layout

from ..lab12 import play
from .reading import Refused, fields, json_of, read_bytes
from .track import Draws, Result, judged, picture_of, refused

name, file, unit = "cluster", "cluster.json", "seconds"
hidden = True
PUBLIC, PRIVATE = 4, 8
"""Histories of failures, of 200 hours each, that a plan is played against."""
REQUIRED = {"data": (1, 64), "tensor": (1, 64), "pipeline": (1, 8), "microbatches": (1, 8)}
REQUIRED |= {"checkpoint_every": (10, 10**6)}
OPTIONAL = {"trick": (0, 1)}


def draw(draws: Draws) -> dict:
    """Draw how fragile the cluster is."""
    return {"model": "alexnet", "card": "V100", "network": "ethernet-10g", "cards": 32, "batch": 512, "steps": 200_000,
            "memory": 16_000_000_000, "card_mtbf": 3600 * draws(60, 160, "mtbf"), "save": draws(10, 40, "save"),
            "restart": draws(120, 400, "restart"), "seed": f"{draws(0, 2**32, 'failures')}"}  # fmt: skip


@functools.cache
def _flops(model: str, batch: int) -> int:
    known = model_named(model)
    layers, shape = known.build(seed=None), (batch, *known.sample)
    return int(layers.flops(shape) + layers.backward_flops(shape))


def floor(task: dict) -> int:
    """Return the seconds that the operations alone take, on all cards at their peak, if none ever failed."""
    each = Fraction(_flops(task["model"], task["batch"]), task["cards"] * int(CARDS[task["card"]].peak))
    return math.ceil(task["steps"] * each)


@functools.cache
def _step(model, layout, network, batch, card, microbatches):
    m = microbatches if layout.pp > 1 else None
    cost = simulate_layout(model, layout, network, batch_size=batch, compute=card, n_microbatches=m)
    return round(cost.seconds * 1e9), int(cost.memory.total), cost


def read(path: Path, task: dict) -> dict:
    plan = fields(json_of(read_bytes(path), path.name), path.name, REQUIRED, OPTIONAL)
    if plan.get("trick") and plan["tensor"] * plan["pipeline"] > 1:
        raise Refused(f"{path.name}: one weird trick is of data alone, with tensor 1 and pipeline 1")
    used = plan["data"] * plan["tensor"] * plan["pipeline"]
    if used > task["cards"]:
        raise Refused(f"{path.name}: data x tensor x pipeline is {used}, there are {task['cards']} cards")
    return plan


def _simulated(plan: dict, task: dict):
    layout = Layout(plan["data"], plan["tensor"], plan["pipeline"], bool(plan.get("trick")))
    return layout, _step(task["model"], layout, task["network"], task["batch"], task["card"], plan["microbatches"])


def score(path: Path, task: dict, *, secret: Draws | None = None, **_) -> Result:
    """Simulate a step of a plan, then play the run against histories of failures: public and secret ones."""
    try:
        plan = read(path, task)
    except ValueError as error:
        return refused(error)
    try:
        layout, (step, memory, _) = _simulated(plan, task)
    except (ValueError, TypeError) as error:
        return refused(f"the planner refuses it: {error}", "wrong")
    if memory > task["memory"]:
        return refused(f"a rank needs {memory:,} bytes, it has {task['memory']:,}", "wrong")
    mtbf = task["card_mtbf"] / layout.size

    def seconds(draws: Draws, n: int) -> list[int]:
        seeds = [draws(0, 2**32, "history", i) for i in range(n)]
        shares = [play(lambda *_: plan["checkpoint_every"], mtbf, task["save"], task["restart"], seed=s) for s in seeds]
        return [round(task["steps"] * step / 1e9 / share) if share > 0 else 10**12 for share in shares]

    public, private = seconds(Draws(task["seed"]), PUBLIC), seconds(secret, PRIVATE) if secret else []
    notes = [f"{layout}, {step / 1e6:.1f} ms a step"]
    cases = private or public
    return judged(sum(cases), floor(task) * len(cases), public=sum(public), cases=private, notes=notes)


def picture(path: Path, task: dict) -> tuple[str, str]:
    """Return what a step of a plan spends its time on."""
    layout, (_, _, cost) = _simulated(read(path, task), task)
    parts = {"computing": cost.computing, "communication": cost.communicating, "bubble": cost.bubble}

    def bars(ax):
        ax.barh(list(parts), [1e3 * s for s in parts.values()], color=["#132f5b", "#62b2e6", "#c24430"])
        ax.invert_yaxis()
        ax.set(xlabel="of a step [ms]", title=str(layout))

    told = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in parts.items())
    return picture_of(bars), f"{layout}, a step: {told}"


def as_json(data=1, tensor=1, pipeline=1, microbatches=1, every=600, **more) -> bytes:
    """Return a plan in the form that is handed in."""
    return json.dumps(dict(zip(REQUIRED, (data, tensor, pipeline, microbatches, every), strict=True)) | more).encode()


def beat_this(task: dict) -> bytes:
    """Return data x tensor parallelism on half of the cards, saving at Young's interval."""
    every = young_interval(task["save"], task["card_mtbf"] / 16)
    return as_json(4, 4, every=round(every))
