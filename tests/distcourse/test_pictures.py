import numpy as np
import pytest
from distcourse import pictures

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
