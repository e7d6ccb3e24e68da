"""What limits a step, and ways to train on a slow network: the studies of lab 08, and their checks."""

import math

import numpy as np
import pytest
from distcourse import lab08
from distcourse import lab08 as judge
from distcourse import lab08 as network_bound
from distcourse.check import Check, CheckFailed
from distcourse.scaling import facts

import distlearn as dl
from distlearn.parallel.data.compression import OneBit, TopK
from distlearn.train.fit import DivergedError

SHORT = {"samples": 640}


def parts(ranks, bandwidth, seconds=1.0, nbytes=1e8, alpha=1e-4):
    return seconds / ranks, 2 * (ranks - 1) / ranks * nbytes / bandwidth, 2 * (ranks - 1) * alpha


@pytest.mark.parametrize("name", ["alexnet", "googlenet"])
def test_layers_add_up_to_what_the_model_holds(name):
    shapes = network_bound.layer_shapes(name)
    values = sum(s.kernel**2 * s.c_in // s.groups * s.c_out + s.c_out for s in shapes)
    assert 4 * values == pytest.approx(1e6 * facts(name).weights_mb)
    assert sum(s.kind == "dense" for s in shapes) == facts(name).dense_layers


def test_a_map_has_three_regions():
    diagram = network_bound.phase_diagram(parts, size=40)
    assert set(np.unique(diagram.limits)) == {0, 1, 2}
    assert diagram.limits[0, -1] == 1, "many ranks and hardly any bandwidth"
    assert diagram.limits[-1, 0] == 0, "one rank"
    assert diagram.limits[-1, -1] == 2
    with pytest.raises(ValueError, match="three finite numbers"):
        network_bound.phase_diagram(lambda p, beta: (1.0, 2.0))


def test_simulated_points_are_limited_by_what_was_made_slow():
    quick = {"alpha": 1e-9, "batch": 64, "compute": "V100"}
    few, many = network_bound.simulate_points("lenet", (2,), (1e4, 1e15), **quick)
    assert (few.limit, many.limit) == ("bandwidth", "computing")
    (late,) = network_bound.simulate_points("lenet", (8,), (1e15,), **quick | {"alpha": 1.0})
    assert late.limit == "latency"
    assert late.parts[2] == pytest.approx(14, rel=1e-3)  # one bucket
    diagram = network_bound.phase_diagram(parts, points=[few, late], size=10)
    assert diagram.agreeing == sum(diagram.predicted(p) == p.limit for p in diagram.points)
    assert "simulated" in str(network_bound.point_table({"LeNet": diagram}))
    (ax,) = lab08.plot_phases({"LeNet": diagram}, borders={"flat": lambda p: 1e9})
    assert "LeNet" in ax.get_title(loc="left")
    with pytest.raises(ValueError, match="no diagrams"):
        lab08.plot_phases({})


def test_a_cluster_is_told_to_the_formula():
    told = network_bound.cluster("lenet", 60 << 20, batch=64, alpha=1e-4)
    assert (told["nbytes"], told["alpha"], told["buckets"]) == (60 << 20, 1e-4, 3)
    assert told["seconds"] > 0
    several = lambda p, beta, seconds, nbytes, alpha, buckets: parts(p, beta, seconds, nbytes, alpha * buckets)  # noqa: E731
    (diagram,) = network_bound.cluster_diagrams(several, {"lenet": told}, batch=64, ranks=(2,), gbits=(1, 8)).values()
    assert [8 * point.bandwidth for point in diagram.points] == [1e9, 8e9]
    assert diagram.formula(2.0, 1e9) == pytest.approx(parts(2, 1e9, told["seconds"], 60 << 20, 3e-4))


def test_bytes_by_ranks_are_drawn():
    ax = lab08.plot_sent([2, 4], {"ring": [2048, 3072], "codes": [1024, 4096]})
    assert [line.get_ydata().tolist() for line in ax.lines] == [[2, 3], [1, 4]]
    assert ax.get_title("left") == "Fewest bytes on 4 ranks: ring"


def test_steps_of_ranks_are_timed_part_by_part():
    world = dl.SimWorld(3, dl.Network(1e-3, 1e6))
    found = world.run(network_bound.timed_steps, 2, (4, 3), 8, 2)
    assert found[2] is None
    assert found[0].shape == (2, 3)
    nbytes = 4 * (4 * 3 + 3)
    np.testing.assert_allclose(found[0][:, 1], 2 * (1e-3 + nbytes / 2 / 1e6), rtol=0.1)
    np.testing.assert_allclose(found[0][:, 2], 2 * (1e-3 + 4 / 1e6), rtol=0.1)


def test_a_machine_is_mapped_from_its_measurements():
    seen = [network_bound.PhasePoint(2, 1e6, (1.0, 0.1, 0.02), "measured")]
    found = network_bound.machine_diagram(parts, (4, 3), 8, 2.0, seen, simulated=(4,))
    assert found.points[0] is seen[0]
    assert [(p.ranks, p.bandwidth, p.kind) for p in found.points[1:]] == [(4, 1e6, "simulated")] * 2
    assert found.formula(2.0, 1e6)[2] == pytest.approx(0.02), "the latency that was measured"
    assert found.points[1].parts[2] == pytest.approx(0.06)


def test_bytes_of_an_exchange_are_counted():
    assert network_bound.bytes_sent(lambda comm, x, error: comm.all_reduce(x), 4, n=100) == 2 * 3 / 4 * 400


def test_recipes_draw_the_same_samples_and_say_what_they_send():
    plain = network_bound.Recipe(rule="sgd", lr=0.1)
    alone = network_bound.run_recipe(plain.but(every=5), **SHORT)
    every = network_bound.run_recipe(plain, **SHORT)
    assert alone.samples[-1] == every.samples[-1] == 640
    assert every.megabytes == pytest.approx(5 * alone.megabytes)
    assert every.seconds[-1] > alone.seconds[-1]
    again = network_bound.run_recipe(plain.but(exchange=lambda comm, g, error: comm.all_reduce(g)), **SHORT)
    np.testing.assert_array_equal(again.losses, every.losses)


def test_one_local_step_is_data_parallelism():
    plain = network_bound.Recipe(rule="sgd", lr=0.1)
    every = network_bound.run_recipe(plain, **SHORT)
    local = network_bound.run_recipe(plain.but(every=1), **SHORT)
    np.testing.assert_allclose(local.losses, every.losses, rtol=1e-3)


def test_a_recipe_that_diverges_says_so():
    with pytest.raises(DivergedError, match="steps"):
        network_bound.run_recipe(
            network_bound.Recipe(lambda comm, g, error: comm.all_reduce(g) * np.nan, rule="sgd"), **SHORT
        )


def test_recipes_are_compared_each_at_its_own_rate():
    recipes = {"all-reduce": network_bound.Recipe(rule="sgd", lr=0.1), "local": network_bound.Recipe(every=4)}
    done = []
    runs = network_bound.compare_recipes(recipes, seeds=(0, 1), report=lambda *at: done.append(at), **SHORT)
    assert done == [(1, 2), (2, 2)]
    assert [len(found) for found in runs.values()] == [2, 2]
    run = runs["local"][0]
    assert math.isinf(run.seconds_to(-1.0))
    assert run.seconds_to(100.0) == run.seconds[0]
    left, _ = lab08.plot_recipes(runs, target=100.0)
    assert left.get_title(loc="left") == "First at a loss of 100: all-reduce"  # which is looked at earlier
    told = str(network_bound.recipe_table(runs, 100.0, title="T")).splitlines()
    assert told[1].split("  ")[0] == ""
    assert "seconds to 100" in told[1]
    assert [row.split("  ")[0] for row in told[3:]] == list(runs)


def test_codes_are_compared_at_their_better_rates():
    plain = network_bound.Recipe(rule="sgd", lr=5.0)
    recipes = {("32 bit", None): plain, ("none", False): plain.but(exchange=lambda comm, x, error: 0 * x)}
    recipes["zeros", True] = recipes["none", False]
    results = network_bound.compare_codes(recipes, rates=(1e9, 0.3), seeds=(0, 1), **SHORT)
    exact = results["32 bit", None]
    assert exact.lr == 0.3, "with the other one the loss is no longer finite"
    assert exact.accuracies == [network_bound.run_recipe(plain.but(lr=0.3), k, **SHORT).accuracy for k in (0, 1)]
    values = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
    assert exact.kilobytes == pytest.approx(4 * values * 2 * 3 / 4 / 1e3), "a ring of four ranks, each step"
    assert results["none", False].kilobytes == 0
    table = network_bound.code_table(results)
    assert [row[2] for row in table.rows] == ["not needed", "no", "yes"]
    ax = lab08.plot_messages({("8 bit", True): exact, ("8 bit", False): exact, ("32 bit", None): exact})
    assert ax.get_xlabel().endswith("[kB]")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["with error feedback", "without", "nothing to feed back"]
    assert len({line.get_marker() for line in ax.lines if line.get_label() in labels}) == 3
    two = lab08.plot_messages({("8 bit", True): exact, ("32 bit", None): exact})
    assert "without" not in [text.get_text() for text in two.get_legend().get_texts()]


@pytest.mark.parametrize("n", [1, 7, 64])
def test_the_codes_of_the_lab_are_those_of_the_library(n):
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    for codec, ours in ((OneBit(), judge.encode_1bit(x)), (TopK(0.5), judge.encode_top(x, TopK(0.5).count(n)))):
        kind = "1 bit" if isinstance(codec, OneBit) else "top k"
        want = np.empty_like(x)
        codec.decode(codec.encode(x, None), want)
        np.testing.assert_allclose(judge.CODECS[kind][1](*ours, n), want, rtol=1e-6)
        assert sum(a.nbytes for a in ours) == codec.nbytes(n, x.dtype)


def test_what_was_not_sent_is_sent_later():
    """The sum of all that arrives is the sum of all gradients, but for the last errors."""

    def program(comm):
        rng, error = np.random.default_rng(comm.rank), np.zeros(50, np.float32)
        given = rng.normal(size=(30, 50)).astype(np.float32)
        arrived = sum(judge.right_all_reduce(comm, x, error, judge.encode_1bit, judge.decode_1bit) for x in given)
        return arrived, given.sum(axis=0) - error

    results = dl.SimWorld(3).run(program)
    wanted = sum(mine for _, mine in results)
    for arrived, _ in results:
        np.testing.assert_allclose(arrived, wanted, atol=1e-4)


@pytest.mark.parametrize("mistake", judge.MISTAKES)
def test_a_wrong_all_reduce_is_named(mistake):
    with pytest.raises(CheckFailed, match=mistake.split(":")[0][:20]), Check("all-reduce") as check:
        network_bound.judge_all_reduce(check, judge.MISTAKES[mistake])


@pytest.mark.parametrize("mistake", judge.ROUND_MISTAKES)
def test_a_wrong_round_is_named(mistake):
    with pytest.raises(CheckFailed, match=mistake[:20]), Check("round") as check:
        network_bound.judge_round(check, judge.ROUND_MISTAKES[mistake])


def test_right_answers_pass():
    with Check("all") as check:
        network_bound.judge_all_reduce(check, judge.right_all_reduce, kind="1 bit", ranks=2, left=True)
        network_bound.judge_round(check, judge.right_round)
        for kind, (encode, decode) in judge.CODECS.items():
            x = np.linspace(-1, 2, 9, dtype=np.float32)
            network_bound.judge_codec(check, kind, encode, decode, x, *[3] * (kind == "top k"))


def test_the_order_of_operations_does_not_decide_how_8_bits_are_rounded():
    def other_way(x):
        scale = np.abs(x).max(keepdims=True)
        return scale, np.rint(x / scale * 127).astype(np.int8)

    x = (np.arange(-127, 128) / np.float32(2)).astype(np.float32)  # every second value lies between two levels
    with Check("8 bit") as check:
        network_bound.judge_codec(check, "8 bit", other_way, judge.decode_8bit, x * np.float32(0.3))


def test_a_round_is_that_of_the_strategy():
    """`DiLoCo` of the library, and the lab's equation, from the same ranks' parameters."""

    def program(comm):
        model, rng = dl.nn.MLP((3, 2), dtype="float64"), np.random.default_rng(comm.rank)
        optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.5)
        strategy = dl.DiLoCo(comm, model, dl.nn.SoftmaxCrossEntropy(), optimizer, every=1)
        flat = lambda: np.concatenate([p.data.ravel() for p in model.params])  # noqa: E731
        start, velocity = flat(), np.zeros(8)
        for _ in range(3):
            twin = dl.nn.MLP((3, 2), dtype="float64")
            for p, q in zip(twin.params, model.params, strict=True):
                p.data[...] = q.data
            batch = dl.data.Batch(rng.normal(size=(4, 3)), rng.integers(2, size=4), 8)
            serial = dl.optim.Optimizer(twin.params, dl.optim.SGD(), 0.5)
            dl.Serial(twin, dl.nn.SoftmaxCrossEntropy(), serial).step(dl.data.Batch(batch.x, batch.y, 4))
            end = np.concatenate([p.data.ravel() for p in twin.params])
            start = judge.right_round(comm, start, end, velocity)
            strategy.step(batch)
            np.testing.assert_allclose(flat(), start, rtol=1e-12)

    dl.SimWorld(2).run(program)
