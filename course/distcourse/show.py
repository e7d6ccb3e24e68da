"""Cards, the output of a lab: HTML in a notebook, text anywhere else.

Colour never carries the meaning alone: every line has a symbol, so that a greyscale print loses nothing. The HTML takes
its text colour from the page, so that it reads in light and dark themes.
"""

from __future__ import annotations

import base64
import html
import io
import sys
from typing import NamedTuple

from distlearn.tables import CSS_GREEN, CSS_GREY, CSS_PURPLE, CSS_RED

GOOD, BAD, ASK, NOTE = "good", "bad", "ask", "note"

_SYMBOL = {GOOD: "✓", BAD: "✗", ASK: "?", NOTE: "•"}
_COLOUR = {GOOD: CSS_GREEN, BAD: CSS_RED, ASK: CSS_PURPLE, NOTE: CSS_GREY}
_ANSI = {GOOD: "\x1b[32m", BAD: "\x1b[31m", ASK: "\x1b[35m", NOTE: "\x1b[2m"}


MANY = 15  # A notebook folds the lines that are right if there are more: what is wrong must not drown in them.


class Line(NamedTuple):
    """One line of a card: its tone, what it is about, what it says, and what to do about it."""

    tone: str
    name: str
    text: str = ""
    advice: str = ""


class Card:
    """A titled list of lines that shows itself as HTML or as text; the HTML folds many lines that are right."""

    def __init__(self, title: str, lines=(), tone: str = NOTE, foot: str = ""):
        self.title, self.lines, self.tone, self.foot = title, [Line(*line) for line in lines], tone, foot

    def text(self, colour: bool = False) -> str:
        """The card as plain text, with terminal colours if asked for."""

        def mark(tone):
            return f"{_ANSI[tone]}{_SYMBOL[tone]}\x1b[0m" if colour else _SYMBOL[tone]

        width = max((len(line.name) for line in self.lines), default=0)
        rows = [f"{mark(self.tone)} {self.title}"]
        for line in self.lines:
            text = line.text.replace("\n", f"\n{' ' * (width + 6)}")
            rows.append(f"  {mark(line.tone)} {line.name:<{width}}  {text}".rstrip())
            rows += [f"    {' ' * width}  -> {line.advice}"] if line.advice else []
        return "\n".join(rows + ([f"  {self.foot}"] if self.foot else []))

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        cell = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;background:none"

        def table(lines):
            rows = "".join(
                f'<tr style="background:none"><td style="{cell}">{_mark(line.tone)}</td>'
                f'<td style="{cell};white-space:nowrap"><code>{html.escape(line.name)}</code></td>'
                f'<td style="{cell};white-space:pre-wrap">{html.escape(line.text)}'
                + (f"{'<br>' * bool(line.text)}<b>→ {html.escape(line.advice)}</b>" if line.advice else "")
                + "</td></tr>"
                for line in lines
            )
            return f'<table style="margin:4px 0 0 0;border:none">{rows}</table>' if rows else ""

        good = [line for line in self.lines if line.tone == GOOD]
        if len(good) > MANY:
            folded = f"<details><summary>{len(good)} that are right</summary>{table(good)}</details>"
            shown = table([line for line in self.lines if line.tone != GOOD]) + folded
        else:
            shown = table(self.lines)
        foot = f'<div style="margin-top:4px">{html.escape(self.foot)}</div>' if self.foot else ""
        return (
            f'<div style="border-left:4px solid {_COLOUR[self.tone]};padding:4px 12px;margin:4px 0">'
            f"{_mark(self.tone)} <b>{html.escape(self.title)}</b>{shown}{foot}</div>"
        )


def _mark(tone: str) -> str:
    return f'<span style="color:{_COLOUR[tone]};font-weight:bold">{_SYMBOL[tone]}</span>'


SHOW = None  # Where cards go instead: a function that grading sets.


def display(card) -> None:
    """Show a card in the notebook, or print it where there is none."""
    if SHOW is not None:
        SHOW(card)
    elif in_ipython():
        from IPython.display import display as show_rich

        show_rich(card)
    else:
        print(card.text(colour=sys.stdout.isatty()))


def in_ipython() -> bool:
    """Say whether a notebook kernel or IPython runs this code (asking must not import IPython)."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


class Picture:
    """A figure as an image that carries its alternative text."""

    # JupyterLab drops the alternative text of a plain image, hence HTML; the bare PNG serves exports that take no HTML

    def __init__(self, figure, alt: str, dpi: int = 160, tables=()):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
        self.png, self.alt, self.tables = buffer.getvalue(), alt, list(tables)
        width_px = int.from_bytes(self.png[16:20], "big")  # from the PNG's header
        self.width = round(width_px * 96 / dpi)

    def text(self, colour: bool = False) -> str:
        """The alternative text."""
        return f"[figure: {self.alt}]"

    def __repr__(self) -> str:
        return self.text()

    def _repr_png_(self) -> bytes:
        return self.png

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png).decode("ascii")
        alt = html.escape(self.alt, quote=True)
        style = "max-width:100%;height:auto;background:white"
        image = f'<img alt="{alt}" width="{self.width}" style="{style}" src="data:image/png;base64,{data}">'
        numbers = "".join(table._repr_html_() for table in self.tables)
        return image + f"<details><summary>The plotted numbers</summary>{numbers}</details>" * bool(numbers)


class Film:
    """Pictures in a row with a slider. It needs no kernel; where scripts are off, the first picture stays."""

    def __init__(self, frames):
        self.frames = list(frames)

    def text(self, colour: bool = False) -> str:
        """The alternative texts."""
        return "\n".join(frame.text() for frame in self.frames)

    def __repr__(self) -> str:
        return self.text()

    def _repr_png_(self) -> bytes:
        return self.frames[0].png

    def _repr_html_(self) -> str:
        pictures = "|".join(base64.b64encode(frame.png).decode("ascii") for frame in self.frames)
        texts = html.escape("|".join(frame.alt.replace("|", "/") for frame in self.frames), quote=True)
        show = (
            "const film = this.closest('.distlearn-film'), img = film.querySelector('img'), i = Number(this.value);"
            "img.src = 'data:image/png;base64,' + film.dataset.pictures.split('|')[i];"
            "img.alt = film.dataset.texts.split('|')[i]"
        )
        step = (
            "const slider = this.closest('.distlearn-film').querySelector('input');"
            "slider.value = Number(slider.value) + {}; slider.dispatchEvent(new Event('input'))"
        )
        button = '<button onclick="{}" aria-label="{}">{}</button>'
        return (
            f'<div class="distlearn-film" data-pictures="{pictures}" data-texts="{texts}">'
            + button.format(step.format(-1), "previous picture", "◀")
            + f'<input type="range" min="0" max="{len(self.frames) - 1}" value="0" style="width:60%;margin:0 8px" '
            f'aria-label="picture" oninput="{show}">'
            + button.format(step.format(1), "next picture", "▶")
            + f"<br>{self.frames[0]._repr_html_()}</div>"
        )
