import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest

from distlearn.data import Dataset, load, loading


def small(**changes):
    arrays = {f"x_{s}": np.zeros((n, 4)) for s, n in (("train", 20), ("val", 5), ("test", 10))}
    arrays |= {f"y_{s}": np.arange(n) % 2 for s, n in (("train", 20), ("val", 5), ("test", 10))}
    return Dataset("toy", **(arrays | {"classes": ("a", "b"), "source": "a test"} | changes))


def test_shape_features_classes_and_repr():
    data = small()
    assert (data.shape, data.n_features, data.n_classes) == ((4,), 4, 2)
    expected = "Dataset('toy', train (20, 4), val (5, 4), test (10, 4), float64, 2 classes, from a test)"
    assert repr(data) == expected
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


def test_take_keeps_the_first_of_each_split():
    data = small()
    less = data.take(8, 3)
    assert [len(x) for _, x, _ in less.splits()] == [8, 2, 3]
    for (_, x, y), (_, all_x, all_y) in zip(less.splits(), data.splits(), strict=True):
        assert np.shares_memory(x, all_x)
        np.testing.assert_array_equal(y, all_y[: len(y)])
    assert [len(x) for _, x, _ in data.take(1).splits()] == [1, 1, 10]
    assert [len(x) for _, x, _ in data.take(20, 0).splits()] == [20, 5, 0]
    assert less.classes == data.classes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "n_train is 0.*of 1 or more and up to 20"),
        ((21,), "n_train is 21"),
        ((5, 11), "n_test is 11"),
        ((2.0,), "n_train is 2.0"),
    ],
)
def test_take_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        small().take(*arguments)


def test_parts_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="5 samples in x_val, 4 labels in y_val"):
        small(y_val=np.zeros(4, int))
    with pytest.raises(ValueError, match=r"x_test has samples of \(3,\), not \(4,\)"):
        small(x_test=np.zeros((10, 3)))


def test_digits_are_the_default_and_need_no_network():
    data = load()
    assert data.name == "digits"
    assert [x.shape for _, x, _ in data.splits()] == [(1293, 64), (144, 64), (360, 64)]
    assert {x.dtype for _, x, _ in data.splits()} == {np.dtype(np.float32)}
    assert {y.dtype for _, _, y in data.splits()} == {np.dtype(np.int64)}
    assert data.classes == tuple("0123456789")
    assert data.image_shape == (8, 8, 1)
    assert (data.x_train.min(), data.x_train.max()) == (0, 1)
    for _, _, y in data.splits():
        assert set(y.tolist()) == set(range(10))


def test_digits_are_scikit_learns_every_one_of_them_once():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    data = load("digits", dtype=np.float64)
    found = np.concatenate([np.column_stack([x * 16, y]) for _, x, y in data.splits()])
    expected = np.column_stack([bunch.data, bunch.target])
    np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_images_are_channels_last():
    digits = load("digits")
    assert digits.image_shape == (8, 8, 1)
    assert digits.shape == (digits.n_features,) == (64,)


def test_the_seed_decides_the_validation_split_and_never_the_test_split():
    one, again, other = (load("digits", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x_val, again.x_val)
    np.testing.assert_array_equal(one.x_train, again.x_train)
    assert not np.array_equal(one.x_val, other.x_val)
    np.testing.assert_array_equal(one.x_test, other.x_test)
    np.testing.assert_array_equal(one.y_test, other.y_test)


@pytest.mark.parametrize(("fraction", "n_val"), [(0, 0), (0.25, 359), (0.9999, 1436)])
def test_share_of_the_validation_split(fraction, n_val):
    data = load("digits", val_fraction=fraction)
    assert [len(x) for _, x, _ in data.splits()] == [1437 - n_val, n_val, 360]


@pytest.mark.parametrize("dtype", ["float16", np.float32, np.dtype("float64")])
def test_dtypes_agree_to_their_precision(dtype):
    data, exact = load("digits", dtype=dtype), load("digits", dtype=np.longdouble)
    assert data.x_train.dtype == np.dtype(dtype)
    assert np.abs(data.x_train - exact.x_train).max() <= np.finfo(dtype).eps / 2


def test_arrays_are_read_only_and_shared_between_calls():
    data = load("digits")
    with pytest.raises(ValueError, match="read-only"):
        data.x_train -= 0.5
    assert load("digits") is data
    assert load("digits", seed=3) is not data
    assert len(loading._last) == 1  # the last one alone: data sets can be large


def test_a_data_set_can_be_pickled():
    data = load("digits").take(10, 5)
    back = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(back.x_train, data.x_train)
    assert repr(back) == repr(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": int}, "dtype is int64, expected a floating-point type"),
        ({"val_fraction": 1}, "val_fraction is 1"),
        ({"val_fraction": -0.1}, "val_fraction is -0.1"),
        ({"val_fraction": float("nan")}, "val_fraction is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": None}, "seed is None"),
        ({"name": 3}, "name is 3"),
    ],
)
def test_load_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        load(**({"name": "digits"} | arguments))


