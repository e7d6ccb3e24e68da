"""The checks of lab 09's exercises, and the mistakes that they name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...parallel.mesh import Partial, Replicate, Shard
from ...sim import SimWorld
from .rules import TEN, TRICK, LayoutFacts, layout_facts, score_rule


def judge_product_type(check, product_type, ndim: int) -> None:
    """Compare the types that a function gives for all pairs of factors with what the numbers say.

    Parameters
    ----------
    check : Check
    product_type : callable
        product_type(x, w, ndim) returns a placement, or None.
    ndim : int
        Axes of x.
    """
    for x in (Replicate(), Partial(), *map(Shard, range(ndim))):
        with check.group(f"{x} @ W of each type, ndim {ndim}", most=4):
            for w in (Replicate(), Partial(), Shard(0), Shard(1)):
                want, got = _told(_product_type(x, w, ndim - 1)), _told(check.call(product_type, x, w, ndim))
                wrong = {
                    "this is the class: call it, as in Replicate()": got if got.startswith("class") else "",
                    "each rank has some of the terms of every sum": "Replicate()" if want == "Partial()" else "",
                    "a product of sums is not the sum of products": "Partial()" if x == w == Partial() else "",
                    "count the axes of x, not of W": "Shard(1)" if want == f"Shard({ndim - 1})" else "",
                    "the ranks' parts do not belong together": got if want == "None" and x != w else "",
                    "these parts belong together: nothing has to be sent before": "None" if want != "None" else "",
                }
                check.equal(f"{x} @ {w}, ndim {ndim}", got, want, suspects=wrong)


class _Text(str):
    """Text that is shown without quotation marks."""

    __repr__ = str.__str__


def _told(placement) -> _Text:
    """Return a placement as text; it may have come from another process, where it stands for an answer's object."""
    kind = type(placement).__name__
    if kind == "type":
        return _Text(f"class {placement.__name__}")
    return _Text("None" if placement is None else f"Shard({placement.axis})" if kind == "Shard" else f"{kind}()")


def _product_type(x, w, last: int):
    if isinstance(x, Shard):
        if x.axis == last:
            return Partial() if w == Shard(0) else None
        return x if w == Replicate() else None
    if isinstance(w, Shard):
        return Shard(last) if x == Replicate() and w.axis == 1 else None
    if x == w == Partial():
        return None
    return Partial() if Partial() in (x, w) else Replicate()


_NAMES = {
    ("Partial", "Replicate"): ("all_reduce", 2),
    ("Partial", "Shard"): ("reduce_scatter", 1),
    ("Shard", "Replicate"): ("all_gather", 1),
    ("Shard", "Shard"): ("all_to_all", None),
}


def judge_move(check, move, nbytes: float, p: int, axes: tuple[int, int]) -> None:
    """Compare the collectives and the bytes that a function gives for all changes of type.

    Parameters
    ----------
    check : Check
    move : callable
        move(old, new, nbytes, p) returns the collective and the bytes that a rank sends.
    nbytes : float
    p : int
    axes : pair of int
        Of the shards that are tried.
    """
    kinds = [Replicate(), Partial(), *map(Shard, axes)]
    for old in kinds:
        with check.group(f"from {old} to each type, {p} ranks", most=4):
            for new in kinds:
                _judge_change(check, old, new, check.call(move, old, new, nbytes, p), nbytes, p)


def _judge_change(check, old, new, found, nbytes: float, p: int) -> None:
    """Compare what an answer says of one change of type."""
    pair, where = (type(old).__name__, type(new).__name__), f"{old} to {new}, {p} ranks"
    name, times = _NAMES.get(pair, ("", 0)) if old != new else ("", 0)
    want = (p - 1) / p * nbytes * (1 / p if times is None else times)
    if not (isinstance(found, tuple) and len(found) == 2):
        check.true(where, False, "return two things: the name, and the bytes")
        return
    if isinstance(found[1], str):
        check.true(where, False, "the name comes first, then the bytes")
        return
    why = "its type stays" if old == new else "zeros around its share" if pair[0] == "Shard" else "it has all of it"
    check.equal(where, found[0], name, suspects={} if name else {f"{why}: nothing is sent": found[0]})
    wrong = {f"{why}: nothing is sent": found[1]}
    if want:
        wrong = {
            "a rank does not send its own part to itself: (p - 1) / p": want * p / (p - 1),
            "this is what all ranks send together, or a rank's part of it is missing: 1 / p": want * p,
            "nothing but the part itself: it passes on the others' parts, too": nbytes / p,
        }
    if name == "all_reduce":
        wrong["an all-reduce is a reduce-scatter and an all-gather"] = want / 2
        wrong["the array once: a reduce-scatter and an all-gather send all but a rank's share, each"] = nbytes
    check.close(f"bytes, {where}", found[1], want, rtol=1e-9, suspects=wrong)


