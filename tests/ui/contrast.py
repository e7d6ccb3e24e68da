"""How well text on the page can be told from what is behind it, as the browser paints it."""

import re

CONTRAST = """() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const paint = (colours) => {
    pen.fillStyle = 'white';
    pen.fillRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = [];
  const page = document.querySelector('.jp-Notebook, .jp-MarkdownViewer') || document.body;  // or a page of the book
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.textContent.trim()) continue;
    if (page !== document.body && !e.closest('.jp-OutputArea-output, .jp-RenderedMarkdown')) continue;
    if (e.closest('script, style, :disabled, mjx-assistive-mml') || !e.checkVisibility()) continue;
    if (e.closest('[data-mime-type="application/vnd.jupyter.stderr"]')) continue;
    const behind = [];
    for (let at = e; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const own = getComputedStyle(e).color, a = paint([...behind, own]), b = paint(behind);
    texts.push({text: node.textContent.trim(), colour: own, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)});
  }
  return texts;
}"""
"""Every piece of text in outputs and rendered markdown with its colour and its contrast ratio (WCAG 2.2, 1.4.3).

JupyterLab's own tracebacks are left out.
"""
LEAST = 4.5
"""WCAG's level AA for text of a usual size."""
THEMES = ("JupyterLab Light", "JupyterLab Dark")
SET_THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"

CELLS = [
    "# Text\n\n`code`, **bold**, a [link](https://example.org)\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n",
    "```\na = 1\n```",
    "<details open><summary>Hint 1</summary>\n\nWhat does `rank` know?\n\n</details>",
    """
import matplotlib.pyplot as plt
import numpy as np
import distlearn as dl
import distcourse
lab = distcourse.Lab("00", engines=4)""",
    """
lab.predict("none", "Not answered?")
lab.predict("far", "How many?", unit="times", low=0, high=100,
            answer=3)
lab.predict("near", "Which?", choices=["ring", "tree"],
            answer="ring")
lab.reveal("far", 20)
lab.reveal("near", "ring")
lab.predict("far", "How many?", unit="times", low=0, high=100,
            answer=19)""",
    """
with distcourse.Check("right") as check:
    check.close("a name", 1, 1)
with lab.expect(distcourse.CheckFailed), distcourse.Check("wrong") as check:
    check.close("a name", 1, 1)
    check.close("grad", 2 * np.ones(3), np.ones(3))""",
    """
fig, ax = plt.subplots(figsize=(4, 2))
ax.plot([1, 2, 3], label="a line")
lab.show(fig, alt="a line that rises")
dl.viz.table([{"what": name, "n": n, "right": bool(n % 2)} for n, name in enumerate("abcd")], title="A table")""",
    """
lab.film([(plt.figure(figsize=(4, 1)), f"picture number {i} of the film") for i in range(3)])
report = lab.bar("training")
for i in range(5):
    report(i + 1, 5, loss=0.5)
print("said")""",
    """
RACE = r'''extern "C" __global__ void shift(float* a, int n) {
    __shared__ float s[64];
    if (n > 0) s[threadIdx.x] = a[threadIdx.x * 8];
    a[threadIdx.x * 8] = s[63 - threadIdx.x];
}'''
args = (np.ones(2048, np.float32), np.int32(256))
dl.cuda.RawKernel(RACE, "shift").check((1,), (64,), args)""",
    """
dl.cuda.RawKernel(RACE.replace("63 - ", ""), "shift").check((1,), (32,), args)""",
    """
model = dl.nn.Sequential(dl.nn.Linear(64, 10))
optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1)
sheet = lab.draw(dl.Serial(None, model, dl.nn.SoftmaxCrossEntropy(), optimizer))""",
]
"""A cell of everything that labs show: text, guesses, verdicts, tables, films, bars, reports, a sheet to draw on."""


def hue(colour: str) -> str:
    """Say whether a colour as the browser computes it is "red", "green", "blue" or ""."""
    r, g, b = [float(x) for x in re.findall(r"[\d.]+", colour)[:3]]
    most = max(r, g, b)
    return "" if r == g == b else "red" if r == most else "green" if g == most else "blue"


def write_gallery(path) -> None:
    """Write the notebook of all `CELLS`."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, writes

    cells = [(new_code_cell if text.startswith("\n") else new_markdown_cell)(text.strip()) for text in CELLS]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    path.write_text(writes(new_notebook(cells=cells, metadata={"kernelspec": kernel})), encoding="utf-8")
