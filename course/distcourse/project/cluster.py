"""Track 4: a plan for 4,096 GPUs that fail (labs 12, 14): layout, and how often to save; the planner gives its time."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

from distlearn.parallel import young_interval

from .. import lab12, lab14
from ..backtest import Run
from .reading import fields, json_of, read_bytes
from .track import Draws, Result, judged, mean, picture_of, refused

name, file, unit = "cluster", "cluster.json", "minutes"
hidden = True
PUBLIC, PRIVATE = 4, 8
"""Histories of failures, of 200 hours each, that a plan is played against."""
RANGES = {"tensor": (1, 8), "pipeline": (1, 128), "chunks": (1, 16), "microbatch": (1, 16), "recompute": (0, 1)}
RANGES |= {"interval": (10, 10**6)}


def draw(draws: Draws) -> dict:
    """Draw how fragile the cluster is."""
    return {"model": lab14.MODEL, "gpus": lab14.GPUS, "card": lab14.ENVELOPE.card, "steps": 40_000,
            "node_mtbf_days": draws(60, 200, "mtbf"), "save": draws(20, 80, "save"),
            "restart": draws(300, 900, "restart"), "seed": f"{draws(0, 2**32, 'failures')}"}  # fmt: skip


def floor(task: dict) -> int:
    """Return the minutes that the operations alone take, on all cards at their peak, if none ever failed."""
    run = Run("", lab14.GPUS, 2048, 1, 1, 1, 1, 0, 4096, 1, False, 0.0, "", **lab14.MODEL)
    return math.ceil(Fraction(task["steps"] * int(run.flops(False)), 60 * lab14.GPUS * int(lab14.ENVELOPE.peak)))


def read(path: Path, task: dict) -> dict:
    return fields(json_of(read_bytes(path), path.name), path.name, RANGES)


def _mtbf(task: dict) -> float:
    """Seconds between two failures of any node."""
    return task["node_mtbf_days"] * 86400 / (lab14.GPUS // 8)


def score(path: Path, task: dict, *, secret: Draws | None = None, **_) -> Result:
    """Predict a step of a plan, then play the run against histories of failures: public and secret ones."""
    try:
        plan = read(path, task)
    except ValueError as error:
        return refused(error)
    try:
        found = lab14.score(plan)
    except ValueError as error:
        return refused(error, "wrong")
    if not found["fits"]:
        return refused(f"a GPU needs {found['memory [GB]']:.1f} GB, it has {lab14.MEMORY / 1e9:.0f}", "wrong")
    step = round(found["step [s]"] * 1e6)

    def minutes(draws: Draws, n: int) -> list[int]:
        options = {"mtbf": _mtbf(task), "cost": task["save"], "restart": task["restart"]}
        seeds = [draws(0, 2**32, "history", i) for i in range(n)]
        shares = [lab12.play(lambda *_: plan["interval"], seed=seed, **options) for seed in seeds]
        return [round(task["steps"] * step / 6e7 / share) if share > 0 else 10**9 for share in shares]

    public, private = minutes(Draws(task["seed"]), PUBLIC), minutes(secret, PRIVATE) if secret else []
    cases = private or public
    notes = [f"{step / 1e6:.1f} s a step"]
    return judged(mean(cases), floor(task), public=mean(public), cases=private, notes=notes)


def picture(path: Path, task: dict) -> tuple[str, str]:
    """Return what a step of a plan loses its time to."""
    plan = read(path, task)
    found = lab14.score(plan)
    lost = {name: 100 * share for name, share in found["lost"].items() if name != "failures"}
    layout = ", ".join(f"{name} {plan[name]}" for name in ("tensor", "pipeline", "chunks", "microbatch"))

    def bars(ax):
        ax.barh(list(lost), list(lost.values()), color="#62b2e6")
        ax.invert_yaxis()
        ax.set(xlabel="of a step [%]", title=f"What a step loses: {layout}")

    return picture_of(bars), f"{layout}, {found['step [s]']:.1f} s a step, saved every {plan['interval']} s"


def as_json(*plan: int) -> bytes:
    """Return a plan in the form that is handed in."""
    return json.dumps(dict(zip(RANGES, plan, strict=True))).encode()


def beat_this(task: dict) -> bytes:
    """Return the layout with which Megatron-LM trained this model (2021, table 1), saved at Young's interval."""
    return as_json(8, 64, 1, 1, 1, round(young_interval(task["save"], _mtbf(task))))
