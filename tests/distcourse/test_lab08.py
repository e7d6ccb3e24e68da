"""What limits a step, and ways to train on a slow network: the studies of lab 08."""

from pathlib import Path

import numpy as np
import pytest
from distcourse import lab08
from distcourse.author.exercise import Solved
from distcourse.scaling import simulate_step

import distlearn as dl
from distlearn.parallel.data.compression import OneBit, TopK
from distlearn.train.fit import DivergedError

SOLVED = Solved(Path(__file__).parents[2] / "course/source/lab08_communication_bound")
SHORT = {"samples": 640}


def parts(ranks, bandwidth, seconds=1.0, nbytes=1e8, alpha=1e-4):
    return seconds / ranks, 2 * (ranks - 1) / ranks * nbytes / bandwidth, 2 * (ranks - 1) * alpha


@pytest.mark.parametrize(
    ("limit", "step"), [("computing", (3, 2, 1)), ("bandwidth", (3, 2.5, 1)), ("latency", (3, 2, 2.1))]
)
def test_the_network_limits_a_step_by_the_sum_of_its_parts(limit, step):
    assert lab08.limit_of(step) == limit


def test_simulated_points_are_limited_by_what_was_made_slow():
    quick = {"alpha": 1e-9, "batch": 64, "compute": "V100"}
    few, many = lab08.simulate_points("lenet", (1e4, 1e15), ranks=(2,), **quick)
    assert [lab08.limit_of(point.parts) for point in (few, many)] == ["bandwidth", "computing"]
    (late,) = lab08.simulate_points("lenet", (1e15,), ranks=(8,), **quick | {"alpha": 1.0})
    assert lab08.limit_of(late.parts) == "latency"
    assert late.parts[2] == pytest.approx(14, rel=1e-3)  # one bucket
    drawn = lab08.Map(parts, (few, late))
    table = lab08.point_table({"LeNet": drawn})
    assert [row[-1] for row in table.rows] == [drawn.predicted(few), drawn.predicted(late)]
    (ax,) = lab08.plot_maps({"LeNet": drawn}, borders={"flat": lambda p: 1e9})
    assert "LeNet" in ax.get_title(loc="left")
    assert set(np.unique(ax.collections[0].get_array())) == {0, 1, 2}, "all three limits are on the map"


@pytest.mark.parametrize(("name", "buckets"), [("alexnet", 5), ("googlenet", 2), ("lenet", 1)])
def test_a_cluster_has_as_many_buckets_as_the_strategy_makes(name, buckets):
    told = lab08.cluster(name, 60 << 20, batch=64, alpha=1e-4)
    assert (told["nbytes"], told["alpha"], told["buckets"]) == (60 << 20, 1e-4, buckets)
    late = simulate_step(name, 4, dl.Network(alpha=1.0), batch=64).communicating
    assert late == pytest.approx(2 * 3 * buckets, rel=1e-3)


def test_bytes_of_an_exchange_are_counted():
    assert lab08.bytes_sent(lambda comm, x, error: comm.all_reduce(x), 4) == 2 * 3 / 4 * 4 * 4096


def test_recipes_draw_the_same_samples_and_say_what_they_send():
    plain = lab08.Recipe(rule="sgd", lr=0.1)
    alone = lab08.run_recipe(plain.but(every=5), **SHORT)
    every = lab08.run_recipe(plain, **SHORT)
    assert alone.samples[-1] == every.samples[-1] == 640
    assert every.megabytes == pytest.approx(5 * alone.megabytes)
    assert every.seconds[-1] > alone.seconds[-1]
    again = lab08.run_recipe(plain.but(exchange=lambda comm, g, error: comm.all_reduce(g)), **SHORT)
    np.testing.assert_array_equal(again.losses, every.losses)


def test_one_local_step_is_data_parallelism():
    plain = lab08.Recipe(rule="sgd", lr=0.1)
    every = lab08.run_recipe(plain, **SHORT)
    local = lab08.run_recipe(plain.but(every=1), **SHORT)
    np.testing.assert_allclose(local.losses, every.losses, rtol=1e-3)


def test_a_recipe_that_diverges_says_so():
    with pytest.raises(DivergedError, match="steps"):
        lab08.run_recipe(lab08.Recipe(lambda comm, g, error: comm.all_reduce(g) * np.nan, rule="sgd"), **SHORT)


@pytest.mark.parametrize("n", [1, 7, 64])
def test_the_codes_of_the_lab_are_those_of_the_library(n):
    _, _, encode_1bit, decode_1bit, encode_top, decode_top = SOLVED.answers("codecs")
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    one, top = (encode_1bit(x), decode_1bit), (encode_top(x, TopK(0.5).count(n)), decode_top)
    for codec, (code, decode) in ((OneBit(), one), (TopK(0.5), top)):
        want = np.empty_like(x)
        codec.decode(codec.encode(x, None), want)
        np.testing.assert_allclose(decode(*code, n), want, rtol=1e-6)
        assert sum(a.nbytes for a in code) == codec.nbytes(n, x.dtype)


def encoded(encode_8bit, **case):
    return lab08.run_codecs(encode_8bit, *SOLVED.answers("codecs")[1:], of="encode_8bit", **case)


def test_a_cast_of_nan_to_int8_is_a_wrong_result():
    with np.errstate(all="ignore"):
        hasty = encoded(lambda x: (s := abs(x).max(keepdims=True), (x * (127 / s)).astype(np.int8)), x=np.zeros(3, "f"))
        careful = encoded(
            lambda x: (s := abs(x).max(keepdims=True), np.int8(np.where(s > 0, x * (127 / s), 0))), x=np.zeros(3, "f")
        )
    assert "what if all values are 0?" in hasty["arrays of encode_8bit"]
    assert careful["arrays of encode_8bit"] == "scale: float32 (1,), levels: int8 (3,)"


def test_a_round_is_a_step_of_nesterovs_rule():
    """The lab's equation, and the library's rule along the mean difference."""

    def program(comm):
        (diloco_round,) = SOLVED.answers("diloco_round")
        rng, rule = np.random.default_rng(comm.rank), dl.optim.Nesterov(0.9)
        start, velocity = np.ones(8), np.zeros(8)
        want, state = start.copy(), rule.init(start)
        for step in range(3):
            end = start + rng.normal(size=8)
            rule.update(want, want - comm.all_reduce(end / comm.size), state, 0.7, step)
            start = diloco_round(comm, start, end, velocity)
            np.testing.assert_allclose(start, want, rtol=1e-12)

    dl.SimWorld(2).run(program)
