"""Track 3: what three chains of layers keep, and what they compute again, under one budget of bytes (lab 13)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from pathlib import Path

from distlearn.nn import best_plan, plan_cost

from .reading import Refused, json_of, read_bytes
from .track import Draws, Result, judged, picture_of, refused

name, file, unit = "memory", "memory.json", "operations again"
hidden = False


def draw(draws: Draws) -> dict:
    """Draw three uneven chains, and a budget with which a third of what they save fits."""
    chains = []
    for c, n in enumerate((10, 12, 14)):
        forward = [2 ** draws(0, 6, c, "scale", i) + draws(0, 9, c, "forward", i) for i in range(n)]
        inputs = [draws(1, 8, c, "inputs", i) for i in range(n)]
        chains.append({"forward": forward, "inputs": inputs, "saved": [draws(2, 19, c, "saved", i) for i in range(n)]})
    return {"chains": chains, "budget": sum(sum(c["saved"]) for c in chains) // 3}


@functools.cache
def _optimum(text: str) -> tuple[int, list[int]]:
    task, best = json.loads(text), {0: (0, [])}  # by bytes used: operations again, and the chains' shares
    for chain in task["chains"]:
        args, curve, grown = (chain["forward"], chain["inputs"], chain["saved"]), {}, {}
        for room in range(1, min(task["budget"], sum(chain["saved"])) + 1):
            with contextlib.suppress(ValueError):  # nothing fits into so little
                peak, again = plan_cost(best_plan(*args, room), *args)
                curve[int(peak)] = int(again)
        for (used, (before, shares)), (room, again) in itertools.product(best.items(), curve.items()):
            if used + room <= task["budget"]:
                new = before + again, [*shares, room]
                grown[used + room] = min(new, grown.get(used + room, new))
        best = grown
    return min(best.values())


def optimum(task: dict) -> tuple[int, list[int]]:
    """Return the fewest operations that any plan does again, and the shares of the budget with which it is reached."""
    return _optimum(json.dumps(task, sort_keys=True))


def floor(task: dict) -> int:
    return optimum(task)[0]


def _plan(part, n: int):
    if isinstance(part, list) and part and all(type(i) is int for i in part):
        return part
    if isinstance(part, list) and len(part) == 2:
        return tuple(_plan(inner, n) for inner in part)
    raise Refused(f"a plan is a list of layer numbers or a list of two plans, got {str(part)[:40]}")


def read(path: Path, task: dict) -> list:
    given = json_of(read_bytes(path), path.name)
    if not isinstance(given, dict) or set(given) != {"plans"} or not isinstance(given["plans"], list):
        raise Refused(f'{path.name}: expected {{"plans": [...]}} and no other key')
    if len(given["plans"]) != len(task["chains"]):
        raise Refused(f"{path.name}: {len(given['plans'])} plans, expected {len(task['chains'])}")
    return [_plan(p, len(c["forward"])) for p, c in zip(given["plans"], task["chains"], strict=True)]


def score(path: Path, task: dict, **_) -> Result:
    """Count the bytes at the peak of all three plans, and what they compute again."""
    try:
        plans = read(path, task)
    except ValueError as error:
        return refused(error)
    try:
        costs = [
            plan_cost(p, c["forward"], c["inputs"], c["saved"]) for p, c in zip(plans, task["chains"], strict=True)
        ]
    except ValueError as error:
        return refused(error, "wrong")
    peak, again = (sum(int(row[k]) for row in costs) for k in (0, 1))
    if peak > task["budget"]:
        return refused(f"{peak} bytes at the peak, the budget is {task['budget']}", "wrong")
    return judged(again, floor(task), notes=[f"{peak} of {task['budget']} bytes at the peak"])


def picture(path: Path, task: dict) -> tuple[str, str]:
    """Return a bar for each layer, how often it runs, and what that shows."""

    def runs(plan, above=1):
        if isinstance(plan, list):
            return dict.fromkeys(plan, above)
        return {i: above + n for i, n in runs(plan[0]).items()} | runs(plan[1], above)

    counts = [runs(plan) for plan in read(path, task)]

    def draw_bars(ax):
        at = 0
        for c, (times, style) in enumerate(zip(counts, ("#62b2e6", "#132f5b", "#2e968b"), strict=True)):
            ax.bar([at + i for i in times], list(times.values()), color=style, width=0.86, label=f"chain {c}")
            at += len(times) + 1
        ax.set(xlabel="layer, chain by chain", ylabel="times its forward runs", title="What is computed again")
        ax.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)

    again = sum(sum(n > 1 for n in times.values()) for times in counts)
    return picture_of(draw_bars), f"{again} of {sum(map(len, counts))} layers run again before their backward"


def plans_with(task: dict, shares: list[int]) -> bytes:
    """Return the best plans with a given share of the budget each."""
    plans = [best_plan(c["forward"], c["inputs"], c["saved"], b) for c, b in zip(task["chains"], shares, strict=True)]
    return json.dumps({"plans": plans}).encode()


def beat_this(task: dict) -> bytes:
    """Return the library's `best_plan` of each chain; beyond the least that fits, what saves more gets more."""
    chains = task["chains"]
    least = [max(a + b for a, b in zip([0, *c["inputs"][1:]], c["saved"], strict=True)) for c in chains]
    total, room = sum(sum(c["saved"]) for c in chains), task["budget"] - sum(least)
    shares = [low + room * sum(c["saved"]) // total for low, c in zip(least, chains, strict=True)]
    return plans_with(task, shares)
