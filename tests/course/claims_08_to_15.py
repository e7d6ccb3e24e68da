"""Claims of labs 08, 09, 10, 11 and 15."""

import functools
import sys

import numpy as np
from distcourse import lab08, lab09, lab10, lab11, scaling

import distlearn as dl
from distlearn.parallel.asynchronous import param_server as ps
from distlearn.parallel.pipeline import schedule

from .claims import Claim, answer, answers

# -- lab 08 ------------------------------------------------------------------------------------------------------------


@functools.cache
def recipes():
    """By name: ways to train on the slow network, at the rates that the lab finds."""
    encode_8, decode_8, encode_1, decode_1, encode_top, decode_top = answers("08", "codecs")
    feed_back, outer = answer("08", "compressed_all_reduce"), answer("08", "diloco_round")

    def lose(comm, x, error, encode, decode):
        rows = [comm.all_gather(part) for part in encode(x)]
        return sum(decode(*(part[r] for part in rows), len(x)) for r in range(comm.size))

    codes = {
        "8 bit": (encode_8, decode_8, 0.4, 0.8),
        "1 bit": (encode_1, decode_1, 1.6, 0.05),
        "top": (lambda x: encode_top(x, max(1, round(len(x) / 1000))), decode_top, 0.8, 0.8),
    }
    sgd, adam = lab08.Recipe(lr=0.8), lab08.Recipe(rule="adam", lr=0.02)
    ways = {"sgd": sgd, "256": sgd.but(batch=256, lr=0.4), "local": sgd.but(every=16, lr=0.4), "adam": adam}
    ways |= {"diloco": ways["local"].but(outer=outer), "adam local": adam.but(every=16, lr=0.01)}
    ways |= {"adam diloco": ways["adam local"].but(outer=outer)}
    for name, (encode, decode, *rates) in codes.items():
        for send, rate, kind in zip((feed_back, lose), rates, ("fed back", "lost"), strict=True):
            exchange = lambda comm, x, error, s=send, e=encode, d=decode: s(comm, x, error, e, d)  # noqa: E731
            ways[f"{name}, {kind}"] = sgd.but(exchange=exchange, lr=rate)
    return ways


@functools.cache
def runs(name):
    """Seconds to a loss of 0.1, losses at the end and accuracies of a recipe; eight seeds."""
    found = [lab08.run_recipe(recipes()[name], seed) for seed in range(8)]
    return np.array([(run.seconds_to(), run.losses[-1], run.accuracy) for run in found]).T


def accuracies():
    """With errors fed back, and in 32 bits: medians. Without: least and largest of 1 bit and of top 0.1 %."""
    fed = [np.median(runs(name)[2]) for name in ("sgd", "8 bit, fed back", "1 bit, fed back", "top, fed back")]
    return fed, [
        round(end) for name in ("1 bit, lost", "top, lost") for end in (runs(name)[2].min(), runs(name)[2].max())
    ]


REACHED = set()


def reached():
    """By seed: the share of weights that get a value in a training with top 0.1 % [%]."""
    mine, found = recipes()["top, fed back"], []

    def exchange(comm, x, error):
        total = mine.exchange(comm, x, error)
        sys.modules[__name__].REACHED.update(np.flatnonzero(total).tolist())  # ranks have copies of variables
        return total

    for seed in range(8):
        REACHED.clear()
        lab08.run_recipe(mine.but(exchange=exchange), seed)
        found.append(100 * len(REACHED) / 17_226)
    return found


def race():
    return {name: runs(name) for name in ("sgd", "256", "local", "diloco", "1 bit, fed back")}


def race_holds(found):
    whole, large, local, diloco, _ = (run[0] for run in found.values())
    ends = {name: round(np.median(run[1]), 2) for name, run in found.items()}
    return (
        np.isinf(large).all()
        and (diloco < local).all()
        and 4.5 < np.median(whole) / np.median(local) < 5.5
        and (ends["local"], ends["sgd"]) == (0.07, 0.05)
        and min(ends, key=ends.get) == "1 bit, fed back"
    )


