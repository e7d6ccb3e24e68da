"""The experiments of lab 7: what judges a step, how much is exposed, whole runs."""

import numpy as np
import pytest
from distcourse import lab07
from distcourse import lab07 as dp

from distlearn.comm import Network
from distlearn.train import Settings

from ..course.submissions import answered
from .judging import verdict

SOLUTIONS = answered("lab07", "scaled_lr")


def told(judge, exercise, wrong, *args, **kwargs):
    """What a check says of a known wrong answer."""
    return verdict(judge, answered("lab07", exercise, wrong)[exercise], *args, **kwargs)


def test_right_answers_pass():
    for cuts in ([0, 7, 9, 10], [0, 3, 3, 5], [0, 4]):
        assert not verdict(dp.check_step, SOLUTIONS["data_parallel_step"], cuts)
    for ranks, frozen in ((3, ()), (4, (0, 3)), (1, ())):
        assert not verdict(dp.check_backward, SOLUTIONS["overlapped_backward"], ranks=ranks, frozen=frozen)
        assert not verdict(dp.check_backward, dp.library_backward, ranks=ranks, frozen=frozen)
    for case in ((3, 7, 3), (4, 6, 2), (2, 3, 9), (1, 3, 2)):
        assert not verdict(dp.check_local_sgd, SOLUTIONS["local_sgd"], *case)


def test_commonest_mistakes_are_named():
    own = told(dp.check_step, "data_parallel_step", "nothing communicated", [0, 7, 9, 10])
    assert "this rank's own part only: sum over ranks" in own
    assert "this rank's own part of the loss" in verdict(dp.check_step, dp.serial_step, [0, 7, 9, 10])
    late = verdict(dp.check_backward, dp.after_backward)
    assert "start each all-reduce in on_grad" in late


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("gradients not cleared", "the gradients of earlier steps are still in it: zero_grad()"),
        (
            "averages gradients before the step",
            "the gradients were averaged: average the parameters, after the step",
        ),
        ("divided by all ranks' samples", "divided by more than this rank's own batch"),
        ("never at the end", "not averaged after the last step"),
    ],
)
def test_mistakes_of_local_sgd_are_named(wrong, words):
    said = told(dp.check_local_sgd, "local_sgd", wrong, 3, 7, 3)
    assert words in said
    assert "parameters, rank 1 of 3 ranks" in said


def test_no_mistake_is_named_that_was_not_made():
    empty = verdict(dp.check_step, dp.serial_step, [0, 4, 4, 9])
    assert "this rank's part is empty, so its gradient comes from the others" in empty
    assert "have not moved" not in empty
    for unmoved in ("no backward", "only on rank 0"):
        said = told(dp.check_step, "data_parallel_step", unmoved, [0, 4, 4, 9])
        assert "the parameters have not moved" in said
        assert "this rank's part is empty" not in said
    untimed = told(dp.check_backward, "overlapped_backward", "no clock")
    assert "pass clock=comm.clock to backward" in untimed
    assert "start each all-reduce in on_grad" not in untimed


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
    often, seldom = (dp.local_run(SOLUTIONS["local_sgd"], every, by_class=True, epochs=2) for every in (1, 40))
    assert often[0] == 40 * seldom[0]
    assert often[1] > seldom[1]
