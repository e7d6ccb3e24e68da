"""The rules for a lab's source, those of course/AUTHORING.md; and `tidy`, which undoes what saving a notebook adds.

Every rule takes a `Source` and yields `Problem`s; `RULES` lists them.
"""

from __future__ import annotations

import ast
import copy
import re
import sys
from collections import Counter
from pathlib import Path

import nbformat

from .source import BEGIN_HIDDEN, BEGIN_SOLUTION, END_HIDDEN, END_SOLUTION, Cell, Problem, Source, packed

MAX_LINES, MAX_WIDTH = 20, 100
CELLS, GOALS, SECTIONS, QUESTIONS = (30, 70), (3, 5), (3, 6), (2, 4)
"""The fewest and the most that a lab has."""
MAX_DRAWING = 80  # Characters in a line of a drawing in the text: JupyterLab breaks lines that are wider than the page.
SETUP = "import matplotlib.pyplot as plt\nimport numpy as np\nimport distlearn as dl\nimport distcourse"
MADE = 'lab = distcourse.Lab("{number}"'
LAST_WORDS = ("**Going further.**", "**References.**", "**Next lab.**")


def title(lab: Source):
    """The first cell: title, question, goals, time, needs."""
    if not lab.cells or lab.cells[0].is_code:
        yield Problem(None, "the first cell must be the title, in markdown")
        return
    first = lab.cells[0]
    if not re.match(rf"# Lab {lab.number or 'NN'}: \S", first.source):
        yield Problem(first, f"the title must read '# Lab {lab.number or 'NN'}: ...'")
    for word in ("**Question.**", "**You will be able to**", "**Time.**", "**Needs.**"):
        if word not in first.source:
            yield Problem(first, f"{word} is missing")
    goals = re.findall(r"^- \S", first.source.partition("**You will be able to**")[2], re.MULTILINE)
    yield from amount(first, len(goals), "goals", GOALS)


def amount(cell, n: int, what: str, limits: tuple[int, int]):
    """The fewest and the most that there may be of something."""
    low, high = limits
    if not low <= n <= high:
        yield Problem(cell, f"{n} {what}, expected {low} to {high}")


def setup(lab: Source):
    """The second cell: the same lines in every lab, and the modules of distcourse that this one uses."""
    made = MADE.format(number=lab.number)
    cell = lab.cells[1] if len(lab.cells) > 1 else None
    if cell is None or not re.fullmatch(
        re.escape(SETUP) + r"(\nfrom distcourse import [\w, ]+)?\n" + re.escape(made) + r"(, engines=\d+)?\)",
        cell.source,
    ):
        yield Problem(
            cell, "the second cell must be the setup: " + f"{SETUP}\n{made}".replace("\n", " / ") + ", engines=...)"
        )


def sections(lab: Source):
    """Numbered sections, a reflection, a summary; minutes that add up."""
    numbered = [s for s in lab.sections if s.number is not None]
    yield from amount(None, len(numbered), "numbered sections", SECTIONS)
    for k, section in enumerate(numbered, 1):
        if section.number != k:
            yield Problem(section.cell, f"section number {section.number}, expected {k}")
    titles = [s.title for s in lab.sections if s.number is None]
    if titles != ["Reflection", "Summary"]:
        yield Problem(None, f"unnumbered sections are {titles}, expected Reflection, then Summary, and no others")
    for section in lab.sections:
        if section.minutes is None and section.title != "Summary":
            yield Problem(section.cell, f"section '{section.title}' has no '(N min)'")
    time = re.search(r"\*\*Time\.\*\* (\d+) minutes", lab.cells[0].source) if lab.cells else None
    if not time:
        yield Problem(None, "**Time.** must read '**Time.** N minutes'")
    elif int(time[1]) != lab.minutes:
        yield Problem(lab.cells[0], f"the sections take {lab.minutes} minutes, the title says {time[1]}")


