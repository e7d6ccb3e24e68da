"""Lab 09's experiments: bugs that train, layers of one's own, a rule by bytes; and that the judges name mistakes."""

from dataclasses import replace

import numpy as np
import pytest
from distcourse import lab09 as mp
from distcourse.check import Check, CheckFailed
from distcourse.judge.objects import Handle, make_proxy

from distlearn.parallel import Layout, simulate_layout
from distlearn.parallel.mesh import Partial, Replicate, Shard
from distlearn.sim import SimWorld


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


def column_forward(comm, x, W, b):
    return x @ W + b


def column_backward(comm, dy, x, W):
    return comm.all_reduce(dy @ W.T), x.T @ dy, dy.sum(axis=0)


def row_forward(comm, x, W, b):
    return comm.all_reduce(x @ W) + b


def row_backward(comm, dy, x, W):
    return dy @ W.T, x.T @ dy, dy.sum(axis=0)


LAYERS = column_forward, column_backward, row_forward, row_backward


@pytest.mark.parametrize("size", [2, 3, 4])
def test_given_layers_train_as_the_serial_model(size):
    options = {"sizes": (12, 9, 7), "n_train": 256, "epochs": 1}
    serial, whole = SimWorld(1).run(mp.train_layers, **options)[0]
    for functions in (None, LAYERS):
        history, nbytes = SimWorld(size).run(mp.train_layers, functions, **options)[0]
        np.testing.assert_allclose(history.losses, serial.losses, atol=1e-12)
        assert nbytes < 0.65 * whole
    broken = (*LAYERS[:2], lambda comm, x, W, b: x @ W + b, row_backward)
    history, _ = SimWorld(size).run(mp.train_layers, broken, **options)[0]
    assert not np.allclose(history.losses, serial.losses, rtol=1e-3), "the functions are what runs"


@pytest.mark.parametrize("case", mp.TEN, ids=lambda case: case.name)
def test_bytes_by_facts_are_those_of_the_planner(case):
    """The trick's formula, from its parts; data parallelism sums the weights."""
    for ranks in (2, 8):
        facts, seconds = mp.layout_facts(replace(case, ranks=ranks))
        q = (ranks - 1) / ranks
        assert ("one weird trick" in seconds) == (facts.boundary is not None)
        assert all(t > 0 for t in seconds.values())
        if facts.boundary is not None:
            assert 0 < facts.weights_dense < facts.weights
            assert facts.tensor_dense >= 0
        network = "ethernet-10g"
        if case.name in ("LeNet", "narrow MLP"):
            model = case.model if isinstance(case.model, str) else case.model()
            options = {"batch_size": case.batch_size, "input_shape": case.sample}
            step = simulate_layout(model, Layout(ranks), network, **options)
            given = sum(s.nbytes for s in step.trace.select(rank=0, lane="comm") if s.name == "all_reduce")
            assert 2 * q * facts.weights == pytest.approx(2 * q * given, rel=1e-3)


def test_the_score_of_a_rule():
    def fewest(facts):
        q = (facts.ranks - 1) / facts.ranks
        found = {"data": 2 * q * facts.weights, "tensor": facts.tensor}
        if facts.boundary is not None:
            features = facts.weights - facts.weights_dense
            found["one weird trick"] = 2 * q * (features + facts.boundary) + facts.tensor_dense
        return min(found, key=found.get)

    def by_weight(facts):
        if facts.boundary is None:
            return "data" if facts.weights < 2e7 else "tensor"
        return "data" if facts.weights_dense < 1e8 else "one weird trick"

    for ranks in (2, 4, 8):
        for times in (0.5, 1, 2, 8):
            cases = [replace(c, ranks=ranks, batch_size=int(times * c.batch_size)) for c in mp.TEN]
            assert 1 <= mp.score_rule(fewest, cases)[1] < 1.08
    far = [replace(c, ranks=8, batch_size=64 * c.batch_size) for c in mp.TEN]
    assert mp.score_rule(fewest, far)[1] < 1.01
    assert mp.score_rule(by_weight)[1] < 1.01
    assert mp.score_rule(by_weight, far)[1] > 1.2, "a rule that does not look at the batch"
    for rule in (lambda f: "data", lambda f: "tensor", lambda f: "data" if f.boundary is None else "one weird trick"):
        assert mp.score_rule(rule)[1] > 1.3
    alexnet = next(row for row in mp.score_rule(lambda f: "data")[0] if row["network"] == "AlexNet")
    assert (alexnet["the rule"], alexnet["the planner"]) == ("data", "one weird trick")
    assert alexnet["times the fastest"] > 1
    with pytest.raises(ValueError, match="narrow MLP the rule chose 'one weird trick', expected 'data' or 'tensor'"):
        mp.score_rule(lambda facts: "one weird trick")


