"""Claims of labs 14, 07 and 03."""

import numpy as np
from distcourse import lab03, lab07, lab14
from distcourse.author import source_notebooks
from distcourse.author.exercise import Solved

import distlearn as dl

from .claims import Claim, answer, need
from .conftest import COURSE

# -- lab 14 ------------------------------------------------------------------------------------------------------------


def fit_without_latency():
    """Relative error on 128 ranks of a fit on up to 8."""
    seconds = {p: lab14.step_seconds(p, 2048, dl.Network(0, 1e10)) for p in (1, 2, 4, 8, 128)}
    a, b = answer("14", "fit_amdahl")([1, 2, 4, 8], list(seconds.values())[:4])
    return (a + b / 128) / seconds[128] - 1


def efficiencies():
    """By ranks: of strong and of weak scaling."""
    whole, part = (lab14.step_seconds(1, n) for n in (2048, 256))
    ranks = 4, 8, 9, 12, 16, 64, 128
    return {p: (whole / lab14.step_seconds(p, 2048) / p, part / lab14.step_seconds(p, 256 * p)) for p in ranks}


def replayed():
    """Largest relative error of a replay."""
    errors = []
    for network in (dl.Network(20e-6, 1.25e9), dl.Network(50e-6, 125e6)):
        half = dl.Network(network.alpha, network.beta / 2)
        card, fast = dl.Roofline(3e9), dl.Roofline(6e9)
        for strategy in ("data_naive", "zero3"):
            trace = lab14.record(dl.SimWorld(4, network, card), strategy)
            for change, world in (
                ({"compute": 0.5}, dl.SimWorld(4, network, fast)),
                ({"network": half}, dl.SimWorld(4, half, card)),
                ({"slowdown": {1: 1.5}}, dl.SimWorld(4, network, card, slowdown={1: 1.5})),
            ):
                lab14.record(world, strategy)
                errors.append(abs(dl.replay(trace, **change).makespan / world.makespan - 1))
    return max(errors)


def what_ifs():
    """Times of the run, relative to its own, with a tenth of the latency and with half the bandwidth."""
    trace = lab14.record(dl.SimWorld(4, dl.Network(20e-6, 1.25e9), dl.Roofline(3e9)))
    changed = dl.Network(2e-6, 1.25e9), dl.Network(20e-6, 0.625e9)
    return [dl.replay(trace, network=network).makespan / trace.makespan for network in changed]


def envelope():
    """Predicted and measured speeds of sealed runs with 50 % and 16 GB/s, their ratios, and the skill."""
    rows, skill = lab14.opened(answer("14", "step_time"), 0.5, 16e9, lab14.SEALED)
    return *(np.array([row[name] for row in rows]) for name in ("predicted", "measured", "ratio")), skill


def keeps(found):
    predicted, measured = (round(100 * speeds[5] / speeds[3]) for speeds in found[:2])
    return np.allclose(found[0][[0, 2]], [156, 45], atol=0.6) and (predicted, measured) == (92, 93)


def skills():
    """With the constants that are best on the open runs: on these, and on the sealed ones."""
    step_time = answer("14", "step_time")
    pairs = [(share, link) for share in range(30, 91, 2) for link in range(2, 26)]
    by_pair = {pair: lab14.opened(step_time, pair[0] / 100, pair[1] * 1e9, lab14.OPEN)[1] for pair in pairs}
    best = max(by_pair, key=by_pair.get)
    return best, by_pair[best], envelope()[-1]


def plans(memory):
    """The best plan for cards of so much memory, and its score."""
    options = {"tensor": (4, 8), "pipeline": (8, 16, 32), "chunks": (1, 2, 4), "microbatch": (1, 2)}
    options |= {"recompute": (True, False), "interval": (900, 1600, 14400)}

    def score(plan):
        found = lab14.score(plan)
        return found | {"fits": found["memory [GB]"] <= memory}

    best = answer("14", "search")(score, options)
    return best, lab14.score(best)


def communication():
    """Share of the peak that the best plan loses to it: inside blocks, between stages, and at the end of a step."""
    score = plans(80)[1]
    inside = score["lost"]["below peak"] - score["share of peak"] * (1 / 0.6 - 1)
    return inside + score["lost"]["messages"] + score["lost"]["reduction"]


def added_up():
    found = [plans(80)[1], plans(160)[1], lab14.score(plans(80)[0] | {"recompute": False, "interval": 14400})]
    return [score["share of peak"] + sum(score["lost"].values()) for score in found]