def judge_typed(check, gain_gradient, input_gradient, grad_norm, p: int, shape=(7, 9), seed: int = 0) -> None:
    """Compare three functions on typed arrays with serial ones, on every rank.

    Parameters
    ----------
    check : Check
    gain_gradient, input_gradient, grad_norm : callable
        (comm, dy, x_hat), (comm, dy, W) and (comm, sharded, replicated).
    p : int
        Number of ranks.
    shape : tuple of int
        Rows and columns.
    seed : int
    """
    rng, where = np.random.default_rng([seed, p]), f", {p} rank{'s' * (p > 1)}"
    a, b = rng.normal(size=(2, *shape))
    w, c = rng.normal(size=(5, shape[1])), rng.normal(size=4)

    def mine(x, comm, axis):
        return np.array_split(x, comm.size, axis=axis)[comm.rank].copy()

    def program(comm):
        cut = [mine(a, comm, 1), mine(w, comm, 1)]
        return (
            check.call(gain_gradient, comm, mine(a, comm, 0), mine(b, comm, 0)),
            check.call(input_gradient, comm, cut[0], cut[1]),
            check.call(grad_norm, comm, cut, [c, c[:2].copy()]),
        )

    own, whole = (a**2).sum() + (w**2).sum(), (c**2).sum() + (c[:2] ** 2).sum()
    ranks = range(p)
    parts = [(np.array_split(a, p)[r] * np.array_split(b, p)[r]).sum(axis=0) for r in ranks]
    columns = [np.array_split(a, p, axis=1)[r] @ np.array_split(w, p, axis=1)[r].T for r in ranks]
    norms = {
        "what every rank has is counted p times": [np.sqrt(own + p * whole)] * p,
        "the gradients that all ranks have are missing": [np.sqrt(own)] * p,
        "the root is missing": [own + whole] * p,
    }
    gain, dx, norm = zip(*SimWorld(p).run(program), strict=True)
    for name, got, want, wrong in (
        ("gain_gradient", gain, (a * b).sum(axis=0), {"of this rank's rows only: all_reduce": parts}),
        ("input_gradient", dx, a @ w.T, {"a partial sum: all_reduce": columns, "summed twice": [p * (a @ w.T)] * p}),
        ("grad_norm", norm, np.sqrt(own + whole), norms),
    ):
        r = next((r for r in ranks if _differs(got[r], want)), 0)  # one line for all ranks: a wrong one, if any is
        wrong = {told: values[r] for told, values in wrong.items()} if p > 1 else None
        check.close(name + where, got[r], want, suspects=wrong)


