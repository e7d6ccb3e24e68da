"""Make the book, and a deck of slides for every lab: `python make_book.py FOLDER`, which `make book` runs.

Everything comes from what stands elsewhere: the Markdown pages, the students' notebooks with the outputs that
`run_labs.py` kept, and the docstrings of what an `__all__` names. Sphinx's sources are written to `build/book-source`
in the repository's own layout, so that links between pages stay as they are.
"""

import base64
import hashlib
import html
import importlib
import inspect
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
from distcourse.author.source import Source
from run_labs import ROOT, solved
from slides import Shown, deck
from sphinx.cmd.build import main as sphinx
from sphinx.pycode import ModuleAnalyzer

HERE = Path(__file__).resolve().parent
SOURCE, DECKS, KEPT = (ROOT / "build" / name for name in ("book-source", "deck-source", "executed"))
LABS = sorted(ROOT.glob("labs/*/*.ipynb"))

# By page, the pages below it, with a shorter title where one is needed; those of the first are the bar at the top.
CONTENTS = {
    "README.md": "labs/README Syllabus:course/syllabus Teaching:course/README api/index ARCHITECTURE",
    "labs/README.md": " ".join(str(path.relative_to(ROOT).with_suffix("")) for path in LABS),
    "course/syllabus.md": "course/project/README course/notes/staleness course/notes/gpu course/notes/emulator_and_card",
    "course/README.md": "course/AUTHORING course/GRADING",
    "ARCHITECTURE.md": "distlearn/cuda/emulator/README CONTRIBUTING CHANGELOG",
}
PAGES = {"README.md", *(f"{name.split(':')[-1]}.md" for names in CONTENTS.values() for name in names.split())}
PAGES = {name for name in PAGES if (ROOT / name).exists()}
# A name is documented in the first package that has it.
PACKAGES = "nn optim data comm sim cuda parallel train world viz trace backend testing comm.collectives comm.network "
PACKAGES += "comm.mpi nn.attention parallel.tensor parallel.pipeline.schedule parallel.asynchronous.param_server "
PACKAGES += "parallel.planning cuda.kernels"
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')


def write(path: Path, text: str) -> None:
    """Write a file, unless it is so already: Sphinx reads again what is newer."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def page(name: str) -> None:
    """Write a Markdown page with the contents below it; what it links to, and is no page, is copied beside it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = LINK.sub(lambda found: link(name, *found.groups("")), text)
    text = re.sub(r"```mermaid\nsequenceDiagram\n(.*?)```", sequence, text, flags=re.DOTALL)
    if name in CONTENTS:
        below = "\n".join(re.sub(r"^(?:(.*):)?(.*)", entry, one) for one in CONTENTS[name].split())
        text += f"\n```{{toctree}}\n:hidden:\n\n{below}\n```\n"
    write(SOURCE / ("index.md" if name == "README.md" else name), text)


def entry(found) -> str:
    """Return a line of a table of contents."""
    return f"{found[1]} </{found[2]}>" if found[1] else f"/{found[2]}"


def link(name: str, text: str, target: str, anchor: str) -> str:
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
    (SOURCE / inside).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, SOURCE / inside)
    return f"[{text}](/{inside})"


def sequence(found) -> str:
    """Return a sequence diagram as a table: the book draws nothing with scripts from elsewhere."""
    who = dict(re.findall(r"participant (\w+) as (.*)", found[1]))
    steps = re.findall(r"(\w+)-{1,2}>>(\w+): (.*)", found[1])
    rows = [f"| {i} | `{who[a]}` | `{who[b]}` | {what} |" for i, (a, b, what) in enumerate(steps, 1)]
    return "\n".join(["| | from | to | |", "| ---: | --- | --- | --- |", *rows])


