"""`load` and `available` with folders of IDX files."""

import re

import numpy as np
import pytest

from distlearn.data import available, load
from distlearn.data.sources import FILES, KNOWN

from .idx_writer import idx_bytes, write_idx

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILES


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("DISTLEARN_DATA", str(folder))
    return folder


def rows(array):
    """Rows in an order of their own, to compare sets of samples."""
    return array[np.lexsort(array.reshape(len(array), -1).T)]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kuzushiji"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_folder_below_distlearn_data(root, write_set, name, suffix):
    arrays = write_set(root / name, suffix=suffix)
    data = load(name)
    assert data.name == name
    assert data.source == str(root / name)
    assert [x.shape for _, x, _ in data.splits()] == [(27, 20), (3, 20), (8, 20)]
    x, y = arrays["t10k"]
    np.testing.assert_array_equal(data.x_test, x.reshape(8, 20) / np.float32(255))
    np.testing.assert_array_equal(data.y_test, y)
    x, y = arrays["train"]
    found = np.concatenate(
        [np.column_stack([np.rint(x * 255), y]) for x, y in ((data.x_train, data.y_train), (data.x_val, data.y_val))]
    )
    np.testing.assert_array_equal(rows(found), rows(np.column_stack([x.reshape(30, 20), y])))
    assert data.classes == (KNOWN[name].classes if name in KNOWN else tuple("0123456789"))


def test_the_folder_itself_may_hold_the_files(tmp_path, monkeypatch, write_set):
    write_set(tmp_path / "files")
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path / "files"))
    assert load("mnist").source == load("anything").source == str(tmp_path / "files")


def test_a_folder_of_one_known_set_is_not_taken_for_another(tmp_path, monkeypatch, write_set):
    write_set(tmp_path / "mnist")
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path / "mnist"))
    assert load("mnist").source == str(tmp_path / "mnist")
    with pytest.raises(ValueError, match=r"unknown data set 'mnits'.*holds mnist"):
        load("mnits")
    assert {row.name: row.origin for row in available()}["fashion-mnist"] == "download"


@pytest.mark.parametrize("shape", [(7,), (5, 4), (5, 4, 3), (2, 3, 4, 5)])
def test_samples_of_any_number_of_dimensions(root, write_set, shape):
    arrays = write_set(root / "any", shape=shape)
    flat = load("any")
    assert flat.shape == (np.prod(shape),)
    assert flat.image_shape == {(5, 4): (5, 4, 1), (5, 4, 3): (5, 4, 3)}.get(shape)
    expected = arrays["t10k"][0].reshape(8, -1) / np.float32(255)
    np.testing.assert_array_equal(flat.x_test, expected)


def test_an_empty_test_split_keeps_its_shape(root, write_set):
    write_set(root / "half", n=(10, 0))
    assert load("half").x_test.shape == (0, 20)


def test_one_sample_stays_for_training(root, write_set):
    write_set(root / "tiny", n=(1, 1))
    assert [len(x) for _, x, _ in load("tiny", val_fraction=0.9).splits()] == [1, 0, 1]


def test_changed_files_are_read_again(root, write_set):
    write_set(root / "mine")
    before = load("mine")
    assert load("mine") is before
    write_set(root / "mine", n=(40, 8))
    assert len(load("mine").x_train) == 36