def failed(judge, *args, **kwargs):
    """The text of a check that must fail."""
    with pytest.raises(CheckFailed) as found, Check("given") as check:
        judge(check, *args, **kwargs)
    return str(found.value)


def test_judges_name_the_mistake():
    def sums_are_whole(x, w, ndim=2):
        return Replicate() if isinstance(x, Shard) else Partial()

    assert "each rank has some of the terms of every sum" in failed(mp.check_product_type, sums_are_whole, 2)
    half = failed(mp.check_move, lambda old, new, n, p: ("all_reduce", (p - 1) / p * n), 64.0, 4, (0, 1))
    assert "an all-reduce is a reduce-scatter and an all-gather" in half
    biased = (*LAYERS[:2], lambda comm, x, W, b: comm.all_reduce(x @ W + b), row_backward)
    assert "add it after the sum" in failed(mp.check_layers, biased, 3)
    twice = (column_forward, lambda comm, dy, x, W: (comm.all_reduce(comm.all_reduce(dy @ W.T)), x, x), *LAYERS[2:])
    assert "summed twice" in failed(mp.check_layers, twice, 2)
    in_turn = failed(
        mp.check_assign, lambda costs, p: [list(range(r, len(costs), p)) for r in range(p)], [3, 9, 4, 5], 2
    )
    assert "dealt in turn" in in_turn
    rule = failed(mp.check_rule, lambda f: {"data": f.weights, "tensor": f.tensor}, lambda f: "tensor")
    assert "at most 1.1 is wanted" in rule


def changed(name_of=lambda name: name, bytes_of=lambda n: n, same=""):
    """A right answer to exercise 2, and what is done to it."""
    names = {("Partial", "Replicate"): ("all_reduce", 2), ("Partial", "Shard"): ("reduce_scatter", 1)}
    names |= {("Shard", "Replicate"): ("all_gather", 1), ("Shard", "Shard"): ("all_to_all", 0.25)}

    def move(old, new, n, p):
        name, times = names.get((type(old).__name__, type(new).__name__), ("", 0)) if old != new else (same, 0)
        return name_of(name), bytes_of(times * (p - 1) / p * n)

    return move


@pytest.mark.parametrize(
    ("move", "told"),
    [
        (changed(same="all_gather"), "its type stays: nothing is sent"),
        (lambda *args: changed()(*args)[::-1], "the name comes first, then the bytes"),
        (changed(bytes_of=lambda n: 64.0 if n == 96 else n), "the array once: a reduce-scatter and an all-gather"),
    ],
)
def test_what_a_change_of_type_sends(move, told):
    assert told in failed(mp.check_move, move, 64.0, 4, (0, 1))


def test_types_are_shown_without_quotation_marks_and_a_class_is_told():
    told = failed(mp.check_product_type, lambda x, w, ndim=2: Replicate if x == w == Replicate() else None, 2)
    assert "wanted Replicate(), got class Replicate" in told
    assert "this is the class: call it" in told
    graded = make_proxy(Handle((0,), "call", "Partial", (), (), None, ""), None)  # a class of the answer's process
    assert mp._told(graded) == "class Partial"
    assert "the parts already fit" in told


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((0, lambda comm, x, W, b: comm.all_reduce(x @ W + b)), "its own columns of y: no all_reduce"),
        (
            (1, lambda comm, dy, x, W: (comm.all_reduce(dy @ W.T), comm.all_reduce(x.T @ dy), dy.sum(0))),
            "columns of dW",
        ),
        ((1, lambda comm, dy, x, W: (x.T @ dy, comm.all_reduce(dy @ W.T), dy.sum(0))), "dx comes first, then dW"),
        ((3, lambda comm, dy, x, W: (dy @ W.T, x.T @ dy, comm.all_reduce(dy.sum(0)))), "so db is whole"),
    ],
)
def test_sums_that_a_layer_does_not_need(wrong, told):
    functions = list(LAYERS)
    functions[wrong[0]] = wrong[1]
    assert told in failed(mp.check_layers, functions, 2)


