"""Lab 09's experiments: bugs that train, layers of one's own, a rule by bytes."""

from dataclasses import replace

import numpy as np
import pytest
from distcourse import lab09 as mp

from distlearn.parallel import Layout, simulate_layout
from distlearn.sim import SimWorld

from ..course.submissions import answered


@pytest.mark.parametrize("bug", ["none", "missing", "doubled", "norm"])
def test_bugs_raise_nothing_and_change_the_run(bug):
    """Against the right run on one rank, where no bug of these can show."""
    serial, _ = SimWorld(1).run(mp.train_with_bug, bug, epochs=1)[0]
    right, _ = SimWorld(1).run(mp.train_with_bug, epochs=1)[0]
    assert serial.losses == pytest.approx(right.losses, rel=1e-10)
    ranks = SimWorld(4).run(mp.train_with_bug, bug, epochs=1)
    same = np.allclose(ranks[0][0].losses, right.losses, rtol=1e-10)
    assert same == (bug == "none")
    apart = max(found for _, found in ranks)
    assert (apart > 1e-6) == (bug in ("missing", "norm")), apart


NAMES = "column_forward", "column_backward", "row_forward", "row_backward"


def layers(wrong=""):
    """The four functions of the lab's solution, or of a known wrong answer."""
    found = answered("lab09", "layers", wrong)
    return tuple(found[name] for name in NAMES)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_given_layers_train_as_the_serial_model(size):
    options = {"data": "digits", "sizes": (12, 9, 7), "n_train": 256, "epochs": 1}
    serial, whole = SimWorld(1).run(mp.train_layers, layers(), **options)[0]
    history, nbytes = SimWorld(size).run(mp.train_layers, layers(), **options)[0]
    np.testing.assert_allclose(history.losses, serial.losses, atol=1e-12)
    assert nbytes < 0.65 * whole
    history, _ = SimWorld(size).run(
        mp.train_layers, layers("row_forward: this rank's summand: sum over the ranks"), **options
    )[0]
    assert not np.allclose(history.losses, serial.losses, rtol=1e-3), "the functions are what runs"


FEW, MANY, FAR = (
    [replace(c, ranks=ranks, batch_size=int(times * c.batch_size)) for c in mp.TEN]
    for ranks, times in ((2, 8), (8, 0.5), (4, 64))
)


def test_bytes_by_facts_are_those_of_the_planner():
    """The trick's formula, from its parts; data parallelism sums the weights."""
    for case in (case for case in FEW + MANY if case.name in ("LeNet", "narrow MLP")):
        facts, seconds = mp.layout_facts(case)
        assert ("one weird trick" in seconds) == (facts.boundary is not None) == (case.name == "LeNet")
        assert all(t > 0 for t in seconds.values())
        if facts.boundary is not None:
            assert 0 < facts.weights_dense < facts.weights
            assert facts.tensor_dense >= 0
        model = case.model if isinstance(case.model, str) else case.model()
        options = {"batch_size": case.batch_size, "input_shape": case.sample}
        step = simulate_layout(model, Layout(case.ranks), "ethernet-10g", **options)
        given = sum(s.nbytes for s in step.trace.select(rank=0, lane="comm") if s.name == "all_reduce")
        assert facts.weights == pytest.approx(given, rel=1e-3)


@pytest.mark.nightly
@pytest.mark.xdist_group("layouts")
def test_the_score_of_a_rule_with_other_batches():
    fewest = answered("lab09", "rule")["choose"]

    def by_weight(facts):
        if facts.boundary is None:
            return "data" if facts.weights < 2e7 else "tensor"
        return "data" if facts.weights_dense < 1e8 else "one weird trick"

    for cases in (FEW, MANY):
        assert 1 <= mp.score_rule(fewest, cases)[1] < 1.08
    assert mp.score_rule(fewest, FAR)[1] < 1.01
    assert mp.score_rule(by_weight)[1] < 1.01
    assert mp.score_rule(by_weight, FAR)[1] > 1.2, "a rule that does not look at the batch"


@pytest.mark.nightly
@pytest.mark.xdist_group("layouts")
def test_the_score_of_a_rule():
    assert 1 <= mp.score_rule(answered("lab09", "rule")["choose"])[1] < 1.08
    for rule in (lambda f: "data", lambda f: "tensor", lambda f: "data" if f.boundary is None else "one weird trick"):
        assert mp.score_rule(rule)[1] > 1.3
    alexnet = next(row for row in mp.score_rule(lambda f: "data")[0] if row["network"] == "AlexNet")
    assert (alexnet["the rule"], alexnet["the planner"]) == ("data", "one weird trick")
    assert alexnet["times the fastest"] > 1
    for chosen in ("one weird trick", {}):
        with pytest.raises(ValueError, match=f"narrow MLP the rule chose {chosen!r}, expected 'data' or 'tensor'"):
            mp.score_rule(lambda facts, chosen=chosen: chosen)
