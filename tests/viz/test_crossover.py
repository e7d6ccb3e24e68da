import numpy as np
from distcourse import lab06
from distcourse.lab06 import crossovers

from distlearn import viz
from distlearn.comm import Network
from distlearn.comm.network import cost
from distlearn.comm.network.fit import Sweep, all_reduce_sweep, fastest
from distlearn.sim import SimWorld

SIZES = tuple(1 << k for k in range(6, 25, 2))


NETWORK = Network(1e-5, 1e9)


def test_predicted_and_measured_stand_in_one_plot_and_the_line_where_the_formulas_cross():
    """Of eight simulated ranks on a slower network than that of the prediction, so that points and lines differ."""
    found = SimWorld(8, Network(2e-5, 5e8)).run(all_reduce_sweep, ("doubling", "ring"), SIZES, 3)[0]
    nbytes = np.array(SIZES, float)
    sweeps = {
        name: Sweep(nbytes, fastest(times), np.array([cost.seconds(name, n, 8, NETWORK) for n in SIZES]))
        for name, times in found.items()
    }
    ax = lab06.plot_crossover(sweeps)
    for name, color in (("doubling", viz.COLORS[0]), ("ring", viz.COLORS[1])):
        lines = [line.get_ydata() for line in ax.get_lines() if line.get_color() == color and len(line.get_xdata()) > 2]
        np.testing.assert_array_equal(lines[0], sweeps[name].predicted)
        np.testing.assert_array_equal(lines[1], sweeps[name].measured)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["doubling", "ring", "predicted", "measured"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    (line,) = [line for line in ax.get_lines() if len(set(line.get_xdata())) == 1]
    for n, ring_wins in ((line.get_xdata()[0] / 1.01, False), (line.get_xdata()[0] * 1.01, True)):
        doubling, ring = (cost.seconds(name, n, 8, NETWORK) for name in ("doubling", "ring"))
        assert (ring < doubling) == ring_wins
    predicted, measured = ax.get_title("left").splitlines()
    assert predicted.startswith("Fastest, predicted: doubling < ")
    assert measured.startswith("Fastest, measured: doubling < ")
    assert measured.endswith(" < ring")


def test_the_title_says_who_is_the_fastest_where():
    n = np.array([1e3, 1e6])
    ax = lab06.plot_crossover({"a": Sweep(n, n[::-1] / 1e9, n / 1e9), "b": Sweep(n, n / 1e9, n / 1e8)})
    assert ax.get_title("left").splitlines() == [
        "Fastest, predicted: a at every size",
        "Fastest, measured: b < 489 KiB < a",
    ]


def test_crossovers_between_three():
    n = np.array([1.0, 10.0, 100.0, 1000.0])
    times = {"a": np.array([1, 10, 100, 1000.0]), "b": np.array([5, 5, 50, 500.0]), "c": np.full(4, 20.0)}
    assert [(c.before, c.after) for c in crossovers(n, times)] == [("a", "b"), ("b", "c")]


def test_a_map_shows_the_fastest_of_each_size_and_number_of_ranks():
    sizes, ranks = 2.0 ** np.arange(4, 24), (4, 6)
    network = Network(1e-5, 1e9)
    seconds = {
        name: np.array([[cost.seconds(name, n, p, network) for n in sizes] for p in ranks]) for name in ("tree", "ring")
    }
    ax = lab06.plot_fastest(sizes, ranks, seconds)
    tree, ring = (mesh.get_array().filled(0).astype(bool).reshape(len(ranks), -1) for mesh in ax.collections)
    np.testing.assert_array_equal(tree, seconds["tree"] <= seconds["ring"])
    np.testing.assert_array_equal(ring, ~tree)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["tree", "ring"]
    assert ax.get_title("left") == "2 of 2 algorithms are the fastest somewhere"