def sizes(lab: Source):
    """Number of cells, lines per cell, and their width: wider lines are cut off on a laptop's screen."""
    yield from amount(None, len(lab.cells), "cells", CELLS)
    for cell in lab.cells:
        drawn = [] if cell.is_code else re.findall(r"^```.*?\n(.*?)^```", cell.source, re.MULTILINE | re.DOTALL)
        wide = max((len(line) for text in drawn for line in text.splitlines()), default=0)
        if wide > MAX_DRAWING:
            yield Problem(cell, f"a drawing {wide} characters wide: the limit is {MAX_DRAWING}")
    for cell in lab.code:
        if cell.code_lines > MAX_LINES:
            yield Problem(cell, f"{cell.code_lines} lines of code: the limit is {MAX_LINES}; move some to the library")
        wide = max(map(len, cell.source.splitlines()), default=0)
        if wide > MAX_WIDTH:
            yield Problem(cell, f"a line of {wide} characters: the limit is {MAX_WIDTH}")
        if cell.tree is None:
            yield Problem(cell, f"is not valid Python: {cell.error}")


def predictions(lab: Source):
    """Every prediction is tagged, answered, required and revealed, in this order."""
    asked = {}
    for cell in lab.code:
        calls = cell.calls("lab.predict")
        if bool(calls) != ("predict" in cell.tags):
            yield Problem(cell, "must call lab.predict and be tagged `predict`, or do neither")
        for call in calls:
            key = _key(call)
            answer = next((k for k in call.keywords if k.arg == "answer"), None)
            if key in asked:
                yield Problem(cell, f"prediction {key!r} is asked for twice")
            if not all(isinstance(text, ast.Constant) for text in call.args):
                yield Problem(cell, f"the question of prediction {key!r} is no plain text, which pages for staff quote")
            if answer is None or (isinstance(answer.value, ast.Constant) and answer.value.value is ...):
                yield Problem(cell, f"prediction {key!r} has no sample answer=")
            elif cell.source.splitlines()[answer.lineno - 1][: answer.col_offset].strip():
                yield Problem(cell, f"answer= of prediction {key!r} must begin a line, or students overlook it")
            asked[key] = cell
    if not asked:
        yield Problem(None, "no prediction")
    revealed = {_key(call): cell for cell in lab.code for call in cell.calls("lab.reveal")}
    required: dict = {}
    for cell in lab.code:
        for call in cell.calls("lab.require"):
            for arg in call.args:
                required.setdefault(getattr(arg, "value", None), cell)
    for key, cell in asked.items():
        after = [required.get(key), revealed.get(key)]
        if None in after:
            yield Problem(
                cell, f"prediction {key!r} needs lab.require and lab.reveal in the cell that shows the result"
            )
        elif not cell.index < after[0].index <= after[1].index:
            yield Problem(cell, f"prediction {key!r}: expected predict, then require, then reveal")
    for key in sorted(map(str, (revealed.keys() | required.keys()) - asked.keys())):
        yield Problem(revealed.get(key) or required.get(key), f"{key!r} is revealed or required, but never predicted")


def figures(lab: Source):
    """Every cell that draws shows its figure with alternative text, and a table is the last thing in its cell."""
    for cell in lab.code[1:]:
        for statement in cell.tree.body[:-1] if cell.tree else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "table":
                yield Problem(cell, "makes a table that is not shown: it must be the last line of its cell")
        shows = cell.calls("lab.show")
        draws = re.search(r"\b(plt|viz)\.(?!table\b)\w+\(", cell.without("### BEGIN", "### END"))
        if draws and not shows and not cell.calls("lab.film") and not cell.is_solution:
            yield Problem(cell, 'draws, but does not end with lab.show(fig, alt="...")')
        if "plt.show(" in cell.source:
            yield Problem(cell, "plt.show has no alternative text: lab.show(fig, alt=...)")
        for call in shows:
            alt = next((k.value for k in call.keywords if k.arg == "alt"), None)
            words = len(ast.unparse(alt).split()) if alt else 0
            if words < 4:
                yield Problem(cell, "lab.show needs alt= with one sentence")
    if not any(c.calls("lab.show") for c in lab.code):
        yield Problem(None, "no figure")


def failure(lab: Source):
    """One deliberate failure, explained below."""
    failing = [c for c in lab.code if "failure" in c.tags]
    if not failing:
        yield Problem(None, "no deliberate failure (tag `failure`)")
    for cell in failing:
        below = lab.after(cell)
        if below is None or below.is_code:
            yield Problem(cell, "fails on purpose, but no text below explains why")


