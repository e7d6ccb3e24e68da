"""The feedback page of a student: exercises by name, answers that wait marked as such, formulas without a network.

course/nbgrader_config.py names the step `NameGrades` and the exporter `FeedbackPage`; the page is laid out by
`templates/feedback/index.html.j2`.
"""

from __future__ import annotations

import functools
import html
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

from .exercises import LEAD_IN
from .export import LATE
from .source import Source
from .stage import grade_id_of, source_of

LONGEST = 2000
"""Characters of a formula that are converted."""
ATTRIBUTES = {"xmlns", "display", "mathvariant", "stretchy", "fence", "form", "separator", "accent", "accentunder"}
ATTRIBUTES |= {"minsize", "maxsize", "width", "height", "depth", "lspace", "rspace", "linethickness", "symmetric"}
ATTRIBUTES |= {"columnalign", "columnspacing", "rowspacing", "columnlines", "rowlines", "displaystyle", "scriptlevel"}
ATTRIBUTES |= {"movablelimits", "largeop", "mathsize", "mathcolor", "frame", "notation", "linebreak"}
"""Attributes of MathML that a page may hold: none makes a link or runs anything."""


class NameGrades(NbGraderPreprocessor):
    """Say for every graded cell what it is called, and whether it waits for a person; the step after `GetGrades`."""

    def preprocess(self, nb, resources):
        """Handle one notebook."""
        told = resources["nbgrader"]
        source = source_of(self.config, told["assignment"], told["notebook"])
        names = titles(source)
        with Gradebook(told["db_url"]) as book:
            found = book.find_submission_notebook(told["notebook"], told["assignment"], told["student"]).grades
            waits = {g.name for g in found if g.needs_manual_grade and g.manual_score is None}
        grades = []
        for cell in nb.cells:
            name, known = grade_id_of(cell), cell.metadata.get("nbgrader", {})
            if known.get("grade") or known.get("solution"):
                known["title"], known["waits"] = names.get(name, name), name in waits
            if known.get("grade"):
                grades.append({"id": name, **{key: known[key] for key in ("title", "waits", "score", "points")}})
        first = source.cells[0].source.partition("\n")[0] if source else told["notebook"]
        waiting = sum(grade["points"] for grade in grades if grade["waits"])
        here = CourseDirectory(config=self.config)
        folder = here.format_path(here.submitted_directory, told["student"], told["assignment"])
        late = told.get("total_seconds_late", 0) > 0 or Path(folder, LATE).exists()
        resources["feedback"] = {"title": first.lstrip("# "), "grades": grades, "waiting": waiting, "late": late}
        return nb, resources


def titles(source: Source | None) -> dict[str, str]:
    """Return what students call the exercises and questions of a lab, by grade id."""
    found = {}
    for cell in source.cells if source else ():
        above = source.cells[cell.index - 1].source
        lead, asked = LEAD_IN.search(above), re.search(r"^### (Question \d+)", above, re.MULTILINE)
        if cell.is_solution and lead:
            name = above[lead.end() - 1 :].partition("\n")[0].replace("`", "")
            found[cell.grade_id] = found[f"check_{cell.grade_id}"] = f"Exercise {lead['number']}: {name}"
        elif cell.is_answer and asked:
            found[cell.grade_id] = asked[1]
    return found


class FeedbackPage(HTMLExporter):
    """nbconvert's HTML with our template, and with MathML for formulas."""

    def __init__(self, config=None, **kw):
        ours = Config(config or {})
        ours.FeedbackPage.template_name = "feedback"
        ours.FeedbackPage.extra_template_basedirs = [str(Path(__file__).with_name("templates"))]
        ours.FeedbackPage.filters = {"markdown2html": markdown}
        super().__init__(config=ours, **kw)


def markdown(source: str) -> str:
    """Return a notebook's text as HTML."""
    return MarkdownWithMath(renderer=_Renderer(escape=False)).render(source)


class _Renderer(IPythonRenderer):
    """Renders formulas as MathML."""

    def block_math(self, body):
        return mathml(body, "block") or f"<pre>$${html.escape(body)}$$</pre>"

    def inline_math(self, body):
        return mathml(body, "inline") or f"<code>${html.escape(body)}$</code>"

    def latex_environment(self, name, body):
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")


@functools.cache
def mathml(tex: str, display: str) -> str:
    """Return a formula as MathML, which browsers show by themselves; "" for one that cannot be converted."""
    tex = re.sub(r"\\(left|right|[Bb]igg?[lr]?)?\s*\\([lr])(ceil|floor)\b", _bracket, html.unescape(tex))
    tex = re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{align*}", tex)
    try:
        from latex2mathml.converter import convert_to_element

        element = convert_to_element(tex, display=display) if len(tex) <= LONGEST else None
    except Exception:  # what a student wrote, or the package is not there: the formula is shown as it was typed
        element = None
    if element is None or not all(set(node.attrib) <= ATTRIBUTES for node in element.iter()):
        return ""
    for node in element.iter():  # it writes entities
        node.text = html.unescape(node.text or "")
    return ET.tostring(element, encoding="unicode")


def _bracket(found) -> str:
    size, side, kind = found.groups()
    return f"\\{size} " * bool(size) + {"lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋"}[side + kind]