def dealt(costs, p):
    order = sorted(range(len(costs)), key=lambda k: -costs[k])
    return [order[r::p] for r in range(p)]


@pytest.mark.parametrize(
    ("assign", "told"),
    [
        (lambda costs, p: [list(range(len(costs)))] * p, "[[]] * p is one list"),
        (lambda costs, p: [costs[r::p] for r in range(p)], "not their costs"),
        (lambda costs, p: [[k + 1 for k in own] for own in dealt(costs, p)], "numbered from 0"),
        (dealt, "dealt in turn, or the cheapest first"),
        (lambda costs, p: [[0, 3], [1, 2]], "these are positions in the sorted list"),
        (lambda costs, p: [list(range(len(costs))), []], "let its load grow"),
    ],
)
def test_who_gets_which_path(assign, told):
    text = failed(mp.check_assign, assign, [3, 9, 4, 5], 2)
    assert told in text
    assert "rounded" not in text


@pytest.mark.parametrize(
    ("sent", "choose", "told"),
    [
        (lambda f: {"data": f.weights, "tensor": 2 * f.boundary}, lambda f: "data", "boundary is None here"),
        (lambda f: {"data": 1.0, "tensor": None}, lambda f: "data", "None is no number of bytes"),
        (
            lambda f: {"data": 0.75 * f.weights, "tensor": f.tensor},
            lambda f: "data",
            "a reduce-scatter and an all-gather",
        ),
    ],
)
def test_what_the_bytes_of_a_layout_lack(sent, choose, told):
    assert told in failed(mp.check_rule, sent, choose)


def test_a_rule_returns_a_name():
    with pytest.raises(CheckFailed, match="choose returned a dict, expected a name"), Check("given") as check:
        mp.check_rule(check, mp._sent, lambda facts: {})


def test_the_costliest_path_decides():
    for costs in mp.inception_costs().values():
        assert max(costs) > 0.55 * sum(costs)


def gain_gradient(dy, x_hat):
    return (dy * x_hat).sum(0).all_reduce().whole()


def input_gradient(dy, W):
    return (dy @ W.T).all_reduce().whole()


def grad_norm(sharded, replicated):
    squares = [(g * g).sum().all_reduce() for g in sharded] + [(g * g).sum() for g in replicated]
    return float(np.sqrt(sum(s.whole() for s in squares)))


def own_shards(sharded, replicated):
    return float(np.sqrt(sum((g.local**2).sum() for g in [*sharded, *replicated])))


def untyped(dy, W):
    return dy.comm.all_reduce(dy.local @ W.local.T)


def gathered(dy, W):
    return dy.redistribute(Replicate()).whole() @ W.redistribute(Replicate()).whole().T


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ((gain_gradient, untyped, grad_norm), "given two Partials it raises no LayoutError"),
        ((gain_gradient, gathered, grad_norm), "all_gather: multiply what each rank has"),
        ((gain_gradient, lambda dy, W: dy @ W.T, grad_norm), "return the plain array"),
        ((lambda dy, x: (dy * x).sum(0).local, input_gradient, grad_norm), "this rank's rows only"),
        ((gain_gradient, input_gradient, own_shards), "this rank's shards: a sum of squares"),
    ],
)
def test_types_must_be_used(typed, told):
    with Check("right") as check:
        mp.check_typed(check, gain_gradient, input_gradient, grad_norm, 3)
    assert told in failed(mp.check_typed, *typed, 3)