CASES = {
    "labels and images differ in number": (
        {TRAIN_LABELS: np.zeros(29, np.uint8)},
        "train-labels-idx1-ubyte.gz: found 29 labels, expected 30, as many as samples in train-images-idx3-ubyte.gz",
    ),
    "train and test samples differ in shape": (
        {TEST_IMAGES: np.zeros((8, 5, 5), np.uint8)},
        "t10k-images-idx3-ubyte.gz: found samples of shape (5, 5), expected (5, 4)",
    ),
    "samples that are no bytes": (
        {TEST_IMAGES: np.zeros((8, 5, 4), np.int16)},
        "t10k-images-idx3-ubyte.gz: found int16, expected bytes from 0 to 255",
    ),
    "labels in the place of images": (
        {TRAIN_IMAGES: np.zeros(30, np.uint8)},
        "train-images-idx3-ubyte.gz: found an array of shape (30,), expected (samples, height, width)",
    ),
    "images in the place of labels": (
        {TRAIN_LABELS: np.zeros((30, 5, 4), np.uint8)},
        "train-labels-idx1-ubyte.gz: found uint8 of shape (30, 5, 4), expected labels",
    ),
    "labels that are no whole numbers": (
        {TEST_LABELS: np.zeros(8, np.float32)},
        "t10k-labels-idx1-ubyte.gz: found float32 of shape (8,), expected labels: whole numbers",
    ),
    "a negative label": (
        {TRAIN_LABELS: np.full(30, -2, np.int8)},
        "train-labels-idx1-ubyte.gz: found labels from -2 to -2, expected 0 to 9",
    ),
    "a label of an eleventh class": (
        {TEST_LABELS: np.full(8, 10, np.uint8)},
        "t10k-labels-idx1-ubyte.gz: found labels from 10 to 10, expected 0 to 9",
    ),
    "no samples": (
        {TRAIN_IMAGES: np.zeros((0, 5, 4), np.uint8), TRAIN_LABELS: np.zeros(0, np.uint8)},
        "train-images-idx3-ubyte.gz: found 0 samples, expected at least one",
    ),
    "samples without features": (
        {TRAIN_IMAGES: np.zeros((30, 0, 4), np.uint8)},
        "train-images-idx3-ubyte.gz: found an array of shape (30, 0, 4)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_files_that_do_not_belong_together(root, write_set, case):
    files, message = CASES[case]
    write_set(root / "mnist")
    for name, array in files.items():
        write_idx(root / "mnist" / name, array)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load("mnist")
    assert str(root / "mnist") in str(caught.value)


def test_channels_first_are_refused(root, write_set):
    write_set(root / "colour", shape=(3, 8, 8))
    with pytest.raises(ValueError, match=r"train-images.*: has channels first, \(30, 3, 8, 8\); expected them last"):
        load("colour")


def test_a_folder_of_folders_is_not_called_empty(root):
    (root / "mnist" / "raw").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"expected train-images-idx3-ubyte.gz, gzipped or plain, found raw/"):
        load("mnist")


def test_a_dot_before_idx_is_read_and_a_second_file_for_one_name_is_refused(root, write_set):
    """7-zip unpacks train-images-idx3-ubyte.gz as train-images.idx3-ubyte."""
    write_set(root / "mnist", suffix="")
    want = load("mnist").x_train
    for path in list((root / "mnist").iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    (root / "mnist" / f"{TRAIN_IMAGES}.part").write_bytes(b"of a download that broke off")
    np.testing.assert_array_equal(load("mnist").x_train, want)
    (root / "mnist" / TRAIN_IMAGES).write_bytes(b"another")
    with pytest.raises(FileNotFoundError, match=r"and no other, found train-images-idx3\S+, train-images.idx3-ubyte"):
        load("mnist")


def test_a_damaged_file_is_named(root, write_set):
    write_set(root / "mnist", suffix="")
    path = root / "mnist" / TRAIN_IMAGES.removesuffix(".gz")
    path.write_bytes(idx_bytes(np.zeros((30, 5, 4), np.uint8))[:-7])
    with pytest.raises(ValueError, match=re.escape(f"{path}: truncated: expected 600 bytes")):
        load("mnist")


def test_a_missing_file_is_named_with_what_is_there(root, write_set):
    write_set(root / "mnist")
    (root / "mnist" / TEST_LABELS).unlink()
    message = f"{root / 'mnist'}: expected {TEST_LABELS}, gzipped or plain, found {TEST_IMAGES}"
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        load("mnist")


def test_distlearn_data_that_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"DISTLEARN_DATA is '.*nowhere', expected the folder"):
        load("mnist")
    assert load("digits").name == "digits"
    rows = {row.name: row for row in available()}
    assert rows["digits"].origin == "package"
    assert rows["mnist"].origin == "broken"
    assert "nowhere" in rows["mnist"].where


@pytest.mark.parametrize("name", ["cifar", "", ".", ".."])
def test_an_unknown_name_lists_what_there_is(root, write_set, name):
    write_set(root / "mine")
    message = f"unknown data set {name!r}: known are digits, mnist, fashion-mnist; DISTLEARN_DATA ({root}) holds mine"
    with pytest.raises(ValueError, match=re.escape(message)):
        load(name)


def test_an_unknown_name_without_distlearn_data():
    with pytest.raises(ValueError, match="known are digits, mnist, fashion-mnist; DISTLEARN_DATA is not set"):
        load("cifar")


def test_available_says_where_each_would_come_from(root, write_set):
    write_set(root / "mnist")
    write_set(root / "mine")
    (root / "mine" / TEST_LABELS).unlink()
    (root / "notes").mkdir()
    rows = {row.name: row for row in available()}
    assert list(rows) == ["digits", "mnist", "fashion-mnist", "mine"]
    assert rows["mnist"][1:] == ("folder", str(root / "mnist"))
    assert rows["fashion-mnist"].origin == "download"
    assert rows["fashion-mnist"].where.startswith("http")
    assert rows["mine"].origin == "broken"
    assert TEST_LABELS in rows["mine"].where


def test_available_without_distlearn_data():
    assert [(row.name, row.origin) for row in available()] == [
        ("digits", "package"),
        ("mnist", "download"),
        ("fashion-mnist", "download"),
    ]
