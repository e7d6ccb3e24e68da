"""What can be reached and moved without a mouse; `pytest tests/ui/test_keyboard.py --ui -s` prints what it measured."""

from pathlib import Path

import pytest

from . import browser, contrast

PICTURES = Path(__file__).parents[2] / "runs" / "ui" / "keyboard"
FOCUS = """() => {
  const at = document.activeElement;
  return [at.tagName, at.getAttribute('aria-label') || at.innerText || ''].join(' ').trim();
}"""


@pytest.mark.timeout(400)
def test_buttons_and_folds_work_by_keyboard_sliders_and_the_sheet_do_not(tmp_path):
    contrast.write_gallery(tmp_path / "gallery.ipynb")
    told = {}

    def look(page):
        told["least contrast"] = min(t["ratio"] for t in page.evaluate(contrast.CONTRAST))
        film = page.locator(".distlearn-film").first
        film.locator("button").first.focus()
        page.keyboard.press("Tab")
        told["after the first button"] = page.evaluate(FOCUS)
        before = film.locator("img").get_attribute("alt")
        page.keyboard.press("ArrowRight")
        told["film"] = before, film.locator("img").get_attribute("alt")
        page.keyboard.press("Tab")
        told["after the slider"] = page.evaluate(FOCUS)
        page.keyboard.press("Enter")
        told["film, by the button"] = film.locator("img").get_attribute("alt")
        folded = page.locator(".jp-RenderedMarkdown details").first
        folded.evaluate("e => { e.open = false; }")
        folded.locator("summary").focus()
        page.keyboard.press("Enter")
        told["hint unfolded"] = folded.evaluate("e => e.open")
        sheet = page.locator(".distlearn-sheet")
        told["sheet can be focused"] = sheet.evaluate("e => e.tabIndex >= 0")
        told["its buttons"] = (
            sheet.locator("xpath=..").locator("button").evaluate_all("all => all.map(e => e.tabIndex)")
        )

    with browser.jupyterlab(tmp_path) as url:
        browser.run_notebook(url, "gallery.ipynb", PICTURES, look=look)
    print(told)
    assert told["after the first button"] == "INPUT picture"
    assert told["film"] == ("picture number 0 of the film",) * 2, "JupyterLab takes the arrow keys; if not, better news"
    assert told["after the slider"] == "BUTTON next picture"
    assert told["film, by the button"] == "picture number 1 of the film"
    assert told["least contrast"] >= contrast.LEAST
    assert told["hint unfolded"]
    assert told["its buttons"] == [0, 0]
    assert not told["sheet can be focused"], "then course/accessibility.md has better news"