def lab_page(path: Path, figures: Path) -> dict[str, Shown]:
    """Write a lab as students get it, with the outputs of the solved run; return what the cells showed, for slides."""
    lab, kept, shown = nbformat.read(path, as_version=4), KEPT / path.name, {}
    ran = {cell.id: cell for cell in nbformat.read(kept, as_version=4).cells} if kept.exists() else {}
    now = {cell.id: cell.source for cell in solved(path).cells}
    for cell in lab.cells:
        tags = cell.metadata.setdefault("tags", [])
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            tags.append("hide-input")
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(lambda found: link(str(path.relative_to(ROOT)), *found.groups("")), cell.source)
        elif cell.id in ran and ran[cell.id].source == now[cell.id]:
            outputs = [out for out in map(harmless, ran[cell.id].outputs) if out]
            shown[cell.id] = pictures(outputs, figures / path.stem, cell.id)
            if "nbgrader" not in cell.metadata and "predict" not in tags:
                cell.outputs = outputs
    lab.cells = [cell for cell in lab.cells if "YOUR ANSWER HERE" not in cell.source]
    said = " · The figures and outputs below are those of a solved run." if shown else ""
    links = {"Slides": f"slides/{path.stem}.html", "Notebook to work in": f"notebooks/{path.name}"}
    note = " · ".join(f'<a href="../../{target}">{text}</a>' for text, target in links.items())
    title, _, rest = lab.cells[0].source.partition("\n")
    lab.cells[0].source = f"{title}\n\n{note}{said}\n{rest}"
    write(SOURCE / path.relative_to(ROOT), nbformat.writes(lab) + "\n")
    return shown


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
            first = f'<figure>{image[0].replace("../../figures", "../figures")}<figcaption>{alt}</figcaption></figure>'
        plain = out.get("data", {}).get("text/plain", "")
        title, *lines = plain.splitlines() or [""]
        said += [(title[2:], line[2:].split(None, 2)[2]) for line in map(str.strip, lines) if line[2:].startswith("it was")]
        said += [(title[2:], lines[0].strip()[2:])] if title[2:].startswith("It failed") else []
    return Shown(first, tuple(said))


def reference() -> None:
    """Write a page for every package with what its `__all__` names, and one that lists what `dl.` offers."""
    import distlearn

    known = {}
    for name in PACKAGES.split():
        full = f"distlearn.{name}"
        module = importlib.import_module(full)
        names = getattr(module, "__all__", None) or [n for n, v in vars(module).items() if inspect.getmodule(v) is module]
        own = [n for n in names if not n.startswith("_") and not inspect.ismodule(getattr(module, n))]
        own = [n for n in own if id(getattr(module, n)) not in known]
        known |= {id(getattr(module, n)): f"{full}.{n}" for n in own}
        lines = [full, "=" * len(full), "", f".. automodule:: {full}", "   :no-members:", "", f".. currentmodule:: {full}", ""]
        things = [n for n in own if callable(getattr(module, n))]
        lines += [".. autosummary::", "", *(f"   {n}" for n in things), ""]
        for n in own:
            kind = "autoclass" if inspect.isclass(getattr(module, n)) else "autofunction" if n in things else "data"
            lines += [f".. {kind}:: {n}", *["   :members:"] * (kind == "autoclass"), ""]
            lines += [f"   {line}" for line in (told_of(n, full) if kind == "data" else [])] + [""]
        write(SOURCE / f"api/{full}.rst", "\n".join(lines))
    offered = [known.get(id(getattr(distlearn, n)), "") for n in distlearn.__all__]
    lines = ["The library", "===========", "", ".. automodule:: distlearn", "   :no-members:", "", ".. currentmodule:: None", ""]
    lines += ["What ``dl.`` offers", "-" * 19, ""]
    lines += [".. autosummary::", "", *(f"   ~{n}" for n in offered if n), "", "Packages", "--------", "", ".. toctree::", ""]
    lines += [f"   distlearn.{name}" for name in PACKAGES.split()]
    write(SOURCE / "api/index.rst", "\n".join(lines) + "\n")


def told_of(constant: str, package: str) -> list[str]:
    """Return the docstring of a constant, from the module of the package that has one."""
    for module in sorted(name for name in sys.modules if name.startswith(package)):
        if told := ModuleAnalyzer.for_module(module).find_attr_docs().get(("", constant)):
            return told
    return []


def make(out: Path) -> int:
    """Write the sources and have Sphinx make the book and the slides; return its exit status."""
    shutil.rmtree(out, ignore_errors=True)
    for name in sorted(PAGES):
        page(name)
    for path in LABS:
        shown = lab_page(path, out / "figures")
        write(DECKS / f"{path.stem}.md", deck(Source(ROOT / "course/source" / path.parent.name / path.name), shown))
        (out / "notebooks").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / "notebooks")
    write(DECKS / "index.md", "# Slides\n\n" + "\n".join(f"- [{path.stem}]({path.stem}.md)" for path in LABS) + "\n")
    reference()
    strict = ["-W", "--keep-going", "-q", "-c", str(HERE)]
    return sphinx(["-b", "html", *strict, "-d", f"{SOURCE}-cache", str(SOURCE), str(out)]) or sphinx(
        ["-b", "revealjs", *strict, "-d", f"{DECKS}-cache", str(DECKS), str(out / "slides")]
    )


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[1])))
