"""Figures of per-layer profiles, against the numbers that they draw."""

import numpy as np
import pytest

from distlearn import viz
from distlearn.cuda import CARDS
from distlearn.nn.costs.profile import LayerTime, Product, Profile


def profile(batch, scale=1.0, n=8):
    layers = [LayerTime(f"{i}.Linear", (i + 1) * scale, (i + 1) * scale, 100, 10) for i in range(n)]
    return Profile(layers, batch)


def test_bars_add_up_to_the_time_per_sample():
    profiles = [profile(1, 1e-3), profile(16, 4e-3)]
    ax = viz.plot_layers(profiles)
    assert ax.get_ylabel() == "time per sample [ms]"
    heights = np.array([[bar.get_height() for bar in group] for group in ax.containers])
    np.testing.assert_allclose(heights.sum(axis=0), [p.seconds / p.batch * 1e3 for p in profiles])
    names = [group.get_label() for group in ax.containers]
    assert names == ["7.Linear", "6.Linear", "5.Linear", "4.Linear", "3.Linear", "all others"]
    np.testing.assert_allclose(heights[-1], [12, 3])


def test_shares_add_up_to_one():
    ax = viz.plot_layers(profile(4), share=True)
    assert sum(group[0].get_height() for group in ax.containers) == pytest.approx(1)
    assert ax.get_ylabel() == "share of the step [%]"


def test_profiles_of_two_models_do_not_stack():
    with pytest.raises(ValueError, match="got 2 different lists of layers"):
        viz.plot_layers([profile(1), profile(1, n=3)])


def test_products():
    ax = viz.plot_products([Product(1, 1.0, 1e9, 0.5), Product(64, 4.0, 16e9, 30)])
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [1, 16])


def test_products_below_their_bound():
    card = CARDS["T4"]
    ax = viz.plot_products([Product(1, 1.0, 1e9, 0.5), Product(64, 4.0, 16e9, 30)], card=card)
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), [0.5 * card.bandwidth / 1e9, card.peak / 1e9])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["measured", "bound"]
