"""A given training step against a serial one: the checks of lab 07's exercises, and the mistakes that they name."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ...comm import Network
from ...data import Batch, load
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import SGD, Optimizer
from ...parallel import Serial
from ...sim import SimWorld
from ..flat import flat
from .overlap import after_backward, backward_step, library_backward

SIZES = (6, 8, 4)


def gradient_of(rows, n_hidden: int = 32) -> np.ndarray:
    """Return the mean gradient of a small network over some training digits, as one flat array."""
    digits, model = load("digits", dtype="float64"), MLP((64, n_hidden, 10), dtype="float64")
    logits, saved = model.forward(digits.x_train[rows])
    model.backward(SoftmaxCrossEntropy()(logits, digits.y_train[rows])[1], saved)
    return flat(model.params, "grad")


def serial_step(comm, model, loss, optimizer, batch) -> float:
    """Take the step of a single rank."""
    return Serial(model, loss, optimizer).step(batch)


def run_step(step, x, y, cuts, sizes=SIZES, steps=1, frozen=()):
    """Take steps of SGD on ranks; rank r has rows cuts[r] to cuts[r + 1].

    Returns
    -------
    ranks : list of (loss, moved)
        The last step's loss and by how much each parameter was moved at a rate of 1: the sum of the gradients.
    """

    def on_rank(comm):
        model = MLP(sizes, "tanh", dtype="float64")
        for i in frozen:
            model.params[i].frozen = True
        sgd = Optimizer([p for p in model.params if not p.frozen], SGD(), lr=1.0)
        before = [p.data.copy() for p in model.params]
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        a, b = cuts[comm.rank : comm.rank + 2]
        batch = Batch(x[a:b], y[a:b], cuts[-1] - cuts[0])
        for _ in range(steps):
            value = step(comm, model, SoftmaxCrossEntropy(), sgd, batch)
        return value, np.concatenate([(b - p.data).ravel() for b, p in zip(before, model.params, strict=True)])

    return SimWorld(len(cuts) - 1).run(on_rank)


def judge_step(check, step, cuts, sizes=SIZES, seed=2) -> None:
    """Compare a data-parallel step with a serial one on every rank; add the outcome to a lab's check.

    Parameters
    ----------
    check : Check
    step : callable
        `step(comm, model, loss, optimizer, batch) -> loss of the global batch`.
    cuts : list of int
        Rank r has rows cuts[r] to cuts[r + 1].
    sizes : tuple of int
        Widths of the network.
    seed : int
    """
    rng, ranks = np.random.default_rng(seed), len(cuts) - 1
    x, y = rng.normal(size=(cuts[-1], sizes[0])), rng.integers(0, sizes[-1], cuts[-1])
    ((value, want),) = run_step(serial_step, x, y, [0, cuts[-1]], sizes)
    parts = {rank: run_step(serial_step, x, y, [a, b], sizes)[0] for rank, (a, b) in enumerate(pairwise(cuts)) if b > a}
    share = np.diff(cuts) / cuts[-1]
    taken = run_step(step, x, y, cuts, sizes)
    moved = [got.any() for _, got in taken]
    unsummed = any(moved) and not any(np.allclose(got, want, rtol=1e-10) for _, got in taken)
    for rank, (total, got) in enumerate(taken):
        where = f"rank {rank} of {ranks}"
        loss, grad = parts.get(rank, (0.0, np.zeros_like(want)))
        wrong = {
            "the parameters have not moved: it takes both model.backward and optimizer.step()": np.zeros_like(want),
            "the gradients of an earlier step are still in it: zero_grad()": want + 0.5 * ranks,
        }
        losses = {}
        if rank not in parts and unsummed:  # else it is the update that is missing
            told = "this rank's part is empty, so its gradient comes from the others: sum over ranks before the step"
            wrong = {told: np.zeros_like(want)} | wrong
        if ranks > 1:
            wrong |= {
                "a mean of means: pass batch.n to the loss, and only sum": sum(g for _, g in parts.values()) / ranks,
                "a sum of means: pass batch.n to the loss": sum(g for _, g in parts.values()),
                "this rank's own part only: sum over ranks after backward, before the step": share[rank] * grad,
                "this rank's own part and an earlier step's gradients: zero_grad(), and sum": share[rank] * grad + 0.5,
                "the mean over this rank's own part: batch.n, and a sum over ranks": grad,
            }
            losses = {
                "this rank's own part of the loss: sum it over ranks, too": share[rank] * loss,
                "the mean over this rank's own part": loss,
            }
        factors = {"ranks": ranks} if ranks > 1 else None
        check.close(f"gradient, {where}", got, want, rtol=1e-10, factors=factors, suspects=wrong)
        check.close(f"loss, {where}", total, value, rtol=1e-10, factors=factors, suspects=losses)


def judge_backward(check, backward, ranks=3, cap_bytes=3000, widths=(16, 24, 24, 10), frozen=()) -> None:
    """Compare a given overlapped backward with the library's; add the outcome to a lab's check.

    Parameters
    ----------
    check : Check
    backward, ranks, cap_bytes, widths, frozen
        For `backward_step`.
    """
    case = {"ranks": ranks, "widths": widths, "samples": 32, "frozen": frozen, "network": Network(1e-6, 4e9)}
    got, want, late = (
        backward_step(f, cap_bytes, peak=5e9, **case) for f in (backward, library_backward, after_backward)
    )
    of = f"{ranks} rank{'s' * (ranks > 1)}, {len(frozen)} frozen" if frozen else f"{ranks} rank{'s' * (ranks > 1)}"
    alone = backward_step(lambda comm, model, dy, saved, buckets: model.backward(dy, saved), cap_bytes, **case)
    flat = [
        np.stack([np.concatenate([g.ravel() for g in rank]) for rank in step.gradients]) for step in (got, want, alone)
    ]
    wrong = {"each rank has its own: not summed over the ranks": flat[2]} if ranks > 1 else None
    check.close(f"gradients, {of}", flat[0], flat[1], rtol=1e-10, factors={"ranks": ranks}, suspects=wrong)
    computing = [step.trace.total(lane="compute") for step in (got, want)]
    timed = np.isclose(*computing)
    check.true(f"backward takes time, {of}", timed, "pass clock=comm.clock to backward")
    calls = [len(step.trace.select(rank=0, lane="comm")) for step in (got, want)]
    check.equal(f"all-reduces, {of}: one per bucket", *calls)
    if timed and ranks > 1 and calls[1] > 1:
        told = "start each all-reduce in on_grad, and wait only after backward"
        early = got.exposed < 0.999 * late.exposed
        check.true(f"it overlaps, {of}", early, told)
        if early and calls[0] == calls[1]:
            told = f"{1e6 * got.exposed:.1f} µs exposed, {1e6 * want.exposed:.1f} are possible"
            check.true(f"nothing waits without need, {of}", got.exposed <= want.exposed * (1 + 1e-9) + 1e-12, told)


def average_locally(train, ranks, steps, every, sizes=(5, 6, 3), seed=3):
    """Run a given local SGD.

    Returns
    -------
    ranks : list of (parameters, losses)
    averaged : float
        How many times rank 0 gave all parameters to be averaged.
    """

    def on_rank(comm):
        rng = np.random.default_rng([seed, comm.rank])
        model = MLP(sizes, "tanh", dtype="float64")
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        sgd = Optimizer(model.params, SGD(), 0.3)
        x, y = rng.normal(size=(steps, 4, sizes[0])), rng.integers(0, sizes[-1], (steps, 4))
        batches = [Batch(*xy, 4) for xy in zip(x, y, strict=True)]
        losses = train(comm, model, SoftmaxCrossEntropy(), sgd, batches, every)
        return flat(model.params), losses

    world = SimWorld(ranks)
    found = world.run(on_rank)
    given = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return found, given / found[0][0].nbytes


def _locally(
    comm,
    model,
    loss,
    optimizer,
    batches,
    every,
    *,
    first=1,
    last=True,
    mean=True,
    clear=True,
    gradients=False,
    own_batch=True,
) -> list:
    """Train alone and average, right or in the usual wrong ways."""
    losses = []
    for step, batch in enumerate(batches, first):
        if clear:
            optimizer.zero_grad()
        logits, saved = model.forward(batch.x)
        value, dlogits = loss(logits, batch.y, batch.n * (1 if own_batch else comm.size))
        model.backward(dlogits, saved)
        losses.append(value)
        now = step % every == 0 or (last and step == len(batches) - 1 + first)
        if now and gradients:
            _average(comm, [p.grad for p in model.params], mean)
        optimizer.step()
        if now and not gradients:
            _average(comm, [p.data for p in model.params], mean)
    return losses


def _average(comm, arrays, mean) -> None:
    for a in arrays:
        a[...] = comm.all_gather(a).sum(axis=0) / (comm.size if mean else 1)


def judge_local_sgd(check, train, ranks, steps, every, sizes=(5, 6, 3), seed=3) -> None:
    """Compare a given local SGD with a reference; add the outcome to a lab's check.

    Parameters
    ----------
    check : Check
    train : callable
    ranks, steps, every, sizes, seed
        For `average_locally`.
    """
    case = ranks, steps, every, sizes, seed
    got, averaged = average_locally(train, *case)
    want, _ = average_locally(_locally, *case)
    expected = steps // every + (steps % every > 0)
    of = f"{ranks} ranks, {steps} steps, every {every}"
    kinds = {
        "not averaged after the last step": {"last": False},
        "steps are counted from 0: average after the first `every`, not before": {"first": 0},
        "steps are counted from 0: the first average comes too soon, the last never": {"first": 0, "last": False},
        "a sum, not a mean: divide by comm.size": {"mean": False},
        "the gradients of earlier steps are still in it: zero_grad()": {"clear": False},
        "the gradients were averaged: average the parameters, after the step": {"gradients": True},
        "divided by more than this rank's own batch: batch.n is its size": {"own_batch": False},
    }
    others = {
        told: average_locally(lambda *args, how=how: _locally(*args, **how), *case)[0] for told, how in kinds.items()
    }
    others["never averaged: each rank has its own"] = average_locally(
        lambda comm, *rest: _locally(comm, *rest[:4], 10**9, last=False), *case
    )[0]
    for rank in range(ranks):
        wrong = {told: them[rank][0] for told, them in others.items()} if ranks > 1 else {}
        check.close(
            f"parameters, rank {rank} of {of}", got[rank][0], want[rank][0], rtol=1e-10, atol=1e-13, suspects=wrong
        )
    losses = [result[1] for result in got]
    if any(value is None for value in losses):
        check.true(f"losses, {of}", False, "the function returns None: is `return losses` there?")
    else:
        check.close(f"losses, {of}", np.array(losses), np.array([result[1] for result in want]), rtol=1e-10)
    if ranks > 1:
        told = f"all parameters were averaged {averaged:g} times, expected {expected}"
        check.true(f"averagings, {of}", np.isclose(averaged, expected), told)
