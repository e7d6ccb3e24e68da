"""Hostile submissions: what cells and answers do to gain points, or to harm whoever grades them.

Each kind is the source of a cell that comes first, and of a function `answer(name)` that makes every answer. In the
texts `SPOILS` is a folder of this machine that is readable and writable for who grades, `COURSE` the course directory,
`LIBRARY` the installed package; `SECRET` is what must not be found.
"""

from __future__ import annotations

import ast
import base64
import copy

from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell

from .hostile_answers import ANSWERS
from .hostile_cells import CELLS
from .submissions import graded_id

TEXTS = ANSWERS | CELLS
"""What is put first, by kind."""


NOTHING = "\ndef answer(name):\n    def wrong(*args, **kwargs):\n        raise NotImplementedError\n    return wrong\n"
"""The answer where a text has none."""


def plain(text: str, places: dict[str, str]) -> str:
    """Fill in where things are, and an answer."""
    text += "" if "def answer(" in text else NOTHING
    for word, value in places.items():
        text = text.replace(word, value)
    return text


def attacked(released, text: str):
    """Return the released notebook with a cell that comes first and makes every answer."""
    notebook = copy.deepcopy(released)
    notebook.cells.insert(0, new_code_cell(text))
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution") and cell.cell_type == "code":
            names = [node.name for node in ast.parse(cell.source).body if hasattr(node, "name")]
            cell.source = "\n".join(f"{name} = answer({name!r})" for name in dict.fromkeys(names))
    return notebook


SCRIPT = "<script>alert('HOSTILE')</script><img src=x onerror=alert('HOSTILE')>"


def scripted(released):
    """Return the released notebook with active content wherever a browser may find it."""
    notebook = copy.deepcopy(released)
    svg = base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>".encode()).decode()
    for text in (SCRIPT, "[x](javascript:alert('HOSTILE'))", f"$x{SCRIPT}$", "<svg onload=alert('HOSTILE')>"):
        notebook.cells.append(new_markdown_cell(text))
    notebook.cells.append(new_markdown_cell("![x](attachment:x.svg)", attachments={"x.svg": {"image/svg+xml": svg}}))
    notebook.cells.append(new_raw_cell(SCRIPT, metadata={"raw_mimetype": "text/html", "format": "text/html"}))
    html = f"from IPython.display import display, HTML, Javascript, SVG, Markdown, Latex\ndisplay(HTML({SCRIPT!r}))"
    html += f"\ndisplay(Javascript(\"alert('HOSTILE')\"), Markdown({SCRIPT!r}), Latex({SCRIPT!r}))"
    html += f"\ndisplay({{'image/svg+xml': {SCRIPT!r}, 'text/html': {SCRIPT!r}}}, raw=True)"
    wide = f"{{'image/png': {{'width': '\">' + {SCRIPT!r}}}}}"
    html += f"\ndisplay({{'image/png': '\"' + {SCRIPT!r}}}, raw=True, metadata={wide})"
    notebook.cells.append(new_code_cell(html))
    old = new_output("display_data", data={"text/html": SCRIPT})
    notebook.cells.append(new_code_cell("1", outputs=[old], metadata={"tags": [SCRIPT, "engines"]}))
    for cell in notebook.cells:
        if graded_id(cell).startswith("reflect"):
            cell.source = f"My answer. {SCRIPT}"
    notebook.metadata["title"] = SCRIPT
    notebook.metadata["language_info"] = {"name": SCRIPT, "pygments_lexer": SCRIPT, "codemirror_mode": SCRIPT}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": SCRIPT}}
    return notebook


MADE = {"carries scripts": scripted}
"""Other kinds: what is made of the released notebook."""

KINDS = (*TEXTS, *MADE)
EVERYWHERE = ("zeroes what it gets", "finds the result in frames")
"""Kinds that every lab gets: they depend on its checks."""
ONLY = {"runs commands in kernels": "lab04"}


def kinds_of(lab: str, labs: list[str]) -> list[str]:
    """Return the kinds that a lab gets: each kind goes to two labs."""
    k, chosen = [name.partition("_")[0] for name in labs].index(lab.partition("_")[0]), []
    for i, kind in enumerate(KINDS):
        only = ONLY.get(kind)
        turn = only is None and k in ((i % len(labs)), (i + 2) % len(labs))
        if turn or kind in EVERYWHERE or (only and lab.startswith(only)):
            chosen.append(kind)
    return chosen


def submission(kind: str, released, places: dict[str, str]):
    """Return the notebook of a kind."""
    if kind in MADE:
        return MADE[kind](released)
    return attacked(released, plain(TEXTS[kind], places))
