"""Claims of labs 00, 01, 02, 04, 05 and 06."""

import dataclasses
import functools
import itertools

import numpy as np
from distcourse import lab02, lab04, lab05, lab06

import distlearn as dl

from .claims import Claim, answers

# -- lab 01 ------------------------------------------------------------------------------------------------------------


def shrinking():
    """By activation and seed: how many times smaller the first layer's gradient is than the last one's."""
    data, found = dl.data.load("digits"), []
    for activation in (dl.nn.Sigmoid, dl.nn.ReLU):
        found.append([_shrinks(activation, seed, data.x_train, data.y_train) for seed in range(20)])
    return np.array(found)


def untrained_losses():
    """By seed: the loss of an untrained network on the digits."""
    x, y = dl.data.load("digits").x_train, dl.data.load("digits").y_train
    networks = [dl.nn.MLP((64, 32, 10), seed=seed) for seed in range(10)]
    return [dl.nn.SoftmaxCrossEntropy()(net.forward(x)[0], y, len(y))[0] for net in networks]


def train_lab_01(batch_size, lr, epochs, seed):
    """Train the lab's network; return its model and history."""
    model, data = dl.nn.MLP((64, 32, 10), seed=seed), dl.data.load("digits")
    optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), lr)
    with np.errstate(all="ignore"):
        trainer = dl.Serial(None, model, dl.nn.SoftmaxCrossEntropy(), optimizer)
        return model, dl.fit(trainer, data, epochs=epochs, batch_size=batch_size, metric="accuracy", seed=seed)


def passes_to_90_percent():
    """Of each setting, by seed: passes until 90 % of the training images are right."""
    runs = ([train_lab_01(*how, seed)[1] for seed in range(20)] for how in ((1293, 1.0, 60), (32, 0.3, 6)))
    return [[next(e.epoch for e in run.epochs if e.train_accuracy >= 0.9) for run in of_one] for of_one in runs]


def alive_after_rate_10():
    """By seed: hidden neurons that are positive for any image, and the loss of the last steps."""
    x, runs = dl.data.load("digits").x_train, [train_lab_01(32, 10.0, 10, seed) for seed in range(8)]
    alive = [int((model.layers[0].forward(x)[0] > 0).any(axis=0).sum()) for model, _ in runs]
    return alive, [np.mean(history.losses[-40:]) for _, history in runs]


def _shrinks(activation, seed, x, y):
    layers, sizes = [], (64, *[32] * 6, 10)
    for i, (d_in, d_out) in enumerate(itertools.pairwise(sizes)):
        layers += [activation()] * (i > 0) + [dl.nn.Linear(d_in, d_out, rng=[seed, i])]
    net = dl.nn.Sequential(*layers)
    logits, saved = net.forward(x)
    net.backward(dl.nn.SoftmaxCrossEntropy()(logits, y, len(y))[1], saved)
    first, last = (np.sqrt(np.mean(layer.W.grad**2)) for layer in (layers[0], layers[-1]))
    return last / first


# -- lab 02 ------------------------------------------------------------------------------------------------------------


def adams() -> dict:
    """Adam with and without bias correction: a rule by name."""
    (adam,) = answers("02", "adam")

    def uncorrected(data, grad, state, lr, step):
        adam(data, grad, state, lr, 10**6)

    return {name: lab02.FunctionRule(rule, 2) for name, rule in (("with", adam), ("without", uncorrected))}


def first_steps():
    """Without bias correction, in learning rates: the first step and the longest."""
    found = lab02.first_steps(adams()["without"], 3000)
    return found[0], found.max()


def steps_of_adams():
    """Steps to the target by seed: Adam at 0.04, without bias correction at 0.01, and that at 0.04."""
    task, rules = lab02.target_task("digits"), adams()
    return [
        [lab02.steps_to_target(task, 32, lr, rules[name], seed=seed, most=400) for seed in range(20)]
        for name, lr in (("with", 0.04), ("without", 0.01), ("without", 0.04))
    ]


def adams_hold(found):
    corrected, without, lost = np.array(found)
    return (
        [corrected.min(), corrected.max(), without.min(), without.max()] == [26, 44, 20, 41]
        and np.median(lost) > 200
        and abs((corrected - without).mean()) < without.std()
    )


