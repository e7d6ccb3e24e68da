"""Tables for people: aligned in a terminal, real in a notebook."""

from __future__ import annotations

import html


def quantity(value: float, unit: str = "", base: int = 1000) -> str:
    """Write a number with three digits and a prefix: 61000000 as "61 M"; with base 1024 as "58.2 Mi"."""
    prefixes = ["", "k", "M", "G", "T", "P"]
    step, size = 0, float(value)
    while abs(size) >= 999.5 and step < len(prefixes) - 1:
        size, step = size / base, step + 1
    prefix = prefixes[step] + ("i" if base == 1024 and step else "")
    return f"{size:.3g} {prefix}{unit}".rstrip()


def seconds(value: float) -> str:
    """Write a time with three digits in ns, us, ms or s."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


class Table:
    """Rows of text under a header; the last row may be a sum.

    Parameters
    ----------
    header : list of str
    rows : list of list of str
        The first column is aligned to the left, the others to the right.
    title : str
    """

    def __init__(self, header, rows, title=""):
        self.header, self.rows, self.title = header, rows, title

    def __str__(self):
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        text = [
            "  ".join(
                cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        rule = "-" * len(text[0])
        return "\n".join(
            [*([self.title] if self.title else []), text[0].rstrip(), rule, *(t.rstrip() for t in text[1:])]
        )

    def _repr_html_(self):
        def row(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        body = "".join(row(r, "td") for r in self.rows)
        return f"<table>{caption}<thead>{row(self.header, 'th')}</thead><tbody>{body}</tbody></table>"