def real_run(lab: Source):
    """The student's function in a real training run."""
    if lab.number != "00" and not any("real-run" in c.tags for c in lab.code):
        yield Problem(None, "no cell puts the student's function into a real training run (tag `real-run`)")


def engines(lab: Source):
    """Cells that need engines are tagged; what grading skips is not graded, and nothing graded needs it."""
    for cell in lab.code:
        needs = "EngineWorld(" in cell.source or re.search(r"^%%?px\b", cell.source, re.MULTILINE)
        if needs and "engines" not in cell.tags:
            yield Problem(cell, "needs engines, but is not tagged `engines`")
        if cell.grader and DEMONSTRATIONS & set(cell.tags):
            yield Problem(cell, f"is tagged `{cell.tags[0]}`, which grading skips, but it is part of an exercise")
    skipped = [c for c in lab.code if DEMONSTRATIONS & set(c.tags)]
    made = set().union(*(c.binds for c in lab.code if c not in skipped))
    for cell in [c for c in lab.code if c.grader]:
        for other in skipped:
            names = sorted((cell.uses - cell.binds) & (other.binds - made))
            if names and other.index < cell.index:
                yield Problem(cell, f"uses {', '.join(names)} of {other}, which grading skips")


def reflection(lab: Source):
    """Questions with sample answers."""
    answers = [c for c in lab.cells if c.is_answer]
    yield from amount(None, len(answers), "questions in the reflection", QUESTIONS)
    start = next((s.cell.index for s in lab.sections if s.title == "Reflection"), None)
    for k, cell in enumerate(answers, 1):
        above = lab.cells[cell.index - 1].source
        asked = re.search(rf"^### Question {k} \((\d+) points?\)", above, re.MULTILINE)
        if not asked:
            yield Problem(cell, f"no '### Question {k} (N points)' in the cell above")
        elif int(asked[1]) != cell.points:
            yield Problem(cell, f"the question says {asked[1]} points, the metadata {cell.points}")
        if cell.grade_id != f"reflect_{k}":
            yield Problem(cell, f"grade id is {cell.grade_id!r}, expected 'reflect_{k}'")
        if len(cell.source.split()) < 10:
            yield Problem(cell, "is not a sample answer (fewer than ten words)")
        if start is not None and cell.index < start:
            yield Problem(cell, "is graded by hand, but is above the reflection")


def last_words(lab: Source):
    """The summary: going further, references, next lab."""
    if not lab.cells or lab.cells[-1].is_code:
        yield Problem(None, "the last cell must be the summary, in markdown")
        return
    last = lab.cells[-1]
    for word in LAST_WORDS:
        if word not in last.source:
            yield Problem(last, f"{word} is missing")
    if not re.search(r"\]\([^)]+\)", last.source.partition("**Next lab.**")[2]):
        yield Problem(last, "**Next lab.** has no link")


def _key(call) -> str:
    return getattr(call.args[0], "value", "?") if call.args else "?"


LEAD_IN = re.compile(r"^### Exercise (?P<number>\d+) \((?P<stars>★{1,3}), (?P<points>\d+) points?\): \S", re.MULTILINE)
KEYS = {"schema_version", "grade_id", "grade", "solution", "locked", "task"}


def grade_ids(lab: Source):
    """The metadata of nbgrader is complete and its names are unique."""
    names = Counter(c.grade_id for c in lab.cells if c.grader)
    for cell in lab.cells:
        if not cell.grader:
            continue
        missing = KEYS - cell.grader.keys()
        if missing:
            yield Problem(cell, f"nbgrader metadata lacks {', '.join(sorted(missing))}")
        if cell.grader.get("schema_version") != 3:
            yield Problem(cell, f"nbgrader schema_version is {cell.grader.get('schema_version')}, expected 3")
        if names[cell.grade_id] > 1:
            yield Problem(cell, f"grade id {cell.grade_id!r} is used {names[cell.grade_id]} times")
        if cell.grader.get("grade") and not (cell.points or 0) > 0:
            yield Problem(cell, "is graded, but has no points")


