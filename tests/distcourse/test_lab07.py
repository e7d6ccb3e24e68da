"""The experiments of lab 7: what judges a step, how much is exposed, whole runs."""

import numpy as np
import pytest
from distcourse import lab07
from distcourse import lab07 as dp
from distcourse.check import Check, CheckFailed

from distlearn.comm import Network
from distlearn.train import Settings


def step(comm, model, loss, optimizer, batch):
    optimizer.zero_grad()
    logits, saved = model.forward(batch.x)
    value, dlogits = loss(logits, batch.y, batch.n)
    model.backward(dlogits, saved)
    for p in model.params:
        comm.all_reduce(p.grad)
    optimizer.step()
    return float(comm.all_reduce(np.array([value]))[0])


def local_sgd(comm, model, loss, optimizer, batches, every):
    losses = []
    for k, batch in enumerate(batches, 1):
        losses.append(dp.serial_step(comm, model, loss, optimizer, batch))
        if k % every == 0 or k == len(batches):
            for p in model.params:
                comm.all_reduce(p.data)
                p.data /= comm.size
    return losses


def verdict(judge, *args, **kwargs):
    """The text of a check that one judge fills."""
    try:
        with Check("x", hints=False) as check:
            judge(check, *args, **kwargs)
    except CheckFailed as error:
        return str(error)
    return ""


def test_right_answers_pass():
    for cuts in ([0, 7, 9, 10], [0, 3, 3, 5], [0, 4]):
        assert not verdict(dp.check_step, step, cuts)
    for ranks, frozen in ((3, ()), (4, (0, 3)), (1, ())):
        assert not verdict(dp.check_backward, dp.library_backward, ranks=ranks, frozen=frozen)
    for case in ((3, 7, 3), (4, 6, 2), (2, 3, 9), (1, 3, 2)):
        assert not verdict(dp.check_local_sgd, local_sgd, *case)


def test_commonest_mistakes_are_named():
    own = verdict(dp.check_step, dp.serial_step, [0, 7, 9, 10])
    assert "this rank's own part only: sum over ranks" in own
    assert "this rank's own part of the loss" in own
    late = verdict(dp.check_backward, dp.after_backward)
    assert "start each all-reduce in on_grad" in late

    def alone(comm, model, loss, optimizer, batches, every):
        return [dp.serial_step(comm, model, loss, optimizer, batch) for batch in batches]

    assert "not averaged after the last step" in verdict(dp.check_local_sgd, alone, 3, 7, 99)


def local_sgd_with(clear=True, parameters=True, own_batch=True):
    def train(comm, model, loss, optimizer, batches, every):
        losses = []
        for k, batch in enumerate(batches, 1):
            if clear:
                optimizer.zero_grad()
            logits, saved = model.forward(batch.x)
            value, dlogits = loss(logits, batch.y, batch.n if own_batch else batch.n * comm.size)
            model.backward(dlogits, saved)
            losses.append(value)
            for moment in ("gradients", "parameters"):
                if (moment == "parameters") == parameters and (k % every == 0 or k == len(batches)):
                    for p in model.params:
                        array = p.data if parameters else p.grad
                        comm.all_reduce(array)
                        array /= comm.size
                if moment == "gradients":
                    optimizer.step()
        return losses

    return train


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"clear": False}, "the gradients of earlier steps are still in it: zero_grad()"),
        ({"parameters": False}, "the gradients were averaged: average the parameters, after the step"),
        ({"own_batch": False}, "divided by more than this rank's own batch"),
    ],
)
def test_mistakes_of_local_sgd_are_named(wrong, words):
    assert not verdict(dp.check_local_sgd, local_sgd_with(), 3, 7, 3)
    told = verdict(dp.check_local_sgd, local_sgd_with(**wrong), 3, 7, 3)
    assert words in told
    assert "parameters, rank 1 of 3 ranks" in told


def test_no_mistake_is_named_that_was_not_made():
    empty = verdict(dp.check_step, dp.serial_step, [0, 4, 4, 9])
    assert "this rank's part is empty, so its gradient comes from the others" in empty
    assert "have not moved" not in empty

    def still(comm, model, loss, optimizer, batch):
        optimizer.zero_grad()
        return 0.0

    def only_on_rank_0(comm, model, loss, optimizer, batch):
        before = [p.data.copy() for p in model.params]
        value = step(comm, model, loss, optimizer, batch)
        for p, data in zip(model.params, before, strict=True):
            p.data[...] = p.data if comm.rank == 0 else data
        return value

    for unmoved in (still, only_on_rank_0):
        told = verdict(dp.check_step, unmoved, [0, 4, 4, 9])
        assert "the parameters have not moved" in told
        assert "this rank's part is empty" not in told

    def untimed(comm, model, dlogits, saved, buckets):
        dp.library_backward(comm, _Untimed(model), dlogits, saved, buckets)

    told = verdict(dp.check_backward, untimed)
    assert "pass clock=comm.clock to backward" in told
    assert "start each all-reduce in on_grad" not in told


class _Untimed:
    """A model whose backward is not told of the clock."""

    def __init__(self, model):
        self.model = model

    def backward(self, dlogits, saved, on_grad, clock):
        return self.model.backward(dlogits, saved, on_grad=on_grad)


def test_overlap_leaves_less_exposed_and_the_figure_says_how_much():
    naive, ours = dp.backward_step(dp.after_backward, np.inf), dp.backward_step(dp.library_backward)
    assert naive.exposed == pytest.approx(naive.communicating)
    assert ours.exposed < 0.5 * naive.exposed
    assert ours.seconds < naive.seconds
    for rank in range(4):
        for a, b in zip(naive.gradients[rank], ours.gradients[rank], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    axes = lab07.plot_overlap({"after backward": naive, "yours": ours})
    assert f"{1e3 * ours.exposed:.2f} of" in axes[1].get_title(loc="left")


def test_a_network_is_found_again_from_its_all_reduces():
    true = Network(20e-6, 2e9)
    seconds = {2: [true.collective("all_reduce", m, range(2)) for m in dp.Measured((2,), {}, {}, None).messages]}
    found = dp.fit_network(dp.Measured((2,), {}, seconds, None), 2)
    assert found.alpha == pytest.approx(true.alpha, rel=1e-6)
    assert found.beta == pytest.approx(true.beta, rel=1e-6)


def test_runs_with_a_given_step_plan_and_deal():
    small = Settings(data="digits", n_train=256, hidden=(16,), optimizer="sgd", lr=0.3, batch_size=16, epochs=6)
    plan = lambda step: 0.3  # noqa: E731
    assert dp.final_accuracy(small.but(lr=0.0), plan) > 50
    assert dp.final_accuracy(small, lambda step: 1e9) <= 30
    often, seldom = (dp.local_run(local_sgd, every, by_class=True, epochs=2) for every in (1, 40))
    assert often[0] == 40 * seldom[0]
    assert often[1] > seldom[1]
