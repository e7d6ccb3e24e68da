"""What browsers show of a graded submission: the instructor's in Formgrader, the student's as feedback.

`Disarm` makes it harmless: HTML keeps its text, tables, styles and pictures, and loses whatever a browser would run;
Markdown with active content is shown as it was typed. `NameGrades` and `FeedbackPage` make the feedback: exercises by
name, answers that wait marked as such, formulas without a network, laid out by `templates/feedback/index.html.j2`.
"""

from __future__ import annotations

import contextlib
import functools
import html
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import bleach
import nbformat
from bleach.css_sanitizer import ALLOWED_CSS_PROPERTIES, CSSSanitizer
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import InvalidNotebook, IPythonRenderer, MarkdownWithMath
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

import distlearn

from .export import is_late
from .rules import LEAD_IN, METADATA
from .source import Source, course_of, grade_id_of, source_of, tests_of

_TAGS = """
p br hr h1 h2 h3 h4 h5 h6 img table thead tbody tfoot tr th td caption col colgroup div span pre sub sup small big
details summary dl dt dd s del ins kbd u mark figure figcaption center font samp var q cite tt strike"""
TAGS = {*bleach.ALLOWED_TAGS, *_TAGS.split()}
_ATTRIBUTES = """
class style id title alt width height align valign lang dir href src name colspan rowspan scope border color face size
start type open target rel cellpadding cellspacing bgcolor"""
ATTRIBUTES = {*_ATTRIBUTES.split()}
_PROPERTIES = """
margin padding border border-left margin-top margin-bottom background max-width max-height border-collapse
border-radius overflow-x overflow-wrap"""
PROPERTIES = (*ALLOWED_CSS_PROPERTIES, *_PROPERTIES.split())
SCHEMES = frozenset(("http", "https", "mailto", "attachment"))
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*$")
MATHS = re.compile(r"\\(href|require|style|class|cssId|unicode)\b")  # Commands of MathJax that make links or load code.
PICTURES = ("image/png", "image/jpeg", "image/gif")
# What makes a style load a file; a backslash could spell it otherwise.
LOADS = re.compile(r"\\|(url|src|image|image-set)\s*\(", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*$")


class Disarm(NbGraderPreprocessor):
    """Disarm a submission that has been run; the step after `ExecuteAll`."""

    def preprocess(self, nb, resources):
        short, told = Paths(course_of(self.config)), resources.get("nbgrader", {})
        source = source_of(self.config, told["assignment"], told["notebook"]) if told else None
        # the instructor's commands read it there; a feedback page shows no metadata
        nb.metadata = nbformat.from_dict(
            METADATA | {"distlearn": {"looks": told.get("looks", []), "tests": source and tests_of(source)}}
        )
        for i, cell in enumerate(nb.cells):
            known = {"nbgrader": cell.metadata["nbgrader"]} if "nbgrader" in cell.metadata else {}
            tags = [t for t in cell.metadata.get("tags", []) if isinstance(t, str) and re.fullmatch(r"[\w-]+", t)]
            cell.metadata = nbformat.from_dict(known | ({"tags": tags} if tags else {}))
            if cell.cell_type == "raw":
                source = f"<pre>{html.escape(cell.source)}</pre>"
                cell = nb.cells[i] = nbformat.v4.new_markdown_cell(source, id=cell.id, metadata=cell.metadata)
            elif cell.cell_type == "markdown":
                attached = {name: _pictures(files) for name, files in cell.pop("attachments", {}).items()}
                attached = {name: files for name, files in attached.items() if files}
                cell.source = harmless_markdown(cell.source, attached)
                if attached:
                    cell.attachments = nbformat.from_dict(attached)
            else:
                if not isinstance(cell.execution_count, int):
                    cell.execution_count = None
                cell.outputs = [out for out in cell.outputs if _disarm_output(out, short)]
        return nb, resources


def _disarm_output(out, short) -> bool:
    if out.output_type == "stream":
        out.text = short(out.text)
        return True
    if out.output_type == "error":
        out.evalue, out.traceback = short(out.evalue), [short(line) for line in out.traceback]
        return True
    data, out.metadata = out.data, nbformat.from_dict({})
    out.data = nbformat.from_dict(_pictures(data))
    for kind, make in (
        ("text/plain", str),
        ("text/html", harmless_html),
        ("text/markdown", harmless_markdown),
        ("text/latex", lambda text: MATHS.sub(r"\\text", html.escape(text))),
    ):
        if isinstance(data.get(kind), str):
            out.data[kind] = make(short(data[kind]))
    return bool(out.data)


def _pictures(data) -> dict:
    return {k: v for k, v in data.items() if k in PICTURES and isinstance(v, str) and _BASE64.match(v)}


def harmless_html(text: str) -> str:
    """Return HTML without anything that a browser would run."""
    return MATHS.sub(r"\\text", _cleaner([], strip=True).clean(text))


def harmless_markdown(text: str, attachments=None) -> str:
    """Return the text itself if nothing in it is active, and otherwise one that shows what was typed."""
    for candidate in (text, text.replace("<", "&lt;")):
        renderer = IPythonRenderer(escape=False, attachments=attachments or {})
        with contextlib.suppress(InvalidNotebook):
            if is_harmless(MarkdownWithMath(renderer=renderer).render(candidate)):
                return candidate
    return f"<pre>{html.escape(text).replace('](', ']&#40;')}</pre>"


def is_harmless(text: str) -> bool:
    """Return whether cleaning HTML would take anything away."""
    refused: list[str] = []
    cleaned = _cleaner(refused).clean(text)
    escaped = cleaned.count("&lt;") > text.count("&lt;") + text.count("&#60;")
    return not (refused or escaped or "<!--" in text or MATHS.search(text))


def _cleaner(refused: list[str], strip: bool = False) -> bleach.Cleaner:
    def allowed(tag, name, value):
        fine = name in ATTRIBUTES or name.startswith("aria-")
        if name in ("href", "src"):
            plain = re.sub(r"[\x00-\x20\x7f-\xa0]", "", html.unescape(value))
            scheme = re.match(r"([A-Za-z][\w+.-]*):", plain)
            fine = not scheme or scheme[1].lower() in SCHEMES or (tag == "img" and bool(PICTURE.match(value)))
            if name == "src":  # a page loads nothing: a picture is in it, or in its folder
                fine = not re.match(r"[/\\]{2}", plain) and (not scheme or bool(PICTURE.match(value)))
        elif name == "style":
            fine = not LOADS.search(value)
        if not fine:
            refused.append(name)
        return fine

    style = CSSSanitizer(allowed_css_properties=PROPERTIES)
    return bleach.Cleaner(TAGS, allowed, protocols=[*SCHEMES, "data"], css_sanitizer=style, strip=strip)


class Paths:
    """Shortens paths of this machine."""

    def __init__(self, course):
        library, own = Path(distlearn.__file__).parent, Path(__file__).parents[1]
        packages = {str(Path(p)) for p in sys.path if p.endswith("-packages")}
        places = {str(library): "distlearn", str(own): "distcourse"} | dict.fromkeys(packages, "packages")
        places |= {str(Path(course).absolute()): "course", str(library.parent): "library"}
        places |= dict.fromkeys({sys.prefix, sys.base_prefix} - {"/usr"}, "python") | {str(Path.home()): "~"}
        places |= {os.environ.get("DISTLEARN_DATA", ""): "data", tempfile.gettempdir(): "/tmp"}
        self._places = sorted(((p, short) for p, short in places.items() if len(p) > 1), key=lambda pair: -len(pair[0]))

    def __call__(self, text: str) -> str:
        for path, short in self._places:  # whole names: the home /home/stu is no part of /home/student
            text = re.sub(rf"{re.escape(path)}(?![\w-])", lambda _, short=short: short, text)
        return text


LONGEST = 2000  # Characters of a formula that are converted.
_MATHML = """
xmlns display mathvariant stretchy fence form separator accent accentunder minsize maxsize width height depth lspace
rspace linethickness symmetric columnalign columnspacing rowspacing columnlines rowlines displaystyle scriptlevel
movablelimits largeop mathsize mathcolor frame notation linebreak"""
MATHML = {*_MATHML.split()}
# Attributes of MathML that a page may hold: none makes a link or runs anything.


class NameGrades(NbGraderPreprocessor):
    """Say for every graded cell what it is called, and whether it waits for a person; the step after `GetGrades`."""

    def preprocess(self, nb, resources):
        told = resources["nbgrader"]
        source = source_of(self.config, told["assignment"], told["notebook"])
        names = titles(source)
        with Gradebook(told["db_url"]) as book:
            here = CourseDirectory(config=self.config)
            folder = here.format_path(here.submitted_directory, told["student"], told["assignment"])
            late = is_late(book.find_submission(told["assignment"], told["student"]), folder)
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
        found = mathml(body, "block")
        return f'<div class="formula">{found}</div>' if found else f"<pre>$${html.escape(body)}$$</pre>"

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
    if element is None or not all(set(node.attrib) <= MATHML for node in element.iter()):
        return ""
    for node in element.iter():  # it writes entities
        node.text = html.unescape(node.text or "")
    return ET.tostring(element, encoding="unicode")


def _bracket(found) -> str:
    size, side, kind = found.groups()
    return f"\\{size} " * bool(size) + {"lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋"}[side + kind]
