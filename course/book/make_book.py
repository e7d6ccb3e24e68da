"""Make the book, and a deck of slides for every lab: `make_book.py FOLDER KEPT`, which `make book` runs.

Everything comes from what stands elsewhere: the Markdown pages, the students' notebooks with the outputs that
`run_labs.py` kept in KEPT, and the docstrings of what an `__all__` names. Sphinx's sources are written to FOLDER-source
in the repository's own layout, so that links between pages stay as they are.
"""

import base64
import hashlib
import importlib
import inspect
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
from distcourse.author.source import Source
from run_labs import LABS, ROOT, solved
from slides import Shown, deck
from sphinx.cmd.build import main as sphinx
from sphinx.pycode import ModuleAnalyzer

import distlearn

HERE = Path(__file__).resolve().parent
# By page, the pages below it, with a shorter title where one is needed; those of the first are the bar at the top.
CONTENTS = {
    "README.md": "labs/README Syllabus:course/syllabus Teaching:course/README "
    "Library:course/notes/manual course/notes/kernel_check api/index ARCHITECTURE",
    "labs/README.md": " ".join(str(path.relative_to(ROOT).with_suffix("")) for path in LABS),
    "course/syllabus.md": "course/project/README course/notes/staleness course/notes/gpu "
    "course/notes/emulator_and_card",
    "course/README.md": "course/AUTHORING course/GRADING course/accessibility",
    "ARCHITECTURE.md": "distlearn/cuda/emulator/README CONTRIBUTING CHANGELOG",
}
PAGES = {f"{name.split(':')[-1]}.md" for names in CONTENTS.values() for name in names.split()}
PAGES = {name for name in {*PAGES, "README.md"} if (ROOT / name).exists()}
# A name is documented in the first package that has it.
PACKAGES = "nn optim data comm sim cuda parallel train world viz trace backend testing comm.collectives comm.network "
PACKAGES += "comm.mpi nn.attention parallel.tensor parallel.pipeline.schedule parallel.asynchronous.param_server "
PACKAGES += "parallel.planning cuda.kernels"
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
REVEALED = re.compile(r"^\S (.+)\n(?:  .*\n)*?\s+\S it was\s+(.*?)(?:  .*)?$", re.MULTILINE)
PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')