def pipeline_8():
    best, found = plans(80)
    other = lab14.score(best | {"pipeline": 8})
    return other["share of peak"] / found["share of peak"], other["memory [GB]"]


# -- lab 07 ------------------------------------------------------------------------------------------------------------


def below_80(data, *seeds):
    """Runs that end below 80 %: with the small rate, the large one, and the large one after a warm-up."""
    need(data)
    scaled = answer("07", "scaled_lr")
    deep = dl.Settings(data=data, n_train=1280, hidden=(64,) * 4, optimizer="momentum", batch_size=256, epochs=30)
    deep = deep.but(evaluate_every=30)
    rates = 0.007, scaled(0.007, 256, 8), scaled(0.007, 256, 8, 100)
    return [sum(lab07.final_accuracy(deep.but(seed=s), rate) < 80 for s in seeds) for rate in rates]


def averaged_once():
    """By seed: points of accuracy that averaging once costs on random quarters."""
    local_sgd = answer("07", "local_sgd")
    runs = [[lab07.local_run(local_sgd, every, False, seed=s) for every in (1, 160)] for s in range(10)]
    return [often - once for often, once in runs]


def alone(by_class):
    """By seed: test accuracy of rank 0, which trains alone."""
    local_sgd = answer("07", "local_sgd")
    train = lambda comm, *to: local_sgd(comm.split(comm.rank), *to)  # noqa: E731
    return [lab07.local_run(train, 160, by_class, seed=s) for s in range(3)]


# -- lab 03 ------------------------------------------------------------------------------------------------------------


def times_by_kernel():
    """Seconds of the definition, im2col and spectra (rows) for 3 x 3, 9 x 9 and 15 x 15 on images of 32 x 32."""
    solved = Solved(next(p.parent for p in source_notebooks(COURSE) if p.stem == "lab03"))
    three = solved.answers("windows")[0], *solved.answers("spectra")[1:]
    rng, columns = np.random.default_rng(3), []
    for k in (3, 9, 15):
        x = rng.normal(size=(8, 32, 32, 16)).astype("float32")
        W = rng.normal(size=(k, k, 16, 16)).astype("float32")
        columns.append([lab03.fewest_seconds(f, x, W) for f in three])
    return np.array(columns).T


def bits_of_f43(dtype="float16"):
    """By seed: bits that F(4,3) loses with the points 0 to 4."""
    return np.array([lab03.loss_of_points(range(5), 4, dtype, seed) for seed in range(10)])


KINDS = ("direct", 2), ("fft", 2), ("winograd", 2), ("winograd", 4)


def work(m, way="winograd"):
    return dl.nn.conv_cost(way, 16, 64, 64, 14, 14, m=m).work


