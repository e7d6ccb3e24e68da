"""The book as a browser shows it: `make book` first, then `make ui`."""

from pathlib import Path

import pytest

from . import browser, contrast

BOOK = Path(__file__).parents[2] / "build" / "book"
PAGES = sorted(p for p in BOOK.rglob("*.html") if not {"_modules", "_static", "slides"} & set(p.parts))
WIDE = "() => document.documentElement.scrollWidth - innerWidth"
UNFOLD = "() => document.querySelectorAll('details').forEach(folded => { folded.open = true; })"
SLIDE = """() => {
  const slide = Reveal.getCurrentSlide(), missing = [...slide.querySelectorAll('img')].filter(i => !i.naturalWidth);
  return [slide.scrollHeight <= 722, slide.scrollWidth <= 1282, missing.length === 0];
}"""


@pytest.fixture(scope="module")
def chromium():
    """A browser; it must ask for nothing that is not in the book."""
    from playwright.sync_api import sync_playwright

    if not PAGES:
        pytest.skip("needs the book: make book")
    with sync_playwright() as running:
        opened = running.chromium.launch(executable_path=browser.chromium(), args=browser.FLAGS)
        yield opened
        opened.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_read_and_fit_and_ask_nobody(chromium, scheme, width):
    page, asked = chromium.new_page(color_scheme=scheme, viewport={"width": width, "height": 800}), []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        page.goto(path.as_uri())
        page.evaluate(UNFOLD)
        assert page.evaluate(WIDE) <= 0, path
        assert [text for text in page.evaluate(contrast.CONTRAST) if text["ratio"] < contrast.LEAST] == [], path
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", sorted(BOOK.glob("slides/lab*.html")), ids=lambda path: path.stem)
def test_every_slide_fits(chromium, path):
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    page.goto(path.as_uri())
    for number in range(page.evaluate("() => Reveal.getTotalSlides()")):
        assert page.evaluate(SLIDE) == [True, True, True], f"{path.stem}, slide {number + 1}"
        page.keyboard.press("Space")
