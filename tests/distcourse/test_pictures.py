import numpy as np
import pytest
from distcourse import pictures
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from distlearn.data import load


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_images_and_their_classes(digits):
    ax = pictures.images(digits.x_test, digits.y_test, n=13, columns=5)
    assert len(ax.images) == 13
    assert [t.get_text() for t in ax.texts] == [digits.classes[c] for c in digits.y_test[:13]]
    np.testing.assert_array_equal(ax.images[4].get_array(), digits.x_test[4].reshape(8, 8))
    left, right, bottom, top = ax.images[6].get_extent()
    assert right - left == bottom - top == 8, "pixels are square and the first row is on top"
    assert left > 8
    assert top > 8


def test_wrong_predictions_are_marked_by_more_than_colour(digits):
    guess = digits.y_test.copy()
    guess[[1, 3]] = (guess[[1, 3]] + 1) % 10
    ax = pictures.images(digits.x_test, digits.y_test, predictions=guess, n=6)
    assert [t.get_text()[0] for t in ax.texts] == list("✓✗✓✗✓✓")
    assert [p.get_gid() == "wrong" for p in ax.patches] == [False, True, False, True, False, False]
    assert ax.patches[1].get_linewidth() > 3 * ax.patches[0].get_linewidth()
    assert str(digits.y_test[1]) in ax.texts[1].get_text()
    assert str(guess[1]) in ax.texts[1].get_text()


def test_colour_images_and_fewer_than_a_row():
    ax = Figure().subplots()
    x = np.random.default_rng(0).random((3, 4, 6, 3))
    assert pictures.images(x, np.arange(3), ax=ax) is ax
    assert ax.images[2].get_array().shape == (4, 6, 3)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("x", "y", "options", "match"),
    [
        (np.zeros((0, 4)), [], {}, "no images"),
        (np.zeros((2, 5)), [0, 1], {}, r"shape \(2, 5\), expected"),
        (np.zeros((2, 4)), [0], {}, "expected 2 class numbers"),
        (np.zeros((2, 4)), [0.5, 1], {}, "float64, expected 2 class numbers"),
        (np.zeros((2, 4)), [0, 1], {"predictions": [1]}, "predictions has shape"),
        (np.zeros((2, 2, 2, 5)), [0, 1], {}, "1, 3 or 4 channels"),
    ],
)
def test_images_that_cannot_be_drawn(x, y, options, match):
    with pytest.raises(ValueError, match=match):
        pictures.images(x, y, **options)
    assert plt.get_fignums() == []


def test_confusion_counts():
    y, guess = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0]
    ax = pictures.confusion(np.array(y), np.array(guess), ["cat", "dog", "fox"], title="Pets")
    assert ax.get_title("left") == "Pets"
    assert {t.get_position(): t.get_text() for t in ax.texts} == {(0, 0): "2", (1, 0): "1", (1, 1): "2", (0, 2): "1"}
    np.testing.assert_allclose(ax.images[0].get_array(), [[2 / 3, 1 / 3, 0], [0, 1, 0], [1, 0, 0]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted class", "true class")


def test_confusion_refuses_other_numbers_of_labels():
    with pytest.raises(ValueError, match="predictions has shape"):
        pictures.confusion([0, 1], [0])
    with pytest.raises(ValueError, match="y has shape"):
        pictures.confusion([], [])
    with pytest.raises(ValueError, match="class 7, but only 2 names"):
        pictures.confusion([0, 7], [0, 1], ["a", "b"])
