"""The labs as a reader sees them: solved notebooks run from top to bottom in JupyterLab. `make ui` runs this.

Pictures of every screen are left in `runs/ui/`.
"""

import shutil
import sys
from pathlib import Path

import psutil
import pytest

from . import browser, contrast

ROOT = Path(__file__).parents[2]
LABS = sorted((ROOT / "course" / "source").glob("lab*/lab*.ipynb"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("course")
    for lab in LABS:
        shutil.copytree(lab.parent, root / lab.parent.name)
    with browser.jupyterlab(root) as url:
        yield url


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_a_solved_lab_runs_and_looks_right(served, lab):
    seen = browser.run_notebook(served, f"{lab.parent.name}/{lab.name}", ROOT / "runs" / "ui")
    assert seen["errors"] == []
    assert seen["missing"] == []
    assert seen["cells"] == seen["executed"] > 10
    assert seen["figures"], "a lab without a single figure"
    for figure in seen["figures"]:
        assert figure["alt"], "a figure without alternative text"
        assert figure["width"] > 200
        assert figure["shown"] > 150
        assert figure["shown"] >= 0.88 * figure["asked"], f"too wide, its letters shrink: {figure['alt']}"
    assert seen["sideways"] == seen["code"] == [], "wider than the page"
    assert seen["small"] == []
    assert all(bar == "100%" for bar in seen["bars"]), seen["bars"]
    engines = [p for p in psutil.process_iter() if "ipyparallel" in _command(p) and _server(p) == served]
    assert engines == [], "a lab leaves its engines behind"


def draw_a_one(page):
    """Draw a digit 1 with the mouse, and wait for the answer."""
    sheet = page.locator(".distlearn-sheet")
    sheet.scroll_into_view_if_needed()
    box = sheet.bounding_box()
    x, top, bottom = box["x"] + box["width"] / 2, box["y"] + 20, box["y"] + box["height"] - 20
    page.mouse.move(x, top)
    page.mouse.down()
    page.mouse.move(x, bottom, steps=40)
    page.mouse.up()
    page.wait_for_selector(".distlearn-digits")


def test_a_drawn_digit_is_answered_layer_by_layer(served):
    def draw(page):
        draw_a_one(page)
        page.wait_for_timeout(500)
        assert page.locator(".distlearn-told").inner_text().startswith("It reads 1.")
        page.locator(".distlearn-digits button").nth(7).click()
        page.wait_for_function("document.querySelector('.distlearn-told').innerText.includes('meant to be 7')")
        before = page.locator(".distlearn-told").inner_text()
        page.get_by_role("button", name="One step of training on it").click()
        page.wait_for_function("t => document.querySelector('.distlearn-told').innerText !== t", arg=before)
        page.screenshot(path=str(ROOT / "runs" / "ui" / "drawing.png"))

    seen = browser.run_notebook(served, "lab01_backprop/lab01.ipynb", ROOT / "runs" / "ui", look=draw)
    assert seen["errors"] == []


def test_a_film_moves(served):
    def play(page):
        film = page.locator(".distlearn-film").first
        film.scroll_into_view_if_needed()
        before = film.locator("img").get_attribute("alt")
        film.locator("button").nth(1).click()
        after = film.locator("img").get_attribute("alt")
        assert before.startswith("Before the first barrier")
        assert after.startswith("After barrier 1")
        page.screenshot(path=str(ROOT / "runs" / "ui" / "film.png"))

    browser.run_notebook(served, "lab04_kernels/lab04.ipynb", ROOT / "runs" / "ui", look=play)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_landing_page_reads_and_asks_nobody(tmp_path, width):
    """What `distlearn start` opens: its text fits and reads, and no request leaves the machine."""
    labs = shutil.copytree(ROOT / "labs", tmp_path / "labs")
    start = [sys.executable, "-m", "distlearn", "start", "--labs", str(labs)]
    asked = []
    with browser.jupyterlab(tmp_path, start) as url, browser.browse(url, "labs/START.md", width=width) as (page, _):
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        page.wait_for_selector(".jp-MarkdownViewer table")
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
        page.wait_for_timeout(1500)
        page.screenshot(path=str(ROOT / "runs" / "ui" / f"start-{width}.png"))
        found = page.evaluate(contrast.CONTRAST)
        wide = page.evaluate(
            "() => { const e = document.querySelector('.jp-RenderedMarkdown'); return e.scrollWidth - e.clientWidth; }"
        )
    assert len(found) > 80
    assert [text for text in found if text["ratio"] < contrast.LEAST] == []
    assert len(asked) > 20
    assert [where for where in asked if not where.startswith((url, "data:", "blob:"))] == []
    assert wide <= 0 or width < 1280, "wider than a laptop's page"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("theme", contrast.THEMES)
def test_all_text_reads_in_light_and_dark(tmp_path, theme):
    contrast.write_gallery(tmp_path / "gallery.ipynb")
    found = []

    def look(page):
        page.evaluate(contrast.SET_THEME, theme)
        page.wait_for_function(f"document.body.dataset.jpThemeName === '{theme}'")
        draw_a_one(page)
        page.wait_for_timeout(1000)
        found.extend(page.evaluate(contrast.CONTRAST))
        page.locator(".distlearn-sheet").scroll_into_view_if_needed()
        page.screenshot(path=str(ROOT / "runs" / "ui" / f"{theme.split()[1].lower()}.png"))

    with browser.jupyterlab(tmp_path) as url:
        seen = browser.run_notebook(url, "gallery.ipynb", ROOT / "runs" / "ui" / theme.split()[1].lower(), look=look)
    assert seen["errors"] == []
    assert len(found) > 150
    assert [t for t in found if t["ratio"] < contrast.LEAST] == []
    red, green = ({t["text"] for t in found if contrast.hue(t["colour"]) == hue} for hue in ("red", "green"))
    assert "✗" in red
    assert "✓" in green
    assert red & green == set(), "only the colour tells them apart"


def test_students_begin_on_a_map_of_the_labs():
    pictures = ROOT / "runs" / "ui"
    pictures.mkdir(parents=True, exist_ok=True)
    with browser.jupyterlab(ROOT) as url, browser.browse(url, "labs/README.md", 60) as (page, _):
        page.wait_for_selector(".jp-RenderedMarkdown h1")
        page.wait_for_timeout(500)
        page.screenshot(path=str(pictures / "landing.png"))
        page.get_by_role("link", name="a dense layer").click()
        page.wait_for_selector(".jp-FileEditor")  # the library's source, beside the labs
        page.locator("#jp-main-dock-panel .lm-TabBar-tabLabel", has_text="README.md").click()
        page.get_by_role("link", name="00 Welcome").click()
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-lineNumbers")
        assert page.locator(".jp-Placeholder").count() > 0, "checks are folded"
        page.screenshot(path=str(pictures / "lab00-released.png"))


def test_kernels_are_coloured_as_c():
    with browser.jupyterlab(ROOT) as url, browser.browse(url, "labs/lab04_kernels/lab04.ipynb", 60) as (page, _):
        page.wait_for_selector(".distlearn-cuda-keyword")
        page.locator(".distlearn-cuda-keyword").first.scroll_into_view_if_needed()
        words = page.locator(".distlearn-cuda-keyword").all_inner_texts()
        assert {"__global__", "void", "int", "if"} <= set(words)
        pictures = ROOT / "runs" / "ui"
        pictures.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(pictures / "coloured.png"))


def _command(process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _server(process) -> str:
    try:
        return process.environ().get("DISTLEARN_UI", "")
    except psutil.Error:  # it ended meanwhile, or is another user's
        return ""
