"""Settings of Sphinx for the book and the slides; `make_book.py` calls it."""

from pathlib import Path

from distcourse.author.pages import mathml
from docutils.nodes import SkipNode
from sphinx.util import logging

import distlearn

project, author, release = "distlearn", "The distlearn developers", distlearn.__version__
copyright = "The distlearn developers; text and pictures CC BY 4.0, code BSD-3-Clause"
extensions = ["myst_nb", "sphinx.ext.napoleon", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode"]
extensions += ["sphinx_revealjs"]

myst_enable_extensions = ["dollarmath", "amsmath", "html_image"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show = "Show the code of this cell"
nb_code_prompt_hide = "Hide the code of this cell"
default_role = "py:obj"
autosummary_generate = False
autodoc_inherit_docstrings = False
napoleon_google_docstring = napoleon_use_param = False
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "distlearn"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["book.css"]
html_copy_source = False
html_domain_indices = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
revealjs_style_theme = "white-contrast"
revealjs_static_path = html_static_path
revealjs_css_files = ["slides.css"]
revealjs_script_conf = {"width": 1280, "height": 720, "slideNumber": "c/t", "hash": True, "pdfSeparateFragments": False}
revealjs_script_plugins = [{"src": "revealjs/plugin/notes/notes.js", "name": "RevealNotes"}]


def visit_math(self, node):
    """Write a formula as MathML, which browsers show by themselves."""
    block = node.tagname == "math_block"
    formula = mathml(node.astext(), "block" if block else "inline")
    if not formula:
        logging.getLogger(__name__).warning("no MathML for %r", node.astext(), location=node)
    self.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise SkipNode


def skip(app, what, name, thing, skipped, options):
    """Leave out what a NamedTuple says of its fields by itself."""
    return True if str(getattr(thing, "__doc__", "")).startswith("Alias for field number") else None


def setup(app):
    """Add the formulas."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("autodoc-skip-member", skip)


html_math_renderer = "mathml"
