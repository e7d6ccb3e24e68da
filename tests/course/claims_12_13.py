"""Claims of labs 12 and 13."""

import itertools
import tracemalloc
from copy import deepcopy
from functools import partial
from statistics import NormalDist
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from distcourse import lab12, lab13
from distcourse.incidents import INCIDENTS, replay

import distlearn as dl

from .claims import Claim, answer, answers, need

DAY = 86_400


# -- lab 12 ------------------------------------------------------------------------------------------------------------


def timeouts():
    """By seed: the best timeout [s] by the tail, and false alarms a day at the one that is best by the record."""
    watch = answers("12", "watch")[0]
    return [_timeouts(watch, lab12.heartbeats(20_000, seed=seed)) for seed in range(10)]


def _timeouts(watch, arrivals):
    gaps, tried = np.diff(arrivals), np.arange(5, 30, 0.5)
    day, tail = 2048 * DAY / gaps.mean(), NormalDist.from_samples(np.log(gaps))
    late = 8 * np.array([watch(arrivals, t)[1] / 60 for t in tried])
    counted, fitted = (
        day * np.array([share(t) for t in tried])
        for share in (lambda t: (gaps > t).mean(), lambda t: 1 - tail.cdf(np.log(t)))
    )
    return tried[np.argmin(5 * fitted + late)], fitted[np.argmin(5 * counted + late)]


def false_alarms():
    """False alarms of 2,048 nodes in a day at 9.5 s, and at 22 s, drawn gap by gap."""
    rng, found = np.random.default_rng(0), np.zeros(2, int)
    for _ in range(16):
        gaps = np.exp(0.5 * rng.normal(size=int(128 * DAY / np.exp(0.125))))
        found += [(gaps > t).sum() for t in (9.5, 22)]
    return found


def shares_of_the_best():
    """By cluster: what is kept at half and at twice Young's interval, as shares of what is kept at it."""
    found = []
    for cluster in [(1e3, 60, 60), (4e3, 2, 60), (3e5, 10, 300)]:
        best = lab12.young_interval(cluster[1], cluster[0])
        half, one, twice = (
            np.mean([lab12.play(lambda *_, t=k * best: t, *cluster, seed=s) for s in range(10)]) for k in (0.5, 1, 2)
        )
        found.append((half / one, twice / one))
    return found


def last_errors():
    """Median error [%] after 100 steps, synchronous and of a quorum, a failure every 18 steps, and every 6; of five."""
    found = []
    for mtbf, method in itertools.product((18, 6), ("synchronous", "quorum")):
        last = [lab12.last_error(method, seed, mtbf) for seed in range(50)]
        found.append((np.median(last), np.median(last[25:30])))
    return np.array(found).T


def young_and_replayed():
    """By cost of a checkpoint: by how much the replay keeps more than Young's formula says, by seed [points]."""
    run, (share, best) = INCIDENTS["llama-3"], answers("12", "effective_share")
    found = {}
    for cost in (3, 30, 120):
        tau = best(cost, run.mtbf)
        kept = [replay(run, interval=tau, cost=cost, restart=600, seed=s).effective for s in range(10)]
        found[cost] = 100 * (np.array(kept) - share(tau, cost, 600, run.mtbf))
    return found


def time_in_checkpoints():
    """Share of the time that checkpoints of two minutes take at Young's interval [%]: replayed, and C / tau."""
    run = INCIDENTS["llama-3"]
    tau = answers("12", "effective_share")[1](120, run.mtbf)
    runs = [replay(run, interval=tau, cost=120, restart=600, seed=s) for s in range(10)]
    return [100 * r.saving / sum(r) for r in runs], 100 * 120 / tau


def corruption():
    """Steps until a bad rank is found, the mean of 400 runs, by seed."""
    found = [lab12.silent_corruption(0.01, steps=200_000, seed=s) for s in range(1000, 5000)]
    return np.array(found, float).reshape(10, 400).mean(axis=1)


def false_alarms_of_slow_nodes():
    """Share of healthy clusters that raise an alarm at a rate of 0.05; and of those whose slow node is found."""
    slow_nodes = answers("12", "slow_nodes")[0]
    healthy = np.mean([bool(slow_nodes(lab12.step_times(seed=s), 0.05)) for s in range(400)])
    return healthy, np.mean([17 in slow_nodes(lab12.step_times(slow=17, seed=s), 0.05) for s in range(100)])