def make(out: Path, kept: Path) -> int:
    """Write the sources and have Sphinx make the book and the slides; return its exit status."""
    source, decks = out.with_name(f"{out.name}-source"), out.with_name(f"{out.name}-slides")
    for folder in (out, source, decks):
        shutil.rmtree(folder, ignore_errors=True)
    for name in sorted(PAGES):
        write(source / ("index.md" if name == "README.md" else name), page(name, source))
    for path in LABS:
        lab, shown = lab_page(path, kept / path.name, out / "figures" / path.stem)
        write(source / path.relative_to(ROOT), lab)
        write(decks / f"{path.stem}.md", deck(Source(ROOT / "course/source" / path.parent.name / path.name), shown))
        (out / "notebooks").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / "notebooks")
    write(decks / "index.md", "# Slides\n\n" + "\n".join(f"- [{path.stem}]({path.stem}.md)" for path in LABS) + "\n")
    for name, text in reference().items():
        write(source / f"api/{name}.rst", text)
    strict = ["-W", "--keep-going", "-q", "-c", str(HERE)]  # -d: what Sphinx keeps for itself stays out of the book
    failed = sphinx([*strict, "-d", f"{source}/.kept", str(source), str(out)])
    failed |= sphinx([*strict, "-b", "revealjs", "-d", f"{decks}/.kept", str(decks), str(out / "slides")])
    for path in out.glob("slides/_static/revealjs/dist/theme/*.css"):
        if path.stem != "white-contrast":  # others load fonts from the network
            path.unlink()
    return failed


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def page(name: str, source: Path) -> str:
    """Return a Markdown page with the contents below it; what it links to, and is no page, is copied beside it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = LINK.sub(lambda found: link(name, source, *found.groups("")), text)
    text = re.sub(r"```mermaid\nsequenceDiagram\n(.*?)```", sequence, text, flags=re.DOTALL)
    if name not in CONTENTS:
        return text
    below = [entry.rpartition(":") for entry in CONTENTS[name].split()]
    lines = "\n".join(f"{title} </{target}>" if title else f"/{target}" for title, _, target in below)
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"


def link(name: str, source: Path, text: str, target: str, anchor: str) -> str:
    """Return a link of a page as it is in the book, or its text where the book has no such page."""
    path = Path(os.path.normpath(ROOT / Path(name).parent / target))
    path = path / "README.md" if path.is_dir() else path
    inside = str(path.relative_to(ROOT))
    if inside in PAGES or path in LABS:
        return f"[{text}](/{'index.md' if inside == 'README.md' else inside}{anchor})"
    if path.suffix == ".py":  # Sphinx makes its page, and as HTML the link is left alone
        return f'<a href="{"../" * name.count("/")}_modules/{inside.removesuffix(".py")}.html">{text}</a>'
    if path.suffix in (".md", ".ipynb"):
        return text
    (source / inside).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, source / inside)
    return f"[{text}](/{inside})"


def sequence(found) -> str:
    """Return a sequence diagram as a table: the book draws nothing with scripts from elsewhere."""
    who = dict(re.findall(r"participant (\w+) as (.*)", found[1]))
    steps = re.findall(r"(\w+)-{1,2}>>(\w+): (.*)", found[1])
    rows = [f"| {i} | `{who[a]}` | `{who[b]}` | {what} |" for i, (a, b, what) in enumerate(steps, 1)]
    return "\n".join(["| | from | to | |", "| ---: | --- | --- | --- |", *rows])


def lab_page(path: Path, kept: Path, figures: Path) -> tuple[str, dict[str, Shown]]:
    """Return a lab as students get it, with the outputs of the solved run, and what its cells showed, for slides."""
    lab, shown, name = nbformat.read(path, as_version=4), {}, str(path.relative_to(ROOT))
    ran = {cell.id: cell for cell in nbformat.read(kept, as_version=4).cells} if kept.exists() else {}
    now = {cell.id: cell.source for cell in solved(path).cells}
    for cell in lab.cells:
        tags = cell.metadata.setdefault("tags", [])
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            tags.append("hide-input")
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(lambda found: link(name, Path(), *found.groups("")), cell.source)
        elif cell.id in ran and ran[cell.id].source == now[cell.id] and "nbgrader" not in cell.metadata:
            outputs = [out for out in map(harmless, ran[cell.id].outputs) if out]
            shown[cell.id] = pictures(outputs, figures, cell.id)
            cell.outputs = [] if "predict" in tags else outputs
    lab.cells = [cell for cell in lab.cells if "YOUR ANSWER HERE" not in cell.source]
    links = {"Slides": f"slides/{path.stem}.html", "Notebook to work in": f"notebooks/{path.name}"}
    note = " · ".join(f'<a href="../../{target}">{text}</a>' for text, target in links.items())
    title, _, rest = lab.cells[0].source.partition("\n")
    said = " · The figures and outputs are those of a solved run." * bool(shown)
    if not ran:  # the source keeps what its compared cells print
        source = nbformat.read(ROOT / "course/source" / path.parent.name / path.name, as_version=4)
        texts = {c.id: "".join(out.get("text", "") for out in c.get("outputs", ())) for c in source.cells}
        shown = {name: Shown("", tuple(REVEALED.findall(text))) for name, text in texts.items()}
    lab.cells[0].source = f"{title}\n\n{note}{said}\n{rest}"
    return nbformat.writes(lab) + "\n", shown


def harmless(out):
    """Return an output as a page shows it, None for one that needs a kernel or went to stderr."""
    if out.output_type == "stream":
        return out if out.name == "stdout" else None
    data = out.get("data", {})
    if not data or "application/vnd.jupyter.widget-view+json" in data:
        return None
    out.data = {kind: data[kind] for kind in ("text/html", "text/plain") if kind in data}
    return out


def pictures(outputs, folder: Path, name: str) -> Shown:
    """Write the pictures in outputs as files, and say what there is for slides."""
    first, said = "", []
    for out in outputs:
        text = out.get("data", {}).get("text/html", "")
        for code in PICTURE.findall(text):
            data = base64.b64decode(code)
            file = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            text = text.replace(f"data:image/png;base64,{code}", f"../../figures/{folder.name}/{file.name}")
        if text:
            out.data["text/html"] = text
        if not first and (image := re.search(r"<img [^>]*>", text)):
            alt = re.search(r'alt="([^"]*)"', image[0])[1]
            first = f"<figure>{image[0].replace('../../', '../')}<figcaption>{alt}</figcaption></figure>"
        title, *lines = out.get("data", {}).get("text/plain", "").splitlines() or [""]  # of a `distcourse.show.Card`
        said += [(title[2:], found[1]) for line in lines if (found := re.match(r"\s+\S it was\s+(.*?)(  .*)?$", line))]
        if title[2:].startswith("It failed"):
            said.append((title[2:], lines[0].strip()[2:]))
    return Shown(first, tuple(said))


def reference() -> dict[str, str]:
    """Return a page for every package with what its `__all__` names, and one that lists what `dl.` offers."""
    known, pages = {}, {}
    for full in (f"distlearn.{name}" for name in PACKAGES.split()):
        space = vars(importlib.import_module(full))
        names = space.get("__all__") or [n for n, v in space.items() if getattr(v, "__module__", "") == full]
        found = {n: getattr(sys.modules[full], n) for n in names if not n.startswith("_")}
        found = {n: v for n, v in found.items() if not inspect.ismodule(v) and id(v) not in known}
        known |= {id(value): f"{full}.{n}" for n, value in found.items()}
        lines = [full, "=" * len(full), "", f".. automodule:: {full}", "   :no-members:", ""]
        lines += [f".. currentmodule:: {full}", "", ".. autosummary::", "   :nosignatures:", ""]
        lines += [f"   {n}" for n, value in found.items() if callable(value)]
        for n, value in found.items():
            kind = "autoclass" if inspect.isclass(value) else "autofunction" if callable(value) else "data"
            lines += ["", f".. {kind}:: {n}", *["   :members:"] * (kind == "autoclass"), ""]
            lines += [f"   {line}" for line in (told_of(n, full) if kind == "data" else [])]
        pages[full] = "\n".join(lines) + "\n"
    offered = [getattr(distlearn, n) for n in distlearn.__all__]
    offered = [known[id(value)] for value in offered if id(value) in known and callable(value)]
    lines = ["The library", "===========", "", ".. automodule:: distlearn", "   :no-members:", ""]
    lines += [
        ".. currentmodule:: None",
        "",
        "What ``dl.`` offers",
        "-" * 19,
        "",
        ".. autosummary::",
        "   :nosignatures:",
        "",
    ]
    lines += [*(f"   ~{n}" for n in offered), "", "Packages", "--------", "", ".. toctree::", ""]
    return pages | {"index": "\n".join([*lines, *(f"   {full}" for full in pages)]) + "\n"}


def told_of(constant: str, package: str) -> list[str]:
    """Return the docstring of a constant, from the module of the package that has one."""
    for module in sorted(name for name in sys.modules if name.startswith(package)):
        if told := ModuleAnalyzer.for_module(module).find_attr_docs().get(("", constant)):
            return told
    return []


if __name__ == "__main__":
    sys.exit(make(*map(Path, sys.argv[1:])))
