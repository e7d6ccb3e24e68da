"""The real images, through DISTLEARN_DATA (read before the tests' own fixture hides it)."""

import os
from pathlib import Path

import numpy as np
import pytest

from distlearn.data import load, read_idx

DATA = os.environ.get("DISTLEARN_DATA", "")


@pytest.fixture(params=["mnist", "fashion-mnist"])
def name(request, monkeypatch):
    if not (Path(DATA) / request.param).is_dir() or not DATA:
        pytest.skip(f"DISTLEARN_DATA names no folder with {request.param}/")
    monkeypatch.setenv("DISTLEARN_DATA", DATA)
    return request.param


def test_real_images(name):
    data = load(name)
    n_train = len(data.x_train) + len(data.x_val)
    # the official sets, or the subsets that the project's tests are run with
    assert (n_train, len(data.x_test)) in {
        "mnist": [(60_000, 10_000), (20_000, 2_000)],
        "fashion-mnist": [(60_000, 10_000), (1_600, 400)],
    }[name]
    assert len(data.x_val) == n_train // 10
    assert data.image_shape == (28, 28, 1)
    assert data.n_classes == 10
    for _, x, y in data.splits():
        assert x.shape == (len(y), 784)
        assert x.dtype == np.float32
        assert (x.min(), x.max()) == (0, 1)
        np.testing.assert_array_equal(np.unique(y), np.arange(10))
        counts = np.bincount(y)
        assert counts.min() > 0.5 * len(y) / 10  # ten classes, about equally many of each


def test_the_test_split_is_the_file_in_its_order(name):
    images = read_idx(next((Path(DATA) / name).glob("t10k-images*")))
    labels = read_idx(next((Path(DATA) / name).glob("t10k-labels*")))
    assert images.dtype == labels.dtype == np.uint8
    data = load(name, dtype=np.float64)
    np.testing.assert_array_equal(np.rint(data.x_test.reshape(images.shape) * 255), images)
    np.testing.assert_array_equal(data.y_test, labels)
