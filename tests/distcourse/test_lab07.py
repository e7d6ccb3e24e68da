"""The experiments of lab 7: what judges a step, how much is exposed, whole runs."""

import numpy as np
import pytest
from distcourse import lab07 as dp

from distlearn.comm import Network
from distlearn.train import Settings

from ..course.submissions import answered

SOLUTIONS = answered("lab07", "scaled_lr")


def test_overlap_leaves_less_exposed_and_the_figure_says_how_much():
    naive, ours = dp.backward_step(dp.after_backward), dp.backward_step(SOLUTIONS["overlapped_backward"], 2**19)
    assert naive.exposed == pytest.approx(naive.communicating)
    assert ours.exposed < 0.5 * naive.exposed
    assert ours.seconds < naive.seconds
    for rank in range(4):
        for a, b in zip(naive.gradients[rank], ours.gradients[rank], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    axes = dp.plot_overlap({"after backward": naive, "yours": ours})
    assert f"{1e3 * ours.exposed:.2f} of" in axes[1].get_title(loc="left")


def test_a_network_is_found_again_from_its_all_reduces():
    true = Network(20e-6, 2e9)
    seconds = {2: [true.collective("all_reduce", m, range(2)) for m in dp.MESSAGES]}
    found = dp.fit_network(dp.Measured({}, seconds, None), 2)
    assert found.alpha == pytest.approx(true.alpha, rel=1e-6)
    assert found.beta == pytest.approx(true.beta, rel=1e-6)


def test_late_messages_leave_a_fit_in_the_middle():
    late = [45e-6, 4e-3, 7e-3, 8e-3, 2e-3]  # measured on two cores that others used, too
    found = dp.fit_network(dp.Measured({}, {2: late}, None), 2)
    fitted = [found.collective("all_reduce", m, range(2)) for m in dp.MESSAGES]
    assert np.log(np.divide(fitted, late)).mean() == pytest.approx(0, abs=0.01)


def test_runs_with_a_given_step_plan_and_deal():
    small = Settings(data="digits", n_train=256, hidden=(16,), optimizer="sgd", lr=0.3, batch_size=16, epochs=6)
    plan = lambda step: 0.3  # noqa: E731
    assert dp.final_accuracy(small.but(lr=0.0), plan) > 50
    assert dp.final_accuracy(small, lambda step: 1e9) <= 30
    often, seldom = (dp.local_run(SOLUTIONS["local_sgd"], every, by_class=True, epochs=2) for every in (1, 20))
    assert often > seldom
