"""The book and the slides: whole, without a network, and without a solution."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from distcourse.author import Source, source_notebooks
from distcourse.author.source import BEGIN_SOLUTION, END_SOLUTION, packed
from nbformat.v4 import new_output

from .conftest import COURSE

pytest.importorskip("sphinx", reason="the book is made by Sphinx: pip install -e '.[book]'")
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("book"), pytest.mark.timeout(900)]  # one slow build
SOURCES = [Source(path) for path in source_notebooks(COURSE)]


class Page(HTMLParser):
    """What a page links to, what it loads, its anchors and its slides."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids, self.slides = [], [], set(), 0
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.ids |= {told.get("id"), told.get("name")}
        self.slides += tag == "h2"
        self.links += [told["href"]] if tag == "a" and told.get("href") else []
        self.loads += [told[key] for key in ("src", "href", "srcset", "data") if tag != "a" and told.get(key)]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The book, with a kept run of lab 07 in which every cell has printed its own id."""
    folder = tmp_path_factory.mktemp("book")
    sys.path.append(str(COURSE / "book"))
    from run_labs import LABS, solved

    lab = solved(LABS[7])
    for cell in lab.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                new_output("stream", text=f"printed by {cell.id}"),
                new_output("stream", name="stderr", text="noise"),
            ]
    (folder / "kept").mkdir()
    nbformat.write(lab, folder / "kept" / LABS[7].name)
    made = [sys.executable, COURSE / "book/make_book.py", folder / "book", folder / "kept"]
    subprocess.run(made, check=True)  # every warning of Sphinx is an error
    return {path: Page(path) for path in (folder / "book").rglob("*.html") if "_static" not in path.parts}


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(book):
    for path, page in book.items():
        for url in page.links + page.loads:
            to = urlsplit(url)
            if to.scheme in ("", "file"):
                target = (path.parent / unquote(to.path)).resolve() if to.path else path
                assert target.exists(), (path.name, url)
                if to.fragment and target in book and "_modules" not in path.parts:  # there viewcode guesses anchors
                    assert unquote(to.fragment) in book[target].ids, (path.name, url)
            assert url in page.links or to.scheme in ("", "data"), (path.name, url)
    root = min(book, key=lambda path: len(path.parts)).parent
    for path in root.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_every_lab_has_a_page_and_slides_and_no_page_tells_a_solution(book):
    told = packed(
        " ".join(re.sub(r"<[^>]*>", "", page.text) for path, page in book.items() if "_modules" not in path.parts)
    )
    given = [Source(path) for path in (COURSE.parent / "labs").glob("*/*.ipynb")]
    student = packed(" ".join(cell.source for lab in given for cell in lab.cells)).replace("`", "")
    for lab in SOURCES:
        assert {path.parent.name for path in book if path.stem == lab.path.stem} == {lab.path.parent.name, "slides"}
        deck = next(
            page for path, page in book.items() if path.name == f"{lab.path.stem}.html" and path.parent.name == "slides"
        )
        assert 12 <= deck.slides + 1 <= 20
        assert "Your vote" in deck.text
        assert '<aside class="notes">' in deck.text
        for cell in lab.exercises:
            for line in cell.region(BEGIN_SOLUTION, END_SOLUTION).splitlines():
                if len(packed(line)) > 30 and packed(line) not in student:
                    assert packed(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")) not in told, (
                        line
                    )
    assert "Rubric.2points" not in told


def test_what_happened_is_on_its_slide_without_a_run(book):
    """The outcome of a prediction where the source keeps it, else what the lab's text says of it."""
    decks = [page.text for path, page in book.items() if path.parent.name == "slides"]
    slides = [re.split("<aside|</section>", part)[0] for deck in decks for part in deck.split("What happened")[1:]]
    told = [re.sub("<[^>]*>", "", slide).strip() for slide in slides]
    assert len(told) > 60
    assert len(set(told)) == len(told), "the same words for several outcomes say nothing of them"
    assert all(told)


def test_outputs_stand_below_cells_that_students_have_too(book):
    page = next(page for path, page in book.items() if path.stem == "lab07" and path.parent.name != "slides")
    lab = next(lab for lab in SOURCES if lab.number == "07")
    printed = {cell.id for cell in lab.code if f"printed by {cell.id}" in page.text}
    assert printed == {cell.id for cell in lab.code if not cell.grader and "predict" not in cell.tags}
    assert "noise" not in page.text
