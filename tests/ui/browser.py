"""A real JupyterLab in a real, headless Chromium: open a notebook, run all of it, look at it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from distcourse.commands.student import SETTINGS as OURS

TOKEN = "distlearn-ui"

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# the idle sign shows before the kernel is connected, and "run all" would then silently run nothing: wait for the kernel
READY = """async () => {
  const notebook = window.jupyterapp.shell.currentWidget;
  await notebook.context.ready;
  await notebook.sessionContext.ready;
  await notebook.sessionContext.session.kernel.info;
}"""
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
SEEN = """() => ({
  cells: document.querySelectorAll('.jp-CodeCell').length,
  executed: [...document.querySelectorAll('.jp-CodeCell')]
    .filter(c => /\\[\\d+\\]/.test(c.querySelector('.jp-InputPrompt').textContent)).length,
  figures: [...document.querySelectorAll('.jp-OutputArea img')]
    .map(i => ({width: i.naturalWidth, alt: i.alt, shown: i.getBoundingClientRect().width,
                 asked: Number(i.getAttribute('width'))})),
  bars: [...document.querySelectorAll('.jp-OutputArea .progress-bar, .jp-OutputArea progress')]
    .map(e => e.style.width || e.value),
  errors: window.jupyterapp.shell.currentWidget.content.widgets.filter(w => w.model.type === 'code')
    .flatMap(w => w.model.outputs.toJSON()).filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`),
  missing: [...document.querySelectorAll('.jp-OutputArea-output')]
    .map(e => e.innerText).filter(t => /Error displaying widget|widget model not found/i.test(t)),
  sideways: [...document.querySelectorAll('.jp-OutputArea-output, .jp-OutputArea-output *, .jp-RenderedMarkdown *')]
    .filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 10 && !e.closest('math, mjx-container, input'))
    .map(e => `${e.scrollWidth} px in ${e.clientWidth}: <${e.tagName.toLowerCase()}> ${e.innerText.slice(0, 80)}`),
  small: [...document.querySelectorAll('.jp-OutputArea-output, .jp-OutputArea-output *')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
    .filter(e => parseFloat(getComputedStyle(e).fontSize) < 11)
    .map(e => `${getComputedStyle(e).fontSize}: ${e.innerText.slice(0, 80)}`),
  code: [...document.querySelectorAll('.jp-CodeCell .cm-scroller')]
    .filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.scrollWidth} px in ${e.clientWidth}: ${e.innerText.slice(0, 200)}`),
  height: document.querySelector('.jp-Notebook .jp-WindowedPanel-outer').scrollHeight,
})"""
UNFOLD = "() => document.querySelectorAll('details').forEach(folded => { folded.open = true; })"
SCROLL = "(y) => { document.querySelector('.jp-Notebook .jp-WindowedPanel-outer').scrollTop = y; }"
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # else only what is in view exists in the page
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def chromium() -> str | None:
    """Path of an installed Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def jupyterlab(root: Path, start=None):
    """Serve a folder, or what the command `start` serves; yield the address."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        for name, values in SETTINGS.items():
            file = Path(home, "settings", "@jupyterlab", f"{name}.jupyterlab-settings")
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(values), encoding="utf-8")
        env = os.environ | {
            "JUPYTERLAB_SETTINGS_DIR": str(Path(home, "settings")),
            "JUPYTERLAB_WORKSPACES_DIR": str(Path(home, "workspaces")),
            "JUPYTER_CONFIG_DIR": str(Path(home, "config")),
            "JUPYTER_CONFIG_PATH": str(OURS),
            "IPYTHONDIR": str(Path(home, "ipython")),
            "DISTLEARN_UI": f"http://127.0.0.1:{port}",  # what a lab starts inherits it
        }
        ours = [f"--ServerApp.root_dir={root}", f"--LabApp.extra_labextensions_path={OURS / 'labextensions'}"]
        command = start or [sys.executable, "-m", "jupyter", "lab", *ours]
        command += ["--no-browser", "--ip=127.0.0.1", f"--port={port}"]
        command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
        command += ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"]
        command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        with open(Path(home, "log"), "w+", encoding="utf-8") as log:
            server = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
            try:
                url = f"http://127.0.0.1:{port}"
                _wait_for(server, f"{url}/api/status?token={TOKEN}", log)
                yield url
            finally:
                server.terminate()
                try:
                    server.wait(20)
                except subprocess.TimeoutExpired:
                    server.kill()


def _wait_for(server, url: str, log, seconds: float = 60) -> None:
    """Poll until the server answers."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=2).read()
            return
        time.sleep(0.2)
    log.seek(0)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read()}")


@contextlib.contextmanager
def browse(url: str, path: str, seconds: float = 300, width: int = 1280):
    """Open a file in JupyterLab on a laptop's screen; yield the page, and the list of errors on its console."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as profile, sync_playwright() as p:
        browser = p.chromium.launch_persistent_context(
            profile, executable_path=chromium(), headless=True, args=FLAGS, viewport={"width": width, "height": 800}
        )
        page = browser.pages[0]
        page.set_default_timeout(seconds * 1000)
        console: list[str] = []
        page.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
        page.goto(f"{url}/lab/tree/{path}?token={TOKEN}&reset")
        yield page, console
        browser.close()


def run_notebook(url: str, path: str, pictures: Path, look=None) -> dict:
    """Open `path`, run all cells, take pictures of the page from top to bottom; return what is to be seen on it.

    `look(page)` is called at the end, if given.
    """
    pictures.mkdir(parents=True, exist_ok=True)
    with browse(url, path) as (page, console):
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.evaluate(READY)
        page.evaluate(RUN_ALL)
        page.wait_for_timeout(1000)  # the last pictures are laid out
        _photograph(page, page.evaluate(SEEN)["height"], pictures, Path(path).stem)
        page.evaluate(UNFOLD)  # what is folded must fit, too
        seen = page.evaluate(SEEN)
        if look is not None:
            look(page)
    return seen | {"console": console}


def _photograph(page, height: int, folder: Path, stem: str, step: int = 700) -> None:
    """Scroll through the notebook and save one picture per screen."""
    for i, y in enumerate(range(0, height, step)):
        page.evaluate(SCROLL, y)
        page.wait_for_timeout(150)
        page.screenshot(path=str(folder / f"{stem}-{i:02d}.png"))
