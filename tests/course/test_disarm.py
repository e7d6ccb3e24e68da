"""What a submission shows runs nothing in a browser, and looks as it did."""

import re

import nbformat
import numpy as np
import pytest
from distcourse.author.pages import Disarm, Paths, harmless_html, harmless_markdown, markdown
from distcourse.show import Card, Line
from nbformat.v4 import new_markdown_cell, new_notebook
from traitlets.config import Config

import distlearn
from distlearn.tables import CSS_RED

ACTIVE = [
    "<script>f()</script>",
    "<img src=x onerror=f()>",
    "<a href='java&#x0a;script:f()'>x</a>",
    "<a href='data:text/html,<script>f()</script>'>x</a>",
    "<svg onload=f()>",
    "<iframe srcdoc='<script>f()</script>'></iframe>",
    "<form action='https://example.org'><input name=a></form>",
    "<math><mi xlink:href='javascript:f()'>x</mi></math>",
    "<style>@import 'https://example.org'</style>",
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
    "<p style=\"background:url('javascript:f()')\" onclick=f()>x</p>",
    "<object data='x'></object>",
]
PLAIN = [
    "a **bold** claim: $a_1 < b$ and `<script>` in code",
    "# Title\n\n- a\n- b\n\n> quoted\n\n```python\nif a < b: <x>\n```\n",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "<details><summary>more</summary>\n\ntext\n\n</details>",
    "1 < 2 & 3 > 2, $$\\sum_{i<n} x_i$$",
    "[a link](https://example.org) and ![a picture](data:image/png;base64,AAAA)",
]


@pytest.mark.parametrize("text", ACTIVE)
def test_active_html_goes(text):
    for made in (harmless_html(text), harmless_markdown(text)):
        assert harmless_html(made) == harmless_html(harmless_html(made))
        for word in ("<script", "<svg", "<iframe", "<form", "<math", "<style", "<meta", "<object"):
            assert word not in made.lower()
        assert "<img" not in made or "onerror" not in made
        assert "<p style" not in made or "onclick" not in made.partition(">")[0]


@pytest.mark.parametrize("text", ["[x](javascript:f())", "[x]: javascript:f()\n[x]", r"$\href{javascript:f()}{x}$"])
def test_active_markdown_is_shown_as_typed(text):
    assert harmless_markdown(text).startswith("<pre>")


@pytest.mark.parametrize("text", PLAIN)
def test_plain_markdown_stays(text):
    assert harmless_markdown(text) == text


def test_cards_keep_their_look():
    card = Card("a <b>", [Line("bad", "x < y", "was 3", "use 4")], "bad", "foot")._repr_html_()
    made = harmless_html(card)
    for part in (f"border-left:4px solid {CSS_RED}", "white-space:pre-wrap", "✗", "a &lt;b&gt;", "x &lt; y", "→ use 4"):
        assert part in made


def test_attachments_that_are_pictures_stay():
    files = {"a.png": {"image/png": "AAAA"}, "b.svg": {"image/svg+xml": "AAAA"}, "c.png": {"image/png": '"><script>'}}
    cell = new_markdown_cell("![a](attachment:a.png)", attachments=nbformat.from_dict(files))
    lost = new_markdown_cell("![b](attachment:b.svg)", attachments=nbformat.from_dict(files))
    book, _ = Disarm(config=Config()).preprocess(new_notebook(cells=[cell, lost]), {"nbgrader": {}})
    assert dict(book.cells[0].attachments) == {"a.png": {"image/png": "AAAA"}}
    assert book.cells[0].source == "![a](attachment:a.png)"
    assert book.cells[1].source.startswith("<pre>"), "a missing attachment would stop nbconvert"


def test_paths_are_shortened(tmp_path):
    text = Paths(tmp_path)(f"File {distlearn.__file__}, in {tmp_path / 'x'} and {np.__file__}")
    assert text.startswith("File distlearn/__init__.py, in course/x and ")
    assert text.endswith("numpy/__init__.py")
    assert str(tmp_path) not in text


LOADS = [
    "<img src=http://example.org/x.png>",
    "<img src=//example.org/x.png>",
    "<img src='\\\\example.org\\x.png'>",
    "![x](https://example.org/x.png)",
    "<p style='background: url(http://example.org/x.png)'>x</p>",
    "<p style='background: u\\72l(http://example.org/x.png)'>x</p>",
    "<p style='background: image-set(\"http://example.org/x.png\" 1x)'>x</p>",
]


@pytest.mark.parametrize("text", LOADS)
def test_a_page_loads_nothing(text):
    for made in (harmless_html(text), markdown(harmless_markdown(text))):
        assert not re.search(r"<[^>]*(src|style)=[^>]*example", made), made