def one_learner():
    """Share of the time that is kept, one learner and 32, by seed [%]."""
    return [[100 * lab12.quorum_share(n, 18 * 60, 600, seed=s) for s in range(10)] for n in (1, 32)]


# -- lab 13 ------------------------------------------------------------------------------------------------------------


def zero():
    """Numbers [MB, ms] of ZeRO's stages 1 to 3, and of stage 3 without fetching ahead."""
    return {case: lab13.zero_step(*case)[1] for case in ((1, True), (2, True), (3, False), (3, True))}


def zero_holds(rows):
    layer, all_ = 4 * 1025 * 1024 / 1e6, 33.6

    def near(got, want):
        return abs(got - want) < 0.1

    one, two, late, ahead = rows.values()
    return (
        near(one["optimizer"], 2 * all_ / 4)
        and near(two["gradients"], all_ / 4 + 2 * layer)
        and near(ahead["parameters"], all_ / 4 + layer)
        and near(ahead["peak [MB]"] - late["peak [MB]"], 5.2)
        and near(ahead["gradients"] - late["gradients"], layer)
        and near(late["exposed [ms]"], 3.1)
        and near(ahead["exposed [ms]"], 0.4)
    )


def layer_times():
    """Milliseconds of a layer: forward, and gathering its parameters; the peak without fetching ahead [MB]."""
    record, row = lab13.zero_step(3, False)
    spans = [s for s in record.trace.select(rank=0) if s.end > s.start]
    forward = 2 * 1024**3 / 1e13
    gather = next(s.end - s.start for s in spans if "gather" in s.name)
    return 1e3 * forward, 1e3 * gather, row["peak [MB]"]


def equal_blocks():
    """Bytes that a network of equal blocks holds, each run once more, as shares of all that its layers save."""
    chain, found = lab13.chain_of(lab13.deep(), np.zeros((128, 64), "float32")), []
    for size in range(1, 20):
        *parts, plan = [list(range(20))[i : i + size] for i in range(0, 20, size)]
        for part in reversed(parts):
            plan = part, plan
        found.append(dl.nn.plan_cost(plan, *chain)[0] / sum(chain[2]))
    return found


def shares_of_a_layer():
    """Shares [%] that sequence parallelism, selective recomputation, and both leave, by model."""
    layer_bytes, t = answers("13", "layer_bytes")[0], {"t": 8}
    ways = [{"sequence": True}, {"selective": True}, {"sequence": True, "selective": True}]
    found = []
    for a, h in lab13.GPTS.values():
        whole = layer_bytes(2048, 1, h, a, **t)
        found.append([100 * layer_bytes(2048, 1, h, a, **t, **way) / whole for way in ways])
    return np.array(found)


def points_lost():
    """Test accuracy [points] that rounding trained weights loses, mean over 40 networks: NVFP4, 16 values, MXFP4."""
    cluster_16, lost = answer("13", "cluster_16"), np.zeros(3)

    def shared(w):
        values, codes = cluster_16(w)
        return values[lab13.unpacked(codes, w.size)].reshape(w.shape)

    ways = [partial(dl.nn.NVFP4.round, axis=0), shared, partial(dl.nn.MXFP4.round, axis=0)]
    for seed in range(40):
        model = dl.nn.MLP((64, 64, 32, 10), seed=seed)
        lab13.train(model, 64, 0.05, seed=seed)
        kept = [p.data.copy() for p in model.params]
        right = []
        for way in (np.copy, *ways):
            for p, w in zip(model.params, kept, strict=True):
                p.data[...] = way(w) if w.ndim == 2 else w
            right.append((model.forward(lab13.digits().x_test)[0].argmax(axis=1) == lab13.digits().y_test).mean())
        lost += 100 / 40 * (right[0] - np.array(right[1:]))
    return lost


def rounded_training(noise, seeds=10, first=5):
    """Loss above its minimum by seed, with nearest and with stochastic rounding: NVFP4's, MXFP4's."""
    runs = [(fmt, stochastic) for fmt in (dl.nn.NVFP4, dl.nn.MXFP4) for stochastic in (False, True)]
    return np.array([[lab13.excess_loss(*run, noise, seed) for seed in range(first, first + seeds)] for run in runs])


