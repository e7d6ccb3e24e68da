import numpy as np
import pytest

from distlearn import viz


def test_print_shows_columns_in_order_of_appearance(histories):
    rows = histories["2 ranks"].as_dicts()
    head, rule, *lines = str(viz.table(rows)).splitlines()
    assert head.split() == list(rows[0])
    assert set(rule) == {"─"}
    assert len([line for line in lines if line.strip()]) == len(rows)


def test_cells():
    rows = [
        {"a": 123456, "b": 0.000012345, "c": None},
        {"a": np.int64(2), "b": float("nan"), "c": np.True_, "d": "[red]x"},
    ]
    text = str(viz.table(rows, title="Times"))
    for part in ("Times", "123,456", "1.234e-05", "✓ yes", "[red]x"):
        assert part in text
    assert text.count("–") == 3
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5678, "1235"), (0.0, "0"), (1 / 3, "0.3333"), (2e7, "20,000,000"), (3.14159e12, "3.142e+12")],
)
def test_numbers_have_four_digits(value, text):
    assert str(viz.table([{"x": value}])).splitlines()[-1].strip() == text


def test_numbers_stand_to_the_right():
    columns = viz.table([{"n": 1, "s": "a", "m": 1.0}, {"n": 20, "s": "b", "m": None}]).columns
    assert [c.justify for c in columns] == ["right", "left", "right"]


def test_a_notebook_gets_html():
    bundle = viz.table([{"ranks": 4}], title="T")._repr_mimebundle_([], [])
    assert "ranks" in bundle["text/html"]
    assert "ranks" in bundle["text/plain"]


@pytest.mark.parametrize("rows", [[], [{}]])
def test_no_rows(rows):
    with pytest.raises(ValueError, match="no rows"):
        viz.table(rows)