CLAIMS = [
    Claim(
        "14",
        "its 7.5 MB of gradients are one bucket, reduced by a ring after backward",
        lambda: [lab14.step_seconds(128, n) - lab14.step_seconds(1, n // 128) for n in (2048, 2**15)],
        lambda waits: np.allclose(waits, 254 * (20e-6 + 7.5e6 / 128 / 12.5e9), rtol=0.02),
    ),
    Claim("14", "With a latency of 0 the same fit is exact on 128.", fit_without_latency, lambda e: abs(e) < 1e-9),
    Claim(
        "14",
        "On more than 8 ranks, weak scaling keeps more than strong scaling does",
        efficiencies,
        lambda found: all((weak > strong) == (p > 8) for p, (strong, weak) in found.items() if p != 8),
    ),
    Claim("14", "On 8 both are the same run", lambda: np.ptp(efficiencies()[8]), lambda off: off < 0.01),
    Claim(
        "14",
        "Give each rank 2,048, and 128 of them keep three quarters.",
        lambda: lab14.step_seconds(1, 2048) / lab14.step_seconds(128, 2048 * 128),
        lambda kept: round(kept, 2) in (0.75, 0.76),
    ),
    Claim(
        "14",
        "a tenth of it nearly halves the run, and half the bandwidth hardly matters",
        what_ifs,
        lambda times: 0.5 < times[0] < 0.56 and times[1] < 1.05,
    ),
    Claim("14", "replay and run agree within 5 %", replayed, lambda error: error < 0.05, slow=True),
    Claim("14", "falls from 156 to 45 TFLOP/s on 3.5 times as many GPUs", envelope, keeps),
    Claim("14", "errs nearly three times as much", lambda: 1 / (1 - envelope()[-1]), lambda x: 2.7 < x < 3),
    Claim(
        "14",
        "a skill of 0.92, on the sealed ones of 0.65",
        skills,
        lambda found: found[0] == (50, 16) and np.allclose(found[1:], [0.92, 0.65], atol=0.005),
    ),
    Claim(
        "14",
        "the worst row among them, are all predicted too slow",
        lambda: envelope()[2],
        lambda ratio: ratio[3:].max() < 0.9 and np.abs(np.log(ratio)).argmax() > 2 and ratio[0] > 1.1,
    ),
    Claim("14", "so that all shares add up to 100 %", added_up, lambda sums: np.allclose(sums, 1), slow=True),
    Claim(
        "14",
        "Of what a plan decides, recomputation costs most",
        lambda: plans(80)[1]["lost"],
        lambda lost: sorted(lost, key=lost.get)[-2:] == ["recomputation", "below peak"],
        slow=True,
    ),
    Claim(
        "14",
        "the best plan does without, and keeps 48 % of the peak, not 37",
        lambda: [plans(160)[0]["recompute"], *(round(plans(gb)[1]["share of peak"], 2) for gb in (160, 80))],
        lambda found: found == [False, 0.48, 0.37],
        slow=True,
    ),
    Claim(
        "14",
        "only the two largest models are off by more than a tenth",
        lambda: [run.measured for run in lab14.TABLES["Megatron-LM, table 1"].runs],
        lambda speeds: [abs(np.median(speeds) / s - 1) > 0.1 for s in speeds] == [False] * 8 + [True] * 2,
    ),
    Claim(
        "14",
        "would be worth more than a faster network",
        lambda: (plans(160)[1]["share of peak"] - plans(80)[1]["share of peak"], communication()),
        lambda found: found[0] > found[1] > 0,
    ),
    Claim(
        "14",
        "Pipeline 8 with the same rest is within a percent and would be better",
        pipeline_8,
        lambda found: 1 < found[0] < 1.01 and round(found[1]) == 83,
    ),
    Claim(
        "07",
        "a rank's own model knows three digits and reaches 28 %",
        lambda: alone(True),
        lambda percent: np.allclose(percent, 28, atol=0.6),
        slow=True,
    ),
    Claim(
        "07",
        "one rank's own model: about 94 %",
        lambda: alone(False),
        lambda percent: np.allclose(percent, 94, atol=1.6),
        slow=True,
    ),
    Claim("07", "for less than two points of accuracy", averaged_once, lambda cost: max(cost) < 2, slow=True),
    Claim(
        "07",
        "On 40 others 17 ended below 80 % without a warm-up, and 2 with it",
        lambda: below_80("digits", *range(100, 120), *range(200, 220)),
        lambda found: found[0] == 0 and 12 <= found[1] <= 22 and found[2] <= 4,
        slow=True,
    ),
    Claim(
        "07",
        "on MNIST at least 4 of 20, and at most one with it",
        lambda: below_80("mnist", *range(20)),
        lambda found: found[0] == 0 and found[1] >= 4 and found[2] <= 1,
        slow=True,
    ),
    Claim(
        "07",
        "On Fashion-MNIST the small rate was best, with a warm-up or without",
        lambda: below_80("fashion-mnist", *range(20)),
        lambda found: found[0] < found[2] <= found[1],
        slow=True,
    ),
    Claim(
        "03",
        "The cost of the spectra depends on the image alone.",
        times_by_kernel,
        lambda t: t[2].max() < 2 * t[2].min() and t[0, 2] > 3 * t[0, 0],
        slow=True,
    ),
    Claim("03", "thirty times as large as the signal", bits_of_f43, lambda b: np.all(abs(2 ** (b - 11) - 32) < 13)),
    Claim(
        "03",
        "by nearly the same factor in both precisions",
        lambda: bits_of_f43("float32") - bits_of_f43(),
        lambda more: np.all(abs(more) < 1.5),
    ),
    Claim("03", "has 0.43 of the work", lambda: work(4) / work(4, "im2col"), lambda share: round(share, 2) == 0.43),
    Claim(
        "03",
        "With one input channel, transforms cost more than the products they save",
        lambda: [dl.nn.conv_cost(way, 16, 1, 16, 28, 28, m=m).work for way, m in KINDS],
        lambda work: min(work[1:]) > work[0],
    ),
    Claim(
        "03",
        "takes some three times as long as the definition",
        times_by_kernel,
        lambda t: 2 < t[2, 0] / t[0, 0] < 5,
        slow=True,
    ),
]