def last_layer_in_float32():
    """The same on three seeds, where the layer that makes the 10 scores is not rounded; and in float32 throughout."""
    rounded = dl.nn.LowPrecisionLinear

    def layer(d_in, d_out, rng, **options):
        return dl.nn.Linear(d_in, d_out, rng) if d_out == 10 else rounded(d_in, d_out, rng, **options)

    with patch.object(dl.nn, "LowPrecisionLinear", layer):
        found = rounded_training(0.2, 3)
    return found / in_float32(3)


def in_float32(seeds):
    return [lab13.excess_loss(None, False, 0.2, seed) for seed in range(5, 5 + seeds)]


def bytes_of_formats():
    """Bytes of a network whose matrices have 4 bits, as shares of float32's: NVFP4, MXFP4."""
    params = dl.nn.MLP((64, 64, 32, 10), seed=None).params
    for fmt in (dl.nn.NVFP4, dl.nn.MXFP4):
        held = sum(fmt.nbytes(p.data.shape, 0) if p.data.ndim == 2 else p.nbytes for p in params)
        yield held / sum(p.nbytes for p in params)


def biases():
    """What NVFP4 and MXFP4 make of one large gradient and 15 small ones in a block: of the large one, and at most."""
    found = (fmt.round(np.float32([-0.98] + [0.02] * 15)) for fmt in (dl.nn.NVFP4, dl.nn.MXFP4))
    return [(round(float(x[0]), 3), abs(x[1:]).max()) for x in found]


def doubled_scale():
    """The same as `rounded_training`, two seeds, with scales twice as large."""
    scale = dl.nn.formats.BlockFormat._scale
    with patch.object(dl.nn.formats.BlockFormat, "_scale", lambda fmt, largest: 2 * scale(fmt, largest)):
        return rounded_training(0.2, 2)


def alexnets_dense_layers():
    """Share of AlexNet's parameters in dense layers [%]."""
    params = dl.nn.build("alexnet", seed=None).params
    return 100 * sum(p.data.size for p in params if p.data.ndim == 2) / sum(p.data.size for p in params)


def most_allocated():
    """Most that Python has allocated in a step [MB]: 16 layers, all kept; and in four blocks that are run again."""
    blocks, found = [lab13.dense((256,) * 5) for _ in range(4)], []
    for model in (dl.nn.Sequential(*blocks), dl.nn.Sequential(*map(dl.nn.Recompute, blocks))):
        tracemalloc.start()
        batch = lab13.samples(2048, (256,), rng=np.random.default_rng(0))
        trainer = lab13.strategy(dl.optim.SGD())(None, deepcopy(model))
        tracemalloc.reset_peak()
        trainer.step(batch)
        found.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    return found


def on_fashion():
    """The same on images of Fashion-MNIST, three seeds, with certain labels and with 20 % random ones."""
    need("fashion-mnist")
    images = dl.data.load("fashion-mnist", dtype="float32")
    rows = SimpleNamespace(x_train=images.x_train[:1440].reshape(1440, -1), y_train=images.y_train[:1440])
    with patch.object(lab13, "digits", lambda: rows):
        return np.median([rounded_training(noise, 3) for noise in (0.0, 0.2)], axis=-1)