def exercises(lab: Source):
    """Each exercise is four cells: lead-in, solution, check, hints."""
    if not lab.exercises:
        yield Problem(None, "no exercise")
    for k, cell in enumerate(lab.exercises, 1):
        lead = LEAD_IN.search(lab.cells[cell.index - 1].source)
        if not lead:
            yield Problem(cell, f"no '### Exercise {k} (★, N points): ...' in the cell above")
        elif int(lead["number"]) != k:
            yield Problem(cell, f"its lead-in says exercise {lead['number']}, expected {k}")
        check, hints = lab.after(cell), lab.after(cell, 2)
        if check is None or not check.is_check or check.grade_id != f"check_{cell.grade_id}":
            yield Problem(cell, f"the cell below must be its check, with grade id 'check_{cell.grade_id}'")
        elif lead and check.points != int(lead["points"]):
            yield Problem(check, f"{check.points} points in the metadata, {lead['points']} in the lead-in")
        yield from _hints(cell, hints)
        yield from _solution(cell)
    solved = {f"check_{c.grade_id}" for c in lab.exercises}
    for cell in lab.cells:
        if cell.is_check:
            yield from _check(cell)
            if cell.grade_id not in solved:
                yield Problem(cell, "checks no exercise")


def _solution(cell):
    text = cell.region(BEGIN_SOLUTION, END_SOLUTION)
    if not text.strip():
        yield Problem(cell, f"no solution between {BEGIN_SOLUTION} and {END_SOLUTION}")
    if re.search(r"\b(dl|distlearn)\b", text):
        yield Problem(cell, "the solution calls the library: write it out")
    defined = [n for n in (cell.tree.body if cell.tree else []) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    if not defined and cell.tree:
        yield Problem(cell, "defines no function or class")
    for node in defined:
        if not ast.get_docstring(node):
            yield Problem(cell, f"{node.name} has no docstring")
    if re.search(r"^\s*###", cell.without(BEGIN_SOLUTION, END_SOLUTION), re.MULTILINE):
        yield Problem(cell, "has a stray ### marker")


def _check(cell):
    hidden, visible = cell.region(BEGIN_HIDDEN, END_HIDDEN), cell.without(BEGIN_HIDDEN, END_HIDDEN)
    if not hidden.strip():
        yield Problem(cell, f"no hidden tests between {BEGIN_HIDDEN} and {END_HIDDEN}")
    for name, text in (("visible", visible), ("hidden", hidden)):
        if "lab.check(" not in text:
            yield Problem(cell, f"no `lab.check(...)` among the {name} checks")
        try:
            body = ast.parse(text).body
        except SyntaxError:
            yield Problem(cell, f"the {name} checks alone are not valid Python")
            continue
        if body and isinstance(body[-1], ast.Expr) and not ast.unparse(body[-1]).startswith("lab.check("):
            yield Problem(cell, "ends with an expression, which nbgrader reads as partial credit")
    if not cell.grader.get("locked"):
        yield Problem(cell, "a check must be locked")


def _hints(cell, hints):
    if hints is None or hints.is_code or "hints" not in hints.tags:
        yield Problem(cell, "its hints (markdown, tag `hints`) must stand right below its check")
        return
    found = re.findall(r"<details><summary>Hint (\d)</summary>\n\n.+?\n\n</details>", hints.source, re.DOTALL)
    if found != ["1", "2", "3"] or hints.source.count("<details") != 3:
        yield Problem(hints, "expected three folded hints, <details><summary>Hint 1</summary>, blank line, text, ...")


def prose(lab: Source):
    """No text tells a line of a solution that assigns or returns; the last hint may come near."""
    for cell in lab.exercises:
        lines = [line.strip() for line in cell.region(BEGIN_SOLUTION, END_SOLUTION).splitlines()]
        public = cell.without(BEGIN_SOLUTION, END_SOLUTION)
        telling = [line for line in lines if len(line) > 24 and ("=" in line or line.startswith("return"))]
        for line in (line for line in telling if line not in public):
            for other in lab.cells:
                if not other.is_code and "hints" not in other.tags and packed(line) in packed(other.source):
                    yield Problem(other, f"gives away a line of the solution of {cell.grade_id}: {line!r}")


WORDS, GIVEN = 130, 8  # Words of text, and lines of given code, that are read in a minute.
# Minutes for a line that the student writes; failed attempts at an exercise, and minutes for each of them.
LINE, TRIES, TRY = 1.0, 2, 2.0
# Minutes for a guess, an answer in words, a figure, and for a code cell to run.
PREDICTION, ANSWER, FIGURE, RUN = 1.0, 3.0, 0.5, 0.05
# By how much the stated minutes may miss the rule's; a lab of more than `PAUSE` minutes names a place for a break.
TOLERANCE, PAUSE = 0.15, 150


def estimate(lab: Source) -> dict[str, float]:
    """Return the minutes of each section, by its title."""
    # What stands above the first section counts to it, and the summary to the last.
    timed = [s for s in lab.sections if s.title != "Summary"] or lab.sections[:1]
    minutes = {s.title: 0.0 for s in timed}
    for cell in lab.cells:
        section = next((s for s in reversed(timed) if s.cell.index <= cell.index), timed[0] if timed else None)
        if section:
            minutes[section.title] += _minutes(cell)
    return minutes


def _minutes(cell: Cell) -> float:
    """What one cell takes: hints count among the attempts, and checks and what is folded are not read."""
    if cell.is_answer:
        return ANSWER
    if not cell.is_code:
        text = re.sub(r"<[^>]+>", "", cell.source.partition("**References.**")[0])
        return 0.0 if "hints" in cell.tags else len(text.split()) / WORDS
    figures = len(cell.calls("lab.show", "lab.film"))
    minutes = RUN + FIGURE * figures + PREDICTION * len(cell.calls("lab.predict"))
    if cell.is_check or "folded" in cell.tags:
        return minutes
    written = _lines(cell.region(BEGIN_SOLUTION, END_SOLUTION))
    minutes += (_lines(cell.source) - written) / GIVEN + LINE * written
    return minutes + TRIES * TRY * cell.is_solution


def _lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("### "))