def judge_layers(check, functions, p: int, shape=(5, 6, 8), seed: int = 0) -> None:
    """Compare column- and row-parallel layers with the serial one, on every rank, and count their collectives.

    Parameters
    ----------
    check : Check
    functions : tuple of callable
        As for `train_layers`.
    p : int
        Number of ranks.
    shape : tuple of int
        Samples, inputs, outputs.
    seed : int
    """
    rng, (n, k, m), where = np.random.default_rng([seed, p]), shape, f", {p} rank{'s' * (p > 1)}"
    x, dy, W, b = (rng.normal(size=s) for s in ((n, k), (n, m), (k, m), m))
    xs, dys, Wc, Wr = (np.array_split(a, p, axis) for a, axis in ((x, 1), (dy, 1), (W, 1), (W, 0)))
    bs = np.array_split(b, p)

    def program(comm):
        r = comm.rank
        args = (x, Wc[r], bs[r]), (dys[r], x, Wc[r]), (xs[r], Wr[r], b), (dy, xs[r], Wr[r])
        return [check.call(f, comm, *(a.copy() for a in given)) for f, given in zip(functions, args, strict=True)]

    world, ranks = SimWorld(p), range(p)
    column, back, row, row_back = zip(*world.run(program), strict=True)
    for name, found in (("column_backward", back), ("row_backward", row_back)):
        if not all(isinstance(three, tuple) and len(three) == 3 for three in found):
            check.true(name + where, False, "return dx, dW, db")
            return
        if np.shape(found[0][1])[:1] == (n,) != np.shape(found[0][0])[:1]:
            check.true(name + where, False, "dx comes first, then dW")
            return
    dx, dW, db, y = dy @ W.T, x.T @ dy, dy.sum(axis=0), x @ W + b
    summands = {
        "this rank's summand: each rank has some columns, so sum over the ranks": [dys[r] @ Wc[r].T for r in ranks]
    }
    biased = {
        "the bias is added once on every rank: add it after the sum": [y + (p - 1) * b] * p,
        "this rank's summand: sum over the ranks": [xs[r] @ Wr[r] + b for r in ranks],
    }
    ys, dWs = np.array_split(y, p, axis=1), np.array_split(dW, p, axis=1)
    mixed = {f"each rank has its own columns of {what}: no all_reduce": _sums(parts) for what, parts in
             (("y", ys), ("dW", dWs))}  # fmt: skip
    summed = {"every rank has all of dy, so db is whole: no all_reduce": [p * db] * p}
    for name, got, want, wrong in (
        ("column_forward's y", column, ys, mixed),
        ("column_backward's dx", [g[0] for g in back], [dx] * p, summands),
        ("column_backward's dW", [g[1] for g in back], dWs, mixed),
        ("column_backward's db", [g[2] for g in back], np.array_split(db, p), {}),
        ("row_forward's y", row, [y] * p, biased),
        ("row_backward's dx", [g[0] for g in row_back], np.array_split(dx, p, axis=1), {}),
        ("row_backward's dW", [g[1] for g in row_back], np.array_split(dW, p), {}),
        ("row_backward's db", [g[2] for g in row_back], [db] * p, summed),
    ):
        r = next((r for r in ranks if _differs(got[r], want[r])), 0)  # one line for all ranks: a wrong one, if any is
        wrong = {told: values[r] for told, values in wrong.items()} if p > 1 else None
        factors = {"ranks": p} if p > 1 else None
        check.close(f"{name}{where}", got[r], want[r], factors=factors, suspects=wrong)
    if p > 1:
        names = [span.name for span in world.trace.select(rank=0, lane="comm")]
        check.equal("collectives of all four" + where, names, ["all_reduce"] * 2)


def _sums(parts) -> list:
    """Return the sum of all parts for each of them, or NaN where their shapes differ."""
    alike = len({part.shape for part in parts}) == 1
    return [sum(parts) if alike else np.nan] * len(parts)


def _differs(got, want) -> bool:
    return got is None or np.shape(got) != np.shape(want) or not np.allclose(got, want)


def judge_assign(check, assign, costs, p: int) -> None:
    """Compare an assignment of paths to ranks with the costliest-first rule.

    Parameters
    ----------
    check : Check
    assign : callable
        assign(costs, p) returns a list of paths for each rank.
    costs : list of float
    p : int
    """
    got, where = check.call(assign, list(costs), p), f", costs {costs} on {p} rank{'s' * (p > 1)}"
    try:
        flat = sorted(int(k) for own in got for k in own)
    except TypeError:
        check.true("a list for each rank" + where, False, "return a list of p lists of numbers of paths")
        return
    check.equal("lists" + where, len(got), p)
    numbers = list(range(len(costs)))
    mistakes = {
        "all ranks have the same paths: [[]] * p is one list, p times": sorted(numbers * p) if p > 1 else None,
        "numbers of paths are wanted, not their costs": sorted(costs),
        "paths are numbered from 0": [k + 1 for k in numbers],
    }
    check.equal("every path once" + where, flat, numbers, suspects=mistakes)
    if flat != numbers:
        return

    def by_load(order):
        paths, loads = [[] for _ in range(p)], [0.0] * p
        for k in order:
            rank = loads.index(min(loads))
            paths[rank].append(k)
            loads[rank] += costs[k]
        return paths

    def dealt(order):
        return [order[r::p] for r in range(p)]

    def busiest(paths):
        return float(max(sum(costs[k] for k in own) for own in paths))

    costliest_first = sorted(numbers, key=lambda k: -costs[k])
    rules = {
        "in the order of their numbers: take the costliest first": by_load(numbers),
        "the cheapest first: the costliest then comes on top": by_load(costliest_first[::-1]),
        "dealt in turn: look at how much each rank has to do already": dealt(numbers),
        "the costliest first, but dealt in turn: look at how much each rank has to do already": dealt(costliest_first),
        "one rank has all of them: take the one with the least to do, and let its load grow": [numbers],
    }
    mine = sorted(sorted(int(k) for k in own) for own in got if len(own))  # which rank is which does not matter
    fitting = [told for told, paths in rules.items() if mine == sorted(sorted(own) for own in paths if own)]
    wrong = {"; or ".join(fitting): busiest(got)} if fitting else {}
    check.close("operations of the busiest" + where, busiest(got), busiest(by_load(costliest_first)), suspects=wrong)