def swings():
    """By which factor Momentum comes nearer to a ravine's minimum per step, in both directions at several rates."""
    momentum = lab02.FunctionRule(answers("02", "momentum")[1], 1)
    paths = np.abs([lab02.descend(momentum, lr, steps=400) for lr in (0.004, 0.01, 0.04, 0.1, 0.15)])
    return (paths[:, 300:360].max(axis=1) / paths[:, :60].max(axis=1)) ** (1 / 300)


def adadelta():
    """Median steps at rates from 1 to 32, over twenty seeds."""
    task, rule = lab02.target_task("digits"), dl.optim.Adadelta()
    steps = [[lab02.steps_to_target(task, 32, lr, rule, seed=s) for s in range(20)] for lr in (1, 4, 8, 16, 32)]
    return np.median(steps, axis=1)


@functools.cache
def race_of_20():
    """By rule: median steps at the best rate, and how many of 20 runs fail at twice that rate."""
    task, found = lab02.target_task("digits"), {}
    rules = *answers("02", "momentum"), *answers("02", "adaptive"), *answers("02", "adam"), dl.optim.Adadelta().update
    names, memory = ("SGD", "Momentum", "NAG", "Adagrad", "RMSprop", "Adam", "Adadelta"), (0, 1, 1, 1, 1, 2, 2)
    for rule, name, arrays, lr in zip(rules, names, memory, (0.8, 0.2, 0.2, 0.1, 0.01, 0.04, 16), strict=True):
        best, twice = (
            [
                lab02.steps_to_target(task, 32, k * lr, lab02.FunctionRule(rule, arrays), seed=s, most=400)
                for s in range(20)
            ]
            for k in (1, 2)
        )
        found[name] = np.median(best), int(np.isinf(twice).sum())
    return found


def batches_of(**changes):
    """Of the digits' task, changed: mean steps by batch size, and the critical one; the noise scale of three seeds."""
    (noise,), (fit,) = answers("02", "noise"), answers("02", "fit")
    task = dataclasses.replace(lab02.target_task("digits"), **changes)
    sweep = lab02.sweep_batches(task, [1, 4, 16, 64, 256, len(task.x)], lr=0.1)
    fewest, samples = fit(np.array(sweep.batches, float), sweep.steps)
    lr, steps, scales = sweep.lrs[3], round(sweep.steps[3]), []
    for seed in range(3):
        found = dl.SimWorld(8).run(lab02.noise_run, task, noise, lr=lr, steps=steps, seed=seed)[0][0].mean(axis=0)
        scales.append(found[0] / found[1])
    return sweep.steps, samples / fewest, scales


def noise_scales():
    """Noise scale of the digits by seed, at the best rate for a batch of 64 and at half of it."""
    (noise,), task, found = answers("02", "noise"), lab02.target_task("digits"), []
    for lr, steps in ((0.8, 48), (0.4, 71)):
        runs = [
            dl.SimWorld(8).run(lab02.noise_run, task, noise, lr=lr, steps=steps, seed=seed)[0][0].mean(axis=0)
            for seed in range(5)
        ]
        found.append([trace / square for trace, square in runs])
    return np.array(found)


# -- lab 04 ------------------------------------------------------------------------------------------------------------


def kernels():
    """Of the recorded card: times [ms], for transposes how many times their bound, CuPy's times, and all bounds."""
    card, times = lab04.kernel_times()
    took = {name: ours for name, (ours, _) in times.items()}
    bounds = lab04.bounds(card)
    least = {name: max(parts.values()) for name, parts in bounds.items()}
    names = ("transpose, no tile", "transpose, 32 columns", "transpose, 33 columns")
    ratios = [round(took[name] / least[name], 1) for name in names]
    peers = [1e3 * times[name][1] for name in ("transpose, 33 columns", "sum, in registers", "product, no tiles")]
    named = [f"{1e3 * s:.2g}" for name, parts in bounds.items() if "sum" not in name for s in parts.values() if s]
    return [round(1e3 * seconds, 3) for seconds in took.values()], ratios, [float(f"{ms:.2g}") for ms in peers], named


