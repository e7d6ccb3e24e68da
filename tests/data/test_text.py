"""Text: sequences whose labels are the next characters, from what every Python has."""

import numpy as np
import pytest

from distlearn.data import decode, encode, load_text


@pytest.mark.parametrize("length", [1, 17, 64])
def test_labels_are_the_next_characters(length):
    data = load_text(length)
    for _, x, y in data.splits():
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
        np.testing.assert_array_equal(x.reshape(-1)[1:], y.reshape(-1)[:-1])
    n = sum(x.size for _, x, _ in data.splits())
    assert n > 300_000
    assert len(data.x_test) == pytest.approx(0.1 * n / length, rel=0.01)
    assert data.n_classes == 128


def test_it_is_documentation():
    text = decode(load_text(1000).x_train.reshape(-1))
    assert 'with the "assert" statement' in text or "expression" in text
    assert max(map(ord, text)) < 128


def test_codes_and_text():
    assert decode(encode("for i in x:\n")) == "for i in x:\n"
    assert decode(encode("naïve")) == "nave"


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="length is 0"):
        load_text(0)
