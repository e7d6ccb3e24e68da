"""Numbers and tables as text."""

import numpy as np
import pytest

from distlearn import viz
from distlearn.tables import Table, format_number, format_time, quantity


def test_print_shows_columns_in_order_of_appearance():
    rows = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "accuracy": 1.0}]
    head, rule, *lines = str(viz.table(rows)).splitlines()
    assert head.split() == ["epoch", "loss", "accuracy"]
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
    rows = [{"n": 1, "s": "a", "m": 1.0}, {"n": 20, "s": "b", "m": None}]
    assert str(viz.table(rows)).splitlines()[2:] == [" 1  a  1", "20  b  –"]


def test_wide_letters_take_two_columns():
    """A folder of images may name its classes so; e and an accent of its own are one letter."""
    text = str(Table(["class", "n"], [["猫", "1"], ["e\u0301te\u0301", "22"]]))
    assert text == "class   n\n─────────\n猫      1\ne\u0301te\u0301    22"


def test_a_notebook_gets_html():
    shown = viz.table([{"ranks": 4, "a<b": "c<d"}], title="T")._repr_html_()
    assert "<caption>T</caption>" in shown
    assert '<td style="text-align:right">4</td>' in shown
    assert "a&lt;b" in shown
    assert "c&lt;d" in shown
    assert '<td style="text-align:right">&lt;</td>' in Table(["x", "y"], [["", "<"]])._repr_html_()


def test_a_notebook_folds_a_long_table():
    def shown(n, **kwargs):
        return viz.table([{"n": i} for i in range(n)], **kwargs)._repr_html_()

    assert "<details>" not in shown(15, title="T")
    assert shown(16, title="A < B").startswith("<details><summary>A &lt; B (16 rows)</summary><table><thead>")
    assert "<summary>Table (16 rows)</summary>" in shown(16)


def test_numbers_are_written_with_units():
    assert [quantity(v) for v in (0, 999, 1000, 60_965_224, 2.5e15)] == ["0", "999", "1 k", "61 M", "2.5 P"]
    assert quantity(60_965_224 * 4, "B", 1024) == "233 MiB"
    assert [format_time(v) for v in (2.0, 0.0123, 4.5e-6, 7e-9)] == ["2 s", "12.3 ms", "4.5 µs", "7 ns"]
    assert format_number(-0.5) == "-0.5"


@pytest.mark.parametrize("rows", [[], [{}]])
def test_no_rows(rows):
    with pytest.raises(ValueError, match="no rows"):
        viz.table(rows)