def agree(lab: Source):
    """The stated minutes are the rule's; a long lab names a section to pause after."""
    stated, ruled = lab.minutes, sum(estimate(lab).values())
    if abs(stated - ruled) > TOLERANCE * ruled:
        parts = ", ".join(f"{title} {minutes:.0f}" for title, minutes in estimate(lab).items())
        yield Problem(None, f"{stated} minutes are stated, the rule of AUTHORING.md gives {ruled:.0f} ({parts})")
    time = re.search(r"^\*\*Time\.\*\*.*", lab.cells[0].source if lab.cells else "", re.MULTILINE)
    if stated > PAUSE and not (time and re.search(r"\bsections? \d", time[0])):
        yield Problem(lab.cells[0], f"{stated} minutes, and **Time.** names no section after which to take a break")


DEMONSTRATIONS = {"engines", "real-run", "slow"}  # Tags of cells that grading skips.
COMPARED = "nbval-check-output"  # The tag of cells whose text is compared.
SECONDS_PER_CELL = 240  # No cell of a lab takes longer.


def printed(outputs) -> str:
    """Return the text of some outputs: standard output, then results and displays; no figures, no warnings."""
    streams = [out.text for out in outputs if out.output_type == "stream" and out.name == "stdout"]
    shown = [out.data for out in outputs if out.output_type in ("execute_result", "display_data")]
    shown = [data.get("text/plain", "") for data in shown if not any(kind.startswith("image/") for kind in data)]
    lines = "\n".join(["".join(streams).rstrip("\n"), *shown]).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def keep_compared(cell) -> None:
    """Reduce the outputs of a notebook's cell to the text that is compared; to nothing if it is not tagged."""
    text = printed(cell.outputs) if COMPARED in cell.metadata.get("tags", []) else ""
    cell.outputs = [nbformat.v4.new_output("stream", text=text + "\n")] if text else []
    cell.execution_count = 1 if text else None  # nbval takes a cell without a count for one that never ran


def refresh(path) -> bool:
    """Run a source notebook and keep what its compared cells print; return whether that changed the file."""
    from nbclient import NotebookClient

    path = Path(path)
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources=resources).execute()
    nbformat.write(notebook, path)
    tidy(path)
    return path.read_text(encoding="utf-8") != before