def with_adam():
    """Seconds to a loss of 0.1: all-reduce, local SGD, DiLoCo; and the score of local SGD that sends 8-bit codes."""
    encode, decode, *_ = answers("08", "codecs")
    send = answer("08", "compressed_all_reduce")

    def outer(comm, start, end, error):
        return start - send(comm, start - end, error, encode, decode) / comm.size

    mine = recipes()["adam local"].but(outer=outer)
    whole, local, diloco = (runs(name)[0] for name in ("adam", "adam local", "adam diloco"))
    score = np.median(runs("sgd")[0][:3]) / np.median([lab08.run_recipe(mine, s).seconds_to() for s in range(3)])
    return whole, local, diloco, score


def with_adam_holds(found):
    whole, local, diloco, score = found
    times = [np.median(whole) / np.median(way) for way in (local, diloco)]
    return (local <= diloco).all() and 3 < min(times) < max(times) < 5 and score > 10


def bytes_and_work():
    """Of AlexNet: the share of all dense layers in bytes and in work, and that of the first."""
    shapes = lab08.layer_shapes("alexnet")
    costs = np.array([answer("08", "layer_cost")(*shape[1:]) for shape in shapes])
    dense = costs[[shape.kind == "dense" for shape in shapes]]
    return (100 * np.array([dense.sum(0), dense[0]]) / costs.sum(0)).round().tolist()


