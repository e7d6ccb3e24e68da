"""What staff work with: the bank of exam questions, a page for each lab, and answers for a plagiarism checker."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path

import numpy as np

import distlearn
from distlearn.tables import format_number

from ..exercise import load
from .grade import submitted
from .release import find_labs, labs_dir, source_notebooks
from .rules import LEAD_IN, estimate
from .source import Source, packed

KINDS = ("number", "choice", "explain", "bug", "derive")


def questions(course, labs=()) -> list[dict]:
    """Questions of the bank, of all labs or of those with these numbers, in order; `draw` fills one in."""
    files = {path.stem[3:]: path for path in sorted(Path(course, "staff", "questions").glob("lab*.toml"))}
    labs = [name[3:5] for name in find_labs(course, labs)] if labs else ()
    unknown = sorted(set(labs) - set(files))
    if unknown:
        raise ValueError(f"no questions on lab {', '.join(unknown)} in {Path(course, 'staff', 'questions')}")
    found = []
    for lab, path in files.items():
        if not labs or lab in labs:
            told = tomllib.loads(path.read_text(encoding="utf-8"))["question"]
            found += [{"id": f"{lab}-{n}", "lab": lab} | question for n, question in enumerate(told, 1)]
    return found


def draw(question: dict, rng=None) -> dict:
    """Fill a question in: parameters drawn (the first of each without `rng`), number computed, choices mixed."""
    space = {"np": np, "dl": distlearn}
    for name, values in question.get("draw", {}).items():
        space[name] = values[rng.integers(len(values)) if rng else 0]
    exec(question.get("compute", ""), space)

    def filled(value):
        if isinstance(value, list):
            return [filled(v) for v in value]
        if isinstance(value, dict):
            return {key: filled(v) for key, v in value.items()}
        plain = not isinstance(value, str) or "{{" not in value
        return value if plain else _templates().from_string(value).render(space)

    found = filled({key: value for key, value in question.items() if key not in ("draw", "compute")})
    if question["kind"] == "number":
        found["answer"] = float(space["result"])
    if question["kind"] == "choice":
        choices = [{"text": found["right"]}, *found["wrong"]]
        order = rng.permutation(len(choices)) if rng else range(len(choices))
        found["choices"] = [{"letter": "ABCDEF"[k]} | choices[i] for k, i in enumerate(order)]
    return found


def exam(course, target, labs, minutes: int, seed: int) -> tuple[int, int, bool]:
    """Write an exam paper and its key; return its minutes and points, and whether it has all questions of the bank.

    The labs take turns until the time is full.
    """
    rng, turns, left, chosen = np.random.default_rng(seed), Counter(), minutes, []
    pool = questions(course, labs)
    rng.shuffle(pool)
    for question in pool:
        turns[question["lab"]] += 1
        question["turn"] = turns[question["lab"]]
    for question in sorted(pool, key=lambda q: q["turn"]):
        if question["minutes"] <= left:
            chosen.append(draw(question, rng))
            left -= question["minutes"]
    chosen.sort(key=lambda q: q["id"])
    points, target = sum(q["points"] for q in chosen), Path(target)
    for key, path in ((False, target), (True, target.with_stem(f"{target.stem}_key"))):
        text = _page("exam.md.j2", key=key, questions=chosen, minutes=minutes - left, points=points, seed=f"{seed}")
        path.write_text(text, encoding="utf-8")
    return minutes - left, points, len(chosen) == len(pool)


def faults(lab: Source) -> dict[str, list[str]]:
    """By exercise, the sentences with which its check names a mistake: what students believe."""
    return {name: list(dict.fromkeys(m.sentence for m in t.mistakes)) for name, t in load(lab.path.parent).items()}


def page(course, path: Path) -> str:
    """Return the staff page of a lab: what its source says, then what is written by hand in course/staff."""
    lab = Source(path)
    wrong = faults(lab)
    exercises = []
    for cell in lab.exercises:
        lead = LEAD_IN.search(lab.cells[cell.index - 1].source)
        title = lab.cells[cell.index - 1].source[lead.start() :].partition("\n")[0].removeprefix("### ")
        exercises.append({"title": title, "faults": wrong[cell.grade_id]})
    guesses = []
    for cell in lab.code:
        for call in cell.calls("lab.predict"):
            answer = next(k.value for k in call.keywords if k.arg == "answer")
            unit = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "unit"), "")
            answer = f"{ast.unparse(answer)} {unit}".strip()
            guesses.append({"question": ast.literal_eval(call.args[1]), "answer": answer})
    asked = [(lab.cells[cell.index - 1].source, cell.source) for cell in lab.cells if cell.is_answer]
    written = Path(course, "staff", f"lab{lab.number}.md").read_text(encoding="utf-8")
    bank = [draw(q) for q in questions(course, [lab.number])]
    return _page("staff.md.j2", lab=lab, title=lab.cells[0].source.partition("\n")[0][2:], rule=estimate(lab),
                 exercises=exercises, guesses=guesses, asked=asked, written=written, bank=bank)  # fmt: skip


def pages(course, folder) -> list[Path]:
    """Write the staff pages of all labs."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    found = []
    for path in source_notebooks(course):
        found.append(Path(folder, f"{path.stem}.md"))
        found[-1].write_text(page(course, path), encoding="utf-8")
    return found


def answers(course, lab: str, folder) -> tuple[list[str], list[str]]:
    """Write each answer's code to FOLDER/submissions/STUDENT/EXERCISE.py, the released cells to FOLDER/base.

    Return the students whose answers were written, and a line for each notebook that cannot be read.
    """
    students, unread = submitted(course, lab), {}
    sources = {f"submissions/{s}": Path(course, "submitted", s, lab) for s in students}
    for name, source in (sources | {"base": labs_dir(course) / lab}).items():
        target = Path(folder, name)
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(source.glob("*.ipynb")):
            try:
                exercises = Source(path).exercises
            except ValueError as error:  # no text, no JSON, no notebook
                unread[source.parent.name] = str(error)[:300]
                exercises = []
            for cell in exercises:
                if packed(cell.python):
                    (target / f"{cell.grade_id}.py").write_text(cell.python + "\n", encoding="utf-8")
    return [name for name in students if name not in unread], list(unread.values())


@functools.cache
def _templates():
    from jinja2 import Environment, StrictUndefined

    def shown(value):
        return f"{value:,}" if type(value) is int and value > 9999 else value

    made = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, comment_start_string="{##", finalize=shown
    )
    made.filters["number"] = format_number
    return made


def _page(template: str, **values) -> str:
    text = (resources.files("distcourse.author") / "templates" / template).read_text(encoding="utf-8")
    return _templates().from_string(text).render(values) + "\n"