def test_importing_and_loading_digits_stays_light():
    heavy = {"sklearn", "scipy", "pooch", "requests", "tqdm", "cupy"}
    code = f"import sys, distlearn.data as d; d.load('digits'); print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def labelled(y_test, classes=("a", "b", "c")):
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 2, 0])
    return Dataset("mine", x, y, x[:0], y[:0], x[: len(y_test)], np.array(y_test), classes, "a test")


@pytest.mark.parametrize(("y_test", "found"), [([0, -1], "-1 to 0"), ([3, 1, 2], "1 to 3"), ([-100, 2], "-100 to 2")])
def test_labels_that_are_no_class_are_refused(y_test, found):
    """In the test set alone they would be counted as mistakes, and -1 as the last class."""
    with pytest.raises(ValueError, match=f"Dataset 'mine': labels of y_test run from {found}, expected 0 to 2"):
        labelled(y_test)


def test_targets_that_are_no_labels_are_left_alone():
    assert labelled([0.5, -7.0]).y_test.tolist() == [0.5, -7.0]
    assert labelled([9, -9], classes=()).y_test.tolist() == [9, -9]
    assert labelled([]).n_classes == 3


@pytest.mark.parametrize("name", ["x_train", "y_train", "x_val", "y_val", "x_test", "y_test"])
def test_lists_are_told_to_become_arrays(name):
    x, y = np.zeros((4, 2)), np.zeros(4, int)
    arrays = {"x_train": x, "y_train": y, "x_val": x, "y_val": y, "x_test": x, "y_test": y}
    arrays[name] = arrays[name].tolist()
    with pytest.raises(TypeError, match=f"Dataset 'mine': {name} is a list, expected an array, such as np.array"):
        Dataset("mine", **arrays, classes=("a",), source="a test")


def test_arrays_become_a_data_set_of_three_splits():
    x, y = np.arange(60).reshape(20, 3), np.arange(20) % 3
    found = Dataset.from_arrays(x, y, val=0.25, test=0.1, classes=("a", "b", "c"), name="mine")
    assert [len(part) for _, part, _ in found.splits()] == [13, 5, 2]
    rows = np.concatenate([part for _, part, _ in found.splits()])
    labels = np.concatenate([part for _, _, part in found.splits()])
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], x)  # every sample once, with its label
    np.testing.assert_array_equal(rows[:, 0] // 3 % 3, labels)
    assert (found.x_train.dtype, found.classes, found.name) == (np.float32, ("a", "b", "c"), "mine")
    double = found.astype("float64")
    assert (double.x_test.dtype, double.y_test.dtype) == (np.float64, y.dtype)
    np.testing.assert_array_equal(double.x_train, found.x_train)
    regression = Dataset.from_arrays(x, x[:, :1] / 2, seed=1)
    assert (regression.classes, regression.y_test.shape) == ((), (4, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.zeros(19, int)}, "from_arrays: 20 samples, but 19 labels"),
        ({"y": [0] * 20}, "from_arrays: y is a list, expected an array"),
        ({"x": np.ma.zeros((20, 3))}, r"x is a MaskedArray, expected an array, such as x.filled\(value\)"),
        ({"x": np.asmatrix(np.zeros((20, 3)))}, r"x is a matrix, expected an array, such as np.array\(x\)"),
        ({"x": np.zeros((20, 3), complex)}, "x holds complex128, expected real numbers"),
        ({"val": 0.5, "test": 0.5}, r"from_arrays: val=0.5, test=0.5 of 20 samples leave none to train on"),
        ({"val": -0.1}, r"from_arrays: val=-0.1"),
        ({"y": np.array(["cat", "dog"] * 10)}, r"labels have dtype <U3, expected indices of classes: number them"),
        ({"y": np.arange(20) * 10**12}, r"labels up to 19000000000000 would be as many classes; number them from 0"),
        ({"classes": ["a", "b"]}, r"labels of y_train run from 0 to 2, expected 0 to 1"),
    ],
)
def test_from_arrays_refuses(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Dataset.from_arrays(**({"x": np.zeros((20, 3)), "y": np.arange(20) % 3} | arguments))
