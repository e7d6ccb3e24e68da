"""A study: every setting with every seed, the spread in the table, an optimum only inside its grid."""

import numpy as np
import pytest
from distcourse import Study


def noisy(seed, lr, rule="SGD"):
    return {"loss": (np.log10(lr) + 1) ** 2 + 0.01 * seed, "steps": np.nan if lr > 1 else 10 * seed}


def test_every_setting_is_run_with_every_seed_and_reported():
    seen, reports = [], []

    def run(seed, lr, rule):
        seen.append((lr, rule, seed))
        return lr

    study = Study(run, {"lr": (1, 2), "rule": "ab"}, seeds=(3, 5), report=lambda *a, **k: reports.append((a, k)))
    assert seen == [(lr, rule, seed) for lr in (1, 2) for rule in "ab" for seed in (3, 5)]
    assert study["value"].shape == (2, 2, 2)
    assert study["value"][1, 0, 1] == 2
    assert reports[-1] == ((8, 8), {"lr": 2, "rule": "b"})


def test_the_best_setting_lies_inside_the_grid_or_is_an_error():
    assert Study(noisy, {"lr": (0.01, 0.1, 1, 10)}).best("lr", "loss") == 0.1
    with pytest.raises(ValueError, match="an end of"):
        Study(noisy, {"lr": (0.1, 1, 10)}).best("lr", "loss")
    with pytest.raises(ValueError, match="no lr of"):
        Study(noisy, {"lr": (2, 3, 4)}).best("lr", "steps")


def test_a_table_shows_the_spread_a_figure_the_band_and_nothing_to_show_is_an_error():
    study = Study(noisy, {"rule": ("SGD", "Adam"), "lr": (0.01, 0.1, 1)})
    assert study.table().rows[1] == ["SGD", "0.1", "0.02 (0 to 0.04)", "20 (0 to 40)"]
    ax = study.plot("lr", "rule", "loss", xscale="log", ylabel="loss")
    assert [line.get_label() for line in ax.lines] == ["SGD", "Adam"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.01", "0.1", "1"]
    assert np.isclose(ax.collections[0].get_paths()[0].vertices[:, 1].max(), 1.04)
    with pytest.raises(ValueError, match="name each of them once"):
        study.plot("lr")
    with pytest.raises(ValueError, match="nothing to run"):
        Study(noisy, {"lr": ()})