def _sent(facts: LayoutFacts) -> dict[str, float]:
    q = (facts.ranks - 1) / facts.ranks
    found = {"data": 2 * q * facts.weights, "tensor": facts.tensor}
    if facts.boundary is not None:
        found[TRICK] = 2 * q * (facts.weights - facts.weights_dense + facts.boundary) + facts.tensor_dense
    return found


def judge_rule(check, sent, choose, *, ranks: int = 4, times: float = 1.0, most: float = 1.1) -> None:
    """Compare the bytes of three layouts with a reference, and score a rule against the planner, on ten networks.

    Parameters
    ----------
    check : Check
    sent, choose : callable
        Of `LayoutFacts`; bytes by layout, and a layout.
    ranks : int
    times : float
        The batch, as a multiple of that in `TEN`.
    most : float
        How many times longer steps may take than in the planner's layouts, as a geometric mean.
    """
    cases = [replace(case, ranks=ranks, batch_size=int(times * case.batch_size)) for case in TEN]
    for case in (case for case in cases if case.name in ("wide MLP", "AlexNet", "GPT")):
        facts = layout_facts(case)[0]
        where, want = f", {case.name}, {ranks} ranks", _sent(facts)
        try:
            got = check.call(sent, facts)
        except TypeError:
            if facts.boundary is not None:
                raise
            check.true("layouts" + where, False, "boundary is None here: leave the trick out of what you return")
            return
        check.equal("layouts" + where, sorted(got), sorted(want))
        if None in got.values():
            check.true("bytes" + where, False, "None is no number of bytes: leave out a layout that there is not")
            return
        for name in sorted(set(want) & set(got)):
            q, wrong = (ranks - 1) / ranks, {}
            if name == "data":
                wrong = {
                    "a rank does not send its own part: (ranks - 1) / ranks": 2 * facts.weights,
                    "an all-reduce is a reduce-scatter and an all-gather": q * facts.weights,
                }
            if name == TRICK:
                wrong = {
                    "the boundary is passed twice: activations forward, gradients backward": want[name]
                    - q * facts.boundary,
                    "all weights are counted: only those before the dense layers are summed": want[name]
                    + 2 * q * facts.weights_dense,
                    "the dense weights are not summed: those before them are": want[name]
                    + 2 * q * (2 * facts.weights_dense - facts.weights),
                }
            check.close(name + where, got[name], want[name], rtol=1e-6, suspects=wrong)

    def chosen_by(facts):
        name = check.call(choose, facts)
        if not isinstance(name, str):
            raise TypeError(
                f"choose returned a {type(name).__name__}, expected a name: one of {', '.join(_sent(facts))}"
            )
        return name

    score = score_rule(chosen_by, cases)
    case, chosen, fastest, ratio = max(score.rows, key=lambda row: row[-1])
    check.true(
        f"steps take {score.regret:.2f} times as long as with the planner's choices, {ranks} ranks",
        score.regret <= most,
        f"at most {most} is wanted; worst is {case.name}: {chosen} takes {ratio:.1f} times as long as {fastest}",
    )
