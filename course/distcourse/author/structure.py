"""Rules on what a lab consists of: title, sections, minutes, predictions, figures, a failure, a reflection."""

from __future__ import annotations

import ast
import re

from .source import Problem, Source

MAX_LINES, MAX_WIDTH = 20, 100
MAX_DRAWING = 80
"""Characters in a line of a drawing in the text: JupyterLab breaks lines that are wider than the page."""
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
    low, high = lab.limits.goals
    if not low <= len(goals) <= high:
        yield Problem(first, f"{len(goals)} goals, expected {low} to {high}")


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
    numbered, (low, high) = [s for s in lab.sections if s.number is not None], lab.limits.sections
    if not low <= len(numbered) <= high:
        yield Problem(None, f"{len(numbered)} numbered sections, expected {low} to {high}")
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
    total = sum(s.minutes or 0 for s in lab.sections)
    if not time:
        yield Problem(None, "**Time.** must read '**Time.** N minutes'")
    elif int(time[1]) != total:
        yield Problem(lab.cells[0], f"the sections take {total} minutes, the title says {time[1]}")


def sizes(lab: Source):
    """Number of cells, lines per cell, and their width: wider lines are cut off on a laptop's screen."""
    low, high = lab.limits.cells
    if not low <= len(lab.cells) <= high:
        yield Problem(None, f"{len(lab.cells)} cells, expected {low} to {high}")
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
            yield Problem(cell, f"is not valid Python: {_where_wrong(cell.python)}")


def _where_wrong(text: str) -> str:
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}, {error.msg}"
    return ""


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
    """One deliberate failure, unless the lab is short, explained below."""
    failing = [c for c in lab.code if "failure" in c.tags]
    if lab.limits.whole and not failing:
        yield Problem(None, "no deliberate failure (tag `failure`)")
    for cell in failing:
        below = lab.after(cell)
        if below is None or below.is_code:
            yield Problem(cell, "fails on purpose, but no text below explains why")


def real_run(lab: Source):
    """The student's function in a real training run, unless the lab is short."""
    if lab.limits.whole and lab.number != "00" and not any("real-run" in c.tags for c in lab.code):
        yield Problem(None, "no cell puts the student's function into a real training run (tag `real-run`)")


SKIPPED = {"engines", "real-run", "slow"}
"""Tags of cells that grading skips."""


def engines(lab: Source):
    """Cells that need engines are tagged; what grading skips is not graded, and nothing graded needs it."""
    for cell in lab.code:
        needs = "EngineWorld(" in cell.source or re.search(r"^%%?px\b", cell.source, re.MULTILINE)
        if needs and "engines" not in cell.tags:
            yield Problem(cell, "needs engines, but is not tagged `engines`")
        if cell.grader and SKIPPED & set(cell.tags):
            yield Problem(cell, f"is tagged `{cell.tags[0]}`, which grading skips, but it is part of an exercise")
    skipped = [c for c in lab.code if SKIPPED & set(c.tags)]
    made = set().union(*(c.binds for c in lab.code if c not in skipped))
    for cell in [c for c in lab.code if c.grader]:
        for other in skipped:
            names = sorted((cell.uses - cell.binds) & (other.binds - made))
            if names and other.index < cell.index:
                yield Problem(cell, f"uses {', '.join(names)} of {other}, which grading skips")


def reflection(lab: Source):
    """Questions with sample answers."""
    answers, (low, high) = [c for c in lab.cells if c.is_answer], lab.limits.questions
    if not low <= len(answers) <= high:
        yield Problem(None, f"{len(answers)} questions in the reflection, expected {low} to {high}")
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