FOLDED = "folded"
TAGS = {"predict", "failure", "hints", FOLDED, COMPARED, "raises-exception", *DEMONSTRATIONS}
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
ABSOLUTE = re.compile(
    r"(?<![\w./])/(home|Users|root|tmp|work|mnt|media|opt|usr|var|etc|data)/|\b[A-Za-z]:\\\\?\w|file://"
)
SHADOWED = set(sys.stdlib_module_names)
SHADOWED |= {"comm", "mpi", "numpy", "matplotlib", "distlearn", "distcourse", "IPython", "ipyparallel"}


def cell_ids(lab: Source):
    """Every cell has its own id (nbgrader would draw random ones)."""
    count = Counter(c.id for c in lab.cells)
    for cell in lab.cells:
        if not cell.id or f'"id": "{cell.id}"' not in lab.text:
            yield Problem(cell, "has no id")
        elif count[cell.id] > 1:
            yield Problem(cell, f"id {cell.id!r} is used {count[cell.id]} times")


def committed(lab: Source):
    """Outputs of compared cells and no others, no metadata of one machine, in nbformat's own format."""
    tidied = _tidied(lab)
    for cell, kept in zip(lab.cells, tidied.cells, strict=True):
        if COMPARED in cell.tags and not kept.outputs:
            yield Problem(cell, f"is tagged {COMPARED} and holds no printed output (distlearn labs outputs writes it)")
        elif kept != cell.node:
            yield Problem(cell, "has metadata, or outputs that are not compared (distlearn labs check --fix)")
        for tag in sorted(set(cell.tags) - TAGS):
            yield Problem(cell, f"unknown tag {tag!r}, expected one of {', '.join(sorted(TAGS))}")
    if lab.text != _written(tidied):
        yield Problem(None, "its kernel or its format is not that of all labs (distlearn labs check --fix)")


def portable(lab: Source):
    """No absolute paths, no NBVAL_ comments, no broken links to notebooks."""
    for cell in lab.cells:
        found = ABSOLUTE.search(cell.source)
        if found:
            yield Problem(cell, f"absolute path: {cell.source[found.start() : found.start() + 40].splitlines()[0]!r}")
        if "NBVAL_" in cell.source:
            yield Problem(
                cell, "NBVAL_ comment: use the tag nbval-check-output, a comment survives into the student's copy"
            )
        if cell.is_code and re.search(r"open\([^)]*['\"][rwa]t?['\"]\)", cell.source):
            yield Problem(cell, 'open(...) without encoding="utf-8"')
        if cell.is_code:
            continue
        for link in re.findall(r"\]\(([^)#:]+\.ipynb)", cell.source):
            if not (lab.path.parent / link).exists():
                yield Problem(cell, f"link to {link}, which does not exist")


def neighbours(lab: Source):
    """No file beside the notebook shadows a module."""
    for path in sorted(lab.path.parent.iterdir()):
        if path.stem in SHADOWED and (path.suffix == ".py" or path.is_dir()):
            yield Problem(None, f"{path.name} beside the notebook shadows the module {path.stem}")


def tidy(path) -> bool:
    """Remove what JupyterLab adds on saving, except compared text; format the file; return whether that changed it."""
    lab = Source(path)
    text = _written(_tidied(lab))
    if text != lab.text:
        lab.path.write_text(text, encoding="utf-8")
    return text != lab.text


def _tidied(lab: Source):
    notebook = copy.deepcopy(lab.notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.setdefault("id", nbformat.v4.new_code_cell().id)
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in ("tags", "nbgrader") and v})
        if cell.cell_type == "code":
            keep_compared(cell)
        cell.pop("attachments", None)
    return notebook


def _written(notebook) -> str:
    return nbformat.v4.writes(notebook).rstrip("\n") + "\n"


RULES = (
    title, setup, sections, agree, sizes, predictions, grade_ids, exercises, prose, failure, real_run,
    engines, figures, reflection, last_words, cell_ids, committed, portable, neighbours,
)  # fmt: skip


def check_lab(path) -> list[Problem]:
    """Return the problems of a lab, in the order of the rules; an empty list if there are none."""
    lab = path if isinstance(path, Source) else Source(path)
    return [problem for rule in RULES for problem in rule(lab)]