CLAIMS = [
    Claim("12", "no record of one node contains it", timeouts,
          lambda rows: all(21 <= best <= 23 and alarms > 20 for best, alarms in rows), slow=True),
    Claim("12", "raises about 500 false alarms a day among 156 million gaps", false_alarms,
          lambda found: 450 < found[0] < 550 and found[1] < 3, slow=True),
    Claim("12", "a factor of two costs less than 1 % of the share; where it takes a sixteenth (row 1), 4 to "
          "12 %", shares_of_the_best,
          lambda rows: all(0.875 <= x <= 0.965 for x in rows[0]) and all(x > 0.99 for row in rows[1:] for x in row)),
    Claim("12", "Over 50 seeds the median errors are 6.8 % (synchronous) and 6.4 % (quorum) in the first case, 20.5 % "
          "and 7.3 % in the second", last_errors,
          lambda e: np.allclose(e[0], (6.8, 6.4, 20.5, 7.3), atol=0.06) and abs(e[0] - e[1]).max() < 1, slow=True),
    Claim("12", "it is within a point for short checkpoints. For two minutes the replay is a point or two better",
          young_and_replayed,
          lambda more: all(abs(more[c]).max() < 1 for c in (3, 30)) and 1 < more[120].min() <= more[120].max() < 2.5),
    Claim("12", r"checkpoints take 6 % of the time, not $C/\tau$ = 7 %", time_in_checkpoints,
          lambda found: 5.5 < min(found[0]) <= max(found[0]) < 6.5 < found[1] < 7.5),
    Claim("12", "so the mean is 5,000 steps: one over the product. (Chance moves a mean of 400 runs by about 5 %.)",
          corruption, lambda means: abs(means.mean() - 5000) < 250 and 100 < means.std() < 500, slow=True),
    Claim("12", "raises an alarm in about a share `rate` of all cases", false_alarms_of_slow_nodes,
          lambda found: 0.02 < found[0] < 0.09 and found[1] == 1, slow=True),
    Claim("12", r"keeps $e^{-R/M} = 57\,\%$", one_learner,
          lambda found: abs(np.mean(found[0]) - 57.4) < 2 and abs(np.mean(found[1]) - 98.3) < 0.3),
    Claim("13", "Fetching ahead holds 5.2 MB more at the peak, 6 %, little more than a layer's 4.2: its gradients are "
          "still being scattered", zero, zero_holds, slow=True),
    Claim("13", "89 MB are held at the peak. A layer's forward pass takes 0.21 ms and its backward pass twice as long; "
          "gathering its parameters, 4.2 MB, takes 0.13 ms", layer_times,
          lambda found: np.allclose(found, (0.215, 0.13, 89.3), rtol=0.03)),
    Claim("13", "Equal blocks that run once more need more than a third", equal_blocks,
          lambda found: min(found) > 1 / 3),
    Claim("13", "leave 16 to 20 %, though either alone leaves a half to two thirds", shares_of_a_layer,
          lambda found: found[:, :2].min() > 48 and found[:, :2].max() < 68 and 16 < found[:, 2].min() <= 20.3),
    Claim("13", "Forty lose 0.3 points on average in NVFP4, 0.4 with 16 values and 0.9 in MXFP4",
          points_lost, lambda lost: np.allclose(lost, (0.28, 0.4, 0.94), atol=0.06), slow=True),
    Claim("13", "stochastic rounding brings NVFP4 almost to float32, and makes MXFP4 several times worse",
          lambda: rounded_training(0.2) / in_float32(10),
          lambda x: (x[1] < x[0]).all() and (x[3] > x[2]).all() and np.median(x[1]) < 1.15
          and np.median(x[3]) > 3 * np.median(x[2]), slow=True),
    Claim("13", "less than a sixth of the bytes", bytes_of_formats, lambda found: max(found) < 1 / 6),
    Claim("13", "In a block with one −0.98, both formats round +0.02 to **0**", biases,
          lambda found: found == [(-0.98, 0), (-0.75, 0)]),
    Claim("13", "With MXFP4's scale doubled nothing is cut off, and the trick helps there, too", doubled_scale,
          lambda x: (x[3] < 0.5 * x[2]).all(), slow=True),
    Claim("13", "three dense layers, which hold 96 % of AlexNet's", alexnets_dense_layers,
          lambda share: round(share) == 96),
    Claim("13", "With the last layer in float32 both formats reach float32's loss, rounded either way",
          last_layer_in_float32, lambda x: 0.9 < x.min() <= x.max() < 1.1, slow=True),
    Claim("13", "at the most, NumPy allocates 32 MB, and 49 if everything is kept", most_allocated,
          lambda found: np.allclose(found, (48.9, 32.1), atol=0.6)),
    Claim("13", "the runs in 4 bits lie close together", lambda: rounded_training(0.0),
          lambda x: x.max() < 1.6 * x.min(), slow=True),
    Claim("13", "with 5 or 40 % random labels NVFP4 gains only 5 to 11 %",
          lambda: [1 - x[1].mean() / x[0].mean() for x in map(rounded_training, (0.05, 0.4))],
          lambda gains: 0.04 < min(gains) <= max(gains) < 0.12, slow=True),
    Claim("13", "it gains as much as here, and stochastic rounding hurts MXFP4 with certain labels, too", on_fashion,
          lambda x: x[1, 1] < 0.6 * x[1, 0] and x[0, 3] > 1.3 * x[0, 2], slow=True),
]  # fmt: skip