def weights_and_uses():
    """By network: millions of weights in convolutions, uses of each for an image, millions in dense layers."""
    found = []
    for name in ("alexnet", "googlenet"):
        layers = lab08.layer_shapes(name)
        weights = np.array([s.kernel**2 * s.c_in // s.groups * s.c_out for s in layers])
        pixels, dense = np.array([(s.pixels, s.kind == "dense") for s in layers]).T
        convolved = weights * (1 - dense)
        found.append([convolved.sum() / 1e6, convolved @ pixels / convolved.sum(), weights @ dense / 1e6])
    return np.round(found, 1).tolist()


def saved_by_a_gather():
    """Seconds that a step of the slow network takes longer with a ring than with gathered halves."""
    gather = lambda comm, x, error: comm.all_gather(x.astype("e")).astype("f").sum(axis=0)  # noqa: E731
    ring, halves = (lab08.run_recipe(lab08.Recipe(exchange=way), samples=640) for way in (None, gather))
    return (ring.seconds[-1] - halves.seconds[-1]) / 10, ring.megabytes / halves.megabytes


# -- labs 09 and 15 ----------------------------------------------------------------------------------------------------


def losses_with_bugs():
    """By bug and seed: the training loss at the end."""
    runs = ("norm", 0.5), ("none", 1.0), ("none", 0.5), ("missing", 0.5), ("doubled", 0.5)
    train = lambda bug, norm, seed: dl.SimWorld(4).run(lab09.train_with_bug, bug, seed=seed, clip_norm=norm)  # noqa: E731
    return np.array([[train(*run, seed)[0][0].last.loss for seed in range(10)] for run in runs])


def untrained():
    """Loss of untrained models less that of guessing, by seed; and their size."""
    text, loss = dl.data.load_text(64), dl.nn.SoftmaxCrossEntropy()
    models = [dl.nn.GPT(128, width=64, heads=4, n_blocks=2, seed=seed) for seed in range(10)]
    losses = [loss(model.forward(text.x_train[:32])[0], text.y_train[:32])[0] for model in models]
    return np.array(losses) - np.log(128), sum(p.size for p in models[0].params)


def gain_of_zigzag():
    """By ranks: how many times as fast a ring in zigzag order is, if messages take no time; less 2 - 1 / p."""
    found = {}
    for p in (2, 4, 8):
        n, times = 64 * p, []
        for where in (np.arange(n).reshape(p, -1), answer("15", "zigzag")(n, p)):
            world = dl.SimWorld(p, dl.Network(0.0, 1e18), dl.Roofline(1e12))
            x = np.zeros((n // p, 8))
            world.run(lambda comm, w=where, x=x: answer("15", "ring_attend")(comm, x, x, x, w, answer("15", "merge")))
            times.append(world.makespan)
        found[p] = times[0] / times[1] - (2 - 1 / p)
    return found


# -- lab 11 ------------------------------------------------------------------------------------------------------------


def floors():
    """By method, seed and rate: the loss at the end."""
    rates = (0.0125, 0.025, 0.05, 0.1, 0.2)
    return {
        method: np.array([list(lab11.floors(seed, method, rates).values()) for seed in range(15)])
        for method in lab11.METHODS
    }


def floors_hold(found):
    one, fresh, stale, damped = found.values()
    best = [np.median(method[seeds], axis=0).min() for method in found.values() for seeds in (range(5), range(5, 15))]
    return (
        (fresh > one)[:, 1:3].all()
        and [(a > b)[:, 2].sum() for a, b in ((stale, fresh), (damped, stale))] == [14, 14]
        and all(0.04 < best[k + 4] - best[k] < 0.07 for k in (0, 1))
        and all(best[k + 6] > best[k + 4] - 0.02 for k in (0, 1))
    )


def at_the_rate_of_one():
    """By seed: whether 16 synchronous and 16 asynchronous workers learn nothing at a rate that suits one."""
    return [
        [lab11.train(way, ps.Speeds(16, seed=s), 0.2).losses[-80:].mean() > 2.2 for way in (ps.bsp(), ps.asp())]
        for s in range(10)
    ]


def seconds_to(policy):
    found = []
    for seed in range(5):
        run = lab11.train(policy, ps.Speeds(8, law="pareto", seed=seed), 0.05, 3200, batch=4, wrong=lab11.WRONG)
        at = np.linspace(0, len(run.versions) - 1, 41).astype(int)
        found.append(next(run.times[v] for v in at if lab11.expected_loss(run.versions[v]) <= 1.5))
    return min(found), max(found)


def best_shares():
    """Of workers that are waited for, if late ones finish; by seed."""
    shares = [0.5, 0.6, 0.65, 0.7, 0.8]
    speeds = [ps.Speeds(100, 1.45, law="occasional", seed=seed) for seed in range(10)]
    return [max(shares, key=lambda x, s=s: x * lab11.simulate(ps.backup(x), s, 50).throughput) for s in speeds]


def wins():
    """By pair of draws: how much sooner than SSP(32), the best rival, a weight that grows with the staleness is."""
    mine, found = lab11.make_entry(answer("11", "my_policy")), []
    for seed in range(1, 11, 2):
        race = lab11.race(mine, mixes=lab11.draw_mixes(seed, seed + 1))
        assert max(race.rivals, key=race.score) == "SSP(32)"
        assert (race.best("SSP(32)")[0][1::3] == lab11.DEADLINE).all(), "too late where workers are slow now and then"
        slow, now_and_then, _ = np.log(race.best("BSP")[0] / race.best("yours")[0]).reshape(-1, 3).mean(axis=0)
        assert slow > now_and_then, "compared with BSP it gains most where workers are always slow"
        found.append(race.score("yours") / race.score("SSP(32)"))
    return found


CLAIMS = [
    Claim("08", "58.6 million in dense layers; GoogLeNet 6.0 million, each used 265", weights_and_uses,
          lambda x: x == [[2.3, 285.4, 58.6], [6.0, 265.1, 1.0]]),
    Claim("08", "per image, GoogLeNet's is again almost 20 times AlexNet's",
          lambda: [float(row.replace(",", "")) for row in scaling.two_networks().rows[-1][1::2]],
          lambda found: 19 < found[1] / 32 / (found[0] / 256) < 20),
    Claim("08", "in half as many messages, which saves three latencies a step", saved_by_a_gather,
          lambda found: np.allclose(found, (3e-3, 1), rtol=1e-3)),
    Claim("08", "hold 96 % of its bytes and do 8 % of its work", bytes_and_work, lambda x: x == [[96, 8], [62, 5]]),
    Claim("08", "reaches 82 to 90 % on eight seeds, top 0.1 % reaches 67 to 89 %", accuracies,
          lambda found: np.ptp(found[0]) < 2 and found[1] == [82, 90, 67, 89], slow=True),
    Claim("08", "three quarters of the weights never get a value in all the training", reached,
          lambda shares: min(shares) > 18 and max(shares) < 28, slow=True),
    Claim("08", "Each of 4 ranks sends 17 of 17,226 values", lambda: dl.nn.MLP((64, 128, 64, 10)),
          lambda net: sum(p.size for p in net.params) == 17_226),
    Claim("08", "at which half and twice as much are worse",
          lambda: [lab08.tuned(recipe).lr / recipe.lr for recipe in recipes().values()],
          lambda found: found == [1.0] * len(recipes()), slow=True),
    Claim("08", "DiLoCo's outer momentum is sooner still, on each of the eight", race, race_holds, slow=True),
    Claim("08", "gains nothing in ten thousand samples, on none of eight seeds", with_adam, with_adam_holds, slow=True),
    Claim("10", "all 24 runs with stashing learned, and 1 of 24 without",
          lambda: [[lab10.train_stale(way, 0.1, seed)["training loss"] < 2.2 for seed in range(24)]
                   for way in ("stashing", "no stashing")],
          lambda learned: list(map(sum, learned)) == [24, 1], slow=True),
    Claim("10", "With 1F1B it takes 34",
          lambda: schedule.simulate("1f1b", 3, 6, transfer=1).makespan, lambda t: t == 34),
    Claim("10", "1F1B takes 36 and holds 6 of these activations on rank 0",
          lambda: schedule.simulate("1f1b", 3, 4, forward=2, backward=4),
          lambda run: run.makespan == 36 and 2 * run.in_flight[0] == 6),
    Claim("10", "The factor 2 leaves messages time to arrive",  # with one stage a rank only the factor differs
          lambda: [schedule.simulate("1f1b", 4, 8, transfer=0.25),
                   schedule.simulate("interleaved", 4, 8, n_virtual=1, transfer=0.25)],
          lambda runs: runs[1].makespan < runs[0].makespan and runs[1].in_flight[0] > runs[0].in_flight[0]),
    Claim("10", "with two samples, ten seeds ended between 24 and 48 %",
          lambda: [lab10.train_normalised("batch", 32, seed)["test accuracy [%]"] for seed in range(10)],
          lambda x: [round(min(x)), round(max(x))] == [24, 48], slow=True),
    Claim("09", "on each of them (and of seven more)", losses_with_bugs,
          lambda x: (x[:2].max(axis=0) < x[2]).all() and (x[2] < x[3:].min(axis=0)).all(), slow=True),
    Claim("09", "has more than half of the operations of every module",
          lambda: {name: costs[1] / sum(costs) for name, costs in lab09.inception_costs().items()},
          lambda shares: min(shares.values()) > 0.5 and round(shares["3a"], 2) == 0.79),
    Claim("15", "Untrained, it is somewhat worse than guessing", untrained,
          lambda found: found[0].min() > 0 and found[0].max() < 1.5),
    Claim("15", "It has 116,000 parameters", lambda: untrained()[1], lambda n: round(n, -3) == 116_000),
    Claim("15", "The ratio is $2 - 1/p$", gain_of_zigzag, lambda off: max(map(abs, off.values())) < 0.02),
    Claim("11", "end above the one on all 15 seeds", floors, floors_hold, slow=True),
    Claim("11", "It is the same on ten seeds out of ten", at_the_rate_of_one, np.all, slow=True),
    Claim("11", "One worker still learns at 0.8, and learns nothing at 1.6",
          lambda: [lab11.train(ps.bsp(), ps.Speeds(1, seed=s), lr).losses[-80:].mean() for lr in (0.8, 1.6)
                   for s in range(3)], lambda x: max(x[:3]) < 0.1 and min(x[3:]) > 2.2),
    Claim("11", "on five seeds it needs 208 to 321 s to reach 1.5, backup workers 116 to 184, ASP 75 to 108",
          lambda: [*seconds_to(ps.bsp()), *seconds_to(ps.backup(7 / 8)), *seconds_to(ps.asp())],
          lambda found: np.allclose(found, (208, 321, 116, 184, 75, 108), rtol=0.02), slow=True),
    Claim("11", "`staleness + 10` is 1.1 to 1.3 times faster than the best rival, always SSP(32)", wins,
          lambda x: 1.1 < min(x) <= max(x) < 1.35, slow=True),
    Claim("11", "the best share is about two thirds", best_shares, lambda x: 0.6 <= min(x) <= max(x) <= 0.7, slow=True),
]  # fmt: skip