def warps_that_add():
    """Of a block of 256 threads, in all 8 steps: by halves, and by neighbours."""
    t = np.arange(256)
    steps = [[t < h for h in 2 ** np.arange(8)], [t % (2 * h) == 0 for h in 2 ** np.arange(8)]]
    return [sum(len(set(t[adds] // 32)) for adds in step) for step in steps]


# -- lab 05 ------------------------------------------------------------------------------------------------------------


def gain_of_batches():
    """Samples a second of a wide layer on an A100, by the bound: in a batch of 65,536 over alone."""
    cost, least = answers("05", "product_cost")
    a100, d = dl.cuda.CARDS["A100"], 2**20
    alone, together = (least(*cost(b, d, d), a100.peak, a100.bandwidth) / b for b in (1, 65536))
    return alone / together


def launches():
    """Milliseconds of a step of the small network with 180 neurons, by card."""
    (seconds,) = answers("05", "seconds")
    return [1e3 * seconds(dl.cuda.CARDS[card], *lab05.step_work(180, 32, "batch")) for card in ("T4", "A100", "H100")]


def recorded():
    """Milliseconds of steps on the recorded H100: AlexNet and the MLP; AlexNet's share of normalization."""
    alexnet = lab05.card_layers("alexnet", (1, 16, 256))
    mlp = [took for model, batch, took, _ in lab05.card_steps()[1] if model == "mlp" and batch in (32, 512)]
    share = alexnet[-1].shares()["LocalResponseNorm"]
    return [round(1e3 * s, 1) for s in (*(p.seconds for p in alexnet), *mlp)], share


# -- lab 06 ------------------------------------------------------------------------------------------------------------


def fastest_all_reduces():
    """By ranks, sizes from 8 bytes to 1 GB: the names of the fastest all-reduces, where one is alone."""
    seconds, net, found = answers("06", "seconds")[0], dl.Network.preset("ethernet-10g"), {}
    for p in range(2, 65):
        for n in 2.0 ** np.arange(3, 31):
            times = {name: seconds(name, n, p, net.alpha, net.beta) for name in lab06.NAMES}
            best = [name for name, t in times.items() if t < min(times.values()) * (1 + 1e-9)]
            found.setdefault(p, []).append(best)
    return found


def fastest_hold(found):
    powers = {2**k for k in range(1, 7)}
    return (
        all("halving" in best for p in powers for best in found[p])
        and all(found[p][-1] == ["ring"] for p in found if p not in powers)
        and not any(best == ["tree"] for rows in found.values() for best in rows)
        and [p for p, rows in found.items() if ["star"] in rows] == [3, 5]
        and all(rows.count(["star"]) == 0 or rows[0] == ["star"] for rows in found.values())
    )


def busiest():
    """Arrays through the busiest rank, by number of ranks, where that is no power of two: halving's and the ring's."""
    ring, halving = (answers("06", name)[0] for name in ("ring", "halving"))
    found = {}
    for p in (3, 5, 6, 7, 9, 12, 13):
        found[p] = lab06.counted(halving, p, 16 * p).busiest, lab06.counted(ring, p, 16 * p).busiest
    return found


def orders():
    """Orders of `ledger` on four ranks, and those of `relay` that fail, without what is buffered."""
    *_, relay, ledger = answers("06", "network")
    failures = dl.sim.explore(relay, 3).failures
    return dl.sim.explore(ledger, 4).n_orders, [[d for d in run.order if "buffer" not in d] for run in failures]


def interleavings():
    ring = answers("06", "ring")[0]
    return dl.sim.explore(lambda comm: ring(comm, np.ones(8)), 4).first.n_interleavings


CLAIMS = [
    Claim(
        "01",
        "2.36 to 3.02 with ten seeds",
        untrained_losses,
        lambda found: (round(min(found), 2), round(max(found), 2)) == (2.36, 3.02),
    ),
    Claim(
        "01",
        "17 to 40 passes (twenty seeds",
        passes_to_90_percent,
        lambda p: min(p[0]) in (16, 17, 18) and 38 <= max(p[0]) <= 42,
        True,
    ),
    Claim(
        "01", "batches of 32 still need fewer: 2 to 4", passes_to_90_percent, lambda p: {*p[1]} <= {2, 3, 4}, slow=True
    ),
    Claim("01", "for all eight seeds that we tried", alive_after_rate_10, lambda found: found[0] == [0] * 8, slow=True),
    Claim("01", "the loss stays above $\\log 10$", alive_after_rate_10, lambda found: min(found[1]) > 2.4, slow=True),
    Claim(
        "01",
        "With twenty seeds the factor is 1,190 to 3,485, and 0.7 to 2.4 with ReLU, the control",
        shrinking,
        lambda found: (
            [found[0].min().round(-1), found[0].max().round()] == [1190, 3485]
            and [found[1].min().round(1), found[1].max().round(1)] == [0.7, 2.4]
        ),
    ),
    Claim(
        "02",
        "Without it they are three to five times as long",
        first_steps,
        lambda found: abs(found[0] - 3.16) < 0.01 and 4.5 < found[1] < 5,
    ),
    Claim("02", "26 to 44 steps with the correction, 20 to 41 without", steps_of_adams, adams_hold, slow=True),
    Claim(
        "02",
        "it comes nearer by a factor of $\\sqrt\\mu$ per step on average, at any rate",
        swings,
        lambda found: np.allclose(found, 0.9**0.5, atol=2e-3),
    ),
    Claim(
        "02",
        "SGD failed at twice its best rate every time, Momentum nine times, the others never",
        race_of_20,
        lambda found: [failed for _, failed in found.values()] == [20, 9, 0, 0, 0, 0, 0],
        slow=True,
    ),
    Claim(
        "02",
        "NAG is the fastest, and Adam's second array buys no speed here",
        race_of_20,
        lambda found: min(found, key=found.get) == "NAG",
        slow=True,
    ),
    Claim(
        "02",
        "at 1 it takes about four times as many steps as at its best",
        adadelta,
        lambda steps: 3.5 < steps[0] / min(steps) < 4.5 and np.argmin(steps) in (2, 3),
        slow=True,
    ),
    Claim(
        "02",
        "From batches of 1 to the critical size the steps fall to an eighth",
        batches_of,
        lambda found: (found[0][[2, 5]] / found[0][[0, 2]]).round(2).tolist() == [0.13, 0.47],
        slow=True,
    ),
    Claim(
        "02",
        "5 to 6 predicted on three seeds, 23 measured",
        lambda: batches_of(hidden=()),
        lambda found: round(found[1]) == 23 and min(found[2]) > 4.5 and max(found[2]) < 6.5,
        slow=True,
    ),
    Claim(
        "02",
        "At **half** the best rate the digits' noise scale comes out nearly three times as large",
        noise_scales,
        lambda found: 2.5 < found[1].mean() / found[0].mean() < 3 and found[1].min() > 2 * found[0].max(),
        slow=True,
    ),
    Claim(
        "04",
        "1.8, 1.4 and 1.3 times what their counts need",
        kernels,
        lambda found: (
            found[0] == [0.326, 0.092, 0.051, 0.097, 0.074, 0.054, 2.546, 2.119, 0.765]
            and found[1:3] == ([1.8, 1.4, 1.3], [0.14, 0.032, 0.35])
            and found[3][:10] == ["0.18", "0.04", "0.066", "0.04", "0.004", "13", "0.26", "1.3", "1.7", "0.26"]
        ),
    ),
    Claim("04", "12 steps of warps, by neighbours 47", warps_that_add, lambda found: found == [12, 47]),
    Claim("05", "times as many samples a second: 25 on an A100", gain_of_batches, lambda found: round(found) == 25),
    Claim(
        "05",
        "58 times 5 µs, as assumed, or 0.3 ms",
        launches,
        lambda found: {round(ms, 1) for ms in found} == {0.3},
    ),
    Claim(
        "05",
        "took 14.5 ms for AlexNet with one image, 16.2 with 16, and 89 with 256",
        recorded,
        lambda found: (  # within a last digit: Python 3.12 adds floats more exactly
            np.allclose(found[0], [14.5, 16.2, 89.4, 2.5, 2.1], atol=0.06) and 0.19 < found[1] < 0.22
        ),
    ),
    Claim("06", "On a power of two none of the four beats halving", fastest_all_reduces, fastest_hold),
    Claim(
        "06",
        "its busiest rank moves more bytes than in a ring",
        busiest,
        lambda found: all(halving > ring for halving, ring in found.values()),
    ),
    Claim(
        "06",
        "in the two failures of `relay` the same messages arrive in the same order",
        orders,
        lambda found: found[0] == 90 and len(found[1]) == 2 and found[1][0] == found[1][1],
    ),
    Claim("06", "some $10^{22}$ different sequences", interleavings, lambda found: round(found, -21) == 10**22),
]
