"""Batch sizes and update rules: steps to a target, the fitted hyperbola, noise by ranks, tuned learning rates."""

import math
from pathlib import Path

import numpy as np
import pytest
from distcourse import lab02 as optimizing
from distcourse.author.exercise import Solved
from distcourse.exercise import wrong_in

import distlearn as dl
from distlearn.train.fit import DivergedError

SOLVED = Solved(Path(__file__).parents[2] / "course/source/lab02_optimizers")


def estimator(gradients, b):
    """Equations A.2 and A.3 for p equal parts."""
    p, part, whole = len(gradients), (gradients**2).sum(axis=1).mean(), (gradients.mean(axis=0) ** 2).sum()
    return p * b / (p - 1) * (part - whole), (p * whole - part) / (p - 1)


@pytest.fixture(scope="module")
def task():
    digits = optimizing.target_task("digits")
    return optimizing.TargetTask("few digits", digits.x[:200], digits.y[:200], target=1.0, hidden=(16,))


@pytest.mark.parametrize(("start", "best"), [(0.1, 0.4), (3.2, 0.4), (0.4, 0.4)])
def test_the_search_walks_to_the_best_rate(start, best):
    scores = optimizing.tune(lambda lr, most: 10 + abs(math.log2(lr / 0.4)), start)
    assert min(scores, key=scores.get) == pytest.approx(best)
    assert max(scores) > best > min(scores), "the neighbours on both sides were tried"


def test_the_search_leaves_a_plateau_of_lost_runs():
    scores = optimizing.tune(lambda lr, most: math.inf if lr > 0.3 else 10 + abs(math.log2(lr / 0.1)), 0.8)
    assert min(scores, key=scores.get) == pytest.approx(0.1)


def test_the_run_gives_the_estimator_the_gradients_of_all_ranks(task):
    (estimates, noise), *others = dl.SimWorld(4).run(optimizing.noise_run, task, estimator, lr=0.2, steps=6)
    np.testing.assert_allclose(estimates.T, [noise.traces, noise.squared_norms], rtol=1e-3)
    still = dl.SimWorld(4).run(optimizing.noise_run, task, estimator, lr=0.0, steps=2)[0][0]
    np.testing.assert_allclose(estimates[0], still[0])
    assert not np.allclose(estimates[1], still[1]), "nothing was learned"
    assert all(len(estimates) == 0 for estimates, _ in others)


def test_a_ravine_is_left_beyond_two_over_its_curvature():
    path = optimizing.descend(dl.optim.SGD(), 1.9 / 20, steps=300)
    assert np.abs(path[-1]).max() < 1e-6
    with pytest.raises(DivergedError, match=r"diverged with a rate of 0\.105"):
        optimizing.descend(dl.optim.SGD(), 2.1 / 20, steps=300)
    assert optimizing.plot_paths({"SGD": path}).get_legend() is not None


def test_the_first_step_of_adam_is_one_learning_rate_long():
    lengths = optimizing.first_steps(dl.optim.Adam(), 5)
    assert lengths[0] == pytest.approx(1, rel=1e-6)


def test_data_that_are_missing_are_replaced(monkeypatch):
    monkeypatch.setattr("distcourse.lab02.available", list)
    assert optimizing.target_task("fashion-mnist").name == "digits, 0-4 or 5-9"


def library(make):
    """A rule of the library as an answer: a function that gets the rule's constants last."""
    return lambda data, grad, state, lr, step, *own: make(*own).update(data, grad, state, lr, step)


@pytest.mark.parametrize(
    ("name", "answers"),
    {
        "momentum": [library(rule) for rule in (dl.optim.SGD, dl.optim.Momentum, dl.optim.Nesterov)],
        "adaptive": [library(lambda eps=1e-8: dl.optim.Adagrad(eps)), library(dl.optim.RMSprop)],
        "adam": [library(dl.optim.Adam)],
        "noise": [estimator],
        "fit": [
            lambda batches, steps: np.linalg.lstsq(np.stack([1 / steps, 1 / batches / steps], 1), 0 * steps + 1)[0]
        ],
    }.items(),
)
def test_solutions_give_what_the_library_gives(name, answers):
    exercise = SOLVED.exercises[name]
    right = SOLVED.right(name, exercise.cases).right
    for case, got, want in zip(exercise.cases, SOLVED.results(name, answers, exercise.cases), right, strict=True):
        assert wrong_in(got, want, rtol=exercise.rtol) == [], case


def test_the_fewest_steps_are_those_after_which_the_loss_stays_low():
    """A path may pass the minimum and come back."""
    fewest = optimizing.ravine_steps(dl.optim.Nesterov())
    paths = [optimizing.descend(dl.optim.Nesterov(), lr, steps=300) for lr in np.geomspace(0.01, 0.065, 50)]
    losses = np.array([path**2 @ optimizing.CURVATURES for path in paths])
    assert losses[:, fewest:].max(axis=1).min() < 1e-3 * losses[0, 0]


def test_a_schedule_and_a_multiple_of_it_are_the_same():
    falls = optimizing.RIVALS["a linear fall to 0"]
    rate, losses = optimizing.bowl_losses(falls, 60)
    larger, same = optimizing.bowl_losses(lambda step, steps: 4096 * falls(step, steps), 60)
    assert larger == rate / 4096
    assert np.array_equal(same, losses)


def test_the_mean_loss_of_a_bowl_is_that_of_many_runs():
    """Against runs with drawn noise; and the rivals' best rates lie inside the grid."""
    schedule, (rng, n) = optimizing.RIVALS["a linear fall to 0"], (np.random.default_rng(0), 4000)
    rate, losses = optimizing.bowl_losses(schedule, 60)
    h, w = np.geomspace(1, 50, 20), np.ones((n, 20))
    for step in range(60):
        assert (w**2 @ h / 2).mean() == pytest.approx(losses[step], rel=0.05)
        w -= rate * schedule(step, 60) * (h * w + rng.normal(size=w.shape))
    assert (w**2 @ h / 2).mean() == pytest.approx(losses[-1], rel=0.05)
    for steps, noise in ((400, 0.5), (700, 1.0), (1000, 3.0), (1400, 2.0)):
        for rival in optimizing.RIVALS.values():
            assert 4e-4 < optimizing.bowl_losses(rival, steps, noise)[0] < 0.04


def told(schedule, steps, noise):
    """What a schedule's loss is said to be; "" if it is low enough."""
    (text,) = optimizing.run_schedule(schedule, steps, noise).values()
    return text.replace("at most 0.9 times the best rival's", "")


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (lambda step, steps: 1.0, "the rate must fall"),
        (lambda step, steps: 0.995**step, "a longer run can fall more slowly"),
        (lambda step, steps: 0.3 ** (step / steps), "yours ends at 0.3 of its largest rate"),
        (lambda step, steps: np.cos(np.pi * step / steps), "expected a number, 0 or more"),
        (lambda step, steps: None, "step 0 gets None"),
    ],
)
def test_what_a_schedule_lacks(schedule, said):
    assert said in told(schedule, 300, 1.0)
