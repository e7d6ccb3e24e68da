"""Axes whose numbers fit their units: seconds as s, ms, µs or ns, counts as 10k, shares as per cent."""

from __future__ import annotations

from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter

from ..tables import time_unit


class _FromZero(MaxNLocator):
    """Round numbers, counted from a given value."""

    def __init__(self, zero: float, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._zero = zero

    def tick_values(self, vmin, vmax):
        return super().tick_values(vmin - self._zero, vmax - self._zero) + self._zero


def time_axis(axis, longest: float, label: str, zero: float = 0.0) -> None:
    """Label an axis of seconds in the unit that suits its range; the labels count from `zero`."""
    unit, name = time_unit(longest)
    axis.set_major_locator(_FromZero(zero, 6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{round((seconds - zero) / unit, 9):.10g}"))
    axis.set_label_text(f"{label} [{name}]")


def count_axis(axis, label: str) -> None:
    """Label an axis that counts something: whole numbers, thousands as k."""
    axis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_label_text(label)


def share_axis(axis, label: str) -> None:
    """Label an axis that holds shares from 0 to 1 as per cent."""
    axis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))
    axis.set_label_text(f"{label} [%]")
