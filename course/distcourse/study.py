"""A claim with its control: the same run for every setting and several seeds, as a table and as a figure."""

from __future__ import annotations

import itertools

import numpy as np

from distlearn.comm.base import ignore_report
from distlearn.tables import Table, format_number
from distlearn.viz.look import COLORS, LINES, MARKERS, new_axes, styled


class Study:
    """Run something for every combination of settings and every seed, and keep what it returns.

    Parameters
    ----------
    run : callable
        `run(seed=, **setting)` returns a number, or a dict of numbers by name. NaN: the run did not get there.
    over : dict of str to sequence
        The values of each setting.
    seeds : int or sequence of int
        How many, from 0, or which.
    report : callable
        `report(runs done, runs in all, **setting)`; `distlearn.world.progress.Bar()` shows a bar.

    Examples
    --------
    >>> study = Study(lambda seed, lr: abs(lr - 0.2) * 10 + seed, {"lr": (0.1, 0.2, 0.3)}, seeds=3)
    >>> print(study.table())
    lr        value
    ───────────────
    0.1  2 (1 to 3)
    0.2  1 (0 to 2)
    0.3  2 (1 to 3)
    >>> study.best("lr")
    0.2
    """

    def __init__(self, run, over, seeds=5, report=ignore_report):
        self.over = {name: tuple(values) for name, values in over.items()}
        self.seeds = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
        if not self.seeds or not all(self.over.values()):
            raise ValueError(f"Study: nothing to run over {self.over} with seeds {self.seeds}")
        settings, found = list(itertools.product(*self.over.values())), []
        for setting, seed in itertools.product(settings, self.seeds):
            named = dict(zip(self.over, setting, strict=True))
            made = run(seed=seed, **named)
            found.append(made if isinstance(made, dict) else {"value": made})
            report(len(found), len(settings) * len(self.seeds), **named)
        shape = (*map(len, self.over.values()), len(self.seeds))
        self.values = {name: np.array([f[name] for f in found], float).reshape(shape) for name in found[0]}
        """By name: an array with an axis for each setting, the seeds last."""

    def __getitem__(self, name):
        return self.values[name]

    def best(self, axis: str, value: str = "value", **fixed):
        """Return where a setting's median is least, and raise an error if that is at an end of its values.

        Parameters
        ----------
        **fixed
            One value of each other setting.
        """
        medians = np.median(self._at(value, {name: fixed[name] for name in self.over if name != axis}), axis=-1)
        if np.isnan(medians).all():
            raise ValueError(f"best: no {axis} of {self.over[axis]} gave a {value} for {fixed}")
        i = int(np.nanargmin(medians))
        # a rate that is best at the edge of its grid is not a best rate
        if 0 < i < len(medians) - 1 or len(medians) <= 2:
            return self.over[axis][i]
        raise ValueError(
            f"best: {value} is least at {axis} = {self.over[axis][i]}, an end of {self.over[axis]}: try more"
        )

    def _at(self, value, fixed) -> np.ndarray:
        """The values where some settings are fixed: an axis for each of the others, the seeds last."""
        at = tuple(v.index(fixed[name]) if name in fixed else slice(None) for name, v in self.over.items())
        return self.values[value][at]

    def table(self, title: str = "") -> Table:
        """Return a row for each combination: the median over the seeds, and the least and the largest."""
        rows = []
        for at in np.ndindex(*map(len, self.over.values())):
            setting = [str(values[i]) for values, i in zip(self.over.values(), at, strict=True)]
            rows.append([*setting, *(_spread(found[at]) for found in self.values.values())])
        return Table([*self.over, *self.values], rows, title)

    @styled
    def plot(self, x: str, hue: str | None = None, value: str = "value", *, ax=None, title="", **axes):
        """Draw the median over the seeds against a setting, and a band from the least to the largest.

        Parameters
        ----------
        x, hue : str
            The setting along the axis, and the one that has a line for each of its values.
        value : str
            Which number, if the run returned several.
        **axes
            For `Axes.set`: labels with units, scales.
        """
        from matplotlib.ticker import LogLocator, NullLocator

        if {x, hue} - {None} != set(self.over):
            raise ValueError(f"plot: settings are {', '.join(self.over)}, expected x and hue to name each of them once")
        ax = new_axes()[0] if ax is None else ax
        for i, line in enumerate(self.over[hue] if hue else [None]):
            found = self._at(value, {hue: line} if hue else {})
            style = (i + i // 6) % 6  # the seventh line has the first one's colour alone
            look = {"color": COLORS[i % 6], "linestyle": LINES[style], "marker": MARKERS[style]}
            ax.plot(self.over[x], np.median(found, axis=-1), label=None if line is None else str(line), **look)
            ax.fill_between(self.over[x], found.min(axis=-1), found.max(axis=-1), color=look["color"], alpha=0.18, lw=0)
        ax.set(**{"xlabel": x, "ylabel": value, "title": title} | axes)
        if ax.get_xscale() == "log":
            ax.set_xticks(self.over[x], labels=[f"{number:g}" for number in self.over[x]])
            ax.xaxis.set_minor_locator(NullLocator())
        if ax.get_yscale() == "log":
            label_ticks(ax.yaxis, LogLocator(subs=(1, 2, 5)), "{:g}".format)
        if hue:
            beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(self.over[hue]) > 4 else {}
            ax.legend(title=hue, **beside)
        return ax


def _spread(found) -> str:
    """Median, and the least and the largest if they differ."""
    low, middle, high = (format_number(float(f(found))) for f in (np.min, np.median, np.max))
    return middle if low == high else f"{middle} ({low} to {high})"


def label_ticks(axis, places, label) -> None:
    """Have ticks at the places of a locator alone, and label them by a function of the value."""
    from matplotlib.ticker import NullLocator

    axis.set_major_locator(places)
    axis.set_major_formatter(lambda value, _: label(value))
    axis.set_minor_locator(NullLocator())
